"""Procedures that a GPU is told once: recorded as a CUDA graph, then launched as a whole.

A step of conjugate gradient is a hundred small operations. For a single picture, and for batches of small ones, telling
the GPU of each takes longer than they take; a recorded step is told of at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import torch


class Recorded:
    """A procedure without arguments and result, on CUDA tensors that stay where they are and hold what it works on.

    The first call runs it as it is: plans of transforms are made, copies found. The second records it. Nothing in it
    may wait for the GPU, and Python's own decisions in it are taken while recording, once and for all. What it
    allocates lies in memory that all recorded procedures of a stream share: none may leave anything there for later.
    """

    def __init__(self, procedure: Callable[[], None], device: torch.device) -> None:
        self._procedure, self._device = procedure, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._was_run = self._is_too_large = False

    def __call__(self) -> None:
        """Do it."""
        if not self._was_run or self._is_too_large:
            self._procedure()
            self._was_run = True
            return
        if self._graph is None:
            try:
                with torch.cuda.device(self._device), _one_at_a_time:
                    self._graph = _studio().record(self._procedure)
            except torch.cuda.OutOfMemoryError:  # a graph needs memory of its own
                self._is_too_large = True
                self._procedure()
                return
        self._graph.replay()


class Studio:
    """Where procedures of one stream are recorded: one place in memory for all, or each would keep its own for ever."""

    def __init__(self) -> None:
        # Memory that is free again is free for the stream that had it, so it is always the same one.
        self._aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        # The place is kept as long as there is a graph that uses it.
        self._first = self.record(lambda: torch.zeros(1, device="cuda"))

    def record(self, procedure: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """As torch.cuda.graph() does, which would wait for the GPU and empty its caches."""
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._aside.wait_stream(here)
        with torch.cuda.stream(self._aside):
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                procedure()
            except BaseException:
                with suppress(RuntimeError):  # it has been given up already
                    graph.capture_end()
                raise
            graph.capture_end()
        here.wait_stream(self._aside)
        return graph


_studios: dict[tuple[int, int], Studio] = {}
_one_at_a_time = threading.Lock()


def _studio() -> Studio:
    """Of the current stream: what runs one after the other can use the same memory."""
    stream = torch.cuda.current_stream()
    key = (stream.device_index, stream.cuda_stream)
    if key not in _studios:
        _studios[key] = Studio()
    return _studios[key]
