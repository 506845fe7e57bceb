"""How much better other PSFs explain a picture: a score test for stretched, turned, sheared and blurred PSFs.

With `r = y - Hx` of a restored picture `x`, and the pictures `c_j = (dH/dt_j) x` by which the observation changes with
the PSF, the model is

    r = sum_j t_j c_j + H d + n,    n ~ N(0, s^2),    d ~ N(0, s^2 / A),

`d` what the picture may still change. Both are marginalised: with `Q = A (H H^T + A)^-1`,

    t = (C^T Q C + e)^-1 C^T Q r,    T = r^T Q C t / s^2,

`e` from what changes are likely. `Q` keeps what no picture can explain: for a PSF with zeros in its spectrum nearly all
that another PSF puts there. For a convolution with `k(u)` a change `u -> u + t B u` of its coordinates is the
commutator of `H` with coordinates, applied to derivatives of `x`:

    dH/dt x = sum_ij B_ij (H u_j - u_j H) d_i x.

So nothing needs to be known of the kernels, and a blur may vary over the picture. All of it is about the mean of the
channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d, pad

from pnpladmm.data_terms import WeightedGaussian
from pnpladmm.operators import LinearOperator, SpatiallyVaryingBlur
from pnpladmm.operators.absolute_blur import FromBlur
from pnpladmm.restoration.signs import OUTLIER
from pnpladmm.solvers import Problem
from pnpladmm.solvers.data_step import DataStep
from pnpladmm.tiling.geometry import taken
from pnpladmm.tiling.window import WindowBlur

A = 2e-3
"""The weight of the prior of `d`, for an `H` of norm 1."""
WINDOW = 48
"""Side of the windows that are tested alone, in pixels."""
SHARE = 0.9
"""So large a share of the windows have a smaller score than `local`."""
PRIOR = (0.2, 0.2, 0.2, 0.2, 0.5)
"""Standard deviation of changes: shares of the size, and pixels squared of blur."""
MARGIN = 8
"""This part of the shorter side is left out at each border."""
APART = 8
"""Pixels that are this near to pixels that do not count are left out: JPEG spreads what saturated ones hold."""
STEPS, TOLERANCE = 12, 1e-2
"""Of conjugate gradient."""
LARGEST, SIDE, PLACES = 512 * 512, 256, 2
"""Of larger pictures parts of this side are tested, so many along each axis."""


@dataclass(frozen=True)
class PsfScore:
    """Of each picture of a batch, (B,), float64. All are 0 where nothing can be tested."""

    worst: Tensor
    """The largest `T` of all windows, per direction: below 1 for noise alone."""
    local: Tensor
    """The `T` that a tenth of the windows reach."""
    middle: Tensor
    """The median of `T` of all windows, per direction."""
    error: Tensor
    """Root mean square of `C t` in units of the noise."""
    change: Tensor
    """The size of the change of shape: root of the sum of squares of `t` but the blur."""

    @classmethod
    def nothing(cls, like: Tensor) -> PsfScore:
        """For pictures with levels (B,) that cannot be tested."""
        zero = torch.zeros_like(like, dtype=torch.float64)
        return cls(zero, zero, zero, zero, zero)


def psf_score(problem: Problem, image: Tensor, level: Tensor) -> PsfScore:
    """The test for pictures on the problem's own domain and the noise level of the restoration, (B,)."""
    y, precision = problem.observed, problem.data_term.precision_of(problem.observed)
    if precision is None or not problem.operator.blurs or problem.crop_to_observed(image).shape != y.shape:
        return PsfScore.nothing(level)
    level = level.double() / y.shape[1] ** 0.5  # of the mean of the channels
    found = [_tested(part, x, level) for part, x in _parts(problem, image, precision)]
    if not found:
        return PsfScore.nothing(level)
    scores = torch.cat([scores for scores, _, _ in found], 1)
    return PsfScore(
        worst=scores.amax(1),
        local=torch.quantile(scores, SHARE, 1),
        middle=scores.median(1).values,
        error=torch.stack([error for _, error, _ in found]).square().mean(0).sqrt(),
        change=torch.stack([change for _, _, change in found]).median(0).values,
    )


def _parts(problem: Problem, image: Tensor, precision: Tensor) -> Iterator[tuple[Problem, Tensor]]:
    """The mean of the channels of the picture, or of parts of a large one."""
    y, blur = problem.observed, problem.operator
    height, width = y.shape[-2:]
    if height * width <= LARGEST:
        yield _bright(y, precision.expand_as(y), blur), image.mean(1, keepdim=True)
        return
    blur = blur.blur if isinstance(blur, FromBlur) else blur
    if type(blur) is not SpatiallyVaryingBlur and not (isinstance(blur, WindowBlur) and blur.extension is None):
        return
    side = min(SIDE, height, width)
    firsts = [[(n - side) * (i + 1) // (PLACES + 1) for i in range(PLACES)] for n in (height, width)]
    for top, left in product(*firsts):
        rows, columns = (top, top + side), (left, left + side)
        window = WindowBlur(blur, rows, columns)
        seen, weights = (taken(v.expand_as(y), rows, columns) for v in (y, precision))
        yield _bright(seen, weights, window), taken(image, *window.scene_span).mean(1, keepdim=True)


def _bright(y: Tensor, precision: Tensor, operator: LinearOperator) -> Problem:
    """The mean of the channels, and the least precision of them relative to the largest one."""
    shares = precision / precision.amax((1, 2, 3), keepdim=True).clamp_min(torch.finfo(precision.dtype).tiny)
    shares = shares.to(y).expand_as(y).amin(1, keepdim=True)
    return Problem(y.mean(1, keepdim=True), operator, WeightedGaussian(shares))


def _tested(problem: Problem, image: Tensor, level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`T` of the windows (B, n), and `error` and `change` (B,)."""
    y, H, weights = problem.observed, problem.operator, problem.precision_for("a test of the PSF")
    zero, a = torch.zeros_like(image), torch.as_tensor(A).to(image)

    def unexplained(r: Tensor) -> Tensor:
        z, _ = DataStep(H, weights, r, STEPS, TOLERANCE).solve(a, zero, zero)
        return weights * (r - H.forward(z))

    changes = directions(problem, image)
    most = OUTLIER * level.to(y).view(-1, 1, 1, 1)
    left = unexplained((y - H.forward(image)).clamp(-most, most))
    filtered = [unexplained(c) for c in changes]
    margin = min(y.shape[-2:]) // MARGIN
    inner = (slice(None), slice(None), slice(margin, y.shape[-2] - margin), slice(margin, y.shape[-1] - margin))
    C, L, Q = torch.cat(changes, 1)[inner].double(), left[inner].double(), torch.cat(filtered, 1)[inner].double()
    near = max_pool2d((weights <= 0).to(y), 2 * APART + 1, 1, APART)[inner] > 0
    C = torch.where(near, 0.0, C)
    S, F = C * L, (C.unsqueeze(2) * Q.unsqueeze(1)).flatten(1, 2)
    variance = level.to(C).square()
    t, _ = _solved(S.sum((-2, -1)), F.sum((-2, -1)), variance)
    error = torch.einsum("bj,bjhw->bhw", t, C).square().mean((1, 2)).sqrt() / variance.sqrt()
    window = (min(WINDOW, S.shape[-2]), min(WINDOW, S.shape[-1]))
    step = max(1, min(window) // 4)
    sums = [(window[0] * window[1] * avg_pool2d(v, window, step)).flatten(2).transpose(1, 2) for v in (S, F)]
    _, scores = _solved(sums[0], sums[1], variance[:, None])
    return scores / len(changes), error, t[:, :4].square().sum(1).sqrt()


def _solved(S: Tensor, F: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """`t` and `T` from `C^T Q r` (..., J) and `C^T Q C` (..., J * J)."""
    # A run that failed is judged by its status; its numbers are not to stop the others.
    S, F = (torch.nan_to_num(v, 0.0, 0.0, 0.0) for v in (S, F.reshape(*S.shape, S.shape[-1])))
    likely = torch.diag(torch.tensor(PRIOR, dtype=S.dtype, device=S.device) ** -2)
    least = variance[..., None, None].clamp_min(torch.finfo(S.dtype).tiny)
    # Few steps of conjugate gradient leave `Q` a little asymmetric and indefinite; `C^T Q C` is neither.
    size, axes = torch.linalg.eigh((F + F.transpose(-1, -2)) / 2)
    F = (axes * size.clamp_min(0).unsqueeze(-2)) @ axes.transpose(-1, -2)
    t = torch.linalg.solve(F + least * likely, S)
    return t, (S * t).sum(-1).clamp_min(0) / least[..., 0, 0]


def directions(problem: Problem, image: Tensor) -> list[Tensor]:
    """The pictures `c_j`: stretched along x and y, sheared along x and y, blurred."""
    H, y = problem.operator, problem.observed
    first = H.crop_offset or (0, 0)

    def coordinate(axis: int, length: int, first: int) -> Tensor:
        at = torch.arange(length, dtype=image.dtype, device=image.device) - first - y.shape[axis] // 2
        return at if axis == -1 else at.view(-1, 1)

    wide = pad(image, (1, 1, 1, 1), mode="replicate")
    slopes = {
        -1: (wide[..., 1:-1, 2:] - wide[..., 1:-1, :-2]) / 2,
        -2: (wide[..., 2:, 1:-1] - wide[..., :-2, 1:-1]) / 2,
    }
    seen = {axis: H.forward(slope) for axis, slope in slopes.items()}
    found = []
    for slope, axis in ((-1, -1), (-2, -2), (-1, -2), (-2, -1)):
        before, after = coordinate(axis, image.shape[axis], first[axis]), coordinate(axis, y.shape[axis], 0)
        found.append(H.forward(before * slopes[slope]) - after * seen[slope])
    curved = wide[..., 2:, 1:-1] + wide[..., :-2, 1:-1] + wide[..., 1:-1, 2:] + wide[..., 1:-1, :-2] - 4 * image
    return [*found, H.forward(curved)]
