"""A PSF that does not fit: seen in the restored picture, and answered by trusting the data less.

Some numbers are linear in the same evidence: how much higher the noise level should be, how much better than the
observation the picture is, and whether the PSF is wrong. The last one is asked in two steps: what looks suspect after
the first restoration gets a gentle one on trial, and the evidence of both decides. The coefficients (doubts.json) were
fitted to blurred crops with right and wrong PSFs by `pnpladmm train doubts` (docs/notes/2026-11-20-wrong-psfs.md). The
evidence is made of ratios, so it holds for pictures of any scale.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from pnpladmm.gate import parse_json, read_text
from pnpladmm.restoration.psf_score import PsfScore
from pnpladmm.restoration.signs import Signs

FILE = Path(__file__).with_name("doubts.json")
LARGEST = 1 << 16
"""Bytes of that file."""
DOUBTFUL = 0.3
"""From here on a restoration is done again."""
LEAST = 0.05
"""This share of the noise level is added to what may be 0."""
TRIAL = 5.0
"""The noise level of the restoration on trial, in units of that of the first one."""
LOCAL = 3.0
"""In JPEGs a place counts up to so many times the median: the errors of compression differ from place to place."""
USUAL_CALLS = 8
"""Of the denoiser."""
SCORE = 0.3
"""This is added to a score, which is below 1 for noise."""
NAMES = (
    "snr", "raised", "explained at worst", "explained", "explained in the middle", "error", "change", "beyond nearby",
    "beyond", "detail", "peaks", "curvature", "residual", "moved", "compressed", "haste",
)  # fmt: skip
"""What the evidence is made of, in this order."""


def evidence(signs: Signs, score: PsfScore, before: Tensor, calls: int, jpeg: Tensor | None = None) -> Tensor:
    """Logarithms of ratios, (B, K), float64.

    `before` (B,) is the noise level that was assumed at first, `calls` the number of denoiser calls, `jpeg` (B,)
    the level of the errors of JPEG compression.
    """
    level = before.double().to(signs.level)
    beyond = torch.minimum(signs.below, signs.above)
    raised = signs.level / level  # the score is in units of the level that the picture was restored with
    is_jpeg = torch.zeros_like(level) > 0 if jpeg is None else jpeg.to(level) > 0
    most = torch.where(is_jpeg, LOCAL * score.middle + SCORE, torch.inf)
    found = (
        signs.detail_before / level,
        raised,
        raised.square() * torch.minimum(score.worst, most) + SCORE,
        raised.square() * torch.minimum(score.local, most) + SCORE,
        raised.square() * score.middle + SCORE,
        raised * score.error + LEAST,
        score.change + LEAST,
        signs.beyond / level + LEAST,
        beyond / level + LEAST,
        (signs.detail + 2 * LEAST * level) / (signs.detail_before + 2 * LEAST * level),
        signs.peaked + 1,
        (signs.curvature + 2 * LEAST * level) / (signs.curvature_before + 2 * LEAST * level),
        signs.residual / level + LEAST,
        signs.moved / (signs.detail_before + 2 * LEAST * level) + LEAST,
        torch.where(is_jpeg, math.e, 1.0).to(level),  # 1 or 0 in the end
        torch.full_like(level, USUAL_CALLS / calls),
    )
    return torch.stack([value.to(level).clamp(1e-6, 1e6).log() for value in found], 1)


def doubt(known: Tensor) -> Tensor:
    """The logarithm of the factor by which the noise level should be higher, (B,), 0 where it is high enough."""
    return torch.nn.functional.softplus(linear("factor", known), beta=4)


def is_suspect(known: Tensor) -> Tensor:
    """Is a restoration on trial worth while, to see whether the PSF is wrong? (B,); of three right PSFs one is."""
    return linear("suspect", known) > 0


def is_wrong(known: Tensor, gently: Tensor | None = None) -> Tensor:
    """Is the PSF likely so wrong that more than 1 dB is lost? (B,).

    From the evidence of the first restoration, and of one with `TRIAL` times its noise level where there was one.
    """
    return (linear("alone", known) if gently is None else linear("wrong", known, gently)) > 0


def expected_gain(known: Tensor) -> Tensor:
    """How much better than the observation the picture is in three of four cases, at least, in dB, (B,)."""
    return linear("gain", known)


def residual(known: Tensor) -> Tensor:
    """The root mean square of the residual in units of the noise that was assumed for it, (B,)."""
    return (known[:, NAMES.index("residual")] - known[:, NAMES.index("raised")]).exp()


def linear(name: str, *known: Tensor) -> Tensor:
    """One of the numbers, (B,). Evidence beyond what was seen in the fit counts no more than that."""
    table = coefficients()
    weights, low, high = (
        torch.tensor(table[key], dtype=known[0].dtype, device=known[0].device) for key in (name, "lowest", "highest")
    )
    if len(weights) != 1 + len(known) * len(NAMES):
        raise ValueError(f"{FILE.name}: {len(weights)} coefficients of {name}, {1 + len(known) * len(NAMES)} expected")
    return torch.cat([torch.minimum(torch.maximum(v, low), high) for v in known], 1) @ weights[1:] + weights[0]


@cache
def coefficients() -> dict[str, list[float]]:
    """`{name: [constant, one for each piece of evidence]}`, and the lowest and the highest evidence of the fit."""
    found: dict[str, list[float]] = parse_json(FILE.name, read_text(FILE, LARGEST, "coefficients"), "coefficients")
    return found


def known_error(uncertainty: float, detail: Tensor, white: Tensor) -> Tensor:
    """The noise level for a PSF of relative l2 error `uncertainty`: that share of the detail in the observation.

        y - Hx = (k_true - k) * x,    ||k_true - k|| = uncertainty ||k||.

    `detail` (B,) is that of the observation, with white noise in it.
    """
    return uncertainty * (detail.square() - white.square()).clamp_min(0).sqrt()
