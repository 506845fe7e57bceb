"""What a blur is and where it comes from."""

from pnpladmm.blur.describe import describe
from pnpladmm.blur.drawing import draw_blur
from pnpladmm.blur.model import Blur
from pnpladmm.blur.reading import read_blur, write_blur
from pnpladmm.blur.synthesis import common_size, defocus, gaussian, motion, soft_regions

__all__ = [
    "Blur",
    "common_size",
    "defocus",
    "describe",
    "draw_blur",
    "gaussian",
    "motion",
    "read_blur",
    "soft_regions",
    "write_blur",
]
