"""The command line: parses, calls, prints. It holds no maths."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pnpladmm.tensors import InputError

app = typer.Typer(
    name="pnpladmm",
    help="Restore pictures blurred by operators that no closed form undoes: Plug & Play linearized ADMM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from pnpladmm import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command(epilog="Example: [bold]pnpladmm demo --out demo --denoiser tv[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures and the report.")] = Path("demo"),
    denoiser: Annotated[
        str, typer.Option(help="Denoiser: tv, soft, hard, tikhonov, drunet, light, or a weight file.")
    ] = "tv",
    iterations: Annotated[int, typer.Option(min=1, help="At most so many iterations.")] = 60,
) -> None:
    """Blur a picture in four ways at once, restore it, and write pictures and a report."""
    from pnpladmm.demo import run_demo
    from pnpladmm.solvers import Progress as Step

    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[change]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("restoring", total=iterations, change="")

        def show(step: Step) -> None:
            change = step.row["x_change"]
            assert change is not None
            bars.update(bar, completed=step.iteration, change=f"change {float(change.max()):.1e}")

        result, figures = run_demo(out, denoiser, iterations, show)
        bars.update(bar, total=result.state.iteration)
    console.print(f"{result.status.label}: {result.status.advice}")
    console.print(f"certificate: {result.certificate}", highlight=False)
    for name, value in figures.items():
        console.print(f"{name}: {value:.2f}")
    console.print(f"written: {out}/blurred.png, {out}/restored.png, {out}/blur.png, {out}/report.html")


def main() -> None:
    """Run the command line: bad input is one line and exit code 2, never a traceback."""
    try:
        app()
    except InputError as error:
        typer.echo(f"pnpladmm: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"pnpladmm: {error.strerror or error}: {error.filename or ''}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
