"""A photograph: a JPEG, and a blur by region that is written by hand as a YAML blur file.

The cup is out of focus. The table behind it is blurred by camera shake. Run it with
`python examples/photograph.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import skimage.data
from common import PICTURES, pnpladmm, sheet
from PIL import Image

BLUR_FILE = """\
# Camera shake everywhere ...
background:
  motion: {length: 9, angle: 20}
# ... except on the cup, which is out of focus. Corners as x, y in pixels.
regions:
  - polygon: [[100, 10], [330, 0], [350, 150], [300, 260], [150, 260], [110, 200]]
    defocus: {radius: 3}
feather: 6
"""


def main(folder: Path) -> tuple[float, float]:
    """Simulate and restore. Return the PSNR before and after."""
    sharp = skimage.data.coffee()[40:320, 80:480]
    Image.fromarray(sharp).save(folder / "sharp.png")
    (folder / "blur.yaml").write_text(BLUR_FILE)
    blurred, blur = folder / "photo.jpg", folder / "photo.jpg.blur.npz"
    pnpladmm("simulate", folder / "sharp.png", "-b", folder / "blur.yaml", "--noise", "2", "-o", blurred)
    pnpladmm("restore", blurred, "-b", blur, "-o", folder / "restored.png")
    before, after = (np.asarray(Image.open(p)) / 255 for p in (blurred, folder / "restored.png"))
    rows, columns = ((n - m) // 2 for n, m in zip(sharp.shape, before.shape, strict=True) if n != m)
    truth = sharp[rows : rows + before.shape[0], columns : columns + before.shape[1]] / 255
    sheet(PICTURES / "photograph.png", {"blurred": before, "restored": after, "truth": truth})
    return tuple(-10 * np.log10(np.mean((image - truth) ** 2)) for image in (before, after))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        before, after = main(Path(place))
        print(f"PSNR: {before:.2f} dB blurred, {after:.2f} dB restored")
