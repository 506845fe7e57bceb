"""From a picture and its blur to the sharp picture: noise, settings and method chosen for the user."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm import settings
from pnpladmm.blur import Blur, read_blur
from pnpladmm.data_terms import Gaussian, Poisson, WeightedGaussian
from pnpladmm.denoisers import Denoiser, load_denoiser
from pnpladmm.methods import METHODS, make_method
from pnpladmm.noise import ResidualCheck, check_residual, estimate_noise
from pnpladmm.operators import Boundary, LinearOperator
from pnpladmm.operators.base import shape_of
from pnpladmm.pictures import Picture, read_picture
from pnpladmm.pictures.samples import fill_blank
from pnpladmm.solvers import ADMM, LADMM, Annealed, Method, Problem, Result, RichardsonLucy, Status, solve
from pnpladmm.solvers.loop import Callback
from pnpladmm.tensors import InputError, PerPicture, check_pictures, check_positive, per_picture

Noise: TypeAlias = PerPicture | Literal["auto"]

# Relative changes below which a picture counts as done.
TOLERANCE = 1e-4
# A share of saturated pixels beyond which they are the picture, not an accident.
MOST_SATURATED = 0.3


@dataclass(frozen=True)
class Counts:
    """Poisson data in the picture's units: `gain` is what one count adds, `background` the level no blur touches."""

    gain: float
    background: float = 0.0


@dataclass(frozen=True)
class Restoration:
    """A result with what was assumed on the way to it."""

    result: Result
    """Its image lies on the picture's own domain."""
    problem: Problem
    sigma: Tensor
    """Noise level of each picture, (B,), given or estimated, pictures in [0, 1]; for a noise map its median."""
    checks: tuple[ResidualCheck, ...]
    """Does the residual look like that noise? One a picture."""
    notes: tuple[str, ...]
    """What was estimated or left out, a sentence each."""


def restore(
    picture: Any,
    blur: Any,
    noise: Noise = "auto",
    method: str | Method = "fast",
    denoiser: str | Path | Denoiser | None = None,
    **options: Any,
) -> Result:
    """The sharp picture: `picture` is a tensor, array, `Picture` or file; `blur` an operator, `Blur` or file.

    `noise` is a standard deviation for pictures in [0, 1] (one, or one for each picture), or `auto`. The image comes
    back on the picture's own domain. The options are those of `restore_picture`, which also tells what was assumed.
    """
    return restore_picture(picture, blur, noise, method, denoiser, **options).result


def restore_picture(
    picture: Any,
    blur: Any,
    noise: Noise = "auto",
    method: str | Method = "fast",
    denoiser: str | Path | Denoiser | None = None,
    *,
    iterations: int | None = None,
    certify: int = 0,
    strength: float = 1.0,
    boundary: Boundary = "unknown",
    valid: Any = None,
    counts: Counts | None = None,
    variance: Any = None,
    device: str | None = None,
    callback: Callback | None = None,
) -> Restoration:
    """Restore and report.

    iterations : denoiser calls for `fast` (default 8), else at most so many iterations.
    certify : at most so many iterations of certified LADMM after it; the certificate and history are theirs.
    strength : 1 is the tuned smoothing, more is smoother.
    boundary : what lies beyond the border, where `blur` is not an operator already.
    valid : False on dead or saturated pixels, broadcast to the picture; they get precision 0.
    counts, variance : Poisson data, or a map of the noise variance, in the picture's units.
    """
    check_positive("strength", strength)
    if certify < 0:
        raise InputError(f"certify = {certify}: give the number of certified iterations, 0 for none")
    pixels, known = _pixels(picture, device)
    valid = _both(known, valid, pixels)
    notes: list[str] = []
    if valid is not None:
        lost = 1 - float(valid.double().mean())
        notes.append(f"{lost:.2%} of the pixels do not count (dead, saturated or missing)")
        # Their precision is 0, but the start is made of the observation: a wild value there would spread.
        filled = fill_blank(pixels.cpu().numpy(), (~valid).cpu().numpy())
        pixels = torch.from_numpy(filled).to(pixels)
    check_pictures("picture", pixels)
    operator = as_operator_for(blur, pixels, boundary)
    variances = _variance_map(pixels, counts, variance, valid)
    sigma = _noise_level(pixels, noise, variances, valid, notes)
    # The rounding of float16 changes a picture by 1e-4 at each iteration: those that are to converge need better.
    chosen = _denoiser(denoiser, device, torch.float32 if certify or method == "certified" else None)
    problem = _problem(pixels, operator, sigma, variances, counts, valid, method)
    if isinstance(method, str):
        method = make_method(method, chosen, problem, sigma, strength, iterations)
    elif not isinstance(method, Method):
        raise InputError(f"method is a {type(method).__name__}: give one of {', '.join(METHODS)}, or a method")
    if isinstance(method, RichardsonLucy) and iterations is None:
        # It fits the noise if it is not stopped in time; the noisiest picture of a batch says when.
        iterations = round(float(settings.tuned(None, "richardson-lucy", sigma)["iterations"].min()))
    result = solve(problem, method, iterations, TOLERANCE, callback=callback)
    if certify and result.status in (Status.FINISHED, Status.CONVERGED, Status.ITERATION_LIMIT):
        notes.append(
            f"certified iterations after {len(result.history)} of {method.name}: the certificate is about them"
        )
        inside = make_method("certified", chosen, problem, sigma, strength)
        assert isinstance(inside, LADMM)
        # The theorem holds from any x0, with z0 = H x0 and the dual that belongs to it.
        inside = replace(inside, z_start="blurred")
        result = solve(problem, inside, certify, TOLERANCE, start=result.image, callback=callback)
    checks = check_residual(problem, result.image)
    result = replace(result, image=problem.observed_part(result.image))
    return Restoration(result, problem, sigma, checks, tuple(notes))


def saturated(picture: Picture) -> Tensor | None:
    """False on pixels at the top of an integer file's range; None where there are none, or too many to be accidents."""
    if np.dtype(picture.dtype).kind not in "ui":
        return None
    top = picture.pixels >= 1 - 0.5 / picture.scale
    share = float(top.double().mean())
    return None if share == 0 or share > MOST_SATURATED else ~top


def as_operator_for(blur: Any, pixels: Tensor, boundary: Boundary) -> LinearOperator:
    """The operator of a blur given as operator, `Blur` or file, for these pictures."""
    if isinstance(blur, str | Path):
        blur = read_blur(blur, (pixels.shape[-2], pixels.shape[-1]))
    if isinstance(blur, Blur):
        return blur.operator(boundary)
    if isinstance(blur, LinearOperator) or hasattr(blur, "A_adjoint"):
        return blur  # Problem wraps deepinv's physics
    raise InputError(f"blur is a {type(blur).__name__}: give an operator, a Blur or a file")


def _pixels(picture: Any, device: str | None) -> tuple[Tensor, Tensor | None]:
    if isinstance(picture, str | Path):
        picture = read_picture(picture)
    if isinstance(picture, np.ndarray):
        picture = Picture.from_array(picture)
    if isinstance(picture, Picture):
        return picture.pixels.to(device), None if picture.valid is None else picture.valid.to(device)
    if not isinstance(picture, Tensor):
        raise InputError(f"picture is a {type(picture).__name__}: give a tensor, an array, a Picture or a file")
    shape_of("picture", picture)
    return picture.to(device), None


def _denoiser(denoiser: str | Path | Denoiser | None, device: str | None, precision: torch.dtype | None) -> Denoiser:
    if denoiser is None or isinstance(denoiser, str | Path):
        return load_denoiser(denoiser or "light", device, precision)
    if not callable(denoiser):
        raise InputError(
            f"denoiser is a {type(denoiser).__name__}: give a name, a weight file or a callable d(x, sigma)"
        )
    return denoiser


def _broadcast(name: str, values: Any, pixels: Tensor) -> Tensor:
    """A map of the picture's size, (H, W) to (B, C, H, W), on its device."""
    values = torch.as_tensor(values, device=pixels.device)
    shape = (1,) * (4 - values.ndim) + tuple(values.shape)
    if len(shape) != 4 or any(n not in (1, m) for n, m in zip(shape, pixels.shape, strict=True)):
        raise InputError(f"the {name} has shape {tuple(values.shape)}, the picture {tuple(pixels.shape)}")
    return values.expand_as(pixels)


def _both(known: Tensor | None, given: Any, pixels: Tensor) -> Tensor | None:
    masks = [_broadcast("mask", m, pixels).bool() for m in (known, given) if m is not None]
    if not masks:
        return None
    valid = torch.stack(masks).all(0)
    if not bool(valid.any()):
        raise InputError("the mask leaves no pixel that counts")
    return None if bool(valid.all()) else valid


def _variance_map(pixels: Tensor, counts: Counts | None, variance: Any, valid: Tensor | None) -> Tensor | None:
    """The variance of each pixel, where it is not one number."""
    if variance is not None:
        if counts is not None:
            raise InputError("counts and a variance map: give one of the two")
        variance = _broadcast("variance map", variance, pixels).to(pixels.dtype)
        good = torch.isfinite(variance) & (variance > 0)
        if not bool((good if valid is None else good | ~valid).all()):
            raise InputError("the variance map has values that are not above 0: mask dead pixels instead")
        return torch.where(good, variance, torch.ones_like(variance))
    if counts is None:
        return None
    check_positive("gain", counts.gain)
    # The mean of a few neighbours: a pixel's own count would favour its downward fluctuations.
    kernel = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], dtype=pixels.dtype, device=pixels.device) / 16
    padded = torch.nn.functional.pad(pixels, (2, 2, 2, 2), mode="replicate").flatten(0, 1).unsqueeze(1)
    smooth = torch.nn.functional.conv2d(padded, (kernel[:, None] * kernel)[None, None]).reshape(pixels.shape)
    return counts.gain * smooth.clamp_min(counts.gain)


def _noise_level(
    pixels: Tensor, noise: Noise, variances: Tensor | None, valid: Tensor | None, notes: list[str]
) -> Tensor:
    """(B,), float64: what one picture gets does not depend on its neighbours."""
    if variances is not None:
        return variances.flatten(1).double().median(1).values.sqrt()
    if isinstance(noise, str):
        if noise != "auto":
            raise InputError(f"noise {noise!r}: give a number, one for each picture, or auto")
        sigma = estimate_noise(pixels, valid)
        levels = ", ".join(f"{255 * float(s):.2f}" for s in sigma)
        notes.append(f"noise estimated: {levels} of 255")
        return sigma
    if not isinstance(noise, int | float | Tensor):
        raise InputError(f"noise is a {type(noise).__name__}: give a number, one for each picture, or auto")
    check_positive("noise", noise)
    per_picture(noise, pixels)  # one number, or one for each picture
    return torch.as_tensor(noise, dtype=torch.float64, device=pixels.device).reshape(-1).expand(len(pixels)).clone()


def _problem(
    pixels: Tensor,
    operator: LinearOperator,
    sigma: Tensor,
    variances: Tensor | None,
    counts: Counts | None,
    valid: Tensor | None,
    method: str | Method,
) -> Problem:
    quadratic = method in ("fast", "admm") or isinstance(method, Annealed | ADMM)
    if method == "richardson-lucy" and counts is not None and not counts.background:
        quadratic = True  # it looks at the mask only, and needs no background
    if counts is not None and not quadratic:
        if valid is not None:
            raise InputError("masks with Poisson data need a quadratic method: use fast or admm")
        return Problem(pixels.clamp_min(0), operator, Poisson(counts.gain, counts.background))
    if counts is not None:
        pixels = pixels - counts.background
    if variances is None and valid is None:
        return Problem(pixels, operator, Gaussian(sigma))
    flat = sigma.to(pixels.dtype).view(-1, 1, 1, 1) ** -2
    precision = flat.expand_as(pixels) if variances is None else 1 / variances
    return Problem(pixels, operator, WeightedGaussian(precision if valid is None else precision * valid))
