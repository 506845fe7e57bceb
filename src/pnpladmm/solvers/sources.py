"""Sources on a smooth sky: stars, galaxies and glowing spots as a sparse sum of positive light. No denoiser."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser, Promise
from pnpladmm.solvers.certificate import MARGIN, Condition, Theorem
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS
from pnpladmm.solvers.source_atoms import SHARED, SourceAtoms, widened
from pnpladmm.solvers.state import Start, State, start_picture
from pnpladmm.tensors import InputError, PerPicture, check_positive

ITERATIONS = 280
STAGES = (60, 120, 180)
"""After these of `ITERATIONS` iterations the weights of the sources are set anew."""
FAINT = 5.0
"""A source of this many times its own noise has half the weight of an empty place; brighter ones have less."""
LEAST_STEP = 0.02
"""Light, in units of its noise, of the empty places in the choice of the step sizes."""
LEAST_SEEN = 0.03
"""The least that is seen of a place, in units of the median, in the choice of the step sizes."""
APART = 2
"""Points that are nearer than this, in half pixels, are one source."""
EVEN = 0.2
"""A source whose centre is this near to a point, in half pixels, is made of the points on both sides of it."""
ALONE = 0.25
"""Around a source that is alone, from one to two pixels, there is less than this share of its light."""
WIDEST = 4.0
TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class SourcesState(State):
    """The picture, what it looks like blurred, the coefficients and what FISTA extrapolates from them."""

    Hx: Tensor = field()
    light: Tensor
    """The coefficients `c` of the sources and the sky, (B, M)."""
    ahead: Tensor
    """`c`, extrapolated."""
    H_ahead: Tensor
    penalty: Tensor
    """`w` of the current stage."""
    metric: Tensor
    """`D` of the current stage: 1 / the step sizes."""
    since: int = 0
    """Iterations since the weights were set."""


@METHODS.register("sources")
@dataclass(frozen=True)
class Sources(Method[SourcesState]):
    """Minimise `h(H A c) + sum w c` over coefficients `c`; those of sources are not negative:

        c+ = max(0, q - D^-1 (A^T H^T grad h(H A q) + w))       no limit and no w for the sky
        q+ = c+ + k / (k + 4) (c+ - c).

    `x = A c` is a sum of points, round spots of four sizes, and a smooth sky (solvers/source_atoms.py). Nothing
    in it can ring: all light is positive but for the sky, which is smoother than any PSF. `w` is `threshold` times the
    noise of each source. It is set anew three times, small where light was found, so that it takes no flux from
    sources that stand out. From then on it is fixed, and `E` is convex.

    `D = diag((|HA|^T p |HA| r) / r)` bounds `A^T H^T p H A` for any `r > 0`. With `r` near `c` the
    steps are long at bright sources.

    Parameters
    ----------
    threshold : float or Tensor
        `w` in units of the noise: light that stands out less is left to the sky; one number, or one per picture.
    width : float or Tensor
        The variance of points in pixels squared: 0 for stars, more for beads and vesicles.
    iterations : int
        The length of the schedule.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> blur = pl.SpatiallyVaryingBlur(torch.full((1, 3, 3), 1 / 9), torch.ones(1, 16, 16))
    >>> y = torch.full((1, 1, 16, 16), 0.1)
    >>> y[..., 7:10, 7:10] += 0.1
    >>> result = pl.solve(pl.Problem(y, blur, pl.Gaussian(0.001)), pl.Sources())
    >>> result.certificate.level.value, round(float(result.image[0, 0, 8, 8]), 1)
    ('convex', 0.9)
    """

    denoiser_calls: ClassVar[int] = 0
    needs_quadratic: ClassVar[bool] = True
    models_all_light: ClassVar[bool] = True
    fewest_iterations: ClassVar[int] = 20

    threshold: PerPicture = 3.0
    iterations: int = ITERATIONS
    width: PerPicture = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_positive("threshold", self.threshold)
        if bool((torch.as_tensor(self.width) < 0).any()) or bool((torch.as_tensor(self.width) > WIDEST).any()):
            raise InputError(f"width = {self.width}: give a variance from 0 to {WIDEST:g} pixels squared")
        if self.iterations < self.fewest_iterations:
            raise InputError(f"iterations = {self.iterations}: Sources needs {self.fewest_iterations} or more")

    @classmethod
    def for_noise(
        cls, denoiser: Denoiser, problem: Problem, sigma: Tensor, strength: float = 1.0, calls: int | None = None
    ) -> Method[Any]:
        """`strength` scales the threshold; the noise itself is in the data term."""
        return cls(threshold=cls.threshold * strength, iterations=calls or ITERATIONS)

    @property
    def length(self) -> int:
        """Iterations after which the schedule is complete."""
        return self.iterations

    @property
    def stages(self) -> tuple[int, ...]:
        """Iterations after which the weights are set anew."""
        return tuple(round(stage * self.iterations / ITERATIONS) for stage in STAGES)

    @property
    def promise(self) -> Promise:
        """`sum w c` over non-negative `c` is convex."""
        return Promise.CONVEX

    def init(self, problem: Problem, start: Start = None) -> SourcesState:
        """No source, and a flat sky at the median; a given start is taken as points."""
        atoms = self.atoms(problem)
        flat = _level(problem)
        light = torch.zeros(problem.pictures, sum(atoms.counts), dtype=flat.dtype, device=flat.device)
        parts = atoms.parts(light)
        if start is not None:
            x0 = start_picture(problem, start)
            parts[0] = parts[0].clone()
            parts[0][..., ::2, ::2] = (x0 - flat).clamp_min(0)
        light = atoms.join([*parts[:-1], parts[-1] + flat])
        Hx = problem.operator.forward(atoms.seen(light))
        penalty, metric = self._weights(problem, atoms, light, first=True)
        return SourcesState(
            x=atoms.shown(light), Hx=Hx, light=light, ahead=light, H_ahead=Hx, penalty=penalty, metric=metric
        )  # fmt: skip

    def again(self, state: SourcesState) -> SourcesState:
        """The first of the stages, with the light found so far."""
        return replace(state, iteration=self.stages[0])

    def step(self, problem: Problem, state: SourcesState) -> SourcesState:
        """The equations above; at the end of a stage the weights first."""
        s, H, h, y = state, problem.operator, problem.data_term, problem.observed
        atoms = self.atoms(problem)
        ahead, H_ahead, since = s.ahead, s.H_ahead, s.since
        penalty, metric = s.penalty, s.metric
        if s.iteration in self.stages:
            ahead, H_ahead, since = s.light, H.forward(atoms.seen(s.light)), 0
            penalty, metric = self._weights(problem, atoms, s.light)
        slope = atoms.seen_adjoint(H.adjoint(h.gradient(H_ahead, y)))
        light = ahead - (slope + penalty) / metric
        sky = light.shape[1] - atoms.counts[-1]
        light = torch.cat([light[:, :sky].clamp_min(0), light[:, sky:]], 1)
        Hx = H.forward(atoms.seen(light))
        momentum = since / (since + 4)
        return SourcesState(
            x=atoms.shown(light), Hx=Hx, light=light, penalty=penalty, metric=metric,
            ahead=light + momentum * (light - s.light), H_ahead=Hx + momentum * (Hx - s.Hx),
            since=since + 1, iteration=s.iteration + 1,
        )  # fmt: skip

    def atoms(self, problem: Problem) -> SourceAtoms:
        """What its pictures are made of."""
        width = torch.as_tensor(self.width, dtype=torch.float64).reshape(-1).expand(problem.pictures)
        return SourceAtoms(problem.shape, problem.observed, width)

    def objective(self, problem: Problem, state: SourcesState) -> Tensor:
        """`h(H A c) + sum w c`, with the weights of the stage."""
        prior = (state.penalty.double() * state.light.double()).sum(1)
        return problem.data_term.value(state.Hx, problem.observed) + prior

    def theorem(self, problem: Problem) -> Theorem:
        """The rate of FISTA (Beck and Teboulle; Chambolle and Dossal for this extrapolation)."""
        if problem.operator.absolute() is None:
            return Theorem(missing="nothing is known of the size of the operator's entries")
        bound = (Condition("min D / ((|HA|^T p |HA| r) / r)", MARGIN, "1", 1.0, strict=False),)
        return Theorem(
            convex=bound,
            convex_statement=f"after iteration {self.stages[-1]} accelerated descent on a convex E with fixed weights: "
            "E - min E falls as 1 / iterations^2",
        )

    def _weights(
        self, problem: Problem, atoms: SourceAtoms, light: Tensor, first: bool = False
    ) -> tuple[Tensor, Tensor]:
        """`w` and `D` for the light found so far."""
        precision = problem.precision_for("Sources").expand_as(problem.observed)
        size = problem.operator.absolute()
        if size is None:
            raise InputError(
                "Sources needs an operator whose entries are bounded; this one does not say: give another method"
            )
        clarity = _clarity(problem, atoms, precision)
        parts = atoms.parts(light)
        penalty = [self._penalty(atoms, j, parts[j], clarity[j]) for j in range(atoms.sizes)]
        # Places of which hardly anything is seen, such as those beyond the border, would shorten all steps.
        seen_by = [c.clamp_min(LEAST_SEEN * _middle(c)) for c in clarity]
        reach = [1 / c if first else part + LEAST_STEP / c for part, c in zip(parts, seen_by, strict=False)]
        level = torch.stack([part.flatten(1).mean(1) for part in reach]).sum(0).view(-1, 1, 1, 1)
        # In float64: next to a bright star the rounding of float32 is more than an empty place has.
        wide = SourceAtoms(problem.shape, problem.observed.double(), atoms.width)
        r = wide.join([*reach, level.expand_as(parts[-1])]).double()
        seen = size.forward(wide.seen(r, bound=True))
        metric = MARGIN * wide.seen_adjoint(size.adjoint(precision * seen), bound=True) / r
        # Where nothing is observed there is no slope either: any step will do.
        metric = metric.clamp_min(TINY * metric.amax(1, keepdim=True))
        return atoms.join([*penalty, torch.zeros_like(parts[-1])]), metric.to(light)

    def _penalty(self, atoms: SourceAtoms, size: int, part: Tensor, clarity: Tensor) -> Tensor:
        """`w` of the sources of one size: the threshold, less where they were found."""
        found = _gathered(part) if size == 0 else atoms.spots(part)[size] / atoms.peaks[size]
        threshold = torch.as_tensor(self.threshold, dtype=part.dtype, device=part.device).view(-1, 1, 1, 1)
        return threshold * clarity / (1 + (found * clarity / FAINT).square())


def _clarity(problem: Problem, atoms: SourceAtoms, precision: Tensor) -> list[Tensor]:
    """1 / the noise of the light of a source of each size: the root of the diagonal of `A^T H^T p H A`.

    It is the product of the precision around a place, and of what the blur leaves of a source in the mean. The latter
    is measured with random signs, for which `||H G z||^2` is the sum of all squared columns in the mean.
    """
    H, y = problem.operator, problem.observed
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (1, *problem.shape[1:]), generator=generator, dtype=torch.int8)
    probe = (2 * signs - 1).to(y).expand(problem.shape)
    share = H.adjoint(torch.ones_like(y)).abs()
    share = share.clamp_min(1e-3 * share.flatten(1).amax(1).clamp_min(TINY).view(-1, 1, 1, 1))
    around = (H.adjoint(precision).abs() / share).clamp_min(TINY * precision.flatten(1).amax(1).view(-1, 1, 1, 1))
    layers = [widened(probe, atoms.width, 1), *atoms.spots(probe)[1:]]
    kept = [H.forward(layer).square().flatten(1).sum(1) / probe[0].numel() for layer in layers]
    found = [(around * k.clamp_min(TINY).view(-1, 1, 1, 1)).sqrt() for k in kept]
    return [atoms.on_points(found[0]), *found[1:]]


def _middle(values: Tensor) -> Tensor:
    """The median of each picture, (B, 1, 1, 1)."""
    return values.flatten(1).median(1).values.view(-1, 1, 1, 1)


def _level(problem: Problem) -> Tensor:
    """The median of the pixels that count, (B, C, 1, 1)."""
    y = problem.observed
    counts = problem.precision_for("Sources").expand_as(y) > 0
    known = torch.where(counts, y, torch.nan).flatten(2)
    return torch.nan_to_num(known.nanmedian(2).values)[..., None, None]


def _gathered(points: Tensor) -> Tensor:
    """The light that points have where they make up one source, 0 elsewhere.

    A source is the brightest place within a pixel, with all light around it: the points around its centre, mostly four.
    Other points beside it would only make it wider, which upward noise likes: its flux would come out too bright.
    Sources that are not alone may be lines or areas: there all points count as they are.
    """
    flat = F.pad(points.reshape(-1, 1, *points.shape[-2:]), (1, 1, 1, 1))
    taps = torch.tensor(SHARED, dtype=points.dtype, device=points.device)
    light = F.conv2d(flat, (taps[:, None] * taps)[None, None])
    lean = taps.new_tensor((-1.0, 0.0, 1.0))
    down, right = (F.conv2d(flat, taps_2d[None, None]) for taps_2d in (lean[:, None] * taps, taps[:, None] * lean))
    peak = (light > 0) & (light == F.max_pool2d(light, 2 * APART + 1, 1, APART))
    found = torch.zeros_like(light)
    for rows in (-1, 0, 1):
        for columns in (-1, 0, 1):
            there = peak & ((rows == 0) | (down * rows > -EVEN * light))
            there &= (columns == 0) | (right * columns > -EVEN * light)
            moved = F.pad(torch.where(there, light, 0.0), (1, 1, 1, 1))
            height, width = light.shape[-2:]
            found = torch.maximum(found, moved[..., 1 - rows : 1 - rows + height, 1 - columns : 1 - columns + width])
    core, around = (F.avg_pool2d(light, 2 * r + 1, 1, r, divisor_override=1) for r in (APART, 2 * APART))
    alone = peak & (around - core < ALONE * core)
    alone = F.max_pool2d(alone.to(light), 4 * APART + 1, 1, 2 * APART) > 0
    return torch.where(alone, found, light).reshape(points.shape)
