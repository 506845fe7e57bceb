"""A PSF that does not fit: seen in the restored picture, and answered by trusting the data less.

The numbers were fitted to blurred crops with right and wrong PSFs (docs/notes/2026-11-19-real-pictures.md). They use
ratios only, so they hold for pictures of any scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pnpladmm.restoration.signs import Signs

DOUBTFUL = 0.3
"""From here on a restoration is doubted; with the right PSF it is below 0.25 nearly always."""
LEAST = 0.1
"""This share of the noise level is added where a detail could be 0."""


GAIN = (-3.73, -1.63, -3.05, -1.45)
"""Of `expected_gain`: constant, doubt, logarithms of the unexplained share of the detail and of the residual."""


def doubt(signs: Signs) -> Tensor:
    """The logarithm of the factor by which the noise level should be higher, (B,), 0 where it is high enough.

    Ringing goes beyond both ends of the range of the observation; it has much detail for the detail of the observation,
    but few sharp edges.
    """
    level = signs.level
    least = LEAST * level
    # Stars and thin strokes are rightly brighter or darker than anything observed; ringing goes beyond both ends.
    beyond = 2**0.5 * torch.minimum(signs.below, signs.above)
    value = (
        3.116
        + 1.076 * (beyond / level + 0.05).log()
        - 0.365 * (signs.detail / level + LEAST).log()
        + 1.118 * ((signs.detail + least) / (signs.detail_before + least)).log()
        - 0.849 * (signs.peaked + 1).log()
        - 0.628 * ((signs.curvature + least) / (signs.curvature_before + least)).log()
    )
    return torch.nn.functional.softplus(value, beta=4)


def known_error(uncertainty: float, detail: Tensor, white: Tensor) -> Tensor:
    """The noise level for a PSF of relative l2 error `uncertainty`: that share of the detail in the observation.

        y - Hx = (k_true - k) * x,    ||k_true - k|| = uncertainty ||k||.

    `detail` (B,) is that of the observation, with white noise in it.
    """
    return uncertainty * (detail.square() - white.square()).clamp_min(0).sqrt()


def expected_gain(signs: Signs) -> Tensor:
    """About how much better than the observation the picture is, in dB, (B,): below 0 it is likely worse.

    A wrong PSF, restored gently, leaves much of the detail of the observation unexplained.
    """
    share = (signs.residual / signs.detail_before.clamp_min(1e-300)).clamp(1e-3, 10)
    size = (signs.residual / signs.level).clamp(1e-3, 10)
    return GAIN[0] + GAIN[1] * doubt(signs).clamp_max(3) + GAIN[2] * share.log() + GAIN[3] * size.log()
