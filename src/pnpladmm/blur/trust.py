"""How far an estimated blur is to be trusted: what `estimate_blur` puts beside the kernels."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.gate import parse_json
from pnpladmm.tensors import InputError


@dataclass(frozen=True)
class Table:
    """Rows of numbers and words for a CSV file and the report, such as the stars with the reasons."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Where an estimated blur comes from, and how far to trust it.

    Parameters
    ----------
    way : str
        The way it was found: "points", "sharp", "edges", "blind" ...
    residual : float, optional
        What the blur leaves unexplained, relative to the noise: 1 if the residual is noise alone. None where the way
        cannot say.
    agreement : float, optional
        How much the PSF of a place differs from what the other places say about it: relative l2 error, 0 is perfect.
    places : array (N, 2)
        Where the PSF was looked at, as x, y in pixels from 0.
    confidence : array (N,)
        For each place from 0 (taken from its neighbours) to 1 (well determined).
    warnings : tuple of str
        What the picture does not determine, one sentence each.
    tables, figures : mappings
        Tables by name and drawings (PNG) by caption, for the report; they are not kept in blur files.

    Examples
    --------
    >>> found = Estimate("points", residual=1.02, agreement=0.01)
    >>> Estimate.from_text(found.to_text()).residual
    1.02
    """

    way: str
    residual: float | None = None
    agreement: float | None = None
    places: Array = field(default_factory=lambda: np.zeros((0, 2)))
    confidence: Array = field(default_factory=lambda: np.zeros(0))
    warnings: tuple[str, ...] = ()
    tables: Mapping[str, Table] = field(default_factory=dict, repr=False)
    figures: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        places = np.asarray(self.places, dtype=np.float64).reshape(-1, 2)
        confidence = np.asarray(self.confidence, dtype=np.float64).reshape(-1)
        if len(places) != len(confidence):
            raise InputError(f"estimate: {len(places)} places, {len(confidence)} confidences: they must match")
        if len(confidence) and not (np.isfinite(places).all() and confidence.min() >= 0 and confidence.max() <= 1):
            raise InputError("estimate: places must be finite and confidences from 0 to 1")
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "confidence", confidence)
        object.__setattr__(self, "warnings", tuple(str(w) for w in self.warnings))

    def to_text(self) -> str:
        """The record without tables and figures, as JSON."""
        return json.dumps(
            {
                "way": self.way,
                "residual": _finite(self.residual),
                "agreement": _finite(self.agreement),
                "places": self.places.tolist(),
                "confidence": self.confidence.tolist(),
                "warnings": list(self.warnings),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Estimate:
        """The record that `to_text` wrote."""
        try:
            values = parse_json("estimate", text, "what write_blur writes")
            return cls(
                str(values["way"]),
                _number(values["residual"]),
                _number(values["agreement"]),
                np.asarray(values["places"], dtype=np.float64),
                np.asarray(values["confidence"], dtype=np.float64),
                tuple(values["warnings"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise InputError(f"estimate: not what write_blur writes ({type(error).__name__}: {error})") from None

    def sentence(self) -> str:
        """One line on where the blur comes from, for notes."""
        words = f"estimated ({self.way})"
        if self.residual is not None:
            words += f", residual {self.residual:.2f} of the noise"
        if self.agreement is not None:
            words += f", neighbouring places differ by {100 * self.agreement:.2g} %"
        return words


def check_uncertainty(value: Any) -> float | None:
    """A relative l2 error of the PSF, or None if nothing is known about it."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise InputError(f"uncertainty = {number:g}: give the relative l2 error of the PSF, 0 or more")
    return number


def _finite(value: float | None) -> float | None:
    """JSON has no other numbers."""
    return None if value is None or not math.isfinite(value) else float(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
