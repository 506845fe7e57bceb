"""Frames of stars with default settings: flux, places and structure around stars, beside Richardson-Lucy.

Errors are differences from the best measurement that the same noisy frame allows: a fit of the true PSF with the true
variance. So the noise of the frame, which no restoration takes back, does not count. The true light of everything else
is taken off first: the outskirts of a galaxy within the aperture are no error.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from astropy.io.fits import writeto

from pnpladmm.blur.arrays import Array
from pnpladmm.restore import restore
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.star_scenes import LEFT, RIGHT, WHITE, Scene, point, scenes

CLEAR = 20.0
"""Times its own noise: fainter stars are not measured."""
RINGS = (7, 11)
"""Radii in pixels between which the sky around a star is taken."""
APERTURE, CORE, STRUCTURE = 5.0, 3.5, (2.5, 8.0)
"""Radii for the flux and for the place, and those between which there should be nothing."""
RIVAL_ITERATIONS = (10, 30, 100)

COLUMNS = {
    "frame": lambda row: row["frame"],
    "method": lambda row: row["method"],
    "stars": lambda row: str(row["stars"]),
    "flux, mean": lambda row: f"{row['flux_mean']:+.2%}",
    "flux, largest": lambda row: f"{row['flux_largest']:.2%}",
    "beyond 1 %": lambda row: str(row["beyond"]),
    "place, largest": lambda row: f"{row['place']:.3f}",
    "structure": lambda row: f"{row['structure']:.2%}",
}


def run(options: Options) -> Report:
    """Restore the frames and measure their stars."""
    rows = [row for scene in scenes(128 if options.quick else 160) for row in _rows(scene, options)]
    notes = [
        "Flux and places: differences from a fit of the true PSF to the same noisy frame; places in pixels.",
        "Richardson-Lucy is scikit-image's, with the PSF of the centre and the best of its numbers of iterations.",
    ]
    return Report("stars", "Frames of stars, default settings", COLUMNS, rows, {"iterations": RIVAL_ITERATIONS}, notes)


def _rows(scene: Scene, options: Options) -> Iterator[Row]:
    import tempfile

    from skimage.restoration import richardson_lucy

    options.say(scene.name)
    with tempfile.TemporaryDirectory() as folder:
        writeto(f"{folder}/frame.fits", scene.frame.astype(np.uint16))
        found = restore(f"{folder}/frame.fits", scene.blur())
    image = found.image[0, 0].double().numpy() * found.picture.scale
    yield {"frame": scene.name, "method": found.method.name, **measured(scene, image)}
    height, width = scene.frame.shape
    psf = scene.blur().psf_at(height // 2, width // 2)[0].numpy()
    light = (scene.frame - np.median(scene.frame)).clip(0)
    rivals = [
        measured(scene, richardson_lucy(light / light.max(), psf, num_iter=n, clip=False) * light.max())
        for n in RIVAL_ITERATIONS
    ]
    yield {"frame": scene.name, "method": "Richardson-Lucy", **min(rivals, key=lambda one: float(one["flux_largest"]))}


def measured(scene: Scene, image: Array) -> Row:
    """The errors of all isolated stars that stand out clearly."""
    errors = []
    for i in scene.isolated():
        star = scene.stars[i]
        fit = best_fit(scene, star)
        if star[2] > CLEAR * fit[3]:
            errors.append(_errors(image - scene.without(i), star, fit))
    flux, place, structure = np.array(errors).T if errors else np.zeros((3, 0))
    if not errors:
        return {"stars": 0, "flux_mean": 0.0, "flux_largest": 0.0, "beyond": 0, "place": 0.0, "structure": 0.0}
    return {
        "stars": len(errors),
        "flux_mean": float(flux.mean()),
        "flux_largest": float(np.abs(flux).max()),
        "beyond": int((np.abs(flux) > 0.01).sum()),
        "place": float(place.max()),
        "structure": float(structure.max()),
    }


def best_fit(scene: Scene, star: Array) -> tuple[float, float, float, float]:
    """Flux, x, y that the frame itself shows, with the true PSF and variance, and the noise of the flux."""
    x, y, flux = star
    row, column, reach, step = round(y), round(x), 8, 1e-4
    share = x / (scene.frame.shape[1] - 1)

    def seen(dx: float, dy: float) -> Array:
        at = (y + dy - row, x + dx - column, reach)
        found: Array = ((1 - share) * point(LEFT, *at) + share * point(RIGHT, *at)).ravel()
        return found

    rows, columns = slice(row - reach, row + reach + 1), slice(column - reach, column + reach + 1)
    frame, mean, variance = (part[rows, columns].ravel() for part in (scene.frame, scene.mean, scene.variance))
    across = flux * (seen(step, 0) - seen(-step, 0)) / (2 * step)
    down = flux * (seen(0, step) - seen(0, -step)) / (2 * step)
    A = np.stack([seen(0, 0), across, down, np.ones(frame.size)], 1)
    weight = (frame < WHITE - 0.5) / variance
    covariance = np.linalg.inv((A.T * weight) @ A)
    off = covariance @ ((A.T * weight) @ (frame - mean))
    return flux + off[0], x + off[1], y + off[2], float(np.sqrt(covariance[0, 0]))


def _errors(image: Array, star: Array, fit: tuple[float, float, float, float]) -> tuple[float, float, float]:
    """Relative error of the flux, distance in pixels, and structure relative to the peak."""
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    distance = np.hypot(rows - star[1], columns - star[0])
    light = image - np.median(image[(distance > RINGS[0]) & (distance < RINGS[1])])
    core = distance < CORE
    total = light[core].sum()
    x, y = ((light * axis)[core].sum() / total for axis in (columns, rows))
    around = np.abs(light[(distance > STRUCTURE[0]) & (distance < STRUCTURE[1])]).max() / light[core].max()
    flux = (light[distance < APERTURE].sum() - fit[0]) / star[2]
    return float(flux), float(np.hypot(x - fit[1], y - fit[2])), float(around)
