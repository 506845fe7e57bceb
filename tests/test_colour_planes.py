"""Weak colour planes get fewer steps of conjugate gradient: fewer for the same error, and never a wrong picture."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.denoisers import Tikhonov
from pnpladmm.report import parameters
from pnpladmm.solvers.annealed import MOST_STEPS
from pnpladmm.solvers.colour import MIN_STEPS, ColourPlanes
from pnpladmm.solvers.conjugate_gradient import Descent, descend
from pnpladmm.solvers.data_step import DataStep, NormalMatrix, NormalSystem
from pnpladmm.tensors import InputError

DOUBLE = torch.float64


def coloured(strengths: tuple[float, ...], mixed: bool, seed: int = 0) -> Tensor:
    """(1, C, 20, 22): channels of random signs and these strengths; mixed: the same turned in colour space."""
    generator = torch.Generator().manual_seed(seed)
    c = len(strengths)
    planes = torch.randint(2, (1, c, 20, 22), generator=generator).to(DOUBLE) * 2 - 1
    planes = planes * torch.tensor(strengths, dtype=DOUBLE).view(1, -1, 1, 1)
    turn, _ = torch.linalg.qr(torch.randn(c, c, dtype=DOUBLE, generator=generator))
    return torch.einsum("ij,bjhw->bihw", turn, planes) if mixed else planes


def test_colour_planes_are_principal_axes_of_the_correlation() -> None:
    x = torch.cat([coloured((0.1, 1.0, 0.4), mixed=True), coloured((1.0, 0.3, 0.01), mixed=False)])
    planes = ColourPlanes.of(x)
    split = planes.split(x)
    torch.testing.assert_close(planes.join(split), x, rtol=0, atol=1e-12)
    for b in range(2):
        flat = split[b].flatten(1).numpy()
        energy = flat @ flat.T
        assert np.abs(energy - np.diag(np.diag(energy))).max() < 1e-10 * energy.max()
        flat = x[b].flatten(1).numpy()
        flat = flat / np.sqrt((flat**2).sum(1, keepdims=True))
        values = np.linalg.eigvalsh(flat @ flat.T)[::-1]
        np.testing.assert_allclose(planes.energy[b].numpy(), values / values[0], rtol=1e-9)


def test_only_what_channels_have_in_common_is_spared() -> None:
    dim = ColourPlanes.of(coloured((1.0, 0.3, 0.01), mixed=False))
    assert int(dim.steps(torch.tensor([[20]])).min()) >= 16  # independent channels, however dim
    grey = torch.rand(1, 1, 9, 9, dtype=DOUBLE).expand(1, 3, 9, 9)
    assert ColourPlanes.of(grey).steps(torch.tensor([[20, 1]])).tolist() == [[[20, MIN_STEPS, MIN_STEPS], [1, 1, 1]]]
    two = ColourPlanes(torch.eye(2)[None], torch.eye(2)[None], torch.tensor([[1.0, 0.09]], dtype=DOUBLE))
    assert two.steps(torch.tensor([[39, 10]])).tolist() == [[[39, 12], [10, 3]]]  # in proportion to the amplitude
    tinted = grey + 0.05 * torch.randn(1, 3, 9, 9, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    first, *others = ColourPlanes.of(tinted).steps(torch.tensor([[40]]))[0, 0].tolist()
    assert first == 40
    assert max(others) <= 10
    black = ColourPlanes.of(torch.zeros(1, 3, 4, 4, dtype=DOUBLE))
    assert black.steps(torch.tensor([[9]])).tolist() == [[[9, 9, 9]]]
    torch.testing.assert_close(black.join(black.split(grey)), grey)


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


def test_planes_stop_at_their_goal_whatever_others_do() -> None:
    """Stages of 3, 2 and 1 planes, and pictures that are done at once, early or never."""
    operator = positive_blur((16, 15))
    p, a = torch.tensor(80.0, dtype=DOUBLE), torch.tensor(2.0, dtype=DOUBLE)
    r = torch.randn(3, 3, 16, 15, dtype=DOUBLE)
    matrix, precondition = NormalMatrix(operator, p, a), operator.preconditioner(p, a)
    start = precondition(r).square().flatten(1).sum(1)
    goal = start * torch.tensor([2.0, 1e-3, 1e-30], dtype=DOUBLE)
    limits = torch.tensor([[40, 9, 3]]).expand(3, 3)
    x, rest = descend(matrix, torch.zeros_like(r), r, goal, limits, precondition)
    torch.testing.assert_close(rest, r - matrix(x), rtol=0, atol=1e-10 * float(r.abs().max()))
    left = precondition(rest).square().sum((2, 3))
    assert not bool(x[0].any())
    assert float(left[1, 0]) <= float(goal[1]) / 3
    assert float(left[2, 0]) < 1e-12 * float(start[2])
    for b in range(3):
        alone, _ = descend(matrix, torch.zeros_like(r[:1]), r[b : b + 1], goal[b : b + 1], limits[:1], precondition)
        torch.testing.assert_close(alone, x[b : b + 1], rtol=0, atol=1e-9)


def test_what_a_solve_used_is_freed_when_it_ends() -> None:
    """Without waiting for the garbage collector, which counts objects, not megabytes."""
    problem = colour_problem()
    p = problem.precision_for("test")
    gc.disable()
    try:
        system = NormalSystem(problem.operator, p, torch.tensor(40.0, dtype=DOUBLE))
        r = torch.rand_like(problem.observed)
        system.descend(r, torch.zeros(1), 3)
        remains = weakref.ref(system), weakref.ref(system.matrix)
        del system
        assert all(remain() is None for remain in remains)
        descent = Descent(lambda q: q, None, r, by_channel=True)
        gone = weakref.ref(descent)
        del descent
        assert gone() is None
    finally:
        gc.enable()


def test_denoisers_that_can_be_trained_do_no_harm() -> None:
    gain = torch.nn.Parameter(torch.tensor(0.9, dtype=DOUBLE))
    problem = colour_problem()
    for method in (
        pl.Annealed(lambda x, sigma: gain * x, 0.03, calls=3, cg_iterations=2),
        pl.ADMM(lambda x, sigma: gain * x, 0.03, rho=100.0),
    ):
        assert bool(torch.isfinite(pl.solve(problem, method, 3).image).all())


def colour_problem(sigma: float = 0.02) -> pl.Problem:
    sharp = picture(24).expand(1, 3, 24, 24) * torch.tensor([1.0, 0.8, 0.5], dtype=DOUBLE).view(1, 3, 1, 1)
    operator = positive_blur((24, 24))
    noise = torch.randn(sharp.shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    return pl.Problem(operator.forward(sharp) + sigma * noise, operator, pl.Gaussian(sigma))


def test_data_steps_by_planes_solve_the_same_system() -> None:
    problem = colour_problem()
    H, p, y = problem.operator, problem.precision_for("test"), problem.observed
    assert problem.colour_planes is not None
    step = DataStep(H, p, y, torch.full((1, 3), 3000), 1e-14, problem.colour_planes)
    a, v = torch.tensor(40.0, dtype=DOUBLE), torch.rand_like(y)
    z, g = step.solve(a, v, y)
    torch.testing.assert_close(H.adjoint(p * H.forward(z)) + a * z, H.adjoint(p * y) + a * v, rtol=1e-9, atol=1e-8)
    torch.testing.assert_close(g, step.gradient(z), rtol=0, atol=1e-9 * float(p))
    # However few steps: the gradient that is handed on is that of the picture.
    z, g = replace(step, iterations=torch.tensor([[5, 3, 2]])).solve(a, v, y)
    torch.testing.assert_close(g, step.gradient(z), rtol=0, atol=1e-11 * float(p))


def test_planes_are_for_blurs_and_noise_that_know_no_colours() -> None:
    problem = colour_problem()
    observed, blur = problem.observed, problem.operator
    assert isinstance(blur, pl.SpatiallyVaryingBlur)
    own = pl.SpatiallyVaryingBlur(torch.rand(2, 3, 5, 5), torch.rand(2, 24, 24))
    each = pl.WeightedGaussian(torch.rand(3, 24, 24) + 0.1)
    noise = pl.Gaussian(0.1)
    alike = torch.rand(24, 24) + 0.1
    for precision in (alike, alike.expand(3, 24, 24)):
        assert pl.Problem(observed, blur, pl.WeightedGaussian(precision)).colour_planes is not None
    many = torch.rand(1, 5, 24, 24, dtype=DOUBLE)
    for other in (
        pl.Problem(many, blur, noise),
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
    detail = coloured((1.0, 0.5, 0.3), mixed=True)
    before = ColourPlanes.of(detail).energy
    detail[0, :2, 5, 6] = 1e4
    torch.testing.assert_close(ColourPlanes.of(detail).energy, before, rtol=0.05, atol=0)
    # Weak pixels stay weak: grey in one half, a tenth of it in red in the other.
    halves = torch.zeros(1, 3, 10, 10, dtype=DOUBLE)
    halves[..., :5] = 1
    halves[:, 0, :, 5:] = 0.1
    assert float(ColourPlanes.of(halves).energy[0, 1]) < 0.01
    # All but a few pixels without detail: those few are all there is.
    alone = torch.zeros(1, 3, 20, 20, dtype=DOUBLE)
    alone[:, :, 3, 4] = 1
    assert ColourPlanes.of(alone).energy[0].tolist() == pytest.approx([1, 0, 0], abs=1e-12)


def test_precisions_alike_in_every_channel_are_one() -> None:
    """The mask of a saturated pixel comes as (B, C, H, W): the picture is that of the same mask for all."""
    problem = colour_problem()
    precision = 2500 * (torch.rand(24, 24, generator=torch.Generator().manual_seed(2)) > 0.1).to(DOUBLE)
    row = {"sigma_d": 0.02, "mu": 0.2, "sigma_start": 0.2, "bend": 1.0, "extrapolation": 0.0}
    images = []
    for given in (precision, precision.expand(1, 3, 24, 24)):
        masked = pl.Problem(problem.observed, problem.operator, pl.WeightedGaussian(given))
        images.append(pl.solve(masked, pl.Annealed.from_settings(Tikhonov(), masked, row, 4), tolerance=0).image)
    torch.testing.assert_close(images[0], images[1], rtol=0, atol=1e-12)


def test_a_picture_is_restored_the_same_among_others() -> None:
    """A grey picture with three kernels beside one with five and channels that have nothing in common."""
    strong = coloured((1.0, 0.6, 0.3), mixed=False).mul(0.2).add(0.5)[..., :20]
    sharp = torch.cat([picture(20).expand(1, 3, 20, 20), strong])
    blurs = [positive_blur((20, 20), count=n, seed=n) for n in (3, 5)]
    kernels, weights = (
        torch.stack([F.pad(getattr(blur, name)[0, :, 0], (0, 0, 0, 0, 0, 5 - len(blur.kernels[0]))) for blur in blurs])
        for name in ("kernels", "weights")
    )
    both = pl.SpatiallyVaryingBlur(kernels, weights)
    observed = both.forward(sharp) + 0.01 * torch.randn(sharp.shape, dtype=DOUBLE)
    sigma = torch.tensor([0.01, 0.02], dtype=DOUBLE)
    row = {"sigma_d": 0.02, "mu": 0.2, "sigma_start": 0.2, "bend": 1.0, "extrapolation": 0.5}

    def restored(blur: pl.SpatiallyVaryingBlur, which: slice) -> Tensor:
        problem = pl.Problem(observed[which], blur, pl.Gaussian(sigma[which]))
        return pl.solve(problem, pl.Annealed.from_settings(Tikhonov(), problem, row, 4), tolerance=0).image

    together = restored(both, slice(None))
    for b in range(2):
        alone = restored(blurs[b], slice(b, b + 1))
        torch.testing.assert_close(alone, together[b : b + 1], rtol=0, atol=1e-9)


def test_steps_that_do_not_fit_the_problem_are_refused() -> None:
    problem, grey = colour_problem(), small_problem()[0]
    for steps, given, message in (
        (torch.full((3, 3), 4), grey, "cg_iterations for 3 pictures, pictures: 1"),
        (torch.full((1, 3, 2), 4), problem, "cg_iterations for 2 colour planes: this problem has 3"),
        (torch.full((1, 3, 1), 4), grey, r"cg_iterations for 1 colour planes: this problem has 0; give \(B, 3\)"),
    ):
        with pytest.raises(InputError, match=message):
            pl.solve(given, pl.Annealed(Tikhonov(), 0.03, calls=3, cg_iterations=steps))


def test_steps_grow_with_the_root_of_the_condition_number() -> None:
    row = {"sigma_d": 0.01, "mu": 0.2, "sigma_start": 0.2, "bend": 1.0, "extrapolation": 0.0}

    def steps(sigma: Tensor | float, operator: pl.LinearOperator | None = None) -> Tensor:
        problem, _ = small_problem()
        observed = problem.observed.expand(torch.as_tensor(sigma).numel(), -1, -1, -1).contiguous()
        harder = pl.Problem(observed, operator or problem.operator, pl.Gaussian(sigma))
        method = pl.Annealed.from_settings(Tikhonov(), harder, row, 5)
        assert isinstance(method, pl.Annealed)
        return torch.as_tensor(method.cg_iterations)

    # sigma_k = 0.2, 0.0946, 0.0447, 0.0211, 0.01: the root of the condition number is 25 at its middle for 4e-3.
    assert steps(torch.tensor([4e-3, 4e-3 / 3], dtype=DOUBLE)).tolist() == [[8, 8, 8, 4, 3], [20, 20, 20, 10, 6]]
    assert steps(1e-7).tolist() == [[MOST_STEPS] * 5]
    assert steps(1.0).tolist() == [[2] * 5]
    mask = pl.Mask(torch.rand(24, 24) > 0.5)
    assert steps(4e-3, mask).tolist() == [[31, 31, 31, 16, 8]]  # not preconditioned as a blur is
    by_plane = pl.Annealed.from_settings(Tikhonov(), colour_problem(), row, 5)
    assert isinstance(by_plane, pl.Annealed)
    assert torch.as_tensor(by_plane.cg_iterations).shape == (1, 5, 3)


def test_each_call_takes_its_own_number_of_steps() -> None:
    problem = small_problem()[0]
    counted: list[int] = []

    class Counted(pl.SpatiallyVaryingBlur):
        def forward(self, x: Tensor) -> Tensor:
            counted[-1] += 1
            return super().forward(x)

    def smooth(x: Tensor, sigma: object) -> Tensor:
        counted.append(0)
        return x

    blur = problem.operator
    assert isinstance(blur, pl.SpatiallyVaryingBlur)
    operator = Counted(blur.kernels.squeeze(), blur.weights.squeeze(), blur.boundary)
    method = pl.Annealed(smooth, 0.01, calls=3, cg_iterations=torch.tensor([[5, 2, 3]]), cg_tolerance=0.0)
    counted.append(-3)  # for the gradient at the start, its size, and the preconditioner
    pl.solve(pl.Problem(problem.observed, operator, problem.data_term), method, iterations=5, tolerance=0, record=False)
    assert counted[:5] == [5, 2, 3, 3, 3]  # beyond the schedule as at its end


def test_a_report_names_the_steps_of_each_plane() -> None:
    method = pl.Annealed(
        Tikhonov(), 0.03, calls=2, cg_iterations=torch.tensor([[[6, 4, 2], [5, 3, 2]], [[9, 9, 9]] * 2])
    )
    assert parameters(method)["cg_iterations"] == "[[6, 4, 2], [5, 3, 2]]"
