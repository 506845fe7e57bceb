"""`pnpladmm restore`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pnpladmm.cli.options import (
    AnyDenoiser,
    Boundary,
    Certify,
    Device,
    ElectronsPerCount,
    Gain,
    Iterations,
    Labels,
    Memory,
    Method,
    Positions,
    PsfScale,
    Scheduler,
    Tiles,
    Workers,
)
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from pnpladmm.jobs import Failure, Job, Outcome

app = typer.Typer()

EXAMPLES = (
    "Examples: [bold]pnpladmm restore photo.jpg --blur psf.png -o sharp.png[/bold], "
    "[bold]pnpladmm restore *.tif --blur field.psf --noise auto -o out/[/bold], "
    "[bold]pnpladmm restore --job sharp.png.job.json[/bold]"
)
NOISE = "Standard deviation on the 0-255 scale (in files of floats 255 is 1, always); or auto."
OUTSIDE_JOB = ("context", "pictures", "blur", "out", "as_json", "job", "keep", "trust")
"""Parameters of the command that are no fields of a job."""


@app.command(epilog=EXAMPLES)
def restore(
    context: typer.Context,
    pictures: Annotated[
        list[Path] | None, typer.Argument(help="PNG, JPEG, TIFF, FITS, NPY, WebP, ...", show_default=False)
    ] = None,
    blur: Annotated[
        list[Path] | None, typer.Option("--blur", "-b", help="Blur file: one for all pictures, or one each, in order.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File, or folder for many pictures.")] = None,
    noise: Annotated[str, typer.Option(help=NOISE)] = "auto",
    method: Method = "auto",
    denoiser: AnyDenoiser = None,
    iterations: Iterations = None,
    certify: Certify = 0,
    strength: Annotated[float, typer.Option(help="Smoothing: 1 is tuned, more is smoother.")] = 1.0,
    boundary: Boundary = "unknown",
    mask: Annotated[Path | None, typer.Option(help="Picture that is not 0 on dead pixels.")] = None,
    saturation: Annotated[bool, typer.Option(help="Leave saturated pixels of integer files out.")] = True,
    gain: Gain = None,
    electrons_per_count: ElectronsPerCount = None,
    background: Annotated[float, typer.Option(help="Poisson data: level that no blur touches; it is taken off.")] = 0.0,
    variance: Annotated[
        Path | None, typer.Option(help="Map of the noise variance, in the file's units squared.")
    ] = None,
    linear: Annotated[bool, typer.Option("--linear", help="Restore in linear light, where blur acts.")] = False,
    labels: Labels = None,
    positions: Positions = None,
    psf_scale: PsfScale = None,
    target_psf: Annotated[
        Path | None, typer.Option(help="PSF that the restored picture is to have: it is blurred with it at the end.")
    ] = None,
    device: Device = None,
    memory: Memory = None,
    tiles: Tiles = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    report: Annotated[bool, typer.Option("--report", help="Write OUT.report/report.html.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="After Ctrl-C, write the best picture so far.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what happened as JSON on stdout.")] = False,
    job: Annotated[Path | None, typer.Option(help="Repeat a run from the job file beside its output.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Let the job file name files outside its folder.")] = False,
) -> None:
    """Restore pictures whose blur is known."""
    from pnpladmm.jobs import Job, read_job

    if job is not None:
        _nothing_else(context)
        jobs = [read_job(job, trust)]
    elif trust:
        raise InputError("--trust is for job files: give it with --job")
    else:
        options = {name: value for name, value in context.params.items() if name not in OUTSIDE_JOB}
        options = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
        options |= {"noise": _noise(noise), "keep_interrupted": keep}
        jobs = [Job(picture=str(p), blur=str(b), output=str(o), **options) for p, b, o in _triples(pictures, blur, out)]
    _run(jobs, as_json)


def _run(jobs: list[Job], as_json: bool) -> None:
    """Run the jobs one after the other; one that fails does not stop the others."""
    from pnpladmm.jobs import Failure, Interrupted, Skipped, run_jobs
    from pnpladmm.solvers import Status

    console = Console(stderr=True)
    outcomes: list[Outcome] = []
    failures: list[Failure] = []
    skipped: list[Skipped] = []
    asked = jobs[0].certify > 0 or jobs[0].options().method_class.needs_full_precision
    try:
        for outcome in run_jobs(jobs, progress=True):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                console.print(f"pnpladmm: {outcome.error}", style="red", markup=False, soft_wrap=True)
            elif isinstance(outcome, Skipped):
                skipped.append(outcome)
                console.print(f"{outcome.output}: done before and unchanged, skipped", markup=False, soft_wrap=True)
            else:
                outcomes.append(outcome)
                _tell(console, outcome, asked)
                if outcome.status == Status.STOPPED.label:
                    break
    except (Interrupted, KeyboardInterrupt):
        done = [o.picture for o in outcomes] + [f.picture for f in failures] + [s.picture for s in skipped]
        name = next((Path(one.picture).name for one in jobs if one.picture not in done), "restore")
        console.print(f"{name}: interrupted, nothing written (--keep writes the picture so far)", markup=False)
        raise typer.Exit(130) from None
    if as_json:
        lists: dict[str, Any] = {"done": outcomes, "failed": failures, **({"skipped": skipped} if skipped else {})}
        typer.echo(json.dumps({n: [dataclasses.asdict(one) for one in found] for n, found in lists.items()}, indent=1))
    if any(outcome.status == Status.STOPPED.label for outcome in outcomes):
        raise typer.Exit(130)
    if failures and len(jobs) > 1:
        _table(console, failures, len(jobs))
    if failures or any(outcome.status == Status.WITHDRAWN.label for outcome in outcomes):
        raise typer.Exit(1)


def _table(console: Console, failures: list[Failure], count: int) -> None:
    """What failed of many pictures."""
    table = Table("picture", "error", title=f"{len(failures)} of {count} failed", title_justify="left")
    for failure in failures:
        table.add_row(Text(failure.picture), Text(failure.error))
    console.print(table)


def _tell(console: Console, outcome: Outcome, asked: bool) -> None:
    """What became of a picture; the certificate where one is given or was asked for."""
    console.print(
        f"{outcome.output}: {outcome.status}, {outcome.iterations} iteration{'s' * (outcome.iterations != 1)}, "
        f"{outcome.seconds} s, {outcome.noise_words}",
        markup=False,
        soft_wrap=True,
    )
    for note in (note for note in outcome.notes if note != outcome.noise_words):
        console.print(f"  {note}", markup=False, style="dim", soft_wrap=True)
    for warning in outcome.warnings:
        console.print(f"  warning: {warning}", markup=False, style="yellow", soft_wrap=True)
    if asked or outcome.certificate["level"] != "outside":
        words = outcome.certificate["words"]
        console.print(f"  convergence {words}", markup=False, style="dim", soft_wrap=True)


def _nothing_else(context: typer.Context) -> None:
    """Refuse options beside a job file."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if other := [name for name in given if name not in ("job", "as_json", "trust")]:
        raise InputError(f"--job holds all settings: give nothing else, not {other[0]}")


def _noise(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--noise {text}: give a number on the 0-255 scale, or auto") from None


def _triples(pictures: list[Path] | None, blurs: list[Path] | None, out: Path | None) -> list[tuple[Path, Path, Path]]:
    """Picture, blur and output of each job."""
    if pictures and out is not None and not blurs:
        raise InputError(
            f"--blur is missing: find it first: pnpladmm estimate {pictures[0]} --blind -o blur.npz "
            "(or --points auto, or --sharp FILE), then give --blur blur.npz"
        )
    if not pictures or not blurs or out is None:
        raise InputError("give pictures, --blur and --out (or --job alone); see pnpladmm restore --help")
    if len(blurs) not in (1, len(pictures)):
        raise InputError(f"pictures: {len(pictures)}, blurs: {len(blurs)}: give one blur, or one each")
    blurs = blurs * len(pictures) if len(blurs) == 1 else blurs
    # A zarr is a picture, though it is a folder.
    as_folder = len(pictures) > 1 or (out.is_dir() and out.suffix.lower() != ".zarr") or not out.suffix
    outputs = [out / p.name for p in pictures] if as_folder else [out]
    if len(set(outputs)) < len(outputs):
        raise InputError(f"two pictures would be written to {out}/{outputs[0].name}: give them different names")
    if as_folder and out.is_file():
        if len(pictures) == 1:
            raise InputError(f"--out {out} is a file without a suffix: give a folder, or a name such as {out}.png")
        raise InputError(f"--out {out} is a file: give a folder for {len(pictures)} pictures")
    if as_folder:
        out.mkdir(parents=True, exist_ok=True)
    return list(zip(pictures, blurs, outputs, strict=True))
