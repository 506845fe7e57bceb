"""Random small problems of all kinds, and what becomes of each: `python tests/small_problems.py --count 10000`.

One is silent and worse if it says nothing and is further from the truth than the observation by more than 0.1 dB.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import convolve, gaussian_filter

import pnpladmm as pl
from pnpladmm.blur import defocus, gaussian, motion

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Problem:
    """What is given, and the truth in the same numbers."""

    words: str
    given: Array
    truth: Array
    kernel: Array
    noise: float | None


def problem(seed: int) -> Problem:
    """The random problem of a seed: sizes from 1x1, flat, hot pixels, clipped, NaN, odd ranges, wrong noise."""
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(1, 33, 2))
    kind = str(rng.choice(["flat", "steps", "smooth", "noise", "points"]))
    truth = _scene(kind, height, width, rng)
    shape, kernel = _kernel(rng)
    blurred = convolve(truth, kernel, mode="reflect")
    level = float(rng.choice([0.0, 0.5, 2.0, 10.0, 40.0])) / 255
    given = blurred + level * rng.standard_normal(blurred.shape)
    scale = float(rng.choice([1.0, 1.0, 1.0, 1e-3, 4000.0]))
    store = str(rng.choice(["float", "uint8", "uint16"]))
    told: float | None = None
    if rng.random() < 0.5:
        told = max(level, 0.5 / 255) * float(rng.choice([0.5, 1.0, 1.0, 2.0]))
    if store != "float":
        top = 255 if store == "uint8" else 65535
        given = (given.clip(0, 1) * top).round().astype(store)
        truth = truth * top
    else:
        if told is None:
            given, truth = given * scale, truth * scale
        if rng.random() < 0.1:
            given[rng.integers(height), rng.integers(width)] = rng.choice([np.nan, 1e6])
    words = f"seed {seed}: {kind} {height}x{width} {store}, {shape}, noise {255 * level:g}, told {255 * (told or 0):g}"
    return Problem(words, given, truth, kernel, told)


def _scene(kind: str, height: int, width: int, rng: np.random.Generator) -> Array:
    if kind == "flat":
        return np.full((height, width), float(rng.uniform(0, 1)))
    if kind == "steps":
        side = int(rng.integers(2, 9))
        cells = rng.uniform(0, 1, (height // side + 1, width // side + 1))
        return np.kron(cells, np.ones((side, side)))[:height, :width]
    if kind == "points":
        scene = np.full((height, width), 0.05)
        for _ in range(int(rng.integers(1, 6))):
            scene[rng.integers(height), rng.integers(width)] += float(rng.uniform(0.1, 1))
        return scene
    noise = rng.uniform(0, 1, (height, width))
    return noise if kind == "noise" else np.clip(0.5 + 3 * (gaussian_filter(noise, 3) - 0.5), 0, 1)


def _kernel(rng: np.random.Generator) -> tuple[str, Array]:
    kind = rng.integers(4)
    if kind == 0:
        return "no blur", np.pad([[1.0]], 1)
    if kind == 1:
        width = float(rng.uniform(0.5, 2))
        return f"gaussian {width:.1f}", gaussian(width).numpy()
    if kind == 2:
        radius = float(rng.uniform(1, 3))
        return f"disc {radius:.1f}", defocus(radius).numpy()
    length = float(rng.uniform(2, 9))
    return f"motion {length:.1f}", motion(length, float(rng.uniform(0, 180))).numpy()


def outcome(one: Problem) -> tuple[str, float]:
    """`refused`, `told`, `silent and worse` or `fine`, and the gain in dB."""
    try:
        found = pl.restore(one.given, one.kernel, "auto" if one.noise is None else one.noise)
    except pl.InputError:
        return "refused", 0.0
    image = np.asarray(found).astype(float)
    good = np.isfinite(one.given.astype(float)) & np.isfinite(image)
    before, after = (
        float(np.square(x.astype(float) - one.truth)[good].mean()) if good.any() else 0.0 for x in (one.given, image)
    )
    # Differences below a hundred thousandth of the range are rounding.
    tiny = (1e-5 * max(float(np.ptp(one.truth)), float(np.abs(one.truth).max()))) ** 2
    gain = 10 * np.log10((before + tiny) / (after + tiny))
    if found.warnings or found.status.failed:
        return "told", gain
    return ("silent and worse" if gain < -0.1 else "fine"), gain


def main() -> None:
    """Print how many problems ended how, and those that were silent and worse."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    ends: Counter[str] = Counter()
    for seed in range(options.start, options.start + options.count):
        one = problem(seed)
        end, gain = outcome(one)
        ends[end] += 1
        if end == "silent and worse":
            print(f"{one.words}: {gain:.2f} dB", flush=True)
    print(dict(ends))


if __name__ == "__main__":
    main()
