"""The tables of `pnpladmm train evaluate` as Markdown, and what of them goes into the card of a weight file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.tensor_files import read_tensors
from pnpladmm.workshop.training.checkpoint import read_card, write_weights
from pnpladmm.workshop.training.evaluate import SIGMAS, WEAK_SIGMAS, curvature_table, psnr_table, weak_noise_table

Columns = Mapping[str, Callable[[Any], str]]
"""The heading of each column, and what it says of a row."""

PSNR: Columns = {
    "sigma": lambda row: f"{row.sigma:g}",
    "noisy": lambda row: f"{row.noisy:.2f}",
    "denoised": lambda row: f"{row.psnr:.2f}",
}
WEAK_NOISE: Columns = {
    "sigma": lambda row: f"{row.sigma:g}",
    "clean picture moved by (rms, of 255)": lambda row: f"{row.moved:.3f}",
    "noisy": lambda row: f"{row.noisy:.2f}",
    "denoised": lambda row: f"{row.denoised:.2f}",
    "gain": lambda row: f"{row.gain:+.2f}",
    "made worse": lambda row: f"{row.worse} of {row.pictures}",
}
CURVATURE: Columns = {
    "sigma": lambda row: f"{row.sigma:g}",
    "largest": lambda row: f"{row.most:.4f}",
    "mean": lambda row: f"{row.mean:.4f}",
    "1 or more": lambda row: f"{row.over} of {row.pictures}",
    "largest residual": lambda row: f"{row.residual:.1e}",
}


def measure(
    kind: str,
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] | None,
    channels: int,
    products: int,
    limit: int | None,
) -> tuple[str, dict[str, Any]]:
    """A table (psnr, weak-noise, curvature or growth) as Markdown, and its entries for the card."""
    if kind == "weak-noise":
        weak = weak_noise_table(denoiser, folder, sigmas or WEAK_SIGMAS, channels, limit=limit)
        return markdown(WEAK_NOISE, weak), {}
    if kind == "psnr":
        rows = psnr_table(denoiser, folder, sigmas or SIGMAS, channels, limit=limit)
        pictures = f"{rows[0].pictures} pictures"
        entries = {"psnr": {f"{row.sigma:g}": round(row.psnr, 2) for row in rows}}
        text = f"{markdown(PSNR, rows)}\nMean PSNR in dB over {pictures}."
        return text, entries | {"psnr_on": f"{folder.name}, {pictures}"}
    end: Literal[1, -1] = 1 if kind == "curvature" else -1
    curved = curvature_table(denoiser, folder, sigmas or SIGMAS, channels, products=products, limit=limit, end=end)
    name, text = "lambda_max", "lambda_max, the largest eigenvalue of the Hessian, at noisy pictures"
    if end < 0:
        name, text = "growth", "-lambda_min, minus the least eigenvalue of the Hessian, at clean pictures"
    source = f"{folder.name}, {curved[0].pictures} pictures, {products} products"
    entries = {name: {f"{row.sigma:g}": round(row.most, 4) for row in curved}}
    return f"{markdown(CURVATURE, curved)}\n{text}; {products} products.", entries | {f"{name}_on": source}


def markdown(columns: Columns, rows: Sequence[Any]) -> str:
    """Rows as a Markdown table."""
    lines = (list(columns), ["---"] * len(columns), *([cell(row) for cell in columns.values()] for row in rows))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_into_card(weights: Path, entries: dict[str, Any], relaxation: float | None = None) -> None:
    """Add tables to the card of a weight file; a relaxation goes into the weights as well."""
    tensors, metadata = read_tensors(weights)
    card = read_card(metadata, weights) | entries
    if relaxation is not None:
        card["relaxation"] = relaxation
        tensors["relaxation"] = torch.tensor(relaxation)
    write_weights(weights, tensors, card, next(iter(tensors.values())).dtype)
