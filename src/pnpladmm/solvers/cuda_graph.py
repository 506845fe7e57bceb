"""Steps of conjugate gradient recorded as CUDA graphs. All that is particular to CUDA graphs is in this file.

A step is about a hundred small operations. For a single picture, and for batches of small ones, launching each of them
takes longer than the operation itself. A graph is recorded once and then launched as a whole. `RecordedDescents` is
what a system of a run uses (`workspace.py`), `RecordedProcedure` one graph, `_Recorder` the memory that all graphs of a
stream share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from pnpladmm.solvers.conjugate_gradient import Descent, Map


class RecordedDescents:
    """Descents of one system, one for each shape of pictures, with recorded steps.

    Kept from solve to solve, each step is recorded only once. The maps are those of the first time: a system that
    changes must change the tensors that they use.
    """

    def __init__(self) -> None:
        self.descents: dict[tuple[torch.Size, bool], tuple[Descent, RecordedProcedure]] = {}

    def __call__(
        self, apply: Map, precondition: Map | None, like: Tensor, by_channel: bool
    ) -> tuple[Descent, Callable[[], None]]:
        """Return the descent for pictures of the shape of `like`, and its recorded step."""
        key = (like.shape, by_channel)
        if key not in self.descents:
            descent = Descent(apply, precondition, like, by_channel)
            self.descents[key] = descent, RecordedProcedure(descent.step, like.device)
        return self.descents[key]


class RecordedProcedure:
    """A procedure without arguments and result, on CUDA tensors that stay where they lie in memory.

    The first call runs it as it is: plans of transforms are made, tensors are copied to the device. The second call
    records it. Nothing in it may wait for the GPU. Decisions that it takes in Python are taken while recording and
    never again. What it allocates lies in memory that all recorded procedures of a stream share: none may leave
    anything there for later.
    """

    def __init__(self, procedure: Callable[[], None], device: torch.device) -> None:
        self._procedure, self._device = procedure, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._was_run = self._is_too_large = False

    @property
    def is_recorded(self) -> bool:
        """Does the next call launch a graph?"""
        return self._graph is not None

    def __call__(self) -> None:
        """Run the procedure."""
        if not self._was_run or self._is_too_large:
            self._procedure()
            self._was_run = True
            return
        if self._graph is None:
            try:
                with torch.cuda.device(self._device), _one_at_a_time:
                    self._graph = _recorder().record(self._procedure)
            except torch.cuda.OutOfMemoryError:  # a graph needs memory of its own
                self._is_too_large = True
                self._procedure()
                return
        self._graph.replay()


class _Recorder:
    """Records the procedures of one stream into one pool of memory; separate pools would never be freed."""

    def __init__(self) -> None:
        # Freed memory can be used again only by the stream that freed it: so this is always the same stream.
        self._aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        # The pool lives as long as there is a graph that uses it.
        self._first = self.record(lambda: torch.zeros(1, device="cuda"))

    def record(self, procedure: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Record as `torch.cuda.graph()` does, but without waiting for the GPU and emptying its caches."""
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._aside.wait_stream(here)
        with torch.cuda.stream(self._aside):
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                procedure()
            except BaseException:
                with suppress(RuntimeError):  # the capture has been given up already
                    graph.capture_end()
                raise
            graph.capture_end()
        here.wait_stream(self._aside)
        return graph


_recorders: dict[tuple[int, int], _Recorder] = {}
_one_at_a_time = threading.Lock()


def _recorder() -> _Recorder:
    """The recorder of the current stream: procedures that run one after the other can use the same memory."""
    stream = torch.cuda.current_stream()
    key = (stream.device_index, stream.cuda_stream)
    if key not in _recorders:
        _recorders[key] = _Recorder()
    return _recorders[key]
