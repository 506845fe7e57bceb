"""Blind estimates: real camera shake (Levin et al. 2009), and simulated shake that changes over the picture."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from pnpladmm.blur import Blur
from pnpladmm.blur.arrays import Array
from pnpladmm.estimate import estimate_blur
from pnpladmm.pictures import read_picture
from pnpladmm.places import shared_folder
from pnpladmm.restore import restore
from pnpladmm.simulate import simulate
from pnpladmm.tensors import InputError
from pnpladmm.workshop.bench.parts import Parts
from pnpladmm.workshop.bench.report import Options, Report, Row
from pnpladmm.workshop.bench.shaken import best_shift_psnr, turning_camera, two_objects
from pnpladmm.workshop.experiments.coco import read_coco

BORDER = 20
SIDE = 512
"""Pixels of the simulated pictures, where the photograph has so many."""
NOISE = 2
PICTURES = 4
"""Simulated pictures of each kind."""


def run(options: Options) -> Report:
    """Estimate, restore with the estimate and with the true blur, and compare."""
    folder = shared_folder("levin2009")
    coco = options.data or shared_folder("coco")
    parts = Parts(options, "blind")
    rows: list[Row] = []
    if folder is not None:
        rows += list(_shaken_by_hand(folder, options, parts))
    if coco is not None:
        rows += list(_simulated(coco, options, parts))
    columns = {
        "picture": lambda row: row["picture"],
        "blurred": lambda row: f"{row['blurred']:.2f}",
        "true blur": lambda row: f"{row['true']:.2f}",
        "blind": lambda row: f"{row['blind']:.2f}",
        "error ratio": lambda row: f"{row['error_ratio']:.2f}",
        "share of the gain": lambda row: f"{row['gain']:.2f}",
        "seconds": lambda row: f"{row['seconds']:.1f}",
        "kernels": lambda row: str(row["kernels"] or "none found"),
    }
    settings = {"border": BORDER, "noise": NOISE, "score": "PSNR in dB at the best shift, to a quarter of a pixel"}
    return Report("blind", "Blind estimates", columns, rows, settings, _summary(rows))


def _summary(rows: list[Row]) -> list[str]:
    notes = [] if rows else ["nothing measured: levin2009 and coco are not in the shared folder, and --data not given"]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        some = [row for row in rows if row["kind"] == kind]
        mean = {name: float(np.mean([row[name] for row in some])) for name in ("blurred", "true", "blind", "seconds")}
        good = sum(row["error_ratio"] <= 3 for row in some)
        below = sum(row["blind"] < row["blurred"] for row in some)
        share = (mean["blind"] - mean["blurred"]) / (mean["true"] - mean["blurred"])
        notes.append(
            f"{kind}, {len(some)} pictures: blurred {mean['blurred']:.2f}, true blur {mean['true']:.2f}, blind "
            f"{mean['blind']:.2f} dB ({share:.2f} of the gain); error ratio at most 3 on {good}; {below} below the "
            f"blurred picture; {mean['seconds']:.1f} s for an estimate"
        )
    return notes


def _shaken_by_hand(folder: Path, options: Options, parts: Parts) -> Iterator[Row]:
    """The pictures of a folder as Levin's set is laid out. Some kernels are stored turned by 180 degrees."""
    names = sorted(folder.glob("im*_kernel*_img.png"))
    for path in names[:2] if options.quick else names:
        yield parts.row(path.stem, partial(_shaken_row, path, options))


def _shaken_row(path: Path, options: Options) -> Row:
    options.say(path.name)
    image, kernel_name, _ = path.stem.split("_")
    truth = _grey(path.parent / "gt" / f"{image}.png")
    kernel = _grey(path.parent / "gt" / f"{kernel_name}.png")
    y = np.asarray(read_picture(path).pixels[0, 0].double() * 255).round().astype(np.uint8)
    known = max(
        best_shift_psnr(_restored(y, k / k.sum(), options), truth, BORDER) for k in (kernel, kernel[::-1, ::-1])
    )
    return _row("real shake", path.stem, y, truth, known, options)


def _simulated(folder: Path, options: Options, parts: Parts) -> Iterator[Row]:
    scenes, _, _ = read_coco(folder, "test")
    for kind in ("turning camera", "two things"):
        done = 0
        for scene in scenes:
            if done == (1 if options.quick else PICTURES):
                break
            pixels, masks, _ = scene.read(Counter())
            rows, columns = (slice((n - min(n, SIDE)) // 2, (n + min(n, SIDE)) // 2) for n in pixels.shape[:2])
            sharp = pixels[rows, columns].astype(np.float32) / 255
            rng = np.random.default_rng(done)
            size = sharp.shape[0], sharp.shape[1]
            if kind == "turning camera":
                blur = turning_camera(size, rng)
            else:
                large = [mask[rows, columns] for _, mask in masks if 0.1 < mask[rows, columns].mean() < 0.6]
                if not large:
                    continue
                blur = two_objects(large[0], rng)
            measure = partial(_simulated_row, kind, scene.name, sharp, blur, done, options)
            yield parts.row(f"{kind}/{scene.name}", measure)
            done += 1


def _simulated_row(kind: str, name: str, sharp: Array, blur: Blur, seed: int, options: Options) -> Row:
    options.say(f"{kind}, {name}")
    shot = simulate(sharp, blur, noise=NOISE / 255, seed=seed)
    y = (shot.picture.pixels[0].permute(1, 2, 0).numpy() * 255).round().clip(0, 255).astype(np.uint8)
    lost = [k // 2 for k in blur.kernel_size]
    truth = _planes(sharp)[:, lost[0] : lost[0] + y.shape[0], lost[1] : lost[1] + y.shape[1]]
    known = best_shift_psnr(_restored(y, shot.blur, options), truth, BORDER)
    return _row(kind, name, y, truth, known, options)


def _row(kind: str, name: str, y: Array, truth: Array, known: float, options: Options) -> Row:
    before = best_shift_psnr(_planes(y), truth, BORDER)
    start = time.perf_counter()
    try:
        blur = estimate_blur(y, "blind", device=options.device)
    except InputError:  # it says that it found none: the picture stays as it was
        blur = None
    seconds = time.perf_counter() - start
    blind = before if blur is None else best_shift_psnr(_restored(y, blur, options), truth, BORDER)
    return {
        "kind": kind,
        "picture": name,
        "blurred": before,
        "true": known,
        "blind": blind,
        "error_ratio": 10 ** ((known - blind) / 10),
        "gain": (blind - before) / (known - before),
        "seconds": seconds,
        "kernels": 0 if blur is None else len(blur.kernels),
    }


def _restored(y: Array, blur: Blur | Array, options: Options) -> Array:
    given = blur if isinstance(blur, Blur) else np.ascontiguousarray(blur)
    return _planes(np.asarray(restore(y, given, denoiser=options.denoiser, device=options.device)))


def _planes(picture: Array) -> Array:
    """Integers or floats, grey or colour last, as float64 with the colours first."""
    scaled = picture / 255.0 if picture.dtype == np.uint8 else picture.astype(np.float64)
    return scaled if scaled.ndim == 2 else scaled.transpose(2, 0, 1)


def _grey(path: Path) -> Array:
    values: Array = read_picture(path).pixels[0, 0].double().numpy()
    return values
