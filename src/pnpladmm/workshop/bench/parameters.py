"""Sizes and angles of blur found in blurred pictures: COCO's test pictures, noise 2 of 255, sizes of 3 to 20 pixels.

A radius, length or width is right within 5 % or half a pixel, an angle within 3 degrees. Sizes are uniform in their
logarithm; of a Gaussian, twice its width is from 3 to 20 pixels. `doubted` are those that the program calls uncertain.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
from scipy.signal import fftconvolve

from pnpladmm.blur.parameters import find_parameters, kernel_of
from pnpladmm.places import shared_folder
from pnpladmm.workshop.bench.parts import Parts
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.experiments.coco import read_coco
from pnpladmm.workshop.experiments.embedded import embedded_scenes
from pnpladmm.workshop.experiments.scenes import Scene

COUNTS = {"defocus": 34, "gaussian": 33, "motion": 33}
NOISE = 2 / 255
SIZES = (3.0, 20.0)


def run(options: Options) -> Report:
    """Pictures in turn, each blurred by a random size."""
    folder = options.data or shared_folder("coco")
    scenes = read_coco(folder, "test")[0] if folder is not None else embedded_scenes("test")
    parts = Parts(options, "parameters")
    rows: list[Row] = []
    for kind, count in COUNTS.items():
        options.say(kind)
        for number in range(2 if options.quick else count):
            scene = scenes[number % len(scenes)]
            rows.append(parts.row(f"{kind} {number}", partial(_row, kind, number, scene)))
    lines = [(kind, [r for r in rows if r["kind"] == kind]) for kind in COUNTS]
    columns = {
        "kind": lambda line: line[0],
        "pictures": lambda line: str(len(line[1])),
        "right": lambda line: str(sum(r["right"] for r in line[1])),
        "wrong, doubted": lambda line: str(sum(not r["right"] and bool(r["doubts"]) for r in line[1])),
        "wrong, not doubted": lambda line: str(sum(not r["right"] and not r["doubts"] for r in line[1])),
        "right, doubted": lambda line: str(sum(r["right"] and bool(r["doubts"]) for r in line[1])),
        "median error, px": lambda line: f"{np.median([abs(r['found'] - r['true']) for r in line[1]]):.3f}",
        "median turn, deg": lambda line: f"{np.median([r['turned'] for r in line[1]]):.2f}",
    }
    settings = {"noise": "2 of 255", "pictures": "scikit-image" if folder is None else "COCO, test"}
    return Report("parameters", "Parameters from the blurred picture", columns, rows, settings, lines=lines)


def _row(kind: str, number: int, scene: Scene) -> Row:
    rng = np.random.default_rng([list(COUNTS).index(kind), number])
    pixels = scene.read(Counter())[0].mean(2) / 255
    size = float(np.exp(rng.uniform(*np.log(SIZES)))) / (2 if kind == "gaussian" else 1)
    angle = float(rng.uniform(0, 180))
    blurred = fftconvolve(pixels, kernel_of(kind, (size, angle)), mode="valid")
    # The mean of three channels with independent noise.
    blurred = blurred + NOISE / np.sqrt(3) * rng.standard_normal(blurred.shape)
    found = find_parameters(kind, blurred)
    turned = abs((found.angle - angle + 90) % 180 - 90) if kind == "motion" else 0.0
    right = abs(found.size - size) <= max(0.5, 0.05 * size) and turned <= 3
    return {
        "kind": kind,
        "true": size,
        "angle": angle,
        "found": found.size,
        "turned": turned,
        "right": bool(right),
        "doubts": list(found.doubts),
        "stated": found.size_error,
    }
