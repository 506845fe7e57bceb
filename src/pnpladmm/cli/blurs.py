"""`pnpladmm inspect` and `pnpladmm simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnpladmm.cli.options import BlurFile, ElectronsPerCount, Gain, Labels, Positions, PsfScale
from pnpladmm.locks import check_files
from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from pnpladmm.pictures.pixel_scale import PixelScale

app = typer.Typer()


@app.command(epilog="Example: [bold]pnpladmm inspect field.psf --size 512x512 --out field.png[/bold]")
def inspect(
    blur: Annotated[Path, typer.Argument(help="Blur file.")],
    size: Annotated[
        str | None, typer.Option(help="HxW of the picture it belongs to, where the file does not say.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="The picture it belongs to, instead of --size.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Draw it into this PNG.")] = None,
    labels: Labels = None,
    positions: Positions = None,
    psf_scale: PsfScale = None,
) -> None:
    """Say what a blur file holds, and draw it."""
    from pnpladmm.blur import describe, draw_blur, read_blur
    from pnpladmm.pictures.selection import without_selection

    given = [without_selection(path) for path in (blur, picture, labels, positions) if path is not None]
    check_files(given, [] if out is None else [out])
    pixels, scale = _size_and_scale(size, picture)
    found = read_blur(blur, pixels, labels=labels, positions=positions, psf_scale=psf_scale, picture_scale=scale)
    typer.echo(describe(found))
    if out is not None:
        draw_blur(found, out)
        typer.echo(f"drawn: {out}")


@app.command(epilog="Example: [bold]pnpladmm simulate sharp.png --blur regions.yaml --noise 5 -o blurred.png[/bold]")
def simulate(
    picture: Annotated[Path, typer.Argument(help="Sharp picture.")],
    blur: BlurFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Blurred picture; the blur is written beside it as .blur.npz.")
    ],
    noise: Annotated[float, typer.Option(min=0, help="Standard deviation on the 0-255 scale.")] = 0.0,
    gain: Gain = None,
    electrons_per_count: ElectronsPerCount = None,
    background: Annotated[float, typer.Option(min=0, help="Level added to the counts, in the file's units.")] = 0.0,
    boundary: Annotated[
        str, typer.Option(help="unknown (the border is cut off), circular, replicate, reflect or zero.")
    ] = "unknown",
    labels: Labels = None,
    positions: Positions = None,
    psf_scale: PsfScale = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
) -> None:
    """Blur a sharp picture and add noise; save both picture and blur."""
    from pnpladmm.blur import write_blur
    from pnpladmm.files import check_writable
    from pnpladmm.pictures import check_output, read_picture, write_picture
    from pnpladmm.pictures.selection import without_selection
    from pnpladmm.restoration.options import one_gain
    from pnpladmm.simulate import simulate_with

    given = [without_selection(path) for path in (picture, blur, labels, positions) if path is not None]
    check_files(given, [out, f"{out}.blur.npz"])
    sharp = read_picture(picture)
    check_output(out, sharp)
    check_writable(f"{out}.blur.npz")
    done = simulate_with(
        255.0,
        sharp,
        blur,
        noise,
        one_gain(gain, electrons_per_count),
        background,
        boundary,  # type: ignore[arg-type]  # a wrong name is refused with a sentence
        seed,
        labels,
        positions,
        psf_scale,
    )
    written = write_picture(out, done.picture)
    write_blur(f"{out}.blur.npz", done.blur)
    for note in dict.fromkeys((*done.picture.notes, *done.blur.notes, *written.notes)):
        typer.echo(note)
    typer.echo(f"written: {out}, {out}.blur.npz")


def _size_and_scale(text: str | None, picture: Path | None) -> tuple[tuple[int, int] | None, PixelScale | None]:
    if picture is not None:
        from pnpladmm.pictures import read_picture

        found = read_picture(picture)
        return (found.pixels.shape[-2], found.pixels.shape[-1]), found.metadata.pixel_scale
    if text is None:
        return None, None
    height, _, width = text.lower().partition("x")
    if not (height.isdigit() and width.isdigit()):
        raise InputError(f"--size {text}: give HxW in pixels, such as 480x640")
    return (int(height), int(width)), None
