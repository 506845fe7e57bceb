"""Memory that is freed and asked for again, in programs that work on large pictures on a CPU."""

from __future__ import annotations

import ctypes
import sys

# Numbers of parameters in glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def keep_memory() -> bool:
    """Keep freed memory for the next picture instead of giving it back to the system.

    glibc gives blocks above 32 MB back as soon as they are freed, and the system zeroes the next one page by page. The
    widest maps of `light` are that large from 700x700 pixels on, and each is freed within a call: a fifth of the time
    at 2048x2048 (docs/speed.md). What the process held at its peak it then holds until it ends, which is why
    commands do this and the library leaves it to you. It serves work in the main thread: other threads have heaps
    of their own, too small for large blocks.

    Returns whether this system's allocator took the orders (only glibc's does).
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # none in musl
    return mallopt is not None and mallopt(MMAP_MAX, 0) == mallopt(TRIM_THRESHOLD, -1) == 1
