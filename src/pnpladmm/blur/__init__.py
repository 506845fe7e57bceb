"""What a blur is and where it comes from."""

from pnpladmm.blur.conversion import as_blur
from pnpladmm.blur.describe import describe
from pnpladmm.blur.drawing import draw_blur
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.blur.reading import read_blur, write_blur
from pnpladmm.blur.registry import READERS
from pnpladmm.blur.synthesis import common_size, defocus, gaussian, motion, soft_regions
from pnpladmm.blur.trust import Estimate, Table

__all__ = [
    "READERS",
    "Blur",
    "Estimate",
    "Options",
    "Table",
    "as_blur",
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
