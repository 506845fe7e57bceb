"""Pictures as files hold them: how far the defaults are from the best noise level, and what a wrong PSF does.

A run that is stopped goes on where it was: finished cases are kept in a file beside the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch

from pnpladmm.denoisers import load_denoiser
from pnpladmm.denoisers.base import Denoiser
from pnpladmm.restoration.inputs import operator_of
from pnpladmm.restoration.network_choice import network_for
from pnpladmm.restoration.one_run import one_run
from pnpladmm.restoration.options import USUAL
from pnpladmm.restoration.options import Options as Settings
from pnpladmm.restoration.policy import Pages, prepare
from pnpladmm.restore import restore
from pnpladmm.workshop.bench.inputs import open_denoiser
from pnpladmm.workshop.bench.real_cases import (
    ERRORS,
    Case,
    aligned_error,
    error_cases,
    format_cases,
    shaken_cases,
    sharp_crops,
)
from pnpladmm.workshop.bench.report import Options, Report, Row

LEVELS = (1.0, 1.5, 2.2, 3.3, 5.0, 7.5, 11.0, 17.0)
"""Fixed noise levels, of 255, of which the best one by PSNR is found."""
WORSE, LOST = 0.1, 1.0
"""In dB: worse than the input by more than the first; more than the second is lost."""

COLUMNS = {
    "pictures": lambda line: line["kind"],
    "cases": lambda line: str(line["cases"]),
    "blurred": lambda line: f"{line['before']:.2f}",
    "default": lambda line: f"{line['default']:.2f}",
    "best level": lambda line: _db(line, "best"),
    "gap": lambda line: _db(line, "gap"),
    "right PSF": lambda line: _db(line, "right"),
    "worse than before": lambda line: f"{line['worse']} of {line['cases']}",
    "without a word": lambda line: str(line["silent"]),
    "warned": lambda line: f"{line['warned']} of {line['cases']}",
    "warned where > 1 dB is lost": lambda line: "-" if not line["lost"] else f"{line['found']} of {line['lost']}",
}


def run(options: Options) -> Report:
    """Restore all cases that are not in the file of parts yet, and put them together."""
    denoiser, name = (None, "the default networks") if options.denoiser is None else open_denoiser(options)
    rows = []
    known = options.known("real")
    for case in _cases(options):
        key = f"{case.table}/{case.kind}/{case.name}/{case.picture.pixels.double().mean():.9f}"
        if key not in known:
            options.say(f"{case.kind} of {case.name}")
            known[key] = _measure(case, denoiser, options.device)
            options.keep("real", key, known[key])
        rows.append(known[key])
    lines = list(_lines(rows))
    notes = [
        "PSNR inside a border of 17 pixels. The best of the fixed noise levels is known only to a benchmark.",
        "Shifted PSFs and camera shake: PSNR of the best shift by whole pixels, because such a PSF shifts the picture.",
    ]
    if not any(row["table"] == "camera shake" for row in rows) and not options.quick:
        notes.append("the photographs of Levin et al. 2009 are not there: left out")
    settings = {"denoiser": name, "levels": LEVELS, "summary": lines}
    return Report("real", f"Real files with {name}, in dB", COLUMNS, rows, settings, notes, lines)


def _cases(options: Options) -> Iterable[Case]:
    if options.quick:
        crops = sharp_crops(options.data, 2)
        few = (
            case for case in format_cases(crops[:1], 96) if case.kind in ("PNG", "JPEG 85", "PNG, PSF 10 % too large")
        )
        return chain(few, error_cases(crops, 96, 4))
    crops = sharp_crops(options.data)
    return chain(error_cases(crops, 128, 300), shaken_cases(), format_cases(crops[::12], 160))


def _measure(case: Case, denoiser: Denoiser | None, device: torch.device) -> Row:
    found = restore(case.picture, case.blur, denoiser=denoiser, device=device)
    row: Row = {
        "table": case.table,
        "kind": case.kind,
        "picture": case.name,
        "before": _psnr(case, case.picture.pixels),
        "default": _psnr(case, found.image),
        "status": found.status.label,
        "noise": 255 * float(found.noise[0]),
        "warnings": len(found.warnings),
    }
    if case.table == "PSF errors":
        right = (
            found if case.right is case.blur else restore(case.picture, case.right, denoiser=denoiser, device=device)
        )
        return row | {"right": _psnr(case, right.image)}
    scores = [_psnr(case, image[None]) for image in _at_levels(case, denoiser, device)]
    best = max(range(len(LEVELS)), key=scores.__getitem__)
    return row | {"best": scores[best], "best_level": LEVELS[best]}


def _at_levels(case: Case, denoiser: Denoiser | None, device: torch.device) -> torch.Tensor:
    """The picture restored at each fixed noise level, without a second look."""
    options = Settings(device=device).decided(USUAL)
    operator = operator_of(case.blur, options.boundary)
    denoiser = denoiser or load_denoiser(network_for(case.picture, operator, options), device)
    images = []
    for level in LEVELS:
        prepared = prepare(Pages(case.picture, noise=torch.tensor([level / 255])), operator, options)
        result, _ = one_run(prepared, denoiser, options)
        images.append(prepared.problem.crop_to_observed(result.image))
    return torch.cat(images)


def _psnr(case: Case, image: torch.Tensor) -> float:
    return -10 * math.log10(aligned_error(image.double().cpu(), case.sharp, case.reach))


def _lines(rows: list[Row]) -> Iterator[dict[str, Any]]:
    kinds = list(dict.fromkeys((row["table"], row["kind"]) for row in rows))
    for table, kind in kinds:
        yield _line(kind, [row for row in rows if (row["table"], row["kind"]) == (table, kind)])
    wrong = [row for row in rows if row["table"] == "PSF errors" and row["kind"] in ERRORS]
    if wrong:
        yield _line("all wrong PSFs", wrong)


def _line(kind: str, rows: list[Row]) -> dict[str, Any]:
    def mean(name: str) -> float | None:
        values = [row[name] for row in rows if name in row]
        return sum(values) / len(values) if values else None

    best, default = mean("best"), mean("default")
    worse = [row for row in rows if row["default"] < row["before"] - WORSE]
    lost = [row for row in rows if "right" in row and row["default"] < row["right"] - LOST]
    return {
        "kind": kind,
        "cases": len(rows),
        "before": mean("before"),
        "default": default,
        "best": best,
        "gap": None if best is None or default is None else best - default,
        "right": mean("right"),
        "worse": len(worse),
        "silent": sum(not row["warnings"] for row in worse),
        "warned": sum(bool(row["warnings"]) for row in rows),
        "lost": len(lost),
        "found": sum(bool(row["warnings"]) for row in lost),
    }


def _db(line: dict[str, Any], name: str) -> str:
    return "-" if line[name] is None else f"{line[name]:.2f}"
