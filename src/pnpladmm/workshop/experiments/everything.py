"""All experiments, one after the other, and drawing them again from their results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.comparison import Compared, iterative
from pnpladmm.workshop.experiments.curves import make_convergence, make_splitting
from pnpladmm.workshop.experiments.curves_page import draw_convergence, draw_splitting
from pnpladmm.workshop.experiments.gallery import draw_gallery, make_gallery
from pnpladmm.workshop.experiments.output import write_page
from pnpladmm.workshop.experiments.proof_page import draw_proof
from pnpladmm.workshop.experiments.protocols_page import draw_protocols
from pnpladmm.workshop.experiments.samples import Task
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.stability import make_parameters
from pnpladmm.workshop.experiments.stability_page import draw_parameters
from pnpladmm.workshop.experiments.table import make_table, table_name
from pnpladmm.workshop.experiments.table_page import draw_table
from pnpladmm.workshop.experiments.tuning_page import draw_tuning

CURVES_AT = 10.0
"""The noise level of curves and parameters, the paper's; the nearest one where it is not asked for."""


def run_everything(setup: Setup, methods: Sequence[Compared], tasks: Sequence[Task]) -> Iterator[str]:
    """Yields the name of each report when it is written; what matters most comes first."""
    one = dataclasses.replace(setup, noise=(min(setup.noise, key=lambda noise: abs(noise - CURVES_AT)),))
    tables = [(table_name(task), partial(make_table, setup, methods, task)) for task in tasks]
    steps: list[tuple[str, Callable[[], Any]]] = [
        *tables[:1],
        ("convergence", partial(make_convergence, one, methods)),
        ("parameters", partial(make_parameters, one)),
        *([("splitting", partial(make_splitting, one, methods))] if iterative(methods) else []),
        ("gallery", partial(make_gallery, setup, methods)),
        *tables[1:],
    ]
    done: list[str] = []
    for name, make in steps:
        make()
        done.append(name)
        _index(setup.out, done)
        yield name


DRAW: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "convergence": draw_convergence,
    "splitting": draw_splitting,
    "parameters": draw_parameters,
    "gallery": draw_gallery,
    "proof": draw_proof,
    "protocols": draw_protocols,
    "tune": draw_tuning,
}


def redraw(folder: Path) -> list[str]:
    """Draw all that has its JSON in a folder."""
    done: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            kind = data.get("experiment") if isinstance(data, dict) else None
            if kind == "table":
                draw_table(data, folder, path.stem)
            elif isinstance(kind, str) and kind in DRAW:
                DRAW[kind](data, folder)
            else:
                continue
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: not the result of an experiment ({type(error).__name__}: {error})") from None
        done.append(path.stem)
    if not done:
        raise InputError(f"{folder}: no results of experiments there (table.json, convergence.json, ...)")
    _index(folder, done)
    return done


def _index(folder: Path, names: Sequence[str]) -> None:
    write_page(folder / "index.html", "index.html", "Experiments", names=names)
