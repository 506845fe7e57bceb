"""What the tests of the gate share: little memory, a refusal in one line, writers of small files."""

from __future__ import annotations

import resource
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from blur_cases import comet, unit
from pnpladmm.tensors import LONGEST, InputError

SIZE = (48, 60)


K = unit(comet())


SECONDS = 5.0
"""Of computing; a reader of a small file takes a few hundredths."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Room for 1 GB more than is in use."""
    import scipy.interpolate
    import scipy.ndimage  # noqa: F401  # imported now, because they count

    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if Path("/proc").is_dir() else 0
    )
    before = resource.getrlimit(resource.RLIMIT_AS)
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(action: Callable[[], object], words: str = "") -> str:
    """The message of one line with which something is refused, soon."""
    began = time.process_time()
    with pytest.raises(InputError, match=words) as caught:
        action()
    assert time.process_time() - began < SECONDS
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) <= LONGEST
    return text


Write = Callable[[Path], object]


def nested_cells(path: Path, depth: int = 100_000) -> None:
    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    inside = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<ii", 1, 1)) + element(1, b"")
    sizes = [(len(inside) + 8) * (depth - i) - 8 for i in range(depth)]
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)
    path.write_bytes(head + b"".join(struct.pack("<II", 14, size) + inside for size in sizes))


def text(words: str) -> Write:
    return lambda path: path.write_text(words)


def saved(array: np.ndarray) -> Write:
    return lambda path: np.save(path, array)
