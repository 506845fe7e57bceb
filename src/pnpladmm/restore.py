"""From a picture and its blur to the sharp picture: noise, settings and method are chosen for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pnpladmm.denoisers import Denoiser
from pnpladmm.operators import Boundary
from pnpladmm.restoration.hints import with_hints
from pnpladmm.restoration.inputs import BlurLike, PictureLike, as_given, blur_for, in_own_units
from pnpladmm.restoration.maps import dead_pixels, variance_map
from pnpladmm.restoration.options import NoiseLike, Options, check_callback
from pnpladmm.restoration.progress import both, progress_bar
from pnpladmm.restoration.result import Restoration
from pnpladmm.restoration.run import run
from pnpladmm.restoration.target import reconvolved
from pnpladmm.solvers import Method
from pnpladmm.solvers.loop import Callback


@with_hints
def restore(
    picture: PictureLike,
    blur: BlurLike | None = None,
    noise: NoiseLike = "auto",
    method: str | Method[Any] = "auto",
    denoiser: str | Path | Denoiser | None = None,
    *,
    iterations: int | None = None,
    certify: int = 0,
    strength: float = 1.0,
    boundary: Boundary = "unknown",
    mask: Any = None,
    saturation: bool = True,
    gain: float | None = None,
    electrons_per_count: float | None = None,
    background: float = 0.0,
    variance: Any = None,
    linear: bool = False,
    labels: Any = None,
    positions: Any = None,
    psf_scale: float | None = None,
    target_psf: BlurLike | None = None,
    axes: str | None = None,
    device: str | torch.device | None = None,
    memory: int | float | str | None = None,
    tiles: int | None = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Restoration:
    """Restore a picture whose blur is known: find `x` from `y = Hx + noise`.

    The command `pnpladmm restore` does the same with the same names and the same result; there `noise` is on the
    0-255 scale. Pages of a file are restored one after the other, the pictures of an array as one batch.

    Parameters
    ----------
    picture : path, array, tensor, PIL picture or Picture
        PNG, JPEG, TIFF, FITS, NPY, WebP, AVIF, HEIC or BMP; or (H, W), (H, W, C), (C, H, W) or (B, C, H, W); also
        xarray's DataArray and astropy's NDData and CCDData, whose mask and uncertainty are used. Integers are scaled by
        the largest value of their type; floats are in [0, 1], or scaled by a power of two where no `noise` is given.
    blur : path, array, Blur or operator
        A blur file, the PSF as (k, k), a stack (P, k, k) with `labels` or as `(kernels, weights)`, a list of
        (polygon, kernel), a `Blur`, an operator, or an object with `A` and `A_adjoint`. PSFs are centred at `k // 2`.
    noise : float, sequence or "auto"
        Standard deviation, one or one for each picture: 1 is white, and in files of floats 1, whatever their largest
        number is. `auto` estimates it.
    method : str or Method
        A name, in any case, such as "fast" or "ladmm"; or a method with its parameters. `auto` is "sources" for frames
        of stars and spots on a dark sky (FITS, or more than 8 bits) where no denoiser is named, else "fast".
    denoiser : str, path or callable, optional
        A name, a file of weights, or `d(x, sigma)`. If None, a network that was trained for such a picture:
        "light-photo" for JPEGs, "light-exact" for others, "light" where the picture is more than blurred.
    iterations : int, optional
        Denoiser calls of `fast` (8), or the largest number of iterations of the others.
    certify : int
        The largest number of iterations of certified LADMM after it; the certificate and the history are about them.
        Their prior is "ridge", or the denoiser that is named.
    strength : float
        1 is the tuned smoothing; more is smoother.
    boundary : {"unknown", "circular", "replicate", "reflect", "zero"}
        What lies beyond the border, where `blur` is not an operator already.
    mask : path or array, optional
        Not 0 on pixels that do not count, such as dead ones.
    saturation : bool
        Leave pixels at the top of an integer type's range out.
    gain, background : float
        Poisson data: what one electron (a detected photon) adds, and the level that no blur touches, in the numbers of
        the file or array. The background is taken off.
    electrons_per_count : float, optional
        The inverse of `gain`: what astronomers and camera makers call gain, in electrons per ADU.
    variance : path, array or float, optional
        The variance of the noise, in the numbers of the file or array, squared.
    linear : bool
        Restore in linear light, where blur acts.
    labels, positions : path or array, optional
        Where the kernels of a stack act: a map of numbers, or a table of x, y.
    psf_scale : float, optional
        Size of a pixel of the PSF in pixels of the picture, such as 0.25 for a PSF sampled four times as finely. If not
        given, the sizes that the headers of both files state are compared.
    target_psf : path, array or Blur, optional
        The PSF that the restored picture is to have: it is blurred with that at the end.
    axes : str, optional
        The axes of an array, such as "BHWC", where its shape does not say.
    device : str or torch.device, optional
        Where to compute: "cpu", "cuda".
    memory : int or str, optional
        Bytes, or a size such as "3GB", that the restoration may use; a share of what is free if not given. A picture
        that needs more is restored in tiles, and a note says how large the errors at their seams are.
    tiles : int, optional
        The longest side of a tile in pixels, to divide a picture whatever memory there is. Methods that iterate until
        they converge compute the same iterates with tiles as without, and get the same certificate.
    progress : bool
        Show a progress bar on stderr.
    callback : callable, optional
        Called with a `Progress` after each iteration; returning True stops the run.

    Returns
    -------
    Restoration
        With `save(path)`, `numpy.asarray(result)`, `like_input()`, `image`, `noise`, `notes`, `warnings` and
        `certificate`.

    Raises
    ------
    InputError
        One line on what cannot be used, and what to give instead.

    Examples
    --------
    >>> import numpy as np, pnpladmm as pl
    >>> blurred = np.zeros((32, 32)); blurred[10:20, 10:20] = 0.5
    >>> result = pl.restore(blurred, np.ones((3, 3)) / 9, noise=0.02, denoiser="tv", iterations=3)
    >>> np.asarray(result).shape
    (32, 32)
    """
    check_callback(callback)
    options = Options(
        noise=noise,
        method=method,
        denoiser=denoiser,
        iterations=iterations,
        certify=certify,
        strength=strength,
        boundary=boundary,
        saturation=saturation,
        gain=gain,
        electrons_per_count=electrons_per_count,
        background=background,
        has_variance=variance is not None,
        linear=linear,
        device=device,
        memory=memory,
        tiles=tiles,
    )
    maps = (mask, variance, labels, positions, psf_scale, target_psf)
    return restore_with(options, picture, blur, *maps, axes, progress, callback)


def restore_with(
    options: Options,
    picture: PictureLike,
    blur: BlurLike | None,
    mask: Any = None,
    variance: Any = None,
    labels: Any = None,
    positions: Any = None,
    psf_scale: float | None = None,
    target_psf: BlurLike | None = None,
    axes: str | None = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Restoration:
    """`restore` with settings that are checked already, such as those of a job."""
    given = as_given(picture, axes)
    dead = dead_pixels(mask, given)
    given = in_own_units(given, dead, own_units=options.levels is None)
    known = blur_for(blur, given.picture, labels, positions, psf_scale)
    inputs = (given, known, dead, variance_map(variance, given, options.takes_errors_of_file), options)
    if not progress:
        found = run(*inputs, callback)
    else:
        with progress_bar(Path(given.picture.name).name, (options.iterations or 8) + options.certify) as show:
            found = run(*inputs, both(show, callback))
    return found if target_psf is None else reconvolved(found, target_psf)
