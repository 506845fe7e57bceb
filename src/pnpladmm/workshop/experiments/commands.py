"""`pnpladmm experiment ...`: reads options, calls, prints. Heavy modules are imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.options import (
    BatchSize,
    Count,
    Data,
    DenoiserName,
    Device,
    Kernels,
    Levels,
    Methods,
    OneLevel,
    Out,
    Quick,
    Reuse,
    Seed,
    SettingsFile,
    Tasks,
    make_setup,
    read_tasks,
)

app = typer.Typer(
    help="The paper's experiments: tables, curves and sheets, each as CSV, JSON, PNG, SVG and one HTML page.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="An experiment that was stopped goes on where it was when it is started again. "
    "Example: [bold]pnpladmm experiment table --quick --out results[/bold]",
)


@app.command()
def table(
    methods: Methods = None,
    task: Tasks = "deblur",
    out: Out = Path("results"),
    noise: Levels = None,
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Table 1: methods against noise, with the paper's figures beside ours."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.table import make_table, table_name

    noise = noise or ("10,40" if quick else None)
    setup = make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse)
    chosen = chosen_methods(methods)
    for one in read_tasks(task):
        _print_table(make_table(setup, chosen, one))
        _print_files(out, table_name(one))


@app.command()
def convergence(
    methods: Methods = None,
    out: Out = Path("results"),
    noise: OneLevel = "10",
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Figure 2: PSNR against time and against denoiser calls."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.curves import make_convergence

    setup = make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse)
    make_convergence(setup, chosen_methods(methods))
    _print_files(out, "convergence")


@app.command()
def parameters(
    out: Out = Path("results"),
    noise: OneLevel = "10",
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """The influence of beta and L_x, inside and outside the theorem, and where LADMM begins to diverge."""
    from pnpladmm.workshop.experiments.stability import make_parameters

    make_parameters(make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse))
    _print_files(out, "parameters")


@app.command()
def splitting(
    methods: Methods = None,
    out: Out = Path("results"),
    noise: OneLevel = "10",
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Changes of x and z from iteration to iteration."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.curves import make_splitting

    setup = make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse)
    make_splitting(setup, chosen_methods(methods))
    _print_files(out, "splitting")


@app.command()
def proof(
    out: Out = Path("results"),
    noise: Levels = None,
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Certified LADMM with prox-drunet (or --denoiser), up to 1,000 iterations: certificates, Lagrangian, price."""
    from pnpladmm.workshop.experiments.proof import make_proof

    make_proof(make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse))
    _print_files(out, "proof")


@app.command()
def protocols(
    methods: Methods = "fast-8",
    only: Annotated[str, typer.Option(help="Protocols, comma-separated.")] = "levin,discs,lens,border,grey",
    out: Out = Path("results"),
    noise: Levels = None,
    denoiser: DenoiserName = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    reuse: Reuse = False,
) -> None:
    """Other blurs and pictures: CBSD68 with Levin's kernels, discs, a lens, an unknown border, grey pictures."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.protocols import make_protocols
    from pnpladmm.workshop.experiments.protocols_page import mean_rows

    setup = make_setup(out, noise, denoiser, None, count, batch, device, settings, "paper", 0, False, reuse)
    names = [name.strip() for name in only.split(",")]
    data = make_protocols(setup, chosen_methods(methods), names, setup.noise if noise else None)
    for row in mean_rows(data):
        title, method = data["titles"][row["protocol"]], data["methods"][row["method"]]
        typer.echo(f"{title:36}{method:22}noise {row['noise']:<6g}{row['psnr_observed']:7.2f} ->{row['psnr']:7.2f} dB")
    _print_files(out, "protocols")


@app.command()
def gallery(
    methods: Methods = None,
    out: Out = Path("results"),
    noise: Levels = None,
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Sheets of pictures with enlarged parts, PSNR under each."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.gallery import make_gallery

    setup = make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse)
    make_gallery(setup, chosen_methods(methods))
    _print_files(out, "gallery")


@app.command()
def tune(
    methods: Methods = None,
    task: Annotated[str, typer.Option(help="deblur, sr2, sr3, sr4 or inpainting.")] = "deblur",
    trials: Annotated[
        int | None, typer.Option(help="For each method and noise level: 40; with --quick 3.", show_default=False)
    ] = None,
    out: Out = Path("tuning"),
    noise: Levels = None,
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Tune methods on the tuning pictures: OUT/settings.json is the table, OUT/tune.sqlite holds the trials."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.tuning import tune as run_tuning

    setup = make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse)
    wanted = read_tasks(task)
    if len(wanted) > 1:
        raise InputError(f"--task {task}: tune one task at a time")
    run_tuning(setup, chosen_methods(methods), trials, wanted[0])
    _print_files(out, "tune")
    typer.echo(f"settings: {out / 'settings.json'}")


@app.command("all")
def everything(
    methods: Methods = None,
    task: Tasks = "deblur,sr2,inpainting,sr3,sr4",
    out: Out = Path("results"),
    noise: Levels = None,
    denoiser: DenoiserName = None,
    data: Data = None,
    count: Count = None,
    batch: BatchSize = None,
    device: Device = None,
    settings: SettingsFile = None,
    kernels: Kernels = "paper",
    seed: Seed = 0,
    quick: Quick = False,
    reuse: Reuse = False,
) -> None:
    """Everything but tuning and proof: the tables of all tasks, convergence, parameters, splitting, gallery."""
    from pnpladmm.workshop.experiments.comparison import chosen_methods
    from pnpladmm.workshop.experiments.everything import run_everything

    setup = make_setup(out, noise, denoiser, data, count, batch, device, settings, kernels, seed, quick, reuse)
    for name in run_everything(setup, chosen_methods(methods), read_tasks(task)):
        _print_files(out, name)
    typer.echo(f"start at {out / 'index.html'}")


@app.command()
def draw(out: Annotated[Path, typer.Argument(help="Folder with the JSON files of experiments.")]) -> None:
    """Draw everything again from the JSON files of earlier runs, without computing anything."""
    from pnpladmm.workshop.experiments.everything import redraw

    for name in redraw(out):
        _print_files(out, name)


def _print_table(data: dict[str, Any]) -> None:
    """PSNR by method and noise; everything else is in the files."""
    levels = data["noise"]
    typer.echo(f"{'PSNR (dB) at noise':22}" + "".join(f"{level:>8g}" for level in levels) + "   calls   s/picture")
    for method, title in data["titles"].items():
        rows = {row["noise"]: row for row in data["rows"] if row["method"] == method}
        last = rows[levels[-1]]
        cost = f"{last['calls']:8d}{last['seconds']:12.4f}" if last["iterations"] else ""
        typer.echo(f"{title:22}" + "".join(f"{rows[level]['psnr']:8.2f}" for level in levels) + cost)


def _print_files(out: Path, name: str) -> None:
    typer.echo(f"written: {out / name}.html, .json, .csv, .png, .svg")
