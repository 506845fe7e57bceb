"""PSNR, SSIM and LPIPS of a picture against its reference."""

from pnpladmm.metrics.convention import PAPER, PAPER_CODE, STANDARD, Convention
from pnpladmm.metrics.fidelity import psnr, ssim
from pnpladmm.metrics.perceptual import LPIPS, load_lpips

__all__ = ["LPIPS", "PAPER", "PAPER_CODE", "STANDARD", "Convention", "load_lpips", "psnr", "ssim"]
