"""Certified runs after annealed calls: how good, how soon, and whether the theorem covers them.

    python benchmarks/certified.py --device cuda --out benchmarks/certified-cuda.json
    python benchmarks/certified.py --denoiser ridge --noise 10

The pictures are the test crops of the experiments (docs/reference/results.md). `--start none` starts from the
observation. The seconds are those of all pictures together, with the annealed calls and everything that the certificate
needs, after two iterations that are not counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from pnpladmm.denoisers import Denoiser
from pnpladmm.denoisers.loading import load_denoiser
from pnpladmm.metrics import PAPER, psnr, ssim
from pnpladmm.solvers import Result, make_method, solve
from pnpladmm.solvers.leaping import Certified
from pnpladmm.solvers.registry import method_class
from pnpladmm.workshop.experiments.batches import Batch, Clock
from pnpladmm.workshop.experiments.setup import Setup

CALLS, ITERATIONS, TOLERANCE = 8, 300, 1e-4
"""Of the annealed start; of a run at most; and the relative change below which a picture is done."""


@dataclass(frozen=True)
class Networks:
    """The denoiser of the certified run, with settings if not its own, and the one that restores the start."""

    prior: Denoiser
    first: Denoiser | None = None
    settings: dict[str, float] | None = None
    """`sigma_d` (of 255) and `relaxation`; without them those of the package, which hold the annealed picture."""


def annealed(batch: Batch, networks: Networks, noise: float) -> Tensor:
    """The picture that the first network restores; without one the observation."""
    if networks.first is None:
        return batch.start
    sigma = torch.full((len(batch.names),), noise / 255, dtype=torch.float64)
    method = make_method("fast", networks.first, batch.problem, sigma, 1.0, CALLS)
    return solve(batch.problem, method, start=batch.start, record=False).image


def certified_run(batch: Batch, networks: Networks, noise: float, iterations: int, tolerance: float) -> Result:
    """One batch, from the annealed picture or the observation; noise is of 255."""
    problem, sigma = batch.problem, torch.full((len(batch.names),), noise / 255, dtype=torch.float64)
    start = batch.start
    if networks.first is not None:
        start = solve(
            problem, make_method("fast", networks.first, problem, sigma, 1.0, CALLS), start=start, record=False
        ).image
    if networks.first is not None and networks.settings is None:
        method = Certified.after(start, networks.prior, problem, sigma)
    elif networks.settings is None:
        method = make_method("certified", networks.prior, problem, sigma)
    else:
        row = {**networks.settings, "sigma_d": networks.settings["sigma_d"] / 255}
        method = method_class("certified").from_settings(networks.prior, problem, row)
    return solve(problem, method.started_from_blurred(), iterations, tolerance, start=start)


def report(results: Sequence[tuple[Batch, Result]]) -> dict[str, Any]:
    """What the runs show, over all pictures."""
    levels = [one.level.value for _, result in results for one in result.certificates]
    statuses = [status.label for _, result in results for status in result.statuses]
    iterations = [int(n) for _, result in results for n in torch.isfinite(result.history.x_change).sum(0)]
    row: dict[str, Any] = {
        "pictures": len(levels),
        "levels": {level: levels.count(level) for level in dict.fromkeys(levels)},
        "converged": statuses.count("converged"),
        "iterations": [median(iterations), max(iterations)],
        "psnr": fmean(value for batch, result in results for value in psnr(result.image, batch.sharp, PAPER).tolist()),
        "ssim": fmean(value for batch, result in results for value in ssim(result.image, batch.sharp, PAPER).tolist()),
    }
    curvatures = [_largest(result.history.curvature) for _, result in results if result.history.curvature is not None]
    rises = [
        _largest(result.history.lagrangian.diff(dim=0) / result.history.lagrangian[1:].abs())
        for _, result in results
        if result.history.lagrangian is not None and len(result.history) > 1
    ]
    return row | {"curvature": max(curvatures, default=None), "rise": max(rises, default=None)}


def _largest(values: Tensor) -> float:
    return float(values.nan_to_num(-torch.inf).max())


def measure(batches: Sequence[Batch], networks: Networks, noise: float) -> dict[str, Any]:
    """The row of a noise level, with the time of all batches."""
    certified_run(batches[0], networks, noise, 2, 0.0)
    clock = Clock(batches[0].device)
    clock.start()
    results = [(batch, certified_run(batch, networks, noise, ITERATIONS, TOLERANCE)) for batch in batches]
    seconds = clock.read()
    row = {"noise": noise, **report(results), "seconds": seconds}
    if networks.first is not None:
        starts = [(batch, annealed(batch, networks, noise)) for batch in batches]
        row["start"] = fmean(value for batch, x in starts for value in psnr(x, batch.sharp, PAPER).tolist())
    return row


def main() -> None:
    """Print a table, and write it with `--out`."""
    parser = argparse.ArgumentParser(description="Certified runs on the test crops.")
    parser.add_argument("--denoiser", default="prox-drunet")
    parser.add_argument("--start", default="light-exact", help="network of the annealed calls, or none")
    parser.add_argument("--noise", default="1,10,20,40")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    levels = tuple(float(level) for level in given.noise.split(","))
    setup = Setup(out=Path("."), denoiser_name=given.denoiser, noise=levels, device=given.device, quiet=True)
    first = None if given.start == "none" else load_denoiser(given.start, given.device)
    networks = Networks(load_denoiser(given.denoiser, given.device), first)
    rows = []
    for noise, samples in setup.samples("test", count=given.count).items():
        rows.append(measure(setup.batches(samples), networks, noise))
        print(json.dumps(rows[-1]), flush=True)
    if given.out is not None:
        about = {"denoiser": given.denoiser, "start": given.start, "tolerance": TOLERANCE, "machine": setup.machine}
        given.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
