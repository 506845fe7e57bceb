"""Astronomy: a FITS frame with photon noise and a PSFEx model whose PSF widens over the field.

Stars, galaxies and a sky of 200 counts are simulated, blurred and restored on the command line. Then the flux of the
isolated stars is measured in the restored frame. Run it with `python examples/astronomy.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from astropy.io import fits
from common import PICTURES, pnpladmm, sheet

SIZE = 224
SKY = 200.0
STARS = [(40, 45), (50, 110), (45, 180), (110, 40), (115, 180), (180, 50), (175, 115), (185, 180)]  # row, column
GALAXIES = [
    (80, 80, 5, 0.5, 0.4, 6e4),
    (140, 90, 7, 0.7, 1.2, 8e4),
    (90, 145, 4, 0.9, 0.0, 3e4),
    (145, 145, 8, 0.4, 2.2, 1e5),
]


def moffat(u: np.ndarray, v: np.ndarray, long: float, short: float, turn: float) -> np.ndarray:
    p, q = u * np.cos(turn) + v * np.sin(turn), -u * np.sin(turn) + v * np.cos(turn)
    profile = (1 + (p / long) ** 2 + (q / short) ** 2) ** -2.5
    return profile / profile.sum()


def write_psfex(path: Path, side: int = 31, step: float = 0.8) -> None:
    """A PSF that widens to the right and gets longer towards the bottom: planes 1, x, y."""
    v, u = (np.mgrid[:side, :side] - side // 2) * step
    round_one, wide, drawn = moffat(u, v, 2.4, 2.2, 0.3), moffat(u, v, 2.9, 2.6, 0.3), moffat(u, v, 2.9, 2.0, 0.9)
    planes = np.stack([round_one, 0.6 * (wide - round_one), 0.6 * (drawn - round_one)]).astype(np.float32)
    column = fits.Column("PSF_MASK", f"{planes.size}E", dim=f"({side},{side},3)", array=planes[None])
    table = fits.BinTableHDU.from_columns([column], name="PSF_DATA")
    half = SIZE / 2
    cards = {"POLNAXIS": 2, "POLGRP1": 1, "POLNAME1": "X_IMAGE", "POLZERO1": half, "POLSCAL1": half, "POLGRP2": 1}
    cards |= {"POLNAME2": "Y_IMAGE", "POLZERO2": half, "POLSCAL2": half, "POLNGRP": 1, "POLDEG1": 1, "PSF_SAMP": step}
    cards |= {"PSFNAXIS": 3, "PSFAXIS1": side, "PSFAXIS2": side, "PSFAXIS3": 3}
    for key, value in cards.items():
        table.header[key] = value
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(path)


def make_scene() -> np.ndarray:
    """Stars are single pixels, galaxies exponential discs; counts."""
    rng = np.random.default_rng(5)
    scene = np.zeros((SIZE, SIZE))
    for place in STARS:
        scene[place] += 10 ** rng.uniform(4.5, 5.6)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    for row, column, radius, axis, turn, flux in GALAXIES:
        a = (columns - column) * np.cos(turn) + (rows - row) * np.sin(turn)
        b = -(columns - column) * np.sin(turn) + (rows - row) * np.cos(turn)
        disc = np.exp(-1.68 * np.hypot(a, b / axis) / radius)
        scene += flux * disc / disc.sum()
    return scene


def flux(image: np.ndarray, row: int, column: int) -> float:
    """Counts within 7 pixels, minus the median of the ring from 9 to 14 pixels."""
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    distance = np.hypot(rows - row, columns - column)
    ring = np.median(image[(distance > 9) & (distance < 14)])
    return float((image[distance < 7] - ring).sum())


def main(folder: Path) -> dict[str, float]:
    """Simulate, restore and measure. Return the relative error of the flux of each star."""
    scene = make_scene()
    fits.writeto(folder / "scene.fits", scene.astype(np.float32))
    write_psfex(folder / "field.psf")
    counts = ["--gain", "1", "--background", str(SKY)]
    pnpladmm("inspect", folder / "field.psf", "--picture", folder / "scene.fits", "-o", folder / "field.png")
    pnpladmm("simulate", folder / "scene.fits", "-b", folder / "field.psf", *counts, "-o", folder / "frame.fits")
    blur = folder / "frame.fits.blur.npz"
    pnpladmm(
        "restore", folder / "frame.fits", "-b", blur, *counts, "--method", "sources", "-o", folder / "sharp.fits",
    )  # fmt: skip
    frame, restored = (fits.getdata(folder / name).astype(float) for name in ("frame.fits", "sharp.fits"))
    margin = (SIZE - frame.shape[0]) // 2
    truth = scene[margin : SIZE - margin, margin : SIZE - margin]
    errors = {}
    for row, column in STARS:
        place = (row - margin, column - margin)
        errors[f"star at column {place[1]}, row {place[0]}"] = flux(restored, *place) / flux(truth, *place) - 1

    def stretch(image: np.ndarray) -> np.ndarray:
        return np.arcsinh(image.clip(0) / 100) / np.arcsinh(5e4 / 100)

    sheet(
        PICTURES / "astronomy.png",
        {"frame": stretch(frame - SKY), "restored": stretch(restored), "truth": stretch(truth)},
        zoom=2,
    )
    return errors


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for star, error in main(Path(place)).items():
            print(f"{star}: flux {error:+.2%}")
