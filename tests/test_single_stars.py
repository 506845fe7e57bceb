"""Stars that stand alone become single points, small sources share a width, and errors of a PSF go far."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pnpladmm as pl
from pnpladmm.blur import as_blur
from pnpladmm.restoration.counts import steps_for
from pnpladmm.restoration.fitted_noise import blurred_errors
from pnpladmm.restoration.single_stars import common_width, with_single_stars
from pnpladmm.solvers import Result
from pnpladmm.workshop.bench.glow_scenes import Glow, bead_psf, glow
from pnpladmm.workshop.bench.star_scenes import make_scene
from pnpladmm.workshop.bench.stars import best_fit

pytestmark = pytest.mark.usefixtures("one_thread")
STARS = np.array([[22.3, 21.6, 4e3], [43.45, 23.25, 3e3], [22.8, 43.7, 2.5e3], [44.2, 43.4, 2e5]])


def short(problem: pl.Problem) -> Result:
    """A short run of the method, which leaves each star as several points."""
    method = pl.Sources(iterations=200)
    return pl.solve(problem, method, method.iterations, record=False)


def test_stars_get_the_flux_and_the_place_of_a_fit() -> None:
    scene = make_scene("test", 64, STARS, np.zeros((0, 5)), 5)
    y, variance = (torch.from_numpy(value)[None, None] for value in (scene.frame, scene.variance))
    problem = pl.Problem(y, scene.blur().operator("unknown"), pl.WeightedGaussian(1 / variance))
    result = with_single_stars(problem, short(problem))
    image = problem.crop_to_observed(result.image)[0, 0].numpy()
    image = image - np.median(image)
    rows, columns = np.mgrid[:64, :64]
    for star in STARS:
        flux, x, y_, noise = best_fit(scene, star)
        near = np.hypot(rows - star[1], columns - star[0]) < 2.5
        light = image[near]
        assert light.sum() == pytest.approx(flux, abs=0.6 * noise)
        assert (light * columns[near]).sum() / light.sum() == pytest.approx(x, abs=0.02)
        assert (light * rows[near]).sum() / light.sum() == pytest.approx(y_, abs=0.02)


def test_a_galaxy_and_a_pair_of_stars_stay_as_they_were() -> None:
    pair = np.array([[24.0, 24.0, 3e4], [26.6, 24.0, 2e4]])
    scene = make_scene("test", 64, pair, np.array([[44.0, 44.0, 1e5, 3.0, 3.0]]), 5)
    y, variance = (torch.from_numpy(value)[None, None] for value in (scene.frame, scene.variance))
    problem = pl.Problem(y, scene.blur().operator("unknown"), pl.WeightedGaussian(1 / variance))
    before = short(problem)
    after = with_single_stars(problem, before)
    change = (after.image - before.image).abs()[0, 0]
    top, left = problem.operator.crop_offset or (0, 0)
    for row, column in ((24, 25), (44, 44)):
        assert float(change[top + row - 3 : top + row + 4, left + column - 3 : left + column + 4].max()) == 0


def counted(plane: Glow) -> pl.Problem:
    y = torch.from_numpy(plane.counts)[None, None]
    operator = as_blur(bead_psf(), y.shape[-2:]).operator("unknown")
    return pl.Problem(y, operator, pl.WeightedGaussian(1 / y.clamp_min(1)))


def test_the_width_that_spots_have_in_common_is_found() -> None:
    spots = counted(glow("spots", np.random.default_rng(4), 2000.0, 72))  # sigma 0.7
    width = common_width(spots, short(spots))
    assert width is not None
    assert float(width) == pytest.approx(0.49, abs=0.1)


def test_points_have_no_width() -> None:
    points = counted(glow("points", np.random.default_rng(4), 2000.0, 72))
    assert common_width(points, short(points)) is None


def test_the_width_of_points_is_that_of_the_picture() -> None:
    y = torch.zeros(1, 1, 33, 33, dtype=torch.float64)
    problem = pl.Problem(y, pl.Mask(torch.ones(33, 33)), pl.Gaussian(1.0))
    atoms = pl.Sources(width=0.8).atoms(problem)
    light = torch.zeros(1, sum(atoms.counts), dtype=torch.float64)
    atoms.parts(light)[0][0, 0, 32, 33] = 5.0  # half a pixel to the right of the middle
    rows, columns = torch.meshgrid(torch.arange(33.0), torch.arange(33.0), indexing="ij")
    for x in (atoms.seen(light), atoms.shown(light)):
        mean = (x * columns).sum() / x.sum()
        assert float(x.sum()) == pytest.approx(5.0, rel=1e-6)
        assert float(mean) == pytest.approx(16.5, abs=1e-6)
        assert float((x * (columns - mean).square()).sum() / x.sum()) == pytest.approx(0.8, abs=0.06)
        assert float((x * (rows - 16).square()).sum() / x.sum()) == pytest.approx(0.8, abs=0.06)


def test_errors_of_a_psf_go_as_far_as_the_psf() -> None:
    """Beyond the nearest pixels the wings of a star still have its own peak, not their own brightness, as the scale."""
    wide = torch.from_numpy(bead_psf(15))[None]
    operator = pl.SpatiallyVaryingBlur(wide, torch.ones(1, 64, 64, dtype=torch.float64), boundary="zero")
    x = torch.full((1, 1, 64, 64), 10.0, dtype=torch.float64)
    x[0, 0, 32, 32] = 1e5
    problem = pl.Problem(operator.forward(x), operator, pl.Gaussian(1.0))
    m = problem.observed[0, 0] - 10
    found = blurred_errors(x, torch.full((1, 1, 1, 1), 10.0), problem)[0, 0]
    for away in (0, 4, 9, 13):
        assert float(found[32, 32 + away]) == pytest.approx(float(m[32, 32 + away] * m.max()), rel=0.01)


def test_single_spots_get_more_steps_on_the_counts() -> None:
    rng = np.random.default_rng(8)
    spots, threads = (glow(kind, rng, 5.0, 128).counts for kind in ("spots", "filaments"))
    steps = [float(steps_for(torch.from_numpy(counts)[None, None], 1.0)) for counts in (spots, threads)]
    assert steps == [10.0, 2.0]


def test_wide_spots_of_few_photons_are_restored_as_well_as_by_richardson_lucy() -> None:
    """Or worse by 1 dB at most than at its best number of steps, which only the truth tells."""
    plane = glow("spots", np.random.default_rng(13), 100.0, 96)
    counts = torch.from_numpy(plane.counts.astype(np.float32))[None, None]
    found = pl.restore(counts, bead_psf(), gain=1.0)
    assert any("from an even picture" in note for note in found.notes)
    rival = min(error_of(by_rival(counts, steps), plane) for steps in (20, 40, 80, 160))
    assert error_of(found.image * found.picture.scale, plane) < 10**0.1 * rival


def by_rival(counts: torch.Tensor, steps: int) -> torch.Tensor:
    problem = pl.Problem(counts, as_blur(bead_psf(), counts.shape[-2:]).operator("unknown"), pl.Gaussian(1.0))
    start = torch.full(problem.shape, float(counts.mean()))
    return problem.crop_to_observed(pl.solve(problem, pl.RichardsonLucy(), steps, start=start, record=False).image)


def error_of(image: torch.Tensor, plane: Glow) -> float:
    inner = np.s_[8:-8, 8:-8]
    return float(((image[0, 0].numpy() - plane.sharp)[inner] ** 2).mean())
