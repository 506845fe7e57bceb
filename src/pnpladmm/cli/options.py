"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from pnpladmm.denoisers import DENOISERS
from pnpladmm.solvers import METHODS

_DENOISERS = f"{', '.join(DENOISERS)}, or a file of weights"

BlurFile: TypeAlias = Annotated[Path, typer.Option("--blur", "-b", help="Blur file.")]
Labels: TypeAlias = Annotated[Path | None, typer.Option(help="Map of which kernel of a stack acts where.")]
Positions: TypeAlias = Annotated[Path | None, typer.Option(help="CSV of x, y: where each PSF of a stack was measured.")]
Gain: TypeAlias = Annotated[
    float | None, typer.Option(help="Poisson data: what one electron adds, in the file's units.")
]
ElectronsPerCount: TypeAlias = Annotated[
    float | None, typer.Option(help="Poisson data: the gain in electrons per ADU, the inverse of --gain.")
]
PsfScale: TypeAlias = Annotated[
    float | None, typer.Option(help="Size of a PSF pixel in picture pixels (0.25: sampled 4 times as finely).")
]
Denoiser: TypeAlias = Annotated[str, typer.Option(help=f"Denoiser: {_DENOISERS}.")]
AnyDenoiser: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"Denoiser: {_DENOISERS}. If not given: light-photo for JPEGs, light-exact for other pictures, light "
        "where the picture is more than blurred or a certificate is asked for.",
    ),
]
Method: TypeAlias = Annotated[str, typer.Option(help=f"Method: auto, {', '.join(METHODS)}.")]
Boundary: TypeAlias = Annotated[
    str, typer.Option(help="Beyond the border: unknown (no ringing), circular, replicate, reflect or zero.")
]
Iterations: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Denoiser calls of fast (default 8), or the most iterations of the others.")
]
Certify: TypeAlias = Annotated[
    int, typer.Option(min=0, help="The largest number of iterations after it for which convergence is proved.")
]
Device: TypeAlias = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, ...")]
Memory: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Memory to use, such as 3GB; larger pictures are restored in tiles. Default: what is free."),
]
Tiles: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Restore in tiles of at most this side in pixels, whatever memory there is.")
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that restore tiles of a large file, or pictures of many, side by side."),
]
Scheduler: TypeAlias = Annotated[
    str | None, typer.Option(help="Address of a running Dask scheduler whose workers do it instead.")
]
