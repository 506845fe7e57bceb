"""Gradient-step denoisers: gradients, priors, curvature, certificates that cannot be false, their training."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.denoisers import pretrained, ritz
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser, full_precision
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.denoisers.pretrained import load_network, multiply_adds_per_pixel, new_network, read_network
from pnpladmm.denoisers.ritz import largest_eigenvalue
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tensors import InputError, squared_norm
from pnpladmm.training import evaluate
from pnpladmm.training.checkpoint import checkpoint_path, write_weights
from pnpladmm.training.gradient_step import GradientStepTraining
from pnpladmm.training.loop import Training, train
from pnpladmm.training.recipe import Recipe

SIGMA = 0.05


def network(channels: int = 1, curvature: float | None = 0.8, seed: int = 0, size: int = 24) -> SmoothUNet:
    """A random network, its last convolution scaled so that `lambda_max` is `curvature` at a noisy picture."""
    torch.manual_seed(seed)
    net = new_network("prox-drunet", channels, (8, 8, 8), 1).double()
    assert isinstance(net, SmoothUNet)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    if curvature is not None:
        v = pictures(channels, size)
        found = float(GradientStepDenoiser({channels: net}, precision=torch.float64).curvature(v, SIGMA, 40))
        net.exit.weight.data *= math.sqrt(curvature / found)
    return net


def pictures(channels: int = 1, size: int = 24, batch: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(batch, channels, size, size, dtype=torch.float64, generator=generator)
    return picture(size).expand(batch, channels, -1, -1) + SIGMA * noise


def denoiser(net: SmoothUNet, **options: object) -> GradientStepDenoiser:
    return GradientStepDenoiser({net.channels: net}, precision=torch.float64, **options)  # type: ignore[arg-type]


# --- the step is a gradient, on the picture's own domain ---------------------------------------------------------


@pytest.mark.parametrize(("channels", "shape"), [(1, (24, 24)), (3, (21, 30)), (1, (9, 8)), (3, (1, 5))])
@pytest.mark.parametrize("trained", [1, 3])
def test_the_step_is_the_gradient_of_g(channels: int, shape: tuple[int, int], trained: int) -> None:
    """Padding, channel by channel and copied channels included; against differences of `g`, written out here."""
    net = network(trained, None)
    d = denoiser(net, relaxation=0.7)
    v, u = torch.rand(2, 1, channels, *shape, dtype=torch.float64)
    step = 1e-5
    slope = float(d.energy(v + step * u, SIGMA) - d.energy(v - step * u, SIGMA)) / (2 * step)
    gradient = (v - d(v, SIGMA)) / 0.7
    assert float((gradient * u).sum()) == pytest.approx(slope, rel=1e-7)

    height, width = shape
    copies = 1 if trained == 1 else 3 // channels
    planes = v.reshape(-1, 1, *shape) if copies > 1 or trained == 1 else v
    planes = planes.expand(-1, trained, -1, -1) if trained == 3 else planes
    padding = (0, -width % 8, 0, -height % 8)
    padded, inside = (torch.nn.functional.pad(a, padding) for a in (planes, torch.ones_like(planes[:, :1])))
    level = torch.full((len(padded),), SIGMA * math.sqrt(copies), dtype=torch.float64)
    residual = (padded - net(padded, level, inside))[..., :height, :width]
    assert float(d.energy(v, SIGMA)) == pytest.approx(float(residual.square().sum()) / 2 / copies, rel=1e-12)


def test_the_passes_written_out_equal_automatic_differentiation() -> None:
    net = network(2, None)
    x = torch.rand(2, 2, 16, 24, dtype=torch.float64, requires_grad=True)
    u = torch.randn(2, 2, 16, 24, dtype=torch.float64)
    sigma = torch.tensor([0.1, 0.3], dtype=torch.float64)
    inside, kept = (torch.rand(2, 1, 16, 24, dtype=torch.float64) < 0.9 for _ in range(2))
    here = net.linearise(x, sigma, inside, kept=kept, products=True)
    g = (kept * net.residual(x, sigma, inside)).square().sum() / 2
    (gradient,) = torch.autograd.grad(g, x, create_graph=True)
    (product,) = torch.autograd.grad((gradient * u).sum(), x)
    torch.testing.assert_close(here.gradient, gradient, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(here.product(u), product, rtol=1e-11, atol=1e-12)
    assert float(squared_norm(here.residual.detach()).sum() / 2) == pytest.approx(float(g.detach()), rel=1e-12)
    half = net.linearise(x.detach(), sigma, products=True, dtype=torch.bfloat16).product(u).detach()
    assert (
        float((half - net.linearise(x.detach(), sigma, products=True).product(u).detach()).norm() / half.norm()) < 0.03
    )
    with pytest.raises(ValueError, match="products=True"):
        net.linearise(x, sigma).product(u)


def test_scale_weak_noise_batches_and_bad_input() -> None:
    d = denoiser(network())
    v = pictures(batch=2)
    sigma = torch.tensor([0.05, 0.02], dtype=torch.float64)
    both = d(v, sigma)
    # A picture's result does not depend on its neighbours, nor on the scale of intensities.
    for i in range(2):
        assert torch.equal(both[i : i + 1], d(v[i : i + 1], float(sigma[i])))
        assert torch.equal(d.curvature(v, sigma)[i : i + 1], d.curvature(v[i : i + 1], float(sigma[i])))
    torch.testing.assert_close(d(255 * v, 255 * sigma), 255 * both, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(d.curvature(255 * v, 255 * sigma), d.curvature(v, sigma), rtol=1e-9, atol=0)
    still = d(v, torch.tensor([0.0, 0.02], dtype=torch.float64))
    assert torch.equal(still[0], v[0])
    assert torch.equal(still[1], both[1])
    assert float(d.curvature(v[:1], 0.0)) == 0
    assert float(d.energy(v[:1], 0.0)) == 0
    for wrong in (0.0, 1.5, math.nan):
        with pytest.raises(InputError, match="relaxation = "):
            denoiser(network(curvature=None), relaxation=wrong)
    with pytest.raises(InputError, match="products = 0"):
        d.curvature(v, sigma, 0)
    with pytest.raises(InputError, match="sigma of shape"):
        d(v, torch.ones(3))


def test_tiles_change_nothing_but_rounding() -> None:
    net = network(3)
    whole, tiled = denoiser(net), denoiser(net, tile=144)
    assert net.halo == 56
    for shape in ((150, 139), (60, 147)):
        x = torch.rand(1, 3, *shape, dtype=torch.float64)
        assert len(tiled._enter(x, torch.tensor([SIGMA])).tiles(144)) == 5
        torch.testing.assert_close(tiled(x, SIGMA), whole(x, SIGMA), rtol=0, atol=1e-13)
        assert float(tiled.energy(x, SIGMA)) == pytest.approx(float(whole.energy(x, SIGMA)), rel=1e-12)
    assert float(tiled.curvature(x, SIGMA, 3)) == pytest.approx(float(whole.curvature(x, SIGMA, 3)), rel=1e-10)


# --- the step is a proximal operator where the Hessian is below 1 ------------------------------------------------


def objective(d: GradientStepDenoiser, w: Tensor, v: Tensor) -> Tensor:
    """`1/2 ||x - v||^2 + phi(x)` at `x = D(w)`: `phi` is known on the image of `D` only."""
    x = d(w, SIGMA)
    phi = d.prior(x, w, SIGMA)
    assert phi is not None
    return squared_norm(x - v) / 2 + phi


@pytest.mark.parametrize("relaxation", [1.0, 0.6])
def test_the_step_minimises_its_proximal_problem(relaxation: float) -> None:
    d = denoiser(network(size=16), relaxation=relaxation)
    v = pictures(size=16)
    best = float(objective(d, v, v))
    generator = torch.Generator().manual_seed(1)
    for trial in range(100):
        direction = torch.randn(v.shape, dtype=v.dtype, generator=generator)
        w = v + 10 ** (-4 + 4 * trial / 100) * direction
        assert float(objective(d, w, v)) > best


@pytest.mark.parametrize("relaxation", [1.0, 0.6])
def test_gradient_descent_from_elsewhere_ends_at_the_step(relaxation: float) -> None:
    """The gradient is automatic differentiation's, through the whole of `x = D(w)` and `phi`."""
    net = network(size=16)
    d = denoiser(net, relaxation=relaxation)
    v = pictures(size=16)
    sigma = torch.tensor([SIGMA], dtype=v.dtype)
    target, best = d(v, SIGMA), float(objective(d, v, v))
    for start in (torch.zeros_like(v), torch.rand_like(v), 1 - v):
        w = start.clone()
        for _ in range(60):
            w.requires_grad_(True)
            here = net.linearise(w, sigma)
            x = w - relaxation * here.gradient
            g = here.residual.square().sum() / 2
            value = (x - v).square().sum() / 2 + relaxation * g - (w - x).square().sum() / 2
            (slope,) = torch.autograd.grad(value, w)
            w = (w - slope).detach()
        assert float((d(w, SIGMA) - target).norm() / target.norm()) < 1e-6
        assert float(objective(d, w, v)) == pytest.approx(best, rel=1e-9)


def test_above_1_it_is_no_proximal_operator_and_relaxation_makes_it_one() -> None:
    """So that the tests above can fail: along the leading eigenvector the objective falls below its value at `D(v)`."""
    net = network(curvature=1.5, size=16)
    v = pictures(size=16)
    for relaxation, minimum in ((1.0, False), (0.6, True)):
        d = denoiser(net, relaxation=relaxation)
        pair = d.top_eigenpair(v, SIGMA, 60)
        assert float(pair.value) == pytest.approx(1.5 * relaxation, rel=1e-3)
        best = float(objective(d, v, v))
        assert (float(objective(d, v + 1e-3 * pair.vector, v)) >= best) is minimum


def test_the_prior_is_nonnegative_and_its_gradient_is_v_minus_x() -> None:
    d = denoiser(network(size=16), relaxation=0.9)
    v, u = pictures(size=16), torch.randn(1, 1, 16, 16, dtype=torch.float64)

    def phi(w: Tensor) -> float:
        found = d.prior(d(w, SIGMA), w, SIGMA)
        assert found is not None
        return float(found)

    step = 1e-5
    forward, backward = d(v + step * u, SIGMA), d(v - step * u, SIGMA)
    along = float(((v - d(v, SIGMA)) * (forward - backward)).sum()) / (2 * step)
    assert (phi(v + step * u) - phi(v - step * u)) / (2 * step) == pytest.approx(along, rel=1e-6)
    x = d(v, SIGMA)
    assert phi(v) > 0.9 * float(d.energy(x, SIGMA)) > 0
    assert d.prior(v, None, SIGMA) is None
    # What a call kept is used for the very same picture and noise level only.
    first = d.prior(x, v, SIGMA)
    d(v, SIGMA)
    v += 0.01
    assert float(d.energy(v, SIGMA)) == float(denoiser(d._smooth[1]).energy(v, SIGMA))
    d(v, SIGMA)
    assert float(d.energy(v, 2 * SIGMA)) == float(denoiser(d._smooth[1]).energy(v, 2 * SIGMA))
    assert first is not None


# --- the largest eigenvalue --------------------------------------------------------------------------------------


def dense_hessian(d: GradientStepDenoiser, v: Tensor) -> Tensor:
    """By automatic differentiation of `g`, padding and all."""
    (net,) = d._smooth.values()
    level = torch.tensor([SIGMA], dtype=v.dtype)

    def g(flat: Tensor) -> Tensor:
        x = flat.view(v.shape)
        padding = (0, -v.shape[3] % 8, 0, -v.shape[2] % 8)
        padded, inside = (torch.nn.functional.pad(a, padding) for a in (x, torch.ones_like(x)))
        return net.residual(padded, level, inside)[..., : v.shape[2], : v.shape[3]].square().sum() / 2

    return torch.autograd.functional.hessian(g, v.flatten())  # type: ignore[no-untyped-call]


def test_the_curvature_is_the_dense_hessians_largest_eigenvalue() -> None:
    d = denoiser(network(), relaxation=0.8)
    v = pictures(size=24)[..., :10, :9]
    eigenvalues = 0.8 * torch.linalg.eigvalsh(dense_hessian(d, v))
    assert float(eigenvalues[0]) < 0  # both signs: g is not convex
    pair = d.top_eigenpair(v, SIGMA, 60)
    assert float(pair.value) == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert float(pair.residual) < 1e-5
    few = float(d.curvature(v, SIGMA, 12))
    assert 0.97 * float(eigenvalues[-1]) < few <= float(eigenvalues[-1]) * (1 + 1e-12)


def symmetric(eigenvalues: Tensor, seed: int = 0) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """Products with a matrix of these eigenvalues, a random start, its eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    n = len(eigenvalues)
    vectors = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
    matrix = vectors @ torch.diag(eigenvalues.double()) @ vectors.T
    start = torch.randn(1, 1, 1, n, dtype=torch.float64, generator=generator)
    return lambda u: (u.flatten(1) @ matrix).view(u.shape), start, vectors


def test_eigenvalues_far_below_0_do_not_mislead_it() -> None:
    product, start, vectors = symmetric(torch.cat([torch.linspace(-50, -40, 20), torch.linspace(0, 0.9, 30)]))
    found = largest_eigenvalue(product, start, 30)
    assert float(found.value) == pytest.approx(0.9, abs=1e-3)
    assert abs(float(found.vector.flatten() @ vectors[:, -1])) > 0.9
    all_negative, start, _ = symmetric(torch.linspace(-9, -0.5, 12))
    assert float(largest_eigenvalue(all_negative, start, 20).value) == pytest.approx(-0.5, rel=1e-9)  # exhausts it
    multiple, start, _ = symmetric(torch.full((8,), -0.5))
    assert float(largest_eigenvalue(multiple, start, 5).value) == pytest.approx(-0.5, rel=1e-9)


def test_it_is_at_least_what_power_iterations_give_with_any_shift() -> None:
    product, start, _ = symmetric(torch.linspace(-3, 0.99, 60))
    found = float(largest_eigenvalue(product, start, 9).value)
    for shift in (0.0, 1.0, 3.0, 10.0):
        u = start / start.norm()
        for _ in range(8):
            u = product(u) + shift * u
            u = u / u.norm()
        assert float((u * product(u)).sum()) <= found + 1e-12


def test_a_start_in_one_eigenvector_finds_larger_ones() -> None:
    product, start, vectors = symmetric(torch.linspace(-1, 0.8, 40))
    stuck = vectors[:, 20].view(start.shape)
    assert float(largest_eigenvalue(product, stuck, 6).value) == pytest.approx(float(-1 + 1.8 * 20 / 39), rel=1e-6)
    assert float(largest_eigenvalue(product, stuck, 6, fresh=start).value) > 0.5


def test_what_is_not_finite_is_never_small() -> None:
    for bad in (math.nan, math.inf):
        start = torch.ones(2, 1, 2, 2)

        def product(u: Tensor, bad: float = bad) -> Tensor:
            return torch.cat([u[:1] * bad, 0.5 * u[1:]])

        found = largest_eigenvalue(product, start, 3)
        assert float(found.value[0]) == ritz.FAILED
        assert float(found.value[1]) == pytest.approx(0.5)
        assert bool(torch.isfinite(found.vector).all())


def test_a_meter_goes_on_from_iterate_to_iterate() -> None:
    d = denoiser(network())
    v = pictures()
    exact = float(d.curvature(v, SIGMA, 80))
    meter = d.curvature_meter()
    values = [float(meter(v + 1e-4 * k, SIGMA)) for k in range(8)]
    assert values[-1] == pytest.approx(exact, rel=1e-3)
    again = d.curvature_meter()
    assert [float(again(v + 1e-4 * k, SIGMA)) for k in range(3)] == values[:3]  # a run does not depend on earlier ones
    larger = pictures(size=32)
    assert float(meter(larger, SIGMA)) > 0


# --- certificates ------------------------------------------------------------------------------------------------


def certified(d: object, iterations: int = 40, **options: object) -> pl.Result:
    problem, _ = small_problem(SIGMA)
    return pl.solve(problem, pl.LADMM.certified(d, problem, SIGMA), iterations, 0, **options)  # type: ignore[arg-type]


def test_a_certified_run_is_checked_and_its_lagrangian_falls() -> None:
    result = certified(denoiser(network()))
    assert result.certificate.level is pl.Level.CHECKED
    history = result.history
    assert history.lagrangian is not None
    assert history.curvature is not None
    assert history.objective is not None
    assert bool((history.lagrangian.diff(dim=0) <= 0).all())
    assert torch.isfinite(history.curvature[:, 0]).nonzero().flatten().tolist() == [0, 9, 19, 29, 39]
    # At convergence the two agree: z = Hx.
    assert float(history.lagrangian[-1]) == pytest.approx(float(history.objective[-1]), rel=1e-3)
    assert "measured in this run" in str(result.certificate)


@pytest.mark.parametrize("curvature", [0.8, 1.3])
def test_the_lagrangian_changes_by_exactly_what_the_proof_says(curvature: float) -> None:
    """docs/proof.md, statement 3, an identity whatever the curvature: only the sign of `B` needs it."""
    problem, _ = small_problem(SIGMA)
    d = denoiser(network(curvature=curvature), relaxation=0.9)
    method = pl.LADMM.certified(d, problem, SIGMA)
    beta, L_x = float(method.beta), float(method.L_x)
    old = method.step(problem, method.init(problem))

    def psi(v: Tensor) -> Tensor:
        return squared_norm(v) / 2 - 0.9 * d.energy(v, SIGMA)

    for _ in range(5):
        new = method.step(problem, old)
        assert old.v is not None
        assert new.v is not None
        dx, dz, dw = new.x - old.x, new.z - old.z, beta * (new.u - old.u)
        bregman = float(psi(new.v) - psi(old.v) - (old.x * (new.v - old.v)).sum())
        fall = L_x * (bregman + float(dx.square().sum()) / 2)
        fall -= beta / 2 * float((problem.operator.forward(dx)).square().sum())
        fall += (beta / 2 + 1 / (2 * SIGMA**2)) * float(dz.square().sum()) - float(dw.square().sum()) / beta
        values = [method.lagrangian(problem, state) for state in (old, new)]
        assert values[0] is not None
        assert values[1] is not None
        assert float(values[0] - values[1]) == pytest.approx(fall, rel=1e-9)
        if curvature < 1:
            assert bregman >= 0
            assert float(d.prior(new.x, new.v, SIGMA)) >= 0.9 * float(d.energy(new.x, SIGMA))  # type: ignore[arg-type]
        old = new


def test_the_gradient_of_the_objective_goes_to_0() -> None:
    problem, _ = small_problem(SIGMA)
    method = pl.LADMM.certified(denoiser(network()), problem, SIGMA)
    sizes: list[float] = []

    def watch(progress: pl.solvers.loop.Progress) -> None:
        gradient = method.gradient(problem, progress.state)
        assert gradient is not None
        sizes.append(float(gradient.norm()))

    assert method.gradient(problem, method.init(problem)) is None
    result = pl.solve(problem, method, 400, 1e-9, callback=watch)
    assert sizes[-1] < 1e-3 * sizes[0]
    assert result.certificate.level is pl.Level.CHECKED


class Untrue(GradientStepDenoiser):
    """Evaluates another prior than its own."""

    def prior(self, x: Tensor, v: Tensor | None, sigma: pl.tensors.PerPicture, /) -> Tensor | None:
        phi = super().prior(x, v, sigma)
        self.lie = getattr(self, "lie", 1.0) * 1.01
        return None if phi is None else phi * self.lie


def test_no_failing_condition_gives_a_false_certificate() -> None:
    net = network()
    good = denoiser(net)
    steep = certified(denoiser(network(curvature=1.3)))
    assert steep.certificate.level is pl.Level.OUTSIDE
    assert "largest eigenvalue" in steep.certificate.failures[0]

    problem, _ = small_problem(SIGMA)
    inside = pl.LADMM.certified(good, problem, SIGMA)
    for change in ({"beta": 0.9 * inside.beta}, {"L_x": 0.9 * inside.L_x}):
        result = pl.solve(problem, replace(inside, **change), 12, 0)
        assert result.certificate.level is pl.Level.OUTSIDE
        assert any(not c.holds for c in result.certificate.conditions)

    rising = certified(Untrue({1: net}, precision=torch.float64))
    assert rising.certificate.level is pl.Level.OUTSIDE
    assert "Lagrangian rose" in rising.certificate.failures[0]

    unmeasured = certified(good, record=False)
    assert unmeasured.certificate.level is pl.Level.OUTSIDE
    assert "not measured" in unmeasured.certificate.failures[0]
    assert "not evaluated" in unmeasured.certificate.failures[1]

    broken = network()
    broken.exit.weight.data[0] = math.nan
    gone = certified(denoiser(broken), 3)
    assert gone.status is pl.Status.NON_FINITE
    assert gone.certificate.level is pl.Level.OUTSIDE


def test_a_run_that_turns_bad_late_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calm at first, then one iterate is not finite: nothing that was measured before counts."""
    d = denoiser(network())
    calls = 0
    step = GradientStepDenoiser.__call__

    def late(self: GradientStepDenoiser, x: Tensor, sigma: pl.tensors.PerPicture, /) -> Tensor:
        nonlocal calls
        calls += 1
        return step(self, x, sigma) * (math.nan if calls == 15 else 1.0)

    monkeypatch.setattr(GradientStepDenoiser, "__call__", late)
    result = certified(d)
    assert result.status is pl.Status.NON_FINITE
    assert result.certificate.level is pl.Level.OUTSIDE
    assert "diverged" in result.certificate.failures[0]


def test_certificates_are_each_pictures_own() -> None:
    """Told twice the noise, the same network is steeper at the second picture: only that one loses its certificate."""
    net = network(curvature=0.95)
    sharp = picture(24)
    operator = positive_blur((24, 24))
    y = operator.forward(sharp.repeat(2, 1, 1, 1)) + SIGMA * torch.randn(2, 1, 24, 24, dtype=torch.float64)
    problem = pl.Problem(y, operator, pl.Gaussian(SIGMA))
    d = denoiser(net)
    levels = torch.tensor([0.1, 4.0], dtype=torch.float64) * SIGMA
    measured = [float(d.curvature(y[i : i + 1], float(levels[i]), 40)) for i in range(2)]
    order = sorted(range(2), key=lambda i: measured[i])
    net.exit.weight.data *= math.sqrt(1 / math.sqrt(measured[0] * measured[1]))  # one below 1, one above
    assert abs(measured[0] / measured[1] - 1) > 0.3
    result = pl.solve(problem, pl.LADMM.certified(denoiser(net), problem, levels), 12, 0)
    expected = {order[0]: pl.Level.CHECKED, order[1]: pl.Level.OUTSIDE}
    assert [c.level for c in result.certificates] == [expected[0], expected[1]]


def test_float32_runs_are_checked_to_their_rounding() -> None:
    problem, _ = small_problem(SIGMA)
    single = pl.Problem(problem.observed.float(), problem.operator, problem.data_term)
    net = network().float()
    d = GradientStepDenoiser({1: net})
    for case in (single, problem):  # float32 throughout, and a float32 network inside a float64 run
        result = pl.solve(case, pl.LADMM.certified(d, case, SIGMA), 200, 1e-7)
        assert result.certificate.level is pl.Level.CHECKED, str(result.certificate)
        assert result.history.rounding > 1e-8


def test_restore_ends_with_certified_iterations() -> None:
    problem, _ = small_problem(SIGMA)
    result = pl.restore(
        problem.observed, problem.operator, SIGMA, denoiser=denoiser(network()), iterations=4, certify=30
    )
    assert result.certificate.level is pl.Level.CHECKED


# --- files and names ---------------------------------------------------------------------------------------------


def test_the_shipped_size_keeps_its_bounds() -> None:
    with torch.device("meta"):
        net = SmoothUNet()
    assert 2 * 256**2 * multiply_adds_per_pixel(net) <= 60e9
    assert 2 * sum(p.numel() for p in net.parameters()) <= 20e6


def test_weight_files_are_recognised_and_bad_ones_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(3, None).float()
    net.relaxation.fill_(0.75)
    path = tmp_path / "mine.safetensors"
    write_weights(path, net.state_dict(), {})
    d = pl.load_denoiser(path)
    assert isinstance(d, GradientStepDenoiser)
    assert (d.relaxation, d.channels, d.promise) == (0.75, (3,), pl.Promise.GRADIENT_STEP)
    assert load_network(path, relaxation=0.5).relaxation == 0.5  # type: ignore[attr-defined]
    x = torch.rand(1, 3, 16, 16)
    half = SmoothUNet(3, (8, 8, 8), (1, 1, 1))
    half.load_state_dict({key: value.half().float() for key, value in net.state_dict().items()})
    assert torch.equal(d(x, SIGMA), GradientStepDenoiser({3: half})(x, SIGMA))
    with pytest.raises(InputError, match="relaxation is for gradient steps"):
        load_network("light", relaxation=0.5)
    state = dict(net.state_dict())
    for change, message in (
        ({"relaxation": torch.tensor(1.5)}, "relaxation = 1.5"),
        ({"body.0.outer.weight": torch.zeros(8, 8, 5, 5)}, "has shape"),
        ({"head.bias": torch.zeros(8)}, "not a parameter of a SmoothUNet"),
    ):
        write_weights(path, {**state, **change}, {})
        with pytest.raises(InputError, match=message):
            pl.load_denoiser(path)
    del state["up2.0.inner.bias"]
    write_weights(path, state, {})
    with pytest.raises(InputError, match=r"up2\.0\.inner\.bias is missing"):
        read_network(path)

    monkeypatch.setattr(pretrained, "WEIGHTS_FOLDER", tmp_path)
    with pytest.raises(InputError, match=r"not shipped with this version: .*--network prox-drunet") as refused:
        pl.load_denoiser("prox-drunet")
    assert "\n" not in str(refused.value)
    write_weights(tmp_path / "prox_drunet_color.safetensors", net.state_dict(), {})
    assert isinstance(pl.load_denoiser("prox-drunet"), GradientStepDenoiser)


# --- training ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(3):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8))
        coarse.resize((40 + 8 * i, 48), Image.Resampling.BICUBIC).save(path / f"{i}.png")
    return path


def recipe(folder: Path, out: Path, **changes: object) -> Recipe:
    tiny = Recipe(
        data=folder, out=out, network="prox-drunet", channels=1, steps=60, batch=4, crop=16, widths=(8, 8, 8),
        blocks=1, warmup_steps=5, log_steps=10, checkpoint_seconds=0.0, learning_rate=5e-3, penalty_crops=4,
        penalty_crop=16, penalty_every=2, penalty_from=0.0,
    )  # fmt: skip
    return replace(tiny, **changes)  # type: ignore[arg-type]


def test_a_training_lowers_the_loss_and_leaves_weights_and_a_card(folder: Path, tmp_path: Path) -> None:
    seen = []
    card = train(recipe(folder, tmp_path / "w.safetensors", steps=120, validation=folder), seen.append)
    assert sum(p.loss for p in seen[-3:]) < 0.7 * sum(p.loss for p in seen[:3])
    assert "lambda in the pool" in str(seen[0])
    assert "in pictures 5:" in str(seen[-1])
    assert set(card["psnr"]) == {"5", "15", "25", "50"}
    assert card["penalty"]["margin"] == 0.05
    assert card["relaxation"] == 1
    assert json.loads((tmp_path / "w.json").read_text()) == card
    assert isinstance(pl.load_denoiser(tmp_path / "w.safetensors"), GradientStepDenoiser)


def test_the_penalty_pushes_the_largest_eigenvalue_below_its_bound(folder: Path, tmp_path: Path) -> None:
    """Started steep, with and without it; measured by many products at points that the pool never held."""
    steep = network(curvature=1.6).float()
    write_weights(tmp_path / "steep.safetensors", steep.state_dict(), {})
    found = {}
    for penalty in (0.0, 30.0):
        plan = recipe(
            folder, tmp_path / f"{penalty}.safetensors", start=tmp_path / "steep.safetensors", steps=50, ema=0.8,
            learning_rate=1e-3, penalty=penalty, penalty_crop=40, penalty_every=1,
        )  # fmt: skip
        train(plan)
        d = load_network(plan.out)
        assert isinstance(d, GradientStepDenoiser)
        rows = evaluate.curvature_table(d, folder, (15.0, 25.0), 1, products=30)
        found[penalty] = max(row.most for row in rows)
    assert found[0.0] > 1.1
    assert found[30.0] < 1


def test_bad_points_stay_in_the_pool_and_good_ones_leave(folder: Path, tmp_path: Path) -> None:
    training = GradientStepTraining(recipe(folder, tmp_path / "w.safetensors"))
    pool = training.more
    pool["curvature"] = torch.tensor([1.2, 0.5, 0.5, math.nan])
    pool["visits"] = torch.tensor([5.0, 5.0, 0.0, 0.0])
    before = {key: value.clone() for key, value in pool.items()}
    training._move_on(torch.ones_like(pool["v"]))
    same = [torch.equal(pool["v"][i], before["v"][i]) for i in range(4)]
    assert same == [True, False, True, False]
    assert pool["visits"].tolist() == [6.0, 0.0, 1.0, 0.0]
    assert bool(torch.isfinite(pool["curvature"]).all())
    torch.testing.assert_close(pool["u"].flatten(1).norm(dim=1), torch.ones(4))


def test_crops_end_where_pictures_do(folder: Path, tmp_path: Path) -> None:
    training = GradientStepTraining(recipe(folder, tmp_path / "w.safetensors"))
    inside = training._cut(torch.zeros(400, 1, 16, 24))
    heights, widths = inside[:, 0, :, 0].sum(1), inside[:, 0, 0, :].sum(1)
    assert torch.equal(inside.sum((1, 2, 3)), heights * widths)
    assert set(heights.tolist()) == set(range(9, 17))
    assert set(widths.tolist()) == set(range(17, 25))
    assert 0.45 < float((heights == 16).float().mean()) < 0.62
    v, u, kept = (training.more[key] for key in ("v", "u", "inside"))
    assert torch.equal(v, v * kept)
    assert torch.equal(u, u * kept)


def test_resuming_is_as_if_never_stopped(folder: Path, tmp_path: Path) -> None:
    whole = recipe(folder, tmp_path / "whole.safetensors", steps=20)
    train(whole)
    torn = GradientStepTraining(replace(whole, out=tmp_path / "torn.safetensors"))
    for _ in range(10):
        torn._advance()
    torn.save()
    assert train(torn.recipe)["steps"] == 20
    a, b = (read_network(plan.out).state_dict() for plan in (whole, torn.recipe))
    assert all(torch.equal(a[key], b[key]) for key in a)
    other = GradientStepTraining(replace(torn.recipe, penalty_crops=2))  # another pool: begun anew
    assert other.more["v"].shape[0] == 2
    with pytest.raises(InputError, match="at least 256 pixels"):
        GradientStepTraining(replace(whole, penalty_crop=256))
    with pytest.raises(InputError, match="holds a prox-drunet"):
        Training(replace(whole, network="light", start=whole.out, out=tmp_path / "l.safetensors"))


def test_killed_and_resumed_it_reaches_the_same_step(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "torn.safetensors"
    options = "--network prox-drunet --channels 1 --steps 60 --batch 4 --crop 16 --widths 8,8,8 --blocks 1"
    options += " --log-steps 5 --warmup-steps 5 --checkpoint-seconds 0 --penalty-crops 4 --penalty-crop 16"
    command = [sys.executable, "-m", "pnpladmm.training", str(folder), str(out), *options.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        deadline = time.monotonic() + 60
        while not checkpoint_path(out).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert int(done.stdout.split()[1]) > 5  # it went on, it did not begin again
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["steps"] == 60
    assert math.isfinite(card["final_loss"])


@pytest.mark.parametrize("change", [{"penalty": -1.0}, {"margin": 1.0}, {"penalty_crop": 20}, {"penalty_every": 0}])
def test_settings_that_cannot_be_trained_with_are_refused(folder: Path, change: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        recipe(folder, Path("w.safetensors"), **change)


def test_the_curvature_table(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, network(3, curvature=0.5).state_dict(), {"network": "prox-drunet"})
    given = [str(path), str(folder), "--curvature", "--sigmas", "15", "--products", "8", "--limit", "2", "--card"]
    assert evaluate.main(given) == 0
    row = capsys.readouterr().out.splitlines()[2].split("|")
    before = float(row[2])
    assert evaluate.main([*given, "--relaxation", "0.5"]) == 0
    after = float(capsys.readouterr().out.splitlines()[2].split("|")[2])
    assert after == pytest.approx(before / 2, rel=0.01)
    card = json.loads((tmp_path / "w.json").read_text())
    assert card["relaxation"] == 0.5
    assert card["lambda_max"]["15"] == pytest.approx(after, abs=1e-3)
    assert pl.load_denoiser(path).relaxation == 0.5  # type: ignore[attr-defined]
    assert evaluate.main(["light", str(folder), "--curvature"]) == 2
    assert "no gradient step" in capsys.readouterr().err


# --- on a GPU ----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_agrees_with_the_cpu_in_float32(folder: Path, tmp_path: Path) -> None:
    net = network(3).float()
    v = pictures(3, 40, batch=2).float()
    cpu = GradientStepDenoiser({3: net})
    expected, energy, curvature = cpu(v, SIGMA), cpu.energy(v, SIGMA), cpu.curvature(v, SIGMA)
    write_weights(tmp_path / "w.safetensors", net.state_dict(), {})
    gpu = GradientStepDenoiser({3: net}, device="cuda")
    w = v.cuda()
    # TF32 would be off by 1e-3 of the noise.
    torch.testing.assert_close(gpu(w, SIGMA).cpu(), expected, rtol=0, atol=1e-5 * SIGMA)
    torch.testing.assert_close(gpu.energy(w, SIGMA).cpu(), energy, rtol=1e-5, atol=0)
    torch.testing.assert_close(gpu.curvature(w, SIGMA).cpu(), curvature, rtol=1e-4, atol=0)
    assert torch.equal(gpu(w, SIGMA), gpu(w, SIGMA))
    plan = recipe(folder, tmp_path / "t.safetensors", device="cuda", precision="bfloat16", steps=6)
    assert math.isfinite(train(plan)["final_loss"])


def test_full_precision_leaves_the_settings_as_they_were() -> None:
    conv = getattr(torch.backends.cudnn, "conv", None)

    def settings() -> tuple[object, bool]:
        precision = torch.backends.cudnn.allow_tf32 if conv is None else conv.fp32_precision
        return precision, torch.backends.cudnn.deterministic

    before = settings()
    with full_precision():
        assert settings() == ((False, True) if conv is None else ("ieee", True))
    assert settings() == before


def test_it_is_a_network_denoiser() -> None:
    """What takes one of those takes this."""
    d = denoiser(network(curvature=None))
    assert isinstance(d, NetworkDenoiser)
    assert "relaxation=1" in repr(d)
