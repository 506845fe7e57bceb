"""The noise of bright pixels, fitted to a first restoration, and frames of stars restored with it by default."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.restoration.fitted_noise import Counts, fitted, gentle, nearby
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.restoration.policy import Prepared
from pnpladmm.solvers.state import State
from pnpladmm.workshop.bench.star_scenes import LEFT, SKY, make_scene, point
from pnpladmm.workshop.bench.stars import best_fit

STARS = np.array([[30.3, 31.6, 2e4], [64.5, 33.25, 5e3], [33.0, 66.75, 2e5], [68.2, 67.4, 8e4]])


def frame_of(light: Tensor, b: float, c: float, seed: int = 0) -> Tensor:
    """A frame of known light with the variance `1 + b m + c^2 m m0`."""
    noise = torch.randn(light.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 10 + light + (1 + b * light + c**2 * light * nearby(light)).sqrt() * noise


def light_of(size: int = 160) -> Tensor:
    """Stars of all brightnesses, as a blur shows them."""
    rng = np.random.default_rng(0)
    sharp = torch.zeros(1, 1, size, size, dtype=torch.float64)
    rows, columns = rng.integers(8, size - 8, (2, 120))
    sharp[0, 0, rows, columns] += torch.from_numpy(10 ** rng.uniform(2, 4.5, 120))
    kernel = torch.from_numpy(point(LEFT, 0, 0, 8))
    return torch.nn.functional.conv2d(sharp, kernel[None, None], padding=8)


def fit(y: Tensor, light: Tensor, stated: bool = False, counts: Counts | None = None) -> tuple[Prepared, float, float]:
    problem = pl.Problem(y, pl.Mask(torch.ones(y.shape[-2:])), pl.Gaussian(1.0))
    level = torch.ones(1, dtype=torch.float64)
    prepared = Prepared(problem, level, NoiseModel("estimated", level), ())
    first = pl.solve(problem, pl.Sources(iterations=20), 1, record=False)
    known = State(x=first.state.x, Hx=10 + light)
    found, (noise,) = fitted(prepared, replace(first, state=known, image=10 + light), stated, counts)
    return found, noise.per_light, noise.error


def test_the_gain_is_found_in_the_residual() -> None:
    light = light_of()
    _, b, c = fit(frame_of(light, 0.7, 0.0), light)
    assert b == pytest.approx(0.7, rel=0.15)
    assert c < 0.01


def test_the_error_of_the_psf_is_found_in_the_residual() -> None:
    light = light_of()
    prepared, b, c = fit(frame_of(light, 0.0, 0.1), light)
    assert c == pytest.approx(0.1, rel=0.15)
    above = (light - light.median()).clamp_min(0)
    expected = 1 / (1 + b * above + c**2 * above * nearby(above))
    assert torch.allclose(prepared.problem.precision_for("test"), expected, rtol=1e-3)


def test_a_stated_gain_is_kept_and_the_read_noise_of_the_sky_is_found() -> None:
    light = light_of()
    noise = torch.randn(light.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = 10 + light + (0.5 * (10 + light) + 9).sqrt() * noise
    prepared, b, c = fit(y, light, True, Counts(0.5, 0.0))
    assert (b, c < 0.01) == (0.0, True)
    variance = 1 / prepared.problem.precision_for("test")
    assert float(variance.median()) == pytest.approx(14, rel=0.05)
    assert float(variance.max()) == pytest.approx(0.5 * float(light.max()) + 14, rel=0.08)  # c = 0.003


def test_a_frame_without_light_is_left_as_it_is() -> None:
    light = torch.zeros(1, 1, 64, 64, dtype=torch.float64)
    y = frame_of(light, 0.0, 0.0)
    prepared, b, c = fit(y, light)
    assert (b, c) == (0.0, 0.0)
    assert torch.equal(prepared.problem.precision_for("test"), torch.ones_like(y))
    assert float(gentle(prepared).problem.precision_for("test").min()) > 0.9


def test_flux_and_places_of_stars_by_default_are_those_that_the_frame_shows() -> None:
    """Nothing is said of the noise. Differences from the best possible measurement on the same noise."""
    scene = make_scene("test", 100, STARS, np.zeros((0, 5)), 1)
    found = pl.restore(scene.frame.astype(np.float32), scene.blur(), method="sources")
    image = np.asarray(found, dtype=float)
    rows, columns = np.mgrid[:100, :100]
    for star in STARS:
        flux, x, y, _ = best_fit(scene, star)
        distance = np.hypot(rows - star[1], columns - star[0])
        light = image - np.median(image[(distance > 7) & (distance < 11)])
        near = distance < 4
        total = light[near].sum()
        assert total == pytest.approx(flux, rel=0.012)
        assert (light * columns)[near].sum() / total == pytest.approx(x, abs=0.03)
        assert (light * rows)[near].sum() / total == pytest.approx(y, abs=0.03)
        assert np.abs(light[(distance > 2.5) & (distance < 8)]).max() < 0.01 * light.max()
    assert any("noise of bright pixels" in note for note in found.notes)
    assert not found.warnings
    assert np.median(image) == pytest.approx(SKY, abs=1)
