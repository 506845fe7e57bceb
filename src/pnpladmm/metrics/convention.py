"""How pictures are prepared for a metric: choices that change its value without a better picture."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Convention:
    """How two pictures (B, C, H, W), nominally in [0, 1], are prepared before a metric sees them."""

    border: int = 0
    """Rows and columns left out on every side. Half a kernel leaves out what a circular border has made wrong."""
    clip: bool = False
    """Clip the estimate, not the reference, to [0, 1], as in a picture file."""
    pooled: int = 1
    """The number of successive pictures that share one squared error (and one range of SSIM); 1 for no pooling."""
    ssim_range: float | None = 1.0
    """SSIM's data range; with None the larger of the two spans of values, over all pictures that are pooled."""
    lpips_shift: bool = True
    """Map [0, 1] to the [-1, 1] that LPIPS was trained on. Without it, contrast is halved."""

    def __post_init__(self) -> None:
        if self.border < 0 or self.pooled < 1:
            raise InputError(f"border = {self.border}, pooled = {self.pooled}: give at least 0 and at least 1")

    def prepare(self, x: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
        """Both pictures, clipped and without borders, as this convention says."""
        if x.shape != reference.shape or x.ndim != 4:
            raise InputError(
                f"pictures of {tuple(x.shape)} and {tuple(reference.shape)}: give two of one shape (B, C, H, W)"
            )
        if self.clip:
            x = x.clamp(0, 1)
        if self.border:
            b = self.border
            if min(x.shape[2:]) <= 2 * b:
                raise InputError(f"a border of {b} leaves nothing of {x.shape[2]}x{x.shape[3]} pixels: make it smaller")
            x, reference = (t[..., b:-b, b:-b] for t in (x, reference))
        return x, reference


STANDARD = Convention()
"""All pixels, no clipping, each picture by itself: as in scikit-image."""

PAPER = Convention(border=17, clip=True)
"""The paper's border and clipping, each picture by itself, and the metrics as their authors define them."""

PAPER_CODE = Convention(border=17, clip=True, pooled=4, ssim_range=None, lpips_shift=False)
"""The numbers of the published code (claroche-r/PnP_LADMM, `get_metrics`), for comparison with the paper's table.

- A border of 17 pixels is left out; the estimate is clipped to [0, 1], the reference is not. (As `PAPER`.)
- PSNR: each batch of 4 pictures gives one squared error, and the table is the mean of those PSNRs. It is never above
  the mean over single pictures: on the 60 blurred test crops 22.0 instead of 23.2 dB at noise 1, 15.6 in both at 40.
- SSIM: no data range is given, so torchmetrics takes the larger of the spans of estimate and reference over the batch.
  That is 1 for nearly every batch of photographs, so nothing changes.
- LPIPS: the VGG trunk, on pictures in [0, 1] where [-1, 1] is expected: 4 to 9 % too low on blurred test crops.
"""
