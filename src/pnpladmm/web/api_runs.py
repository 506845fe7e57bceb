"""The part of the API for runs, their results, and downloads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from pnpladmm.jobs import job_path
from pnpladmm.web.api import TheDesk
from pnpladmm.web.desk import download_name, packed_blur
from pnpladmm.web.limits import Refused
from pnpladmm.web.sketch import RunOrder, Settings, Sketch

router = APIRouter(prefix="/api")
TYPES = {".png": "image/png", ".tif": "image/tiff", ".json": "application/json", ".yaml": "text/plain"}


@router.get("/projects/{project}/runs")
def runs(desk: TheDesk, project: str) -> list[dict[str, Any]]:
    """All runs of a project, the newest first, with the progress of the one that runs."""
    return desk.runs.list(project)


@router.post("/projects/{project}/runs")
def start(desk: TheDesk, project: str, order: RunOrder) -> dict[str, Any]:
    """Put a run into the queue: the blur and the settings of the order, or those of the project."""
    content = desk.projects.read(project)
    sketch = order.sketch or Sketch.model_validate(content["sketch"])
    settings = order.settings or Settings.model_validate(content["settings"])
    return desk.runs.add(project, sketch, settings)


@router.get("/projects/{project}/runs/{number}")
def one(desk: TheDesk, project: str, number: int) -> dict[str, Any]:
    """One run: its state, its progress, and when it is done the verdict, the job and the command line."""
    return desk.runs.read(project, number)


@router.post("/projects/{project}/runs/{number}/again")
def again(desk: TheDesk, project: str, number: int) -> dict[str, Any]:
    """A new run with the blur and the settings of this one."""
    return desk.runs.again(project, number)


@router.post("/projects/{project}/runs/{number}/cancel")
def cancel(desk: TheDesk, project: str, number: int) -> dict[str, Any]:
    """Stop a run now. Nothing half-written stays."""
    return desk.runs.cancel(project, number)


@router.delete("/projects/{project}/runs/{number}")
def remove(desk: TheDesk, project: str, number: int) -> dict[str, Any]:
    """Remove a run with its result."""
    desk.runs.remove(project, number)
    return {}


@router.get("/projects/{project}/runs/{number}/live")
def live(desk: TheDesk, project: str, number: int) -> Response:
    """The picture of a run so far, small, as PNG."""
    path = desk.runs.folder(project, number) / "live.png"
    try:
        return Response(path.read_bytes(), media_type="image/png")
    except OSError:
        raise Refused(404, "there is no picture yet") from None


@router.post("/projects/{project}/runs/{number}/download/{what}")
def download(desk: TheDesk, project: str, number: int, what: Literal["picture", "job", "blur"]) -> dict[str, str]:
    """An address, good for one download, of the restored picture in full depth, of its job file, or of its blur."""
    content, folder = desk.runs.read(project, number), desk.runs.folder(project, number)
    if content["state"] != "done":
        raise Refused(409, f"the run is {content['state']}: there is no result")
    called, output = desk.projects.read(project)["name"], Path(content["job"]["output"])
    if what == "picture":
        return desk.ticket(download_name(called, f"-sharp{output.suffix}"), folder / output.name)
    if what == "job":
        return desk.ticket(
            download_name(called, f"-sharp{output.suffix}.job.json"), job_path(str(folder / output.name))
        )
    name, file = packed_blur(folder)
    return desk.ticket(download_name(called, f"-{name}"), file)


@router.post("/projects/{project}/download-blur")
def download_blur(desk: TheDesk, project: str, sketch: Sketch) -> dict[str, str]:
    """An address, good for one download, of a sketch as the blur file that the command line reads."""
    with tempfile.TemporaryDirectory() as folder:
        desk.helper.ask(
            "write_blur", desk.limits.open_seconds, sketch=sketch.model_dump(mode="json"),
            size=list(desk.projects.size(project)), files=desk.files(project), folder=folder,
        )  # fmt: skip
        name, file = packed_blur(Path(folder))
        content = file.read_bytes() if isinstance(file, Path) else file
    return desk.ticket(download_name(desk.projects.read(project)["name"], f"-{name}"), content)


@router.get("/tickets/{secret}")
def redeem(desk: TheDesk, secret: str) -> Response:
    """A download."""
    ticket = desk.redeem(secret)
    kind = TYPES.get(Path(ticket.name).suffix, "application/octet-stream")
    if isinstance(ticket.content, Path):
        return FileResponse(ticket.content, media_type=kind, filename=ticket.name)
    disposition = f'attachment; filename="{ticket.name.encode("ascii", "replace").decode()}"'
    return Response(ticket.content, media_type=kind, headers={"Content-Disposition": disposition})
