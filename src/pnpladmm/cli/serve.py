"""`pnpladmm serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command(epilog="Example: [bold]pnpladmm serve photo.jpg[/bold]")
def serve(
    picture: Annotated[Path | None, typer.Argument(help="Picture to begin with.", show_default=False)] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 8765 or a free one if not given.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where projects are kept; the user's data folder if not given.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Restore pictures in the browser. The page is served to this machine alone."""
    from pnpladmm.web.server import serve

    serve(picture, port, folder, browser, typer.echo)
