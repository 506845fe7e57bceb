"""Runs of a project: they wait in one queue, each in a process of its own, and can be cancelled at once."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from pnpladmm.files import write_text
from pnpladmm.web.blur_files import BLUR_FILE
from pnpladmm.web.command import command_line, job_of
from pnpladmm.web.limits import Refused
from pnpladmm.web.processes import COMMAND, Process
from pnpladmm.web.projects import Projects, output_suffix
from pnpladmm.web.sketch import Settings, Sketch
from pnpladmm.web.words import verdict

Key = tuple[str, int]
OVER = ("done", "failed", "cancelled", "interrupted")


class Runs:
    """The queue of one server."""

    def __init__(self, projects: Projects, command: tuple[str, ...] = COMMAND) -> None:
        self._projects, self._command = projects, command
        self._waiting: deque[Key] = deque()
        self._changed = threading.Condition()
        self._now: Key | None = None
        self._process: Process | None = None
        self._cancelled: set[Key] = set()
        self._progress: dict[str, Any] = {}
        self._closed = False
        self._clean_up()
        threading.Thread(target=self._work, name="runs", daemon=True).start()

    def list(self, project: str) -> list[dict[str, Any]]:
        """All runs of a project, the newest first."""
        folder = self._projects.path(project) / "runs"
        numbers = sorted((int(p.name) for p in folder.glob("*") if p.name.isdigit()), reverse=True)
        return [self.read(project, n) for n in numbers if (folder / str(n) / "run.json").is_file()]

    def read(self, project: str, number: int) -> dict[str, Any]:
        """One run, with its progress while it runs."""
        content = _read(self.folder(project, number))
        if self._now == (project, number):
            content["progress"] = dict(self._progress)
        elif content["state"] == "waiting":
            with self._changed:
                ahead = list(self._waiting)
            content["ahead"] = ahead.index((project, number)) + 1 if (project, number) in ahead else 1
        if content["state"] == "done":
            content["verdict"] = verdict(content["outcome"])
            content["command"] = command_line(content["job"])
        return content

    def folder(self, project: str, number: int) -> Path:
        """The folder of a run."""
        folder = self._projects.path(project) / "runs" / f"{number:d}"
        if not (folder / "run.json").is_file():
            raise Refused(404, "there is no such run")
        return folder

    def add(self, project: str, sketch: Sketch, settings: Settings) -> dict[str, Any]:
        """Put a run into the queue."""
        if sketch.is_empty:
            raise Refused(422, "say first what the blur is: choose one of the kinds of blur")
        with self._changed:
            if len(self._waiting) >= self._projects.limits.waiting:
                raise Refused(429, f"{len(self._waiting)} runs wait already: let some of them finish first")
            root = self._projects.path(project) / "runs"
            root.mkdir(exist_ok=True)
            number = 1 + max((int(p.name) for p in root.glob("*") if p.name.isdigit()), default=0)
            folder = root / str(number)
            folder.mkdir()
            content = {"number": number, "state": "waiting", "created": time.time()}
            content |= {"sketch": sketch.model_dump(mode="json"), "settings": settings.model_dump(mode="json")}
            _write(folder, content)
            self._waiting.append((project, number))
            self._changed.notify_all()
        return self.read(project, number)

    def again(self, project: str, number: int) -> dict[str, Any]:
        """A new run with the blur and the settings of an old one."""
        old = _read(self.folder(project, number))
        return self.add(project, Sketch.model_validate(old["sketch"]), Settings.model_validate(old["settings"]))

    def cancel(self, project: str, number: int) -> dict[str, Any]:
        """Stop a run now, or take it out of the queue."""
        key = (project, number)
        folder = self.folder(project, number)
        with self._changed:
            if key in self._waiting:
                self._waiting.remove(key)
                _write(folder, _read(folder) | {"state": "cancelled"})
            elif self._now == key:
                self._cancelled.add(key)
                if self._process is not None:
                    self._process.kill()
                self._changed.wait_for(lambda: self._now != key, 15)
        return self.read(project, number)

    def remove(self, project: str, number: int) -> None:
        """Remove a run with its files; one that runs is cancelled first."""
        self.cancel(project, number)
        shutil.rmtree(self.folder(project, number))

    def remove_project(self, project: str) -> None:
        """Cancel all runs of a project before it is removed."""
        for run in self.list(project):
            if run["state"] not in OVER:
                self.cancel(project, run["number"])
        self._projects.remove(project)

    def close(self) -> None:
        """End what runs; it can be run again later."""
        self._closed = True
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()
            if self._process is not None:
                self._process.kill()

    def _closing(self) -> bool:
        return self._closed

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closing():
                    return
                self._now = self._waiting.popleft()
                self._progress = {"started": time.time(), "stage": "starting"}
            try:
                self._run(*self._now)
            except (Refused, OSError):  # the project was removed meanwhile, or its disk is full
                pass
            finally:
                with self._changed:
                    self._cancelled.discard(self._now)
                    self._now = self._process = None
                    self._changed.notify_all()

    def _run(self, project: str, number: int) -> None:
        folder = self.folder(project, number)
        content = _read(folder) | {"state": "running", "started": time.time()}
        _write(folder, content)
        try:
            content["job"] = self._prepared(project, folder, content)
            _write(folder, content)
            content["outcome"] = self._restore(project, folder, content["job"])
            content["state"] = "done"
        except Exception as error:  # whatever it is, the queue goes on
            _discard(folder)
            if (project, number) in self._cancelled:
                content["state"] = "cancelled"
            elif self._closing():
                content["state"] = "interrupted"
            else:
                content |= {"state": "failed", "error": _words(error)}
        finally:
            if self._process is not None:
                self._process.kill()
        content["ended"] = time.time()
        _write(folder, content)

    def _prepared(self, project: str, folder: Path, content: dict[str, Any]) -> dict[str, Any]:
        """Start the process, let it write the blur file, and make the job."""
        facts = self._projects.read(project)
        self._process = Process(self._command)
        if (project, int(folder.name)) in self._cancelled:  # cancelled before there was a process
            self._process.kill()
        files = {name: str(self._projects.file(project, name)) for name in facts["files"]}
        size = list(self._projects.size(project))
        limit = self._projects.limits.open_seconds
        self._process.ask("write_blur", limit, sketch=content["sketch"], size=size, files=files, folder=str(folder))
        output = folder / f"sharp{output_suffix(facts['picture'])}"
        settings = Settings.model_validate(content["settings"])
        return job_of(self._projects.picture(project), folder / BLUR_FILE, output, settings)

    def _restore(self, project: str, folder: Path, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        facts = self._projects.read(project)["picture"]
        size = [facts["height"], facts["width"], facts["pages"]]
        return self._process.ask(
            "run", self._projects.limits.run_seconds, self._heard,
            folder=str(folder), job=job, shades=facts["shades"], sizes=size,
        )  # fmt: skip

    def _heard(self, message: dict[str, Any]) -> None:
        """Progress from the process; the time that is left follows from the steps so far."""
        now, progress = time.time(), self._progress
        if "step" in message:
            first = progress.setdefault("first", now)
            done, steps = message["step"], message["steps"]
            each = (now - first) / (done - 1) if done > 1 else None
            progress |= {"stage": "restoring", "left": None if each is None else each * (steps - done)}
        progress |= message

    def _clean_up(self) -> None:
        """Runs that a killed server left behind: what they wrote goes, what they were asked stays."""
        for project in self._projects.names():
            for run in self.list(project):
                if run["state"] not in OVER:
                    folder = self.folder(project, run["number"])
                    _discard(folder)
                    _write(folder, {k: v for k, v in run.items() if k != "ahead"} | {"state": "interrupted"})


def _words(error: Exception) -> str:
    """What went wrong, without the folders of this machine."""
    if isinstance(error, Refused):
        return error.message
    if isinstance(error, OSError):
        return f"the result could not be kept: {error.strerror or 'the disk did not take it'}"
    return f"unexpected: {type(error).__name__}"


def _discard(folder: Path) -> None:
    """Remove what a run wrote, whole or half."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != "run.json":
            path.unlink(missing_ok=True)


def _read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return content


def _write(folder: Path, content: dict[str, Any]) -> None:
    write_text(folder / "run.json", json.dumps(content, indent=1) + "\n")
