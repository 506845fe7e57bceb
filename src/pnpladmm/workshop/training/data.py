"""Training pictures: a folder is decoded once and kept on the device, where random crops are taken from it.

Half a gigapixel of 8-bit pictures takes 1.5 GB, which fits on a GPU. Taking a batch of crops there costs microseconds;
decoding files for each batch would keep the GPU waiting.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import AvifImagePlugin, Image, UnidentifiedImageError
from torch import Tensor

from pnpladmm.denoisers.network import mirror_index
from pnpladmm.files import optional
from pnpladmm.tensors import InputError

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
HEIC = (".heic", ".heif")
SUFFIXES = (".avif", ".bmp", *HEIC, ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def picture_files(folder: Path) -> list[Path]:
    """The picture files of a folder, sorted by name; an empty or missing folder is an error."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder: give a folder of pictures")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"{folder}: no pictures in it: give a folder with files of {', '.join(SUFFIXES)}")
    return files


def read_pixels(path: Path, channels: int, scales: Sequence[float] = (1.0,)) -> list[Pixels]:
    """A picture file as (H, W, channels) uint8, once for each scale that its sides are multiplied by (Lanczos).

    Grey is the luma 0.299 R + 0.587 G + 0.114 B, rounded.
    """
    if channels not in (1, 3):
        raise InputError(f"channels = {channels}: give 1 (grey) or 3 (colour)")
    if path.suffix.lower() in HEIC:
        optional("pillow_heif", "a HEIC file").register_heif_opener()
    try:
        with Image.open(path) as picture:
            whole = picture.convert("L" if channels == 1 else "RGB")
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError) as error:
        raise InputError(f"{path}: not a picture that Pillow can read ({type(error).__name__})") from None
    sizes = [(max(1, round(scale * whole.width)), max(1, round(scale * whole.height))) for scale in scales]
    resized = [whole if size == whole.size else whole.resize(size, Image.Resampling.LANCZOS) for size in sizes]
    return [np.array(one, dtype=np.uint8).reshape(one.height, one.width, channels) for one in resized]


def read_tensor(path: Path, channels: int) -> Tensor:
    """A picture file as (1, channels, H, W) float32 in [0, 1]."""
    pixels = torch.from_numpy(read_pixels(path, channels)[0])
    return pixels.permute(2, 0, 1)[None].float() / 255


@dataclass(frozen=True)
class CropStore:
    """Pictures of any sizes, one after another in one tensor."""

    pixels: Tensor
    """(total, C), uint8."""
    offsets: Tensor
    """(pictures,): where each picture begins in `pixels`."""
    sizes: Tensor
    """(pictures, 2): height and width of each."""

    @classmethod
    def from_pictures(cls, pictures: Sequence[Tensor], device: torch.device | str = "cpu") -> CropStore:
        """Store (H, W, C) uint8 pictures."""
        flat = torch.cat([picture.reshape(-1, picture.shape[-1]) for picture in pictures])
        sizes = torch.tensor([picture.shape[:2] for picture in pictures])
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.prod(1).cumsum(0)[:-1]])
        return cls(flat.to(device), offsets.to(device), sizes.to(device))

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        channels: int,
        crop: int,
        device: torch.device | str = "cpu",
        scales: Sequence[float] = (1.0,),
    ) -> CropStore:
        """Decode the pictures of a folder in parallel, each at every scale; those smaller than a crop are left out.

        Smaller copies have finer detail than most photographs at full size, and add variety to a small folder.
        """
        # One thread per picture: otherwise each thread of the pool starts as many again in the AVIF decoder.
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            decoded = pool.map(lambda path: read_pixels(path, channels, scales), picture_files(folder))
            pictures = [torch.from_numpy(a) for sizes in decoded for a in sizes if min(a.shape[:2]) >= crop]
        if not pictures:
            raise InputError(f"{folder}: no picture has sides of at least {crop} pixels: give a smaller crop")
        return cls.from_pictures(pictures, device)

    def __len__(self) -> int:
        """The number of pictures."""
        return len(self.offsets)

    def crops(self, count: int, side: int, generator: torch.Generator) -> Tensor:
        """Random crops (count, C, side, side) in [0, 1], each in one of the eight orientations.

        Pictures are drawn in proportion to their area, so that every pixel is equally likely. The orientation
        permutes the indices, so that the pixels are read only once.
        """
        device = self.pixels.device

        def below(limit: Tensor) -> Tensor:
            # float64, because float32 has too few digits to number the pixels of a large store.
            uniform = torch.rand(count, generator=generator, device=device, dtype=torch.float64)
            return (uniform * limit).long()

        total = torch.as_tensor(len(self.pixels), device=device)
        picture = torch.searchsorted(self.offsets, below(total), right=True) - 1
        height, width = self.sizes[picture].unbind(1)
        top, left = below(height - side + 1), below(width - side + 1)
        steps = torch.arange(side, device=device)
        flips = torch.randint(2, (3, count, 1, 1), generator=generator, device=device, dtype=torch.bool)
        rows, columns = steps.reshape(1, -1, 1), steps.reshape(1, 1, -1)
        rows, columns = torch.where(flips[0], columns, rows), torch.where(flips[0], rows, columns)
        rows = torch.where(flips[1], side - 1 - rows, rows)
        columns = torch.where(flips[2], side - 1 - columns, columns)
        start = (self.offsets[picture] + top * width + left).reshape(-1, 1, 1)
        gathered = self.pixels[start + rows * width.reshape(-1, 1, 1) + columns]
        # (count, side, side, C) permuted to (count, C, side, side) is in channels_last layout already.
        return gathered.permute(0, 3, 1, 2).float() / 255


def soften_chroma(pictures: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Halve the resolution of colour, not of luma, in a share of the RGB pictures (B, 3, H, W).

    Cameras measure colour and JPEG files store it in this way. Photographs that were scaled down for a training set
    have colour at full resolution.
    """
    luma = 0.299 * pictures[:, :1] + 0.587 * pictures[:, 1:2] + 0.114 * pictures[:, 2:]
    half = F.avg_pool2d(pictures - luma, 2)
    soft = luma + F.interpolate(half, size=pictures.shape[-2:], mode="bilinear", align_corners=False)
    chosen = torch.rand(len(pictures), 1, 1, 1, generator=generator, device=pictures.device) < share
    return torch.where(chosen, soft.clamp(0, 1), pictures)


def mirror_ends(pictures: Tensor, stride: int, generator: torch.Generator) -> Tensor:
    """Replace the last rows and columns of pictures (B, C, H, W) by the mirror image of those before.

    How many is drawn for each picture and axis: none in half of the cases, else 1 to `stride - 1`. In use, networks
    get pictures padded in this way when the sides are not multiples of the stride (denoisers/network.py). The padding
    repeats the noise, which they handle well only if they were trained with it.
    """
    device = pictures.device
    for axis in (-2, -1):
        side = pictures.shape[axis]
        added = torch.randint(1 - stride, stride, (len(pictures), 1), generator=generator, device=device).clamp(min=0)
        shape = (len(pictures), 1, side, 1) if axis == -2 else (len(pictures), 1, 1, side)
        pictures = pictures.take_along_dim(mirror_index(side, side - added).reshape(shape), axis)
    return pictures
