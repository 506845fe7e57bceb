"""What people try first in Python: each call works, or says in one line what to write instead."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from astropy.io import fits
from PIL import Image

import pnpladmm as pl
from conftest import picture

SIZE = 24
PSF = np.outer([1, 2, 1], [1, 3, 1]) / 20.0
QUICK: dict[str, Any] = {"denoiser": "tv", "iterations": 3}


@cache
def grey() -> np.ndarray:
    """(H, W), float64 in [0, 1], with some noise."""
    return np.clip(picture(SIZE)[0, 0].numpy() + 0.02 * np.random.default_rng(0).standard_normal((SIZE, SIZE)), 0, 0.95)


@cache
def colour() -> np.ndarray:
    """(H, W, 3)."""
    return np.stack([grey(), 0.8 * grey(), 0.5 * grey() + 0.1], -1)


@cache
def batch() -> np.ndarray:
    """(B, H, W, 3)."""
    return np.stack([colour(), colour()[::-1]])


def of(call_picture: Any, blur: Any = PSF, **options: Any) -> pl.Restoration:
    return pl.restore(call_picture, blur, **{**QUICK, **options})


def integers(values: np.ndarray, kind: str) -> np.ndarray:
    return (values * np.iinfo(kind).max).astype(kind)


def pil(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(integers(colour(), "uint8")).convert(mode)


def jpeg() -> Image.Image:
    buffer = io.BytesIO()
    pil().save(buffer, "JPEG")
    return Image.open(buffer)


def one_kernel() -> pl.Blur:
    return pl.Blur(torch.from_numpy(PSF)[None], torch.ones(1, SIZE, SIZE))


def admm() -> pl.ADMM:
    return pl.ADMM(pl.load_denoiser("tv"), 0.05, 50.0)


HALVES = np.repeat([[0, 1]], SIZE, 0).repeat(SIZE // 2, 1)
KERNELS = np.stack([PSF, PSF.T])
WEIGHTS = np.stack([HALVES == 0, HALVES == 1]).astype(float)
LEFT = [(0, 0), (11, 0), (11, 23), (0, 23)]


class Physics:
    """As deepinv's."""

    def A(self, x: torch.Tensor) -> torch.Tensor:
        return 0.9 * x

    def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
        return 0.9 * y


# The call, and the shape and type of numpy.asarray of its result.
WORKS: dict[str, tuple[Callable[[], pl.Restoration], tuple[int, ...], str]] = {
    "array (H, W)": (lambda: of(grey()), (SIZE, SIZE), "float64"),
    "array (H, W, 3)": (lambda: of(colour()), (SIZE, SIZE, 3), "float64"),
    "array (H, W, 4)": (lambda: of(np.dstack([colour(), grey()])), (SIZE, SIZE, 4), "float64"),
    "array (3, H, W)": (lambda: of(colour().transpose(2, 0, 1)), (3, SIZE, SIZE), "float64"),
    "array (B, C, H, W)": (lambda: of(batch().transpose(0, 3, 1, 2)), (2, 3, SIZE, SIZE), "float64"),
    "array (B, H, W, 3), axes said": (lambda: of(batch(), axes="BHWC"), (2, SIZE, SIZE, 3), "float64"),
    "array (B, H, W), axes said": (lambda: of(batch()[..., 0].repeat(3, 0), axes="bhw"), (6, SIZE, SIZE), "float64"),
    "tensor (H, W)": (lambda: of(torch.from_numpy(grey())), (SIZE, SIZE), "float64"),
    "tensor (C, H, W)": (lambda: of(torch.from_numpy(colour()).permute(2, 0, 1).float()), (3, SIZE, SIZE), "float32"),
    "tensor (1, 1, H, W)": (lambda: of(torch.from_numpy(grey())[None, None]), (1, 1, SIZE, SIZE), "float64"),
    "tensor (B, H, W, 3)": (lambda: of(torch.from_numpy(batch()), axes="BHWC"), (2, SIZE, SIZE, 3), "float64"),
    "tensor with gradient": (lambda: of(torch.tensor(grey(), requires_grad=True)), (SIZE, SIZE), "float64"),
    "nested list": (lambda: of(grey().tolist()), (SIZE, SIZE), "float64"),
    "uint8": (lambda: of(integers(grey(), "uint8")), (SIZE, SIZE), "uint8"),
    "uint8 colour": (lambda: of(integers(colour(), "uint8")), (SIZE, SIZE, 3), "uint8"),
    "uint16": (lambda: of(integers(grey(), "uint16")), (SIZE, SIZE), "uint16"),
    "float32": (lambda: of(grey().astype(np.float32)), (SIZE, SIZE), "float32"),
    "float16": (lambda: of(grey().astype(np.float16)), (SIZE, SIZE), "float16"),
    "bfloat16 tensor": (lambda: of(torch.from_numpy(grey()).bfloat16()), (SIZE, SIZE), "float32"),
    "uint8 tensor": (lambda: of(torch.from_numpy(integers(grey(), "uint8"))), (SIZE, SIZE), "uint8"),
    "masked array": (lambda: of(np.ma.masked_greater(grey(), 0.9)), (SIZE, SIZE), "float64"),
    "NaN in an array": (lambda: of(np.where(HALVES * np.eye(SIZE) > 0, np.nan, grey())), (SIZE, SIZE), "float64"),
    "not contiguous": (lambda: of(grey()[::-1, ::-1]), (SIZE, SIZE), "float64"),
    "counts with a gain": (lambda: of(grey() * 5000, gain=5.0, background=100), (SIZE, SIZE), "float64"),
    "floats up to 255, noise estimated": (lambda: of(grey() * 255), (SIZE, SIZE), "float64"),
    "PIL RGB": (lambda: of(pil()), (SIZE, SIZE, 3), "uint8"),
    "PIL L": (lambda: of(pil("L")), (SIZE, SIZE), "uint8"),
    "PIL RGBA": (lambda: of(pil("RGBA")), (SIZE, SIZE, 4), "uint8"),
    "PIL opened from a JPEG": (lambda: of(jpeg()), (SIZE, SIZE, 3), "uint8"),
    "Picture": (lambda: of(pl.Picture.from_array(colour())), (SIZE, SIZE, 3), "float64"),
    "PSF as tensor": (lambda: of(grey(), torch.from_numpy(PSF)), (SIZE, SIZE), "float64"),
    "PSF as list": (lambda: of(grey(), PSF.tolist()), (SIZE, SIZE), "float64"),
    "PSF not normalised": (lambda: of(grey(), 255 * PSF), (SIZE, SIZE), "float64"),
    "kernels and weights": (lambda: of(grey(), (KERNELS, WEIGHTS)), (SIZE, SIZE), "float64"),
    "kernels and weights in a dict": (
        lambda: of(grey(), {"kernels": KERNELS, "weights": WEIGHTS}), (SIZE, SIZE), "float64"
    ),
    "kernels and a label map": (lambda: of(grey(), KERNELS, labels=HALVES), (SIZE, SIZE), "float64"),
    "kernels and labels as a pair": (lambda: of(grey(), (KERNELS, HALVES)), (SIZE, SIZE), "float64"),
    "polygons": (lambda: of(grey(), [(None, PSF), (LEFT, PSF.T)]), (SIZE, SIZE), "float64"),
    "PSFs with positions": (
        lambda: of(grey(), KERNELS, positions=[(3.0, 4.0), (20.0, 18.0)]), (SIZE, SIZE), "float64"
    ),
    "Blur": (lambda: of(grey(), one_kernel()), (SIZE, SIZE), "float64"),
    "operator": (
        lambda: of(grey(), pl.SpatiallyVaryingBlur(KERNELS, WEIGHTS, "unknown")), (SIZE, SIZE), "float64"
    ),
    "deepinv's physics": (lambda: of(torch.from_numpy(grey()), Physics(), denoiser="light"), (SIZE, SIZE), "float64"),
    "noise as a numpy number": (lambda: of(grey(), noise=np.float32(0.02)), (SIZE, SIZE), "float64"),
    "noise as a list": (lambda: of(batch(), axes="BHWC", noise=[0.02, 0.03]), (2, SIZE, SIZE, 3), "float64"),
    "noise as an array": (lambda: of(batch(), axes="BHWC", noise=np.full(2, 0.02)), (2, SIZE, SIZE, 3), "float64"),
    "noise as a tensor": (lambda: of(grey(), noise=torch.tensor(0.02)), (SIZE, SIZE), "float64"),
    "noise AUTO": (lambda: of(grey(), noise="AUTO"), (SIZE, SIZE), "float64"),
    "method LADMM": (lambda: of(grey(), method="LADMM"), (SIZE, SIZE), "float64"),
    "method Primal_Dual": (lambda: of(grey(), method="Primal_Dual"), (SIZE, SIZE), "float64"),
    "a method": (lambda: of(grey(), noise=0.02, method=admm()), (SIZE, SIZE), "float64"),
    "a callable as denoiser": (lambda: of(grey(), denoiser=lambda x, s: x, method="admm"), (SIZE, SIZE), "float64"),
    "a denoiser loaded": (lambda: of(grey(), denoiser=pl.load_denoiser("tv")), (SIZE, SIZE), "float64"),
    "progress": (lambda: of(grey(), progress=True), (SIZE, SIZE), "float64"),
    "iterations as a numpy number": (lambda: of(grey(), iterations=np.int64(2)), (SIZE, SIZE), "float64"),
    "mask (H, W)": (lambda: of(grey(), mask=grey() > 0.9), (SIZE, SIZE), "float64"),
    "mask like the picture": (lambda: of(colour(), mask=colour() > 0.9), (SIZE, SIZE, 3), "float64"),
    "mask of numbers": (lambda: of(colour(), mask=np.eye(SIZE)), (SIZE, SIZE, 3), "float64"),
    "variance a number": (lambda: of(grey(), variance=0.0004), (SIZE, SIZE), "float64"),
    "variance a map": (lambda: of(integers(grey(), "uint8"), variance=26 + np.eye(SIZE)), (SIZE, SIZE), "uint8"),
    "linear light": (lambda: of(colour(), linear=True), (SIZE, SIZE, 3), "float64"),
    "device": (lambda: of(grey(), device=torch.device("cpu")), (SIZE, SIZE), "float64"),
}  # fmt: skip


@pytest.mark.parametrize("name", WORKS)
def test_it_works_and_comes_back_as_it_was_given(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    call, shape, dtype = WORKS[name]
    result = call()
    found = np.asarray(result)
    assert (found.shape, found.dtype.name) == (shape, dtype)
    assert np.isfinite(np.where(np.isnan(found), 0, found)).all()
    assert "\n" not in repr(result)
    assert repr(result).startswith("Restoration(")
    capsys.readouterr()


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no blur": (lambda: pl.restore(grey()), "blur is missing: give"),
    "no picture": (lambda: pl.restore(None, PSF), "picture is missing: give a file"),
    "(B, H, W, 3) without axes": (lambda: of(batch()), r"\(2, 24, 24, 3\): say axes='BHWC'"),
    "(B, H, W) without axes": (lambda: of(np.zeros((9, SIZE, SIZE))), "say axes='BHW' or axes='CHW'"),
    "axes that do not fit": (lambda: of(grey(), axes="HWC"), r"shape \(24, 24\), axes 'HWC'"),
    "axes that are none": (lambda: of(grey(), axes="XY"), "axes 'XY': give one of"),
    "bool picture": (lambda: of(grey() > 0.5), "array of bool: convert"),
    "int64 picture": (lambda: of((grey() * 255).astype(int)), "picture: int64 has no known white level: .* uint8"),
    "complex tensor": (lambda: of(torch.from_numpy(grey()) + 0j), "tensor of torch.complex128"),
    "a list of pictures' names": (lambda: of(["a.png", "b.png"]), "picture is a list"),
    "an open file": (lambda: of(io.BytesIO(b"x")), "picture is a BytesIO"),
    "noise on the 0-255 scale": (lambda: of(grey(), noise=2.55), r"noise = 2.55, for pictures in \[0, 1\].*2.55/255"),
    "noise on the 0-255 scale for uint8": (lambda: of(integers(grey(), "uint8"), noise=5), "noise=5/255"),
    "floats up to 255 with a noise level": (lambda: of(grey() * 255, noise=0.02), "values up to 2.*divide both"),
    "noise as text": (lambda: of(grey(), noise="10"), "noise '10': give a number"),
    "noise for more pictures": (lambda: of(grey(), noise=[0.01, 0.02]), "noise levels: 2, pictures: 1"),
    "noise of words in a list": (lambda: of(grey(), noise=["a"]), "noise = "),
    "noise beside a gain": (lambda: of(grey(), noise=0.01, gain=1.0), "noise beside gain = 1.0"),
    "a method's class": (lambda: of(grey(), method=pl.LADMM), "the class LADMM: give one of"),
    "a method misspelt": (lambda: of(grey(), method="ladm"), "method 'ladm': choose one of .*fast"),
    "a denoiser's class": (lambda: of(grey(), denoiser=type(pl.load_denoiser("tv"))), "denoiser is a"),
    "denoiser misspelt": (lambda: of(grey(), denoiser="bm3d"), "denoiser 'bm3d': choose one of"),
    "kernels without places": (lambda: of(grey(), KERNELS), "say where each acts"),
    "weights of another size": (lambda: of(grey(), (KERNELS, WEIGHTS[:, :9])), "9x24"),
    "PSF larger than the picture": (lambda: of(grey(), np.ones((31, 31))), "31x31, as large as the picture"),
    "blur a number": (lambda: of(grey(), 3.0), "blur"),
    "blur of another size": (lambda: of(grey(), pl.Blur(KERNELS, torch.ones(2, 9, 9))), "9x9"),
    "labels with an operator": (
        lambda: of(grey(), pl.SpatiallyVaryingBlur(KERNELS, WEIGHTS), labels=HALVES), "an operator knows where it acts"
    ),
    "mask of another size": (lambda: of(grey(), mask=np.eye(5)), r"mask has shape \(5, 5\)"),
    "mask of everything": (lambda: of(grey(), mask=np.ones((SIZE, SIZE))), "leaves no pixel"),
    "gain as text": (lambda: of(grey(), gain="1"), "gain is a str"),
    "half an iteration": (lambda: of(grey(), iterations=2.5), "iterations = 2.5"),
    "a file that is not there": (lambda: of(Path("none.png")), "none.png"),
    "axes of a PIL image": (lambda: of(pil(), axes="HWC"), "axes = 'HWC': they are for arrays"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_in_one_line_what_to_write(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(pl.InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_arrays_are_restored_as_the_same_tensor() -> None:
    """Axes, types and ways to say the same thing change nothing."""
    expected = of(torch.from_numpy(colour()).permute(2, 0, 1)[None], noise=0.02).image
    for one in (colour(), colour().transpose(2, 0, 1), pl.Picture.from_array(colour()), colour().tolist()):
        torch.testing.assert_close(of(one, noise=0.02).image, expected, rtol=0, atol=1e-12)
    for blur in (PSF.tolist(), torch.from_numpy(PSF), {"kernel": PSF}, (KERNELS[:1], np.ones((1, SIZE, SIZE)))):
        torch.testing.assert_close(of(colour(), blur, noise=0.02).image, expected, rtol=0, atol=1e-6)


def test_gain_background_and_variance_are_in_the_numbers_of_the_array() -> None:
    in_01 = of(grey(), gain=0.002, background=0.01, method="ladmm")
    in_counts = of(grey() * 4096, gain=0.002 * 4096, background=0.01 * 4096, method="ladmm")
    np.testing.assert_allclose(np.asarray(in_counts) / 4096, np.asarray(in_01), rtol=1e-9, atol=1e-9)
    eight = integers(grey(), "uint8")
    as_floats = of(eight / 255.0, variance=4 / 255**2)
    expected = np.asarray(as_floats).clip(0, 1)
    np.testing.assert_allclose(np.asarray(of(eight, variance=4.0)) / 255, expected, atol=0.51 / 255)


def test_dead_pixels_of_an_array_do_not_set_its_scale() -> None:
    broken = grey().copy()
    broken[5, 5] = 60000
    dead = broken > 1
    found, whole = of(broken, mask=dead, noise="auto"), of(grey(), mask=dead, noise="auto")
    torch.testing.assert_close(found.image, whole.image, rtol=0, atol=1e-9)


def test_noise_levels_are_doubles() -> None:
    for noise in (0.02, [0.02], np.float64(0.02), np.array(0.02), torch.tensor([0.02], dtype=torch.float64)):
        assert float(of(grey(), noise=noise, iterations=2).noise) == 0.02


def test_saturation_is_a_matter_of_integers() -> None:
    bright = grey().copy()
    bright[3:5, 3:9] = 1.0
    assert not any("do not count" in note for note in of(bright).notes)
    assert any("do not count" in note for note in of(integers(bright, "uint8")).notes)
    assert not any("do not count" in note for note in of(integers(bright, "uint8"), saturation=False).notes)


def test_a_result_saves_itself(tmp_path: Path) -> None:
    result = of(integers(colour(), "uint8"))
    assert result.save(tmp_path / "a.png").dtype == "uint8"
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), np.asarray(result))
    assert of(colour()).save(tmp_path / "b.png").dtype == "uint16"
    assert of(colour()).save(str(tmp_path / "b.tif")).dtype == "float64"
    assert "Restoration(24x24x3, " in repr(result)
    assert result.noise.shape == (1,)
    assert isinstance(result, pl.Result)


def test_alpha_of_pictures_comes_back_untouched(tmp_path: Path) -> None:
    """Of a PIL picture, of a file, and of grey with alpha: the last channel, as in an array of RGBA."""
    opacity = integers(grey(), "uint8")
    rgba = np.dstack([integers(colour(), "uint8"), opacity])
    Image.fromarray(rgba).save(tmp_path / "a.png")
    opaque = np.asarray(of(rgba[..., :3]))
    for given in (Image.fromarray(rgba), tmp_path / "a.png"):
        result = of(given)
        found = np.asarray(result)
        assert (found.shape, found.dtype.name) == ((SIZE, SIZE, 4), "uint8")
        np.testing.assert_array_equal(found[..., 3], opacity)
        np.testing.assert_array_equal(found[..., :3], opaque)
        result.save(tmp_path / "b.png")
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "b.png")), found)
    grey_alpha = np.asarray(of(Image.fromarray(rgba).convert("LA")))
    assert grey_alpha.shape == (SIZE, SIZE, 2)
    np.testing.assert_array_equal(grey_alpha[..., 1], opacity)


def test_one_iteration_is_not_several() -> None:
    """The result says it in the singular, also the one of a solver."""
    assert "iteration limit after 1 iteration, noise" in repr(of(grey(), method="ladmm", iterations=1))
    assert "iteration limit after 2 iterations, noise" in repr(of(grey(), method="ladmm", iterations=2))
    problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    method = pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05)
    assert "after 1 iteration of LADMM" in repr(pl.solve(problem, method, iterations=1, tolerance=0))


def test_gain_and_its_inverse_are_the_same(tmp_path: Path) -> None:
    """Electrons per count, as headers have it, or counts per electron; only one of them."""
    y = np.random.default_rng(0).poisson(200, (40, 40)) / 4.0
    options = {"denoiser": "tv", "iterations": 2}
    one = pl.restore(y, np.ones((3, 3)), gain=0.25, background=3.0, **options)
    other = pl.restore(y, np.ones((3, 3)), electrons_per_count=4, background=3.0, **options)
    assert torch.equal(one.image, other.image)
    with pytest.raises(pl.InputError, match="each is the inverse of the other"):
        pl.restore(y, np.ones((3, 3)), gain=4, electrons_per_count=4, **options)
    with pytest.raises(pl.InputError, match="electrons_per_count = 0"):
        pl.restore(y, np.ones((3, 3)), electrons_per_count=0, **options)
    done = pl.simulate(y, np.ones((3, 3)), gain=0.5, seed=1)
    again = pl.simulate(y, np.ones((3, 3)), electrons_per_count=2, seed=1)
    assert torch.equal(done.picture.pixels, again.picture.pixels)


@pytest.mark.parametrize(("unit", "told"), [("adu", True), (None, True), ("MJy/sr", False)])
def test_a_gain_in_the_header_is_a_hint(tmp_path: Path, unit: str | None, told: bool) -> None:
    hdu = fits.PrimaryHDU(np.random.default_rng(0).normal(100, 3, (40, 40)).astype(np.float32))
    hdu.header["GAIN"] = 3.7
    if unit:
        hdu.header["BUNIT"] = unit
    hdu.writeto(tmp_path / "a.fits")
    found = pl.restore(tmp_path / "a.fits", np.ones((3, 3)), denoiser="tv", iterations=2)
    assert any("electrons_per_count=3.7" in note for note in found.notes) is told
    quiet = pl.restore(tmp_path / "a.fits", np.ones((3, 3)), denoiser="tv", iterations=2, electrons_per_count=3.7)
    assert not any("electrons_per_count=3.7" in note for note in quiet.notes)
