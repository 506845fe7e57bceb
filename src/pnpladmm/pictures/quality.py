"""What a file says of its pixels besides their values: the variance of each, and which do not count."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Quality:
    """Of a picture (pages, C, H, W); each part has this shape, or is None where the file says nothing.

    Parameters
    ----------
    variance : Tensor, optional
        Of the noise, in the numbers of the file, squared, float64.
    dead : Tensor of bool, optional
        True on pixels that do not count.
    """

    variance: Tensor | None = None
    dead: Tensor | None = None
