"""The command line: parses, calls, prints. It holds no maths."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pnpladmm.allocator import keep_memory
from pnpladmm.tensors import InputError

DENOISERS = "light, drunet, prox-drunet, tv, soft, hard, tikhonov, identity, or a file of weights"

app = typer.Typer(
    name="pnpladmm",
    help="Restore pictures blurred by operators that no closed form undoes: Plug & Play linearized ADMM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
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
    denoiser: Annotated[str, typer.Option(help=f"Denoiser: {DENOISERS}.")] = "light",
    iterations: Annotated[int, typer.Option(min=1, help="At most so many iterations.")] = 40,
) -> None:
    """Blur a picture in four ways at once, restore it, and write pictures and a report."""
    from pnpladmm.demo import run_demo

    console = Console()
    with _bar(console, "restoring", iterations) as show:
        result, figures = run_demo(out, denoiser, iterations, show)
    console.print(f"{result.status.label}: {result.status.advice}")
    console.print(f"certificate: {result.certificate}", highlight=False, markup=False)
    for name, value in figures.items():
        console.print(f"{name}: {value:.2f}")
    console.print(f"written: {out}/blurred.png, {out}/restored.png, {out}/blur.png, {out}/report.html")


@app.command(
    epilog="Examples: [bold]pnpladmm restore photo.jpg --blur psf.png -o sharp.png[/bold], "
    "[bold]pnpladmm restore *.tif --blur field.psf --noise auto -o out/[/bold], "
    "[bold]pnpladmm restore --recipe sharp.png.recipe.json[/bold]"
)
def restore(
    context: typer.Context,
    pictures: Annotated[
        list[Path] | None, typer.Argument(help="PNG, JPEG, TIFF, FITS or NPY.", show_default=False)
    ] = None,
    blur: Annotated[
        list[Path] | None,
        typer.Option("--blur", "-b", help="Blur file: one for all pictures, or one each, in their order."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File, or folder for many pictures.")] = None,
    noise: Annotated[
        str,
        typer.Option(help="Standard deviation, white being 255 (in float files 1, or the next power of two); or auto."),
    ] = "auto",
    method: Annotated[
        str, typer.Option(help="fast, ladmm, certified, primal-dual, ista, fista, admm or richardson-lucy.")
    ] = "fast",
    denoiser: Annotated[str, typer.Option(help=f"Prior: {DENOISERS}.")] = "light",
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Denoiser calls of fast (8), or iterations (100).")
    ] = None,
    certify: Annotated[
        int, typer.Option(min=0, help="At most so many iterations after it that the convergence theorem covers.")
    ] = 0,
    strength: Annotated[float, typer.Option(help="Smoothing: 1 is tuned, more is smoother.")] = 1.0,
    boundary: Annotated[
        str, typer.Option(help="Beyond the border: unknown (no ringing), circular, replicate, reflect or zero.")
    ] = "unknown",
    mask: Annotated[Path | None, typer.Option(help="Picture that is not 0 on dead pixels.")] = None,
    saturation: Annotated[bool, typer.Option(help="Leave saturated pixels of integer files out.")] = True,
    gain: Annotated[float | None, typer.Option(help="Poisson data: what one count adds, in the file's units.")] = None,
    background: Annotated[float, typer.Option(help="Poisson data: level that no blur touches; it is taken off.")] = 0.0,
    variance: Annotated[
        Path | None, typer.Option(help="Map of the noise variance, in the file's units squared.")
    ] = None,
    linear: Annotated[bool, typer.Option("--linear", help="Restore in linear light, where blur acts.")] = False,
    labels: Annotated[Path | None, typer.Option(help="Label map of a bank of kernels.")] = None,
    positions: Annotated[Path | None, typer.Option(help="CSV of x, y of a stack of PSFs.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    report: Annotated[bool, typer.Option("--report", help="Write OUT.report/report.html.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="After Ctrl-C, write the best picture so far.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what happened as JSON on stdout.")] = False,
    recipe: Annotated[Path | None, typer.Option(help="Repeat a run from the recipe beside its output.")] = None,
) -> None:
    """Restore pictures whose blur is known."""
    from pnpladmm.jobs import Interrupted, Outcome, run_job
    from pnpladmm.recipes import Job, read_recipe
    from pnpladmm.solvers import Status

    if recipe is not None:
        sources = {name: context.get_parameter_source(name) for name in context.params}
        given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
        if other := [name for name in given if name not in ("recipe", "as_json")]:
            raise InputError(f"--recipe holds all settings: give nothing else, not {other[0]}")
        jobs = [read_recipe(recipe)]
    else:
        shared: dict[str, Any] = {
            "noise": _noise(noise),
            "method": method,
            "denoiser": denoiser,
            "iterations": iterations,
            "certify": certify,
            "strength": strength,
            "boundary": boundary,
            "saturation": saturation,
            "gain": gain,
            "background": background,
            "linear": linear,
            "device": device,
            "report": report,
            "keep_interrupted": keep,
        }
        files = {"mask": mask, "variance": variance, "labels": labels, "positions": positions}
        shared |= {name: None if path is None else str(path) for name, path in files.items()}
        jobs = [Job(picture=str(p), blur=str(b), output=str(o), **shared) for p, b, o in _pairs(pictures, blur, out)]
    console = Console(stderr=True)
    outcomes: list[Outcome] = []
    failures: list[dict[str, str]] = []
    for job in jobs:
        name = Path(job.picture).name
        try:
            with _bar(console, name, iterations or 8) as show:
                outcome = run_job(job, show)
        except InputError as error:
            failures.append({"picture": job.picture, "error": str(error)})
            console.print(f"pnpladmm: {error}", style="red", markup=False, soft_wrap=True)
            continue
        except Interrupted:
            console.print(f"{name}: interrupted, nothing written (--keep would have)", markup=False)
            raise typer.Exit(130) from None
        outcomes.append(outcome)
        _tell(console, outcome)
        if outcome.status == Status.STOPPED.label:
            break
    if as_json:
        typer.echo(json.dumps({"done": [dataclasses.asdict(o) for o in outcomes], "failed": failures}, indent=1))
    if any(outcome.status == Status.STOPPED.label for outcome in outcomes):
        raise typer.Exit(130)
    if failures:
        raise typer.Exit(1)


@app.command(epilog="Example: [bold]pnpladmm inspect field.psf --size 512x512 --out field.png[/bold]")
def inspect(
    blur: Annotated[Path, typer.Argument(help="Blur file.")],
    size: Annotated[
        str | None, typer.Option(help="HxW of the picture it belongs to, where the file does not say.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="The picture it belongs to, instead of --size.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Draw it into this PNG.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Label map of a bank of kernels.")] = None,
    positions: Annotated[Path | None, typer.Option(help="CSV of x, y of a stack of PSFs.")] = None,
) -> None:
    """Say what a blur file holds, and draw it."""
    from pnpladmm.blur import describe, draw_blur, read_blur

    found = read_blur(blur, _size(size, picture), labels=labels, positions=positions)
    typer.echo(describe(found))
    if out is not None:
        draw_blur(found, out)
        typer.echo(f"drawn: {out}")


@app.command(epilog="Example: [bold]pnpladmm simulate sharp.png --blur recipe.yaml --noise 5 -o blurred.png[/bold]")
def simulate(
    picture: Annotated[Path, typer.Argument(help="Sharp picture.")],
    blur: Annotated[Path, typer.Option("--blur", "-b", help="Blur file.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Blurred picture; the blur is written beside it as .blur.npz.")
    ],
    noise: Annotated[float, typer.Option(min=0, help="Standard deviation on the 0-255 scale.")] = 0.0,
    gain: Annotated[float | None, typer.Option(help="Counts instead: what one adds, in the file's units.")] = None,
    background: Annotated[float, typer.Option(min=0, help="Level added to the counts, in the file's units.")] = 0.0,
    boundary: Annotated[
        str, typer.Option(help="unknown (the border is cut off), circular, replicate, reflect or zero.")
    ] = "unknown",
    labels: Annotated[Path | None, typer.Option(help="Label map of a bank of kernels.")] = None,
    positions: Annotated[Path | None, typer.Option(help="CSV of x, y of a stack of PSFs.")] = None,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
) -> None:
    """Blur a sharp picture and add noise; save both picture and blur."""
    from pnpladmm.blur import read_blur, write_blur
    from pnpladmm.pictures import read_picture, write_picture
    from pnpladmm.simulate import simulate as run

    sharp = read_picture(picture)
    model = read_blur(blur, (sharp.pixels.shape[-2], sharp.pixels.shape[-1]), labels=labels, positions=positions)
    done = run(
        sharp,
        model,
        noise / 255,
        None if gain is None else gain / sharp.scale,
        background / sharp.scale,
        boundary,  # type: ignore[arg-type]  # a wrong name is refused with a sentence
        seed,
    )
    written = write_picture(out, done.picture)
    write_blur(f"{out}.blur.npz", done.blur)
    for note in (*done.blur.notes, *written.notes):
        typer.echo(note)
    typer.echo(f"written: {out}, {out}.blur.npz")


for _point in entry_points(group="pnpladmm.commands"):
    app.add_typer(_point.load(), name=_point.name)


@contextmanager
def _bar(console: Console, name: str, total: int) -> Iterator[Any]:
    """A progress bar with the change of the picture; yields the solver's callback and appears at its first call."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[change]}"),
        TimeRemainingColumn(),
    )
    bars = Progress(*columns, console=console)
    task = bars.add_task(name, total=total, change="")

    def show(step: Any) -> None:
        bars.start()
        change = float(step.row["x_change"].max())
        # sqrt(2 h / pixels) is the residual in units of the noise: about 1 when the picture fits the data.
        residual = (2 * float(step.row["data_fit"].max()) / step.state.x[0].numel()) ** 0.5
        fields: dict[str, Any] = {"change": f"change {change:.1e}, residual {residual:.2f} of the noise"}
        bars.update(task, completed=step.iteration, total=max(total, step.iteration), **fields)

    try:
        yield show
        bars.update(task, total=bars.tasks[0].completed)
    finally:
        if bars.live.is_started:  # stopping what never started prints an empty line
            bars.stop()


def _tell(console: Console, outcome: Any) -> None:
    console.print(
        f"{outcome.output}: {outcome.status}, {outcome.iterations} iterations, {outcome.seconds} s", markup=False
    )
    for note in outcome.notes:
        console.print(f"  {note}", markup=False, style="dim", soft_wrap=True)
    for warning in outcome.warnings:
        console.print(f"  warning: {warning}", markup=False, style="yellow", soft_wrap=True)
    console.print(f"  certificate: {outcome.certificate}", markup=False, style="dim", soft_wrap=True)


def _noise(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--noise {text}: give a number on the 0-255 scale, or auto") from None


def _pairs(pictures: list[Path] | None, blurs: list[Path] | None, out: Path | None) -> list[tuple[Path, Path, Path]]:
    if not pictures or not blurs or out is None:
        raise InputError("give pictures, --blur and --out (or --recipe alone); see pnpladmm restore --help")
    if len(blurs) not in (1, len(pictures)):
        raise InputError(f"pictures: {len(pictures)}, blurs: {len(blurs)}: give one blur, or one each")
    blurs = blurs * len(pictures) if len(blurs) == 1 else blurs
    as_folder = len(pictures) > 1 or out.is_dir() or not out.suffix
    outputs = [out / p.name for p in pictures] if as_folder else [out]
    if len(set(outputs)) < len(outputs):
        raise InputError(f"two pictures would be written to {out}/{outputs[0].name}: give them different names")
    if as_folder:
        out.mkdir(parents=True, exist_ok=True)
    return list(zip(pictures, blurs, outputs, strict=True))


def _size(text: str | None, picture: Path | None) -> tuple[int, int] | None:
    if picture is not None:
        from pnpladmm.pictures import read_picture

        pixels = read_picture(picture).pixels
        return pixels.shape[-2], pixels.shape[-1]
    if text is None:
        return None
    height, _, width = text.lower().partition("x")
    if not (height.isdigit() and width.isdigit()):
        raise InputError(f"--size {text}: give HxW in pixels, such as 480x640")
    return int(height), int(width)


def main() -> None:
    """Run the command line: bad input is one line and exit code 2, never a traceback."""
    keep_memory()
    try:
        app()
    except InputError as error:
        typer.echo(f"pnpladmm: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"pnpladmm: {error.filename or ''}: {error.strerror or error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
