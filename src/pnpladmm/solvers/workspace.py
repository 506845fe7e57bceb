"""What the steps of one run keep for the next ones. It belongs to the run and is freed with it."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from pnpladmm.operators import LinearOperator
from pnpladmm.solvers.cuda_graph import RecordedDescents
from pnpladmm.solvers.data_step import NormalSystem

RECORDED_SAMPLES = 1 << 23
"""Larger batches keep a GPU busy whether or not steps are recorded: recording would only cost memory."""


class Workspace:
    """Systems of data steps with their recorded CUDA graphs, for one run on one problem.

    `solve` makes one for each run and passes it to `Method.step_in`. On a CPU it stays empty.
    """

    def __init__(self) -> None:
        self.systems: dict[Any, NormalSystem] = {}

    def system(self, operator: LinearOperator, precision: Tensor, a: Tensor, like: Tensor) -> NormalSystem:
        """The system `H^T p H + a` for pictures `like`: the one of an earlier step with this `a`, or a new one."""
        if not like.is_cuda or like.numel() > RECORDED_SAMPLES:
            return NormalSystem(operator, precision, a)
        # Two threads must not use the same memory. Tensors made in inference mode must not be changed outside it.
        key = (
            (id(operator), precision.shape, a.shape, a.dtype),
            (threading.get_ident(), torch.is_inference_mode_enabled()),
        )
        if key in self.systems:
            self.systems[key].set(a)
            return self.systems[key]
        system = NormalSystem(operator, precision, a)
        if system.recordable:
            system.prepare = RecordedDescents()
            self.systems[key] = system
        return system
