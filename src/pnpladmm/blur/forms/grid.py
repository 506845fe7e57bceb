"""PSFs on a rectangular grid of places.

Between grid points the PSF is the bilinear mix of its four neighbours, beyond the grid that of the nearest
edge, as photutils' GriddedPSFModel has it; the mix is that of the source's own place (weight, then convolve).
"""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import as_bank, condition, crop_margins, sampled, spread
from pnpladmm.blur.interpolation import check_places, hats
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options, Size
from pnpladmm.gate import check_size
from pnpladmm.tensors import InputError


def is_regular(positions: Array) -> bool:
    """Do the places (N, 2) form a full rectangular grid, each once?"""
    x, y = np.unique(positions[:, 0]), np.unique(positions[:, 1])
    return len(positions) == len(x) * len(y) == len(np.unique(positions, axis=0))


def psf_grid(name: str, psfs: Array, positions: Array, options: Options, source: str = "a grid of PSFs") -> Blur:
    """The blur of PSFs (N, [C,] k, k) at places (N, 2) that form a rectangular grid."""
    size = options.needed_size(name, "a grid of PSFs")
    check_places(name, positions)
    check_size(f"{name}: its weights", (len(positions), *map(len, options.places(size))), 4)
    if not is_regular(positions):
        raise InputError(f"{name}: {len(positions)} places do not form a rectangular grid")
    factors = options.factors()
    if factors is None:
        bank, notes = condition(
            name, psfs, options.normalise, options.recentre, options.background, scale=options.scales()
        )
    else:
        bank, notes = _sampled_bank(name, psfs, factors, options)
    x, y = np.unique(positions[:, 0]), np.unique(positions[:, 1])
    order = np.lexsort((positions[:, 0], positions[:, 1]))  # y slowest, as the weights below
    bank, weights = bank[order], bilinear(x, y, options.places(size))
    used = np.abs(weights).max((1, 2)) > 0
    if not used.all():
        notes.append(f"{int((~used).sum())} of {len(used)} PSFs have no part in this picture and are left out")
        bank, weights = bank[used], weights[used]
    if x[0] > size[1] - 1 or x[-1] < 0 or y[0] > size[0] - 1 or y[-1] < 0:
        notes.append(
            f"the grid (x {spread(x)}, y {spread(y)}) lies outside the {size[0]}x{size[1]} picture: check its origin"
        )
    return Blur(
        torch.from_numpy(bank),
        torch.from_numpy(weights),
        options.order or "weight-then-convolve",
        tuple(notes),
        f"{source}, {len(y)}x{len(x)} places",
    )


def bilinear(x: Array, y: Array, size: Size | tuple[Array, Array]) -> Array:
    """Weights (ny * nx, H, W) float32 of grid points on every pixel, or on these rows and columns; y slowest."""
    places = [np.arange(n, dtype=float) if isinstance(n, int) else n for n in size]
    rows, columns = (hats(at, nodes) for at, nodes in zip(places, (y, x), strict=True))
    return np.einsum("jh,iw->jihw", rows, columns).reshape(-1, *map(len, places))


def _sampled_bank(name: str, psfs: Array, factors: tuple[float, float], options: Options) -> tuple[Array, list[str]]:
    bank = as_bank(name, sampled(as_bank(name, psfs), factors))
    notes = [f"{factors[0]:g}x{factors[1]:g} samples per pixel, taken at the centres of detector pixels"]
    if options.recentre:
        bank, done = condition(name, bank, normalise=False, recentre=True)
        notes += done
    sums = bank.sum((-2, -1))
    mean, product = float(sums.mean()), factors[0] * factors[1]
    if options.normalise and not 0.8 < mean < 1.25:
        # Files whose samples sum to 1 are common; photutils wants them to sum to the product of the factors.
        factor, why = (
            (product, "samples summed to 1") if 0.8 < mean * product < 1.25 else (1 / mean, "to a mean sum of 1")
        )
        bank = bank * factor
        notes.append(f"normalised: multiplied by {factor:.4g} ({why}), so that brightness is kept")
        sums = sums * factor
    notes.append(f"PSFs sum to {spread(sums)} inside their stamps")
    bank, cropped = crop_margins(bank)
    return bank, notes + cropped
