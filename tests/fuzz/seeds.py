"""Small good files of every format, each written by the tool that the format comes from. `parts.py` has more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import scipy.io
import tifffile
import torch
from astropy.io import fits
from PIL import Image
from safetensors.torch import save_file

import pnpladmm as pl
from blur_cases import comet, unit
from picture_cases import exif_block
from pnpladmm.denoisers.building import new_network
from psfex_cases import write_psfex

SIZE = (24, 30)
K = unit(comet())
RNG = np.random.default_rng(5)
GREY = RNG.integers(0, 255, (9, 13), dtype=np.uint8)
COLOUR = np.clip(np.add.outer(np.arange(24) * 4, np.arange(40) * 3)[..., None] + [0, 20, 40], 0, 255).astype(np.uint8)
DEEP = RNG.integers(0, 65535, (3, 16, 18), dtype=np.uint16)

Write = Callable[[Path], object]


def pil(pixels: np.ndarray, **options: object) -> Write:
    return lambda path: Image.fromarray(pixels).save(path, **options)


def palette(path: Path) -> None:
    Image.fromarray(COLOUR).convert("P", palette=Image.Palette.ADAPTIVE, colors=16).save(path, transparency=3)


def png16(path: Path) -> None:
    Image.fromarray(DEEP[0]).save(path, dpi=(300, 300))


def tiff(pixels: np.ndarray, **options: object) -> Write:
    return lambda path: tifffile.imwrite(path, pixels, **options)


def fits_with(*hdus: object) -> Write:
    return lambda path: fits.HDUList(list(hdus)).writeto(path, overwrite=True, checksum=True)


def frame(path: Path) -> None:
    """A picture with errors and flags beside it, as telescopes write them."""
    values = RNG.normal(100, 5, SIZE).astype(np.float32)
    hdus = [
        fits.PrimaryHDU(),
        fits.ImageHDU(values, name="SCI"),
        fits.ImageHDU(np.full(SIZE, 5, np.float32), name="ERR"),
    ]
    fits.HDUList([*hdus, fits.ImageHDU((values > 110).astype(np.int32), name="DQ")]).writeto(path, overwrite=True)


def packed(path: Path) -> None:
    values = RNG.normal(100, 5, SIZE).astype(np.int16)
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(values, compression_type="RICE_1")]).writeto(
        path, overwrite=True
    )


def stdpsf(path: Path) -> None:
    hdu = fits.PrimaryHDU(np.stack([K] * 4).astype(np.float32))
    for key, value in {"NXPSFS": 2, "NYPSFS": 2, "IPSFX01": 1, "IPSFX02": 30, "JPSFY01": 1, "JPSFY02": 24}.items():
        hdu.header[key] = value
    hdu.writeto(path, overwrite=True)


def webbpsf(path: Path) -> None:
    hdu = fits.PrimaryHDU(np.stack([K] * 4).astype(np.float32))
    hdu.header["OVERSAMP"] = 2
    for i, place in enumerate(["(1.0, 1.0)", "(1.0, 25.0)", "(20.0, 1.0)", "(20.0, 25.0)"]):
        hdu.header[f"DET_YX{i}"] = place
    hdu.writeto(path, overwrite=True)


def written_blur(path: Path) -> None:
    weights = torch.rand(2, *SIZE)
    pl.write_blur(path, pl.Blur(torch.from_numpy(np.stack([K, K.T])), weights / weights.sum(0), uncertainty=0.1))


def cells(path: Path) -> None:
    found = np.empty(2, dtype=object)
    found[:] = [K, K[:5, :5]]
    scipy.io.savemat(path, {"kernels": found, "labels": np.eye(24, 30)}, do_compression=True)


def hdf(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("kernel", data=K, chunks=(3, 3), compression="gzip")


def stack(path: Path) -> None:
    """A table of places, with its stack of PSFs beside it."""
    np.save(path.with_suffix(".npy"), np.stack([np.roll(K, i, 0) for i in range(4)]))
    path.write_text("x,y,flux\n2,3,10.5\n25,4,9\n3,20,8\n12,12.5,7e2\n")


def legacy(path: Path) -> None:
    torch.save(new_network("light", 1, (2, 2, 2), 1).state_dict(), path, _use_new_zipfile_serialization=False)


def state(path: Path) -> None:
    problem = pl.Problem(torch.rand(1, 1, 4, 4), pl.Mask(torch.ones(4, 4)), pl.Gaussian(0.1))
    pl.save_state(pl.LADMM(pl.load_denoiser("tv"), 0.05, beta=100.0, L_x=110.0).init(problem), path)


def settings(path: Path) -> None:
    path.write_text(
        json.dumps({"tv": {"ladmm": {"1": {"sigma_d": 2.5, "beta": 1.0}, "10": {"sigma_d": 5, "beta": 2}}}})
    )


def job(path: Path) -> None:
    Image.fromarray(GREY).save(path.with_name("in.png"))
    np.save(path.with_name("psf.npy"), K[:3, :3])
    given = {"picture": "in.png", "blur": "psf.npy", "output": "out.png", "noise": 3.0, "iterations": 2}
    beside = {"picture": path.with_name("in.png"), "blur": path.with_name("psf.npy")}
    hashes = {key: hashlib.sha256(file.read_bytes()).hexdigest() for key, file in beside.items()}
    path.write_text(json.dumps({"job": given, "sha256": hashes, "versions": {"pnpladmm": "1"}}))


def named(**arrays: np.ndarray) -> Write:
    return lambda path: np.savez_compressed(path, **arrays)


def with_exif(path: Path) -> None:
    Image.fromarray(COLOUR).save(path, exif=exif_block(6), quality=85)


def text(words: str) -> Write:
    return lambda path: path.write_text(words)


REGIONS = """background: {gaussian: {sigma: 1.0}}
feather: 2
units: pixels
regions:
  - rectangle: [1, 2, 12, 20]
    motion: {length: 5, angle: 30}
  - polygon: [[15, 2], [28, 3], [20, 20]]
    defocus: {radius: 2.5}
"""
MAPS = np.linspace(0.3, 1.5, 720).reshape(SIZE)
PICTURES: dict[str, tuple[str, list[Write]]] = {
    "png": (".png", [pil(GREY), pil(COLOUR), palette, png16, pil(np.dstack([COLOUR, COLOUR[..., :1]]))]),
    "jpeg": (".jpg", [pil(COLOUR, quality=90), pil(GREY), with_exif, pil(COLOUR, progressive=True)]),
    "tiff": (
        ".tif",
        [
            tiff(DEEP, photometric="minisblack"),
            tiff(COLOUR, photometric="rgb", compression="lzw", predictor=True),
            tiff(COLOUR, photometric="rgb", compression="jpeg"),
            tiff(DEEP, photometric="rgb", planarconfig="separate", compression="zlib"),
            tiff(GREY, photometric="palette", colormap=RNG.integers(0, 65535, (3, 256), dtype=np.uint16)),
            tiff(DEEP.astype(np.float32), photometric="minisblack", bigtiff=True, byteorder=">"),
            tiff(DEEP, ome=True, metadata={"axes": "ZYX", "PhysicalSizeX": 0.1}),
            tiff(DEEP, imagej=True, metadata={"axes": "ZYX", "unit": "um"}, resolution=(10, 10)),
            tiff(np.tile(COLOUR, (2, 2, 1)), photometric="rgb", tile=(16, 16), compression="packbits"),
        ],
    ),
    "fits": (
        ".fits",
        [fits_with(fits.PrimaryHDU(DEEP[0])), fits_with(fits.PrimaryHDU(MAPS.astype(np.float32))), frame, packed],
    ),
    "npy": (".npy", [lambda p: np.save(p, GREY), lambda p: np.save(p, MAPS), lambda p: np.save(p, COLOUR)]),
}
BLURS: dict[str, tuple[str, list[Write]]] = {
    "blur npy": (".npy", [lambda p: np.save(p, K)]),
    "map npy": (".npy", [lambda p: np.save(p, MAPS)]),
    "blur npz": (
        ".npz",
        [
            written_blur,
            named(psfs=np.stack([K] * 4), positions=np.array([[1, 2], [25, 3], [4, 20], [20, 21.0]])),
            named(filters=K[None, None, None], multipliers=np.ones((1, 1, 1, *SIZE))),
            named(dx=MAPS, dy=MAPS),
        ],
    ),
    "blur png": (".png", [pil((K / K.max() * 255).astype(np.uint8))]),
    "blur tiff": (
        ".tif",
        [tiff(K.astype(np.float32)), tiff((K / K.max() * 65535).astype(np.uint16), compression="zlib")],
    ),
    "blur fits": (".fits", [fits_with(fits.PrimaryHDU(K)), stdpsf, webbpsf]),
    "psfex": (".psf", [lambda p: write_psfex(p, 1.0, 21)]),
    "matlab 5": (".mat", [lambda p: scipy.io.savemat(p, {"kernel": K}), cells]),
    "matlab 7.3": (".mat", [hdf]),
    "yaml": (
        ".yaml",
        [text(REGIONS), text("background: {gaussian: {sigma: [2, 1], angle: 20}}\norder: weight-then-convolve\n")],
    ),
    "csv": (".csv", [stack]),
}
OTHERS: dict[str, tuple[str, list[Write]]] = {
    "safetensors": (
        ".safetensors",
        [
            lambda p: save_file(
                {k: v.contiguous() for k, v in new_network("light", 1, (2, 2, 2), 1).state_dict().items()}, p
            )
        ],
    ),
    "pth": (".pth", [lambda p: torch.save(new_network("drunet", 1, (2, 2, 2, 2), 1).state_dict(), p), legacy]),
    "state": (".safetensors", [state]),
    "settings": (".json", [settings]),
    "job": (".json", [job]),
}
FORMATS = PICTURES | BLURS | OTHERS
