"""The API that the page uses, open to other programs: `GET /api/openapi.json` describes it.

Every request but those for the static page carries `Authorization: Bearer TOKEN`; the token stands in the address that
`pnpladmm serve` prints. Errors are `{"error": "one line"}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from pnpladmm.web import loading
from pnpladmm.web.desk import Desk
from pnpladmm.web.limits import Limits, Refused
from pnpladmm.web.projects import suffix_of_picture
from pnpladmm.web.pyramid import tile
from pnpladmm.web.sketch import DrawnOrder, EstimateOrder, Kernel, LoadOrder, PreviewOrder, Settings, Sketch, StarOrder

router = APIRouter(prefix="/api")
BLOCK = 1 << 20
"""Bytes that are collected before they are written to the disk."""
Called = Annotated[str, Query(max_length=1000, description="What the file is called; it is shown, never opened.")]


def desk_of(request: Request) -> Desk:
    """The desk of this server."""
    desk: Desk = request.app.state.desk
    return desk


TheDesk = Annotated[Desk, Depends(desk_of)]


@router.get("/state")
def state(desk: TheDesk) -> dict[str, Any]:
    """Version, limits, what is installed, and the projects, the one opened last first."""
    import pnpladmm as pl
    from pnpladmm.denoisers.shipped import is_installed
    from pnpladmm.pictures.files import FORMATS
    from pnpladmm.web.ways import offered

    projects = [_brief(desk, name) for name in desk.projects.names()]
    limits = {"upload": desk.limits.upload, "pixels": desk.limits.pixels, "file": desk.limits.file}
    return {
        "version": pl.__version__,
        "limits": limits,
        "best": is_installed("drunet-exact"),
        "formats": {name: list(form.suffixes) for name, form in FORMATS.items()},
        "ways": offered(),
        "projects": projects,
    }


@router.post("/projects")
async def create(request: Request, desk: TheDesk, name: Called = "picture") -> dict[str, Any]:
    """Open a picture: the body is the file. It stays on this machine in full depth."""
    with desk.projects.arriving() as folder:
        file = await _receive(request, folder, None, desk.limits)
        identity = await run_in_threadpool(desk.open, folder, file.name, name)
    return desk.projects.read(identity)


@router.get("/projects/{project}")
def read(desk: TheDesk, project: str) -> dict[str, Any]:
    """A project: what was drawn, the settings, the files. It becomes the one opened last."""
    return desk.projects.change(project)


@router.delete("/projects/{project}")
def remove(desk: TheDesk, project: str) -> dict[str, Any]:
    """Remove a project with its results."""
    desk.runs.remove_project(project)
    return {}


@router.put("/projects/{project}/sketch")
def put_sketch(desk: TheDesk, project: str, sketch: Sketch) -> dict[str, Any]:
    """Save what was drawn."""
    desk.projects.change(project, sketch=sketch.model_dump(mode="json"))
    return {}


@router.put("/projects/{project}/settings")
def put_settings(desk: TheDesk, project: str, settings: Settings) -> dict[str, Any]:
    """Save the settings."""
    desk.projects.change(project, settings=settings.model_dump(mode="json"))
    return {}


@router.get("/projects/{project}/tiles/{level}/{row}/{column}")
def picture_tile(desk: TheDesk, project: str, level: int, row: int, column: int) -> Response:
    """A tile of the picture, 512x512, 8 bits; level 0 has all pixels, each next one half as many per side."""
    content = tile(desk.projects.path(project) / "tiles", level, row, column)
    return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


@router.get("/projects/{project}/runs/{number}/tiles/{level}/{row}/{column}")
def result_tile(desk: TheDesk, project: str, number: int, level: int, row: int, column: int) -> Response:
    """A tile of a result."""
    return Response(tile(desk.runs.folder(project, number) / "tiles", level, row, column), media_type="image/png")


@router.post("/projects/{project}/files")
async def add_file(request: Request, desk: TheDesk, project: str, name: Called) -> dict[str, Any]:
    """Send a PSF, a mask or a blur file: the body is the file. A ZIP with a blur file comes back as a sketch."""
    if name.lower().endswith(".zip"):
        with desk.projects.arriving() as folder:
            packed = await _receive(request, folder, ".zip", desk.limits)
            return await run_in_threadpool(loading.unpack, desk, project, packed)
    identity, place = desk.projects.new_file(project, name)
    await _receive(request, place.parent, place.suffix, desk.limits, place)
    return desk.projects.add_file(project, identity, name, place)


@router.post("/projects/{project}/load")
def load(desk: TheDesk, project: str, order: LoadOrder) -> dict[str, Any]:
    """Read a blur file that was sent, with the files that it names."""
    return loading.load_blur(desk, project, order.file, order.beside)


@router.post("/projects/{project}/kernel")
def kernel(desk: TheDesk, project: str, kernel: Kernel) -> dict[str, Any]:
    """A kernel as PNG (base64), with its size in pixels."""
    values = kernel.model_dump(mode="json", exclude_none=True)
    limit = desk.limits.preview_seconds
    return desk.helper.ask("kernel", limit, "kernel", kernel=values, files=desk.files(project))


@router.get("/projects/{project}/files/{file}/field")
def field(desk: TheDesk, project: str, file: str) -> dict[str, Any]:
    """A blur file for the whole picture as PSFs at places (x, y) over it, each as PNG (base64)."""
    desk.projects.file(project, file)
    limit, size = desk.limits.preview_seconds, list(desk.projects.size(project))
    return desk.helper.ask("field", limit, "field", file=file, size=size, files=desk.files(project))


@router.post("/projects/{project}/star")
def star(desk: TheDesk, project: str, order: StarOrder) -> dict[str, Any]:
    """Make a PSF of a star or bead of the picture."""
    path, limit = str(desk.projects.picture(project)), desk.limits.open_seconds
    return desk.make_file(project, "a star", "star", limit, path=path, x=order.x, y=order.y, side=order.size)


@router.post("/projects/{project}/drawn")
def drawn(desk: TheDesk, project: str, order: DrawnOrder) -> dict[str, Any]:
    """Make a PSF of what was drawn."""
    return desk.make_file(project, "drawn", "drawn", desk.limits.preview_seconds, rows=order.rows)


@router.post("/projects/{project}/estimate")
def estimate(desk: TheDesk, project: str, order: EstimateOrder) -> dict[str, Any]:
    """Find the blur in the picture itself; the answer comes when it is found."""
    return desk.estimate(project, order.way, order.linear)


@router.get("/projects/{project}/estimate")
def estimate_progress(desk: TheDesk, project: str) -> dict[str, Any]:
    """What the search for the blur does now, and the share of it that is done; empty where there is none."""
    return desk.estimate_progress(project)


@router.delete("/projects/{project}/estimate")
def cancel_estimate(desk: TheDesk, project: str) -> dict[str, Any]:
    """Stop looking for the blur."""
    desk.cancel_estimate(project)
    return {}


@router.post("/projects/{project}/preview")
def preview(desk: TheDesk, project: str, order: PreviewOrder) -> dict[str, Any]:
    """Restore a box of the picture now: PNG (base64), the assumed noise, warnings, and advice in plain words."""
    values = order.model_dump(mode="json")
    return desk.helper.ask(
        "preview", desk.limits.preview_seconds, "preview", path=str(desk.projects.picture(project)),
        files=desk.files(project), shades=desk.projects.read(project)["picture"]["shades"], **values,
    )  # fmt: skip


def _brief(desk: Desk, name: str) -> dict[str, Any]:
    content = desk.projects.read(name)
    facts = content["picture"]
    return {"id": name, "name": content["name"], "width": facts["width"], "height": facts["height"],
            "levels": facts["levels"], "created": content["created"]}  # fmt: skip


async def _receive(
    request: Request, folder: Path, suffix: str | None, limits: Limits, place: Path | None = None
) -> Path:
    """Write the body to the disk as it comes; a picture gets the suffix that its first bytes tell."""
    waiting = bytearray()
    file = None
    try:
        async for chunk in request.stream():
            waiting += chunk
            if file is None and len(waiting) >= 32:
                place = place or folder / f"picture{suffix or suffix_of_picture(bytes(waiting[:32]))}"
                file = place.open("wb")
            if file is not None and len(waiting) >= BLOCK:
                await run_in_threadpool(file.write, bytes(waiting))
                waiting.clear()
        if file is None or place is None:
            if place is None or not waiting:
                raise Refused(415, "the file is empty, or no picture")
            file = place.open("wb")
        await run_in_threadpool(file.write, bytes(waiting))
    except BaseException:
        if place is not None:
            place.unlink(missing_ok=True)
        raise
    finally:
        if file is not None:
            file.close()
    return place
