"""What a server takes on. Everything that a browser can make larger has a limit here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one server."""

    upload: int = 1 << 30
    """Bytes of a picture file."""
    file: int = 1 << 26
    """Bytes of a PSF, a mask or a blur file."""
    json: int = 1 << 22
    """Bytes of any other request."""
    pixels: int = 150_000_000
    """Pixels of a picture, told by its header, before anything is decoded."""
    decoded: int = 1 << 30
    """Bytes of the decoded samples of a picture."""
    projects: int = 200
    waiting: int = 20
    """Runs that wait in the queue."""
    files: int = 200
    """Files of a project besides its picture."""
    requests: int = 256
    """Requests that are answered at the same time."""
    chunk_seconds: float = 30.0
    """How long a client may pause while it sends a request."""
    header_seconds: float = 20.0
    """How long a connection may stay open without a whole request."""
    open_seconds: float = 300.0
    preview_seconds: float = 120.0
    estimate_seconds: float = 1800.0
    run_seconds: float = 6 * 3600.0


@dataclass
class Refused(Exception):
    """A request that is not answered: the status of HTTP and one line for the user."""

    status: int
    message: str
