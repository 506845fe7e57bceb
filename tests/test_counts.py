"""Pictures of few photons: light stays positive, none is lost, and a picture does not depend on its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import skimage
import torch

import pnpladmm as pl
from pnpladmm.restoration.counts import MOST_STEPS, steps_for
from pnpladmm.workshop.bench.glow_scenes import bead_psf, glow
from pnpladmm.workshop.bench.microscopy import _by_rival, _scores

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = "steps of Richardson-Lucy on the counts"


def recorded(photons: float, seed: int = 4) -> torch.Tensor:
    """A picture of cells on a dark ground, 64x64."""
    counts = glow("cells", np.random.default_rng(seed), photons, 64).counts
    return torch.from_numpy(counts.astype(np.float32))[None, None]


def light_of(counts: torch.Tensor, **settings: Any) -> torch.Tensor:
    """The restored picture in photons."""
    found = pl.restore(counts, bead_psf(), gain=1.0, **settings)
    return found.image * found.picture.scale


def test_light_is_positive_and_none_is_lost() -> None:
    found = pl.restore(recorded(500), bead_psf(), gain=1.0)
    light = found.image[0, 0] * found.picture.scale
    assert any(STEPS in note for note in found.notes)
    assert float(light.min()) >= 0
    assert float(light.mean()) == pytest.approx(float(recorded(500).mean()), rel=0.05)


def test_a_background_is_kept_out() -> None:
    difference = (light_of(recorded(500) + 40, background=40.0) - light_of(recorded(500)))[..., 8:-8, 8:-8]
    assert float(difference.mean().abs()) < 3.0


def test_better_than_richardson_lucy_at_its_best() -> None:
    plane = glow("cells", np.random.default_rng(2), 50, 96)
    counts = torch.from_numpy(plane.counts.astype(np.float32))[None, None]
    found = pl.restore(counts, bead_psf(), gain=1.0)
    ours = _scores([plane], found.image[0] * found.picture.scale)["psnr"]
    rivals = [_scores([plane], _by_rival(counts, n))["psnr"] for n in (5, 10, 20, 40, 80)]
    assert ours > max(rivals)


def test_a_photograph_is_not_fitted_to_its_noise() -> None:
    sharp = torch.from_numpy(skimage.data.astronaut()[60:156, 180:276].astype(np.float32)).permute(2, 0, 1)[None] / 255
    kernel = np.full((5, 5), 1 / 25)
    blurred = pl.as_blur(kernel, (96, 96)).operator("circular").forward(sharp)
    counts = torch.poisson(100 * blurred, generator=torch.Generator().manual_seed(0))
    found = pl.restore(counts, kernel, gain=1.0, boundary="circular")
    assert not any(STEPS in note for note in found.notes)
    before, after = ((x / 100 - sharp).square().mean() for x in (counts, found.image * found.picture.scale))
    assert float(after) < 0.6 * float(before)


def test_the_number_of_steps_follows_the_photons_of_each_picture() -> None:
    y = torch.cat([torch.full((1, 1, 16, 16), level) for level in (0.0, 9.0, 100.0, 1e6)])
    assert steps_for(y, 1.0).tolist() == [1, 3, 10, MOST_STEPS]
    assert steps_for(y / 65535, 1 / 65535).tolist() == [1, 3, 10, MOST_STEPS]


def test_a_picture_does_not_depend_on_its_neighbours() -> None:
    both = torch.cat([recorded(500, 3), recorded(500, 4)])
    together = light_of(both)
    alone = torch.cat([light_of(one[None]) for one in both])
    assert float((together - alone).abs().max()) < 1e-4 * float(alone.max())


def test_dead_pixels_do_not_count() -> None:
    counts, bad = recorded(500), torch.zeros(64, 64, dtype=torch.bool)
    bad[30:33, 20:23] = True
    dark, bright = (light_of(torch.where(bad, value, counts), mask=bad.numpy()) for value in (0.0, 3000.0))
    assert float((dark - bright).abs().max()) < 1e-3 * float(bright.max())


def test_without_photons_nothing_is_added() -> None:
    found = pl.restore(recorded(500), bead_psf())
    assert not any(STEPS in note for note in found.notes)
    chosen = pl.restore(recorded(500), bead_psf(), gain=1.0, method="richardson-lucy")
    assert not any(STEPS in note for note in chosen.notes)


def test_few_photons_are_no_false_alarm() -> None:
    found = pl.restore(recorded(5), bead_psf(), gain=1.0)
    assert not any("weaker than given" in warning for warning in found.warnings)
