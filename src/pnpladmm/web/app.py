"""The application: the API, the static page, and errors as one line."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from pnpladmm.tensors import InputError, one_line
from pnpladmm.web import api, api_runs
from pnpladmm.web.desk import Desk
from pnpladmm.web.guard import App, Guard
from pnpladmm.web.limits import Refused

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def make_app(desk: Desk, token: str, port: int) -> App:
    """Everything that the server answers."""
    app = FastAPI(
        title="pnpladmm serve",
        description=api.__doc__ or "",
        openapi_url="/api/openapi.json",
        docs_url=None,  # it would load scripts from the network
        redoc_url=None,
    )
    app.state.desk = desk
    app.include_router(api.router)
    app.include_router(api_runs.router)
    _serve_page(app)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(InputError, _wrong_input)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(OSError, _no_disk)
    return Guard(app, token, port, desk.limits)


def _serve_page(app: FastAPI) -> None:
    """The files of the page, read once. What a browser asks for is looked up by its name, and never opened."""
    files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in STATIC.iterdir() if path.suffix in TYPES}

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return page("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    def page(name: str) -> Response:
        if name not in files:
            raise Refused(404, "there is no such file")
        content, kind = files[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _line(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": one_line(message)}, status)


async def _refused(request: Request, error: Exception) -> Response:
    return _line(getattr(error, "status", 500), getattr(error, "message", "refused"))


async def _wrong_input(request: Request, error: Exception) -> Response:
    return _line(422, str(error))


async def _not_valid(request: Request, error: Exception) -> Response:
    """The first thing that is wrong with a request, without repeating what was sent."""
    found = error.errors()[0] if isinstance(error, RequestValidationError) and error.errors() else {}
    where = ".".join(str(part) for part in found.get("loc", ())[1:])
    return _line(422, f"{where}: {found.get('msg', 'not valid')}".lstrip(": "))


async def _http(request: Request, error: Exception) -> Response:
    return _line(getattr(error, "status_code", 500), str(getattr(error, "detail", "error")))


async def _no_disk(request: Request, error: Exception) -> Response:
    """A full disk, a folder that can only be read: without the names of the server's files."""
    return _line(507, f"the disk did not take it: {getattr(error, 'strerror', None) or 'it cannot be written'}")
