"""Gradient-step denoisers: the step is a gradient, it is a proximal operator, and its network comes from a file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import skimage.data
import torch
from torch import Tensor

import pnpladmm as pl
from gradient_step_cases import SIGMA, denoiser, network, pictures
from pnpladmm.denoisers import shipped
from pnpladmm.denoisers.building import multiply_adds_per_pixel, read_network
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.loading import load_network
from pnpladmm.denoisers.network import NetworkDenoiser, full_precision
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tensors import InputError, squared_norm
from pnpladmm.workshop.training.checkpoint import write_weights

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
    here = net.linearise(x, sigma, inside, counted=kept, products=True)
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
        assert len(tiled._input(x, torch.tensor([SIGMA])).tiles(144)) == 5
        torch.testing.assert_close(tiled(x, SIGMA), whole(x, SIGMA), rtol=0, atol=1e-13)
        assert float(tiled.energy(x, SIGMA)) == pytest.approx(float(whole.energy(x, SIGMA)), rel=1e-12)
    assert float(tiled.curvature(x, SIGMA, 3)) == pytest.approx(float(whole.curvature(x, SIGMA, 3)), rel=1e-10)


def test_full_precision_leaves_the_settings_as_they_were() -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    conv = getattr(cudnn, "conv", None)

    def settings() -> tuple[object, object, bool]:
        if conv is None:
            return cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic
        return conv.fp32_precision, matmul.fp32_precision, cudnn.deterministic

    exact = False if conv is None else "ieee"
    chosen = True if conv is None else "tf32"
    name = "allow_tf32" if conv is None else "fp32_precision"
    begin = getattr(matmul, name)
    try:
        setattr(matmul, name, chosen)  # as a user may have
        before = settings()
        with full_precision():
            assert settings() == (exact, exact, True)
        assert settings() == before
    finally:
        setattr(matmul, name, begin)


def test_it_is_a_network_denoiser() -> None:
    """What takes one of those takes this."""
    d = denoiser(network(curvature=None))
    assert isinstance(d, NetworkDenoiser)
    assert "relaxation=1" in repr(d)


# --- the step is a proximal operator where the Hessian is below 1 ------------------------------------------------


def objective(d: GradientStepDenoiser, w: Tensor, v: Tensor) -> Tensor:
    """`1/2 ||x - v||^2 + phi(x)` at `x = D(w)`: `phi` is known on the image of `D` only."""
    x = d(w, SIGMA)
    phi = d.prior(x, w, SIGMA)
    assert phi is not None
    return squared_norm(x - v) / 2 + phi


@pytest.mark.parametrize("relaxation", [1.0, 0.6])
def test_the_step_minimises_its_proximal_problem(relaxation: float) -> None:
    assert_minimises(denoiser(network(size=16), relaxation=relaxation), pictures(size=16))


def test_the_shipped_weights_minimise_theirs() -> None:
    """On a piece of a photograph with noise."""
    d = load_network("prox-drunet", device="cpu", precision=torch.float64)
    assert isinstance(d, GradientStepDenoiser)
    x = torch.from_numpy(skimage.data.astronaut()[80:112, 200:232] / 255).permute(2, 0, 1)[None]
    assert_minimises(d, x + SIGMA * torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0)))


def assert_minimises(d: GradientStepDenoiser, v: Tensor) -> None:
    """`D(v)` against 100 others, from near to far."""
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
    d(v, SIGMA)
    v += 0.01
    assert float(d.energy(v, SIGMA)) == float(denoiser(d._smooth[1]).energy(v, SIGMA))
    d(v, SIGMA)
    assert float(d.energy(v, 2 * SIGMA)) == float(denoiser(d._smooth[1]).energy(v, 2 * SIGMA))


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

    monkeypatch.setattr(shipped, "WEIGHTS_FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "LARGE_WEIGHTS", "no_such_package")
    with pytest.raises(InputError, match=r"not installed: .*--network prox-drunet") as refused:
        pl.load_denoiser("prox-drunet")
    assert "\n" not in str(refused.value)
    write_weights(tmp_path / "prox_drunet_color.safetensors", net.state_dict(), {})
    assert isinstance(pl.load_denoiser("prox-drunet"), GradientStepDenoiser)
