"""Picture files in and out: PNG, JPEG, TIFF, FITS, NPY, WebP, AVIF, HEIC, BMP; depth, colour and metadata kept.

picture = read_picture("cells.ome.tif")          # picture.pixels: (pages, C, H, W), nominally in [0, 1]
restored = picture.with_pixels(new_pixels)
written = write_picture("restored.ome.tif", restored)   # written.clipped_samples, written.notes
"""

from pnpladmm.gate import MAX_BYTES
from pnpladmm.pictures.files import Written, check_output, read_picture, write_picture, write_png
from pnpladmm.pictures.metadata import Metadata, Resolution
from pnpladmm.pictures.picture import Picture

__all__ = [
    "MAX_BYTES",
    "Metadata",
    "Picture",
    "Resolution",
    "Written",
    "check_output",
    "read_picture",
    "write_picture",
    "write_png",
]
