"""The readers of blur files. Importing this package registers them."""

from pnpladmm.blur.readers import archives, blur_file, companions, psf_grids, psfex, single_array

__all__ = ["archives", "blur_file", "companions", "psf_grids", "psfex", "single_array"]
