"""Time and peak memory of `pnpladmm restore` on photographs of 1, 12 and 24 megapixels: undivided, and within a budget.

    python benchmarks/large_jpeg.py [NAME ...] [--calls N] [--out FILE]

Each row is the command in a process of its own, on as many cores as it is given (`taskset -c 0,1 python ...`). Its peak
is what the system says of that process: with Python, torch, the decoder and the encoder. Rows are added to the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from pnpladmm.workshop.bench.report import machine

RUNS: dict[str, tuple[int, int, str | None]] = {
    "1-whole": (1000, 1000, None),
    "12-whole": (3000, 4000, None),
    "12-3GB": (3000, 4000, "3GB"),
    "24-5GB": (4000, 6000, "5GB"),
}
"""Rows, columns, and the memory that is allowed: None for as much as there is."""
SIGMA = 2.0
"""Of the Gaussian blur, in pixels."""
NOISE = 5.0
QUALITY = 92


def write_photograph(path: Path, height: int, width: int) -> None:
    """A blurred, noisy photograph: mirrored copies of one."""
    sharp = skimage.data.astronaut()[:500, :500].astype(np.float32)
    sharp = np.concatenate([sharp, sharp[:, ::-1]], 1)
    piece = gaussian_filter(np.concatenate([sharp, sharp[::-1]]), (SIGMA, SIGMA, 0))
    piece += np.random.default_rng(0).normal(0, NOISE, piece.shape)
    piece = piece.clip(0, 255).round().astype(np.uint8)
    many = np.tile(piece, (-(-height // 1000), -(-width // 1000), 1))
    Image.fromarray(many[:height, :width]).save(path, quality=QUALITY)


def measured(name: str, calls: int, folder: Path) -> dict[str, Any]:
    """One run of the command."""
    height, width, memory = RUNS[name]
    source = folder / f"{height}x{width}.jpg"
    if not source.exists():
        write_photograph(source, height, width)
    r = np.arange(-8, 9)
    kernel = np.exp(-(r[:, None] ** 2 + r[None] ** 2) / (2 * SIGMA**2))
    np.save(folder / "psf.npy", kernel / kernel.sum())
    command = [sys.executable, "-m", "pnpladmm", "restore", str(source), "-b", str(folder / "psf.npy")]
    command += ["-o", str(folder / "out.jpg"), "--denoiser", "light", "--iterations", str(calls)]
    command += ["--memory", memory] if memory else []
    began = time.perf_counter()
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        said.seek(0)
        text = said.read()
    seconds = time.perf_counter() - began
    pixels = height * width
    return {
        "name": name,
        "height": height,
        "width": width,
        "memory": memory,
        "calls": calls,
        "status": status,
        "seconds": seconds,
        "us_per_pixel": 1e6 * seconds / pixels,
        "core_us_per_pixel": 1e6 * (used.ru_utime + used.ru_stime) / pixels,
        "peak_gb": used.ru_maxrss * 1024 / 1e9,
        "tiles": next(iter(re.findall(r"restored in (\d+) tiles", text)), None),
        "error": None if status == 0 else text.strip().splitlines()[-1:],
    }


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RUNS), help=", ".join(RUNS))
    parser.add_argument("--calls", type=int, default=8, help="denoiser calls; the time is proportional to them")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("large-jpeg-cpu.json"))
    given = parser.parse_args()
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            row = measured(name, given.calls, Path(folder))
            rows.append(row)
            found = {"benchmark": "large JPEG", "machine": machine(torch.device("cpu")), "rows": rows}
            given.out.write_text(json.dumps(found, indent=1) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
