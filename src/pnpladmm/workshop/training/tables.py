"""The tables of `pnpladmm train evaluate` as Markdown, and what of them goes into the card of a weight file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.tensor_files import read_tensors
from pnpladmm.workshop.training.checkpoint import read_card, write_weights
from pnpladmm.workshop.training.evaluate import (
    SIGMAS,
    WEAK_SIGMAS,
    CurvatureRow,
    PsnrRow,
    WeakNoiseRow,
    curvature_table,
    psnr_table,
    weak_noise_table,
)


def measure(
    kind: str,
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] | None,
    channels: int,
    products: int,
    limit: int | None,
) -> tuple[str, dict[str, Any]]:
    """One table as Markdown, and its entries for the card: psnr, weak-noise, curvature or growth."""
    if kind == "weak-noise":
        return weak_noise_markdown(weak_noise_table(denoiser, folder, sigmas or WEAK_SIGMAS, channels, limit=limit)), {}
    if kind == "psnr":
        rows = psnr_table(denoiser, folder, sigmas or SIGMAS, channels, limit=limit)
        psnr = {f"{row.sigma:g}": round(row.psnr, 2) for row in rows}
        return psnr_markdown(rows), {"psnr": psnr, "psnr_on": f"{folder.name}, {rows[0].pictures} pictures"}
    end: Literal[1, -1] = 1 if kind == "curvature" else -1
    curved = curvature_table(denoiser, folder, sigmas or SIGMAS, channels, products=products, limit=limit, end=end)
    name = "lambda_max" if end > 0 else "growth"
    values = {f"{row.sigma:g}": round(row.most, 4) for row in curved}
    source = f"{folder.name}, {curved[0].pictures} pictures, {products} products"
    return curvature_markdown(curved, products, end), {name: values, f"{name}_on": source}


def psnr_markdown(rows: Sequence[PsnrRow]) -> str:
    """The PSNR table."""
    cells = ((f"{row.sigma:g}", f"{row.noisy:.2f}", f"{row.psnr:.2f}") for row in rows)
    table = _markdown(("sigma", "noisy", "denoised"), cells)
    return f"{table}\nMean PSNR in dB over {rows[0].pictures} pictures."


def weak_noise_markdown(rows: Sequence[WeakNoiseRow]) -> str:
    """The table of weak noise levels."""
    columns = ("sigma", "clean picture moved by (rms, of 255)", "noisy", "denoised", "gain", "made worse")
    cells = (
        (
            f"{row.sigma:g}",
            f"{row.moved:.3f}",
            f"{row.noisy:.2f}",
            f"{row.denoised:.2f}",
            f"{row.gain:+.2f}",
            f"{row.worse} of {row.pictures}",
        )
        for row in rows
    )
    return _markdown(columns, cells)


def curvature_markdown(rows: Sequence[CurvatureRow], products: int, end: Literal[1, -1]) -> str:
    """The table of one end of the spectrum."""
    name, what = "lambda_max", "Largest eigenvalue of the Hessian at noisy pictures"
    if end < 0:
        name, what = "-lambda_min", "Minus the least eigenvalue of the Hessian at clean pictures"
    cells = (
        (
            f"{row.sigma:g}",
            f"{row.most:.4f}",
            f"{row.mean:.4f}",
            f"{row.over} of {row.pictures}",
            f"{row.residual:.1e}",
        )
        for row in rows
    )
    table = _markdown(("sigma", f"{name}, largest", "mean", "1 or more", "residual, largest"), cells)
    return f"{table}\n{what}, by {products} products with it."


def write_into_card(weights: Path, entries: dict[str, Any], relaxation: float | None = None) -> None:
    """Add tables to the card of a weight file; a relaxation goes into the weights as well."""
    tensors, metadata = read_tensors(weights)
    card = read_card(metadata, weights) | entries
    if relaxation is not None:
        card["relaxation"] = relaxation
        tensors["relaxation"] = torch.tensor(relaxation)
    write_weights(weights, tensors, card)


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (columns, ["---"] * len(columns), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
