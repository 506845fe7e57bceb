"""A blur estimated from file to file: the blur file, its drawing, its tables and its report."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pnpladmm.blur import Blur, write_blur
from pnpladmm.estimate import estimate_blur
from pnpladmm.files import check_writable, write_text
from pnpladmm.locks import check_apart, check_files
from pnpladmm.pictures import read_picture
from pnpladmm.pictures.selection import without_selection
from pnpladmm.report import write_estimate
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Found:
    """What `pnpladmm estimate` made of one picture, ready for JSON."""

    picture: str
    output: str
    way: str
    source: str
    kernels: int
    kernel_size: tuple[int, int]
    uncertainty: float | None
    residual: float | None
    agreement: float | None
    warnings: list[str]
    notes: list[str]


def estimate_files(pictures: list[Path], out: Path) -> list[tuple[Path, Path]]:
    """Each picture with its output: `out` is a file for one picture, a folder for several."""
    if len(pictures) == 1 and out.suffix:
        pairs = [(pictures[0], out)]
    else:
        pairs = [(picture, out / f"{picture.stem}.blur.npz") for picture in pictures]
    for picture, target in pairs:
        if target.suffix.lower() != ".npz":
            raise InputError(f"{target}: blurs are written as .npz")
        if [other for _, other in pairs].count(target) > 1:
            raise InputError(f"{picture}: two pictures of this name would write {target}: estimate them one by one")
        check_writable(target)
    return pairs


def run_estimate(
    picture: Path,
    out: Path,
    way: str,
    report: bool = False,
    page: int | None = None,
    linear: bool = False,
    **options: Any,
) -> Found:
    """Estimate the blur of one file and write it, its tables (CSV) beside it, and its report if asked."""
    # Among the options are files: a sharp picture, a table of places.
    read = [without_selection(one) for one in (picture, *options.values()) if isinstance(one, str | Path)]
    check_files(read, [out])
    given = read_picture(picture)
    blur = estimate_blur(given, way, page=page, linear=linear, progress=True, **options)
    assert blur.estimate is not None  # estimate_blur made sure
    tables = {out.with_suffix(f".{name}.csv"): table for name, table in blur.estimate.tables.items()}
    check_apart(tables, read)
    write_blur(out, blur)
    for path, table in tables.items():
        text = io.StringIO()
        csv.writer(text).writerows([table.columns, *table.rows])
        write_text(path, text.getvalue())
    if report:
        shown = given.pixels[page or 0].mean(0)
        write_estimate(Path(f"{out}.report"), blur, shown.double().numpy(), picture.name)
    return _found(picture, out, blur)


def _found(picture: Path, out: Path, blur: Blur) -> Found:
    estimate = blur.estimate
    assert estimate is not None
    return Found(
        str(picture),
        str(out),
        estimate.way,
        blur.source,
        len(blur.kernels),
        blur.kernel_size,
        blur.uncertainty,
        estimate.residual,
        estimate.agreement,
        list(estimate.warnings),
        list(blur.notes),
    )
