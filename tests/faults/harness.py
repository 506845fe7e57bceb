"""One fault: prepare, disturb, look at what is there, run again, compare.

After a fault
- every file under a final name is whole: it has the bytes of an undisturbed run, or can be read;
- a process that was not killed ends with one line, or with success;
- the inputs are as they were.

After the same command was run once more
- the results have the bytes of an undisturbed run;
- no temporary file is left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
import torch
from PIL import Image

from faults.commands import COMMANDS, Command
from faults.injector import FAULTS, Fault, Injector
from pnpladmm import cli
from pnpladmm.blur import read_blur
from pnpladmm.tensor_files import read_tensors

LONGEST = 150.0
"""Seconds after which a process is taken to hang."""
TEMPORARY = (".part", ".lock")
ARRIVING = ".arriving-"
"""Folders of `serve` that are no projects yet."""


@dataclass(frozen=True)
class Undisturbed:
    """What a command does when nothing happens."""

    results: dict[str, object]
    written: dict[str, bytes]
    """The results, byte for byte."""
    inputs: dict[str, bytes]
    events: int
    seconds: float
    largest: int


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    """Exit code; below 0 the signal that killed it."""
    said: str
    """stderr."""
    seconds: float


class Harness:
    """Runs commands in folders below `root`, each in a process forked from this one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, Undisturbed] = {}

    def undisturbed(self, name: str) -> Undisturbed:
        """The results of a command without a fault, once computed."""
        if name not in self._known:
            folder = self._folder(name)
            inputs = contents(folder)
            ended = self._run(folder, COMMANDS[name], None)
            if ended.code != 0:
                raise AssertionError(f"{name}: {ended.code}: {ended.said}")
            results = chosen(folder, COMMANDS[name])
            if not results:
                raise AssertionError(f"{name}: no results")
            events = int((folder.parent / f"{folder.name}.events").read_text())
            largest = max(map(len, contents(folder).values()))
            written = {path: contents(folder)[path] for path in results}
            self._known[name] = Undisturbed(results, written, inputs, events, ended.seconds, largest)
        return self._known[name]

    def problems(self, name: str, fault: Fault) -> list[str]:
        """Disturb a command once, and say everything that is wrong afterwards."""
        true, command, folder = self.undisturbed(name), COMMANDS[name], self._folder(name)
        found: list[str] = []
        ended = self._disturb(folder, name, fault)
        for one in ended:
            found += _bad_end(one, fault)
        found += _half_files(folder, true)
        if fault.kind == "input vanishes":
            for path, content in true.inputs.items():
                (folder / path).write_bytes(content)
        if any(contents(folder).get(path) != content for path, content in true.inputs.items()):
            found.append("an input was changed")
        again = self._run(folder, command, None)
        if again.code != 0:
            found.append(f"run again, it ends with {again.code}: {again.said[-300:]}")
        results = chosen(folder, command)
        found += [
            f"{path} is another file than without the fault"
            for path in true.results
            if results.get(path) != true.results[path]
        ]
        found += [f"{path} is left over" for path in contents(folder) if path.endswith(TEMPORARY) or ARRIVING in path]
        if not found:
            shutil.rmtree(folder)
        return found

    def _disturb(self, folder: Path, name: str, fault: Fault) -> list[Ended]:
        command, true = COMMANDS[name], self.undisturbed(name)
        if fault.kind == "two at once":
            first, second = (self._start(folder, command, None) for _ in range(2))
            return [self._wait(first), self._wait(second)]
        process = self._start(folder, command, fault)
        if fault.kind == "SIGKILL at any time":
            time.sleep(fault.share * true.seconds)
            os.kill(process[0], signal.SIGKILL)
        return [self._wait(process)]

    def _folder(self, name: str) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self.root, prefix=f"{name.split()[0]}-")).resolve()
        COMMANDS[name].prepare(folder)
        return folder

    def _run(self, folder: Path, command: Command, fault: Fault | None) -> Ended:
        return self._wait(self._start(folder, command, fault))

    def _start(self, folder: Path, command: Command, fault: Fault | None) -> tuple[int, int, float]:
        said, handle = os.pipe()  # no file: its length would be limited, too
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            _child(folder, command, fault, handle)
        os.close(handle)
        return process, said, time.monotonic()

    def _wait(self, started: tuple[int, int, float]) -> Ended:
        process, said, began = started
        while True:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                break
            if time.monotonic() - began > LONGEST:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return Ended(1, "Traceback: it hangs", LONGEST)
            time.sleep(0.005)
        with os.fdopen(said, "rb") as pipe:
            words = pipe.read().decode(errors="replace")
        return Ended(os.waitstatus_to_exitcode(status), words, time.monotonic() - began)


def random_fault(kind: str, true: Undisturbed, rng: random.Random) -> Fault:
    """A fault of a kind, at a random event."""
    return Fault(kind, rng.randint(1, max(1, true.events)), rng.random())


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def chosen(folder: Path, command: Command) -> dict[str, object]:
    """The results of a command, as they are compared."""
    return {
        str(p.relative_to(folder)): command.compare(p)
        for pattern in command.results
        for p in folder.glob(pattern)
        if p.is_file()
    }


def _child(folder: Path, command: Command, fault: Fault | None, handle: int) -> None:
    """The command itself; never returns."""
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        torch.set_num_threads(1)
        inputs = tuple(folder / path for path in contents(folder))
        largest = fault_largest(folder)
        injector = Injector(folder, fault, inputs, largest)
        sys.argv = ["pnpladmm", *command.arguments]
        injector.install()
        try:
            (cli.main if command.around is None else command.around(cli.main, folder))()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        injector.busy = True
        if fault is None:
            (folder.parent / f"{folder.name}.events").write_text(str(injector.count))
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def fault_largest(folder: Path) -> int:
    """Bytes that half a file is cut from: those of the largest input are about those of an output."""
    return max([1000, *(len(content) for content in contents(folder).values())])


def _bad_end(ended: Ended, fault: Fault) -> list[str]:
    killed = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGKILL at any time": signal.SIGKILL}.get(
        fault.kind
    )
    interrupted = fault.kind == "SIGINT" and ended.code == 130 and "Traceback" not in ended.said
    if ended.code == 0 or interrupted or (killed is not None and ended.code == -killed):
        return []
    if ended.code < 0:
        return [f"killed by signal {-ended.code}"]
    lines = [line for line in ended.said.splitlines() if line.strip()]
    if "Traceback" in ended.said:
        return [f"a traceback: {' | '.join(lines[-3:])[-400:]}"]
    return [] if lines else [f"exit code {ended.code} without a word"]


def _half_files(folder: Path, true: Undisturbed) -> list[str]:
    found = []
    known = {**true.inputs, **true.written}
    for path, content in contents(folder).items():
        if path.endswith(TEMPORARY) or ARRIVING in path or known.get(path) == content:
            continue
        if path in true.inputs:
            continue  # vanished or changed: looked at by itself
        if not _can_be_read(folder / path):
            found.append(f"{path} is no whole file ({len(content)} bytes)")
    return found


def _can_be_read(path: Path) -> bool:
    try:
        READERS.get(path.suffix, Path.read_bytes)(path)
    except Exception:
        return False
    return True


def _whole_picture(path: Path) -> None:
    with Image.open(path) as picture:
        picture.load()


def _whole_page(path: Path) -> None:
    if not path.read_text().rstrip().endswith("</html>"):
        raise ValueError


def _whole_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        if database.execute("pragma integrity_check").fetchone() != ("ok",):
            raise ValueError


def _whole_arrays(path: Path) -> None:
    if path.name.endswith("blur.npz") or path.name == "out.npz":
        read_blur(path)
    with np.load(path) as arrays:
        for name in arrays.files:
            arrays[name]


READERS = {
    ".png": _whole_picture,
    ".tif": lambda path: tifffile.imread(path),
    ".json": lambda path: json.loads(path.read_text()),
    ".html": _whole_page,
    ".npz": _whole_arrays,
    ".safetensors": lambda path: read_tensors(path),
    ".npy": lambda path: np.load(path, allow_pickle=False),
    ".sqlite": _whole_database,
}
__all__ = ["FAULTS", "Harness", "random_fault"]
