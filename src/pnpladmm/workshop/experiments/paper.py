"""The figures of the paper's Table 1, as printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """PSNR in dB, SSIM, LPIPS."""

    psnr: float
    ssim: float
    lpips: float


TABLE_1: Mapping[str, Mapping[float, Figures]] = {
    "richardson-lucy": {
        1: Figures(23.4, 0.74, 0.27),
        10: Figures(20.9, 0.43, 0.55),
        20: Figures(18.8, 0.25, 0.64),
        40: Figures(15.4, 0.13, 0.72),
    },
    "ista": {
        1: Figures(23.4, 0.71, 0.34),
        10: Figures(23.3, 0.71, 0.33),
        20: Figures(22.7, 0.67, 0.38),
        40: Figures(21.7, 0.61, 0.43),
    },
    "admm": {
        1: Figures(25.8, 0.82, 0.26),
        10: Figures(23.7, 0.72, 0.32),
        20: Figures(22.9, 0.67, 0.37),
        40: Figures(21.7, 0.60, 0.43),
    },
    "ladmm": {
        1: Figures(25.6, 0.81, 0.22),
        10: Figures(23.7, 0.72, 0.32),
        20: Figures(22.8, 0.66, 0.38),
        40: Figures(21.7, 0.61, 0.43),
    },
}
"""Method -> noise level (of 255) -> figures; deblurring, 40 pictures."""

SECONDS: Mapping[str, float] = {"richardson-lucy": 10, "ista": 247, "admm": 286, "ladmm": 124}
"""Runtime as printed; the paper does not say of how many pictures, nor on which machine."""


def figures_of(method: str, noise: float, task: str = "deblur") -> Figures | None:
    """The paper's figures for a row of our table, where it has one."""
    return TABLE_1.get(method, {}).get(noise) if task == "deblur" else None
