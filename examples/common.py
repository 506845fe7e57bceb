"""What the examples share: run the program, and draw pictures side by side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

PICTURES = Path(__file__).parent / "pictures"


def pnpladmm(*arguments: str | Path) -> None:
    """Run `pnpladmm ...` and show the command."""
    words = [str(argument) for argument in arguments]
    print("$ pnpladmm", *(Path(word).name if "/" in word else word for word in words))
    subprocess.run([sys.executable, "-m", "pnpladmm.cli", *words], check=True)


def sheet(path: Path, panels: dict[str, np.ndarray], zoom: int = 1) -> None:
    """Panels (H, W) or (H, W, 3) with values in [0, 1], side by side with their captions."""
    images = []
    for values in panels.values():
        pixels = (np.clip(values, 0, 1) * 255).round().astype(np.uint8)
        image = Image.fromarray(pixels).convert("RGB")
        images.append(image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST))
    gap, caption = 6, 18
    canvas = Image.new("RGB", (sum(i.width + gap for i in images) - gap, images[0].height + caption), "white")
    draw, left = ImageDraw.Draw(canvas), 0
    for image, text in zip(images, panels, strict=True):
        canvas.paste(image, (left, caption))
        draw.text((left + 2, 3), text, fill="black")
        left += image.width + gap
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.save(path, optimize=True)
    print(f"drawn: {path.name}")
