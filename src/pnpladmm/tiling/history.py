"""One history of many tiles."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from pnpladmm.solvers import History


def joined_history(histories: list[History]) -> History:
    """The largest changes of all tiles at each iteration, and the time of all together.

    Sums over the picture, such as the data fit, are left out: tiles overlap.
    """
    rows = max(len(h) for h in histories)
    changes = {"x_change", "z_change", "u_change"}
    names = {f.name for f in fields(History)} - {"seconds", "denoiser_calls", "rounding"}
    columns = {name: _largest([getattr(h, name) for h in histories], rows) for name in changes}
    seconds = torch.stack([longer(h.seconds, rows, float(h.seconds[-1]) if len(h) else 0.0) for h in histories])
    longest = max(histories, key=len)
    return replace(longest, **(dict.fromkeys(names - changes) | columns), seconds=seconds.sum(0))  # type: ignore[arg-type]


def _largest(found: list[Tensor | None], rows: int) -> Tensor | None:
    known = [longer(column, rows, -torch.inf) for column in found if column is not None]
    return torch.stack(known).amax(0) if len(known) == len(found) else None


def longer(column: Tensor, rows: int, value: float) -> Tensor:
    """A column of a history with `value` below its end, so that it has so many rows."""
    more = torch.full((rows - len(column), *column.shape[1:]), value, dtype=column.dtype)
    return torch.cat([column, more])
