"""Frames of stars with default settings: flux, places and structure around stars, beside Richardson-Lucy.

Errors are differences from the best measurement that the same noisy frame allows: a fit of the true PSF with the true
variance. So the noise of the frame, which no restoration takes back, does not count. The true light of everything else
is taken off first: the outskirts of a galaxy within the aperture are no error.

The profile of a galaxy is its light in elliptical rings, `RING` pixels wide in the mean of both axes: about the width
of the PSF. Rings count whose light is `CLEAR_RING` times the noise of the frame there; stars are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.restore import restore
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.star_scenes import LEFT, REACH, RIGHT, WHITE, Scene, point, scenes

CLEAR = 20.0
"""Times its own noise: fainter stars are not measured."""
RINGS = (7, 11)
"""Radii in pixels between which the sky around a star is taken."""
APERTURE, CORE, STRUCTURE = 5.0, 3.5, (2.5, 8.0)
"""Radii for the flux and for the place, and those between which there should be nothing."""
RING, CLEAR_RING, OUTERMOST = 4.0, 100.0, 3.0
"""Pixels, times the noise, and the largest radius in units of the galaxy's size."""
RIVAL_ITERATIONS = (10, 30, 100)
SEEDS = (31, 32, 33)
"""Of the draws: none of them was looked at while the method was made."""

COLUMNS = {
    "frame": lambda row: row["frame"],
    "method": lambda row: row["method"],
    "stars": lambda row: str(row["stars"]),
    "flux, mean": lambda row: f"{row['flux_mean']:+.2%}",
    "flux, largest": lambda row: f"{row['flux_largest']:.2%}",
    "beyond 1 %": lambda row: str(row["beyond"]),
    "place, largest": lambda row: f"{row['place']:.3f}",
    "structure": lambda row: f"{row['structure']:.2%}",
    "profiles, largest": lambda row: f"{row['profile']:.1%} of {row['rings']}" if row["rings"] else "-",
}


def run(options: Options) -> Report:
    """Restore the frames and measure their stars."""
    side, seeds = (128, SEEDS[:1]) if options.quick else (160, SEEDS)
    draws = [scenes(side, seed) for seed in seeds]
    rows = [row for frames in zip(*draws, strict=True) for row in _rows(list(frames), options)]
    notes = [
        "Flux and places: differences from a fit of the true PSF to the same noisy frame; places in pixels.",
        f"Profiles: light of galaxies in rings of {RING:g} pixels; the largest error, and the number of rings.",
        "Richardson-Lucy is scikit-image's, with the PSF of the centre and the best of its numbers of iterations.",
    ]
    settings = {"iterations": RIVAL_ITERATIONS, "seeds": seeds}
    return Report("stars", "Frames of stars, default settings", COLUMNS, rows, settings, notes)


def _rows(frames: list[Scene], options: Options) -> Iterator[Row]:
    """The rows of one kind of frame, over all draws."""
    name = frames[0].name
    images, method = [], ""
    for scene in frames:
        options.say(name)
        image, method = _restored(scene)
        images.append(image)
    yield {"frame": name, "method": method, **measured(frames, images)}
    rivals = [measured(frames, [_by_rival(scene, n) for scene in frames]) for n in RIVAL_ITERATIONS]
    yield {"frame": name, "method": "Richardson-Lucy", **min(rivals, key=lambda one: float(one["flux_largest"]))}


def _restored(scene: Scene) -> tuple[Array, str]:
    """The frame as it comes out of a FITS file with default settings, and the method."""
    import tempfile

    from astropy.io.fits import writeto

    with tempfile.TemporaryDirectory() as folder:
        writeto(f"{folder}/frame.fits", scene.frame.astype(np.uint16))
        found = restore(f"{folder}/frame.fits", scene.blur())
    return found.image[0, 0].double().numpy() * found.picture.scale, found.method.name


def _by_rival(scene: Scene, iterations: int) -> Array:
    from skimage.restoration import richardson_lucy

    height, width = scene.frame.shape
    psf = scene.blur().psf_at(height // 2, width // 2)[0].numpy()
    light = (scene.frame - np.median(scene.frame)).clip(0)
    found: Array = richardson_lucy(light / light.max(), psf, num_iter=iterations, clip=False) * light.max()
    return found


def measured(frames: list[Scene], images: list[Array]) -> Row:
    """The errors of all isolated stars that stand out clearly, and of the galaxies."""
    pairs = list(zip(frames, images, strict=True))
    stars = np.concatenate([star_errors(scene, image) for scene, image in pairs])
    rings = np.concatenate([profile_errors(scene, image) for scene, image in pairs])
    flux, place, structure = stars.T
    return {
        "stars": len(stars),
        "flux_mean": float(flux.mean()) if len(stars) else 0.0,
        "flux_largest": float(np.abs(flux).max(initial=0.0)),
        "beyond": int((np.abs(flux) > 0.01).sum()),
        "place": float(place.max(initial=0.0)),
        "structure": float(structure.max(initial=0.0)),
        "rings": len(rings),
        "profile": float(np.abs(rings).max(initial=0.0)),
    }


def star_errors(scene: Scene, image: Array) -> Array:
    """Error of the flux, of the place and structure of each isolated star that stands out clearly, (N, 3)."""
    errors = []
    for i in scene.isolated():
        star = scene.stars[i]
        fit = best_fit(scene, star)
        if star[2] > CLEAR * fit[3]:
            errors.append(_errors(image - scene.without(i), star, fit))
    return np.array(errors).reshape(-1, 3)


def profile_errors(scene: Scene, image: Array) -> Array:
    """The relative error of the light in each ring of each galaxy, (N,)."""
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    off = image - scene.sharp
    off = off - np.median(off)
    free = np.ones(image.shape, bool)
    for x, y, _ in scene.stars:
        free &= np.hypot(rows - y, columns - x) > CORE
    found = []
    for x, y, flux, along, across in scene.galaxies:
        if min(x, y, image.shape[1] - 1 - x, image.shape[0] - 1 - y) < REACH:
            continue
        size = np.sqrt(along * across)
        radius = size * np.hypot((columns - x) / along, (rows - y) / across)
        light = scene.galaxy(np.array([x, y, flux, along, across]))
        for inner in np.arange(0, OUTERMOST * size, RING):
            ring = free & (radius >= inner) & (radius < inner + RING)
            total = light[ring].sum()
            if total > CLEAR_RING * np.sqrt(scene.variance[ring].sum()):
                found.append(off[ring].sum() / total)
    return np.array(found)


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
