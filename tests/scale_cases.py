"""A picture in files of several formats that is restored in parts."""

from pathlib import Path

import numpy as np
import tifffile
import torch

from pnpladmm.scale import Settings


def write_scene(folder: Path) -> None:
    """A grey picture of 16 bits as TIFF and as zarr with chunks of odd sizes, one with edges as TIFF, and their PSF."""
    import zarr

    y, x = np.mgrid[:160, :300] / 40
    smooth = 0.5 + 0.2 * np.sin(x * y) + 0.1 * np.sin(9 * x + y) + 0.1 * np.sin(7 * y - x)
    edges = 0.4 + 0.2 * np.sin(x * y) + 0.3 * ((2 * x).astype(int) + (1.5 * y).astype(int)) % 3 / 3
    for name, sharp in (("edges.tif", edges), ("in.tif", smooth)):
        blurred = torch.nn.functional.avg_pool2d(torch.tensor(sharp)[None, None], 5, 1, 2, count_include_pad=False)[
            0, 0
        ]
        noisy = blurred.numpy() + 0.01 * np.random.default_rng(0).normal(size=sharp.shape)
        samples = (noisy.clip(0, 1) * 65535).round().astype(np.uint16)
        tifffile.imwrite(folder / name, samples, tile=(64, 64))
    array = zarr.create_array(folder / "in.zarr", shape=samples.shape, chunks=(70, 90), dtype="uint16")
    array[:] = samples
    np.save(folder / "psf.npy", np.ones((5, 5)) / 25)


def settings(folder: Path, picture: str = "in.tif", **changed) -> Settings:
    given = {
        "picture": str(folder / picture), "blur": str(folder / "psf.npy"), "noise": 0.01, "denoiser": "light",
        "iterations": 2, "strength": 1.0, "saturation": True, "device": None,
    }  # fmt: skip
    return Settings(**(given | changed))


def contents(path: Path) -> dict[str, bytes]:
    """The bytes of a file, or of every file in a folder."""
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    return {str(one.relative_to(path)): one.read_bytes() for one in files}
