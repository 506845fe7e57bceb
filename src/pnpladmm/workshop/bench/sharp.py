"""Kernels from a sharp reference: the crops of the experiments (256x256, 1 to 5 regions with a kernel each), noise 2.

Crops with one region have the first kernel of a crop for all of it. `kernels` is the relative l2 error of the PSF over
the pixels of the crop, the median; `large regions` that of the best kernel for each region of more than 15 % of the
crop. dB are those of a restoration with our blur less those with the true blur, inside a border of 17 pixels. What lies
beyond the border is unknown to the estimate, and to both restorations; `told` is about restorations that are told that
the crops are circular.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch

import pnpladmm as pl
from pnpladmm.blur.arrays import Array
from pnpladmm.operators.boundary import Boundary
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.parts import Parts
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.experiments.dataset import Sample, load_dataset

NOISE = 2 / 255
COUNT, ONE = 12, 8
LARGE = 0.15
SIDE = 65
BOUNDARIES: tuple[Boundary, ...] = ("unknown", "circular")
WHITE = 2.0
"""Nothing saturates in the simulation: a white pixel of the photograph is as white as it looks."""


def run(options: Options) -> Report:
    """Test crops with their own regions, and some with one kernel."""
    samples = list(load_dataset("test", NOISE, count=2 if options.quick else COUNT, folder=options.data))
    parts = Parts(options, "sharp")
    rows: list[Row] = []
    for number, sample in enumerate(samples):
        regions = len(sample.blur.kernels)
        measure = partial(_row, sample.name, regions, sample, sample.blur, sample.observed, options)
        rows.append(parts.row(f"{sample.name}, {regions} regions", measure))
        if number < (1 if options.quick else ONE):
            blur = pl.Blur(sample.blur.kernels[:1], torch.ones(1, *sample.blur.size))
            noise = NOISE * torch.randn(sample.sharp.shape, generator=torch.Generator().manual_seed(number))
            observed = blur.operator("circular").forward(sample.sharp) + noise
            measure = partial(_row, sample.name, 1, sample, blur, observed, options)
            rows.append(parts.row(f"{sample.name}, one kernel", measure))
    columns = {
        "picture": lambda r: r["picture"],
        "regions": lambda r: str(r["regions"]),
        "found": lambda r: str(r.get("found", "")),
        "kernels, %": lambda r: f"{100 * r['error']:.1f}" if "error" in r else "",
        "large regions, %": lambda r: ", ".join(f"{100 * e:.1f}" for e in r.get("large", [])),
        "stated, %": lambda r: f"{100 * r['stated']:.1f}" if "stated" in r else "",
        "dB": lambda r: f"{r['difference']:+.2f}" if "difference" in r else r.get("refused", ""),
        "told": lambda r: f"{r['difference_told']:+.2f}" if "difference_told" in r else "",
        "seconds": lambda r: f"{r['seconds']:.0f}" if "seconds" in r else "",
    }
    return Report("sharp", "Kernels from a sharp reference", columns, rows, {"noise": "2 of 255", "split": "test"})


def _row(name: str, regions: int, sample: Sample, true: pl.Blur, observed: torch.Tensor, options: Options) -> Row:
    options.say(f"{name}, {regions} kernels")
    row: Row = {"picture": name, "regions": regions}
    start = time.perf_counter()
    try:
        blur = pl.estimate_blur(
            observed[0].numpy(), "sharp", sharp=sample.sharp[0].numpy(), axes="CHW", saturation=WHITE
        )
    except InputError as error:
        return row | {"refused": str(error)}
    errors, large = _errors(blur, true)
    seconds = time.perf_counter() - start
    ours, best, ours_told, best_told = (
        _psnr(sample, b, observed, boundary) for boundary in BOUNDARIES for b in (blur, true)
    )
    return row | {
        "found": len(blur.kernels),
        "error": float(np.median(errors)),
        "mean": float(errors.mean()),
        "large": large,
        "stated": blur.uncertainty,
        "ours_db": ours,
        "true_db": best,
        "difference": ours - best,
        "difference_told": ours_told - best_told,
        "seconds": seconds,
    }


def _errors(blur: pl.Blur, true: pl.Blur) -> tuple[Array, list[float]]:
    """The relative error of the PSF at each pixel, and of the best kernel for each large region."""
    a, b = (_padded(one.kernels[:, 0].numpy()) for one in (blur, true))
    u, v = (one.weights.double().numpy().reshape(len(one.weights), -1) for one in (blur, true))
    power = np.einsum("pn,pq,qn->n", v, b @ b.T, v)
    apart = np.einsum("pn,pq,qn->n", u, a @ a.T, u) - 2 * np.einsum("pn,pq,qn->n", u, a @ b.T, v) + power
    large = [
        float(np.sqrt(((a - kernel) ** 2).sum(1).min() / (kernel**2).sum()))
        for kernel, share in zip(b, v.mean(1), strict=True)
        if share > LARGE
    ]
    return np.sqrt(apart.clip(0) / power), large


def _padded(kernels: Array) -> Array:
    margins = [((SIDE - n) // 2,) * 2 for n in kernels.shape[1:]]
    return np.pad(kernels, ((0, 0), *margins)).reshape(len(kernels), -1)


def _psnr(sample: Sample, blur: pl.Blur, observed: torch.Tensor, boundary: Boundary) -> float:
    restored = pl.restore(observed[0], blur, noise=NOISE, boundary=boundary, axes="CHW")
    inside = (np.asarray(restored) - sample.sharp[0].numpy())[:, 17:-17, 17:-17]
    return float(-10 * np.log10(np.square(inside).mean()))
