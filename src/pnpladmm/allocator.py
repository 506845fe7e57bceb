"""Reuse of freed memory, for programs that work on large pictures on a CPU."""

from __future__ import annotations

import ctypes
import sys

# Numbers of parameters in glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def give_back() -> None:
    """Give memory that is free at this moment back to the system, where a large work begins that needs little."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def keep_memory() -> bool:
    """Keep freed memory for the next picture instead of giving it back to the system.

    For programs that restore large pictures on a CPU. glibc gives blocks above 32 MB back as soon as they are freed,
    and the system zeroes the next one page by page: a fifth of the time at 2048x2048. The process then keeps until its
    end what it held at its peak, which is why commands do this and the library leaves it to you. Only the main thread
    gains: the heaps of other threads are too small for large blocks.

    Returns
    -------
    bool
        Whether the allocator of this system took the orders. Only glibc's does.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> pl.keep_memory() in (True, False)
    True
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # none in musl
    return mallopt is not None and mallopt(MMAP_MAX, 0) == mallopt(TRIM_THRESHOLD, -1) == 1
