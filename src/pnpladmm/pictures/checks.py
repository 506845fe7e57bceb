"""What readers of pictures share: bytes up to the limit, and the errors that decoders only log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pnpladmm.locks import check_regular
from pnpladmm.tensors import InputError


def read_bytes(path: Path, name: str, max_bytes: int) -> bytes:
    """The content of the file; refuses files larger than any picture may be."""
    check_regular(path)
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
