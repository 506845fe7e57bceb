"""Projects: one folder for each picture, with all that was drawn and restored.

Only names that the server made become paths.

FOLDER/0123456789ab/
  project.json       the name of the picture, what was drawn, the settings
  picture.tif        the picture as it was sent
  tiles/             what the page shows of it
  files/             PSFs, masks, blur files
  runs/1/            blur.yaml, sharp.tif, sharp.tif.job.json, run.json
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pnpladmm.files import write_text
from pnpladmm.pictures.files import FORMATS
from pnpladmm.tensors import one_line
from pnpladmm.web.limits import Limits, Refused
from pnpladmm.web.sketch import NAME, Settings, Sketch

SUFFIXES = (".png", ".tif", ".tiff", ".npy", ".npz", ".fits", ".mat", ".psf", ".csv", ".yaml", ".yml")
"""Of files besides the picture; the readers look at some of them."""
OUTPUTS = {"PNG": ".png", "JPEG": ".png", "TIFF": ".tif", "FITS": ".fits", "NPY": ".npy"}
"""The suffix of the restored picture, by the format of the given one. A JPEG would be compressed once more."""
ARRIVING = ".arriving-"


class Projects:
    """The projects in one folder."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder, self.limits = folder, limits
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        for left in folder.glob(f"{ARRIVING}*"):  # from a server that was killed
            shutil.rmtree(left, ignore_errors=True)

    def names(self) -> list[str]:
        """All projects, the one opened last first."""
        found = [p.name for p in self.folder.iterdir() if re.fullmatch(NAME, p.name) and (p / "project.json").is_file()]
        return sorted(found, key=lambda name: -(self.folder / name / "project.json").stat().st_mtime)

    def path(self, name: str) -> Path:
        """The folder of a project."""
        if not re.fullmatch(NAME, name) or not (self.folder / name / "project.json").is_file():
            raise Refused(404, "there is no such project")
        return self.folder / name

    def read(self, name: str) -> dict[str, Any]:
        """What is known of a project."""
        with self._lock:
            content = json.loads((self.path(name) / "project.json").read_text(encoding="utf-8"))
        return {**content, "id": name}

    def change(self, name: str, **values: Any) -> dict[str, Any]:
        """Write other values of a project."""
        with self._lock:
            content = self.read(name) | values
            _write(self.path(name), content)
        return content

    @contextlib.contextmanager
    def arriving(self) -> Iterator[Path]:
        """A folder for a project that is being sent; it is removed if it does not become one (`arrived`)."""
        if len(self.names()) >= self.limits.projects:
            raise Refused(507, f"there are {self.limits.projects} projects: remove some first")
        folder = self.folder / f"{ARRIVING}{secrets.token_hex(6)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def arrived(self, folder: Path, name: str, file: str, facts: dict[str, Any]) -> str:
        """Make a project of a folder whose picture was read."""
        identity = secrets.token_hex(6)
        content = {
            "name": one_line(name)[:200] or "picture",
            "created": time.time(),
            "file": file,
            "picture": facts,
            "sketch": Sketch().model_dump(mode="json"),
            "settings": Settings().model_dump(mode="json"),
            "files": {},
        }
        _write(folder, content)
        folder.rename(self.folder / identity)
        return identity

    def picture(self, name: str) -> Path:
        """The picture as it was sent."""
        return self.path(name) / str(self.read(name)["file"])

    def size(self, name: str) -> tuple[int, int]:
        """Height and width of the picture."""
        facts = self.read(name)["picture"]
        return int(facts["height"]), int(facts["width"])

    def file(self, name: str, file: str) -> Path:
        """A file of a project."""
        entry = self.read(name)["files"].get(file)
        if entry is None:
            raise Refused(404, "there is no such file in this project")
        return self.path(name) / "files" / f"{file}{entry['suffix']}"

    def new_file(self, name: str, called: str, suffix: str | None = None) -> tuple[str, Path]:
        """The name and the place of a new file; it counts once `add_file` was called."""
        suffix = _suffix(called) if suffix is None else suffix
        if len(self.read(name)["files"]) >= self.limits.files:
            raise Refused(507, f"the project has {self.limits.files} files: begin a new one")
        folder = self.path(name) / "files"
        folder.mkdir(exist_ok=True)
        identity = secrets.token_hex(6)
        return identity, folder / f"{identity}{suffix}"

    def add_file(self, name: str, file: str, called: str, place: Path, words: Sequence[str] = ()) -> dict[str, Any]:
        """Make a file that was written a file of the project; `words` say what it holds."""
        with self._lock:
            files = self.read(name)["files"]
            files[file] = {"name": one_line(called)[:200], "suffix": place.suffix, "words": list(words)}
            self.change(name, files=files)
        return {"id": file, **files[file]}

    def remove(self, name: str) -> None:
        """Remove a project with all its files."""
        path = self.path(name)
        gone = self.folder / f"{ARRIVING}{name}"
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def suffix_of_picture(head: bytes) -> str:
    """The suffix for a picture file, by its first bytes."""
    for form in FORMATS.values():
        if head.startswith(form.signatures):
            packed = form.name == "FITS" and not head.startswith(b"SIMPLE")
            return ".fits.gz" if packed else form.suffixes[0]
    raise Refused(415, f"this is no picture in a known format: give {', '.join(FORMATS)}")


def output_suffix(facts: dict[str, Any]) -> str:
    """The suffix of the restored picture."""
    if facts["colour"] == "cmyk":
        return ".tif"
    if facts["format"] in OUTPUTS:
        return OUTPUTS[facts["format"]]
    is_flat = facts["pages"] == 1 and facts["depth"] in ("uint8", "uint16") and facts["colour"] in ("grey", "rgb")
    return ".png" if is_flat else ".tif"


def _suffix(called: str) -> str:
    suffix = Path(called.lower()).suffix
    if suffix not in SUFFIXES:
        raise Refused(415, f"{one_line(called)[:80]}: give one of {', '.join(SUFFIXES)}")
    return ".yaml" if suffix == ".yml" else suffix


def _write(folder: Path, content: dict[str, Any]) -> None:
    write_text(folder / "project.json", json.dumps(content, indent=1) + "\n")
