"""`estimate_blur`: from a picture to the blur file that `restore` reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pnpladmm.blur import Blur
from pnpladmm.estimate.progress import progress_bar
from pnpladmm.estimate.scene import chosen_page, read_pages
from pnpladmm.estimate.way import Tell, make_way
from pnpladmm.restoration.inputs import PictureLike
from pnpladmm.restoration.options import check_device
from pnpladmm.tensors import InputError


def estimate_blur(
    picture: PictureLike,
    way: str,
    *,
    page: int | None = None,
    axes: str | None = None,
    linear: bool = False,
    saturation: float | None = None,
    device: str | torch.device | None = None,
    progress: bool = False,
    callback: Tell | None = None,
    **options: Any,
) -> Blur:
    """Find the blur of a picture, for `restore`.

    The command `pnpladmm estimate` does the same and writes the blur file.

    Parameters
    ----------
    picture : path, array, tensor, PIL picture or Picture
        As in `restore`.
    way : str
        How to find it:

        - "points": from stars or beads in the picture (`stars`: "auto" or a CSV of x, y);
        - "sharp": from the same scene, sharp (`sharp`: a picture): one kernel, a grid of kernels, or regions;
        - "edges": the width of a defocus or a Gaussian from straight edges (`kind`: "auto", "defocus", "gaussian");
        - "parametric": a blur of a known kind from the picture alone (`kind`: "motion", "defocus", "gaussian", or a
          YAML blur file in which regions say `motion: auto`);
        - "blind": from the shaken picture alone;
        - other names: see `pnpladmm.estimate.WAYS`.
    page : int, optional
        Which page of a file or stack, counted from 0.
    axes : str, optional
        The axes of an array, such as "BHWC", where its shape does not say.
    linear : bool
        Estimate in linear light; restore with `linear` then too.
    saturation : float, optional
        The value, in the numbers of the file or array, from which pixels are saturated. By default the top of
        an integer type.
    device : str or torch.device, optional
        Where to compute, such as "cuda"; by default the CPU. Only "blind" computes much that a GPU does faster.
    progress : bool
        Show a progress bar on stderr.
    callback : callable, optional
        Called with what is being done and the share that is done, 0 to 1.
    **options
        Those of the way, which are the fields of its class in `pnpladmm.estimate`.

    Returns
    -------
    Blur
        Its `uncertainty` is the relative error that the PSF is expected to have, its `estimate` says where it comes
        from: residual, agreement, confidence by place, warnings and tables.

    Raises
    ------
    InputError
        One line on what cannot be used, or on what the picture does not show.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> try:
    ...     pl.estimate_blur([[0.5] * 32] * 32, "points")
    ... except pl.InputError as error:
    ...     print(error)
    picture: no stars or beads were found
    """
    check_device(device)
    chosen = make_way(way, options)
    scenes = read_pages(picture, axes, linear, saturation)
    scene = chosen_page(scenes, page, scenes[0].name) or chosen.page(scenes)
    with progress_bar(Path(scene.name).name, progress, callback) as tell:
        return checked(chosen.estimate(replace(scene, device=device or "cpu"), tell), scene.name)


def checked(blur: Blur, name: str) -> Blur:
    """The blur, if it is one: finite, for brightness kept to a thousandth. A way that breaks this has a fault."""
    if not bool(torch.isfinite(blur.kernels).all()):
        raise InputError(f"{name}: the estimate did not end in finite numbers: try another way, or fewer options")
    sums = torch.einsum("phw,pc->chw", blur.weights.double(), blur.kernels.sum((-2, -1)))
    if blur.estimate is None or float((sums - 1).abs().max()) > 1e-3:
        raise RuntimeError(f"{name}: a way returned kernels that do not sum to one, or no record of the estimate")
    return blur
