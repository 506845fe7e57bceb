"""Estimate the noise before a restoration, and check after it whether the residual looks like that noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pnpladmm.operators.transforms import Wavelet
from pnpladmm.solvers import Problem
from pnpladmm.tensors import InputError

# Median of |n| for n of standard deviation 1.
MEDIAN_OF_NORMAL = 0.67449
# A detail smaller than this share of the brightest pixel is rounding, not noise.
FLAT = 1e-9
# Beyond these limits a residual is called structured, too large or too small; measured in tests/test_noise.py.
STRUCTURED = 0.1
TOO_LARGE = 1.15
TOO_SMALL = 0.7
LARGE = 1 << 24
"""Samples from which a residual is looked at in strips."""
STRIP = 256
"""Rows of a strip: an even number."""


def estimate_noise(picture: Tensor, valid: Tensor | None = None) -> Tensor:
    """Standard deviation of white noise in each picture (B, C, H, W): (B,), float64.

    The median of the finest diagonal wavelet details, which a blurred picture hardly has. Details that touch pixels
    that are not `valid` do not count, nor those that are 0 to rounding (saturated or filled areas).
    """
    h, w = (n - n % 2 for n in picture.shape[-2:])
    if h < 8 or w < 8:
        raise InputError(f"a picture of {picture.shape[-2]}x{picture.shape[-1]} is too small to estimate its noise")
    found = []
    for number, one in enumerate(picture):
        least = FLAT * one.abs().max()
        counts = None if valid is None else valid.expand_as(picture)[number]
        parts = [_details(one, counts, slice(top, min(top + STRIP + 2, h)), w, least) for top in range(0, h - 2, STRIP)]
        usable = torch.cat(parts)
        if not len(usable):
            raise InputError("the picture has no noise that could be estimated (flat or empty): give the noise level")
        found.append(usable.median() / MEDIAN_OF_NORMAL)
    return torch.stack(found)


def _details(picture: Tensor, valid: Tensor | None, rows: slice, width: int, least: Tensor) -> Tensor:
    """The sizes of the usable finest diagonal details of some rows of a picture (C, H, W), (n,)."""
    part = picture[:, rows, :width].double()
    details = Wavelet(1).forward(part[None])[0, :, part.shape[-2] // 2 :, width // 2 :].abs()
    # The last row and column wrap round to the first: their details see a jump. The next strip has this row, too.
    details = details[:, :-1, :-1]
    usable = details > least
    if valid is not None:
        holes = (~valid[:, rows, :width]).double()
        usable &= ~(torch.nn.functional.max_pool2d(holes, 4, 2) > 0)
    return details[usable]


@dataclass(frozen=True)
class ResidualCheck:
    """The residual `y - Hx` compared with the noise that was assumed."""

    size: float
    """Its root mean square divided by the noise level: about 1 for a good fit."""
    correlation: float
    """Mean correlation of neighbouring pixels: about 0 for a good fit to white noise."""
    white: bool = True
    """Whether the noise was assumed to be white. JPEG and errors of the PSF leave smaller, correlated residuals."""
    estimated: bool = False
    """Whether that noise was estimated: then nobody gave too much of it. Weak noise always leaves small residuals."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences for the user; empty where the residual looks like the assumed noise."""
        found = []
        if self.white and self.correlation > STRUCTURED:
            found.append(
                f"the residual is structured (neighbours correlate by {self.correlation:.2f}): "
                "the PSF does not fit the picture, or the restoration is too smooth"
            )
        if self.size > TOO_LARGE:
            found.append(
                f"the residual is {self.size:.2f} times the assumed noise: the noise is stronger than given, "
                "or the PSF does not fit"
            )
        if self.white and not self.estimated and self.size < TOO_SMALL:
            found.append(
                f"the residual is only {self.size:.2f} of the assumed noise: the noise seems weaker than given"
            )
        return tuple(found)


def check_residual(
    problem: Problem, image: Tensor, is_white: Sequence[bool] = (), seen: Tensor | None = None
) -> tuple[ResidualCheck, ...]:
    """The check for each picture; none where the data term has no `mean_and_precision`.

    `image` lies on the problem's own domain. `is_white` says of each picture whether its noise is; by default it is.
    `seen` is `Hx`, where the method knows it better than the pixels do: stars may stand between them.
    """
    if image.numel() > LARGE:
        return _check_in_strips(problem, image, is_white, seen)
    y = problem.observed.double()
    seen = problem.operator.forward(image) if seen is None else seen
    expected = problem.data_term.mean_and_precision(seen.double(), y)
    if expected is None:
        return ()
    mean, precision = expected
    white = (y - mean) * precision.double().sqrt()
    valid = (precision > 0).double().expand_as(white)
    kinds = is_white or [True] * len(y)
    return tuple(check_white(w, v, kind) for w, v, kind in zip(white, valid, kinds, strict=True))


def _check_in_strips(
    problem: Problem, image: Tensor, is_white: Sequence[bool], seen: Tensor | None
) -> tuple[ResidualCheck, ...]:
    """The same for large pictures, a few rows at a time; `Hx` is computed in the picture's own dtype."""
    y = problem.observed
    seen = problem.operator.forward(image) if seen is None else seen
    expected = problem.data_term.mean_and_precision(seen, y)
    if expected is None:
        return ()
    mean, precision = (part.expand_as(y) for part in expected)
    found = []
    for i in range(len(y)):

        def strip(rows: slice, i: int = i) -> tuple[Tensor, Tensor]:
            p = precision[i, :, rows].double()
            return (y[i, :, rows].double() - mean[i, :, rows].double()) * p.sqrt(), (p > 0).double()

        starts = [slice(first, first + STRIP) for first in range(0, y.shape[-2], STRIP)]
        sums = [torch.stack([(w * v).sum((-2, -1)), v.sum((-2, -1))]) for w, v in map(strip, starts)]
        total, count = torch.stack(sums).sum(0)
        centre = (total / count.clamp_min(1)).view(-1, 1, 1)
        power, down, across = 0.0, torch.zeros(2), torch.zeros(2)
        for rows in starts:
            w, v = strip(slice(rows.start, rows.stop + 1))  # with the next row, for the pairs
            c = (w - centre) * v
            power += float(c[:, :STRIP].square().sum())
            down = down + torch.stack([(c[:, 1:] * c[:, :-1]).sum(), (v[:, 1:] * v[:, :-1]).sum()]).cpu()
            c, v = c[:, :STRIP], v[:, :STRIP]
            across = across + torch.stack([(c[..., 1:] * c[..., :-1]).sum(), (v[..., 1:] * v[..., :-1]).sum()]).cpu()
        power /= max(float(count.sum()), 1.0)
        pairs = [float(pair[0] / pair[1].clamp_min(1)) for pair in (down, across)]
        correlation = sum(pairs) / 2 / max(power, torch.finfo(torch.float64).tiny)
        found.append(ResidualCheck(power**0.5, correlation, is_white[i] if is_white else True))
    return tuple(found)


def check_white(white: Tensor, valid: Tensor, is_white: bool = True) -> ResidualCheck:
    """The check of residuals (C, H, W) in units of the noise, where `valid` is 1; planes may be parts of a picture."""
    mean = (white * valid).sum((-2, -1), keepdim=True) / valid.sum((-2, -1), keepdim=True).clamp_min(1)
    centred = (white - mean) * valid
    power = centred.square().sum() / valid.sum()
    pairs = [
        (centred[..., 1:, :] * centred[..., :-1, :]).sum()
        / (valid[..., 1:, :] * valid[..., :-1, :]).sum().clamp_min(1),
        (centred[..., :, 1:] * centred[..., :, :-1]).sum()
        / (valid[..., :, 1:] * valid[..., :, :-1]).sum().clamp_min(1),
    ]
    correlation = torch.stack(pairs).mean() / power.clamp_min(torch.finfo(torch.float64).tiny)
    return ResidualCheck(float(power.sqrt()), float(correlation), is_white)
