"""Sources: the sum of points, spots and sky, its bound, and what it makes of stars and galaxies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.solvers.source_atoms import SourceAtoms

SHAPE = (1, 1, 40, 44)


def gaussian(offset: tuple[float, float], sigma: float = 1.6, side: int = 13) -> np.ndarray:
    """A PSF integrated over pixels, its centre at `offset` from that of the middle pixel."""
    fine = (np.arange(side * 7) - (side * 7 - 1) / 2) / 7
    rows, columns = (np.exp(-0.5 * ((fine - o) / sigma) ** 2).reshape(side, 7).mean(1) for o in offset)
    kernel = rows[:, None] * columns
    return kernel / kernel.sum()


def signed_blur(size: tuple[int, int] = SHAPE[2:], boundary: str = "zero") -> pl.SpatiallyVaryingBlur:
    """A PSF that changes, with negative values in its wings, as PSFEx makes them."""
    kernels = np.stack([gaussian((0, 0)) - 0.002, 0.3 * (gaussian((0, 0), 1.8) - gaussian((0, 0)))])
    weights = np.stack([np.ones(size), np.broadcast_to(np.linspace(-1, 1, size[1]), size)])
    return pl.SpatiallyVaryingBlur(kernels, weights, boundary=boundary, order="weight-then-convolve")


def atoms(shape: tuple[int, int, int, int] = SHAPE) -> SourceAtoms:
    return SourceAtoms(shape, torch.zeros(1, dtype=torch.float64))


def test_the_adjoint_of_the_sum_of_sources() -> None:
    model = atoms()
    light = torch.randn(1, sum(model.counts), dtype=torch.float64)
    for bound in (False, True):
        x = torch.randn(SHAPE, dtype=torch.float64)
        forward, back = (model.seen(light, bound) * x).sum(), (light * model.seen_adjoint(x, bound)).sum()
        assert float(forward) == pytest.approx(float(back), rel=1e-12)


def test_parts_and_join_are_inverse() -> None:
    model = atoms()
    light = torch.randn(1, sum(model.counts), dtype=torch.float64)
    assert torch.equal(model.join(model.parts(light)), light)


def test_a_source_keeps_its_light_and_its_centre() -> None:
    model = atoms()
    rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(44.0), indexing="ij")
    for size in range(3):
        parts = model.parts(torch.zeros(1, sum(model.counts), dtype=torch.float64))
        step = 2 if size == 0 else 1
        parts[size][0, 0, 19 * step + (size == 0), 21 * step] = 5
        for x in (model.shown(model.join(parts))[0, 0], model.seen(model.join(parts))[0, 0]):
            assert float(x.sum()) == pytest.approx(5, rel=1e-12)
            assert float((x * rows).sum() / 5) == pytest.approx(19.5 if size == 0 else 19, rel=1e-12)
            assert float((x * columns).sum() / 5) == pytest.approx(21, rel=1e-12)
        assert float(model.shown(model.join(parts)).min()) >= 0


def test_equal_nodes_are_a_flat_sky() -> None:
    parts = atoms().parts(torch.zeros(1, sum(atoms().counts), dtype=torch.float64))
    sky = atoms().sky(atoms().join([*parts[:-1], parts[-1] + 3]))
    assert torch.allclose(sky, torch.full_like(sky, 3), rtol=1e-12)


def test_the_metric_bounds_the_curvature_for_a_psf_with_negative_values() -> None:
    """`D - A^T H^T p H A` is positive semidefinite; so the steps are short enough for any precision."""
    shape = (1, 1, 14, 15)
    operator = signed_blur(shape[2:])
    precision = torch.rand(14, 15, dtype=torch.float64) ** 4 * (torch.rand(14, 15) > 0.2)
    problem = pl.Problem(torch.rand(shape, dtype=torch.float64), operator, pl.WeightedGaussian(precision))
    model, method = atoms(shape), pl.Sources()
    state = method.init(problem)
    for light in (state.light, torch.rand_like(state.light) ** 6 * 30):
        metric = method._weights(problem, model, light)[1][0]
        columns = [operator.forward(model.seen(row[None])).flatten() for row in torch.eye(len(metric)).double()]
        A = torch.stack(columns, 1)
        scaled = (A.T * precision.flatten()) @ A / (metric.sqrt()[:, None] * metric.sqrt())
        assert float(torch.linalg.eigvalsh(scaled).max()) <= 1


def star_problem(positions: list[tuple[float, float, float]], sky: float = 100.0) -> tuple[pl.Problem, Tensor]:
    """Stars (row, column, flux) on a sky of counts, without noise but with the variance of counts."""
    frame = np.full((64, 64), sky)
    for row, column, flux in positions:
        r, c = round(row), round(column)
        frame[r - 6 : r + 7, c - 6 : c + 7] += flux * gaussian((row - r, column - c))
    y = torch.from_numpy(frame)[None, None]
    blur = pl.SpatiallyVaryingBlur(gaussian((0, 0))[None], torch.ones(1, 64, 64), boundary="replicate")
    return pl.Problem(y, blur, pl.WeightedGaussian(1 / y)), y


def measured(x: Tensor, row: float, column: float) -> tuple[float, float, float, float]:
    """Flux within 4 pixels, its centre, and the largest structure from 2.5 to 8 pixels relative to the peak."""
    image = x[0, 0].numpy()
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    distance = np.hypot(rows - row, columns - column)
    image = image - np.median(image[(distance > 8) & (distance < 12)])
    near, ring = distance < 4, (distance > 2.5) & (distance < 8)
    total = image[near].sum()
    centre = [(image * axis)[near].sum() / total for axis in (rows, columns)]
    return total, *centre, abs(image[ring]).max() / image.max()


def test_stars_between_pixels_keep_flux_and_position_and_have_no_rings() -> None:
    stars = [(20.3, 21.6, 3e4), (43.5, 40.5, 2e3), (19.0, 45.25, 3e5)]
    problem, _ = star_problem(stars)
    x = pl.solve(problem, pl.Sources()).image
    for row, column, flux in stars:
        total, r, c, ring = measured(x, row, column)
        assert total == pytest.approx(flux, rel=0.01)
        assert np.hypot(r - row, c - column) < 0.05
        assert ring < 0.01
    assert float((x - 100).min()) > -2  # no hole around a star; the noise is 10


def test_the_result_follows_scale_and_offset() -> None:
    problem, y = star_problem([(20.3, 21.6, 3e4), (43.5, 40.5, 2e3)], sky=100.0)
    x = pl.solve(problem, pl.Sources(iterations=60)).image
    scaled = pl.Problem(1e-6 * (y - 300), problem.operator, pl.WeightedGaussian(1e12 / y))
    there = pl.solve(scaled, pl.Sources(iterations=60)).image
    assert torch.allclose(1e6 * there + 300, x, rtol=1e-6, atol=1e-3)


def test_noise_alone_has_no_sources() -> None:
    problem, _ = star_problem([])
    y = problem.observed + 10 * torch.randn(problem.shape, dtype=torch.float64)
    x = pl.solve(pl.Problem(y, problem.operator, pl.Gaussian(10.0)), pl.Sources()).image
    assert float((x - 100).abs().max()) < 60  # a source that just stands out has 200
    assert float(x.std()) < 2


def test_pixels_that_do_not_count_do_not_count() -> None:
    stars = [(20.3, 21.6, 3e4), (43.5, 40.5, 2e4)]
    problem, y = star_problem(stars)
    precision = problem.data_term.precision.clone()
    precision[..., 19:22, 21:23] = 0
    values = y.clone()
    values[..., 19:22, 21:23] = 5000
    one = pl.solve(pl.Problem(values, problem.operator, pl.WeightedGaussian(precision)), pl.Sources()).image
    other = pl.solve(
        pl.Problem(values - 4000, problem.operator, pl.WeightedGaussian(precision)), pl.Sources(iterations=20)
    )
    assert measured(one, *stars[0][:2])[0] == pytest.approx(3e4, rel=0.03)
    assert other.certificate.level is pl.Level.CONVEX


def test_the_end_of_a_long_run_satisfies_the_conditions_of_a_minimum() -> None:
    """Slope 0 where there is light, not below 0 where there is none: the limit is a minimiser of E."""
    y = torch.full((1, 1, 24, 24), 100.0, dtype=torch.float64)
    y[..., 5:18, 6:19] += 3e4 * torch.from_numpy(gaussian((0.3, -0.4)))
    y = y + 10 * torch.randn_like(y)
    blur = pl.SpatiallyVaryingBlur(gaussian((0, 0))[None], torch.ones(1, 24, 24), boundary="replicate")
    problem = pl.Problem(y, blur, pl.Gaussian(10.0))
    result = pl.solve(problem, pl.Sources(), 1500)
    state, model = result.state, atoms(problem.shape)
    pull = problem.operator.adjoint(problem.data_term.gradient(state.Hx, y))
    slope = (model.seen_adjoint(pull) + state.penalty) / state.penalty.max()
    lit = state.light > 1e-3 * state.light.max()
    assert float(slope[lit].abs().max()) < 0.02
    assert float(slope.min()) > -0.02
    assert float(result.history.objective[-1]) < float(result.history.objective[200])


def test_operators_of_which_nothing_is_known_are_refused() -> None:
    class Halve:
        def A(self, x: Tensor) -> Tensor:
            return x / 2

        A_adjoint = A

    problem = pl.Problem(torch.rand(1, 1, 16, 16), Halve(), pl.Gaussian(0.1))
    with pytest.raises(pl.InputError, match="bounded"):
        pl.solve(problem, pl.Sources())


@pytest.mark.parametrize("wrong", [{"threshold": 0.0}, {"threshold": float("nan")}, {"iterations": 3}])
def test_numbers_that_cannot_be_used_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(pl.InputError, match=next(iter(wrong))):
        pl.Sources(**wrong)  # type: ignore[arg-type]


def test_richardson_lucy_takes_psfs_with_a_few_negative_values() -> None:
    problem, _ = star_problem([(32.0, 32.0, 3e4)])
    kernel = gaussian((0, 0)) - 2e-4
    blur = pl.SpatiallyVaryingBlur((kernel / kernel.sum())[None], torch.ones(1, 64, 64), boundary="replicate")
    x = pl.solve(pl.Problem(problem.observed, blur, problem.data_term), pl.RichardsonLucy(), 30).image
    assert float(x.min()) >= 0
    assert float(x.max()) > 2 * float(problem.observed.max())
    assert measured(x, 32, 32)[0] == pytest.approx(3e4, rel=0.06)
    wild = pl.SpatiallyVaryingBlur((kernel - 0.002)[None], torch.ones(1, 64, 64), boundary="replicate")
    with pytest.raises(pl.InputError, match="negative entries"):
        pl.solve(pl.Problem(problem.observed, wild, problem.data_term), pl.RichardsonLucy(), 3)
