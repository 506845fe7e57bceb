"""The demonstration: a picture that ships with scikit-image, four kinds of blur, one restoration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import common_size, defocus, gaussian, motion, soft_regions
from pnpladmm.blur.drawing import draw_blur
from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers import Promise, load_denoiser, promise_of
from pnpladmm.metrics import psnr
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.pictures import write_png
from pnpladmm.report import write_report
from pnpladmm.solvers import LADMM, Problem, Result, solve
from pnpladmm.solvers.loop import Callback

SIZE = 256
NOISE = 4 / 255
SEED = 0


@dataclass(frozen=True)
class Demo:
    """The sharp scene (larger than the picture by the kernels' reach), the problem, and the blur."""

    scene: Tensor
    problem: Problem
    blur: SpatiallyVaryingBlur

    @property
    def sharp(self) -> Tensor:
        """What lies under the observation."""
        return self.problem.observed_part(self.scene)


def make_demo(size: int = SIZE, noise: float = NOISE) -> Demo:
    """Blur a crop of the astronaut: motion, Gaussian, defocus, and motion the other way, with soft seams.

    The boundary is `unknown`: the light that enters from outside the picture is the real scene's.
    """
    import skimage.data

    kernels = common_size([motion(15, 30), gaussian((3.5, 1.2), 120), defocus(4.5), motion(11, 100)])
    blur = SpatiallyVaryingBlur(kernels, soft_regions(_regions(size), feather=size / 60), boundary="unknown")
    side = blur.scene[0]
    pixels = skimage.data.astronaut()[5 : 5 + side, 95 : 95 + side]
    scene = torch.from_numpy(pixels / 255).permute(2, 0, 1).float()[None]
    generator = torch.Generator().manual_seed(SEED)
    blurred = blur.forward(scene)
    observed = blurred + noise * torch.randn(blurred.shape, generator=generator)
    return Demo(scene, Problem(observed, blur, Gaussian(noise)), blur)


def demo_method(demo: Demo, denoiser_name: str) -> LADMM:
    """LADMM with settings that suit the denoiser."""
    denoiser = load_denoiser(denoiser_name)
    norm = float(demo.problem.norm_squared.upper)
    convex = promise_of(denoiser) is Promise.CONVEX
    # A convex prior converges for any beta with L_x >= beta ||H||^2; a beta below L_h = 1/sigma^2 is faster.
    sigma_d, beta = (0.038, 0.1 / NOISE**2) if convex else (8 / 255, 0.0625 / NOISE**2)
    return LADMM(denoiser, sigma_d, beta=beta, L_x=1.001 * beta * norm)


def run_demo(
    folder: Path, denoiser: str = "light", iterations: int = 40, callback: Callback | None = None
) -> tuple[Result, dict[str, Any]]:
    """Blur, restore, and write pictures and report into `folder`; returns the result and the figures."""
    demo = make_demo()
    method = demo_method(demo, denoiser)
    result = solve(demo.problem, method, iterations, 1e-4, reference=demo.sharp, callback=callback)
    restored = demo.problem.observed_part(result.image)
    figures = {
        "PSNR of the blurred picture (dB)": float(psnr(demo.problem.observed, demo.sharp)),
        "PSNR of the restored picture (dB)": float(psnr(restored, demo.sharp)),
    }
    write_png(folder / "sharp.png", demo.sharp)
    write_png(folder / "blurred.png", demo.problem.observed)
    write_png(folder / "restored.png", restored)
    write_png(folder / "before_after.png", torch.cat([demo.problem.observed, restored], dim=-1))
    draw_blur(demo.blur, folder / "blur.png")
    pictures = {
        f"Blurred, noise {NOISE * 255:.0f} of 255": folder / "blurred.png",
        f"Restored with LADMM and {denoiser}": folder / "restored.png",
        "The blur: kernels over the maps of where they act": folder / "blur.png",
    }
    write_report(folder, demo.problem, result, pictures, "pnpladmm demo", {"denoiser": denoiser, **figures})
    return result, figures


def _regions(size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Four regions meeting off the middle, with bent borders."""
    y, x = np.mgrid[0:size, 0:size] / size
    right = x > 0.5 + 0.08 * np.sin(2 * np.pi * y)
    below = y > 0.52 + 0.08 * np.sin(2 * np.pi * x)
    return (2 * below + right).astype(np.int64)
