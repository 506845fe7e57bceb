"""Who may ask, and how much: checked before anything of a request is read.

- Only names of this machine are taken as Host: a page that rebinds its own name to 127.0.0.1 gets no answer.
- Only this server's own pages may call it: another Origin is refused, whatever it sends.
- All that is not the static page needs the token, in a header. Other sites cannot set it, and a browser never adds it
  by itself, as it adds cookies.
- Bodies are limited before they are read, and while they are. A client that stops sending is dropped.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pnpladmm.web.limits import Limits, Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
API = "/api/"
TICKETS = "/api/tickets/"
"""Downloads: the address holds a secret of its own that is good for one use."""


class Guard:
    """Stands before the application."""

    def __init__(self, app: App, token: str, port: int, limits: Limits) -> None:
        self._app, self._token, self._limits = app, token, limits
        names = ("127.0.0.1", "localhost", "[::1]")
        self._hosts = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
        self._origins = {f"http://{host}" for host in self._hosts}
        self._now = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        self._now += 1
        try:
            self._check(scope)
            await self._app(scope, self._bounded(scope, receive), _with_headers(scope, send))
        except Refused as error:
            await refuse(scope, send, error)
        finally:
            self._now -= 1

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [v.decode("latin1").lower() for k, v in headers if k == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise Refused(421, "this server answers on this machine alone")
        origins = [v.decode("latin1").lower() for k, v in headers if k == b"origin"]
        sites = [v for k, v in headers if k == b"sec-fetch-site"]
        if any(o not in self._origins for o in origins) or any(s not in (b"same-origin", b"none") for s in sites):
            raise Refused(403, "another site may not call this server")
        if self._now > self._limits.requests:
            raise Refused(503, "too many requests at once: wait a little")
        if scope["path"].startswith(API) and not scope["path"].startswith(TICKETS):
            self._check_token(headers)
        lengths = [v for k, v in headers if k == b"content-length"]
        if lengths and (not lengths[0].isdigit() or int(lengths[0]) > self._most(scope)):
            raise Refused(413, f"this is too large: at most {self._most(scope) >> 20} MiB")

    def _check_token(self, headers: list[tuple[bytes, bytes]]) -> None:
        given = [v.decode("latin1") for k, v in headers if k == b"authorization"]
        if len(given) != 1 or not secrets.compare_digest(given[0].encode(), f"Bearer {self._token}".encode()):
            raise Refused(401, "open the address that pnpladmm serve printed: it holds the key to this server")

    def _most(self, scope: Scope) -> int:
        """The largest body that this address takes."""
        if scope["path"].rstrip("/") == "/api/projects":
            return self._limits.upload
        return self._limits.file if scope["path"].endswith("/files") else self._limits.json

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        taken, most, asked = 0, self._most(scope), False

        async def bounded() -> Message:
            nonlocal taken, asked
            if asked:  # the whole body is there: what comes now is that the client left
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self._limits.chunk_seconds)
            except TimeoutError:
                raise Refused(408, "the request did not come to its end") from None
            taken += len(message.get("body", b""))
            asked = not message.get("more_body", False)
            if taken > most:
                raise Refused(413, f"this is too large: at most {most >> 20} MiB")
            return message

        return bounded


async def refuse(scope: Scope, send: Send, error: Refused) -> None:
    """Answer with the status and one line, and close the connection: the rest of the body is not read."""
    body = json.dumps({"error": error.message}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    head += [*HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _with_headers(scope: Scope, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(k, v) for k, v in message.get("headers", []) if k.lower() not in dict(HEADERS)]
            named = {k.lower() for k, _ in given}
            store = [] if b"cache-control" in named else [(b"cache-control", b"no-store")]
            message["headers"] = [*given, *HEADERS, *store]
        await send(message)

    return sending
