"""Work left out must not be missed: kernels that a picture has not got, steps that a weak colour does not need."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.denoisers import Tikhonov
from pnpladmm.methods import MOST_STEPS, method_from
from pnpladmm.operators import convolution
from pnpladmm.operators.convolution import BankData, DenseBank
from pnpladmm.operators.preconditioner import LocalWiener, Patch, Regions
from pnpladmm.operators.roster import Roster
from pnpladmm.solvers import annealed
from pnpladmm.solvers.colour import FEWEST, ColourPlanes
from pnpladmm.solvers.conjugate_gradient import DataStep, descend

DOUBLE = torch.float64


def uneven_weights(counts: tuple[int, ...], size: tuple[int, int], most: int = 4) -> Tensor:
    """(b, P, 1, H, W): so many kernels for each picture, and not the first ones."""
    weights = torch.zeros(len(counts), most, 1, *size, dtype=DOUBLE)
    for b, count in enumerate(counts):
        weights[b, most - count :] = torch.rand(count, 1, *size, dtype=DOUBLE) + 0.1
    return weights


@pytest.mark.parametrize("counts", [(1, 3, 2, 4), (4, 3, 3, 1), (2, 2), (1,)])
@pytest.mark.parametrize("weights_on", ["observed", "extended"])
def test_a_batch_of_uneven_blurs_is_its_pictures_and_costs_no_more(
    counts: tuple[int, ...], weights_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed, k = (12, 9), 5
    size = observed if weights_on == "observed" else (16, 13)
    weights = uneven_weights(counts, size)
    kernels = torch.rand(len(counts), 4, 2, k, k, dtype=DOUBLE)
    x, y = (torch.randn(len(counts), 2, *n, dtype=DOUBLE) for n in ((16, 13), observed))
    bank = DenseBank(BankData(kernels, weights, weights_on), observed)  # type: ignore[arg-type]
    transformed: list[int] = []
    for name in ("rfft2", "irfft2"):
        plain = getattr(convolution, name)

        def counted(v: Tensor, *rest: object, plain: object = plain, **named: object) -> Tensor:
            transformed.append(v.shape[:-2].numel())
            return plain(v, *rest, **named)  # type: ignore[operator]

        monkeypatch.setattr(convolution, name, counted)
    together = bank.forward(x), bank.adjoint(y)
    assert sum(transformed) == 2 * 2 * (len(counts) + sum(counts))  # both maps, two channels
    for b in range(len(counts)):
        own = BankData(kernels[b : b + 1], weights[b : b + 1], weights_on)  # type: ignore[arg-type]
        alone = DenseBank(own, observed)
        torch.testing.assert_close(together[0][b : b + 1], alone.forward(x[b : b + 1]), rtol=0, atol=1e-12)
        torch.testing.assert_close(together[1][b : b + 1], alone.adjoint(y[b : b + 1]), rtol=0, atol=1e-12)


def test_a_shared_blur_serves_every_picture_with_the_kernels_that_do_something() -> None:
    weights, kernels = uneven_weights((2,), (10, 11)), torch.rand(1, 4, 1, 3, 3, dtype=DOUBLE)
    bank = DenseBank(BankData(kernels, weights, "observed"), (10, 11))
    assert bank.spectra.shape[1] == 2
    x = torch.randn(3, 2, 12, 13, dtype=DOUBLE)
    some = DenseBank(BankData(kernels[:, 2:], weights[:, 2:], "observed"), (10, 11))
    torch.testing.assert_close(bank.forward(x), some.forward(x), rtol=0, atol=1e-14)


def test_where_all_have_all_nothing_is_moved() -> None:
    weights = torch.rand(2, 3, 1, 5, 5) + 0.1
    roster = Roster.of(weights)
    assert roster.arrange(weights) is weights
    assert roster.line_up(weights) is weights
    assert roster.send_back(weights) is weights


def test_regions_that_are_filtered_together_are_those_filtered_alone() -> None:
    """As on a GPU: all regions of all pictures in whole pictures, each picture with another number of them."""
    counts, size = (1, 3, 2), (8, 10)
    root, power = uneven_weights(counts, size, most=3).sqrt(), torch.rand(3, 3, 1, 8, 6, dtype=DOUBLE)
    whole = (slice(0, 8), slice(0, 10))
    patch = Patch.of(slice(None), whole, root, power, size)
    wiener = patch.roster.arrange(torch.rand(3, 3, 1, 8, 6, dtype=DOUBLE).expand(3, 3, 1, 8, 6).clone())
    r = torch.randn(3, 2, *size, dtype=DOUBLE)
    found = patch.filtered(r, wiener)
    back = torch.empty(3, dtype=torch.long)
    back[torch.tensor([1, 2, 0])] = torch.arange(3)  # most regions first: pictures 1, 2, 0
    for b, count in enumerate(counts):
        expected = torch.zeros(2, *size, dtype=DOUBLE)
        for q in range(count):
            v = root[b, 3 - count + q]
            spectrum = torch.fft.rfft2(v * r[b]) * wiener[back[b], q]
            expected += v * torch.fft.irfft2(spectrum, size, norm="forward")
        torch.testing.assert_close(found[b], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("map_of_precision", [False, True])
def test_filters_of_uneven_pictures_have_their_own_numbers(map_of_precision: bool) -> None:
    """`a`, precision and floor of each picture go with it, wherever it stands in the line."""
    size = (8, 10)
    whole = (slice(0, 8), slice(0, 10))
    root, power = uneven_weights((1, 3, 2), size, most=3).sqrt(), torch.rand(3, 3, 1, 8, 6, dtype=DOUBLE)
    a = torch.tensor([0.5, 3.0, 20.0], dtype=DOUBLE).reshape(3, 1, 1, 1)
    floor = torch.tensor([0.0, 0.1, 0.4], dtype=DOUBLE).reshape(3, 1, 1, 1, 1)
    precision = 50 * torch.rand(3, 1, *(size if map_of_precision else (1, 1)), dtype=DOUBLE) + 1
    r = torch.randn(3, 2, *size, dtype=DOUBLE)

    def filtered(which: slice) -> Tensor:
        patch = Patch.of(slice(None), whole, root[which], power[which], size)
        regions = Regions((patch,), (0, 0, 0, 0), floor[which])
        return LocalWiener(regions, precision[which], a[which])(r[which])

    together = filtered(slice(None))
    for b in range(3):
        alone = slice(b, b + 1)
        torch.testing.assert_close(together[alone], filtered(alone), rtol=0, atol=1e-12)


def coloured(strengths: tuple[float, ...], seed: int = 0) -> Tensor:
    """(1, C, 20, 22): independent planes of random signs, of these strengths, turned: no pixel stands out."""
    generator = torch.Generator().manual_seed(seed)
    c = len(strengths)
    planes = torch.randint(2, (1, c, 20, 22), generator=generator).to(DOUBLE) * 2 - 1
    turn, _ = torch.linalg.qr(torch.randn(c, c, dtype=DOUBLE, generator=generator))
    return torch.einsum("ij,bjhw->bihw", turn, planes * torch.tensor(strengths, dtype=DOUBLE).view(1, -1, 1, 1))


def test_colour_planes_are_principal_axes() -> None:
    x = torch.cat([coloured((0.1, 1.0, 0.4)), coloured((1.0, 1.0, 1.0), 1)])
    planes = ColourPlanes.of(x)
    split = planes.split(x)
    torch.testing.assert_close(planes.join(split), x, rtol=0, atol=1e-13)
    flat = split.flatten(2)
    energy = flat @ flat.mT
    off = energy - torch.diag_embed(energy.diagonal(dim1=1, dim2=2))
    assert float(off.abs().max()) < 1e-10 * float(energy.max())
    torch.testing.assert_close(energy.diagonal(dim1=1, dim2=2) / energy[:, 0, :1], planes.energy, rtol=1e-10, atol=0)
    assert planes.energy[0].tolist() == pytest.approx([1, 0.16, 0.01], rel=0.25)
    steps = planes.steps(torch.tensor([20, 10]))
    assert steps[0].tolist() == pytest.approx([20, 4, FEWEST], abs=1)
    assert steps[1, 0] == 10
    assert int(steps[1].min()) >= 8  # independent channels of equal strength are spared next to nothing
    assert planes.steps(1).tolist() == [[1, 1, 1]] * 2
    grey = ColourPlanes.of(torch.rand(1, 1, 9, 9, dtype=DOUBLE).expand(1, 3, 9, 9))
    torch.testing.assert_close(grey.energy, torch.tensor([[1.0, 0, 0]], dtype=DOUBLE), rtol=0, atol=1e-12)
    black = ColourPlanes.of(torch.zeros(1, 3, 4, 4, dtype=DOUBLE))
    assert bool(torch.isfinite(black.axes).all())


def test_each_plane_is_a_system_of_its_own_with_its_own_number_of_steps() -> None:
    operator = positive_blur((16, 15))
    p, a = 80.0, torch.tensor([0.5, 3.0], dtype=DOUBLE).reshape(2, 1, 1, 1)
    r = torch.randn(2, 3, 16, 15, dtype=DOUBLE)
    goal = torch.zeros(2, dtype=DOUBLE)
    limits = torch.tensor([[7, 4, 2], [6, 3, 3]])
    applied: list[int] = []

    def run(r: Tensor, a: Tensor, iterations: int | Tensor) -> tuple[Tensor, Tensor]:
        def apply(q: Tensor) -> Tensor:
            applied.append(q.shape[1])
            return operator.adjoint(p * operator.forward(q)) + a * q

        precondition = operator.preconditioner(torch.tensor(p, dtype=DOUBLE), a)
        return descend(apply, torch.zeros_like(r), r, goal[: len(r)], iterations, precondition)

    together = run(r, a, limits)
    assert applied == [3, 3, 3, 2, 1, 1, 1]
    for b in range(2):
        for c in range(3):
            alone = run(r[b : b + 1, c : c + 1], a[b : b + 1], int(limits[b, c]))
            for got, expected in zip(together, alone, strict=True):
                torch.testing.assert_close(got[b : b + 1, c : c + 1], expected, rtol=1e-9, atol=1e-12)


def colour_problem(sigma: float = 0.02) -> pl.Problem:
    sharp = picture(24).expand(1, 3, 24, 24) * torch.tensor([1.0, 0.8, 0.5], dtype=DOUBLE).view(1, 3, 1, 1)
    operator = positive_blur((24, 24))
    noise = torch.randn(sharp.shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    return pl.Problem(operator.forward(sharp) + sigma * noise, operator, pl.Gaussian(sigma))


def test_data_steps_by_planes_solve_the_same_system() -> None:
    problem = colour_problem()
    H, p, y = problem.operator, problem.precision_for("test"), problem.observed
    assert problem.colour_planes is not None
    step = DataStep(H, p, y, 3000, 1e-14, ColourPlanes(problem.colour_planes.axes, torch.ones(1, 3)))
    a, v = torch.tensor(40.0, dtype=DOUBLE), torch.rand_like(y)
    z, g = step.solve(a, v, y)
    torch.testing.assert_close(H.adjoint(p * H.forward(z)) + a * z, H.adjoint(p * y) + a * v, rtol=1e-9, atol=1e-8)
    torch.testing.assert_close(g, step.gradient(z), rtol=0, atol=1e-9 * float(p))
    # However few steps: the gradient that is handed on is that of the picture.
    z, g = replace(step, iterations=3, planes=problem.colour_planes).solve(a, v, y)
    torch.testing.assert_close(g, step.gradient(z), rtol=0, atol=1e-11 * float(p))


def test_planes_are_for_blurs_and_noise_that_know_no_colours() -> None:
    problem = colour_problem()
    observed, blur = problem.observed, problem.operator
    assert isinstance(blur, pl.SpatiallyVaryingBlur)
    own = pl.SpatiallyVaryingBlur(torch.rand(2, 3, 5, 5), torch.rand(2, 24, 24))
    each = pl.WeightedGaussian(torch.rand(3, 24, 24) + 0.1)
    noise = pl.Gaussian(0.1)
    alike = pl.WeightedGaussian(torch.rand(24, 24) + 0.1)
    assert pl.Problem(observed, blur, alike).colour_planes is not None
    for other in (
        pl.Problem(observed, own, noise),
        pl.Problem(observed, blur, each),
        pl.Problem(observed, blur, pl.Poisson(100.0, 0.01)),
        pl.Problem(observed[:, :1], blur, noise),
        pl.Problem(observed, pl.Mask(torch.rand(24, 24) > 0.5), noise),
    ):
        assert other.colour_planes is None


def test_dead_pixels_and_hot_ones_have_no_say_in_the_colours() -> None:
    problem = colour_problem()
    precision = torch.full((24, 24), 100.0, dtype=DOUBLE)
    precision[3:6, 4] = 0
    energies = []
    for garbage in (0.0, 50.0):
        observed = problem.observed.clone()
        observed[:, 1, 3:6, 4] = garbage
        planes = pl.Problem(observed, problem.operator, pl.WeightedGaussian(precision)).colour_planes
        assert planes is not None
        energies.append(planes.energy)
    torch.testing.assert_close(energies[0], energies[1], rtol=1e-12, atol=0)
    detail = coloured((1.0, 0.5, 0.3))
    before = ColourPlanes.of(detail).energy
    detail[0, 2, 5, 6] = 1e4
    torch.testing.assert_close(ColourPlanes.of(detail).energy, before, rtol=0.05, atol=0)
    # Weak pixels stay weak: grey in one half, a tenth of it in red in the other.
    halves = torch.zeros(1, 3, 10, 10, dtype=DOUBLE)
    halves[..., :5] = 1
    halves[:, 0, :, 5:] = 0.1
    assert float(ColourPlanes.of(halves).energy[0, 1]) < 0.01


def test_a_picture_is_restored_the_same_among_others() -> None:
    """A grey picture beside one whose channels have nothing in common."""
    strong = coloured((1.0, 1.0, 1.0)).mul(0.2).add(0.5)[..., :20]
    grey = picture(20).expand(1, 3, 20, 20)
    sharp = torch.cat([grey, strong])
    blur = positive_blur((20, 20))
    observed = blur.forward(sharp) + 0.01 * torch.randn(sharp.shape, dtype=DOUBLE)
    sigma = torch.tensor([0.01, 0.02], dtype=DOUBLE)
    rows = {"sigma_d": 0.02, "mu": 0.2, "sigma_start": 0.2, "bend": 1.0, "extrapolation": 0.5}

    def restored(which: slice) -> Tensor:
        problem = pl.Problem(observed[which], blur, pl.Gaussian(sigma[which]))
        return pl.solve(problem, method_from("fast", Tikhonov(), problem, rows, 4), tolerance=0).image

    together = restored(slice(None))
    for b in range(2):
        torch.testing.assert_close(restored(slice(b, b + 1)), together[b : b + 1], rtol=0, atol=1e-10)


def test_each_call_gets_its_own_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []

    class Noted(DataStep):
        def solve(self, *given: Tensor) -> tuple[Tensor, Tensor]:
            asked.append(torch.as_tensor(self.iterations).tolist())
            return super().solve(*given)

    monkeypatch.setattr(annealed, "DataStep", Noted)
    problem, _ = small_problem()
    method = pl.Annealed(Tikhonov(), 0.03, calls=3, cg_iterations=torch.tensor([[6], [4], [3]]))
    state = method.init(problem)
    for _ in range(4):  # one beyond the schedule
        state = method.step(problem, state)
    assert asked == [[6], [4], [3], [3]]


def test_steps_grow_with_the_fourth_root_of_the_condition_number() -> None:
    row = {"sigma_d": 0.01, "mu": 0.2, "sigma_start": 0.2, "bend": 1.0, "extrapolation": 0.0}

    def steps(sigma: Tensor | float, operator: pl.LinearOperator | None = None) -> Tensor:
        problem, _ = small_problem()
        observed = problem.observed.expand(torch.as_tensor(sigma).numel(), -1, -1, -1).contiguous()
        harder = pl.Problem(observed, operator or problem.operator, pl.Gaussian(sigma))
        method = method_from("fast", Tikhonov(), harder, row, 5)
        assert isinstance(method, pl.Annealed)
        return torch.as_tensor(method.cg_iterations)

    both = steps(torch.tensor([4e-3, 4e-3 / 16], dtype=DOUBLE))
    assert both.shape == (5, 2)
    assert torch.equal(both, both.sort(0, descending=True).values)
    assert int(both[0, 0]) > int(both[-1, 0])
    # Noise weaker by 16: a condition number larger by 16^2, four times the steps, but for rounding up.
    assert ((both[:, 1] - 1) / (both[:, 0] - 1)).tolist() == pytest.approx([4] * 5, abs=1.6)
    assert int(steps(1e-7).max()) == MOST_STEPS
    assert int(steps(1.0).min()) == 2
    mask = pl.Mask(torch.rand(24, 24) > 0.5)
    assert int(steps(4e-3, mask)[0]) > int(both[0, 0])  # not preconditioned as a blur is
