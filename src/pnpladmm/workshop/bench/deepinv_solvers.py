"""deepinv's Plug & Play methods on our problems, with its operator and its DRUNet class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.building import read_network
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.shipped import weight_file
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Annealed, Problem
from pnpladmm.workshop.bench.rivals import Missing, deepinv_physics, load_deepinv


def deepinv_drunet(name_or_file: str, device: torch.device) -> Any:
    """deepinv's DRUNet with our weights, in float32 and contiguous. The names in the weight files are the same."""
    deepinv = load_deepinv()
    path = weight_file(name_or_file)
    if path.suffix not in (".safetensors", ".pth", ".pt") or not path.is_file():
        raise Missing(f"{path.stem} has no weight file")
    network = read_network(path)
    if not isinstance(network, DRUNet):
        raise Missing(f"{path.stem} is no DRUNet, and deepinv has no other class for it")
    widths = [
        network.m_head.out_channels,
        *(_outer(down) for down in (network.m_down1, network.m_down2, network.m_down3)),
    ]
    model = deepinv.models.DRUNet(
        network.channels, network.channels, nc=widths, nb=len(network.m_body), pretrained=None, device=device
    )
    model.load_state_dict(network.state_dict())
    return model.to(device).eval()


def dpir(problem: Problem, sigma: float, denoiser: Any) -> Callable[[], Tensor]:
    """deepinv's `DPIR` with its own settings: half-quadratic splitting, 8 calls, sigma from 49/255 to the noise.

    The data step is its conjugate gradient (at most 50 iterations, tolerance 1e-4) on its operator, `use_fft`.
    """
    deepinv = load_deepinv()
    physics = _physics(problem)
    model = deepinv.optim.DPIR(sigma=sigma, denoiser=denoiser, device=problem.observed.device)
    return _quietly(lambda: model(problem.observed, physics))


def half_quadratic(problem: Problem, sigma: float, method: Annealed, denoiser: Denoiser) -> Callable[[], Tensor]:
    """deepinv's `HQS` with the noise levels and data weights of our annealed schedule: its code of the same scheme."""
    deepinv = load_deepinv()
    physics = _physics(problem)
    levels = [float(method.sigma_at(k).reshape(-1)[0]) for k in range(method.calls)]
    mu = float(torch.as_tensor(method.mu).reshape(-1)[0])
    steps = [level**2 / (mu * sigma**2) for level in levels]
    model = deepinv.optim.optim_builder(
        "HQS",
        max_iter=method.calls,
        data_fidelity=deepinv.optim.L2(),
        prior=deepinv.optim.PnP(denoiser=denoiser),
        early_stop=False,
        params_algo={"stepsize": steps, "g_param": levels},
    )
    return _quietly(lambda: model(problem.observed, physics, init=problem.observed))


def _physics(problem: Problem) -> Any:
    if not isinstance(problem.operator, SpatiallyVaryingBlur):
        raise Missing("the operator of the problem is not a blur")
    kernels, weights = (t.to(problem.observed) for t in (problem.operator.kernels, problem.operator.weights))
    blur = SpatiallyVaryingBlur(kernels, weights[:, :, 0], problem.operator.boundary, problem.operator.order)
    return deepinv_physics(blur, use_fft=True)


def _quietly(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def call() -> Tensor:
        with torch.no_grad():
            return run()

    return call


def _outer(down: Any) -> int:
    """Channels after the strided convolution at the end of a resolution."""
    return int(down[-1].out_channels)
