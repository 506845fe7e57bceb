"""A bare array: its axes and the options tell which form of a blur it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pnpladmm.blur.arrays import Array, check_numbers
from pnpladmm.blur.conditioning import same_size
from pnpladmm.blur.forms.bank import kernel_bank
from pnpladmm.blur.forms.kernel import has_colours_last, single_kernel
from pnpladmm.blur.forms.maps import vector_map, width_map
from pnpladmm.blur.forms.places import psfs_at, read_positions
from pnpladmm.blur.model import Blur
from pnpladmm.blur.options import Options
from pnpladmm.tensors import InputError


def from_array(name: str, array: Array, options: Options) -> Blur:
    """The blur of a map (`kind`), PSFs (`positions`), a bank (`labels`), one of a bank (`index`), or one kernel."""
    if options.kind == "motion":
        return vector_map(name, array, options)
    if options.kind is not None:
        return width_map(name, array, options.kind, options)
    if options.positions is not None and options.labels is not None:
        raise InputError(f"{name}: labels and positions both say where kernels act: give one of them")
    if options.positions is not None:
        places, notes = read_positions(options.positions)
        return psfs_at(name, array, places, options).noted(*notes)
    if options.labels is not None:
        return kernel_bank(name, array, options)
    if array.ndim == 3 and array.shape[0] == array.shape[1] and array.shape[2] == 1 and options.index is None:
        array = array[..., 0]  # (k, k, 1), a grey picture of a kernel
    stack = array.ndim == 4
    if array.ndim >= 3 and not has_colours_last(array):
        array = _chosen(name, array, options)
    return single_kernel(name, array, options, with_alpha=not stack)


def stacked(name: str, kernels: Iterable[Any], options: Options) -> tuple[Array, Options]:
    """Kernels (k, k), (k, k, 3) or (C, k, k) that may differ in size (MATLAB's cells, a list) as one array.

    Where the options choose one of them (`index`) it is that one alone, so that it keeps its size.
    """
    found = [check_numbers(f"{name}: kernel {i}", kernel) for i, kernel in enumerate(kernels)]
    found = [np.moveaxis(kernel, -1, 0) if has_colours_last(kernel) else kernel for kernel in found]
    if options.index is not None and 0 <= options.index < len(found):
        return found[options.index][None], options.but(index=0)
    bank = same_size(found)
    return bank[:, 0] if bank.shape[1] == 1 else bank, options


def _chosen(name: str, array: Array, options: Options) -> Array:
    count = len(array)
    if options.index is None and count > 1:
        colours = "; a kernel for each of 3 colours is (k, k, 3)" if count == 3 and array.ndim == 3 else ""
        raise InputError(
            f"{name}: holds {count} kernels: say where each acts (labels: a map; positions: x, y of each), "
            f"or choose one (index 0 to {count - 1}){colours}"
        )
    index = options.index or 0
    if index >= count or index < 0:
        raise InputError(f"{name}: kernel {index}: there are {count}, counted from 0")
    chosen: Array = array[index]
    if chosen.ndim == 3:  # (C, k, k)
        chosen = np.moveaxis(chosen, 0, -1)
    return chosen
