"""`pnpladmm bench`: one command per benchmark; each prints a table and writes a JSON file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from pnpladmm.tensors import InputError

BENCHMARKS = {
    "operators": "Time blur and adjoint against other tools.",
    "restoration": "Time whole restorations and measure their PSNR, against other tools.",
    "shares": "Measure how the time of a restoration is divided between its parts.",
    "points": "PSFs from simulated stars against the truth and PSFEx.",
    "sharp": "Kernels from a sharp reference, and restorations with them, against the true ones.",
    "parameters": "Radius, length, angle and width found in blurred pictures.",
    "blind": "Score blind estimates of the blur: real shake, and simulated shake that changes over the picture.",
    "real": "Restore pictures as files hold them: JPEG, wrong PSFs, camera shake.",
    "stars": "Restore frames of stars: flux, places and structure, against Richardson-Lucy.",
    "microscopy": "Restore pictures of few photons, against Richardson-Lucy and tv.",
    "growth": "Measure time and memory against pixels and against the number of kernels.",
    "scale": "Measure time and memory of large pictures, in tiles and in parts, and of many pictures.",
    "seams": "Compare pictures restored in tiles with the same restored undivided.",
}

app = typer.Typer(help="Measure time and memory on this machine.", no_args_is_help=True, pretty_exceptions_enable=False)


def _add(command: str, text: str, benchmarks: tuple[str, ...]) -> None:
    @app.command(command, help=text)
    def bench(
        quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it runs.")] = False,
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        out: Annotated[Path, typer.Option(help="Folder for NAME-DEVICE.json.")] = Path("benchmarks"),
        denoiser: Annotated[
            str | None, typer.Option(help="Name or weight file. Default: light; on a GPU drunet if it is installed.")
        ] = None,
        data: Annotated[
            Path | None, typer.Option(help="Pictures: a COCO folder, or a dataset stored by the experiments.")
        ] = None,
    ) -> None:
        _run(benchmarks, quick, device, out, denoiser, data)


for _name, _help in BENCHMARKS.items():
    _add(_name, _help, (_name,))
_add("all", "Run all of them.", tuple(BENCHMARKS))


def _run(
    benchmarks: tuple[str, ...], quick: bool, device: str, out: Path, denoiser: str | None, data: Path | None
) -> None:
    """Run benchmarks, print their tables, write their files."""
    from pnpladmm.workshop.bench.report import Options, Report, busy, open_device

    options = Options(open_device(device), quick, denoiser, data, out)
    try:
        out.mkdir(parents=True, exist_ok=True)  # before minutes of measurements
    except OSError as error:
        raise InputError(f"--out {out}: not a folder that can be written to ({error.strerror or error})") from None
    note = busy()
    for name in benchmarks:
        report: Report = import_module(f"pnpladmm.workshop.bench.{name}").run(options)
        if note is not None:
            report.notes.append(note)
        report.show()
        typer.echo(f"written: {report.write(out, options)}")
