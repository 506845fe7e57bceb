"""Blur files from the browser: what they name must have come along, and nothing else is looked for."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from pnpladmm.files import write_text
from pnpladmm.web.blur_files import load_yaml, sketch_of, with_own_names
from pnpladmm.web.desk import Desk
from pnpladmm.web.limits import Refused
from pnpladmm.web.projects import SUFFIXES
from pnpladmm.web.sketch import Kernel, Sketch

MOST_IN_ZIP = 100


def load_blur(desk: Desk, project: str, file: str, beside: dict[str, str]) -> dict[str, Any]:
    """The sketch that a file of the project describes, words on what it holds, and the files of the project."""
    path, size = desk.projects.file(project, file), desk.projects.size(project)
    if path.suffix == ".yaml":
        sketch, words = _of_yaml(desk, project, path, beside)
    else:
        found = desk.helper.ask("inspect", desk.limits.preview_seconds, path=str(path), size=list(size))
        sketch, words = Sketch(background=Kernel(kernel=file)) if found["single"] else Sketch(file=file), found["words"]
        desk.projects.add_file(project, file, desk.projects.read(project)["files"][file]["name"], path, words)
    return {"sketch": sketch.model_dump(mode="json"), "words": words, "files": desk.projects.read(project)["files"]}


def _of_yaml(desk: Desk, project: str, path: Path, beside: dict[str, str]) -> tuple[Sketch, list[str]]:
    size, content = desk.projects.size(project), load_yaml(path)
    sketch = sketch_of(with_own_names(content, beside), size)
    if sketch is not None:
        return sketch, []
    # Another form: it stays one file, which names the others as they are called here.
    own = {name: desk.projects.file(project, identity).name for name, identity in beside.items()}
    identity, place = desk.projects.new_file(project, "blur.yaml", ".yaml")
    write_text(place, yaml.safe_dump(with_own_names(content, own), sort_keys=False))
    found = desk.helper.ask("inspect", desk.limits.preview_seconds, path=str(place), size=list(size))
    desk.projects.add_file(project, identity, "blur.yaml", place, found["words"])
    return Sketch(file=identity), found["words"]


def unpack(desk: Desk, project: str, place: Path) -> dict[str, Any]:
    """A ZIP with a blur file: its parts become files of the project under new names."""
    beside: dict[str, str] = {}
    blur = None
    try:
        with zipfile.ZipFile(place) as archive:
            parts = [info for info in archive.infolist() if not info.is_dir()]
            if len(parts) > MOST_IN_ZIP or sum(info.file_size for info in parts) > desk.limits.file:
                raise Refused(413, "the ZIP unpacks to too much")
            for info in parts:
                name = PurePosixPath(info.filename.replace("\\", "/")).name
                if Path(name.lower()).suffix not in SUFFIXES:
                    continue
                identity, target = desk.projects.new_file(project, name)
                with archive.open(info) as packed:
                    target.write_bytes(packed.read(info.file_size))
                desk.projects.add_file(project, identity, name, target)
                beside[name] = identity
                blur = identity if target.suffix == ".yaml" else blur
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError):
        raise Refused(422, "this is no ZIP that can be unpacked") from None
    if blur is None:
        raise Refused(422, "there is no blur file (YAML) in this ZIP")
    return load_blur(desk, project, blur, beside)
