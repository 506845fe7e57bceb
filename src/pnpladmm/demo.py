"""The demonstration: a picture that ships with scikit-image, four kinds of blur, one restoration."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import common_size, defocus, gaussian, motion, soft_regions
from pnpladmm.blur.drawing import draw_blur
from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers import load_denoiser
from pnpladmm.metrics import psnr
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.pictures import write_png
from pnpladmm.report import Section, write_report
from pnpladmm.restoration import Restoration
from pnpladmm.restoration.network_choice import PROVED
from pnpladmm.restoration.noise import check_residual
from pnpladmm.restoration.one_run import certify_from
from pnpladmm.restoration.progress import progress_bar
from pnpladmm.restore import restore
from pnpladmm.solvers import Problem, Result

SIZE = 256
NOISE = 4 / 255
SEED = 0
ABOUT = "A photograph, blurred by motion, a Gaussian, defocus and another motion in four regions with soft seams."


@dataclass(frozen=True)
class Demo:
    """The sharp scene (larger than the picture by the kernels' reach), the problem, and the blur."""

    scene: Tensor
    problem: Problem
    blur: SpatiallyVaryingBlur

    @property
    def sharp(self) -> Tensor:
        """What lies under the observation."""
        return self.problem.crop_to_observed(self.scene)


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


@dataclass(frozen=True)
class Step:
    """One step of the demonstration: a title, the PSNR in dB, and the run behind it."""

    title: str
    psnr: float
    run: Restoration | None = None


def run_demo(
    folder: Path, denoiser: str | None = None, iterations: int = 20, size: int = SIZE, progress: bool = False
) -> tuple[Step, ...]:
    """Blur a picture, restore it as a user would, then with certified iterations; write pictures and a report.

    Parameters
    ----------
    folder : Path
        Where `sharp.png`, `blurred.png`, `restored.png`, `certified.png`, `before_after.png`, `blur.png` and the report
        are written.
    denoiser : str, optional
        The prior; if None, `restore` chooses, and the certified iterations have `ridge`, which is proved.
    iterations : int
        The largest number of certified iterations.
    size : int
        Side of the picture.
    progress : bool
        Show progress bars.

    Returns
    -------
    tuple of Step
        The blurred picture, the restoration, and the certified iterations after it.
    """
    demo = make_demo(size)
    blurred, blur = demo.problem.observed, demo.blur
    restored = restore(blurred, blur, denoiser=denoiser, progress=progress)
    certified = _certified(restored, denoiser or PROVED, iterations, progress)
    steps = (
        Step("blurred", _quality(blurred, demo)),
        Step("restored", _quality(restored.image, demo), restored),
        Step("certified", _quality(certified.image, demo), certified),
    )
    pictures = {"sharp": demo.sharp, "blurred": blurred, "restored": restored.image, "certified": certified.image}
    pictures["before_after"] = torch.cat([blurred, restored.image], dim=-1)
    for name, picture in pictures.items():
        write_png(folder / f"{name}.png", picture)
    draw_blur(blur, folder / "blur.png")
    _write_report(folder, steps)
    return steps


def _certified(restored: Restoration, denoiser: str, iterations: int, progress: bool) -> Restoration:
    """What `restore(..., certify=iterations)` does after its first part, without doing that part again."""
    problem = restored.problem
    exact = load_denoiser(denoiser, precision=torch.float32)
    with progress_bar("certified", iterations) if progress else nullcontext() as show:
        result = certify_from(restored.state.x, problem, exact, restored.noise, iterations, callback=show)
    image = problem.crop_to_observed(result.image)
    found: dict[str, Any] = {f.name: getattr(result, f.name) for f in fields(Result)}
    return replace(
        restored,
        **found | {"image": image},
        picture=restored.picture.with_pixels(image),
        checks=check_residual(problem, result.image),
    )


def _quality(picture: Tensor, demo: Demo) -> float:
    return float(psnr(picture, demo.sharp))


def _write_report(folder: Path, steps: tuple[Step, ...]) -> None:
    titles = {"restored": "As restore does it", "certified": "Certified iterations after it"}
    calls = {"restored": "pl.restore(blurred, blur)", "certified": "pl.restore(blurred, blur, certify=...)"}
    sections = [
        Section(
            titles[step.title],
            step.run,
            {
                "Blurred and noisy": (folder / "blurred.png").read_bytes(),
                f"After {calls[step.title]}": (folder / f"{step.title}.png").read_bytes(),
                "The sharp picture": (folder / "sharp.png").read_bytes(),
                "The blur: kernels over the maps of where they act": (folder / "blur.png").read_bytes(),
            },
            quality={
                "PSNR of the blurred picture (dB)": steps[0].psnr,
                "PSNR of the restored picture (dB)": step.psnr,
            },
        )
        for step in steps
        if step.run is not None
    ]
    write_report(folder, "pnpladmm demo", sections, f"{ABOUT} Noise of {NOISE * 255:.0f} of 255 was added.")


def _regions(size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Four regions meeting off the middle, with bent borders."""
    y, x = np.mgrid[0:size, 0:size] / size
    right = x > 0.5 + 0.08 * np.sin(2 * np.pi * y)
    below = y > 0.52 + 0.08 * np.sin(2 * np.pi * x)
    return (2 * below + right).astype(np.int64)
