"""What the formats exchange with the rest: the samples as a file holds them, and its metadata."""

from __future__ import annotations

from dataclasses import dataclass

from pnpladmm.pictures.arrays import Array
from pnpladmm.pictures.metadata import NO_METADATA, Metadata


@dataclass(frozen=True, eq=False)
class Raw:
    """Samples (pages, C, H, W) as a file holds them: what readers return and writers get.

    `scale` is the value of white, None for the natural one of the type. `blank` is True on samples without data.
    `axes` are those of the array that the samples were.
    """

    samples: Array
    alpha: Array | None = None
    blank: Array | None = None
    scale: float | None = None
    colour: str = "grey"
    axes: str = ""
    metadata: Metadata = NO_METADATA
    notes: tuple[str, ...] = ()


def colour_of(channels: int) -> str:
    """What so many channels are where nothing else is said."""
    return {1: "grey", 3: "rgb"}.get(channels, "channels")
