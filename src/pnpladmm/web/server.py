"""`pnpladmm serve`: a server on this machine alone, and a browser that opens it."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pnpladmm.files import optional
from pnpladmm.locks import only_writer_of
from pnpladmm.tensors import InputError
from pnpladmm.web.limits import Limits

ADDRESS = "127.0.0.1"
USUAL_PORT = 8765
GRACE = 2
"""Seconds that requests get to finish when the server is stopped."""


def projects_folder() -> Path:
    """Where projects are kept unless told otherwise: the user's folder for data."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "pnpladmm" / "projects"


def serve(
    picture: Path | None = None,
    port: int | None = None,
    folder: Path | None = None,
    browser: bool = True,
    say: Callable[[str], Any] = print,
) -> None:
    """Serve the page until Ctrl-C.

    `port` None is the usual one, or a free one where that is taken; 0 is any free one. `say` is given what the user
    should read.
    """
    for module in ("fastapi", "uvicorn"):
        optional(module, "pnpladmm serve")
    place = folder or projects_folder()
    with only_writer_of(
        place / "projects", f"{place}: another pnpladmm serve is at it: use that one, or give --folder"
    ):
        _serve(picture, _listen(port), place, browser, say)


def _serve(
    picture: Path | None, listening: socket.socket, folder: Path, browser: bool, say: Callable[[str], Any]
) -> None:
    """Serve the projects of a folder on a socket."""
    from pnpladmm.web.app import make_app
    from pnpladmm.web.desk import Desk

    limits, token = Limits(), secrets.token_urlsafe(24)
    number = listening.getsockname()[1]
    desk = Desk(folder, limits)
    try:
        address = f"http://{ADDRESS}:{number}/#key={token}"
        if picture is not None:
            address += f"&project={_opened(desk, picture)}"
        else:
            desk.warm()
        say(f"pnpladmm serves this machine alone: {address}")
        say(f"Projects are kept in {desk.projects.folder}. Stop with Ctrl-C.")
        if browser:
            threading.Timer(0.5, webbrowser.open, (address,)).start()
        asyncio.run(make_server(make_app(desk, token, number), limits).serve(sockets=[listening]))
    finally:
        desk.close()


def _opened(desk: Any, picture: Path) -> str:
    """The project of a picture that was given on the command line."""
    from pnpladmm.web.limits import Refused

    if not picture.is_file():
        raise InputError(f"{picture}: no such file: give a picture")
    try:
        name: str = desk.open_copy(picture)
    except Refused as error:
        raise InputError(f"{picture}: {error.message}") from None
    return name


def _listen(port: int | None) -> socket.socket:
    """A socket of the loopback address; without a port given, any free one where the usual one is taken."""
    for number in (USUAL_PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, number))
        except OSError:
            listening.close()
            continue
        listening.listen(128)
        return listening
    raise InputError(f"port {port}: it is taken by another program: give another one, or leave it out")


def make_server(app: Any, limits: Limits) -> Any:
    """The server (uvicorn) of an application."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """Closes connections on which no whole request arrives."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(limits.header_seconds, self._drop_if_silent)

        def _drop_if_silent(self) -> None:
            begun: object = self.cycle  # None until the first request has come
            if begun is None and not self.transport.is_closing():
                self.transport.close()

    config = uvicorn.Config(
        app, http=Protocol, ws="none", lifespan="off", log_level="warning", access_log=False, server_header=False,
        date_header=False, timeout_graceful_shutdown=GRACE, timeout_keep_alive=30,
    )  # fmt: skip
    return uvicorn.Server(config)
