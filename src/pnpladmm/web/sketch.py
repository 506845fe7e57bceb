"""What the page tells the server: the blur as it is being drawn, and the settings. Everything is checked here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

WIDEST = 500.0
"""Pixels; the widest blur that a blur file takes."""
NAME = r"^[0-9a-f]{12}$"
"""Names of projects and files. The server makes them; what a browser sends must look like this."""

Coordinate = Annotated[float, Field(ge=-1e6, le=1e6)]
Width = Annotated[float, Field(gt=0, le=WIDEST)]
Name = Annotated[str, Field(pattern=NAME)]
Point = tuple[Coordinate, Coordinate]


class Strict(BaseModel):
    """No unknown fields, no NaN."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Motion(Strict):
    """A straight motion: pixels, and degrees counter-clockwise from the right."""

    length: Width
    angle: Coordinate = 0.0


class Gaussian(Strict):
    """A Gaussian: its standard deviation in pixels."""

    sigma: Width | tuple[Width, Width]
    angle: Coordinate = 0.0


class Defocus(Strict):
    """A disc: its radius in pixels."""

    radius: Width


class Kernel(Strict):
    """One kernel, in the words of a blur file. `kernel` names a file of the project."""

    motion: Motion | None = None
    gaussian: Gaussian | None = None
    defocus: Defocus | None = None
    kernel: Name | None = None

    @model_validator(mode="after")
    def _one(self) -> Kernel:
        if len(self.entry()) != 1:
            raise ValueError("give one of motion, gaussian, defocus and kernel")
        return self

    def entry(self) -> dict[str, Any]:
        """As a blur file holds it."""
        return self.model_dump(exclude_none=True, exclude_defaults=False)


class Stroke(Strict):
    """A stroke of the brush, in pixels of the picture; it paints, or erases what was painted."""

    radius: Annotated[float, Field(gt=0, le=1e4)]
    points: Annotated[list[Point], Field(min_length=1, max_length=20_000)]
    erase: bool = False


class Region(Strict):
    """A part of the picture with a kernel of its own."""

    polygon: Annotated[list[Point], Field(min_length=3, max_length=100)] | None = None
    rectangle: tuple[Coordinate, Coordinate, Coordinate, Coordinate] | None = None
    mask: Name | None = None
    strokes: Annotated[list[Stroke], Field(max_length=500)] | None = None
    kernel: Kernel

    @model_validator(mode="after")
    def _one_shape(self) -> Region:
        painted = self.mask is not None or self.strokes is not None
        if (self.polygon is not None) + (self.rectangle is not None) + painted != 1:
            raise ValueError("give one shape: a polygon, a rectangle, or a mask with strokes")
        return self


class Sketch(Strict):
    """A blur: a background with regions over it, or one file that says it all."""

    background: Kernel | None = None
    regions: Annotated[list[Region], Field(max_length=40)] = []
    feather: Annotated[float, Field(ge=0, le=500)] = 6.0
    file: Name | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing was said yet."""
        return self.background is None and not self.regions and self.file is None


class Settings(Strict):
    """How to restore; the names are those of `restore`, but for `quality`."""

    strength: Annotated[float, Field(ge=0.1, le=10)] = 1.0
    noise: Literal["auto"] | Annotated[float, Field(gt=0, lt=255)] = "auto"
    quality: Literal["quick", "standard", "best"] = "standard"
    linear: bool = False

    def options(self) -> dict[str, Any]:
        """The fields of a job."""
        chosen: dict[str, Any] = {"strength": self.strength, "noise": self.noise, "linear": self.linear}
        if self.quality == "quick":
            chosen["iterations"] = 4
        if self.quality == "best":
            chosen["denoiser"] = "drunet-exact"
        return chosen


class Box(Strict):
    """A rectangle of the picture, in its pixels."""

    left: Annotated[int, Field(ge=0)]
    top: Annotated[int, Field(ge=0)]
    width: Annotated[int, Field(ge=16, le=512)] = 256
    height: Annotated[int, Field(ge=16, le=512)] = 256


class PreviewOrder(Strict):
    """What to restore now."""

    box: Box
    sketch: Sketch
    settings: Settings = Settings()


class RunOrder(Strict):
    """What to restore in the queue; without them the project's own sketch and settings."""

    sketch: Sketch | None = None
    settings: Settings | None = None


class StarOrder(Strict):
    """A star or a bead that was clicked, and the side of the square round it."""

    x: Annotated[float, Field(ge=0)]
    y: Annotated[float, Field(ge=0)]
    size: Annotated[int, Field(ge=5, le=201)] = 31


class EstimateOrder(Strict):
    """How to find the blur: one of the ways of `GET /api/state`."""

    way: Annotated[str, Field(max_length=100)]
    linear: bool = False


class DrawnOrder(Strict):
    """A kernel that was drawn: rows of brightness, from 0 to 1, of odd sides."""

    rows: Annotated[
        list[Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(max_length=129)]], Field(max_length=129)
    ]


class LoadOrder(Strict):
    """A blur file of the project, and the files that it names: their names in it, and here."""

    file: Name
    beside: dict[str, Name] = {}
