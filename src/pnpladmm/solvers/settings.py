"""Settings that suit a noise level: tuned at a few levels (settings.json), interpolated between them.

The table holds parameters at noise levels of 1, 10, 20 and 40 of 255 for each method of a denoiser, as
`pnpladmm experiment tune` found them. A denoiser without parameters of its own has those of `FALLBACK`. How each entry
was found is in docs/reference/results.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from pnpladmm.denoisers.base import Promise, name_of, promise_of, settings_of, weight_of
from pnpladmm.gate import parse_json, read_text
from pnpladmm.tensors import InputError

FILE = Path(__file__).with_name("settings.json")
LARGEST = 1 << 22
"""Bytes of a table."""
Row: TypeAlias = dict[str, float]
Levels: TypeAlias = dict[float, Row]
"""Noise level (of 255) -> parameters."""
Table: TypeAlias = dict[str, dict[str, Levels]]
"""Denoiser -> method -> noise level -> parameters."""

NOISE_LEVELS = ("sigma_d", "sigma_start")
"""Parameters that are noise levels: of 255 in the table, and proportional to the noise below its first level."""
NEUTRAL = {"bend": 1.0, "extrapolation": 0.0, "tilt": 1.0}
"""The value of a parameter in rows that leave it out while other rows have it: the default of the method."""
FAST_CALLS = (4, 8, 24)
"""The numbers of denoiser calls that the annealed method was tuned for."""
FALLBACK = "drunet"
"""The denoiser of the table whose parameters others have, for the methods that they have no parameters for."""
GRADIENT_STEP_FALLBACK = "prox-drunet"
"""The denoiser whose parameters gradient steps have that are not in the table; it comes before `FALLBACK`."""
TV_WEIGHT = 6.0
"""`lambda f = TV_WEIGHT TV(x)` for total variation at any noise level: `h` carries the 1/sigma^2."""


def convex_weight(denoiser: object) -> float:
    """`lambda` for a convex prior: with it `lambda f = TV_WEIGHT TV(x)` for total variation of any weight."""
    return TV_WEIGHT / weight_of(denoiser)


def read_settings(path: Path) -> Table:
    """The table of a file; an error of one line if it is not one."""
    what = "a table of settings {denoiser: {method: {noise: {name: number}}}}"
    content = parse_json(str(path), read_text(path, LARGEST, what), what)
    try:
        return {
            denoiser: {
                method: {
                    float(level): {key: _number(value) for key, value in row.items()} for level, row in rows.items()
                }
                for method, rows in methods.items()
            }
            for denoiser, methods in content.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise InputError(f"{path}: not {what}") from None


def _number(value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return float(value)


@cache
def shipped_settings() -> Table:
    """The table that comes with the package."""
    return read_settings(FILE)


def tuned(denoiser: object, method: str, sigma: Tensor) -> dict[str, Tensor]:
    """The parameters of a method, each (B,) on the CPU, at noise `sigma` (B,). All noise levels are in [0, 1]."""
    table = shipped_settings()
    levels = rows_of(table, name_of(denoiser), denoiser)[method]
    rows = [at_noise(levels, 255 * float(level)) for level in sigma.reshape(-1)]
    units = {name: 255.0 if name in NOISE_LEVELS else 1.0 for name in rows[0]}
    return {name: torch.tensor([row[name] / unit for row in rows], dtype=torch.float64) for name, unit in units.items()}


def rows_of(table: Table, name: str, denoiser: object) -> dict[str, Levels]:
    """The methods of a denoiser: those of the table, else those that came with it, else those of `FALLBACK`.

    Gradient steps that are not in the table have those of `GRADIENT_STEP_FALLBACK`.
    """
    if name not in table and promise_of(denoiser) is Promise.GRADIENT_STEP:
        name = GRADIENT_STEP_FALLBACK
    own = {**settings_of(denoiser), **table.get(name, {})}
    # `ladmm:sr2` of another denoiser does not come before this one's `ladmm`.
    rest = {method: rows for method, rows in table.get(FALLBACK, {}).items() if method.partition(":")[0] not in own}
    return {**rest, **own}


def tuned_fast(denoiser: object, calls: int, sigma: Tensor) -> dict[str, Tensor]:
    """The annealed method's parameters for a number of calls, interpolated between the tuned numbers of calls.

    A network that was trained in the loop has parameters for the calls that it was trained with, and for no others.
    """
    own = sorted(int(key.removeprefix("fast-")) for key in settings_of(denoiser) if key.startswith("fast-"))
    known = own or FAST_CALLS
    if calls in own or (not own and f"fast-{calls}" in rows_of(shipped_settings(), name_of(denoiser), denoiser)):
        return tuned(denoiser, f"fast-{calls}", sigma)
    low = max((n for n in known if n <= calls), default=known[0])
    high = min((n for n in known if n >= calls), default=known[-1])
    few, many = (tuned(denoiser, f"fast-{n}", sigma) for n in (low, high))
    share = math.log(calls / low) / math.log(high / low) if low < high else 0.0
    pairs = (_completed([a, b]) for a, b in zip(_by_picture(few), _by_picture(many), strict=True))
    rows = [_mixed(a, b, share) for a, b in pairs]
    return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}


def at_noise(levels: Mapping[float, Row], noise: float) -> Row:
    """A row for a noise level (of 255), interpolated between its neighbours, constant beyond the last level.

    Below the first level noise levels scale with the noise, because a network without biases is homogeneous.
    """
    known = sorted(levels)
    levels = dict(zip(known, _completed([levels[level] for level in known]), strict=True))
    if noise <= known[0]:
        first = levels[known[0]]
        return {name: v * noise / known[0] if name in NOISE_LEVELS else v for name, v in first.items()}
    if noise >= known[-1]:
        return dict(levels[known[-1]])
    low = max(n for n in known if n <= noise)
    high = min(n for n in known if n > noise)
    share = math.log(noise / low) / math.log(high / low)
    return _mixed(levels[low], levels[high], share)


def _completed(rows: list[Row]) -> list[Row]:
    """The rows, completed to the same parameters: a parameter that only some rows have is neutral in the others."""
    names = dict.fromkeys(name for row in rows for name in row)
    lost = next((name for name in names if name not in NEUTRAL and any(name not in row for row in rows)), None)
    if lost is not None:
        raise InputError(f"settings: {lost} is in some rows of a method and not in others: give it in every row")
    return [{name: row[name] if name in row else NEUTRAL[name] for name in names} for row in rows]


def _by_picture(settings: Mapping[str, Tensor]) -> list[Row]:
    """A row for each picture from parameters that are (B,)."""
    columns = [values.tolist() for values in settings.values()]
    return [dict(zip(settings, values, strict=True)) for values in zip(*columns, strict=True)]


def _mixed(a: Row, b: Row, share: float) -> Row:
    """The row between two rows with the same parameters; a share of 0 gives the first row, 1 the second."""
    return {name: _between(value, b[name], share) for name, value in a.items()}


def _between(a: float, b: float, share: float) -> float:
    """Interpolate linearly in the logarithms, or in the numbers themselves if one of them is 0."""
    return a ** (1 - share) * b**share if a > 0 and b > 0 else (1 - share) * a + share * b
