"""Checks before anything is decoded: they refuse pictures of absurd sizes and files that end too early."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pnpladmm.tensors import InputError

MAX_BYTES = 2**31
"""Largest picture read unless told otherwise: bytes of its decoded samples (2 GiB; as float32 pixels 4 to 8 GiB)."""


def check_size(name: str, shape: Sequence[int], sample_bytes: float, max_bytes: int) -> None:
    """Refuse, from the header alone, an empty picture or one that decodes to more than `max_bytes`."""
    size = " x ".join(map(str, shape))
    if any(n <= 0 for n in shape):
        raise InputError(f"{name} has size {size}: a picture needs at least one pixel")
    if math.prod(shape) * sample_bytes > max_bytes:
        raise InputError(
            f"{name} would decode to {size} samples, {math.prod(shape) * sample_bytes / 2**30:.3g} GiB, over the limit "
            f"of {max_bytes / 2**30:.3g} GiB: crop or split it, or raise max_bytes if it is meant"
        )


def read_bytes(path: Path, name: str, max_bytes: int) -> bytes:
    """The content of the file; refuses files larger than any picture may be."""
    size = path.stat().st_size
    if size > max_bytes:
        raise InputError(
            f"{name} has {size} bytes, over the limit of {max_bytes}: crop or split it, or raise max_bytes"
        )
    return path.read_bytes()


@contextmanager
def errors_logged_by(name: str) -> Iterator[list[str]]:
    """The messages of the errors that a decoder logs; its log does not reach the terminal."""
    errors: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                errors.append(" ".join(record.getMessage().split())[:120])

    log, handler = logging.getLogger(name), Collect()
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield errors
    finally:
        log.removeHandler(handler)
        log.propagate = before
