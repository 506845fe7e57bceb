"""Calls that a newcomer writes, guessed before any of them was tried: each works, or says in one line what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import pnpladmm as pl
from conftest import picture

SIZE = 24
PSF = np.outer([1, 2, 1], [1, 3, 1]) / 20.0
WIDE = np.outer([1, 2, 3, 2, 1], [1, 3, 4, 3, 1]) / 108.0
GREY = np.clip(picture(SIZE)[0, 0].numpy() + 0.02 * np.random.default_rng(0).standard_normal((SIZE, SIZE)), 0, 0.95)
BYTES = (255 * np.stack([GREY, 0.8 * GREY, 0.5 * GREY + 0.1], -1)).astype(np.uint8)
LABELS = np.repeat([[0, 1]], SIZE, 0).repeat(SIZE // 2, 1)
TV: dict[str, Any] = {"denoiser": "tv", "iterations": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a photo and a PSF, in which the newcomer works."""
    Image.fromarray(BYTES).save(tmp_path / "photo.png")
    Image.fromarray((1000 * PSF).astype(np.uint8)).save(tmp_path / "psf.png")
    np.save(tmp_path / "psf.npy", PSF)
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


# A call, and the words of its refusal; None where it must work.
GUESSES: dict[str, tuple[Callable[[], Any], str | None]] = {
    "files by name": (lambda: pl.restore("photo.png", "psf.png", **TV), None),
    "a Path and an npy": (lambda: pl.restore(Path("photo.png"), Path("psf.npy"), **TV), None),
    "a file and an array": (lambda: pl.restore("photo.png", PSF, **TV), None),
    "an opened picture": (lambda: pl.restore(Image.open("photo.png"), PSF, **TV), None),
    "psf first": (lambda: pl.restore(PSF, GREY, **TV), "first the picture, then the blur"),
    "psf= as the keyword": (lambda: pl.restore(GREY, psf=PSF, **TV), "blur"),
    "kernel= as the keyword": (lambda: pl.restore(GREY, kernel=PSF, **TV), "blur"),
    "sigma= as the keyword": (lambda: pl.restore(GREY, PSF, sigma=0.02, **TV), "noise"),
    "the module itself": (lambda: pl.deblur(GREY, PSF), "restore"),
    "no blur": (lambda: pl.restore("photo.png"), "blur is missing.*estimate"),
    "a width instead of a PSF": (lambda: pl.restore(GREY, 1.5, **TV), "gaussian"),
    "noise in grey levels": (lambda: pl.restore(BYTES, PSF, noise=5, **TV), "5/255"),
    "the noise third": (lambda: pl.restore(GREY, PSF, 0.02, **TV), None),
    "floats of 0 to 255": (lambda: pl.restore(BYTES.astype(float), PSF, **TV), None),
    "a file that is not there": (lambda: pl.restore("foto.png", PSF), "foto.png"),
    "a folder": (lambda: pl.restore("pictures", PSF), "pictures"),
    "a kernel (1, 1, k, k)": (lambda: pl.restore(GREY, torch.from_numpy(PSF)[None, None], **TV), None),
    "a kernel (k, k, 1)": (lambda: pl.restore(GREY, PSF[:, :, None], **TV), None),
    "a kernel per channel (k, k, 3)": (lambda: pl.restore(BYTES, np.stack([WIDE, WIDE, WIDE.T], -1), **TV), None),
    "an even kernel": (lambda: pl.restore(GREY, np.ones((4, 4)), **TV), None),
    "kernels as a list": (lambda: pl.restore(GREY, [PSF, PSF.T], labels=LABELS, **TV), None),
    "labels counted from 1": (lambda: pl.restore(GREY, np.stack([PSF, PSF.T]), labels=LABELS + 1, **TV), None),
    "weights as a keyword": (lambda: pl.restore(GREY, [PSF, PSF.T], weights=LABELS), r"\(kernels, weights\)"),
    "a batch of bytes": (lambda: pl.restore(np.stack([BYTES, BYTES]), PSF, **TV), "axes='BHWC'"),
    "the result as numpy": (lambda: pl.restore(GREY, PSF, **TV).numpy(), "numpy.asarray"),
    "save without a suffix": (lambda: pl.restore("photo.png", PSF, **TV).save("sharp"), "sharp"),
    "an upper-case denoiser": (lambda: pl.restore(GREY, PSF, denoiser="TV", iterations=2), None),
    "a method that is none": (lambda: pl.restore(GREY, PSF, method="wiener"), "choose one of"),
    "a negative noise": (lambda: pl.restore(GREY, PSF, noise=-0.1, **TV), "noise = -0.1"),
    "a PSF of zeros": (lambda: pl.restore(GREY, np.zeros((3, 3)), **TV), "all values are 0"),
    "nan in the PSF": (lambda: pl.restore(GREY, np.full((3, 3), np.nan), **TV), "NaN|finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", GUESSES)
def test_it_works_or_says_what_to_write(name: str, folder: Path) -> None:
    call, words = GUESSES[name]
    if words is None:
        found = np.asarray(call())
        assert found.shape[:2] == (SIZE, SIZE)
        assert np.isfinite(found).all()
        return
    with pytest.raises((pl.InputError, TypeError, AttributeError), match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
