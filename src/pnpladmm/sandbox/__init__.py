"""Parsers that can crash or hang run in a process of their own, with limits of time and memory.

MATLAB and HDF5 files are read by C code that one wrong byte can crash, so they are always read there; TIFF and packed
FITS files are tried there first where a quick look finds something odd. The process imports the parser alone, which
takes about a quarter of a second; not this package, and not torch.

`read_apart` gives back the arrays of a file, `try_apart` says only that the file can be read.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from pnpladmm.gate import max_bytes
from pnpladmm.locks import check_regular
from pnpladmm.tensors import InputError

Task: TypeAlias = Literal["mat", "hdf", "tiff", "fits"]
WORKER = Path(__file__).with_name("worker.py")
SECONDS = 4.0
"""Of computing, for a small file."""
WAITING = 20.0
"""On the clock, besides: for a busy machine. No file is known to wait for anything."""
BYTES_PER_SECOND = 5e6
"""How fast a parser is at the least."""
OVERHEAD = 3 << 29
"""Bytes of addresses that Python and its libraries take besides the data."""
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TIFFFILE_NUM_THREADS"), "1")
"""With hardly any memory left Python waits for ever for a thread that could not begin (its issue 140746)."""

Values: TypeAlias = dict[str, np.ndarray[Any, np.dtype[Any]]]


def read_apart(task: Task, path: Path) -> Values:
    """The named arrays of a file. A cell of arrays is an array of objects; what is no numbers and no text is void."""
    return _run(task, path, str(path))


def try_apart(task: Task, path: Path, name: str) -> None:
    """Raise an InputError that calls the file `name` if its parser fails, crashes, or takes too much."""
    _run(task, path, name)


def _run(task: Task, path: Path, name: str) -> Values:
    """The arrays that the worker finds."""
    check_regular(path)
    limit, seconds = max_bytes(), SECONDS + path.stat().st_size / BYTES_PER_SECOND
    clock = seconds + WAITING
    limits = {"limit": limit, "memory": limit + OVERHEAD, "seconds": seconds, "clock": clock}
    order = {"task": task, "path": str(path), **limits}
    # -P: the folder of the worker is no place to import from.
    with subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **ONE_THREAD},
    ) as process:
        # The system ends the worker at its limits. Where it knows none, as on Windows, a thread does so.
        timer = None if hasattr(signal, "setitimer") else threading.Timer(clock, process.kill)
        try:
            if timer is not None:
                timer.start()
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.close()
            return _answer(name, process)
        finally:
            if timer is not None:
                timer.cancel()
            process.kill()


def _answer(name: str, process: subprocess.Popen[bytes]) -> Values:
    """What the worker says, then the numbers, straight into the arrays."""
    stream = cast(io.BufferedReader, process.stdout)
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise InputError(f"{name}: {_words(process.wait())}: it is damaged, or made to do so")
    head: dict[str, Any] = json.loads(line)
    if "error" in head:
        raise InputError(f"{name}: {head['error']}")
    arrays: Values = {}
    for key, shape, parts in head["arrays"]:
        found = [np.empty(part_shape, dtype) for dtype, part_shape in parts]
        for part in found:
            if part.nbytes and stream.readinto(part.reshape(-1).view(np.uint8).data) != part.nbytes:
                raise InputError(f"{name}: {_words(process.wait())}: it is damaged, or made to do so")
        if shape is None:
            arrays[key] = found[0]
        else:
            cells = np.empty(len(found), dtype=object)
            for i, part in enumerate(found):
                cells[i] = part
            arrays[key] = cells.reshape(shape)
    return arrays


def _words(code: int) -> str:
    """How a worker ended that said nothing."""
    if code in (-signal.SIGKILL, -getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGALRM", 0)):
        return "takes too long to be read, or too much memory"
    return "its reader crashed"
