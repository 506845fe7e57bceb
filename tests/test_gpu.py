"""What holds on the CPU holds on a GPU: operators, data terms, the loop, the shipped network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.denoisers import TotalVariation
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.solvers import Progress, Workspace, workspace
from pnpladmm.solvers.annealed import AnnealedState
from pnpladmm.solvers.cuda_graph import RecordedDescents, RecordedProcedure
from pnpladmm.solvers.data_step import DataStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIGMA = 0.05


def blur(order: str = "convolve-then-weight", boundary: str = "reflect") -> pl.SpatiallyVaryingBlur:
    generator = torch.Generator().manual_seed(0)
    kernels = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64)
    weights = torch.rand(3, 40, 36, generator=generator, dtype=torch.float64)
    return pl.SpatiallyVaryingBlur(
        kernels / kernels.sum((1, 2), keepdim=True), weights / weights.sum(0), boundary, order
    )


def test_operators_agree_with_the_cpu() -> None:
    for order in ("convolve-then-weight", "weight-then-convolve"):
        for boundary in ("circular", "replicate", "reflect", "zero"):
            operator = pl.Decimation(2) @ blur(order, boundary)
            x = torch.rand(2, 3, 40, 36, dtype=torch.float64)
            y = operator.forward(x)
            torch.testing.assert_close(operator.forward(x.cuda()).cpu(), y, atol=1e-12, rtol=0)
            torch.testing.assert_close(operator.adjoint(y.cuda()).cpu(), operator.adjoint(y), atol=1e-12, rtol=0)


def test_runs_agree_with_the_cpu() -> None:
    """Per-picture parameters, frozen pictures and certificates included."""
    operator = blur()
    x = torch.rand(2, 1, 40, 36, dtype=torch.float64)
    y = operator.forward(x)
    images, levels, statuses = [], [], []
    for device in ("cpu", "cuda"):
        sigma = torch.tensor([SIGMA, 2 * SIGMA], dtype=torch.float64, device=device)
        problem = pl.Problem(y.to(device), operator, pl.Gaussian(sigma))
        method = pl.LADMM.certified(TotalVariation(), problem, 0.03)
        result = pl.solve(problem, method, 30, 1e-3, reference=x.to(device))
        images.append(result.image.cpu())
        levels.append([c.level for c in result.certificates])
        statuses.append(result.statuses)
    torch.testing.assert_close(images[0], images[1], atol=1e-8, rtol=0)
    assert levels[0] == levels[1] == [pl.Level.PROVED] * 2
    assert statuses[0] == statuses[1]


def test_other_methods_run() -> None:
    operator = blur()
    y = operator.forward(torch.rand(1, 3, 40, 36, dtype=torch.float64)).float()
    problem = pl.Problem(y.cuda(), operator, pl.Gaussian(SIGMA))
    tv = TotalVariation()
    for method in (pl.ADMM(tv, 0.03, rho=100.0), pl.PrimalDual(tv, 0.03, beta=50.0, L_x=200.0, box=(0, 1)),
                   pl.RichardsonLucy(), pl.FISTA(tv, 0.03, L_x=900.0), pl.Annealed(tv, 0.03)):  # fmt: skip
        image = pl.solve(problem, method, 8, 0).image
        assert image.is_cuda
        assert bool(torch.isfinite(image).all())


def test_restore_with_the_shipped_network_agrees_with_the_cpu() -> None:
    """Half precision inside the network moves the picture by less than a quarter of a grey level."""
    operator = blur()
    y = operator.forward(torch.rand(1, 3, 40, 36, dtype=torch.float64)).float()
    images = [pl.restore(y, operator, SIGMA, device=device).image.cpu() for device in ("cpu", "cuda")]
    assert float((images[0] - images[1]).square().mean().sqrt()) < 0.25 / 255


def segments(pictures: int = 3, size: int = 64, k: int = 9, boundary: str = "circular") -> pl.SpatiallyVaryingBlur:
    """A blur of the paper's kind for each picture, on the CPU: three to five soft stripes, kernels of their own."""
    generator = torch.Generator().manual_seed(1)
    kernels = torch.rand(pictures, 5, k, k, generator=generator, dtype=torch.float64) ** 3
    weights = torch.zeros(pictures, 5, size, size, dtype=torch.float64)
    for b in range(pictures):
        count = (5, 3, 4)[b % 3]
        position = torch.linspace(0, count - 1, size, dtype=torch.float64)
        stripes = (1.5 - (position - torch.arange(count).unsqueeze(1)).abs()).clamp(0, 1)
        weights[b, :count] = stripes.roll(11 * b, 1)[:, None, :]
    return pl.SpatiallyVaryingBlur(
        kernels / kernels.sum((-2, -1), keepdim=True), weights / weights.sum(1, keepdim=True), boundary
    )


@contextmanager
def no_waits() -> Iterator[None]:
    """Whatever waits for the GPU inside is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_batch_of_blurs_agrees_with_the_cpu_and_its_adjoint_is_exact() -> None:
    operator = segments()
    x = torch.rand(3, 3, 64, 64, dtype=torch.float64)
    y = operator.forward(x)
    torch.testing.assert_close(operator.forward(x.cuda()).cpu(), y, atol=1e-12, rtol=0)
    torch.testing.assert_close(operator.adjoint(y.cuda()).cpu(), operator.adjoint(y), atol=1e-12, rtol=0)
    single = operator.forward(x.float().cuda()).cpu().double()
    torch.testing.assert_close(single, y, atol=2e-6, rtol=0)
    on_gpu = pl.SpatiallyVaryingBlur(operator.kernels.squeeze(2).cuda(), operator.weights.squeeze(2).cuda())
    assert pl.check_adjoint(on_gpu, (3, 3, 64, 64)) < 1e-13
    for b in range(3):
        alone = pl.SpatiallyVaryingBlur(operator.kernels[b].squeeze(1), operator.weights[b].squeeze(1))
        torch.testing.assert_close(alone.forward(x[b : b + 1].cuda()).cpu(), y[b : b + 1], atol=1e-12, rtol=0)


def test_operators_do_not_wait() -> None:
    """After the first use, which moves kernels, masks and indices to the GPU."""
    keep = torch.rand(64, 64) > 0.3
    for operator in (
        segments(),
        pl.Decimation(2) @ segments(),
        pl.Mask(keep) @ segments(),
        blur(boundary="replicate"),
        pl.SubsampledTransform((64, 64), 0.4),
        segments(1, 96).compressed(0.3, "cuda"),
    ):
        _, _, h, w = operator.domain or (1, 1, 64, 64)
        x = torch.rand(3, 3, h, w, device="cuda")
        y = operator.forward(x)
        operator.adjoint(y)
        p, a = torch.tensor(40.0, device="cuda"), torch.full((3, 1, 1, 1), 2.0, device="cuda")
        precondition = operator.preconditioner(p, a)
        with no_waits():
            operator.forward(x)
            operator.adjoint(y)
            precondition = operator.preconditioner(p, a)
            if precondition is not None:
                precondition(x)


def test_preconditioned_solves_agree_with_the_cpu() -> None:
    """The GPU filters whole pictures, the CPU boxes: other preconditioners, the same solution."""
    operator = segments()
    x = torch.rand(3, 1, 64, 64, dtype=torch.float64)
    solutions = []
    for device in ("cpu", "cuda"):
        p, a = (
            torch.tensor(400.0, dtype=torch.float64, device=device),
            torch.tensor(9.0, dtype=torch.float64, device=device),
        )
        step = DataStep(operator, p, operator.forward(x).to(device), 200, 1e-13)
        r, s = torch.randn(2, 3, 1, 64, 64, dtype=torch.float64).to(device)
        precondition = operator.preconditioner(p, a)
        left, right = (precondition(r) * s).sum(), (precondition(s) * r).sum()
        assert float(left) == pytest.approx(float(right), rel=1e-11)
        assert bool(((precondition(r) * r).flatten(1).sum(1) > 0).all())
        solutions.append(step.solve(a, torch.zeros_like(x).to(device), x.to(device))[0].cpu())
    torch.testing.assert_close(solutions[0], solutions[1], atol=1e-10, rtol=0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("by_plane", [True, False])
def test_recorded_steps_are_the_steps(by_plane: bool, weighted: bool) -> None:
    """Two problems in turn, with another `a`, another picture and another number of steps each time."""
    problems: list[tuple[pl.Problem, Workspace]] = []
    for boundary in ("circular", "unknown"):
        operator = segments(boundary=boundary)
        y = operator.forward(torch.rand(3, 3, *operator.scene, device="cuda"))
        precision = torch.rand(3, 1, *operator.observed, device="cuda") * 1e4
        problem = pl.Problem(y, operator, pl.WeightedGaussian(precision) if weighted else pl.Gaussian(0.01))
        problems.append((problem, Workspace()))
    for k, steps in enumerate(([9, 5, 2], [6, 6, 3], [1, 1, 1], [12, 4, 4])):
        iterations = torch.tensor([steps] * 3) if by_plane else torch.tensor([steps[0], steps[1], steps[0]])
        a = torch.tensor([2.0, 30.0, 9.0], device="cuda").view(3, 1, 1, 1) * 4**k
        for problem, kept in problems:
            p, planes = problem.precision_for("test"), problem.colour_planes if by_plane else None
            v, z = torch.rand(2, *problem.shape, device="cuda")
            step = DataStep(problem.operator, p, problem.observed, iterations, 1e-9, planes)
            once, again = (step.solve(a, v, z, workspace=used) for used in (None, kept))
            for expected, found in zip(once, again, strict=True):
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    for _, kept in problems:
        (system,) = kept.systems.values()
        assert isinstance(system.prepare, RecordedDescents)
        assert system.prepare.descents
        assert all(step.is_recorded for _, step in system.prepare.descents.values())


def test_a_run_with_recorded_steps_is_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Annealed and ADMM, again and again on one problem: steps are recorded, and no memory is taken anew."""
    operator = segments()
    problem = pl.Problem(operator.forward(torch.rand(3, 3, 64, 64, device="cuda")), operator, pl.Gaussian(0.01))
    tv = TotalVariation()
    recorded: list[bool] = []

    class Watched(pl.Annealed):
        def step_in(self, workspace: Workspace | None, problem: pl.Problem, state: AnnealedState) -> AnnealedState:
            new = super().step_in(workspace, problem, state)
            assert workspace is not None
            recorded.append(bool(workspace.systems))
            return new

    methods = Watched(tv, 0.03, cg_iterations=5), pl.ADMM(tv, 0.03, rho=100.0)
    images = [pl.solve(problem, method, 6, 0).image for method in methods * 2]
    assert recorded
    assert all(recorded)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for method in methods * 3:
        pl.solve(problem, method, 6, 0)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before
    monkeypatch.setattr(workspace, "RECORDED_SAMPLES", 0)
    recorded.clear()
    for image, method in zip(images, methods * 2, strict=True):
        torch.testing.assert_close(image, pl.solve(problem, method, 6, 0).image, rtol=0, atol=1e-5)
    assert not any(recorded)


def test_what_is_recorded_runs_on_what_lies_there() -> None:
    x, runs = torch.zeros(4, device="cuda"), []

    def add() -> None:
        runs.append(1)
        x.add_(torch.ones(4, device="cuda").mul_(2))

    recorded = RecordedProcedure(add, x.device)
    for k in range(5):
        recorded()
        assert x.tolist() == [2.0 * (k + 1)] * 4
    assert recorded.is_recorded
    assert len(runs) == 2
    x.zero_()
    recorded()
    assert x.tolist() == [2.0] * 4


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("name", ["annealed", "fast", "ladmm", "admm"])
def test_the_loop_does_not_wait(name: str, record: bool) -> None:
    """Between the first iterations and the last nothing waits for the GPU: half precision, settings a picture."""
    operator = segments()
    x = torch.rand(3, 3, 64, 64, device="cuda")
    sigma = torch.tensor([0.02, 0.04, 0.08], dtype=torch.float64)
    problem = pl.Problem(operator.forward(x), operator, pl.Gaussian(sigma))
    denoiser = pl.load_denoiser("light", "cuda")
    assert denoiser.precision == torch.float16
    row = {"sigma_d": sigma, "mu": 0.2, "sigma_start": 0.2, "bend": 1.0, "extrapolation": 0.5}
    methods = {
        "fast": pl.Annealed.from_settings(denoiser, problem, row, 8),
        "annealed": pl.Annealed(denoiser, sigma, mu=torch.full((3,), 0.2, dtype=torch.float64), calls=8),
        "ladmm": pl.LADMM(denoiser, sigma, beta=50.0, L_x=torch.tensor([90.0, 80.0, 70.0])),
        "admm": pl.ADMM(denoiser, sigma, rho=100.0),
    }

    def watch(progress: Progress) -> None:
        # The first iterations make what is kept.
        if progress.iteration == 4:
            torch.cuda.set_sync_debug_mode("error")
        if progress.iteration == 8:
            torch.cuda.set_sync_debug_mode("default")

    try:
        result = pl.solve(problem, methods[name], 8, 0, reference=x, callback=watch, record=record)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(result.history) == 8
    assert bool(torch.isfinite(result.image).all())


def test_forty_crops_are_one_call_of_the_network() -> None:
    seen: list[torch.Size] = []

    class Noted(torch.nn.Module):
        stride = 8

        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            seen.append(x.shape)
            return (x * self.gain).to(x.dtype)

    x = torch.rand(40, 3, 256, 256, device="cuda")
    denoiser = NetworkDenoiser({3: Noted()}, device="cuda")
    assert float((denoiser(x, 0.1) - x).abs().max()) < 1e-3
    assert seen == [x.shape]


def test_networks_in_float32_agree_with_the_cpu() -> None:
    """To what float32 allows: TF32 or float16 would be off by 1e-4 and more."""
    x = torch.rand(2, 3, 64, 72, generator=torch.Generator().manual_seed(0))
    on_cpu, on_gpu = (pl.load_denoiser("light", device, torch.float32) for device in ("cpu", "cuda"))
    torch.testing.assert_close(on_gpu(x.cuda(), SIGMA).cpu(), on_cpu(x, SIGMA), atol=1e-5, rtol=0)


def test_compression_on_the_gpu() -> None:
    operator = segments(1, 96)
    on_gpu = pl.SpatiallyVaryingBlur(operator.kernels.squeeze(2).cuda(), operator.weights.squeeze(2).cuda())
    small = on_gpu.compressed(0.3)
    assert small.compression is not None
    x = torch.rand(1, 1, 96, 96, dtype=torch.float64, device="cuda")
    assert float((small.forward(x) - on_gpu.forward(x)).norm() / on_gpu.forward(x).norm()) < 0.3


@pytest.mark.parametrize("method", ["fast", "certified"])
def test_pictures_in_parts_are_restored_on_the_gpu(method, tmp_path):
    pytest.importorskip("zarr")
    from pnpladmm.scale import Settings, restore_large

    y, x = np.mgrid[:330, :340] / 40
    samples = (255 * (0.5 + 0.5 * np.sin(x * y))).clip(0, 255).astype(np.uint8)  # white and black parts: saturated
    np.save(tmp_path / "in.npy", np.stack([samples, samples[::-1], samples[:, ::-1]]))
    np.save(tmp_path / "psf.npy", np.ones((5, 5)) / 25)
    found = []
    for device in ("cpu", "cuda"):
        given = Settings(
            str(tmp_path / "in.npy"), str(tmp_path / "psf.npy"), 0.02, "light", 2, 1.0, True, device, method
        )  # fmt: skip
        restore_large(given, tmp_path / f"{device}.npy", side=320)
        found.append(np.load(tmp_path / f"{device}.npy").astype(int))
    assert np.abs(found[0] - found[1]).max() <= 2


def test_pictures_and_blurs_may_lie_on_the_gpu():
    blur = pl.Blur(torch.ones(1, 5, 5, device="cuda") / 25, torch.ones(1, 300, 300, device="cuda"))
    y = torch.rand(1, 3, 300, 300, generator=torch.Generator().manual_seed(0)).cuda()
    result = pl.restore(y, blur, noise=0.05, iterations=2, device="cuda")
    assert result.image.shape == y.shape
