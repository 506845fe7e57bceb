"""Methods on other blurs and pictures than the paper's, to see that nothing was tuned to one protocol.

Each protocol blurs whole pictures by one kernel at a time, with noise of seed 0. PSNR and SSIM are over all pixels.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import as_blur, defocus
from pnpladmm.data_terms import Gaussian
from pnpladmm.metrics import STANDARD, psnr, ssim
from pnpladmm.operators import Boundary, SpatiallyVaryingBlur
from pnpladmm.places import shared_folder
from pnpladmm.solvers import Problem
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.batches import Batch, Clock, warm_up
from pnpladmm.workshop.experiments.coco import read_coco, read_pixels
from pnpladmm.workshop.experiments.comparison import Compared
from pnpladmm.workshop.experiments.output import write_result
from pnpladmm.workshop.experiments.protocols_page import draw_protocols
from pnpladmm.workshop.experiments.scenes import Array, Scene
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.store import digest
from pnpladmm.workshop.experiments.units import Advance, Run, Unit, run_units

LUMA = (0.299, 0.587, 0.114)
GPU_BATCH = 20


@dataclass(frozen=True)
class Protocol:
    """Pictures, the kernels they are blurred by, and the noise."""

    title: str
    pictures: str
    """`cbsd68`, or `coco` for the test split."""
    kernels: Callable[[], dict[str, Tensor]]
    """Kernels by name, each (P, k, k); with more than one they change from left to right."""
    noise: tuple[float, ...]
    """Of 255."""
    side: int | None = None
    """The middle square of a picture; None: the whole picture, cut to multiples of 8."""
    count: int | None = None
    boundary: Boundary = "circular"
    grey: bool = False


def levin_kernels() -> dict[str, Tensor]:
    """The eight camera shakes of Levin et al., as 8-bit pictures."""
    folder = shared_folder("kernels")
    files = sorted((folder / "levin_png").glob("*.png")) if folder else []
    if not files:
        raise InputError("no kernels/levin_png beside the checkout: set PNPLADMM_SHARED to the data folder")
    return {file.stem: as_blur(file, (64, 64)).kernels.flatten(0, -3) for file in files}


def discs() -> dict[str, Tensor]:
    """Lenses out of focus, radius in pixels."""
    return {f"radius {radius}": defocus(radius)[None] for radius in (2, 3, 4, 6, 8)}


def lens() -> dict[str, Tensor]:
    """The PSF of a lens or telescope whose coma grows towards both sides: Moffat profiles, stretched and bent."""
    axis = torch.arange(-16, 17, dtype=torch.float64)
    y, x = axis[:, None], axis[None, :]
    kernels = []
    for off in (-1.0, -0.5, 0.0, 0.5, 1.0):
        bent = x - off * 0.04 * (x**2 + y**2) / (1 + 0.1 * (x**2 + y**2).sqrt())
        radius = ((bent / (2.2 + abs(off))).square() + (y / 2.2).square()).sqrt()
        kernel = (1 + radius**2) ** -3.0
        kernels.append(kernel / kernel.sum())
    return {"coma": torch.stack(kernels)}


def first_levin_kernels() -> dict[str, Tensor]:
    """Two of Levin's kernels, a small one and a large one."""
    kernels = levin_kernels()
    return {name: kernels[name] for name in ("levin_1", "levin_4")}


PROTOCOLS = {
    "levin": Protocol("CBSD68, Levin's kernels", "cbsd68", levin_kernels, (2.55, 7.65, 12.75, 17.85)),
    "discs": Protocol("COCO, discs", "coco", discs, (2.0, 10.0), 256, 20),
    "lens": Protocol("COCO, coma that grows to the sides", "coco", lens, (2.0, 10.0), 256, 20),
    "border": Protocol("COCO, unknown border", "coco", first_levin_kernels, (2.0, 10.0), 416, 20, boundary="unknown"),
    "grey": Protocol("CBSD68, grey, Levin's kernels", "cbsd68", first_levin_kernels, (2.55, 12.75), grey=True),
}
"""By name. COCO's pictures have 640x480 pixels, so that squares of 416 are the largest that all have."""


@dataclass(frozen=True)
class Source:
    """A picture that has not been read yet."""

    name: str
    read: Callable[[], Array] = field(repr=False)
    """Returns (H, W, 3) uint8."""


@dataclass(frozen=True)
class Scenes(Batch):
    """Pictures of one size that one kernel blurs, at one noise level."""

    protocol: Protocol = field(kw_only=True)
    sources: tuple[Source, ...] = field(kw_only=True)
    kernel: Tensor = field(kw_only=True)
    noise: float = field(kw_only=True)

    @property
    def names(self) -> list[str]:
        """The name of each picture."""
        return [source.name for source in self.sources]

    @cached_property
    def digest(self) -> str:
        """Of everything that decides the pictures."""
        p = self.protocol
        kernel = [round(float(v), 12) for v in self.kernel.flatten()]
        return digest([p.pictures, self.names, kernel, self.noise, p.side, p.boundary, p.grey])

    @cached_property
    def _stacked(self) -> tuple[Problem, Tensor]:
        sharp = torch.cat([sharp_picture(source, self.protocol) for source in self.sources]).to(self.device)
        height, width = sharp.shape[-2:]
        blur = _operator(self.kernel.to(sharp), (height, width), self.protocol.boundary)
        # Each picture has noise of its own seed, so that it does not depend on its neighbours in the batch.
        blurred = blur.forward(sharp)
        noise = [torch.from_numpy(np.random.default_rng(0).standard_normal(tuple(one.shape))) for one in blurred]
        observed = blurred + self.noise / 255 * torch.stack(noise).to(blurred)
        return Problem(observed, blur, Gaussian(self.noise / 255)), sharp


def _operator(kernels: Tensor, size: tuple[int, int], boundary: Boundary) -> SpatiallyVaryingBlur:
    """The blur of a scene of `size`; several kernels change linearly from left to right."""
    k = kernels.shape[-2:]
    height, width = size if boundary != "unknown" else (size[0] - k[0] + 1, size[1] - k[1] + 1)
    place = torch.linspace(0, len(kernels) - 1, width).to(kernels)
    weights = torch.stack([(1 - (place - i).abs()).clamp_min(0) for i in range(len(kernels))])
    return SpatiallyVaryingBlur(kernels, weights[:, None].expand(-1, height, -1), boundary)


def sharp_picture(source: Source, protocol: Protocol) -> Tensor:
    """A picture as the protocol has it, (1, 3 or 1, H, W) in [0, 1], float32."""
    pixels = torch.from_numpy(source.read().copy()).movedim(-1, 0)[None].float() / 255
    height, width = pixels.shape[-2:]
    if protocol.side is None:
        pixels = pixels[..., : height - height % 8, : width - width % 8]
    else:
        top, left = (height - protocol.side) // 2, (width - protocol.side) // 2
        pixels = pixels[..., top : top + protocol.side, left : left + protocol.side]
    if protocol.grey:
        pixels = (torch.tensor(LUMA).view(1, 3, 1, 1) * pixels).sum(1, keepdim=True)
    return pixels.contiguous()


def chosen_pictures(protocol: Protocol, count: int | None) -> list[list[Source]]:
    """The pictures, those of one size together."""
    sizes: dict[tuple[int, ...], list[Source]] = {}
    used = 0
    for source in _sources(protocol.pictures):
        height, width = source.read().shape[:2]
        if protocol.side is not None and min(height, width) < protocol.side:
            continue
        sizes.setdefault((height, width) if protocol.side is None else (), []).append(source)
        used += 1
        if used == (count or protocol.count):
            break
    return list(sizes.values())


def _sources(pictures: str) -> list[Source]:
    folder = shared_folder(pictures)
    if folder is None:
        raise InputError(f"no folder {pictures} beside the checkout: set PNPLADMM_SHARED to the data folder")
    if pictures == "coco":
        return [Source(scene.name, partial(_pixels_of, scene)) for scene in read_coco(folder, "test")[0]]
    return [Source(file.stem, partial(_pixels_in, file)) for file in sorted(folder.glob("*.png"))]


def _pixels_of(scene: Scene) -> Array:
    return scene.read(Counter())[0]


def _pixels_in(file: Path) -> Array:
    return read_pixels(file)[0]


def make_protocols(
    setup: Setup, methods: Sequence[Compared], names: Sequence[str], noise: Sequence[float] | None = None
) -> dict[str, Any]:
    """Score every method on every protocol, at its noise levels or those given; write `protocols.json` and the page."""
    if unknown := [name for name in names if name not in PROTOCOLS]:
        raise InputError(f"protocol {unknown[0]!r}: choose among {', '.join(PROTOCOLS)}")
    units = [
        _unit(Run(setup, scenes, method, scenes.noise), name, kernel)
        for name in names
        for kernel, scenes in _scenes(setup, PROTOCOLS[name], noise)
        for method in methods
    ]
    found: dict[tuple[str, str, str, float], list[dict[str, Any]]] = {}
    for unit, values in run_units(setup, "protocols", units):
        key = unit.key
        found.setdefault((key["protocol"], key["kernel"], key["method"], key["noise"]), []).append(values)
    data = {
        "experiment": "protocols",
        "denoiser": setup.denoiser_title,
        "denoiser_digest": setup.denoiser_digest,
        "settings": "shipped" if setup.settings_file is None else setup.settings_file.name,
        "machine": setup.machine,
        "quick": setup.quick,
        "titles": {name: PROTOCOLS[name].title for name in names},
        "methods": {method.name: method.title_of_run(setup.quick) for method in methods},
        "rows": [_row(*key, parts) for key, parts in found.items()],
    }
    write_result(setup.out, "protocols", data, draw_protocols)
    return data


def _scenes(setup: Setup, protocol: Protocol, levels: Sequence[float] | None) -> Iterator[tuple[str, Scenes]]:
    """Batches, with the name of their kernel."""
    groups = chosen_pictures(protocol, setup.count)
    most = setup.batch or (GPU_BATCH if setup.where.type == "cuda" else 1)
    for name, kernel in protocol.kernels().items():
        for noise in levels or protocol.noise:
            for group in groups:
                for i in range(0, len(group), most):
                    sources = tuple(group[i : i + most])
                    yield name, Scenes((), setup.where, protocol=protocol, sources=sources, kernel=kernel, noise=noise)


def _unit(run: Run, protocol: str, kernel: str) -> Unit:
    batch = run.batch

    def compute(advance: Advance) -> dict[str, Any]:
        method = run.make_method()
        warm_up(batch, method, run.iterations)
        clock = Clock(batch.device)
        clock.start()
        result = run.solve(method, advance)
        seconds = clock.read()
        crop, domain = batch.problem.crop_to_observed, batch.problem.observed
        return {
            "names": batch.names,
            "psnr": psnr(crop(result.image), crop(batch.sharp), STANDARD).tolist(),
            "ssim": ssim(crop(result.image), crop(batch.sharp), STANDARD).tolist(),
            "psnr_observed": psnr(domain, crop(batch.sharp), STANDARD).tolist(),
            "seconds": seconds,
        }

    return run.unit("protocols", compute, protocol=protocol, kernel=kernel)


def _row(protocol: str, kernel: str, method: str, noise: float, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A method on a kernel at a noise level: means over the pictures."""
    columns = {name: [v for part in parts for v in part[name]] for name in ("psnr", "ssim", "psnr_observed")}
    return {
        "protocol": protocol,
        "kernel": kernel,
        "method": method,
        "noise": noise,
        "pictures": len(columns["psnr"]),
        **{name: statistics.fmean(values) for name, values in columns.items()},
        "seconds": sum(part["seconds"] for part in parts) / len(columns["psnr"]),
    }
