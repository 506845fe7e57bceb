"""Two of deepinv's examples with our methods beside its own: PSNR and seconds.

    python benchmarks/deepinv/examples.py tv|dpir [--size 128] [--repeats 3]

`demo_TV_minimisation` (noise 0.05, TV prior, proximal gradient, at most 300 iterations) and `demo_PnP_DPIR_deblur`
(noise 0.03, half-quadratic splitting, 8 denoiser calls), with the examples' own settings, operator (`BlurFFT`) and
kernel. Their pictures and weights are downloads. Here the pictures are scikit-image's, and DPIR has our `drunet` in
deepinv's own class. The time is that of the processor; use one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.blur import motion
from pnpladmm.deepinv import load_deepinv, to_reconstructor
from pnpladmm.workshop.bench.deepinv_solvers import deepinv_drunet

KERNELS = Path(__file__).parents[3] / "shared" / "kernels" / "Levin09.mat"
NOISE = {"tv": 0.05, "dpir": 0.03}


def pictures(size: int) -> Tensor:
    """The middle of three photographs, (3, 3, size, size)."""
    found = []
    for photograph in (skimage.data.astronaut(), skimage.data.coffee(), skimage.data.chelsea()):
        top, left = ((n - 2 * size) // 2 for n in photograph.shape[:2])
        crop = photograph[top : top + 2 * size, left : left + 2 * size].astype(np.float32) / 255
        found.append(torch.from_numpy(crop.reshape(size, 2, size, 2, 3).mean((1, 3))).permute(2, 0, 1))
    return torch.stack(found)


def kernel(size: int) -> Tensor:
    """(1, 1, k, k): the second of Levin's kernels as in the example; a straight motion where its file is not there."""
    if KERNELS.exists():
        return pl.read_blur(KERNELS, (size, size), index=1).kernels[:1].flatten(0, -3)[:1, None].float()
    return motion(15, 30)[None, None].float()


def best_time(run: Callable[[], Tensor], repeats: int) -> tuple[Tensor, float]:
    """The result and the shortest time, after one call that does not count."""
    result, seconds = run(), []
    for _ in range(repeats):
        began = time.process_time()
        result = run()
        seconds.append(time.process_time() - began)
    return result, min(seconds)


def their_tv(deepinv: Any, noise: float) -> Any:
    """The method of `demo_TV_minimisation`, with its settings."""
    prior, fit = deepinv.optim.prior.TVPrior(n_it_max=20), deepinv.optim.L2()
    options = {"stepsize": 1.0, "lambda_reg": 1e-2, "early_stop": True, "max_iter": 300}
    return deepinv.optim.PGD(prior=prior, data_fidelity=fit, **options).eval()


def their_dpir(deepinv: Any, noise: float) -> Any:
    """The method of `demo_PnP_DPIR_deblur`, with its settings."""
    levels, steps, calls = deepinv.optim.dpir.get_DPIR_params(noise, device="cpu")
    prior = deepinv.optim.PnP(denoiser=deepinv_drunet("drunet", torch.device("cpu")))
    options = {"stepsize": steps, "sigma_denoiser": levels, "early_stop": False, "max_iter": calls}
    return deepinv.optim.HQS(prior=prior, data_fidelity=deepinv.optim.L2(), **options).eval()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("example", choices=NOISE)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    deepinv = load_deepinv()
    torch.manual_seed(0)
    x, level = pictures(options.size), NOISE[options.example]
    noise = deepinv.physics.GaussianNoise(sigma=level)
    physics = deepinv.physics.BlurFFT(img_size=tuple(x.shape[1:]), filter=kernel(options.size), noise_model=noise)
    y = physics(x)
    theirs = {"tv": their_tv, "dpir": their_dpir}[options.example](deepinv, level)
    models = {
        f"deepinv, its example {options.example}": theirs,
        "pnpladmm fast, light, 8 calls": to_reconstructor("fast", "light"),
    }
    if options.example == "dpir":
        models["pnpladmm fast, drunet, 8 calls"] = to_reconstructor("fast", "drunet")
    score = deepinv.metric.PSNR()
    print(
        f"{'':34} {'PSNR (dB)':>10} {'seconds':>8}   {len(x)} pictures of {options.size}x{options.size}, noise {level}"
    )
    print(f"{'blurred':34} {float(score(y, x).mean()):10.2f}")
    for name, model in models.items():
        with torch.no_grad():
            restored, seconds = best_time(lambda model=model: model(y, physics), options.repeats)
        print(f"{name:34} {float(score(restored, x).mean()):10.2f} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
