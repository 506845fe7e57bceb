"""`pnpladmm demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pnpladmm.cli.options import AnyDenoiser
from pnpladmm.files import check_writable

app = typer.Typer()


@app.command(epilog="Example: [bold]pnpladmm demo --out demo --denoiser tv[/bold]")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures and the report.")] = Path("demo"),
    denoiser: AnyDenoiser = None,
    iterations: Annotated[int, typer.Option(min=1, help="The largest number of certified iterations.")] = 20,
) -> None:
    """Blur a picture in four ways at once, restore it, and write pictures and a report."""
    from pnpladmm.demo import run_demo
    from pnpladmm.report import in_words

    check_writable(out / "report.html")
    console = Console(highlight=False, soft_wrap=True)
    for step in run_demo(out, denoiser, iterations, progress=True):
        line = f"{step.title}: {step.psnr:.2f} dB"
        if step.run is not None:
            line += f", {len(step.run.history)} iterations, {float(step.run.history.seconds[-1]):.1f} s"
        if step.title == "certified":
            line += f", convergence {in_words(step.run.certificate)}" if step.run is not None else ""
        console.print(line, markup=False)
    console.print(f"written: {out}/before_after.png, {out}/report.html and the pictures beside them", markup=False)
    console.print("Next: look at the report, then restore a picture of your own:", markup=False)
    console.print("  pnpladmm restore photo.jpg --blur psf.png -o sharp.png --report", markup=False)
    console.print(
        "  the guide (docs/guide in the source) has a page for photographs, microscopy and astronomy", markup=False
    )
