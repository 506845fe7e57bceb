"""PSFs seen at scattered places (beads, stars): a stack and a table of x, y.

The PSF at any place is `mean + sum_i a_i(x, y) e_i`: the `e_i` are the leading singular vectors of the stack,
the `a_i` smooth interpolations (thin-plate splines) of the coefficients at the places where PSFs were seen.
The error of the low rank, and how well each PSF is predicted by the others (leave one out), are reported. All PSFs
are brought to sum 1 first, so every `e_i` sums to 0 and brightness is kept everywhere.
"""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import at_pixel_centres, condition, relative_errors
from pnpladmm.blur.interpolation import check_places, hats
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options, Size
from pnpladmm.gate import check_size
from pnpladmm.tensors import InputError

COARSE = 32
"""Number of points along an axis where splines are evaluated; they are smooth, so bilinear interpolation follows."""
MOST_KERNELS = 32
"""The largest number of kernels unless told otherwise."""
LEAVE_ONE_OUT = 64
"""With more PSFs than this the error is not measured by leaving out each PSF in turn."""


def scattered_psfs(name: str, stack: Array, positions: Array, options: Options) -> Blur:
    """The blur of PSFs (N, [C,] k, k) seen at places (N, 2) as (x, y), pixels from 0."""
    size = options.needed_size(name, "a stack of PSFs")
    if len(stack) != len(positions):
        raise InputError(f"{name}: {len(stack)} PSFs, {len(positions)} places: they must match")
    check_places(name, positions)
    if len(np.unique(positions, axis=0)) != len(positions):
        raise InputError(f"{name}: two PSFs have the same place: average them")
    notes: list[str] = []
    stack = at_pixel_centres(stack[:, None] if stack.ndim == 3 else stack, options.factors(), notes)
    bank, done = condition(name, stack, options.normalise, options.recentre, options.background, scale=options.scales())
    notes += done
    try:
        return _varying(name, bank, positions, options, size, notes)
    except np.linalg.LinAlgError:
        raise InputError(
            f"{name}: its places lie so that nothing can be interpolated between them: are they pixels?"
        ) from None


def _varying(name: str, bank: Array, positions: Array, options: Options, size: Size, notes: list[str]) -> Blur:
    """The blur of PSFs of sum 1."""
    mean = bank.mean(0)
    allowed = max(options.tolerance, 1e-9) * float(np.linalg.norm(bank))
    vectors, coefficients = low_rank(bank - mean, allowed, (options.most or MOST_KERNELS) - 1)
    notes.append(_rank_note(bank, mean, vectors, coefficients))
    if 4 <= len(bank) <= LEAVE_ONE_OUT and len(vectors):
        notes.append(_left_out(bank, mean, vectors, coefficients, positions))
    notes += _place_notes(positions, size)
    places = options.places(size)
    check_size(f"{name}: its weights", (len(vectors) + 1, *map(len, places)), 8)
    kernels = np.concatenate([mean[None], vectors])
    ones = np.ones((1, *map(len, places)), np.float32)
    weights = np.concatenate([ones, fields(positions, coefficients, size, places)])
    return Blur(
        torch.from_numpy(kernels),
        torch.from_numpy(weights),
        options.order or "weight-then-convolve",
        tuple(notes),
        f"{len(bank)} PSFs at scattered places",
    )


def low_rank(stack: Array, tolerance: float, most: int) -> tuple[Array, Array]:
    """Singular vectors (r, C, k, k) and coefficients (N, r): the fewest with error below `tolerance` (absolute)."""
    flat = stack.reshape(len(stack), -1)
    u, s, vt = np.linalg.svd(flat, full_matrices=False)
    energy = s**2
    rest = np.sqrt(np.maximum(energy.sum() - np.concatenate([[0], np.cumsum(energy)]), 0))
    rank = min(int(np.argmax(rest <= tolerance)) if (rest <= tolerance).any() else len(s), most)
    return vt[:rank].reshape(rank, *stack.shape[1:]), u[:, :rank] * s[:rank]


def fields(positions: Array, coefficients: Array, size: Size, places: tuple[Array, Array] | None = None) -> Array:
    """Coefficients (N, r) at places (N, 2), interpolated to every pixel, or to rows and columns: (r, H, W) float32.

    Beyond the outermost places nothing is extrapolated: a pixel there takes the value at the nearest point of
    the box around them, and no coefficient leaves the range it has at the places.
    """
    height, width = size
    wanted = places or (np.arange(height, dtype=float), np.arange(width, dtype=float))
    if coefficients.shape[1] == 0:
        return np.zeros((0, *map(len, wanted)), np.float32)
    low, high = positions.min(0), positions.max(0)
    rows = np.linspace(0, height - 1, min(height, COARSE))
    columns = np.linspace(0, width - 1, min(width, COARSE))
    # The places themselves are nodes too, so that the result there is what was seen there.
    rows, columns = (
        np.union1d(rows, _inside(positions[:, 1], height)),
        np.union1d(columns, _inside(positions[:, 0], width)),
    )
    grid = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2)
    values = interpolate(positions, coefficients, np.clip(grid, low, high))
    coarse = values.T.reshape(-1, len(rows), len(columns))
    down, across = (hats(at, nodes) for at, nodes in zip(wanted, (rows, columns), strict=True))
    return down.T @ coarse.astype(np.float32) @ across


def interpolate(positions: Array, coefficients: Array, at: Array) -> Array:
    """Thin-plate splines through coefficients (N, r) at (N, 2); linear kernels where places lie on a line."""
    from scipy.interpolate import RBFInterpolator

    span = max(float(np.ptp(positions, axis=0).max()), 1.0)
    centre = positions.mean(0)
    scaled, target = (positions - centre) / span, (at - centre) / span
    spans_plane = np.linalg.matrix_rank(np.c_[np.ones(len(scaled)), scaled], tol=1e-3) == 3
    kernel, degree = ("thin_plate_spline", 1) if spans_plane and len(scaled) > 3 else ("linear", 0)
    try:
        values = RBFInterpolator(scaled, coefficients, kernel=kernel, degree=degree)(target)
    except np.linalg.LinAlgError:  # nearly on a line, or nearly at one place
        values = RBFInterpolator(scaled, coefficients, kernel="linear", degree=0)(target)
    return np.clip(values, coefficients.min(0), coefficients.max(0))


def _inside(values: Array, count: int) -> Array:
    return np.unique(np.clip(np.round(values), 0, count - 1)) if len(values) <= 2 * COARSE else np.empty(0)


def _rank_note(bank: Array, mean: Array, vectors: Array, coefficients: Array) -> str:
    shown = mean + np.einsum("nr,rcij->ncij", coefficients, vectors)
    errors = relative_errors(shown, bank)
    return (
        f"low rank: {len(bank)} PSFs as a mean and {len(vectors)} singular vectors, "
        f"error {100 * errors.mean():.2g} % (at most {100 * errors.max():.2g} %)"
    )


def _left_out(bank: Array, mean: Array, vectors: Array, coefficients: Array, positions: Array) -> str:
    errors = []
    for i in range(len(bank)):
        kept = np.arange(len(bank)) != i
        guess = interpolate(positions[kept], coefficients[kept], positions[i : i + 1])
        errors.append(relative_errors(mean + np.einsum("nr,rcij->ncij", guess, vectors), bank[i : i + 1])[0])
    mean_error, worst = 100 * np.mean(errors), 100 * max(errors)
    return f"leave one out: each PSF is predicted by the others to {mean_error:.2g} % (at worst {worst:.2g} %)"


def _place_notes(positions: Array, size: Size) -> list[str]:
    height, width = size
    outside = ((positions < -0.5) | (positions > np.array([width, height]) - 0.5)).any(1)
    notes = (
        [f"{int(outside.sum())} of {len(positions)} places lie outside the {height}x{width} picture"]
        if outside.any()
        else []
    )
    (left, top), (right, bottom) = positions.min(0), positions.max(0)
    margin = max(left, top, width - 1 - right, height - 1 - bottom)
    if margin > 0.25 * min(height, width):
        notes.append(f"no PSF was seen within {margin:.0f} pixels of one border: the nearest ones are used there")
    return notes
