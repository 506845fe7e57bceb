"""Saturated stars: flux and place from the wings alone; what is no star is left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pnpladmm as pl
from pnpladmm.restoration.hidden_stars import hidden_stars
from pnpladmm.workshop.bench.star_scenes import SKY, WHITE, Scene, make_scene

pytestmark = pytest.mark.usefixtures("one_thread")
NOTE = "fitted as points to the wings"
STARS = np.array([[31.3, 30.8, 2.5e6], [62.6, 61.2, 3.4e6], [30.0, 66.5, 4e4]])


def frame(galaxies: np.ndarray | None = None) -> Scene:
    """96x96, two saturated stars and a faint one."""
    return make_scene("test", 96, STARS, np.zeros((0, 5)) if galaxies is None else galaxies, 7)


def problem_of(scene: Scene) -> pl.Problem:
    """Saturated pixels have the precision 0."""
    y = torch.from_numpy(scene.frame)[None, None]
    precision = torch.from_numpy(1 / scene.variance)[None, None] * (y < WHITE)
    return pl.Problem(y, scene.blur().operator("unknown"), pl.WeightedGaussian(precision))


def smeared(scene: Scene, problem: pl.Problem) -> torch.Tensor:
    """What a first run may show: the light of the stars, spread out and too little of it."""
    from scipy.ndimage import gaussian_filter

    top, left = problem.operator.crop_offset or (0, 0)
    image = torch.full(problem.shape, SKY, dtype=torch.float64)
    light = SKY + 0.8 * gaussian_filter(scene.sharp, 1.5)
    image[0, 0, top : top + 96, left : left + 96] = torch.from_numpy(light)
    return image


def test_the_light_of_hidden_stars_is_found() -> None:
    scene = frame()
    problem = problem_of(scene)
    found = hidden_stars(problem, smeared(scene, problem))
    assert found is not None
    assert found.count == 2
    shown = problem.crop_to_observed(found.shown)[0, 0].numpy()
    for x, y, flux in STARS[:2]:
        rows, columns = np.mgrid[:96, :96]
        near = np.hypot(rows - y, columns - x) < 3
        assert shown[near].sum() == pytest.approx(flux, rel=0.005)
        assert (shown * rows)[near].sum() / shown[near].sum() == pytest.approx(y, abs=0.03)
        assert (shown * columns)[near].sum() / shown[near].sum() == pytest.approx(x, abs=0.03)
    left = problem.observed - found.seen
    outside = (problem.observed < WHITE) & (problem.observed > 40 * SKY)
    assert float(left[outside].std()) < 0.05 * float(problem.observed[outside].std())


def test_a_saturated_galaxy_is_no_star() -> None:
    scene = make_scene("galaxy", 96, STARS[2:], np.array([[50.0, 45.0, 3e7, 4.0, 3.0]]), 3)
    problem = problem_of(scene)
    assert int((problem.observed >= WHITE).sum()) > 20
    assert hidden_stars(problem, smeared(scene, problem)) is None


def test_dead_columns_and_single_pixels_hide_nothing() -> None:
    scene = make_scene("faint", 96, STARS[2:], np.zeros((0, 5)), 3)
    problem = problem_of(scene)
    precision = problem.precision_for("a test").clone()
    precision[..., 30:32] = 0
    precision[..., 10:14, 10:14] = 0  # dark: no star behind it
    problem = pl.Problem(problem.observed, problem.operator, pl.WeightedGaussian(precision))
    assert hidden_stars(problem, smeared(scene, problem)) is None


def test_a_frame_is_restored_with_its_saturated_stars() -> None:
    scene = frame()
    found = pl.restore(scene.frame.astype(np.uint16), scene.blur(), method="sources")
    image = found.image[0, 0].double().numpy() * found.picture.scale
    assert any(NOTE in note for note in found.notes)
    rows, columns = np.mgrid[:96, :96]
    for x, y, flux in STARS:
        distance = np.hypot(rows - y, columns - x)
        light = image - np.median(image[(distance > 7) & (distance < 11)])
        assert light[distance < 5].sum() == pytest.approx(flux, rel=0.01)
    # What is returned as the problem is that of the whole frame.
    whole = torch.from_numpy(scene.frame / WHITE).float()
    counts = whole < 1
    torch.testing.assert_close(found.problem.observed[0, 0][counts], whole[counts], atol=1e-4, rtol=1e-4)
