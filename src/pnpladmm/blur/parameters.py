"""The length, angle, radius or width of a blur from the blurred picture alone: the likelihood of its spectrum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.blur.conditioning import same_size
from pnpladmm.blur.spectrum import Spectrum, spectrum_of, transfer_of
from pnpladmm.blur.synthesis import defocus, gaussian, motion
from pnpladmm.tensors import InputError

NAMES = {"motion": "length", "defocus": "radius", "gaussian": "sigma"}
"""What the size of each kind of blur is called."""
SIZES = {"motion": (1.5, 40.0, 18), "defocus": (0.6, 30.0, 60), "gaussian": (0.3, 15.0, 60)}
"""Smallest and largest size that is looked for in pixels, and how many in between."""
ANGLES = np.arange(0.0, 180.0, 5.0)
SMALLEST = 48
"""Pixels; in a smaller region nothing can be told apart."""
LARGEST_SHARE = 0.2
"""A blur larger than this share of the region's shorter side leaves no trace that could be told from the scene."""
FLAT = 1e-4
"""Standard deviation of a picture that shows nothing."""
CLEAR = 12.0
"""By how much the logarithm of the likelihood must exceed that of no blur, and of any other size."""
INFLATED = 3.0
"""Cells of the spectrum are not independent: errors are so many times those of the likelihood's curvature."""
LEAST, LEAST_ASIDE = 0.1, 0.12
"""Pixels: no size is known better, and no end of a motion aside."""
NEAR, NEAR_SHARE, TURN = 0.5, 0.05, 3.0
"""Pixels, share of the size, degrees: an error above these is named."""


@dataclass(frozen=True)
class Parameters:
    """A blur of one kind that a picture shows.

    Examples
    --------
    >>> found = Parameters("motion", 12.0, 30.0, 0.2, 1.0, ())
    >>> found.kernel().shape, str(found)
    ((13, 13), 'motion: length 12.0 +- 0.2, angle 30 +- 1 degrees')
    """

    kind: str
    size: float
    angle: float
    size_error: float
    angle_error: float
    doubts: tuple[str, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """Size, and the angle of a motion."""
        return (self.size, self.angle) if self.kind == "motion" else (self.size,)

    def kernel(self) -> Array:
        """The kernel (k, k)."""
        return kernel_of(self.kind, self.values)

    def uncertainty(self) -> float:
        """The relative l2 error of the kernel that the errors of the parameters make; a half or more if in doubt."""
        change = relative_change(self.kind, self.values, (self.size_error, self.angle_error))
        return max(change, 0.5) if self.doubts else change

    def __str__(self) -> str:
        angle = f", angle {self.angle:.0f} +- {self.angle_error:.0f} degrees" if self.kind == "motion" else ""
        return f"{self.kind}: {NAMES[self.kind]} {self.size:.1f} +- {self.size_error:.1f}{angle}"


def find_parameters(kind: str, pixels: Array, inside: Array | None = None) -> Parameters:
    """The most likely size (and angle) of a blur.

    Parameters
    ----------
    kind : {"motion", "defocus", "gaussian"}
        What the blur is.
    pixels : array (H, W)
        The blurred picture.
    inside : array (H, W) of bool, optional
        The region that has this blur.

    Returns
    -------
    Parameters
        With errors, and doubts where the picture does not show the blur.
    """
    box = pixels if inside is None else pixels[np.ix_(inside.any(1), inside.any(0))]
    if min(box.shape) < SMALLEST:
        raise InputError(f"{kind}: auto: a region of {box.shape[1]}x{box.shape[0]} pixels: {SMALLEST} are needed")
    if (pixels if inside is None else pixels[inside]).std() < FLAT:
        raise InputError(f"{kind}: auto: the region is flat: it shows no blur")
    spectrum = spectrum_of(pixels, inside)
    low, high, count = SIZES[kind]
    sizes = np.geomspace(low, min(high, LARGEST_SHARE * min(box.shape)), count)
    angles = ANGLES if kind == "motion" else np.zeros(1)
    table = np.array([[_likelihood(kind, (s, a), spectrum) for a in angles] for s in sizes])
    row, column = np.unravel_index(int(table.argmax()), table.shape)
    best, top = _refined(kind, sizes, int(row), float(angles[column]), spectrum)
    errors = _errors(kind, best, top, spectrum)
    doubts = _doubts(kind, best, top, errors, sizes, angles, table, spectrum)
    return Parameters(kind, best[0], best[1] % 180, errors[0], errors[1], doubts)


def kernel_of(kind: str, values: tuple[float, ...]) -> Array:
    """The kernel (k, k) with these parameters."""
    kernel = (
        motion(values[0], values[1]) if kind == "motion" else (defocus if kind == "defocus" else gaussian)(values[0])
    )
    return kernel.numpy()


def relative_change(kind: str, values: tuple[float, ...], errors: tuple[float, float]) -> float:
    """The relative l2 change of a kernel whose parameters are wrong by their errors."""
    size, angle = values[0], values[1] if len(values) > 1 else 0.0
    total = 0.0
    for other in ((size + errors[0], angle), (size, angle + errors[1])):
        a, b = same_size([kernel_of(kind, (size, angle)), kernel_of(kind, other)])[:, 0]
        total += float(((a - b) ** 2).sum() / (a**2).sum())
    return min(1.0, total**0.5)


def _likelihood(kind: str, values: tuple[float, float], spectrum: Spectrum) -> float:
    return spectrum.likelihood(transfer_of(kind, values, spectrum))


def _refined(kind: str, sizes: Array, row: int, angle: float, spectrum: Spectrum) -> tuple[tuple[float, float], float]:
    """The maximum near a node of the search, and its value."""
    from scipy.optimize import minimize, minimize_scalar

    size = float(sizes[row])
    if kind != "motion":
        low, high = float(sizes[max(0, row - 1)]), float(sizes[min(len(sizes) - 1, row + 1)])
        one = minimize_scalar(
            lambda s: -_likelihood(kind, (s, 0.0), spectrum),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 1e-3},
        )
        return (float(one.x), 0.0), -float(one.fun)
    start = np.array([[size, angle], [size * 1.08, angle], [size, angle + 2.5]])
    two = minimize(
        lambda v: -_likelihood(kind, (abs(v[0]), v[1]), spectrum),
        start[0],
        method="Nelder-Mead",
        options={"initial_simplex": start, "maxfev": 80, "xatol": 0.01, "fatol": 1e-3},
    )
    return (abs(float(two.x[0])), float(two.x[1])), -float(two.fun)


def _errors(kind: str, best: tuple[float, float], top: float, spectrum: Spectrum) -> tuple[float, float]:
    """How far each parameter can be moved until the logarithm of the likelihood falls by 1/2, inflated."""
    found = []
    for axis, step in ((0, 0.01 * best[0] + 0.02), (1, 0.5)):
        if axis == 1 and kind != "motion":
            found.append(0.0)
            continue
        fall = 0.0
        for _ in range(8):
            sides = []
            for sign in (-1, 1):
                moved = [best[0], best[1]]
                moved[axis] = max(moved[axis] + sign * step, 1e-3) if axis == 0 else moved[axis] + sign * step
                sides.append(top - _likelihood(kind, (moved[0], moved[1]), spectrum))
            fall = max(sum(sides) / 2, 1e-6)
            if fall > 0.5:
                break
            step *= 2
        found.append(INFLATED * step / float(np.sqrt(2 * fall)))
    aside = float(np.degrees(LEAST_ASIDE / (best[0] / 2))) if kind == "motion" else 0.0
    return float(np.hypot(found[0], LEAST)), float(np.hypot(found[1], aside))


def _doubts(
    kind: str,
    best: tuple[float, float],
    top: float,
    errors: tuple[float, float],
    sizes: Array,
    angles: Array,
    table: Array,
    spectrum: Spectrum,
) -> tuple[str, ...]:
    """Why the parameters may be wrong, in words."""
    found = []
    name, near = NAMES[kind], max(NEAR, NEAR_SHARE * best[0])
    if best[0] < 1.15 * sizes[0]:
        found.append(f"the picture shows no {kind}: the kernel is a point")
    elif top - spectrum.likelihood(np.ones_like(spectrum.fx)) < CLEAR:
        found.append(f"the picture looks as likely without any {kind}")
    turned = np.abs((angles[None, :] - best[1] + 90) % 180 - 90) > 20 if kind == "motion" else np.zeros((1, 1), bool)
    far = (np.abs(sizes[:, None] - best[0]) > np.maximum(3 * near, 0.25 * best[0])) | turned
    if far.any() and top - table[far].max() < CLEAR:
        other = float(sizes[np.unravel_index(int(np.where(far, table, -np.inf).argmax()), table.shape)[0]])
        found.append(f"a {name} of {other:.1f} is about as likely as {best[0]:.1f}")
    if errors[0] > near:
        found.append(f"the {name} is known to {errors[0]:.1f} pixels only")
    if errors[1] > TURN:
        found.append(f"the angle is known to {errors[1]:.0f} degrees only")
    if best[0] > 0.97 * sizes[-1]:
        found.append(f"the {name} may be larger than {sizes[-1]:.0f}, the largest that the region can show")
    return tuple(found)
