"""`read_blur` reads a blur file with the reader that fits, `write_blur` saves a blur."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

import pnpladmm.blur.readers  # noqa: F401  # registers the readers of this package
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options, Settings
from pnpladmm.blur.registry import read_file
from pnpladmm.files import replacing
from pnpladmm.gate import exists
from pnpladmm.tensors import InputError

COMPRESSIBLE = 1 << 25
"""Weights of more bytes are not compressed: packing smooth maps takes long and saves little."""


def read_blur(path: str | Path, size: tuple[int, int] | None = None, **settings: Unpack[Settings]) -> Blur:
    """The blur in a file, whatever it is, for a picture of `size`.

    One kernel (PNG, TIFF, NPY, FITS, MAT); a bank of kernels with `labels`; kernels and weights (NPZ, MAT); a grid of
    PSFs (NPZ, STDPSF and WebbPSF FITS); a stack of PSFs with `positions`; PSFEx; a map (`kind`); a YAML blur file;
    and what the readers of other packages know (`pnpladmm.blur.registry`). A stack finds its places in the CSV of
    its name beside it, a bank its map in `NAME.labels.png` or `.npy`.

    Parameters
    ----------
    path : str or Path
        The file. `bank.mat#3` is kernel 3 of `bank.mat` (`index=3`).
    size : (int, int), optional
        (H, W) of the picture; needed for models that are defined on any field, such as one kernel.
    **settings
        `labels`, `positions`, `kind`, `index`, `feather`, `order`, `normalise`, `recentre`, `background`,
        `oversampling`, `psf_scale`, `picture_scale`, `pixels`, `tolerance`, `most`: see `Options`.

    Returns
    -------
    Blur
        Kernels (P, C, k, k), weights (P, H, W), and notes on what was done to them.

    Raises
    ------
    InputError
        In one line, if the file is missing, broken, or does not suit the picture.

    Examples
    --------
    >>> import tempfile, pathlib, pnpladmm.blur as blur
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "blur.yaml"
    ...     _ = file.write_text("background: {motion: {length: 9, angle: 30}}")
    ...     found = blur.read_blur(file, (64, 80))
    >>> found.size, found.kernel_size
    ((64, 80), (7, 9))
    """
    path = Path(path)
    numbered = re.fullmatch(r"(.+)#(\d+)", str(path))
    if numbered and settings.get("index") is None and not exists(path):
        path = Path(numbered[1])
        settings["index"] = int(numbered[2])
    options = Options(size=size, **settings)
    return fitting(str(path), read_file(path, options), options)


def write_blur(path: str | Path, blur: Blur) -> None:
    """Write a blur as NPZ, which `read_blur` reads back exactly.

    Parameters
    ----------
    path : str or Path
        A file name that ends in .npz. Folders that are missing are made.
    blur : Blur
        Its kernels, weights, order, source and uncertainty are saved, and where an estimate comes from; notes are not.

    Examples
    --------
    >>> import tempfile, torch, pnpladmm.blur as blur
    >>> one = blur.Blur(blur.gaussian(1.5)[None], torch.ones(1, 64, 64))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     blur.write_blur(f"{folder}/b.npz", one)
    ...     back = blur.read_blur(f"{folder}/b.npz")
    >>> torch.equal(back.kernels, one.kernels)
    True
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: blurs are written as .npz")
    trust: dict[str, Any] = {} if blur.uncertainty is None else {"uncertainty": np.array(blur.uncertainty)}
    if blur.estimate is not None:
        trust["estimate"] = np.array(blur.estimate.to_text())
    save = np.savez_compressed if blur.weights.nbytes < COMPRESSIBLE else np.savez
    with replacing(path) as beside, beside.open("wb") as file:
        save(
            file,
            kernels=blur.kernels.cpu().numpy(),
            weights=blur.weights.cpu().numpy(),
            order=np.array(blur.order),
            source=np.array(blur.source),
            **trust,
        )


def fitting(name: str, blur: Blur, options: Options) -> Blur:
    """The blur, if it is for a picture of the wanted size and its kernels fit into it; its part in the window."""
    size = options.size
    if options.window is not None and size is not None:
        shape = tuple(last - first for first, last in options.window)
        if blur.size == size and shape != size:
            rows, columns = options.window
            blur = replace(blur, weights=blur.weights[:, slice(*rows), slice(*columns)])
        size = shape[0], shape[1]
    (kh, kw), (height, width) = blur.kernel_size, blur.size
    if size is not None and size != blur.size:
        raise InputError(
            f"{name}: the blur is for {height}x{width}, the picture is {size[0]}x{size[1]}: they must match"
        )
    for what, values in (("kernels", blur.kernels), ("weights", blur.weights)):
        # The extremes of numbers that are not finite are not finite; no mask as large as the weights is needed.
        if not all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(values)):
            raise InputError(f"{name}: its {what} are NaN or infinite, or too large for float32: replace them first")
    if kh > height or kw > width:
        raise InputError(
            f"{name}: kernels are {kh}x{kw}, the picture {height}x{width}: a kernel must fit into the picture"
        )
    return blur
