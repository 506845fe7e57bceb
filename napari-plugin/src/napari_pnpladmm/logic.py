"""From what layers hold to the restored picture. It knows neither napari nor Qt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pnpladmm as pl

METHODS = ("fast", "certified", "richardson-lucy", "sources")
DENOISERS = tuple(name for name in ("light", "drunet", "tv") if name in pl.DENOISERS)
WITHOUT_DENOISER = ("richardson-lucy", "sources")
CALLS_OF_FAST = 8
KEY = "pnpladmm"
"""Under which the metadata of a layer say how it was made."""


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    picture: np.ndarray
    """(H, W), (H, W, 3 or 4) where `rgb`, or a stack (Z, H, W)."""
    psf: np.ndarray | Path
    """(k, k), a stack (P, k, k) with `regions`, or a file."""
    regions: np.ndarray | None = None
    """(H, W): the lowest label has the first PSF."""
    rgb: bool = False
    noise: float = 0.0
    """Standard deviation in the numbers of the picture; 0 estimates it."""
    gain: float = 0.0
    """What one photon adds; 0 where the noise does not grow with the light."""
    background: float = 0.0
    method: str = "fast"
    denoiser: str = "light"
    iterations: int = 0
    """0 is the method's own number."""


class Cancelled(Exception):
    """The run was cancelled before there was a picture."""


def check(request: Request) -> None:
    """Refuse, in one line, what cannot be restored."""
    dimensions = request.picture.ndim - request.rgb
    if dimensions not in (2, 3) or (request.rgb and dimensions != 2):
        raise pl.InputError(f"the picture has shape {request.picture.shape}: give a plane, a stack of planes, or RGB")
    size = request.picture.shape[:2] if request.rgb else request.picture.shape[-2:]
    psf = request.psf
    if isinstance(psf, np.ndarray):
        if psf.ndim not in (2, 3):
            raise pl.InputError(f"the PSF has shape {psf.shape}: give one (k, k), or several (P, k, k)")
        if psf.shape[-2] > size[0] or psf.shape[-1] > size[1]:
            raise pl.InputError(
                f"the PSF is {psf.shape[-2]}x{psf.shape[-1]}, larger than the picture: exchange the two"
            )
        if psf.ndim == 3 and len(psf) > 1 and request.regions is None:
            raise pl.InputError(f"there are {len(psf)} PSFs: choose the labels that say where each of them acts")
    if request.regions is not None:
        if request.regions.shape != size:
            raise pl.InputError(f"the labels have shape {request.regions.shape}, the picture {size}: they must match")
        count = len(np.unique(request.regions))
        if isinstance(psf, np.ndarray) and count != (len(psf) if psf.ndim == 3 else 1):
            raise pl.InputError(f"there are {count} labels and {len(psf) if psf.ndim == 3 else 1} PSFs: one for each")


def options_of(request: Request) -> dict[str, Any]:
    """The arguments of `pl.restore`."""
    options: dict[str, Any] = {"method": request.method}
    if request.method not in WITHOUT_DENOISER:
        options["denoiser"] = request.denoiser
    if request.iterations:
        options["iterations"] = request.iterations
    options["axes"] = "HWC" if request.rgb else "HW" if request.picture.ndim == 2 else "BHW"
    if request.regions is not None:
        options["labels"] = np.unique(request.regions, return_inverse=True)[1].reshape(request.regions.shape)
    if request.gain:
        options |= {"gain": request.gain, "background": request.background}
    elif request.noise:
        options["variance"] = request.noise**2
    return options


def restore(
    request: Request,
    report: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, dict[str, Any]]:
    """The restored picture, of the kind that was given, and the metadata of its layer.

    `report(done, total)` is called after each iteration. When `cancelled()` the run stops, and what there is comes
    back; `Cancelled` is raised where no iteration was done.
    """
    check(request)
    rgba = request.rgb and request.picture.shape[-1] == 4
    picture = request.picture[..., :3] if rgba else request.picture
    total = request.iterations or CALLS_OF_FAST

    def after(progress: pl.Progress) -> bool:
        report(progress.iteration, max(total, progress.iteration))
        return cancelled()

    if cancelled():
        raise Cancelled
    psf = request.psf
    result = pl.restore(picture, psf, callback=after, **options_of(request))
    array = np.asarray(result)
    if rgba:
        array = np.concatenate([array, request.picture[..., 3:]], -1)
    return array, {KEY: metadata_of(result, request)}


def metadata_of(result: pl.Restoration, request: Request) -> dict[str, Any]:
    """How the picture was made, as plain text and numbers."""
    certificate = result.certificate
    return {
        "version": pl.__version__,
        "method": result.method.name,
        "iterations": len(result.history),
        "status": result.status.sentence,
        "seconds": float(result.history.seconds[-1]) if len(result.history) else 0.0,
        "noise": float(result.noise[0]) * result.before.scale,
        "psf": str(request.psf) if isinstance(request.psf, Path) else f"an array {request.psf.shape}",
        "certificate": f"{certificate.level.value}: {certificate.statement}",
        "warnings": list(result.warnings),
        "notes": list(result.notes),
    }
