"""Datasets on disk: a folder with an NPZ and a JSON file per sample, and an index. Reading needs no COCO.

NPZ: `sharp` (H, W, 3) uint8; `observed` (3, h, w) int16, in steps of 1/8192; `regions` and `recorded`, packed bits;
`kernels` (P, k, k) float64. Weights are not stored: they are computed from regions and kernels, bit for bit the same.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import read_archive
from pnpladmm.files import write_text
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.samples import Dataset, Sample, SampleOrigin, sample_blur
from pnpladmm.workshop.experiments.scenes import Array
from pnpladmm.workshop.experiments.store import write_npz

STEPS = 8192
"""Observations are whole multiples of 1/8192."""
INDEX = "dataset.json"


def to_steps(observed: Tensor) -> Array:
    """An observation in whole steps of 1/8192, int16: from -4 to 4."""
    limit = np.iinfo(np.int16).max
    steps: Array = (observed.double() * STEPS).round().clamp(-limit, limit).cpu().numpy().astype(np.int16)
    return steps


def from_steps(steps: Array) -> Tensor:
    """The observation of these steps, float32, exactly."""
    return torch.from_numpy(steps.astype(np.float32)) / STEPS


def save_dataset(dataset: Dataset, folder: str | Path) -> None:
    """Write a dataset; the index is written last, so a folder with an index is complete."""
    folder = Path(folder)
    (folder / INDEX).unlink(missing_ok=True)
    entries = [_save(sample, folder / f"sample_{i:04d}") for i, sample in enumerate(dataset)]
    index = {"samples": entries, "skipped": dataset.skipped, "ignored": dataset.ignored}
    write_text(folder / INDEX, json.dumps(index, indent=1) + "\n")


def read_dataset(folder: str | Path) -> Dataset:
    """Read what `save_dataset` wrote; an InputError if a file is missing or has changed."""
    folder = Path(folder)
    index = _json(folder / INDEX)
    try:
        samples = tuple(_read(folder, entry) for entry in index["samples"])
        return Dataset(samples, dict(index["skipped"]), dict(index["ignored"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder}: not a dataset of the experiments ({type(error).__name__}: {error})") from None


def _save(sample: Sample, path: Path) -> dict[str, str]:
    arrays = {
        "sharp": (sample.sharp[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy(),
        "observed": to_steps(sample.observed[0]),
        "regions": np.packbits(sample.regions.numpy()),
        "kernels": sample.blur.kernels[:, 0].numpy(),
    }
    if sample.mask is not None:
        arrays["recorded"] = np.packbits(sample.mask.numpy() > 0)
    write_npz(path.with_suffix(".npz"), arrays)
    about = json.dumps({"name": sample.name, "origin": sample.origin.to_dict()}, indent=1) + "\n"
    write_text(path.with_suffix(".json"), about)
    return {"file": path.name, "sha256": _digest(path)}


def _read(folder: Path, entry: dict[str, str]) -> Sample:
    path = folder / Path(entry["file"]).name
    if _digest(path) != entry["sha256"]:
        raise InputError(f"{path}: its .npz or .json is missing or has changed")
    about, arrays = _json(path.with_suffix(".json")), read_archive(path.with_suffix(".npz"))
    origin = SampleOrigin.from_dict(about["origin"])
    sharp = torch.from_numpy(arrays["sharp"]).permute(2, 0, 1)[None].float() / 255
    side = tuple(sharp.shape[2:])
    regions = _unpacked(arrays["regions"], side)
    mask = None
    if "recorded" in arrays:
        mask = torch.from_numpy(_unpacked(arrays["recorded"], side)[None]).float()
    return Sample(
        about["name"],
        sharp,
        from_steps(arrays["observed"])[None],
        sample_blur(regions, arrays["kernels"], origin.task),
        origin.sigma,
        origin.task,
        origin,
        torch.from_numpy(regions),
        mask,
    )


def _digest(path: Path) -> str:
    """SHA-256 of a sample's two files; empty if one cannot be read."""
    try:
        return hashlib.sha256(b"".join(path.with_suffix(s).read_bytes() for s in (".npz", ".json"))).hexdigest()
    except OSError:
        return ""


def _unpacked(bits: Array, side: tuple[int, ...]) -> Array:
    pixels = int(np.prod(side))
    count = bits.size * 8 // pixels
    return np.unpackbits(bits)[: count * pixels].reshape(count, *side).astype(bool)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path}: broken JSON") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a dataset of the experiments")
    return content
