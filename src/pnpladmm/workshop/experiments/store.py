"""Results on disk, one file a unit of work: a kill loses the unit under way and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.report import write_text

PACKAGE = Path(__file__).resolve().parents[2]
DECISIVE = (
    "data_terms/*.py",
    "methods.py",
    "tensors.py",
    "transforms.py",
    "blur/*.py",
    "denoisers/*.py",
    "metrics/*.py",
    "operators/*.py",
    "solvers/*.py",
    *(f"experiments/{name}.py" for name in ("coco", "dataset", "embedded", "kernels", "samples", "scenes", "storage")),
    *(f"experiments/{name}.py" for name in ("protocol", "running", "scoring")),
    *(f"experiments/{name}.py" for name in ("curves", "gallery", "proof", "stability", "table")),
)
"""The files that decide numbers: a result that others of them made is not used again."""


class Store:
    """A folder of finished units, each under the digest of everything that decides it.

    A unit is a JSON file, and beside it an `.npz` where it has pictures. Both are written beside and renamed, the
    JSON last: where it is, the unit is whole.
    """

    def __init__(self, folder: Path, reuse: bool = False) -> None:
        """`reuse`: take units that other versions of the code made."""
        self.folder, self.reuse = folder, reuse
        self.stale = 0
        """Units that were there, but of another version of the code."""

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The unit's values, its arrays among them; None where it is not there, or not whole."""
        path = self._path(key)
        try:
            unit = json.loads(path.read_text(encoding="utf-8"))
            values: dict[str, Any] = unit["values"]
            if unit["code"] != code_digest() and not self.reuse:
                self.stale += 1
                return None
            if unit["arrays"]:
                with np.load(path.with_suffix(".npz")) as arrays:
                    values |= {name: arrays[name] for name in unit["arrays"]}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return values

    def put(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a unit; numpy arrays among its values go into the `.npz`. Returns what `get` will."""
        path = self._path(key)
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in values.items() if name not in arrays}
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # numpy's annotation of its keywords
            write_bytes(path.with_suffix(".npz"), buffer.getvalue())
        unit = {"key": plain_data(key), "code": code_digest(), "arrays": sorted(arrays), "values": plain}
        write_text(path, json.dumps(unit, indent=1, allow_nan=False))
        return dict(values)

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{key['experiment']}-{digest(key)[:20]}.json"


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside and rename: a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(plain_data(value), sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest() -> str:
    """SHA-256 of the files that decide numbers."""
    found = hashlib.sha256()
    for pattern in DECISIVE:
        for path in sorted(PACKAGE.glob(pattern)):
            found.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def plain_data(value: Any) -> Any:
    """Dataclasses, paths, tuples and numpy numbers as JSON knows them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_data(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain_data(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return value
