"""Bad blur files: each gives one line that names the file and what to do, and never a traceback from the depths."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import skimage.io
import tifffile
from astropy.io import fits

from blur_cases import SIZE, comet, unit
from pnpladmm.blur import Blur, draw_blur, read_blur, write_blur
from pnpladmm.tensors import InputError
from psfex_cases import write_psfex

K = unit(comet())
Make = Callable[[Path], dict[str, object]]


def npy(array: object, **options: object) -> Make:
    def make(path: Path) -> dict[str, object]:
        np.save(path, np.asarray(array))
        return options

    return make


def npz(**arrays: object) -> Make:
    def make(path: Path) -> dict[str, object]:
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return {}

    return make


def raw(data: bytes | str, **options: object) -> Make:
    def make(path: Path) -> dict[str, object]:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return options

    return make


def yaml_text(text: str) -> Make:
    return raw(text)


def pickled(path: Path) -> dict[str, object]:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return {}


def bomb(path: Path) -> dict[str, object]:
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3000000, 3000000), }"
    path.write_bytes(header.ljust(128, b" ") + bytes(64))
    return {}


def cut_short(path: Path) -> dict[str, object]:
    skimage.io.imsave(path, (K / K.max() * 255).astype(np.uint8), check_contrast=False)
    path.write_bytes(path.read_bytes()[:60])
    return {}


def huge_png(path: Path) -> dict[str, object]:
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + b"\x7f\xff\xff\xff" * 2 + b"\x08\x00\x00\x00\x00" * 3
    )
    return {}


def not_npz(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return {}


def bank_with(labels: np.ndarray) -> Make:
    def make(path: Path) -> dict[str, object]:
        np.save(path, np.stack([K, K.T]))
        np.save(path.with_name("map.npy"), labels)
        return {"labels": path.with_name("map.npy")}

    return make


def stack_with(table: str, count: int = 3) -> Make:
    def make(path: Path) -> dict[str, object]:
        tifffile.imwrite(path, np.stack([K] * count).astype(np.float32), photometric="minisblack")
        path.with_name("p.csv").write_text(table)
        return {"positions": path.with_name("p.csv")}

    return make


def psfex_with(**cards: object) -> Make:
    def make(path: Path) -> dict[str, object]:
        write_psfex(path, 1.0, 21, **cards)
        return {}

    return make


def two_chips(path: Path) -> dict[str, object]:
    write_psfex(path, 1.0, 21, chips=2)
    return {}


def plain_fits(path: Path) -> dict[str, object]:
    fits.PrimaryHDU(K).writeto(path)
    return {}


def webb(places: list[str]) -> Make:
    def make(path: Path) -> dict[str, object]:
        hdu = fits.PrimaryHDU(np.stack([K] * 4))
        hdu.header["OVERSAMP"] = 1
        for i, place in enumerate(places):
            hdu.header[f"DET_YX{i}"] = place
        hdu.writeto(path)
        return {}

    return make


def many_detectors(path: Path) -> dict[str, object]:
    hdu = fits.PrimaryHDU(np.ones((56, 5, 5), np.float32))
    hdu.header["NXPSFS"], hdu.header["NYPSFS"] = 7, 8
    for i in range(1, 9):
        hdu.header[f"IPSFX{i:02d}"] = hdu.header[f"JPSFY{i:02d}"] = 500 * i
    hdu.writeto(path)
    return {}


def no_nodes(path: Path) -> dict[str, object]:
    hdu = fits.PrimaryHDU(np.ones((4, 5, 5), np.float32))
    hdu.header["NXPSFS"], hdu.header["NYPSFS"] = 2, 2
    hdu.writeto(path)
    return {}


def mat(**arrays: object) -> Make:
    def make(path: Path) -> dict[str, object]:
        scipy.io.savemat(path, arrays)
        return {}

    return make


LABELS = np.zeros(SIZE)
MOTION = "regions:\n  - rectangle: [0, 0, 9, 9]\n    "
CASES: dict[str, tuple[str, Make, str]] = {
    "missing": ("k.npy", lambda path: {}, "no such file"),
    "a folder": ("k.npy", lambda path: path.mkdir() or {}, "is a folder"),
    "empty": ("k.npy", raw(b""), "is empty"),
    "unknown": ("k.xyz", raw(b"hello, world"), "unknown format"),
    "JPEG": ("k.jpg", raw(b"\xff\xd8\xff\xe0" + bytes(40)), "unknown format"),
    "pickle": ("k.npy", pickled, "cannot be read"),
    "absurd header": ("k.npy", bomb, "over the limit"),
    "absurd PNG": ("k.png", huge_png, "damaged PNG"),
    "half a PNG": ("k.png", cut_short, "cut off"),
    "half a TIFF": ("k.tif", raw(b"II*\x00\x08\x00\x00\x00"), "cannot be read|holds no picture"),
    "half a FITS": ("k.fits", raw(b"SIMPLE  =                    T" + bytes(50)), "damaged FITS"),
    "half a MAT": ("k.mat", raw(b"MATLAB 5.0 MAT-file".ljust(130)), "cannot be read"),
    "broken HDF": ("k.mat", raw(b"MATLAB 7.3 MAT-file".ljust(600)), "cannot be read"),
    "zip without arrays": ("k.npz", not_npz, "cannot be read|holds"),
    "complex": ("k.npy", npy(K + 1j), "real numbers"),
    "text array": ("k.npy", npy(["a", "b"]), "real numbers"),
    "NaN": ("k.npy", npy(np.where(np.equal(K, K.max()), np.nan, K)), "1 values are NaN"),
    "all zero": ("k.npy", npy(np.zeros((9, 9))), "all values are 0"),
    "sums to zero": ("k.npy", npy(K - K[::-1]), "sums to"),
    "one number": ("k.npy", npy(3.0), "has shape"),
    "five axes": ("k.npy", npy(np.ones((1, 1, 1, 3, 3)), index=0), "has shape|have shape"),
    "no size": ("k.npy", npy(K, size=None), "give the picture's size"),
    "as large as the picture": ("k.npy", npy(np.ones(SIZE)), "as large as the picture"),
    "larger than the picture": ("k.npy", npy(np.ones((61, 9))), "a kernel must fit|as large"),
    "a bank without a map": ("k.npy", npy(np.stack([K] * 5)), "holds 5 kernels"),
    "no such kernel": ("k.npy", npy(np.stack([K] * 5), index=7), "there are 5"),
    "bad oversampling": ("k.npy", npy(K, oversampling=0.2), "oversampling"),
    "bad kind": ("k.npy", npy(K, kind="fog"), "kind 'fog'"),
    "bad order": ("k.npy", npy(K, order="both"), "order 'both'"),
    "bad background": ("k.npy", npy(K, background="sky"), "background 'sky'"),
    "labels of another size": ("k.npy", bank_with(np.zeros((5, 5))), "48x60"),
    "too many labels": ("k.npy", bank_with(LABELS + np.arange(60)), "60 labels"),
    "labels between": ("k.npy", bank_with(LABELS + 0.5), "whole numbers"),
    "label map with three axes": ("k.npy", bank_with(np.zeros((2, *SIZE, 1))), "label map has shape"),
    "kernels and weights differ": (
        "b.npz",
        npz(kernels=np.stack([K] * 3), weights=np.ones((2, *SIZE))),
        "they must match",
    ),
    "weights of another size": ("b.npz", npz(kernels=K[None], weights=np.ones((1, 9, 9))), "weights are 9x9"),
    "deepinv axes": ("b.npz", npz(filters=K[None], multipliers=np.ones((1, *SIZE))), "filters have shape"),
    "deepinv batch": (
        "b.npz",
        npz(filters=np.ones((2, 1, 1, 3, 3)), multipliers=np.ones((2, 1, 1, *SIZE))),
        "2 pictures",
    ),
    "unknown order": ("b.npz", npz(kernels=K[None], weights=np.ones((1, *SIZE)), order="x"), "order 'x'"),
    "names unknown": ("b.npz", npz(foo=K, bar=K), "holds foo, bar"),
    "MAT without kernels": ("b.mat", mat(a=K, b=K), "holds a, b"),
    "psfs without places": ("g.npz", npz(psfs=np.stack([K] * 4)), "without places"),
    "places of another number": ("g.npz", npz(psfs=np.stack([K] * 4), positions=np.ones((3, 2))), "positions of shape"),
    "WebbPSF without a place": ("g.fits", webb(["(1, 1)", "(1, 9)", "(9, 1)"]), "DET_YX3"),
    "grid with a hole": ("g.fits", webb(["(1, 1)", "(1, 9)", "(9, 1)", "(9, 5)"]), "rectangular grid"),
    "STDPSF without places": ("g.fits", no_nodes, "not a STDPSF grid"),
    "several detectors": ("g.fits", many_detectors, "holds 2 detectors"),
    "CSV without x": ("s.tif", stack_with("a,b\n1,2\n"), "name two of them x and y"),
    "CSV with words": ("s.tif", stack_with("x,y\n1,2\nthree,4\n5,6\n"), "line 3"),
    "CSV too short": ("s.tif", stack_with("x,y\n1,2\n"), "3 PSFs, 1 places"),
    "CSV with one place twice": ("s.tif", stack_with("x,y\n1,2\n1,2\n5,6\n"), "same place"),
    "CSV empty": ("s.tif", stack_with(""), "no places"),
    "CSV alone": ("s.csv", raw("x,y\n1,2\n"), "no stack of PSFs"),
    "no PSFEx table": ("f.psf", plain_fits, "not a PSFEx file"),
    "PSFEx of other quantities": ("f.psf", psfex_with(POLNAME1="MAG_AUTO"), "MAG_AUTO"),
    "PSFEx of wrong degree": ("f.psf", psfex_with(POLDEG1=3), "10 needed"),
    "PSFEx without zero points": ("f.psf", psfex_with(POLZERO2=None), "POLZERO2"),
    "PSFEx in groups": ("f.psf", psfex_with(POLNGRP=2), "2 groups"),
    "PSFEx of absurd sampling": ("f.psf", psfex_with(PSF_SAMP=0.0), "PSF_SAMP"),
    "PSFEx with a word for a number": ("f.psf", psfex_with(PSF_SAMP="wide"), "PSF_SAMP is 'wide'"),
    "PSFEx axes": ("f.psf", psfex_with(PSFAXIS1=20), "PSFAXIS"),
    "PSFEx of two chips": ("f.psf", two_chips, "holds 2 chips"),
    "map below zero": ("m.npy", npy(np.full(SIZE, -1.0), kind="gaussian"), "down to -1"),
    "map in other units": ("m.npy", npy(np.full(SIZE, 4000.0), kind="defocus"), "up to 4000"),
    "map of another size": ("m.npy", npy(np.ones((9, 9)), kind="gaussian"), "9x9"),
    "map with three axes": ("m.npy", npy(np.ones((3, *SIZE)), kind="gaussian"), "give .H, W."),
    "motion with one component": ("m.npy", npy(np.ones(SIZE), kind="motion"), "x first"),
    "YAML: not YAML": ("r.yaml", yaml_text("regions: [a, {b\n"), "line"),
    "YAML: YAML that runs code": ("r.yaml", yaml_text("!!python/object/apply:os.getcwd []"), "not a blur file"),
    "YAML: aliases": ("r.yaml", yaml_text("a: &a [1, 1]\nb: [*a, *a]\n"), "without aliases"),
    "YAML: too deep": ("r.yaml", yaml_text("[" * 1200), "not a blur file"),
    "YAML: a word": ("r.yaml", yaml_text("hello"), "not a blur file"),
    "YAML: unknown key": ("r.yaml", yaml_text("region: []\n"), "'region' is not known"),
    "YAML: no shape": ("r.yaml", yaml_text("regions:\n  - defocus: {radius: 2}\n"), "one shape"),
    "YAML: no kernel": ("r.yaml", yaml_text(MOTION + "\n"), "one kernel"),
    "YAML: two kernels": (
        "r.yaml",
        yaml_text(MOTION + "motion: {length: 3}\n    defocus: {radius: 2}\n"),
        "one kernel",
    ),
    "YAML: no length": ("r.yaml", yaml_text(MOTION + "motion: {angle: 3}\n"), "length is missing"),
    "YAML: length in words": ("r.yaml", yaml_text(MOTION + "motion: {length: long}\n"), "'long'"),
    "YAML: radius below 0": ("r.yaml", yaml_text(MOTION + "defocus: {radius: -2}\n"), "-2"),
    "YAML: absurd radius": ("r.yaml", yaml_text(MOTION + "defocus: {radius: 100000}\n"), "at most"),
    "YAML: bad rectangle": (
        "r.yaml",
        yaml_text("regions:\n  - rectangle: [1, 2]\n    defocus: {radius: 2}\n"),
        "left, top",
    ),
    "YAML: bad polygon": (
        "r.yaml",
        yaml_text("regions:\n  - polygon: [[1, 2]]\n    defocus: {radius: 2}\n"),
        "three corners",
    ),
    "YAML: missing mask": ("r.yaml", yaml_text("regions:\n  - mask: no.png\n    defocus: {radius: 2}\n"), "no.png"),
    "YAML: map of unknown kind": ("r.yaml", yaml_text("map: r.yaml\n"), "say what it holds"),
    "YAML: to itself": ("r.yaml", yaml_text("blur: r.yaml\n"), "cannot point to a blur file"),
    "YAML: two forms": ("r.yaml", yaml_text("blur: a\nkernels: b\n"), "give one of them"),
    "YAML: bad units": ("r.yaml", yaml_text("background: {defocus: {radius: 2}}\nunits: inch\n"), "units 'inch'"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_files_give_one_line(tmp_path: Path, case: str) -> None:
    name, make, message = CASES[case]
    path = tmp_path / name
    options = {"size": SIZE, **make(path)}
    with pytest.raises(InputError, match=message) as caught:
        read_blur(path, **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    if not message.startswith(("kind", "order", "oversampling")):
        assert str(tmp_path) in text  # names a file


def test_other_bad_calls(tmp_path: Path) -> None:
    blur = Blur(np.stack([K]), np.ones((1, *SIZE)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"written as \.npz"):
        write_blur(tmp_path / "b.fits", blur)
    with pytest.raises(InputError, match=r"written as \.png"):
        draw_blur(blur, tmp_path / "b.doc")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="row 48"):
        blur.psf_at(48, 0)
    with pytest.raises(InputError, match="kernels have shape"):
        Blur(np.ones((2, 3, 3)), np.ones((1, 9, 9)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="size"):
        read_blur(tmp_path / "k.npy", (0, 5))


def test_without_astropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_fits(tmp_path / "k.fits")
    monkeypatch.setitem(sys.modules, "astropy.io.fits", None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"pnpladmm\[astro\]"):
        read_blur(tmp_path / "k.fits", SIZE)
