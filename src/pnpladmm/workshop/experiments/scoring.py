"""The metrics of a batch: in the paper's convention, the standard one, and as the published code has them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pnpladmm.metrics import PAPER, PAPER_CODE, STANDARD, load_lpips, psnr, ssim

METRICS = (
    "psnr",
    "ssim",
    "lpips",
    "psnr_standard",
    "ssim_standard",
    "psnr_code",
    "ssim_code",
    "lpips_code",
)
"""`psnr`, `ssim`, `lpips` (alex): 17 pixels of border left out. `_standard`: all pixels. `_code`: as published."""


class Judge:
    """Scores pictures against the sharp ones; LPIPS where there are weights for it."""

    def __init__(self, device: torch.device, brief: bool = False) -> None:
        """`brief`: the paper's convention alone, which is a third of the work."""
        self.brief = brief
        self.alex = load_lpips("alex", device=device)
        self.vgg = None if brief else load_lpips("vgg", device=device)

    @property
    def trunks(self) -> list[str]:
        """The LPIPS trunks that have weights: part of what decides a result."""
        return [lpips.trunk for lpips in (self.alex, self.vgg) if lpips is not None]

    def __call__(self, x: Tensor, sharp: Tensor) -> dict[str, Any]:
        """One list for each of the metrics, one number a picture; None where it cannot be had."""
        columns: list[Tensor | None] = [
            psnr(x, sharp, PAPER),
            ssim(x, sharp, PAPER),
            None if self.alex is None else self.alex(x, sharp, PAPER),
            psnr(x, sharp, STANDARD),
        ]
        if self.brief:
            columns += [None] * (len(METRICS) - len(columns))
        else:
            columns += [
                ssim(x, sharp, STANDARD),
                psnr(x, sharp, PAPER_CODE),
                ssim(x, sharp, PAPER_CODE),
                None if self.vgg is None else self.vgg(x, sharp, PAPER_CODE),
            ]
        return {name: None if c is None else c.tolist() for name, c in zip(METRICS, columns, strict=True)}
