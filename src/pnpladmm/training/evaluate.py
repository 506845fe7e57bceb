"""How good a denoiser is: PSNR on a folder of clean pictures, and what it does under weak noise.

    python -m pnpladmm.training.evaluate WEIGHTS FOLDER [--grey] [--sigmas 5 15 25 50] [--weak] [--card]

The noise of picture i is drawn from seed + i and scaled by sigma, so that every denoiser and every level sees
the same; noisy pictures are not clipped. PSNR is that of each picture against a peak of 1, averaged.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.denoisers.pretrained import load_network, read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.training.checkpoint import write_weights
from pnpladmm.training.data import picture_files, read_tensor

SIGMAS = (5.0, 15.0, 25.0, 50.0)
WEAK_SIGMAS = (0.5, 1.0, 2.0, 5.0)


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


def psnr(estimate: Tensor, clean: Tensor) -> float:
    """`-10 log10` of the mean squared error, summed in float64; the peak is 1."""
    error = float((estimate.double() - clean.double()).square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)


def _pictures(folder: Path, channels: int, limit: int | None, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    for index, path in enumerate(picture_files(folder)[:limit]):
        clean = read_tensor(path, channels)
        generator = torch.Generator().manual_seed(seed + index)
        yield clean, torch.randn(clean.shape, generator=generator)


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


def write_into_card(weights: Path, rows: Sequence[PsnrRow], pictures: str) -> None:
    """Put a PSNR table into the card of a weight file: in its metadata, and beside it as JSON."""
    tensors, metadata = read_tensors(weights)
    try:
        card = json.loads(metadata.get("card", "{}"))
    except ValueError:
        raise InputError(f"{weights}: its card is not JSON; the file was not written by a training") from None
    card["psnr"] = {f"{row.sigma:g}": round(row.psnr, 2) for row in rows}
    card["psnr_on"] = f"{pictures}, {rows[0].pictures} pictures"
    write_weights(weights, tensors, card)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a network; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pnpladmm.training.evaluate", description=__doc__)
    parser.add_argument("weights", help="drunet, light or a weight file")
    parser.add_argument("folder", type=Path, help="folder of clean pictures")
    parser.add_argument("--grey", action="store_true", help="on the grey version of the pictures")
    parser.add_argument("--sigmas", type=float, nargs="+", default=None, help="noise levels, 0-255 scale")
    parser.add_argument("--weak", action="store_true", help="the weak-noise table instead")
    parser.add_argument("--card", action="store_true", help="write the PSNR table into the weights' card")
    parser.add_argument("--limit", type=int, default=None, help="only the first so many pictures")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    channels = 1 if given.grey else 3
    try:
        denoiser = load_network(given.weights, device=given.device)
        if given.weak:
            levels = given.sigmas or WEAK_SIGMAS
            weak = weak_noise_table(denoiser, given.folder, levels, channels, limit=given.limit)
            print(format_weak_noise_table(weak))
        else:
            levels = given.sigmas or SIGMAS
            rows = psnr_table(denoiser, given.folder, levels, channels, limit=given.limit)
            print(format_psnr_table(rows))
            if given.card:
                write_into_card(Path(given.weights), rows, given.folder.name)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
