"""PSFs from simulated star fields, ours and PSFEx's, and the photometry of restorations with ours.

`error` is the relative l2 error of the PSF, up to a shift by a fraction of a pixel, at 25 places of the field: the root
mean square and the largest. PSFEx and source-extractor run with their own settings but for the degree of the
polynomial (2) and the size of the stamps; without them their columns are empty.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import pnpladmm as pl
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.psf_field import lattice, places_of
from pnpladmm.files import optional
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.parts import Parts
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.star_fields import StarField, random_stars

BACKGROUND, GAIN = 100.0, 0.25
STAMP = 25
PARAMETERS = (
    f"VIGNET({STAMP},{STAMP})",
    *("X_IMAGE", "Y_IMAGE", "FLUX_RADIUS", "SNR_WIN", "FLUX_APER(1)", "FLUXERR_APER(1)", "ELONGATION", "FLAGS"),
)
PHOTOMETRY = (50, 60)
"""Fields of so many stars are restored; in fuller ones hardly a star stands alone."""
APERTURE, ALONE = 4.0, 14.0
"""Pixels: radius of the photometry, and distance to the next star of those that are measured."""


@dataclass(frozen=True)
class Case:
    """A field of stars: how many, how bright, and the PSF."""

    name: str
    stars: int
    field: StarField
    brightest: float = 3e5
    faintest: float = 3e3
    noise: float = 4.0


def cases(quick: bool) -> list[Case]:
    """Few to many stars, and what makes them hard."""
    coma, round_ = StarField(), StarField(coma=0.0, ellipticity=0.0, growth=0.0)
    if quick:
        return [Case("quick", 60, StarField(size=(192, 192)))]
    return [
        Case("Moffat, one PSF", 50, round_),
        *(Case("Moffat and coma", n, coma) for n in (20, 60, 150, 500)),
        Case("faint", 150, coma, 3e4, 1e3),
        Case("noisy", 150, coma, noise=20.0),
        Case("crowded", 250, StarField(size=(256, 256))),
        Case("wide", 150, StarField(fwhm=5.0, coma=3.0)),
    ]


def run(options: Options) -> Report:
    """Both tools on the same frames."""
    optional("photutils")
    rows: list[Row] = []
    parts = Parts(options, "points")
    parts = Parts(options, "points")
    for number, case in enumerate(cases(options.quick)):
        rows.append(parts.row(f"{case.name}, {case.stars} stars", partial(_row, number, case, options)))
    columns = {
        "field": lambda r: r["field"],
        "stars": lambda r: str(r["stars"]),
        "used": lambda r: str(r.get("used", "")),
        "error, %": lambda r: _percent(r.get("ours")),
        "largest": lambda r: _percent(r.get("ours_largest")),
        "stated": lambda r: _percent(r.get("stated")),
        "PSFEx, %": lambda r: _percent(r.get("psfex")),
        "largest ": lambda r: _percent(r.get("psfex_largest")),
        "flux, %": lambda r: _percent(r.get("photometry")),
    }
    notes = [] if shutil.which("psfex") else ["psfex is not installed: its columns are empty"]
    return Report("points", "PSFs from stars", columns, rows, {"background": BACKGROUND, "gain": GAIN}, notes)


def _row(number: int, case: Case, options: Options) -> Row:
    options.say(f"{case.name}, {case.stars} stars")
    places, fluxes = random_stars(case.field.size, case.stars, case.brightest, case.faintest, seed=number)
    frame = case.field.frame(places, fluxes, case.noise, BACKGROUND, GAIN, seed=number).astype(np.float32)
    row: Row = {"field": case.name, "stars": case.stars}
    try:
        blur = pl.estimate_blur(frame, "points")
        assert blur.estimate is not None
        used = sum(r[4] == "yes" for r in blur.estimate.tables["points"].rows)
        row |= {"used": used, "kind": blur.source, "stated": blur.uncertainty, **_errors("ours", blur, case.field)}
        if case.stars in PHOTOMETRY:
            row["photometry"] = photometry(frame, blur, places, fluxes)
    except InputError as error:
        row["kind"] = str(error)
    other = psfex(frame)
    return row if other is None else row | _errors("psfex", other, case.field)


def photometry(frame: Array, blur: pl.Blur, places: Array, fluxes: Array) -> float | None:
    """Root mean square relative error of the restored flux of bright stars that stand alone."""
    result = pl.restore(frame, blur, method="sources", gain=GAIN, background=BACKGROUND)
    restored = np.asarray(result)
    y, x = np.mgrid[: frame.shape[0], : frame.shape[1]]
    inner = ((places > 20) & (places < np.array(frame.shape[::-1]) - 21)).all(1)
    found = []
    for i in np.flatnonzero(inner & (fluxes > 0.1 * fluxes.max())):
        distance = np.hypot(*(np.delete(places, i, 0) - places[i]).T)
        if (distance > ALONE).all():
            inside = np.hypot(x - places[i][0], y - places[i][1]) < APERTURE
            found.append(float(restored[inside].sum() / fluxes[i] - 1))
    return float(np.sqrt(np.mean(np.square(found)))) if found else None


def psfex(frame: Array) -> pl.Blur | None:
    """What source-extractor and PSFEx make of a frame; None if they are not installed or find nothing."""
    tools = [shutil.which(name) for name in ("source-extractor", "psfex")]
    if None in tools:
        return None
    from astropy.io import fits

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fits.writeto(folder / "frame.fits", frame)
        (folder / "p.param").write_text("\n".join(PARAMETERS))
        (folder / "p.conv").write_text("CONV NORM\n1 2 1\n2 4 2\n1 2 1\n")
        extract = (
            "frame.fits -c /dev/null -PARAMETERS_NAME p.param -FILTER_NAME p.conv -CATALOG_TYPE FITS_LDAC "
            "-CATALOG_NAME p.cat -DETECT_THRESH 5 -ANALYSIS_THRESH 5 -PHOT_APERTURES 12 -VERBOSE_TYPE QUIET "
            f"-GAIN {1 / GAIN}"
        )
        model = (
            f"p.cat -c /dev/null -PSF_SIZE {STAMP},{STAMP} -PSFVAR_DEGREES 2 -CHECKPLOT_TYPE NONE "
            "-CHECKIMAGE_TYPE NONE -WRITE_XML N -VERBOSE_TYPE QUIET"
        )
        for tool, arguments in zip(tools, (extract, model), strict=True):
            assert tool is not None  # both were found
            subprocess.run([tool, *arguments.split()], cwd=folder, check=True, capture_output=True, timeout=300)
        try:
            return pl.read_blur(folder / "p.psf", frame.shape)
        except InputError:
            return None


def _errors(name: str, blur: pl.Blur, field: StarField) -> Row:
    found = []
    for x, y in places_of(*lattice(field.size, 5)).round().astype(int).clip(8, np.array(field.size[::-1]) - 9):
        kernel = blur.psf_at(int(y), int(x))[0].numpy()
        true = field.kernel(float(x), float(y), kernel)
        found.append(float(np.linalg.norm(kernel - true) / np.linalg.norm(true)))
    return {name: float(np.sqrt(np.mean(np.square(found)))), f"{name}_largest": max(found)}


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"
