"""Errors at the seams of tiles: pictures of many megapixels restored in tiles, against the same undivided.

The undivided run is `solve` on the whole picture. Only its denoiser works in tiles, with every pixel that a tile
depends on, which changes nothing but rounding; the network would need more memory than all the rest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.restore import restore
from pnpladmm.tiling.denoiser import in_tiles
from pnpladmm.workshop.bench.inputs import make_kernels, make_picture, make_weights, open_denoiser, photograph
from pnpladmm.workshop.bench.report import Options, Report, Row

KERNELS, SIDE = 8, 33
TILE = 1000
NETWORK_TILE = 2048
LIMIT = 1 / 255


@dataclass(frozen=True)
class Case:
    """One picture."""

    picture: str
    """`photograph`: one of scikit-image, mirrored again and again; `drawing`: flat cells and texture."""
    height: int
    width: int
    noise: float
    """Of 255."""
    calls: int = 8

    @property
    def key(self) -> str:
        """Its name in the file of finished runs."""
        return " ".join(str(value) for value in asdict(self).values())


def cases(options: Options) -> list[Case]:
    """12 and 24 megapixels."""
    if options.quick:
        return [Case("photograph", 420, 400, 10.0, 2)]
    sizes = ((3000, 4000), (4000, 6000))
    return [Case(kind, h, w, noise) for h, w in sizes for kind in ("photograph", "drawing") for noise in (10.0, 2.0)]


COLUMNS: dict[str, Callable[[Row], str]] = {
    "picture": lambda row: f"{row['picture']}, {row['width']}x{row['height']}",
    "noise": lambda row: f"{row['noise']:g}",
    "tiles": lambda row: row["tiles"],
    "PSNR, undivided": lambda row: f"{row['undivided_psnr']:.3f}",
    "in tiles": lambda row: f"{row['tiled_psnr']:.3f}",
    "largest error, of 255": lambda row: f"{row['largest']:.2f}",
    "stated": lambda row: f"{row['stated_largest']:.2f}",
    "rms": lambda row: f"{row['rms']:.4f}",
    "stated rms": lambda row: f"{row['stated_rms']:.4f}",
    "above 1": lambda row: f"{row['above']:.5%}",
    "time / undivided": lambda row: f"{row['tiled_seconds'] / row['undivided_seconds']:.2f}",
}


def run(options: Options) -> Report:
    """Restore each picture both ways; a run that was stopped goes on with the next one."""
    denoiser, name = open_denoiser(options)
    known = options.known("seams")
    for case in cases(options):
        if case.key not in known:
            options.say(f"{case.picture}, {case.width}x{case.height}, noise {case.noise}")
            known[case.key] = _measure(case, denoiser, options)
            options.keep("seams", case.key, known[case.key])
    settings = {"denoiser": name, "kernels": KERNELS, "kernel_side": SIDE, "tile": TILE}
    title = f"Seams of tiles with {name}: {KERNELS} kernels of {SIDE}x{SIDE} with smooth weights"
    return Report("seams", title, COLUMNS, list(known.values()), settings, ["PSNR over the whole picture."])


def _measure(case: Case, denoiser: Denoiser, options: Options) -> Row:
    sharp, observed, blur = _scene(case, options.device)
    common: dict[str, Any] = {"noise": case.noise / 255, "iterations": case.calls, "device": options.device}
    undivided, slow = _timed(lambda: restore(observed, blur, denoiser=in_tiles(denoiser, NETWORK_TILE), **common))
    tile = 320 if options.quick else TILE
    tiled, fast = _timed(lambda: restore(observed, blur, denoiser=denoiser, tiles=tile, **common))
    note = next(note for note in tiled.notes if "seams" in note)
    stated = re.search(r"restored in (.*?);.*at most ([0-9.]+) of 255, rms ([0-9.]+)", note)
    assert stated is not None
    images = [found.image.to(sharp) for found in (undivided, tiled)]
    error = (images[1] - images[0]).abs()
    return {
        **asdict(case),
        "tiles": stated[1],
        "undivided_psnr": _psnr(images[0], sharp),
        "tiled_psnr": _psnr(images[1], sharp),
        "largest": 255 * float(error.max()),
        "rms": 255 * float(error.square().mean(dtype=torch.float64).sqrt()),
        "above": float((error.amax(1) > LIMIT).double().mean()),
        "stated_largest": float(stated[2]),
        "stated_rms": float(stated[3]),
        "undivided_seconds": slow,
        "tiled_seconds": fast,
    }


def _scene(case: Case, device: torch.device) -> tuple[Tensor, Tensor, Blur]:
    """The sharp picture (1, 3, H, W), the observation and the blur, on the CPU."""
    size = case.height, case.width
    blur = Blur(make_kernels(KERNELS, SIDE), make_weights("dense", KERNELS, size, device).cpu())
    operator = blur.operator("unknown")
    height, width = operator.scene
    if case.picture == "drawing":
        scene = make_picture((height, width), device)[None]
    else:
        piece = photograph((480, 640), device)
        piece = torch.cat([piece, piece.flip(-1)], -1)
        piece = torch.cat([piece, piece.flip(-2)], -2)
        copies = (1, 1, -(-height // piece.shape[-2]), -(-width // piece.shape[-1]))
        scene = piece.repeat(copies)[..., :height, :width].contiguous()
    noise = torch.randn((1, 3, *size), generator=torch.Generator().manual_seed(1)).to(device)
    observed = operator.forward(scene) + case.noise / 255 * noise
    top, left = operator.crop_offset or (0, 0)
    return scene[..., top : top + size[0], left : left + size[1]].cpu().contiguous(), observed.cpu(), blur


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    return found, time.perf_counter() - began


def _psnr(image: Tensor, sharp: Tensor) -> float:
    return -10 * float((image - sharp).square().mean(dtype=torch.float64).log10())
