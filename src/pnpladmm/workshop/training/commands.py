"""`pnpladmm train`: options in, a plan or a call out. `run` is the default command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.in_loop_plan import InLoopPlan
from pnpladmm.workshop.training.plan import Penalty, Plan


class Measure(StrEnum):
    """The tables of `evaluate`."""

    PSNR = "psnr"
    WEAK_NOISE = "weak-noise"
    CURVATURE = "curvature"
    GROWTH = "growth"


class RunByDefault(TyperGroup):
    """`pnpladmm train FOLDER FILE` means `pnpladmm train run FOLDER FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` in front of arguments that begin with no command."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=RunByDefault,
    help="Train a denoiser on a folder of pictures, measure it, prune it. "
    "`pnpladmm train FOLDER FILE` is short for `pnpladmm train run FOLDER FILE`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _option(text: str, *names: str, panel: str | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def _penalty(text: str, *names: str) -> Any:
    return _option(text, *names, panel="prox-drunet: a penalty bounds the eigenvalues of its Hessian")


# Options that more than one kind of training has. Their names are fields of `Plan`.
Data = Annotated[Path, typer.Argument(help="Folder of pictures.", metavar="FOLDER")]
Out = Annotated[Path, typer.Argument(help="Weight file to write, ending in .safetensors.", metavar="FILE")]
Minutes = Annotated[float | None, _option("Time budget in minutes.")]
Steps = Annotated[int | None, _option("Number of steps.")]
Batch = Annotated[int, _option("Crops per step.")]
Crop = Annotated[int, _option("Side of a crop in pixels.")]
Scales = Annotated[str, _option("Sizes at which each picture is used, such as 1,0.75,0.5.")]
SoftChroma = Annotated[float, _option("Share of crops with colour at half resolution.")]
LearningRate = Annotated[float, _option("Highest learning rate.")]
WarmupSteps = Annotated[int, _option("Steps over which the learning rate rises.")]
Ema = Annotated[float, _option("Decay of the average of the weights.")]
Seed = Annotated[int, _option("Seed of all random numbers.")]
Device = Annotated[str, _option("cpu or cuda.")]
Compiled = Annotated[bool | None, _option("Compile the network. Default: on GPUs.", "--compile/--no-compile")]
Resume = Annotated[bool, _option("Continue from the checkpoint, or start again.", "--resume/--fresh")]
LogSteps = Annotated[int, _option("Steps from one line of the log to the next.")]
CheckpointSeconds = Annotated[float, _option("Seconds from one checkpoint to the next.")]
Validation = Annotated[Path | None, _option("Folder of clean pictures for a table of PSNR.")]
ValidationSeconds = Annotated[float, _option("Seconds from one validation table to the next.")]
DataNote = Annotated[str, _option("What the pictures are, for the card of the weights.")]


@app.command()
def run(
    data: Data,
    out: Out,
    network: Annotated[str, _option("light, drunet, prox-drunet or ridge.")] = Plan.network,
    channels: Annotated[int, _option("3 for colour, 1 for grey.")] = Plan.channels,
    minutes: Minutes = None,
    steps: Steps = None,
    batch: Batch = Plan.batch,
    crop: Crop = Plan.crop,
    scales: Scales = "1",
    soft_chroma: SoftChroma = Plan.soft_chroma,
    optimizer: Annotated[str, _option("adamw, or muon with learning rates of about 0.004.")] = Plan.optimizer,
    learning_rate: LearningRate = Plan.learning_rate,
    warmup_steps: WarmupSteps = Plan.warmup_steps,
    weak_noise: Annotated[float, _option("Share of crops with noise below 12 (of 255).")] = Plan.weak_noise,
    ema: Ema = Plan.ema,
    seed: Seed = Plan.seed,
    device: Device = Plan.device,
    precision: Annotated[
        str | None, _option("Default: float32 on CPUs; on GPUs float16, prox-drunet bfloat16, ridge float32.")
    ] = None,
    compile_network: Compiled = None,
    start: Annotated[Path | None, _option("Weight file to begin with.")] = None,
    resume: Resume = True,
    widths: Annotated[str | None, _option("Channels at each resolution, such as 64,128,256.")] = None,
    blocks: Annotated[int | None, _option("Residual blocks at each resolution.")] = None,
    log_steps: LogSteps = Plan.log_steps,
    checkpoint_seconds: CheckpointSeconds = Plan.checkpoint_seconds,
    validation: Validation = None,
    validation_seconds: ValidationSeconds = Plan.validation_seconds,
    data_note: DataNote = Plan.data_note,
    penalty_weight: Annotated[float, _penalty("Weight of the penalty.", "--penalty")] = Penalty.weight,
    penalty_margin: Annotated[
        float, _penalty("The largest eigenvalue is to stay this far below 1.", "--margin")
    ] = Penalty.margin,
    penalty_growth: Annotated[float | None, _penalty("Also keep the eigenvalues above minus this.", "--growth")] = None,
    penalty_points: Annotated[
        int, _penalty("Crops that the penalty is computed on.", "--penalty-crops")
    ] = Penalty.points,
    penalty_side: Annotated[int, _penalty("Side of these crops in pixels.", "--penalty-crop")] = Penalty.side,
    penalty_every: Annotated[int, _penalty("Steps from one penalty to the next.")] = Penalty.every,
    penalty_begin: Annotated[
        float, _penalty("Share of the budget before the penalty starts.", "--penalty-from")
    ] = Penalty.begin,
    scenes_from: Annotated[
        float, _penalty("Share of the budget before training on certified runs starts.")
    ] = Plan.scenes_from,
) -> None:
    """Train a denoiser on a folder of pictures. Give --minutes, --steps or both; a killed training is resumed."""
    given = dict(locals())  # the names above are the fields of Plan, and with `penalty_` those of Penalty
    from pnpladmm.denoisers.shipped import is_gradient_step, needs_float32
    from pnpladmm.workshop.training.loop import train

    penalty = {name: given.pop(name) for name in list(given) if name.startswith("penalty_")}
    half = "bfloat16" if is_gradient_step(network) else "float32" if needs_float32(network) else "float16"
    _complete(given, half=half)
    given["widths"] = whole_numbers("--widths", widths) if widths is not None else None
    given["penalty"] = Penalty(**{name.removeprefix("penalty_"): value for name, value in penalty.items()})
    train(Plan(**given), lambda progress: typer.echo(str(progress)))


@app.command()
def in_loop(
    data: Data,
    out: Out,
    network: Annotated[str, _option("light or drunet.")] = InLoopPlan.network,
    start: Annotated[
        str | None, _option("Weight file to begin with, or the name of a network. Default: the shipped one.")
    ] = None,
    calls: Annotated[
        str, _option("Denoiser calls of the annealed method; with several, such as 8,4, it learns all of them.")
    ] = "8",
    photo: Annotated[
        bool,
        _option("Photographs: JPEG, clipped, PSF and noise level a little wrong. Or both exact.", "--photo/--exact"),
    ] = InLoopPlan.photo,
    settings_of: Annotated[
        str | None, _option("Denoiser whose tuned settings the training starts from. Default: that of --network.")
    ] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    batch: Batch = InLoopPlan.batch,
    crop: Annotated[int, _option("Side of a scene in pixels, before it is blurred.")] = InLoopPlan.crop,
    scales: Scales = "1",
    soft_chroma: SoftChroma = InLoopPlan.soft_chroma,
    grey: Annotated[float, _option("Share of steps with grey pictures.")] = InLoopPlan.grey,
    learning_rate: LearningRate = InLoopPlan.learning_rate,
    schedule_rate: Annotated[
        float, _option("Learning rate of the method's settings; 0 keeps them.")
    ] = InLoopPlan.schedule_rate,
    warmup_steps: WarmupSteps = InLoopPlan.warmup_steps,
    ema: Ema = InLoopPlan.ema,
    kernels: Annotated[int, _option("Random kernels that the blurs are made of.")] = InLoopPlan.kernels,
    blurs: Annotated[int, _option("Batches of blurs in use at a time.")] = InLoopPlan.blurs,
    seed: Seed = InLoopPlan.seed,
    device: Device = InLoopPlan.device,
    precision: Annotated[
        str | None, _option("Precision of the network. Default: float32 on CPUs, float16 on GPUs.")
    ] = None,
    compile_network: Compiled = None,
    resume: Resume = True,
    log_steps: LogSteps = InLoopPlan.log_steps,
    checkpoint_seconds: CheckpointSeconds = InLoopPlan.checkpoint_seconds,
    validation: Validation = None,
    validation_seconds: ValidationSeconds = InLoopPlan.validation_seconds,
    data_note: DataNote = InLoopPlan.data_note,
) -> None:
    """Continue the training of a denoiser inside the annealed method. Give --minutes, --steps or both."""
    given = dict(locals())  # the names above are the fields of InLoopPlan
    from pnpladmm.denoisers.shipped import weight_file
    from pnpladmm.workshop.training.in_loop import train_in_loop

    _complete(given, half="float16")
    given["start"] = weight_file(start or network)
    given["calls"] = whole_numbers("--calls", calls)
    train_in_loop(InLoopPlan(**given), lambda progress: typer.echo(str(progress)))


@app.command()
def schedule(
    data: Data,
    weights: Annotated[Path, typer.Argument(help="Weight file that was trained in the loop.", metavar="FILE")],
    calls: Annotated[str, _option("Denoiser calls of the annealed method, such as 8,4.")] = "8",
    photo: Annotated[bool, _option("Which pictures, as for in-loop.", "--photo/--exact")] = InLoopPlan.photo,
    trials: Annotated[int, _option("Changes that are tried for each noise level.")] = 40,
    batch: Batch = InLoopPlan.batch,
    crop: Annotated[int, _option("Side of a scene in pixels, before it is blurred.")] = InLoopPlan.crop,
    scales: Scales = "1",
    seed: Seed = InLoopPlan.seed,
    device: Device = InLoopPlan.device,
) -> None:
    """Search the settings of the annealed method that suit a network, and write them into the card of its weights."""
    from pnpladmm.denoisers.building import kind_of, read_network
    from pnpladmm.workshop.training.schedule_search import search_schedule, write_schedule

    plan = InLoopPlan(
        data=data, out=weights, start=weights, network=kind_of(type(read_network(weights))), steps=1, photo=photo,
        calls=whole_numbers("--calls", calls), batch=batch, crop=crop, scales=numbers("--scales", scales), seed=seed,
        device=device, precision="float16" if device.startswith("cuda") else "float32",
    )  # fmt: skip
    write_schedule(weights, search_schedule(plan, trials, typer.echo), photo)


def _complete(given: dict[str, Any], half: str) -> None:
    """Put the defaults that depend on the device into the settings of a plan, and numbers for texts."""
    on_gpu = given["device"].startswith("cuda")
    given["precision"] = given["precision"] or (half if on_gpu else "float32")
    given["compile_network"] = on_gpu if given["compile_network"] is None else given["compile_network"]
    given["scales"] = numbers("--scales", given["scales"])


@app.command()
def evaluate(
    weights: Annotated[str, typer.Argument(help="light, drunet, prox-drunet or a weight file.")],
    folder: Annotated[Path, typer.Argument(help="Folder of clean pictures.")],
    table: Annotated[
        Measure,
        _option(
            "PSNR; the same and more at weak noise; of a gradient step the largest eigenvalues of the Hessian at "
            "noisy pictures (curvature) or minus the least ones at clean pictures (growth)."
        ),
    ] = Measure.PSNR,
    grey: Annotated[bool, _option("Measure on the grey version of the pictures.")] = False,
    sigmas: Annotated[str | None, _option("Noise levels of 255, such as 5,15,25,50.")] = None,
    products: Annotated[int, _option("Products with the Hessian for each eigenvalue.")] = 50,
    relaxation: Annotated[float | None, _option("gamma of a gradient step; --card writes it into the weights.")] = None,
    card: Annotated[bool, _option("Write the table into the card of the weight file.")] = False,
    limit: Annotated[int | None, _option("Use only this many pictures.")] = None,
    device: Annotated[str, _option("cpu or cuda.")] = "cpu",
) -> None:
    """Measure how good a network is on a folder of clean pictures."""
    from pnpladmm.denoisers.loading import load_network
    from pnpladmm.workshop.training import tables

    if card and table is Measure.WEAK_NOISE:
        raise InputError("--card: the table of weak noise cannot be written into a card: leave --card out")
    levels = numbers("--sigmas", sigmas) if sigmas is not None else None
    denoiser = load_network(weights, device=device, relaxation=relaxation)
    text, entries = tables.measure(table, denoiser, folder, levels, 1 if grey else 3, products, limit)
    typer.echo(text)
    if card:
        tables.write_into_card(Path(weights), entries, relaxation)


@app.command()
def prune(
    weights: Annotated[Path, typer.Argument(help="Weight file of a light network.")],
    folder: Annotated[Path, typer.Argument(help="Folder of pictures to measure on.")],
    out: Annotated[Path, typer.Argument(help="Weight file to write, ending in .safetensors.")],
    hidden: Annotated[str, _option("Hidden channels at 1/2, 1/4 and 1/8 resolution.")] = "64,128,240",
    crops: Annotated[int, _option("Crops to measure on.")] = 64,
) -> None:
    """Remove the hidden channels of a light network that contribute least."""
    from pnpladmm.workshop.training.prune import prune_file

    prune_file(weights, folder, out, whole_numbers("--hidden", hidden), crops)


@app.command()
def compact(
    weights: Annotated[Path, typer.Argument(help="Weight file, float16.")],
    out: Annotated[Path, typer.Argument(help="Weight file to write, ending in .safetensors.")],
    bits: Annotated[int, _option("Bits of mantissa that large tensors keep.")] = 4,
) -> None:
    """Round the large tensors of a weight file, so that packages compress it better."""
    from pnpladmm.workshop.training.compact import compact_file

    compact_file(weights, out, bits)


@app.command()
def doubts(
    out: Annotated[Path, typer.Argument(help="File to write, such as doubts.json.", metavar="FILE")],
    cases: Annotated[int, _option("Restored crops; those that are done are kept beside the file.")] = 400,
    device: Annotated[str, _option("cpu or cuda.")] = "cpu",
) -> None:
    """Fit the rule by which restore sees a PSF that does not fit, to crops restored with right and wrong ones."""
    from pnpladmm.workshop.training.doubts import train_doubts

    train_doubts(out, cases, device)


def numbers(option: str, text: str) -> tuple[float, ...]:
    """`1,0.5` as (1.0, 0.5)."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: give numbers with commas between them, such as 1,0.5") from None


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """`8,16` as (8, 16)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: give whole numbers with commas between them, such as 64,128") from None
