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
            body = Body(scope, receive, self._most(scope), self._limits.chunk_seconds)
            await self._app(scope, body.receive, _answering(scope, send, body))
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


class Body:
    """The body of a request: what comes is counted, and must not stop coming."""

    def __init__(self, scope: Scope, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds, self._taken = receive, most, seconds, 0
        headers = dict(scope["headers"])
        self.is_there = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        """Whether all of it has come."""
        self.error: Refused | None = None

    async def receive(self) -> Message:
        """The next part; when all is there, that the client left."""
        try:
            message = await asyncio.wait_for(self._receive(), None if self.is_there else self._seconds)
        except TimeoutError:
            raise self._refused(408, "the request did not come to its end") from None
        self._taken += len(message.get("body", b""))
        if message["type"] == "http.request":
            self.is_there = not message.get("more_body", False)
        if self._taken > self._most:
            raise self._refused(413, f"this is too large: at most {self._most >> 20} MiB")
        return message

    def _refused(self, status: int, message: str) -> Refused:
        self.is_there, self.error = False, Refused(status, message)
        return self.error


async def refuse(scope: Scope, send: Send, error: Refused) -> None:
    """Answer with the status and one line, and close the connection: the rest of the body is not read."""
    body = json.dumps({"error": error.message}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    head += [*HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _answering(scope: Scope, send: Send, body: Body) -> Send:
    """Sends an answer with the headers that all have, or the refusal of the body instead of it."""

    async def sending(message: Message) -> None:
        starts = message["type"] == "http.response.start"
        if body.error is not None:
            if starts:
                await refuse(scope, send, body.error)
            return
        if starts:
            given = [(k, v) for k, v in message.get("headers", []) if k.lower() not in dict(HEADERS)]
            named = {k.lower() for k, _ in given}
            store = [] if b"cache-control" in named else [(b"cache-control", b"no-store")]
            rest = [] if body.is_there else [(b"connection", b"close")]  # it will not be read
            message["headers"] = [*given, *HEADERS, *store, *rest]
        await send(message)

    return sending
