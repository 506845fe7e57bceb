"""What a blur is and where it comes from."""

from pnpladmm.blur.synthesis import common_size, defocus, gaussian, motion, soft_regions

__all__ = ["common_size", "defocus", "gaussian", "motion", "soft_regions"]
