"""The options that the commands of the experiments share, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from pnpladmm.workshop.experiments.samples import Task
    from pnpladmm.workshop.experiments.setup import Setup

PAPER_NOISE, QUICK_NOISE = "1,10,20,40", "10"

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for all files; results that are there are used.")]
Levels = Annotated[
    str | None,
    typer.Option(
        "--noise",
        help="Noise levels of 255, comma-separated: 1,10,20,40; with --quick 10 (table: 10,40).",
        show_default=False,
    ),
]
OneLevel = Annotated[str, typer.Option("--noise", help="Noise levels of 255, comma-separated.")]
Methods = Annotated[
    str | None, typer.Option(help="Methods, comma-separated; by default those of the paper.", show_default=False)
]
Tasks = Annotated[str, typer.Option("--task", help="deblur, sr2, sr3, sr4, inpainting; comma-separated.")]
DenoiserName = Annotated[
    str | None,
    typer.Option(
        "--denoiser", help="drunet, light, tv, ... or a weight file; default drunet or light.", show_default=False
    ),
]
Data = Annotated[
    str | None,
    typer.Option(help="COCO folder, or embedded; by default COCO if it is beside the checkout.", show_default=False),
]
Count = Annotated[int | None, typer.Option(help="Number of pictures at most.", show_default=False)]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch", help="Pictures solved together: 60 on a GPU, 4 on a CPU.", show_default=False),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, ...; by default the GPU if there is one.", show_default=False)
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="JSON table of tuned settings instead of the shipped one.", show_default=False),
]
Kernels = Annotated[str, typer.Option(help="paper, levin, or a file or folder of kernels.")]
Seed = Annotated[int, typer.Option(help="Seed of crops, kernels, noise and search.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few small pictures, few iterations: under a minute on a CPU.")]
Reuse = Annotated[bool, typer.Option("--reuse", help="Also use results that other versions of the code stored.")]


def make_setup(
    out: Path,
    noise: str | None,
    denoiser: str | None,
    data: str | None,
    count: int | None,
    batch: int | None,
    device: str | None,
    settings: Path | None,
    kernels: str,
    seed: int,
    quick: bool,
    reuse: bool,
) -> Setup:
    """What the shared options say; the heavy imports begin here."""
    from pnpladmm.workshop.experiments.setup import Setup

    return Setup(
        out,
        denoiser_name=denoiser,
        noise=_read_levels(noise or (QUICK_NOISE if quick else PAPER_NOISE)),
        data=data,
        count=count,
        batch=batch,
        device=device,
        settings_file=settings,
        kernels=kernels,
        seed=seed,
        quick=quick,
        reuse=reuse,
    )


def read_tasks(text: str) -> tuple[Task, ...]:
    """Tasks, comma-separated."""
    from pnpladmm.workshop.experiments.samples import TASKS

    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for task in found:
        if task not in TASKS:
            raise InputError(f"task {task!r}: choose among {', '.join(TASKS)}")
    return found  # type: ignore[return-value]  # all are tasks


def _read_levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise InputError(f"--noise {text}: give numbers of the 0-255 scale, such as 1,10,20,40") from None
