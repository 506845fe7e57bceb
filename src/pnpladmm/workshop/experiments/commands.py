"""`pnpladmm experiment ...`: parses, calls, prints. What is heavy is imported when a command runs."""

# Annotations are objects here, not text: `_command` builds the signature that typer reads from them.

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from pnpladmm.workshop.experiments.running import Setup
    from pnpladmm.workshop.experiments.samples import Task

PAPER_NOISE = "1,10,20,40"
QUICK_NOISE = "10"

app = typer.Typer(
    help="The paper's experiments: tables, curves and sheets, each as CSV, JSON, PNG, SVG and one HTML page.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Killed and started again, each goes on where it was. "
    "Example: [bold]pnpladmm experiment table --quick --out results[/bold]",
)


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


COMMON: dict[str, tuple[Any, Any]] = {
    "denoiser": (str | None, _option("drunet, light, tv, ... or a weight file; drunet where its weights are there.")),
    "data": (str | None, _option("COCO folder, or embedded; by default COCO where it lies beside the checkout.")),
    "count": (int | None, _option("Pictures at most.")),
    "batch": (int | None, _option("Pictures solved together: 60 on a GPU, 4 on a CPU.")),
    "device": (str | None, _option("cpu, cuda, ...: by default the GPU if there is one.")),
    "settings": (Path | None, _option("Table of tuned settings (JSON) instead of the shipped one.")),
    "kernels": (str, _option("paper (default), levin, or a file or folder of kernels.")),
    "seed": (int, _option("Of crops, kernels, noise and search: 0.")),
    "quick": (bool, _option("A few small pictures, few iterations: under a minute on a CPU.", "--quick")),
    "reuse": (bool, _option("Use stored results of other versions of the code too.", "--reuse")),
}
DEFAULTS: dict[str, Any] = {"kernels": "paper", "seed": 0, "quick": False, "reuse": False}

Methods = Annotated[str | None, _option("Methods, comma-separated; by default all.")]
Tasks = Annotated[str, typer.Option("--task", help="deblur, sr2, sr3, sr4, inpainting; comma-separated.")]


def _command(
    name: str, noise: str = PAPER_NOISE, quick_noise: str = QUICK_NOISE, out: str = "results"
) -> Callable[[Callable[..., None]], None]:
    """Register a function of a `Setup` as a command: it gets the options that all experiments share."""
    common = {
        "out": (
            Path,
            typer.Option("--out", "-o", help="Folder for everything; results found there are used."),
            Path(out),
        ),
        "noise": (str | None, _option(f"Noise levels of 255, comma-separated: {noise}; quick: {quick_noise}."), None),
        **{key: (kind, option, DEFAULTS.get(key)) for key, (kind, option) in COMMON.items()},
    }

    def register(run: Callable[..., None]) -> None:
        def call(**given: Any) -> None:
            shared = {key: given.pop(key) for key in common}
            shared["noise"] = shared["noise"] or (quick_noise if shared["quick"] else noise)
            run(_setup(shared), **given)

        own = [p for p in inspect.signature(run).parameters.values() if p.name != "setup"]
        shared = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
            for key, (kind, option, default) in common.items()
        ]
        parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *shared]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        call.__doc__ = run.__doc__
        app.command(name)(call)

    return register


@_command("table", quick_noise="10,40")
def _table(setup: "Setup", methods: Methods = None, task: Tasks = "deblur") -> None:
    """Table 1: methods against noise, with the paper's figures beside ours."""
    from pnpladmm.workshop.experiments.protocol import chosen_methods
    from pnpladmm.workshop.experiments.table import make_table, table_name

    chosen = chosen_methods(methods)
    for one in _tasks(task):
        _print_table(make_table(setup, chosen, one))
        _written(setup.out, table_name(one))


@_command("convergence", noise="10")
def _convergence(setup: "Setup", methods: Methods = None) -> None:
    """Figure 2: PSNR against time and against denoiser calls."""
    from pnpladmm.workshop.experiments.curves import make_convergence
    from pnpladmm.workshop.experiments.protocol import chosen_methods

    make_convergence(setup, chosen_methods(methods))
    _written(setup.out, "convergence")


@_command("parameters", noise="10")
def _parameters(setup: "Setup") -> None:
    """The influence of beta and L_x, inside and outside the theorem, and where LADMM begins to diverge."""
    from pnpladmm.workshop.experiments.stability import make_parameters

    make_parameters(setup)
    _written(setup.out, "parameters")


@_command("splitting", noise="10")
def _splitting(setup: "Setup", methods: Methods = None) -> None:
    """Changes of x and z from iteration to iteration."""
    from pnpladmm.workshop.experiments.curves import make_splitting
    from pnpladmm.workshop.experiments.protocol import chosen_methods

    make_splitting(setup, chosen_methods(methods))
    _written(setup.out, "splitting")


@_command("proof")
def _proof(setup: "Setup") -> None:
    """Certified LADMM with prox-drunet (or --denoiser), up to 1,000 iterations: certificates, Lagrangian, price."""
    from pnpladmm.workshop.experiments.proof import make_proof

    make_proof(setup)
    _written(setup.out, "proof")


@_command("gallery")
def _gallery(setup: "Setup", methods: Methods = None) -> None:
    """Sheets of pictures with enlarged parts, PSNR under each."""
    from pnpladmm.workshop.experiments.gallery import make_gallery
    from pnpladmm.workshop.experiments.protocol import chosen_methods

    make_gallery(setup, chosen_methods(methods))
    _written(setup.out, "gallery")


@_command("tune", out="tuning")
def _tune(
    setup: "Setup",
    methods: Methods = None,
    task: Annotated[str, typer.Option(help="deblur, sr2, sr3, sr4 or inpainting.")] = "deblur",
    trials: Annotated[int | None, _option("For each method and noise level: 40, quick 3.")] = None,
) -> None:
    """Tune every method on the tuning pictures: OUT/settings.json is the table, OUT/tune.sqlite the studies."""
    from pnpladmm.workshop.experiments.protocol import chosen_methods
    from pnpladmm.workshop.experiments.tuning import tune

    wanted = _tasks(task)
    if len(wanted) > 1:
        raise InputError(f"--task {task}: tune one task at a time")
    tune(setup, chosen_methods(methods), trials, wanted[0])
    _written(setup.out, "tune")
    typer.echo(f"settings: {setup.out / 'settings.json'}")


@_command("all")
def _all(setup: "Setup", methods: Methods = None, task: Tasks = "deblur,sr2,inpainting,sr3,sr4") -> None:
    """Everything but tuning and proof: the tables of all tasks, convergence, parameters, splitting, gallery."""
    from pnpladmm.workshop.experiments.everything import run_everything
    from pnpladmm.workshop.experiments.protocol import chosen_methods

    for name in run_everything(setup, chosen_methods(methods), _tasks(task)):
        _written(setup.out, name)
    typer.echo(f"start at {setup.out / 'index.html'}")


@app.command("draw")
def _draw(out: Annotated[Path, typer.Argument(help="Folder with the JSON files of experiments.")]) -> None:
    """Draw everything again from the JSON files of earlier runs, computing nothing."""
    from pnpladmm.workshop.experiments.everything import redraw

    for name in redraw(out):
        _written(out, name)


def _setup(given: dict[str, Any]) -> "Setup":
    from pnpladmm.workshop.experiments.running import Setup

    renamed = {"denoiser": "denoiser_name", "settings": "settings_file"}
    rest = {renamed.get(key, key): value for key, value in given.items() if key != "noise"}
    return Setup(noise=_levels(given["noise"]), **rest)


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise InputError(f"--noise {text}: give numbers of the 0-255 scale, such as 1,10,20,40") from None


def _tasks(text: str) -> "tuple[Task, ...]":
    from pnpladmm.workshop.experiments.samples import TASKS

    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for task in found:
        if task not in TASKS:
            raise InputError(f"task {task!r}: choose among {', '.join(TASKS)}")
    return found  # type: ignore[return-value]  # all are tasks


def _print_table(data: dict[str, Any]) -> None:
    """PSNR by method and noise, for the terminal; everything else is in the files."""
    levels = data["noise"]
    typer.echo(f"{'PSNR (dB) at noise':22}" + "".join(f"{level:>8g}" for level in levels) + "   calls   s/picture")
    for method, title in data["titles"].items():
        rows = {row["noise"]: row for row in data["rows"] if row["method"] == method}
        last = rows[levels[-1]]
        cost = f"{last['calls']:8d}{last['seconds']:12.4f}" if last["iterations"] else ""
        typer.echo(f"{title:22}" + "".join(f"{rows[level]['psnr']:8.2f}" for level in levels) + cost)


def _written(out: Path, name: str) -> None:
    typer.echo(f"written: {out / name}.html, .json, .csv, .png, .svg")


def main() -> None:
    """`python -m pnpladmm.workshop.experiments`: the same commands without the rest of the program."""
    try:
        app(prog_name="pnpladmm experiment")
    except InputError as error:
        typer.echo(f"pnpladmm: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"pnpladmm: {error.filename or ''}: {error.strerror or error}", err=True)
        sys.exit(2)
