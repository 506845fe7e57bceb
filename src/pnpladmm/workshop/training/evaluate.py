"""How good a denoiser is: PSNR on a folder of clean pictures, and what it does under weak noise.

    python -m pnpladmm.workshop.training.evaluate WEIGHTS FOLDER [--grey] [--sigmas 5 15 25 50] [--card]
                                                        [--weak | --curvature | --growth]

The noise of picture i is drawn from seed + i and scaled by sigma, so that every denoiser and every level sees
the same; noisy pictures are not clipped. PSNR is that of each picture against a peak of 1, averaged.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.loading import load_network
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import write_weights
from pnpladmm.workshop.training.data import picture_files, read_tensor

SIGMAS = (5.0, 15.0, 25.0, 50.0)
WEAK_SIGMAS = (0.5, 1.0, 2.0, 5.0)
PRODUCTS = 50
BATCH, LARGE = 16, 3 << 20
"""Pictures whose curvature is measured together; one of more samples than this is measured alone."""


@dataclass(frozen=True)
class PsnrRow:
    """Mean PSNR in dB over the pictures at one sigma (on the 0-255 scale), before and after."""

    sigma: float
    noisy: float
    psnr: float
    pictures: int


@dataclass(frozen=True)
class WeakNoiseRow:
    """What a denoiser does at a weak noise level, on the 0-255 scale, averaged over the pictures.

    `moved`: root mean square of D(x) - x on clean pictures. `noisy`, `denoised`: PSNR of x + e and of
    D(x + e). `worse`: how many pictures D left worse than noisy.
    """

    sigma: float
    moved: float
    noisy: float
    denoised: float
    worse: int
    pictures: int

    @property
    def gain(self) -> float:
        """PSNR gained over the noisy picture, in dB."""
        return self.denoised - self.noisy


@dataclass(frozen=True)
class CurvatureRow:
    """An end of the spectrum of a gradient step's Hessian, at the pictures of a folder and one sigma (0-255 scale).

    The largest eigenvalue at noisy pictures, or minus the least at clean ones. `most` and `mean` over the pictures;
    `over`: in how many it is 1 or more; `residual`: the largest `||Hu - lambda u||`, which is small where the products
    were enough.
    """

    sigma: float
    most: float
    mean: float
    over: int
    residual: float
    pictures: int


def psnr(estimate: Tensor, clean: Tensor) -> float:
    """`-10 log10` of the mean squared error, summed in float64; the peak is 1."""
    error = float((estimate.double() - clean.double()).square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)


def _pictures(folder: Path, channels: int, limit: int | None, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    for index, path in enumerate(picture_files(folder)[:limit]):
        clean = read_tensor(path, channels)
        generator = torch.Generator().manual_seed(seed + index)
        yield clean, torch.randn(clean.shape, generator=generator)


def _alike(pictures: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures of one size together, `BATCH` at most, if they are small: a GPU needs half as long for each."""
    waiting: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
    for pair in pictures:
        shape = pair[0].shape
        waiting.setdefault(shape, []).append(pair)
        if len(waiting[shape]) == BATCH or shape.numel() > LARGE:
            yield _together(waiting.pop(shape))
        elif sum(map(len, waiting.values())) == 4 * BATCH:  # many sizes: they are not all kept for company
            yield from map(_together, waiting.values())
            waiting.clear()
    yield from map(_together, waiting.values())


def _together(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    clean, noise = zip(*pairs, strict=True)
    return torch.cat(clean), torch.cat(noise)


def psnr_table(
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] = SIGMAS,
    channels: int = 3,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> list[PsnrRow]:
    """PSNR at each sigma (0-255 scale), averaged over the first `limit` pictures of a folder."""
    before: dict[float, list[float]] = {sigma: [] for sigma in sigmas}
    after: dict[float, list[float]] = {sigma: [] for sigma in sigmas}
    for clean, noise in _pictures(folder, channels, limit, seed):
        for sigma in sigmas:
            noisy = clean + sigma / 255 * noise
            before[sigma].append(psnr(noisy, clean))
            after[sigma].append(psnr(denoiser(noisy, sigma / 255), clean))
    return [PsnrRow(sigma, _mean(before[sigma]), _mean(after[sigma]), len(after[sigma])) for sigma in sigmas]


def weak_noise_table(
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] = WEAK_SIGMAS,
    channels: int = 3,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> list[WeakNoiseRow]:
    """How far D moves clean pictures, and what it gains on noisy ones, at weak noise levels."""
    rows = []
    for sigma in sigmas:
        moved, noisy, denoised = [], [], []
        for clean, noise in _pictures(folder, channels, limit, seed):
            difference = (denoiser(clean, sigma / 255) - clean).double()
            moved.append(255 * math.sqrt(float(difference.square().mean())))
            observed = clean + sigma / 255 * noise
            noisy.append(psnr(observed, clean))
            denoised.append(psnr(denoiser(observed, sigma / 255), clean))
        worse = sum(after < before for before, after in zip(noisy, denoised, strict=True))
        rows.append(WeakNoiseRow(sigma, _mean(moved), _mean(noisy), _mean(denoised), worse, len(noisy)))
    return rows


def curvature_table(
    denoiser: Denoiser,
    folder: Path,
    sigmas: Sequence[float] = SIGMAS,
    channels: int = 3,
    *,
    products: int = PRODUCTS,
    seed: int = 0,
    limit: int | None = None,
    end: Literal[1, -1] = 1,
) -> list[CurvatureRow]:
    """The largest Hessian eigenvalue at each sigma, over the noisy pictures of a folder, from so many products.

    For `end = -1` minus the least, at the clean pictures: what a solver shows a denoiser has little noise.
    """
    if not isinstance(denoiser, GradientStepDenoiser):
        raise InputError(
            f"{getattr(denoiser, 'name', 'this denoiser')} is no gradient step: it has no curvature to measure"
        )
    found: dict[float, list[tuple[float, float]]] = {sigma: [] for sigma in sigmas}
    for clean, noise in _alike(_pictures(folder, channels, limit, seed)):
        for sigma in sigmas:
            point = clean + sigma / 255 * noise if end > 0 else clean
            top = denoiser.top_eigenpair(point, sigma / 255, products, end=end)
            found[sigma] += zip(top.value.tolist(), top.residual.tolist(), strict=True)
    rows = []
    for sigma, pairs in found.items():
        values, residuals = zip(*pairs, strict=True)
        over = sum(value >= 1 for value in values)
        rows.append(CurvatureRow(sigma, max(values), _mean(values), over, max(residuals), len(values)))
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def format_psnr_table(rows: Sequence[PsnrRow]) -> str:
    """The PSNR table as Markdown."""
    lines = ["| sigma | noisy | denoised |", "|---|---|---|"]
    lines += [f"| {row.sigma:g} | {row.noisy:.2f} | {row.psnr:.2f} |" for row in rows]
    return "\n".join([*lines, f"Mean PSNR in dB over {rows[0].pictures} pictures."])


def format_weak_noise_table(rows: Sequence[WeakNoiseRow]) -> str:
    """The weak-noise table as Markdown."""
    lines = [
        "| sigma | clean picture moved by (rms, of 255) | noisy | denoised | gain | made worse |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.sigma:g} | {row.moved:.3f} | {row.noisy:.2f} | {row.denoised:.2f} | {row.gain:+.2f} | "
        f"{row.worse} of {row.pictures} |"
        for row in rows
    ]
    return "\n".join(lines)


def format_curvature_table(rows: Sequence[CurvatureRow], products: int, end: Literal[1, -1] = 1) -> str:
    """The table of either end of the spectrum as Markdown."""
    name, what = ("lambda_max", "Largest eigenvalue of the Hessian at noisy pictures")
    if end < 0:
        name, what = ("-lambda_min", "Minus the least eigenvalue of the Hessian at clean pictures")
    lines = [f"| sigma | {name}, most | mean | 1 or more | residual, most |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.sigma:g} | {row.most:.4f} | {row.mean:.4f} | {row.over} of {row.pictures} | {row.residual:.1e} |"
        for row in rows
    ]
    return "\n".join([*lines, f"{what}, from {products} products with it."])


def write_into_card(weights: Path, entries: Mapping[str, Any], relaxation: float | None = None) -> None:
    """Put tables into the card of a weight file, in its metadata and beside it as JSON; and a relaxation, into both."""
    tensors, metadata = read_tensors(weights)
    try:
        card = json.loads(metadata.get("card", "{}"))
    except ValueError:
        raise InputError(f"{weights}: its card is not JSON; the file was not written by a training") from None
    card |= entries
    if relaxation is not None:
        card["relaxation"] = relaxation
        tensors["relaxation"] = torch.tensor(relaxation)
    write_weights(weights, tensors, card)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a network; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pnpladmm.workshop.training.evaluate", description=__doc__)
    parser.add_argument("weights", help="drunet, light, prox-drunet or a weight file")
    parser.add_argument("folder", type=Path, help="folder of clean pictures")
    parser.add_argument("--grey", action="store_true", help="on the grey version of the pictures")
    parser.add_argument("--sigmas", type=float, nargs="+", default=None, help="noise levels, 0-255 scale")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--weak", action="store_true", help="the weak-noise table instead")
    kind.add_argument(
        "--curvature", action="store_true", help="the largest Hessian eigenvalues of a gradient step instead"
    )
    kind.add_argument("--growth", action="store_true", help="minus the least ones, at the clean pictures")
    parser.add_argument("--products", type=int, default=PRODUCTS, help="with the Hessian, for each eigenvalue")
    parser.add_argument("--relaxation", type=float, help="gamma of a gradient step; --card writes it into the weights")
    parser.add_argument("--card", action="store_true", help="write the table into the weights' card")
    parser.add_argument("--limit", type=int, default=None, help="only the first so many pictures")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    channels = 1 if given.grey else 3
    entries: dict[str, Any] = {}
    try:
        denoiser = load_network(given.weights, device=given.device, relaxation=given.relaxation)
        if given.weak:
            levels = given.sigmas or WEAK_SIGMAS
            weak = weak_noise_table(denoiser, given.folder, levels, channels, limit=given.limit)
            print(format_weak_noise_table(weak))
        elif given.curvature or given.growth:
            levels = given.sigmas or SIGMAS
            end: Literal[1, -1] = 1 if given.curvature else -1
            curved = curvature_table(
                denoiser, given.folder, levels, channels, products=given.products, limit=given.limit, end=end
            )
            print(format_curvature_table(curved, given.products, end))
            name = "lambda_max" if given.curvature else "growth"
            entries[name] = {f"{row.sigma:g}": round(row.most, 4) for row in curved}
            entries[f"{name}_on"] = f"{given.folder.name}, {curved[0].pictures} pictures, {given.products} products"
        else:
            levels = given.sigmas or SIGMAS
            rows = psnr_table(denoiser, given.folder, levels, channels, limit=given.limit)
            print(format_psnr_table(rows))
            entries["psnr"] = {f"{row.sigma:g}": round(row.psnr, 2) for row in rows}
            entries["psnr_on"] = f"{given.folder.name}, {rows[0].pictures} pictures"
        if given.card and entries:
            write_into_card(Path(given.weights), entries, given.relaxation)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
