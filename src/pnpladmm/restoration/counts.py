"""Pictures of few photons: the picture is finished by a few steps of Richardson-Lucy on the counts.

A network was trained on photographs with weak, even noise. In the dark beside bright spots it leaves light below 0,
and it takes a part of faint light away. Multiplicative steps that raise the likelihood of the counts mend both: light
stays positive, and what is seen in total is kept. Few photons need few steps; more would fit their noise.

Where light is nearly everywhere, as in photographs, the network leaves little to mend, and the steps fit noise. How far
noise alone leads is seen in counts that are drawn from the network's own picture. There the steps are kept only if the
true counts lead further.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pnpladmm.data_terms import Poisson
from pnpladmm.restoration.options import Options
from pnpladmm.restoration.policy import Prepared
from pnpladmm.restoration.smoothing import smoothed
from pnpladmm.restoration.sources import FAINT, FEW, sharpest_sources
from pnpladmm.solvers import Annealed, Problem, Result, RichardsonLucy, Sources
from pnpladmm.solvers.state import State

DARK = 0.1
"""On a dark ground the median of a picture is below this share of its brightest place: 0.02 to 0.07 in pictures of
spots and filaments, above 0.15 in most photographs."""
MOST_STEPS = 20
FOR_SPOTS = 10
"""Steps at least where single spots are seen."""
FOR_WIDE_SOURCES = 40
CLEAR_SHAPES, FROM_EVEN = 150.0, 80
"""Photons from which on `sources` knows the shapes of spots best. With fewer, the mean with the picture of
Richardson-Lucy is better than both: one makes spots too sharp, the other too soft."""
REACH = 5
"""Pixels from a single spot at which its light is gone."""


def finished_on_counts(
    result: Result, prepared: Prepared, options: Options, scale: float
) -> tuple[Result, tuple[str, ...]]:
    """The result after the steps, and a note; as it was where no photons were stated or another method restored it."""
    wide = prepared.width is not None and isinstance(result.method, Sources)
    if options.gain is None or not (wide or isinstance(result.method, Annealed)):
        return result, ()
    gain, background = options.gain / scale, options.background / scale
    problem = _problem_of_counts(prepared.problem, gain, background)
    if not RichardsonLucy.suits(problem):
        return result, ()
    steps = steps_for(prepared.problem.observed + background, gain)
    if wide:
        steps = torch.full_like(steps, FOR_WIDE_SOURCES)
    image = _after(problem, result.image, steps)
    if not wide:
        kept = on_dark_ground(prepared.problem.observed)
        kept |= _is_mended(problem, result.image, image, steps, gain, background)
        steps = torch.where(kept, steps, 0)
        if not bool(steps.any()):
            return result, ()
        image = torch.where((steps > 0).to(image.device).view(-1, 1, 1, 1), image, result.image)
    numbers = ", ".join(str(int(number)) for number in steps)
    note = f"finished by {numbers} steps of Richardson-Lucy on the counts: light stays positive, and none is lost"
    vague = brightest(prepared.problem.observed + background, gain) < CLEAR_SHAPES
    if wide and bool(vague.any()):
        even = problem.observed.mean((1, 2, 3), keepdim=True).expand_as(image)
        other = _after(problem, even, torch.full_like(steps, FROM_EVEN))
        image = torch.where(vague.to(image.device).view(-1, 1, 1, 1), (image + other) / 2, image)
        note += f"; the mean of that and of {FROM_EVEN} steps from an even picture"
    return replace(result, image=image, state=State(x=image, iteration=result.state.iteration)), (note,)


def _is_mended(
    problem: Problem, before: Tensor, after: Tensor, steps: Tensor, gain: float, background: float
) -> Tensor:
    """Whether the steps mend more than they fit noise, (B,) on the CPU.

    `after - before` is what the counts mend and their noise, of variance `V`. The error falls by the first and grows by
    the second, so it falls if `||after - before||^2 > 2 V`. `V` comes from counts drawn from `before`.
    """
    start = before.clamp_min(0)
    mean = (problem.operator.forward(start).clamp_min(0) + background).cpu() / gain
    # A seed for each picture: what it gets does not depend on its neighbours.
    counts = torch.stack([torch.poisson(one, generator=torch.Generator().manual_seed(0)) for one in mean])
    drawn = gain * counts.to(start) - (0.0 if isinstance(problem.data_term, Poisson) else background)
    noisy = _after(replace(problem, observed=drawn), start, steps)
    fitted = (noisy - start).square().sum((1, 2, 3))
    return ((after - start).square().sum((1, 2, 3)) > 2 * fitted).cpu()


def _after(problem: Problem, image: Tensor, steps: Tensor) -> Tensor:
    """Pictures after so many steps of Richardson-Lucy each, (B,)."""
    method = RichardsonLucy()
    state = method.init(problem, image)
    for done in range(1, int(steps.max()) + 1):
        state = method.step(problem, state)
        image = torch.where((steps == done).to(image.device).view(-1, 1, 1, 1), state.x, image)
    return image


def on_dark_ground(observed: Tensor) -> Tensor:
    """Whether most of each picture is dark, (B,); on the CPU."""
    light = smoothed(observed).flatten(1)
    return (light.median(1).values < DARK * light.amax(1)).cpu()


def brightest(observed: Tensor, gain: float) -> Tensor:
    """The photons at the brightest place of each picture, (B,)."""
    return (smoothed(observed).flatten(1).amax(1).double() / gain).clamp_min(0).cpu()


def steps_for(observed: Tensor, gain: float) -> Tensor:
    """The number of steps, (B,): the root of the photons at the brightest place, its ratio of signal to noise."""
    steps = brightest(observed, gain).sqrt().round().clamp(1, MOST_STEPS)
    spots = [sharpest_sources(picture, REACH, None, FAINT, FEW) is not None for picture in observed]
    return torch.where(torch.tensor(spots), steps.clamp_min(FOR_SPOTS), steps)


def few_photons(prepared: Prepared, options: Options, scale: float) -> bool:
    """Whether most pixels have so few photons that more noise was assumed than they have: that of one photon."""
    if options.gain is None or prepared.model.source != "counts":
        return False
    return bool((prepared.model.white <= (1 + 1e-6) * options.gain / scale).any())


def _problem_of_counts(problem: Problem, gain: float, background: float) -> Problem:
    """The problem with the background in the model, where all pixels count; else with the background taken off."""
    if not background or not bool((problem.precision_for("counts") > 0).all()):
        return problem
    return Problem((problem.observed + background).clamp_min(0), problem.operator, Poisson(gain, background))
