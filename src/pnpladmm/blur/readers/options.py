"""What a person may say about a blur file beyond its name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from pnpladmm.operators.blur import Order
from pnpladmm.tensors import InputError

Kind: TypeAlias = Literal["gaussian", "defocus", "motion"]
Size: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Options:
    """How to read a blur. Everything has a default; `notes` of the blur say what came of it.

    size : (H, W) of the picture. Models that are defined on any field need it; maps must match it.
    labels : a label map (PNG, TIFF or NPY of whole numbers) that says which kernel of a bank acts where.
    positions : a CSV with columns x, y (pixels, from 0, x along columns): where each PSF of a stack was seen.
    kind : the file is a map, one value a pixel: `gaussian` (standard deviation), `defocus` (radius), `motion`
        (vector x, y), all in pixels.
    index : which kernel of a bank, or which chip of a PSFEx file, counted from 0.
    feather : how many pixels wide the seams between regions are.
    order : `convolve-then-weight` or `weight-then-convolve`; each format has its own default.
    normalise, recentre, background : see `conditioning.condition`.
    oversampling : samples a detector pixel of the PSFs in the file, or (y, x).
    tolerance : relative error that a low rank or a quantisation may cost.
    most : at most so many kernels for a low rank or a quantisation (32 if not said; 64 for motion).
    """

    size: Size | None = None
    labels: Path | None = None
    positions: Path | None = None
    kind: Kind | None = None
    index: int | None = None
    feather: float | None = None
    order: Order | None = None
    normalise: bool = True
    recentre: bool = False
    background: float | str | None = None
    oversampling: float | tuple[float, float] | None = None
    tolerance: float = 0.01
    most: int | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in get_args(Kind):
            raise InputError(f"kind {self.kind!r}: choose one of {', '.join(get_args(Kind))}")
        if self.order is not None and self.order not in get_args(Order):
            raise InputError(f"order {self.order!r}: choose one of {', '.join(get_args(Order))}")
        for name in ("feather", "tolerance", "most"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and 0 <= value < 1e6):
                raise InputError(f"{name} {value!r}: give a number of 0 or more")
        if self.most is not None and self.most < 1:
            raise InputError(f"most {self.most!r}: at least one kernel is needed")
        if self.size is not None:
            size = tuple(int(n) for n in self.size)
            if len(size) != 2 or min(size) < 1:
                raise InputError(f"size {self.size!r}: give the picture's (height, width)")
            object.__setattr__(self, "size", size)
        for name in ("labels", "positions"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, Path(getattr(self, name)))

    def factors(self) -> tuple[float, float] | None:
        """Oversampling as (y, x); None if the file's PSFs are sampled once a pixel."""
        if self.oversampling is None:
            return None
        pair = self.oversampling if isinstance(self.oversampling, tuple | list) else (self.oversampling,) * 2
        if len(pair) != 2 or not all(_number(f) and f >= 1 for f in pair):
            raise InputError(f"oversampling {self.oversampling!r}: give a number of 1 or more, or two (y, x)")
        return float(pair[0]), float(pair[1])

    def needed_size(self, name: str, what: str) -> Size:
        """The picture's size, for a model that is defined on any field."""
        if self.size is None:
            raise InputError(f"{name}: {what} fits any picture: give the picture's size (height, width)")
        return self.size

    def matching_size(self, name: str, what: str, size: Size) -> None:
        """Refuse a file that was made for a picture of another size."""
        if self.size is not None and self.size != size:
            raise InputError(
                f"{name}: {what} are {size[0]}x{size[1]}, the picture is {self.size[0]}x{self.size[1]}: they must match"
            )

    def but(self, **changes: Any) -> Options:
        """The same with other values."""
        return dataclasses.replace(self, **changes)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
