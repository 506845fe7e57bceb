"""deepinv both ways: operators agree to rounding, methods and denoisers run in each other's place."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture
from pnpladmm import deepinv as adapter
from pnpladmm.operators.base import PhysicsOperator

try:
    deepinv: Any = adapter.load_deepinv()
except Exception as reason:
    pytest.skip(f"deepinv cannot be used here: {reason}", allow_module_level=True)

ROOT = Path(__file__).parent.parent
SIZE = 32
DOUBLE = torch.float64


def kernels(count: int, channels: int = 1, side: int = 5) -> Tensor:
    """Without any symmetry, (P, C, k, k)."""
    bank = torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1), dtype=DOUBLE) ** 3
    return bank / bank.sum((-1, -2), keepdim=True)


def weights(count: int, size: tuple[int, int] = (SIZE, SIZE)) -> Tensor:
    maps = torch.rand(count, *size, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    return maps / maps.sum(0)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)


def our_operators() -> dict[str, tuple[pl.LinearOperator, tuple[int, int, int, int]]]:
    blur = pl.SpatiallyVaryingBlur(kernels(3), weights(3))
    unknown = pl.SpatiallyVaryingBlur(kernels(3, 3), weights(3), "unknown")
    return {
        "blur": (blur, (2, 3, SIZE, SIZE)),
        "blur of an unknown border": (unknown, (1, 3, SIZE + 4, SIZE + 4)),
        "mask": (pl.Mask(weights(1)[0] > 0.5), (1, 1, SIZE, SIZE)),
        "super-resolution": (pl.Decimation(2) @ blur, (1, 1, SIZE, SIZE)),
    }


@pytest.mark.parametrize("name", our_operators())
def test_our_operators_as_their_physics(name: str) -> None:
    operator, shape = our_operators()[name]
    physics = adapter.to_physics(operator, noise=0.1)
    assert isinstance(physics, deepinv.physics.LinearPhysics)
    x = noise(*shape)
    y = physics.A(x)
    torch.testing.assert_close(y, operator.forward(x), rtol=0, atol=0)
    torch.testing.assert_close(physics.A_adjoint(y), operator.adjoint(y), rtol=0, atol=0)
    assert pl.check_adjoint(physics, shape) < 1e-12
    # Their own test of the adjoint, and what they derive of an operator.
    assert float(physics.adjointness_test(x)) < 1e-6 * float(x.square().sum())
    assert float((physics(x) - y).std()) == pytest.approx(0.1, rel=0.1)
    upper = float(operator.norm_squared(shape).upper.max())
    assert float(physics.compute_norm(x, max_iter=50, verbose=False, squared=True)) <= upper * (1 + 1e-6)


def their_blurs() -> dict[str, Any]:
    kinds = deepinv.physics
    bank = kernels(3).transpose(0, 1)[None]  # (1, C, P, k, k)
    single = kernels(1)
    blurs = {
        f"Blur, {padding}": kinds.Blur(single, padding=padding)
        for padding in ("circular", "replicate", "reflect", "valid")
    }
    blurs["Blur for each channel"] = kinds.Blur(kernels(1, 3), padding="circular")
    blurs["BlurFFT"] = kinds.BlurFFT(img_size=(3, SIZE, SIZE), filter=single.float())  # broken by .to(float64)
    for first in (True, False):
        name = "weights first" if first else "weights last"
        maps = weights(3)[None, None]
        blurs[name] = kinds.SpaceVaryingBlur(bank, maps, padding="circular", mask_first=first)
    return blurs


@pytest.mark.parametrize("name", their_blurs())
def test_their_blurs_as_our_operators(name: str) -> None:
    physics = their_blurs()[name]
    dtype = torch.float32 if name == "BlurFFT" else DOUBLE
    if dtype is DOUBLE:
        physics = physics.to(dtype)
    x = noise(2, 3, SIZE, SIZE).to(dtype)
    y = physics.A(x)
    operator = adapter.to_operator(physics, tuple(y.shape))
    assert isinstance(operator, pl.SpatiallyVaryingBlur)  # not the physics as it is
    scale = float(y.norm())
    assert float((operator.forward(x) - y).norm()) < 1e-6 * scale
    back = physics.A_adjoint(y)
    assert float((operator.adjoint(y) - back).norm()) < 1e-6 * float(back.norm())
    assert pl.check_adjoint(operator, tuple(x.shape)) < 1e-12
    assert bool(torch.isfinite(operator.norm_squared(tuple(x.shape)).upper).all())


def test_other_physics_are_used_as_they_are() -> None:
    kinds = deepinv.physics
    for physics in (
        kinds.Downsampling(img_size=(1, SIZE, SIZE), filter="gaussian", factor=2, padding="circular").to(DOUBLE),
        kinds.Tomography(angles=6, img_width=SIZE, circle=False).to(DOUBLE),
    ):
        x = noise(1, 1, SIZE, SIZE)
        y = physics.A(x)
        operator = adapter.to_operator(physics, tuple(y.shape))
        assert isinstance(operator, PhysicsOperator)
        torch.testing.assert_close(operator.forward(x), y, rtol=1e-6, atol=1e-6 * float(y.abs().max()))
        if not isinstance(physics, kinds.Tomography):  # whose adjoint is one of a discretisation of its own
            assert pl.check_adjoint(operator, tuple(x.shape)) < 1e-6


def test_inpainting_is_a_mask_and_as_good() -> None:
    rows = torch.linspace(0, 3, SIZE).double()
    sharp = (0.5 + 0.3 * torch.sin(rows[:, None] + 2 * rows))[None, None].float()
    mask = (torch.rand(1, SIZE, SIZE, generator=torch.Generator().manual_seed(1)) > 0.5).float()
    physics = deepinv.physics.Inpainting((1, SIZE, SIZE), mask=mask)
    y = physics.A(sharp)
    assert isinstance(adapter.to_operator(physics, tuple(y.shape)), pl.Mask)
    theirs = pl.restore(y, physics, noise=0.01).image
    assert torch.equal(theirs, pl.restore(y, pl.Mask(mask), noise=0.01).image)
    assert float((theirs - sharp).square().mean()) < 1e-3  # as it was given, the holes were black: 0.1


def test_a_blur_that_is_another_map_is_not_taken_for_ours() -> None:
    """A subclass may do what it likes: it is compared, and used as it is."""

    class Doubled(deepinv.physics.Blur):  # type: ignore[misc, name-defined]
        def A(self, x: Tensor, **others: Any) -> Tensor:
            return 2 * super().A(x)

    physics = Doubled(kernels(1), padding="circular").to(DOUBLE)
    assert isinstance(adapter.to_operator(physics, (1, 1, SIZE, SIZE)), PhysicsOperator)


def psnr(a: Tensor, b: Tensor) -> float:
    return -10 * float(torch.log10((a.clamp(0, 1) - b).square().mean()))


@pytest.mark.parametrize("padding", ["circular", "valid"])
def test_our_methods_as_their_reconstructor(padding: str) -> None:
    x = picture(64).repeat(1, 3, 1, 1).float()[:1, :3]
    filter = kernels(1).float()
    physics = deepinv.physics.Blur(filter, padding=padding, noise_model=deepinv.physics.GaussianNoise(0.02))
    torch.manual_seed(0)
    y = physics(x)
    model = adapter.to_reconstructor("fast")
    assert isinstance(model, deepinv.models.Reconstructor)
    restored = model(y, physics)
    assert restored.shape == x.shape
    assert restored.dtype == y.dtype
    assert float(model.result.noise) == pytest.approx(0.02)
    inner = (..., slice(4, -4), slice(4, -4))
    blurred = y if padding == "circular" else torch.nn.functional.pad(y, (2, 2, 2, 2))
    assert psnr(restored[inner], x[inner]) > psnr(blurred[inner], x[inner]) + 2
    # The same as restore with our own operator.
    same = pl.restore(y, adapter.to_operator(physics, tuple(y.shape)), noise=0.02)
    torch.testing.assert_close(model.result.image, same.image, rtol=0, atol=1e-6)


def test_certified_runs_in_their_place() -> None:
    x = picture(SIZE)
    physics = deepinv.physics.Blur(kernels(1), padding="circular").to(DOUBLE)
    y = physics.A(x) + 0.02 * noise(*x.shape)
    model = adapter.to_reconstructor("certified", denoiser="tv", noise=0.02, iterations=30)
    restored = model(y, physics)
    assert model.result.certificate.level in (pl.Level.PROVED, pl.Level.CONVEX)
    assert psnr(restored, x) > psnr(y, x)


def test_denoisers_both_ways() -> None:
    x = picture(SIZE)
    ours = adapter.to_denoiser("tv")
    assert isinstance(ours, deepinv.models.Denoiser)
    torch.testing.assert_close(ours(x, torch.tensor([0.1])), pl.load_denoiser("tv")(x, 0.1), rtol=0, atol=1e-7)
    theirs = deepinv.models.TVDenoiser(n_it_max=20)
    np.testing.assert_allclose(
        np.asarray(pl.restore(x, kernels(1)[0, 0], noise=0.05, denoiser=theirs, iterations=2)).shape, x.shape
    )
    # Our denoiser in their algorithm.
    physics = deepinv.physics.Blur(kernels(1), padding="circular").to(DOUBLE)
    y = physics.A(x) + 0.02 * noise(*x.shape)
    prior = deepinv.optim.PnP(denoiser=ours)
    model = deepinv.optim.HQS(
        prior=prior, data_fidelity=deepinv.optim.L2(), stepsize=0.5, sigma_denoiser=0.02, max_iter=5
    )
    assert psnr(model(y, physics), x) > psnr(y, x)


def test_physics_trains_through_our_operator() -> None:
    """Their training asks for gradients through `A`; the gradient of `|A x|^2 / 2` is `A^T A x`."""
    operator = pl.SpatiallyVaryingBlur(kernels(2), weights(2))
    physics = adapter.to_physics(operator)
    x = noise(1, 1, SIZE, SIZE).requires_grad_()
    (physics.A(x).square().sum() / 2).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, operator.adjoint(operator.forward(x.detach())), rtol=1e-10, atol=1e-10)


def test_wrong_things_are_named() -> None:
    with pytest.raises(pl.InputError, match="give an operator of pnpladmm"):
        adapter.to_physics(deepinv.physics.Blur(kernels(1)))
    with pytest.raises(pl.InputError, match="method 'fats': choose one of"):
        adapter.to_reconstructor("fats")(torch.rand(1, 1, 8, 8), deepinv.physics.Denoising())


def test_the_solver_file_has_the_form_of_their_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchopt itself is not needed: it fills in the parameters, then calls these three methods."""
    benchopt = types.ModuleType("benchopt")
    benchopt.BaseSolver = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchopt", benchopt)
    kind = runpy.run_path(str(ROOT / "benchmarks" / "deepinv" / "solvers" / "pnpladmm.py"))["Solver"]
    solver = kind()
    solver.method, solver.denoiser = kind.parameters["method"][0], kind.parameters["denoiser"][0]
    physics = deepinv.physics.Blur(kernels(1).float(), padding="circular")
    solver.set_objective(train_dataset=None, physics=physics)
    solver.run(None)
    y = physics(picture(SIZE).float())
    assert solver.get_result()["model"](y, physics).shape == y.shape
