"""What a server holds: projects, the queue, the warm process, and addresses for downloads."""

from __future__ import annotations

import io
import secrets
import shutil
import threading
import time
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pnpladmm.tensors import one_line
from pnpladmm.web.limits import Limits, Refused
from pnpladmm.web.processes import COMMAND, Helper, Process
from pnpladmm.web.projects import Projects, suffix_of_picture
from pnpladmm.web.runs import Runs
from pnpladmm.web.ways import offered

TICKETS, TICKET_SECONDS = 64, 300.0


@dataclass(frozen=True)
class Ticket:
    """A download: a file, or bytes, and the name that it gets."""

    name: str
    content: Path | bytes
    until: float


class Desk:
    """Everything behind the API."""

    def __init__(self, folder: Path, limits: Limits | None = None, command: tuple[str, ...] = COMMAND) -> None:
        self.limits = limits or Limits()
        self.projects = Projects(folder, self.limits)
        self.runs = Runs(self.projects, command)
        self.helper = Helper(command)
        self._command = command
        self._tickets: OrderedDict[str, Ticket] = OrderedDict()
        self._estimate: tuple[str, Process] | None = None
        self._progress: dict[str, Any] = {}
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Load the libraries and the network of the helper in the background."""
        threading.Thread(target=self.helper.warm, daemon=True).start()

    def open(self, arriving: Path, file: str, called: str) -> str:
        """Make a project of a picture that has arrived."""
        facts = self.helper.ask(
            "open", self.limits.open_seconds,
            path=str(arriving / file), folder=str(arriving / "tiles"),
            pixels=self.limits.pixels, decoded=self.limits.decoded,
        )  # fmt: skip
        return self.projects.arrived(arriving, called, file, facts)

    def open_copy(self, picture: Path) -> str:
        """Make a project of a copy of a file of this machine; for the command line, never for the browser."""
        with self.projects.arriving() as folder, picture.open("rb") as file:
            name = f"picture{suffix_of_picture(file.read(32))}"
            shutil.copyfile(picture, folder / name)
            return self.open(folder, name, picture.name)

    def files(self, project: str) -> dict[str, str]:
        """Where the files of a project lie."""
        return {name: str(self.projects.file(project, name)) for name in self.projects.read(project)["files"]}

    def make_file(self, project: str, called: str, task: str, seconds: float, **values: Any) -> dict[str, Any]:
        """A new kernel of a project, which the helper writes."""
        identity, place = self.projects.new_file(project, called, ".npy")
        done = self.helper.ask(task, seconds, target=str(place), **values)
        return {**self.projects.add_file(project, identity, called, place), **done}

    def estimate(self, project: str, way: str, linear: bool) -> dict[str, Any]:
        """Find the blur in the picture, in a process that can be cancelled."""
        if way not in [one["name"] for one in offered()]:
            raise Refused(422, "there is no such way to find a blur")
        identity, place = self.projects.new_file(project, "found in the picture", ".npz")
        with self._lock:
            if self._estimate is not None:
                raise Refused(409, "the blur of a picture is being looked for already")
            process = Process(self._command)
            self._estimate, self._progress = (project, process), {"stage": "starting", "share": 0.0}
        try:
            done = process.ask(
                "estimate", self.limits.estimate_seconds, self._heard,
                path=str(self.projects.picture(project)), way=way, linear=linear, target=str(place),
            )  # fmt: skip
        finally:
            process.kill()
            self._estimate = None
        return self.projects.add_file(project, identity, "found in the picture", place, done["words"])

    def estimate_progress(self, project: str) -> dict[str, Any]:
        """What the search for the blur does now, and the share of it that is done; empty where there is none."""
        if self._estimate is None or self._estimate[0] != project:
            return {}
        return dict(self._progress)

    def _heard(self, message: dict[str, Any]) -> None:
        self._progress = message

    def cancel_estimate(self, project: str) -> None:
        """Stop looking for the blur."""
        if self._estimate is not None and self._estimate[0] == project:
            self._estimate[1].kill()

    def ticket(self, name: str, content: Path | bytes) -> dict[str, str]:
        """An address for one download. A link in a page cannot send the token, so the address holds a secret."""
        if isinstance(content, Path) and not content.is_file():
            raise Refused(404, "there is no such file")
        secret = secrets.token_urlsafe(24)
        with self._lock:
            self._tickets[secret] = Ticket(name, content, time.monotonic() + TICKET_SECONDS)
            while len(self._tickets) > TICKETS:
                self._tickets.popitem(last=False)
        return {"url": f"/api/tickets/{secret}", "name": name}

    def redeem(self, secret: str) -> Ticket:
        """The download of an address, once."""
        with self._lock:
            ticket = self._tickets.pop(secret, None)
        if ticket is None or ticket.until < time.monotonic():
            raise Refused(404, "this address was good for one download")
        return ticket

    def close(self) -> None:
        """End all processes."""
        self.runs.close()
        self.helper.close()
        if self._estimate is not None:
            self._estimate[1].kill()


def packed_blur(folder: Path) -> tuple[str, Path | bytes]:
    """The blur file of a folder; with the files that it names as ZIP."""
    from pnpladmm.web.blur_files import BLUR_FILE, load_yaml, names_in

    names = [name for name in names_in(load_yaml(folder / BLUR_FILE)) if (folder / name).is_file()]
    if not names:
        return BLUR_FILE, folder / BLUR_FILE
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (BLUR_FILE, *names):
            archive.write(folder / name, name)
    return "blur.zip", file.getvalue()


def download_name(called: str, ending: str) -> str:
    """A file name made of the picture's, without anything that a system takes for a path."""
    stem = Path(one_line(called).replace("\\", "/")).name.rsplit(".", 1)[0]
    safe = "".join(c if c.isalnum() or c in " ._-()" else "_" for c in stem).strip(" .")[:80]
    return f"{safe or 'picture'}{ending}"
