"""Procedures that a GPU is told once: recorded as a CUDA graph, then launched as a whole.

A step of conjugate gradient is a hundred small operations. For a single picture, and for batches of small ones, telling
the GPU of each takes longer than they take; a recorded step is told of at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Recorded:
    """A procedure without arguments and result, on CUDA tensors that stay where they are and hold what it works on.

    The first call runs it as it is: plans of transforms are made, copies found. The second records it. Nothing in it
    may wait for the GPU, and Python's own decisions in it are taken while recording, once and for all.
    """

    def __init__(self, procedure: Callable[[], None], device: torch.device, pool: Any = None) -> None:
        """`pool`: memory that several of them share, which is safe where they leave nothing of it to each other."""
        self._procedure, self._device, self._pool = procedure, device, pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._was_run = False

    def __call__(self) -> None:
        """Do it."""
        if not self._was_run:
            self._was_run = True
            self._procedure()
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                # torch.cuda.graph() would wait for the GPU, and empty its caches.
                graph.capture_begin(self._pool or torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
                try:
                    self._procedure()
                finally:
                    graph.capture_end()
            here.wait_stream(aside)
        return graph
