"""Blur kernels for the experiments: random camera motion and Gaussians as in the paper, or from files.

Kernels are float64, 33x33 (larger only where a file's are), non-negative, of sum 1, centre at index 16.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pnpladmm.blur.arrays import check_numbers, read_archive, read_array
from pnpladmm.blur.conditioning import condition, same_size
from pnpladmm.blur.sniffing import sniff
from pnpladmm.places import shared_folder
from pnpladmm.tensors import InputError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

SIZE = 33
VARIANCES = (0.6, 12.0)
"""Of the Gaussians along their two axes, in pixels squared."""
LENGTHS = (8.0, 40.0)
"""Of the camera's path, in pixels."""
REACH = 15.0
"""Largest distance of a path from its centre, in pixels."""
STEPS = 400
"""Positions of the camera during the exposure: less than a tenth of a pixel apart, so that the path has no gaps."""
LEVIN = "Levin09.mat"


def motion_kernel(rng: np.random.Generator) -> Array:
    """The path of a shaken camera during the exposure, as a kernel."""
    return splat(motion_path(rng))


def motion_path(rng: np.random.Generator) -> Array:
    """The path of a shaken camera, (STEPS,) complex: a mass that is pushed at random and pulled back by the hand.

        v <- (1 - drag) v + push n - pull x + jerk,      x <- x + v

    with `n` complex Gaussian; sometimes a jerk turns the velocity. The strength of the pushes differs between kernels:
    paths range from nearly straight lines to knots. The path is scaled to a random length, shortened where it would not
    fit, and its centre of mass is moved to the kernel's centre.
    """
    restless = rng.uniform(0.02, 0.3)
    pull, drag, jerks = rng.uniform(0, 2e-4), rng.uniform(0, 0.02), rng.uniform(0, 0.01)
    pushes = rng.standard_normal(STEPS) + 1j * rng.standard_normal(STEPS)
    turns = np.where(rng.random(STEPS) < jerks, np.exp(1j * rng.uniform(-np.pi, np.pi, STEPS)), 1)
    position, velocity = 0j, np.exp(2j * np.pi * rng.random())
    path = np.empty(STEPS, dtype=complex)
    for t in range(STEPS):
        path[t] = position
        velocity = turns[t] * ((1 - drag) * velocity + restless * pushes[t] - pull * position)
        position += velocity
    length = rng.uniform(*LENGTHS)
    path *= length / np.abs(np.diff(path)).sum()
    path -= path.mean()
    path *= min(1.0, REACH / max(np.abs(path.real).max(), np.abs(path.imag).max()))
    return path


def gaussian_kernel(rng: np.random.Generator) -> Array:
    """An anisotropic Gaussian: two variances and an angle, all uniform."""
    variances, angle = rng.uniform(*VARIANCES, 2), rng.uniform(0, np.pi)
    axis = np.arange(SIZE) - SIZE // 2
    x, y = axis[None, :], axis[:, None]
    along = x * np.cos(angle) + y * np.sin(angle)
    across = -x * np.sin(angle) + y * np.cos(angle)
    kernel: Array = np.exp(-0.5 * (along**2 / variances[0] + across**2 / variances[1]))
    return kernel / kernel.sum()


@dataclass(frozen=True)
class Kernels:
    """A source of kernels: random ones as in the paper (`bank` is None), or a bank (N, k, k) to choose from."""

    name: str
    bank: Array | None = None
    digest: str = ""
    """SHA-256 of the bank, to notice changed files."""

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """(count, k, k). The first kernels do not depend on `count`; in a bank all come once before any repeats."""
        if self.bank is None:
            return np.stack([gaussian_kernel(rng) if rng.random() < 0.5 else motion_kernel(rng) for _ in range(count)])
        order = np.concatenate([rng.permutation(len(self.bank)) for _ in range(-(-count // len(self.bank)))])
        chosen: Array = self.bank[order[:count]]
        return chosen


def load_kernels(name: str) -> Kernels:
    """`paper`, `levin` (the 8 camera shakes of Levin et al. 2009), a file of kernels, or a folder of such files."""
    if name == "paper":
        return Kernels(name)
    path = Path(name)
    if name == "levin":
        folder = shared_folder("kernels")
        if folder is None or not (folder / LEVIN).is_file():
            raise InputError(f"kernels 'levin': there is no {LEVIN} in the shared folder: give the path of that file")
        path = folder / LEVIN
    if not path.exists():
        raise InputError(f"kernels {name!r}: give paper, levin, or an existing file or folder of kernels")
    files = [path]
    if path.is_dir():  # it may also hold notes and licences
        files = [p for p in sorted(path.iterdir()) if p.is_file() and p.stat().st_size and sniff(p) != "text"]
    found = [kernel for file in files for kernel in _read(file)]
    if not found:
        raise InputError(f"{path}: holds no kernels")
    bank = same_size([*found, np.zeros((SIZE, SIZE))])[:-1, 0]
    return Kernels(name, bank, hashlib.sha256(bank.tobytes()).hexdigest())


def _read(path: Path) -> list[Array]:
    """The kernels of a file: one (k, k), a stack (N, k, k), or a MATLAB cell array of them; each of sum 1."""
    if sniff(path) in ("npz", "mat", "hdf"):
        arrays = read_archive(path)
        key = "kernels" if "kernels" in arrays else next(iter(arrays), None)
        if key is None:
            raise InputError(f"{path}: holds no array")
        value = arrays[key]
        cells = list(value.ravel()) if value.dtype == object else [value]
    else:
        cells = [read_array(path)]
    result: list[Array] = []
    for cell in cells:
        array = check_numbers(str(path), cell)
        if array.ndim == 3 and array.shape[-1] in (3, 4) and min(array.shape[:2]) > 4:  # a picture of a kernel
            array = array[..., :3].mean(-1)
        if array.ndim not in (2, 3):
            raise InputError(f"{path}: has shape {array.shape}: give kernels (k, k) or (N, k, k)")
        for kernel in array.reshape(-1, *array.shape[-2:]):
            if (kernel < 0).any():
                raise InputError(f"{path}: has negative values: the experiments need kernels without them")
            result.append(condition(str(path), kernel)[0][0, 0])
    return result


def splat(path: Array) -> Array:
    """Each position adds the same light, shared among the four nearest pixels so that the centre of mass is kept."""
    kernel = np.zeros((SIZE, SIZE))
    column, row = path.real + SIZE // 2, path.imag + SIZE // 2
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    across, down = column - left, row - top
    for dy, weight_y in ((0, 1 - down), (1, down)):
        for dx, weight_x in ((0, 1 - across), (1, across)):
            np.add.at(kernel, (top + dy, left + dx), weight_y * weight_x)
    return kernel / len(path)
