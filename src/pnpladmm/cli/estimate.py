"""`pnpladmm estimate`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pnpladmm.cli.options import Device
from pnpladmm.tensors import InputError

app = typer.Typer()

EXAMPLES = (
    "Examples: [bold]pnpladmm estimate field.fits --points auto -o field.npz --report[/bold], "
    "[bold]pnpladmm estimate blurred.png --sharp sharp.png -o blur.npz[/bold], "
    "[bold]pnpladmm estimate shaken.jpg --blind -o blur.npz[/bold]"
)
WAYS = ("points", "sharp", "parametric", "edges", "blind")
"""Switches that name a way."""
OWN = ("pictures", "out", "as_json", *WAYS)
"""Parameters of the command that are not handed on by their names."""


@app.command(epilog=EXAMPLES)
def estimate(
    context: typer.Context,
    pictures: Annotated[list[Path], typer.Argument(help="PNG, JPEG, TIFF, FITS, NPY, WebP, ...")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Blur file (NPZ), or folder for many pictures.")],
    points: Annotated[
        str | None, typer.Option(help="From stars or beads: auto, or a CSV of x, y with their places.")
    ] = None,
    sharp: Annotated[Path | None, typer.Option(help="From the same scene, sharp: a picture.")] = None,
    parametric: Annotated[
        str | None,
        typer.Option(help="Of a known kind: motion, defocus, gaussian, or a YAML blur file whose regions say auto."),
    ] = None,
    edges: Annotated[bool, typer.Option("--edges", help="From straight edges: defocus or Gaussian width.")] = False,
    blind: Annotated[bool, typer.Option("--blind", help="From the shaken picture alone.")] = False,
    side: Annotated[int | None, typer.Option(help="Side of the kernels in pixels, odd; found if not given.")] = None,
    field: Annotated[
        str | None,
        typer.Option(
            help="How the PSF changes over the picture: auto, one, grid; polynomial (points); regions (sharp)."
        ),
    ] = None,
    saturation: Annotated[
        float | None, typer.Option(help="Value in the file's units from which pixels are saturated.")
    ] = None,
    page: Annotated[int | None, typer.Option(min=0, help="Page of a stack, counted from 0.")] = None,
    linear: Annotated[bool, typer.Option("--linear", help="Estimate in linear light; restore so too.")] = False,
    device: Device = None,
    report: Annotated[bool, typer.Option("--report", help="Write OUT.report/report.html.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON on stdout.")] = False,
) -> None:
    """Find the blur of a picture, and write the blur file that restore reads."""
    from pnpladmm.blur_jobs import Found, estimate_files, run_estimate
    from pnpladmm.estimate import way_given

    way, options = way_given({name: context.params[name] for name in WAYS})
    options |= {name: value for name, value in context.params.items() if name not in OWN and value is not None}
    console = Console(stderr=True)
    done: list[Found] = []
    failures: list[dict[str, Any]] = []
    for picture, target in estimate_files(pictures, out):
        try:
            found = run_estimate(picture, target, way, **options)
        except InputError as error:
            failures.append({"picture": str(picture), "error": str(error)})
            console.print(f"pnpladmm: {error}", style="red", markup=False, soft_wrap=True)
            continue
        except KeyboardInterrupt:
            console.print(f"{picture.name}: interrupted, nothing written", markup=False)
            raise typer.Exit(130) from None
        done.append(found)
        _tell(console, found)
    if as_json:
        typer.echo(json.dumps({"done": [dataclasses.asdict(f) for f in done], "failed": failures}, indent=1))
    if failures:
        raise typer.Exit(1)


def _tell(console: Console, found: Any) -> None:
    trust = "" if found.uncertainty is None else f", expected to be right to {100 * found.uncertainty:.2g} %"
    console.print(f"{found.output}: {found.source}{trust}", markup=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"  {note}", markup=False, style="dim", soft_wrap=True)
    for warning in found.warnings:
        console.print(f"  warning: {warning}", markup=False, style="yellow", soft_wrap=True)
