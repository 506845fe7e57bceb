"""deepinv's example `demo_PnP_DPIR_deblur` with our methods beside its own: PSNR and seconds.

    python benchmarks/deepinv/dpir_example.py [--size 128] [--repeats 3]

As in the example: a motion blur by Levin et al., `BlurFFT`, noise 0.03, DPIR (half-quadratic splitting, 8 calls). The
example's pictures and weights are downloads. Here the pictures are scikit-image's, and the network is our `drunet`, in
deepinv's own class for its method.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import skimage.data
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.blur import motion
from pnpladmm.deepinv import load_deepinv, to_reconstructor
from pnpladmm.workshop.bench.deepinv_solvers import deepinv_drunet

KERNELS = Path(__file__).parents[3] / "shared" / "kernels" / "Levin09.mat"
NOISE = 0.03


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
        began = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - began)
    return result, min(seconds)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    deepinv = load_deepinv()
    torch.manual_seed(0)
    x = pictures(options.size)
    noise = deepinv.physics.GaussianNoise(sigma=NOISE)
    physics = deepinv.physics.BlurFFT(img_size=tuple(x.shape[1:]), filter=kernel(options.size), noise_model=noise)
    y = physics(x)
    levels, steps, calls = deepinv.optim.dpir.get_DPIR_params(NOISE, device="cpu")
    dpir = deepinv.optim.HQS(
        prior=deepinv.optim.PnP(denoiser=deepinv_drunet("drunet", torch.device("cpu"))),
        data_fidelity=deepinv.optim.L2(),
        stepsize=steps,
        sigma_denoiser=levels,
        early_stop=False,
        max_iter=calls,
    ).eval()
    models = {
        f"deepinv DPIR, drunet, {calls} calls": dpir,
        "pnpladmm fast, drunet, 8 calls": to_reconstructor("fast", "drunet"),
        "pnpladmm fast, light, 8 calls": to_reconstructor("fast", "light"),
    }
    score = deepinv.metric.PSNR()
    print(f"{'':34} {'PSNR (dB)':>10} {'seconds':>8}   {len(x)} pictures of {options.size}x{options.size}")
    print(f"{'blurred':34} {float(score(y, x).mean()):10.2f}")
    for name, model in models.items():
        with torch.no_grad():
            restored, seconds = best_time(lambda model=model: model(y, physics), options.repeats)
        print(f"{name:34} {float(score(restored, x).mean()):10.2f} {seconds:8.2f}")


if __name__ == "__main__":
    main()
