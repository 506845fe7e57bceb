"""What is compared, and how: the choices that move a metric without the picture getting better."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Convention:
    """How two pictures (B, C, H, W), nominally in [0, 1], are prepared before a metric sees them."""

    border: int = 0
    """Rows and columns left out on every side. Half a kernel hides what the circular border invents."""
    clip: bool = False
    """Clip the estimate (not the reference) to [0, 1] first, as a picture file would."""
    pooled: int = 1
    """Pictures whose squared errors (and SSIM's range) are pooled, in the order of the batch. 1: each its own."""
    ssim_range: float | None = 1.0
    """SSIM's data range; None takes it from the pictures: the larger of the two spans, over all that are pooled."""
    lpips_shift: bool = True
    """Map [0, 1] to the [-1, 1] that LPIPS was trained on. Without, it sees pale pictures of half the contrast."""

    def __post_init__(self) -> None:
        if self.border < 0 or self.pooled < 1:
            raise InputError(f"border = {self.border}, pooled = {self.pooled}: give at least 0 and at least 1")

    def prepare(self, x: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
        """Both pictures, clipped and without their borders as this convention has it."""
        if x.shape != reference.shape or x.ndim != 4:
            raise InputError(
                f"pictures of {tuple(x.shape)} and {tuple(reference.shape)}: give two of one shape (B, C, H, W)"
            )
        if self.clip:
            x = x.clamp(0, 1)
        if self.border:
            b = self.border
            if min(x.shape[2:]) <= 2 * b:
                raise InputError(f"a border of {b} leaves nothing of {x.shape[2]}x{x.shape[3]} pixels: give less")
            x, reference = (t[..., b:-b, b:-b] for t in (x, reference))
        return x, reference


STANDARD = Convention()
"""All pixels, nothing clipped, each picture its own: what scikit-image gives."""

PAPER = Convention(border=17, clip=True)
"""The paper's border and clipping, each picture its own, and the metrics used as their authors meant them."""

PAPER_CODE = Convention(border=17, clip=True, pooled=4, ssim_range=None, lpips_shift=False)
"""The published code's own figures (claroche-r/PnP_LADMM, `get_metrics`), for comparison with the paper's table.

- A border of 17 pixels is left out; the estimate is clipped to [0, 1], the reference is not. (As `PAPER`.)
- PSNR: batches of 4 pictures give one squared error, and the table is the mean of those PSNRs: never above the mean of
  the single ones. On the 60 blurred test crops 22.0 instead of 23.2 dB at noise 1, 15.6 in both at 40.
- SSIM: no data range is given, so torchmetrics takes the larger of the spans of estimate and reference over the batch:
  1 for nearly every batch of photographs, so nothing changes.
- LPIPS: the VGG trunk, on pictures in [0, 1] where [-1, 1] is expected: 4 to 9 % too low on blurred test crops.
- A second function there compares pictures rounded to 8 bits, with a data range of 1 for SSIM: the table does not
  come from it, and it is not offered here.
"""
