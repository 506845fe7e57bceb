"""What the tests of the experiments share: a quick setup, results that can be compared, and a look at the files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from pnpladmm.workshop.experiments.setup import Setup

FEW = "richardson-lucy,ista,ladmm,fast-8"


def quick(out: Path, **options: Any) -> Setup:
    """One small embedded picture and a prior that costs nothing, unless told otherwise."""
    common = {"denoiser_name": "tikhonov", "noise": (10.0,), "count": 1, "quick": True, "quiet": True}
    return Setup(out, **{**common, **options})


def without_seconds(value: Any) -> Any:
    """A result without what may differ from run to run."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if "seconds" not in k or k == "paper_seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def result(out: Path, name: str) -> Any:
    return without_seconds(json.loads((out / f"{name}.json").read_text()))


def check_files(out: Path, name: str, *figures: str) -> None:
    """JSON, CSV, PNG, SVG and HTML are there and can be read; the page needs no other file."""
    json.loads((out / f"{name}.json").read_text())
    with (out / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) > 0
    for figure in figures or (name,):
        pixels = np.asarray(Image.open(out / f"{figure}.png").convert("L"))
        assert pixels.std() > 5
        assert ElementTree.parse(out / f"{figure}.svg").getroot().tag.endswith("svg")
    page = (out / f"{name}.html").read_text()
    assert page.count("data:image/") >= len(figures or (name,))
    assert 'src="http' not in page
    assert not list(out.glob(".*.part"))
