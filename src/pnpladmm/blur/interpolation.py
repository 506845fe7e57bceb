"""Places in the picture, and linear interpolation between nodes."""

from __future__ import annotations

import numpy as np

from pnpladmm.blur.arrays import Array
from pnpladmm.tensors import InputError

FARTHEST = 1e7
"""Pixels from the picture's corner."""


def check_places(name: str, positions: Array) -> None:
    """Refuse places (N, 2) that are far from any picture."""
    far = float(np.abs(positions).max(initial=0))
    if not far <= FARTHEST:
        raise InputError(f"{name}: a place at {far:g}: give x and y in pixels, at most {FARTHEST:g}")


def hats(values: Array, nodes: Array) -> Array:
    """The share that each node has in the linear interpolation at `values`: hat functions.

    `sum_i hats_i(v) nodes_i = v` between the nodes; beyond the ends the nearest node has all. Shape (n, ...) for
    sorted `nodes` (n,) and `values` (...), float32.
    """
    if len(nodes) == 1:
        return np.ones((1, *values.shape), np.float32)
    left = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 2)
    share = ((values - nodes[left]) / (nodes[left + 1] - nodes[left])).clip(0, 1).astype(np.float32)
    result = np.zeros((len(nodes), *values.shape), np.float32)
    np.put_along_axis(result, left[None], 1 - share[None], 0)
    np.put_along_axis(result, left[None] + 1, share[None], 0)
    return result
