"""How much memory a restoration needs, how much there is, and which tiles fit."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

from pnpladmm.denoisers.base import bytes_per_pixel_of
from pnpladmm.tensors import InputError

SHARE = 0.7
"""The share of the free memory that is used where nobody says how much."""
VARIABLES = 30
"""Samples (float32) for each channel of a pixel that a solver holds at its peak: pictures, duals, spectra. Measured
with the fast method, colour and a kernel of 33x33."""
COPIES = 11
"""Pictures as large as the whole one that are there beside the tiles: as given, as read, restored, estimates."""
PROGRAM = 4 * 10**8
"""Bytes that the program itself takes of a memory that is given: Python, torch, what reads and writes files."""
LARGEST_SIDE = 1536
"""On a CPU larger tiles are slower: what one step leaves no longer fits into caches. A GPU has none that large, and
larger tiles have less halo."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def read_size(text: object) -> int:
    """Bytes from a number or a text such as "3GB", "800 MB", "2GiB".

    Examples
    --------
    >>> read_size("3GB"), read_size("1.5 GiB"), read_size(10**9)
    (3000000000, 1610612736, 1000000000)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]i?)?b?\s*", str(text).lower())
    if isinstance(text, bool) or not found:
        raise InputError(f"memory = {str(text)[:40]!r}: give bytes, or a size such as 3GB")
    size = int(float(found[1]) * UNITS[found[2] or ""])
    if size < 10**7:
        raise InputError(f"memory = {text}: is less than 10 MB: give a size such as 3GB")
    return size


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a GPU, or in this machine and its control group; None where the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes next
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit.isdigit():
            found.append(int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def left_for_pictures(memory: int) -> int:
    """What is left of a memory that is given; at least half, so that small ones still say how small the tiles are."""
    return max(memory - PROGRAM, memory // 2)


def needed_bytes(pictures: int, channels: int, pixels: int, sample: int, denoiser: object) -> float:
    """About the bytes that a restoration of pictures of so many pixels holds at its peak."""
    samples = pictures * channels * sample * (VARIABLES + COPIES)
    return pixels * (samples + bytes_per_pixel_of(denoiser))


def tile_side(
    budget: float,
    pictures: int,
    channels: int,
    pixels: int,
    sample: int,
    denoiser: object,
    least: int,
    device: torch.device,
) -> int:
    """The longest side of a tile with which the whole restoration stays within a budget of bytes.

    Never below `least`: what is larger than the budget all the same is said by the caller.
    """
    fixed = COPIES * pictures * channels * sample * pixels
    each = pictures * channels * sample * VARIABLES + bytes_per_pixel_of(denoiser)
    side = math.isqrt(max(0, int((budget - fixed) / each)))
    return max(least, min(LARGEST_SIDE, side) if device.type == "cpu" else side)


def gigabytes(size: float) -> str:
    """For people."""
    return f"{size / 1e9:.3g} GB"
