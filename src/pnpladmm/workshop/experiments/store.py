"""Results on disk, one file per unit of work: a kill loses the unit under way and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pnpladmm.files import replacing, write_text
from pnpladmm.locks import Busy, only_writer_of

PACKAGE = Path(__file__).resolve().parents[2]
DECISIVE = (
    "data_terms/*.py",
    "tensor_files.py",
    "tensors.py",
    "blur/*.py",
    "blur/*/*.py",
    "denoisers/*.py",
    "metrics/*.py",
    "operators/*.py",
    "solvers/*.py",
    "workshop/experiments/*.py",
)
"""The files that decide numbers."""
WITHOUT_NUMBERS = ("_page.py", "commands.py", "everything.py", "output.py", "paper.py", "progress.py")
"""How the names of those among them end that only draw or print: stored results stay valid when they change."""


class Store:
    """A folder of finished units, each under the digest of everything that decides it.

    A unit is a JSON file, and an `.npz` beside it where it has pictures. The JSON is written last: where it exists, the
    unit is complete.
    """

    def __init__(self, folder: Path, reuse: bool = False) -> None:
        """`reuse`: also use units that other versions of the code made."""
        self.folder, self.reuse = folder, reuse
        self.stale = 0
        """Number of units that were found but made by another version of the code."""

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The unit's values, arrays included; None where it is missing or broken."""
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
            return values if unit["checksum"] == checksum(values) else None
        except Exception:  # whatever a damaged file raises: the unit is computed again
            return None

    def put(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Store a unit; numpy arrays among its values go into the `.npz`. Returns what `get` will return."""
        path = self._path(key)
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in values.items() if name not in arrays}
        unit = {"key": plain_data(key), "code": code_digest(), "arrays": sorted(arrays), "values": plain}
        unit["checksum"] = checksum(values)
        text = json.dumps(unit, indent=1, allow_nan=False)
        with suppress(Busy), only_writer_of(path):  # whoever is at it computed the same
            if arrays:
                write_npz(path.with_suffix(".npz"), arrays)
            write_text(path, text)
        return dict(values)

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{key['experiment']}-{digest(key)[:20]}.json"


def write_npz(path: Path, arrays: Mapping[str, np.ndarray[Any, np.dtype[Any]]]) -> None:
    """Write compressed arrays, beside and renamed."""
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # numpy's annotation of its keywords


def checksum(values: Mapping[str, Any]) -> str:
    """SHA-256 of a unit's values, arrays included, as they are after a round trip through its files."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = json.dumps({name: value for name, value in values.items() if name not in arrays}, sort_keys=True)
    found = hashlib.sha256(plain.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(plain_data(value), sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest() -> str:
    """SHA-256 of the files that decide numbers: a result that other versions of them made is not used again."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in DECISIVE for path in PACKAGE.glob(pattern)):
        if not path.name.endswith(WITHOUT_NUMBERS):
            found.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def plain_data(value: Any) -> Any:
    """A value as JSON can hold it: dataclasses, paths, tuples and numpy numbers converted."""
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
