"""The ridge regulariser: its gradient, its bound, and what follows from it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import pnpladmm as pl
import pnpladmm.denoisers.ridge_step as ridge_step
import pnpladmm.workshop.training.ridge as training
from certificate_cases import random_ridge
from conftest import picture
from pnpladmm.denoisers import RidgeDenoiser, RidgeNet
from pnpladmm.denoisers.building import build_network, read_network
from pnpladmm.denoisers.filter_bound import largest_on_grid, spectrum_bound
from pnpladmm.denoisers.loading import load_network
from pnpladmm.denoisers.ridge import KNOTS, LEVELS, extended, folded, slopes_of, spline_and_energy, spline_table
from pnpladmm.denoisers.shipped import weight_files
from pnpladmm.tensor_files import read_tensors, write_tensors
from pnpladmm.workshop.training import scenes
from pnpladmm.workshop.training.loop import train
from pnpladmm.workshop.training.plan import Plan
from scene_cases import check_gradient

SIGMA = 0.05
SIZES = ((1, 1), (2, 3), (4, 4), (5, 9), (8, 8))


def made(channels: int = 1, seed: int = 0, orbits: int = 3, side: int = 5) -> tuple[RidgeNet, RidgeDenoiser]:
    net = random_ridge(channels, seed, orbits, side)
    return net, RidgeDenoiser({channels: net})


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hessian(denoiser: RidgeDenoiser, x: Tensor, sigma: float, step: float = 1e-7) -> Tensor:
    """Dense, by central differences of the gradient, which is linear but for its kinks."""
    units = torch.eye(x.numel(), dtype=torch.float64).reshape(-1, *x.shape[1:])
    high, low = (denoiser.gradient(x + sign * step * units, sigma) for sign in (1, -1))
    return ((high - low) / (2 * step)).reshape(x.numel(), -1).T


def test_gradient_is_that_of_the_energy_and_the_hessian_is_symmetric() -> None:
    for channels, size in ((1, (7, 6)), (3, (4, 9))):
        _, d = made(channels)
        x, direction = 0.2 * normal(1, channels, *size), normal(1, channels, *size, seed=1)
        slope = float((d.gradient(x, SIGMA) * direction).sum())
        by_differences = (d.energy(x + 1e-6 * direction, SIGMA) - d.energy(x - 1e-6 * direction, SIGMA)) / 2e-6
        assert float(by_differences) == pytest.approx(slope, rel=1e-7)
        H = hessian(d, x, SIGMA)
        assert float((H - H.T).abs().max()) < 1e-7
        assert float(d.energy(x, SIGMA)) > 0


def test_splines_are_the_sums_they_are_said_to_be() -> None:
    values = normal(4, len(KNOTS) - 1).abs()
    t = torch.linspace(-20, 20, 4001, dtype=torch.float64).expand(1, 4, 1, -1).contiguous()
    phi, psi = spline_and_energy(t, spline_table(slopes_of(values)))
    expected = np.stack([np.interp(t[0, 0, 0].abs().numpy(), KNOTS, [0.0, *row]) for row in values.numpy()])
    expected *= np.sign(t[0, 0, 0].numpy())
    np.testing.assert_allclose(phi[0, :, 0].numpy(), expected, atol=1e-12)
    # the trapezoidal rule is exact on a grid that has all knots
    integral = np.trapezoid(expected[:, 2000:], t[0, 0, 0, 2000:].numpy(), axis=1)
    far = spline_and_energy(torch.full((1, 4, 1, 1), 20.0, dtype=torch.float64), spline_table(slopes_of(values)))[1]
    np.testing.assert_allclose(far[0].numpy(), integral, rtol=1e-10)
    assert psi.shape == (1, 4)


def test_mirror_images_and_their_adjoint() -> None:
    x, y = normal(1, 2, 3, 5), normal(1, 2, 11, 13, seed=1)
    expected = np.pad(x.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="symmetric")
    np.testing.assert_array_equal(extended(x, 4).numpy(), expected)
    assert float((extended(x, 4) * y).sum()) == pytest.approx(float((x * folded(y, 4)).sum()), rel=1e-12)


def test_the_bound_holds_for_dense_hessians_of_all_sizes() -> None:
    """At random pictures, and where all splines are steepest, which is the worst case of the bound."""
    for channels, sizes in ((1, SIZES), (3, SIZES[:3])):
        for seed in range(2):
            net, d = made(channels, seed)
            low, high = net.bounds()
            for size in sizes:
                for scale in (1e-9, 0.05, 1.0):
                    values = torch.linalg.eigvalsh(hessian(d, scale * normal(1, channels, *size), 20 / 255, 1e-10))
                    assert low - 1e-5 <= float(values[0])
                    assert float(values[-1]) <= high + 1e-5


def test_the_bound_is_close() -> None:
    """A quadratic regulariser reaches its bound on a picture that holds the worst frequency."""
    net, _ = made(1)
    with torch.no_grad():
        net.values.copy_(torch.tensor(KNOTS[1:]).expand_as(net.values))  # slope 1 everywhere
    net.load_state_dict(net.finished())
    H = hessian(RidgeDenoiser({1: net}), torch.zeros(1, 1, 24, 24, dtype=torch.float64), 20 / 255)
    top = max(float(torch.linalg.eigvalsh(H)[-1]), 0.0)
    bounds = spectrum_bound(*(p.detach().double() for p in (net.filters, net.shares)))
    place = math.log2(20 / LEVELS[0])
    rest = place % 1
    at_20 = float((1 - rest) * bounds[int(place)] + rest * bounds[int(place) + 1])
    assert 0.9 * at_20 < top <= at_20 * (1 + 1e-6)


def test_the_bound_of_the_spectrum_covers_what_lies_between_the_grid() -> None:
    for seed in range(4):
        filters, weights = normal(3, 2, 5, 5, seed=seed), normal(3, 2, seed=seed + 9).abs()
        fine = largest_on_grid(filters, weights, 1021)  # a prime: hardly any point is on the other grids
        for points in (9, 16, 64):
            bound = spectrum_bound(filters, weights, points)
            assert bool((bound >= fine).all())
        assert bool((bound < 1.05 * fine).all())
    with pytest.raises(ValueError, match="8 grid points"):
        spectrum_bound(filters, weights, 8)


def test_random_directions() -> None:
    """`<grad g(v + d) - grad g(v), d>` lies between the bounds times `||d||^2`."""
    for channels in (1, 3):
        net, _ = made(channels, seed=5)
        low, high = net.bounds()
        ready = net.double().eval().prepared()
        with torch.no_grad():
            for part in range(5):
                v = 0.3 * normal(200, channels, 8, 8, seed=part)
                sigma = torch.logspace(-3, -0.5, 200, dtype=torch.float64)
                d = normal(200, channels, 8, 8, seed=part + 50) * torch.logspace(-3, 0, 200)[:, None, None, None]
                change = ready.gradient(v + d, *ready.at(sigma)) - ready.gradient(v, *ready.at(sigma))
                quotient = (change * d).sum((1, 2, 3)) / d.square().sum((1, 2, 3))
                assert low <= float(quotient.min())
                assert float(quotient.max()) <= high


def test_it_is_the_proximal_operator_of_its_prior() -> None:
    """`D(v)` has the least `1/2 ||x - v||^2 + phi(x)` among all pictures whose prior is known."""
    _, d = made(1, seed=2)
    points = [scale * normal(1, 1, 6, 7, seed=i) for i in range(8) for scale in (0.02, 0.2)]
    results = [d(v, SIGMA) for v in points]
    priors = [float(d.prior(x, v, SIGMA)) for x, v in zip(results, points, strict=True)]  # type: ignore[arg-type]
    assert min(priors) >= 0
    for v, x, phi in zip(points, results, priors, strict=True):
        own = float((x - v).square().sum()) / 2 + phi
        others = [float((y - v).square().sum()) / 2 + p for y, p in zip(results, priors, strict=True)]
        assert own <= min(others) + 1e-12


def test_a_file_whose_bound_does_not_hold_is_refused_with_the_number(tmp_path: Path) -> None:
    net, _ = made(1)
    state = net.finished()
    path = tmp_path / "ridge.safetensors"
    write_tensors(path, dict(state), {})
    assert read_network(path).channels == 1
    found = pl.load_denoiser(path)
    assert pl.Promise.PROX is found.promise  # type: ignore[attr-defined]
    too_much = 1.25 / net.bounds()[1]
    write_tensors(path, {**state, "shares": too_much * state["shares"]}, {})
    with pytest.raises(pl.InputError, match=r"ridge.safetensors: the curvature bound of these weights is 1\.25, above"):
        pl.load_denoiser(path)
    for name in ("shares", "values"):
        with pytest.raises(pl.InputError, match=f"{name} has -0.5"):
            build_network({**state, name: torch.full_like(state[name], -0.5)})
    with pytest.raises(pl.InputError, match="not finite"):
        build_network({**state, "scales": state["scales"] * math.nan})
    with pytest.raises(pl.InputError, match="not those of a ridge"):
        build_network({**state, "filters": torch.zeros(3, 1, 4, 4)})
    write_tensors(path, dict(state), {})
    with pytest.raises(pl.InputError, match="relaxation is for gradient steps"):
        load_network(path, relaxation=0.5)


def test_strips_batches_and_sigmas_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, d = made(1)
    x, sigma = normal(3, 1, 13, 6), torch.tensor([0.02, 0.0, 0.1], dtype=torch.float64)
    whole, energy = d(x, sigma), d.energy(x, sigma)
    assert torch.equal(whole[1], x[1])
    assert float(energy[1]) == 0
    monkeypatch.setattr(ridge_step, "CPU_SAMPLES", 150)
    fresh = RidgeDenoiser({1: made(1)[0]})
    assert float((fresh(x, sigma) - whole).abs().max()) < 1e-13
    for i in (0, 2):
        assert torch.equal(fresh(x[i : i + 1], float(sigma[i])), fresh(x, sigma)[i : i + 1])


def test_pictures_with_other_numbers_of_channels() -> None:
    _, grey = made(1)
    x = normal(2, 2, 6, 6)
    planes = torch.cat([grey(x[:, i : i + 1], SIGMA) for i in range(2)], 1)
    assert float((grey(x, SIGMA) - planes).abs().max()) < 1e-15
    _, colour = made(3)
    H = hessian(colour, 0.1 * normal(1, 1, 5, 5), SIGMA)  # copies of one channel: still a gradient, still bounded
    assert float((H - H.T).abs().max()) < 1e-7
    assert float(torch.linalg.eigvalsh(H)[-1]) <= 1
    with pytest.raises(pl.InputError, match="non-empty"):
        grey(torch.zeros(1, 1, 0, 4), SIGMA)


def test_scale() -> None:
    net, d = made(1)
    counts = RidgeDenoiser({1: net}, scale=65535)
    x = normal(1, 1, 6, 6)
    assert float((counts(65535 * x, 65535 * SIGMA) / 65535 - d(x, SIGMA)).abs().max()) < 1e-12
    assert float(counts.energy(65535 * x, 65535 * SIGMA)) == pytest.approx(65535**2 * float(d.energy(x, SIGMA)))


def test_runs_are_proved() -> None:
    _, d = made(1)
    sharp = picture(20).expand(1, 1, -1, -1)
    blur = pl.SpatiallyVaryingBlur(torch.ones(1, 3, 3, dtype=torch.float64) / 9, torch.ones(1, 20, 20).double())
    problem = pl.Problem(blur.forward(sharp) + 0.03 * normal(1, 1, 20, 20), blur, pl.Gaussian(0.03))
    for denoiser in (d, pl.relaxed(d, 0.5)):
        result = pl.solve(problem, pl.LADMM.certified(denoiser, problem, 0.04), 40, tolerance=0)
        assert result.certificate.level is pl.Level.PROVED
        assert result.history.lagrangian is not None
        lagrangian = result.history.lagrangian[1:, 0]
        assert bool((lagrangian.diff() <= 1e-12 * lagrangian[1:].abs()).all())


def test_shipped_weights() -> None:
    d = pl.load_denoiser("ridge")
    assert isinstance(d, RidgeDenoiser)
    assert d.channels == (1, 3)
    low, high = d.bounds
    assert 0.9 < high <= 1
    assert -1.01 < low < 0
    clean = picture(48).expand(1, 3, -1, -1).float()
    noisy = clean + 25 / 255 * normal(1, 3, 48, 48).float()
    tv = pl.load_denoiser("tv")
    errors = [float((x - clean).square().mean()) for x in (d(noisy, 25 / 255), tv(noisy, 25 / 255), noisy)]
    assert errors[0] < errors[2] / 4
    for path in weight_files("ridge").values():
        assert {value.dtype for value in read_tensors(path)[0].values()} == {torch.float32}


def test_training_writes_weights_that_hold(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(folder / "a.png")
    plan = Plan(
        folder, tmp_path / "w.safetensors", network="ridge", steps=4, batch=4, crop=24, widths=(2,), channels=1,
        log_steps=2, learning_rate=0.05, checkpoint_seconds=1e-9,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.RidgeTraining, "forward_steps", 3)
        patch.setattr(training.RidgeTraining, "backward_steps", 2)
        patch.setattr(scenes, "KERNELS", 32)
        card = train(plan)
    assert card["curvature"][1] <= 1
    assert set(card["learned_settings"]) == {"1", "10", "20", "40"}
    assert pl.load_denoiser(plan.out).promise is pl.Promise.PROX  # type: ignore[attr-defined]
    with pytest.raises(pl.InputError, match="precision = float16"):
        Plan(folder, plan.out, network="ridge", steps=1, precision="float16")


def test_training_in_the_loop_has_the_gradient_of_the_fixed_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 24), dtype=np.uint8)).save(tmp_path / "a.png")
    monkeypatch.setattr(training.RidgeTraining, "forward_steps", 150)
    monkeypatch.setattr(training.RidgeTraining, "backward_steps", 150)
    plan = Plan(tmp_path, tmp_path / "w.safetensors", network="ridge", steps=1, crop=24, widths=(2,), channels=1)
    loop = training.RidgeTraining(plan)
    net = loop.ridge.double()
    with torch.no_grad():
        net.shares *= 1.5  # away from the kink where the bound is 1
        net.values += 0.3 * normal(*net.values.shape).abs()
    loop.schedule.data = loop.schedule.data.double()
    parameters = [net.filters, net.values, net.scales, net.shares, loop.schedule]
    check_gradient(loop, parameters, 0.5, 9, rel=1e-3)  # kinks
