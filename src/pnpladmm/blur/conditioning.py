"""Kernels prepared for use: normalised, centred, cropped, resampled. Each step is reported.

Shapes: kernels (P, C, kh, kw) float64 arrays with their centre at index `k // 2`. Offsets are (x, y) in pixels,
x to the right along columns, y down along rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.offsets import without_offset
from pnpladmm.blur.resampling import check_scale, resampled
from pnpladmm.gate import check_size
from pnpladmm.tensors import InputError

EMPTY = 1e-7
"""Margins that hold less than this share of a kernel's absolute sum are empty."""
COPIES = 5
"""Copies of the kernels that exist at a time while they are prepared."""
OFF_CENTRE = 0.05
"""Pixels: offsets below this are not reported."""


def condition(
    name: str,
    kernels: Array,
    normalise: bool = True,
    recentre: bool = False,
    background: float | str | None = None,
    crop: bool = True,
    scale: tuple[float, float] | None = None,
) -> tuple[Array, list[str]]:
    """Kernels of sum 1 (each channel its own), with empty margins cropped, and notes on what was done.

    background : a level to subtract first (a camera's offset), or `border`: that of each kernel's outer part. None:
        an offset is subtracted where one is seen (`offsets`).
    recentre : shift each kernel so that its centroid lies on the centre. Otherwise offsets are kept, and reported.
    scale : pixels of the picture per pixel of the kernels, (y, x): they are brought to the picture's pixels.
    """
    notes: list[str] = []
    kernels = as_bank(name, kernels)
    if normalise or background is not None:
        kernels = without_offset(name, kernels, background, notes)
    if scale is not None and scale != (1.0, 1.0):
        check_scale(name, scale)
        before, kernels = kernels.shape[-2:], resampled(kernels, scale)
        shown = " x ".join(dict.fromkeys(f"{s:.4g}" for s in scale))
        notes.append(
            f"resampled: a pixel of the PSF is {shown} pixels of the picture, "
            f"kernels of {before[0]}x{before[1]} are now {kernels.shape[-2]}x{kernels.shape[-1]}"
        )
    sums = kernels.sum((-2, -1))
    if normalise:
        size = np.abs(kernels).sum((-2, -1))
        if not (sums > 1e-6 * size).all():
            worst = int(np.argmin((sums / np.maximum(size, 1e-300)).min(1)))
            raise InputError(
                f"{name}: kernel {worst} sums to {sums[worst].min():.3g}: a blur kernel sums to more than 0"
            )
        if np.abs(sums - 1).max() > 1e-3:
            notes.append(f"normalised: divided by sums of {spread(sums)}, so that brightness is kept")
        kernels = kernels / sums[..., None, None]
    negative = -np.minimum(kernels, 0).sum((-2, -1)) / np.abs(kernels).sum((-2, -1)).clip(1e-300)
    if negative.max() > 1e-6:
        notes.append(f"negative values kept: up to {100 * negative.max():.2g} % of a kernel's absolute sum")
    kernels = _centre(kernels, recentre, notes)
    kernels, cropped = crop_margins(kernels) if crop else (kernels, [])
    return kernels, notes + cropped


def as_bank(name: str, kernels: Array) -> Array:
    """(k, k), (P, k, k) or (P, C, k, k) as (P, C, k, k); refuses kernels that are all zero."""
    if kernels.ndim == 2:
        kernels = kernels[None]
    if kernels.ndim == 3:
        kernels = kernels[:, None]
    if kernels.ndim != 4 or 0 in kernels.shape:
        raise InputError(f"{name}: kernels have shape {kernels.shape}: give (k, k), (P, k, k) or (P, C, k, k)")
    check_kernels(name, kernels.shape)
    if not kernels.any():
        raise InputError(f"{name}: all values are 0: there is no kernel in it")
    return kernels


def check_kernels(name: str, shape: Sequence[int]) -> None:
    """Refuse kernels so large that the copies on the way would exceed the limit."""
    check_size(f"{name}: its kernels", shape, COPIES * 8)


def centroids(kernels: Array) -> Array:
    """(P, C, 2): (x, y) of each kernel's centroid from its centre. Negative values do not count."""
    kh, kw = kernels.shape[-2:]
    mass = np.maximum(kernels, 0)
    total = mass.sum((-2, -1)).clip(1e-300)
    x = (mass.sum(-2) * (np.arange(kw) - kw // 2)).sum(-1) / total
    y = (mass.sum(-1) * (np.arange(kh) - kh // 2)).sum(-1) / total
    return np.stack([x, y], -1)


def recentred(kernels: Array) -> Array:
    """Each kernel shifted by cubic splines until its centroid lies on the centre; sum and sign kept."""
    from scipy.ndimage import shift

    kernels = np.pad(kernels, [(0, 0)] * (kernels.ndim - 2) + [(2, 2)] * 2)
    result = np.empty_like(kernels)
    for index in np.ndindex(kernels.shape[:-2]):
        kernel, total = kernels[index], np.zeros(2)
        moved = kernel
        for _ in range(4):  # clipping moves the centroid a little, so once is not enough
            total -= centroids(moved[None, None])[0, 0][::-1]
            moved = shift(kernel, total, order=3, mode="constant")
            if (kernel >= 0).all():
                moved = np.maximum(moved, 0)
        result[index] = moved * (kernel.sum() / moved.sum())
    return result


def crop_margins(kernels: Array, share: float = EMPTY) -> tuple[Array, list[str]]:
    """Crop empty margins to odd sizes with the centre in the middle. At most `share` of the absolute sum is cut off."""
    size = np.abs(kernels).sum((-2, -1), keepdims=True).clip(1e-300)
    used = (np.abs(kernels) / size).max((0, 1))
    radii = []
    for axis in (0, 1):
        profile, centre = used.sum(1 - axis), kernels.shape[axis - 2] // 2
        far = np.abs(np.arange(len(profile)) - centre)
        radius = int(far.max())
        while radius > 0 and profile[far >= radius].sum() <= share:
            radius -= 1
        radii.append(radius)
    before = kernels.shape[-2:]
    after = tuple(2 * r + 1 for r in radii)
    if after[0] >= before[0] and after[1] >= before[1]:
        return kernels, []
    kernels = resized(kernels, (min(after[0], before[0]), min(after[1], before[1])))
    kh, kw = kernels.shape[-2:]
    return kernels, [f"empty margins cropped: kernels of {before[0]}x{before[1]} are now {kh}x{kw}"]


def resized(kernels: Array, size: tuple[int, int]) -> Array:
    """Cropped or padded with zeros to `size`, centre index `k // 2` on centre index `k // 2`."""
    result = np.zeros((*kernels.shape[:-2], *size))
    source, target = [], []
    for old, new in zip(kernels.shape[-2:], size, strict=True):
        shift = new // 2 - old // 2
        source.append(slice(max(0, -shift), min(old, new - shift)))
        target.append(slice(max(0, shift), min(new, old + shift)))
    result[..., target[0], target[1]] = kernels[..., source[0], source[1]]
    return result


def same_size(kernels: list[Array]) -> Array:
    """Kernels (C, kh, kw) or (kh, kw) of different sizes as one bank (P, C, k, k), centres aligned."""
    kernels = [k[None] if k.ndim == 2 else k for k in kernels]
    odd = [k.shape for k in kernels if k.ndim != 3]
    if odd or not kernels:
        raise InputError(f"kernels have shape {odd[0] if odd else ()}: give (k, k) or (C, k, k)")
    channels = {k.shape[0] for k in kernels} - {1}
    if len(channels) > 1:
        raise InputError(f"kernels have {' and '.join(map(str, sorted(channels)))} channels: they must agree")
    # Odd, so that there is room for an even kernel's extra row on either side of the centre.
    height, width = (2 * max(k.shape[axis] // 2 for k in kernels) + 1 for axis in (1, 2))
    count = max([1, *channels])
    check_kernels("kernels", (len(kernels), count, height, width))
    return np.stack([np.broadcast_to(resized(k, (height, width)), (count, height, width)) for k in kernels])


def sampled(psfs: Array, oversampling: tuple[float, float]) -> Array:
    """Oversampled PSFs (P, C, n, m) at the centres of detector pixels, as photutils evaluates them.

    Their origin is the middle, `(n - 1) / 2`; values between samples come from a cubic spline. They are
    surface brightness: a PSF of flux 1 sums to the product of the two factors (given as (y, x)) before, to 1 after.
    """
    from scipy.interpolate import RectBivariateSpline

    (n, m), (oy, ox) = psfs.shape[-2:], oversampling
    if min(n, m) < 2:
        raise InputError(f"oversampling of PSFs of {n}x{m} values: give two or more along each side, or leave it out")
    half_y, half_x = int((n - 1) / 2 / oy + 1e-9), int((m - 1) / 2 / ox + 1e-9)
    rows = (n - 1) / 2 + oy * np.arange(-half_y, half_y + 1)
    columns = (m - 1) / 2 + ox * np.arange(-half_x, half_x + 1)
    result = np.empty((*psfs.shape[:-2], len(rows), len(columns)))
    for index in np.ndindex(psfs.shape[:-2]):
        spline = RectBivariateSpline(np.arange(n), np.arange(m), psfs[index], kx=min(3, n - 1), ky=min(3, m - 1), s=0)
        result[index] = spline(rows, columns)
    return result


def at_pixel_centres(psfs: Array, factors: tuple[float, float] | None, notes: list[str]) -> Array:
    """PSFs (P, C, n, m) with `factors` (y, x) samples per detector pixel as one sample per pixel."""
    if factors is None:
        return psfs
    notes.append(f"oversampled {factors[0]:g}x{factors[1]:g}: taken at the centres of detector pixels")
    return sampled(psfs, factors)


def relative_errors(shown: Array, true: Array) -> Array:
    """Relative L2 error of each kernel: (P, ...) and (P, ...) give (P,)."""
    axes = tuple(range(1, true.ndim))
    result: Array = np.sqrt(((shown - true) ** 2).sum(axes) / (true**2).sum(axes).clip(1e-300))
    return result


def spread(values: Array, form: str = ".4g") -> str:
    """`a` or `a to b` for the range of some numbers."""
    low, high = float(np.min(values)), float(np.max(values))
    texts = f"{low:{form}}", f"{high:{form}}"
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"


def _centre(kernels: Array, recentre: bool, notes: list[str]) -> Array:
    offsets = centroids(kernels)
    far = np.hypot(offsets[..., 0], offsets[..., 1])
    if far.max() <= OFF_CENTRE:
        return kernels
    x, y = offsets[np.unravel_index(far.argmax(), far.shape)]
    where = f"({x:+z.2f}, {y:+z.2f}) pixels (x, y)"
    if recentre:
        notes.append(f"recentred: centroids lay up to {where} from the centre")
        return recentred(kernels)
    notes.append(f"centroids lie up to {where} from the centre, and are kept: the blur shifts the picture by as much")
    return kernels
