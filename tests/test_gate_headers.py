"""The gate: texts, fields of headers, names and numbers that are none."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from astropy.io import fits

import pnpladmm as pl
from gate_cases import SIZE, K, little_memory, refused  # noqa: F401
from pnpladmm.blur import read_blur
from pnpladmm.gate import Field, parse_json, read_text, take, yaml_events
from pnpladmm.tensors import LONGEST, InputError
from psfex_cases import write_psfex


def test_json_of_strangers() -> None:
    assert parse_json("a", '{"a": [1, 2.5, "[[[[["]}', "a table") == {"a": [1, 2.5, "[[[[["]}
    for bad, words in (
        (40 * "[", "31 brackets"),
        ('{"a": NaN}', "no finite number"),
        ('{"a": 1e999}', "no finite number"),
        ('{"a": ' + 5000 * "9" + "}", "5000 digits"),
        ('{"a": "\\ud800"}', "no Unicode"),
        ("[1]", "no table"),
        (b"\xff\xfe", "not a table"),
    ):
        refused(lambda bad=bad: parse_json("a", bad, "a table"), words)


def test_texts_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"a" * 5000)
    refused(lambda: read_text(tmp_path / "t", 4096, "a list"), "more than 4 KiB is too long for a list")
    assert len(read_text(tmp_path / "t", 5000, "a list")) == 5000
    assert list(yaml_events("a: 1"))


@pytest.mark.parametrize("value", [None, True, "five", 5.5, float("nan"), 0, 100, 10**400, [5], b"\x00"])
def test_fields_have_a_type_and_a_range(value: object) -> None:
    assert take("f", {"N": 5.0}, "N", Field(int, 1, 99)) == 5
    assert take("f", {}, "N", Field(int, 1, 99, default=7)) == 7
    assert refused(lambda: take("f", {"N": value}, "N", Field(int, 1, 99)), "give a whole number from 1 to 99")


def test_messages_are_one_short_line() -> None:
    text = str(InputError("file.fits: " + 5000 * "\x00\n\u202e" + ": give another"))
    assert len(text) <= LONGEST
    assert text.isprintable()
    assert text.startswith("file.fits")
    assert text.endswith("give another")


def stdpsf(path: Path, **cards: object) -> None:
    hdu = fits.PrimaryHDU(np.stack([K] * 4).astype(np.float32))
    given = {"NXPSFS": 2, "NYPSFS": 2, "IPSFX01": 1, "IPSFX02": 60, "JPSFY01": 1, "JPSFY02": 48, **cards}
    for key, value in given.items():
        if value is not None:
            hdu.header[key] = value
    hdu.writeto(path, overwrite=True)


GRIDS: dict[str, dict[str, object]] = {
    "no NYPSFS": {"NYPSFS": None},
    "a count below 0": {"NXPSFS": -2},
    "a huge count": {"NXPSFS": 10**15},
    "a count in words": {"NXPSFS": "many"},
    "a coordinate in words": {"IPSFX01": "left"},
    "a coordinate far away": {"IPSFX01": 1e300},
    "a switch for a coordinate": {"JPSFY02": True},
}


@pytest.mark.parametrize("case", GRIDS)
def test_headers_of_psf_grids(case: str, tmp_path: Path) -> None:
    stdpsf(tmp_path / "g.fits")
    read_blur(tmp_path / "g.fits", SIZE)
    stdpsf(tmp_path / "g.fits", **GRIDS[case])
    refused(lambda: read_blur(tmp_path / "g.fits", SIZE), "g.fits")


@pytest.mark.parametrize("card", ["POLNAXIS", "POLDEG1", "PSFAXIS1", "PSFAXIS3", "PSF_SAMP", "POLGRP1", "POLZERO1"])
@pytest.mark.parametrize("value", [-1, 0, 10**15, 1e300, 2.5, "many", True])
def test_headers_of_psfex(card: str, value: object, tmp_path: Path) -> None:
    write_psfex(tmp_path / "whole.psf", 1.0, 21)
    whole = read_blur(tmp_path / "whole.psf", SIZE)
    write_psfex(tmp_path / "g.psf", 1.0, 21, **{card: value})
    found, words = None, ""
    try:
        found = read_blur(tmp_path / "g.psf", SIZE)
    except InputError as error:
        words = str(error)
    assert (found is None) == ("g.psf" in words)
    assert len(words) <= LONGEST
    if found is not None:
        assert found.kernels.shape[-1] <= 10 * whole.kernels.shape[-1]
        assert bool(torch.isfinite(found.weights).all())


ODD_MAPS: dict[str, np.ndarray] = {
    "NaN": np.full(SIZE, np.nan),
    "infinity": np.full(SIZE, np.inf),
    "below 0": np.full(SIZE, -1.0),
    "beyond float32": np.full(SIZE, 1e300),
    "complex": np.full(SIZE, 1j),
    "words": np.full(SIZE, "wide"),
    "four axes": np.ones((1, 1, *SIZE)),
    "another size": np.ones((3, 4)),
    "nothing": np.ones((0, 5)),
}


@pytest.mark.parametrize("kind", ["gaussian", "defocus", "motion"])
@pytest.mark.parametrize("case", ODD_MAPS)
def test_odd_maps(case: str, kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", ODD_MAPS[case])
    refused(lambda: read_blur(tmp_path / "m.npy", SIZE, kind=kind))


@pytest.mark.parametrize(
    "places", [np.arange(8.0).reshape(4, 2) * 1e-9, np.array([[1, 1], [2, 2], [3, 3], [1e200, 4]]), np.zeros((4, 2))]
)
def test_singular_places(places: np.ndarray) -> None:
    psfs = np.stack([np.roll(K, i, 0) for i in range(4)])
    with suppress(InputError):
        blur = pl.as_blur(psfs, SIZE, positions=places)
        assert bool(torch.isfinite(blur.weights).all())


@pytest.mark.parametrize(
    "line", ["x,y\n" + 200_000 * "1" + ",2\n", "x,y\n\x00,2\n", 'x,y\n"' + 5000 * "\n", "\n", "x,y"]
)
def test_tables_of_odd_lines(line: str, tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.stack([K] * 3))
    (tmp_path / "s.csv").write_text(line)
    refused(lambda: read_blur(tmp_path / "s.npy", SIZE))


def test_names_that_are_too_long(tmp_path: Path) -> None:
    for name in (5000 * "a", "a\x00b", "\ud800", "a\nb"):
        refused(lambda name=name: read_blur(tmp_path / name, SIZE))
        refused(lambda name=name: pl.read_picture(tmp_path / name))
        (tmp_path / "b.yaml").write_bytes(f"kernels: {json.dumps(name)}\nindex: 0\n".encode("utf-8", "replace"))
        refused(lambda: read_blur(tmp_path / "b.yaml", SIZE))


def test_numbers_that_overflow(tmp_path: Path) -> None:
    for values in (np.full((5, 5), 1e308), np.full((5, 5), 5e-324), np.array([[1e308, -1e308, 1.0]] * 3)):
        np.save(tmp_path / "k.npy", values)
        for recentre in (False, True):
            with suppress(InputError):
                blur = read_blur(tmp_path / "k.npy", SIZE, recentre=recentre)
                assert bool(torch.isfinite(blur.kernels).all())
                assert float(blur.kernels.sum()) == pytest.approx(1)


def test_oversampled_psfs_of_one_row() -> None:
    refused(lambda: pl.as_blur(np.ones((3, 1, 9)), SIZE, index=0, oversampling=2), "two or more along each side")


def test_the_largest_floats_survive(tmp_path: Path) -> None:
    for kind in (np.float32, np.float64):
        values = np.array([[1.0, np.finfo(kind).max], [0.5, -1e30]], kind)
        np.save(tmp_path / "a.npy", values)
        pl.write_picture(tmp_path / "b.npy", pl.read_picture(tmp_path / "a.npy"))
        assert np.array_equal(np.load(tmp_path / "b.npy")[0, 1], values[0, 1])
