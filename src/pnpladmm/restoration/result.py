"""What `restore` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur import Blur
from pnpladmm.operators import LinearOperator
from pnpladmm.pictures import Picture, Written, write_picture
from pnpladmm.pictures.arrays import Array
from pnpladmm.restoration.noise import ResidualCheck
from pnpladmm.restoration.noise_model import NoiseModel
from pnpladmm.solvers import Certificate, History, Level, Problem, Result, Status
from pnpladmm.tensors import InputError, one_line
from pnpladmm.tiling.history import longer

MEANT = {
    "numpy": "numpy.asarray(result)",
    "array": "numpy.asarray(result)",
    "data": "numpy.asarray(result)",
    "sigma": "result.noise",
    "write": "result.save(path)",
    "show": "result in a notebook, or result.save(path)",
}


@dataclass(frozen=True, repr=False, eq=False)
class Restoration(Result):
    """A restored picture with what was assumed on the way to it.

    `image` is (B, C, H, W) on the picture's own domain, in [0, 1] as the methods see it. `numpy.asarray` of the
    result has the axes, the type and the range of numbers that the picture was given with: a `uint8` array of shape
    (H, W, 3) comes back as one. Alpha of a file or PIL picture is the last channel. `save` writes it with the depth
    and the metadata of the file that was given.
    `method`, `state` and `problem` are those of the first page, where a file has several. A method that was chosen by
    its name works on a scale of its own, from dark to bright; of its variables `state` then holds `x` alone, in the
    numbers of `problem`.

    Attributes
    ----------
    noise : Tensor
        Noise level of each picture, (B,), given or estimated, for pictures in [0, 1]; of a noise map the median.
    noise_model : NoiseModel
        The parts of that noise: the sensor's, JPEG errors, errors of the PSF; in the picture as it was given, also
        where `noise` is that of linear light.
    checks : tuple of ResidualCheck
        Does the residual look like that noise? One per picture.
    warnings : tuple of str
        What went wrong, one sentence each: first how a failed run ended, then what the checks found.
    notes : tuple of str
        What was estimated or left out, one sentence each.
    problem : Problem
        What was solved.
    picture : Picture
        The restored picture, with everything else that the file held.

    Examples
    --------
    >>> import numpy as np, pnpladmm as pl
    >>> result = pl.restore(np.eye(16) / 2, np.ones((3, 3)), noise=0.02, denoiser="tv", iterations=3)
    >>> np.asarray(result).shape, float(result.noise)
    ((16, 16), 0.02)
    """

    noise: Tensor
    noise_model: NoiseModel
    checks: tuple[ResidualCheck, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    problem: Problem
    picture: Picture
    before: Picture
    """The picture as it was given."""
    blur: Blur | LinearOperator
    """The blur as it was used; an operator where one was given."""
    rebuild: Callable[[Array], Any] | None = None
    """From the restored array to the kind of thing that was given; None for files and pictures."""

    def like_input(self) -> Any:
        """The restored picture as what was given.

        Returns
        -------
        array, tensor, masked array, DataArray, NDData, CCDData or Picture
            With the axes, the type and the range of numbers that were given. A DataArray keeps its dimensions,
            coordinates and attributes; NDData and CCDData keep mask, uncertainty, WCS, unit and meta. For files and
            PIL pictures it is a `Picture`.

        Examples
        --------
        >>> import torch, pnpladmm as pl
        >>> given = torch.eye(16) / 2
        >>> pl.restore(given, torch.ones(3, 3), noise=0.02, denoiser="tv", iterations=3).like_input().dtype
        torch.float32
        """
        return self.picture if self.rebuild is None else self.rebuild(np.asarray(self))

    def save(self, path: str | PathLike[str], allow_loss: bool | None = None) -> Written:
        """Write the picture in the format that the suffix names.

        Parameters
        ----------
        path : path
            PNG, JPEG, TIFF, FITS, NPY, WebP, AVIF, HEIC or BMP.
        allow_loss : bool, optional
            Whether a format that cannot hold the depth or the alpha channel may leave them out. By default it may for
            pictures that were given as arrays, and may not for files.

        Returns
        -------
        Written
            The format, the depth, how many samples were clipped, and notes.

        Raises
        ------
        InputError
            Where the run of a picture failed (`status.failed`), or `write_picture` refuses; nothing is written.
        """
        if self.status.failed:
            raise InputError(f"{self.before.name}: {self.status.sentence}")
        metadata = replace(self.picture.metadata, history=self._history())
        picture = replace(self.picture, metadata=metadata)
        return write_picture(path, picture, not self.before.format if allow_loss is None else allow_loss)

    if not TYPE_CHECKING:  # type checkers know better what exists

        def __getattr__(self, name: str) -> Any:
            """Only for names that do not exist: some are guessed often, and told what to write."""
            hint = f": write {MEANT[name]}" if name in MEANT else ""
            raise AttributeError(f"a Restoration has no attribute {name!r}{hint}")

    def _history(self) -> tuple[str, ...]:
        """What was done, for formats that keep a record."""
        blur = self.blur.source if isinstance(self.blur, Blur) else repr(self.blur)
        lines = [
            f"restored by pnpladmm {version('pnpladmm')}, method {self.method.name}, {len(self.history)} iterations",
            f"blur: {blur}",
            f"noise {float(self.noise_model.level[0]) * self.before.scale:.4g} in the numbers of the file "
            f"({self.noise_model.source})",
        ]
        quality = self.before.quality
        if quality is not None and quality.variance is not None:
            lines.append("errors beside the picture are those before the restoration, which correlates neighbours")
        return tuple(one_line(line) for line in lines)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The picture in the axes, type and range that it was given in."""
        array = self.picture.to_array()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        """One line."""
        pages, channels, height, width = self.image.shape
        size = f"{pages} x " * (pages > 1) + f"{height}x{width}" + f"x{channels}" * (channels > 1)
        noise = ", ".join(f"{255 * float(level):.3g}" for level in self.noise[:3]) + ", ..." * (len(self.noise) > 3)
        count = len(self.warnings)
        warned = f", {count} warning{'s' * (count > 1)}" if count else ""
        name = self.method.name
        rows = len(self.history)
        ended = f"{self.status.label} after {rows} iteration{'s' * (rows != 1)}"
        return f"Restoration({size}, {name}: {ended}, noise {noise} of 255{warned})"


def joined(results: list[Result], images: Tensor, left_out: int) -> dict[str, Any]:
    """The fields of one result for pages that were restored one after the other; the last `left_out` were not."""
    stopped = Certificate(Level.OUTSIDE, "the run was stopped before this page", ())
    first = {f.name: getattr(results[0], f.name) for f in fields(Result)}
    if len(results) == 1 and not left_out:
        return first | {"image": images}
    return first | {
        "image": images,
        "statuses": tuple(s for r in results for s in r.statuses) + left_out * (Status.STOPPED,),
        "certificates": tuple(c for r in results for c in r.certificates) + left_out * (stopped,),
        "history": _histories([r.history for r in results], left_out),
    }


def put_together(pages: list[Tensor]) -> Tensor:
    """The pages in one tensor, without a copy where there is one part only."""
    parts = [part for part in pages if len(part)]
    return parts[0] if len(parts) == 1 else torch.cat(pages)


def _histories(histories: list[History], left_out: int) -> History:
    """The histories side by side, NaN after the end of a page; the time is the sum over all pages."""
    rows = max(len(h) for h in histories)

    def column(name: str) -> Tensor | None:
        found = [getattr(h, name) for h in histories]
        if any(c is None for c in found):
            return None
        empty = torch.full((rows, left_out), torch.nan, dtype=torch.float64)
        return torch.cat([*(longer(c.double(), rows, torch.nan) for c in found), empty], 1)

    names = [f.name for f in fields(History) if f.name not in ("seconds", "denoiser_calls", "rounding")]
    columns: Any = {name: column(name) for name in names}  # by name, so no type to check
    seconds = [longer(h.seconds, rows, float(h.seconds[-1]) if len(h) else 0.0) for h in histories]
    longest = max(histories, key=len)
    return replace(longest, **columns, seconds=torch.stack(seconds).sum(0))
