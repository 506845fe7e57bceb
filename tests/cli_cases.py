"""What the tests of the command line share: a sharp picture, files of its blur."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile

from conftest import Run

BLUR_FILE = """
background:
  gaussian: {sigma: 1.2}
feather: 3
regions:
  - rectangle: [0, 0, 20, 48]
    motion: {length: 7, angle: 30}
"""


def sharp_pixels(height: int = 56, width: int = 56) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    return 0.2 + 0.5 * ((x // 9 + y // 8) % 2) + 0.2 * (x > y)


def sharp_and_blur(tmp_path: Path) -> Path:
    """A sharp 16-bit picture, a file of its blur, and one kernel."""
    tifffile.imwrite(tmp_path / "sharp.tif", (sharp_pixels() * 65535).astype(np.uint16))
    (tmp_path / "blur.yaml").write_text(BLUR_FILE)
    kernel = np.zeros((5, 5))
    kernel[1:4, 2] = 1 / 3
    np.save(tmp_path / "kernel.npy", kernel)
    return tmp_path


def simulated(run: Run) -> None:
    code, _, err = run("simulate", "sharp.tif", "--blur", "blur.yaml", "--noise", "3", "-o", "y.tif")
    assert code == 0, err
