"""Networks as CUDA graphs: all launches of a call at once, for small pictures that would wait for each of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Network: TypeAlias = Callable[[Tensor, Tensor], Tensor]

GRAPH_PIXELS = 2**19
"""Pixels beyond which launches cost nothing beside the work, and a graph would only hold memory."""
SEEN_BEFORE = 2
"""Calls of one shape before it is worth a graph: a capture costs about as much as a few calls."""
MOST_GRAPHS = 4


class GraphedNetwork:
    """`network(x, sigma)`, replayed from a CUDA graph once pictures of one shape have come a few times.

    What it returns is overwritten by the next call: copy it before. The same kernels run as without a graph.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._seen: dict[torch.Size, int] = {}
        self._graphs: OrderedDict[torch.Size, _Graph | None] = OrderedDict()

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The network's result for x (B, C, H, W) and sigma (B,) on the GPU."""
        shape = x.shape
        if x.shape[0] * x.shape[-2] * x.shape[-1] > GRAPH_PIXELS:
            return self.network(x, sigma)
        if shape not in self._graphs:
            self._seen[shape] = self._seen.get(shape, 0) + 1
            if self._seen[shape] <= SEEN_BEFORE:
                return self.network(x, sigma)
            if len(self._graphs) == MOST_GRAPHS:
                self._seen.pop(self._graphs.popitem(last=False)[0], None)
            self._graphs[shape] = _capture(self.network, x, sigma)
        self._graphs.move_to_end(shape)
        graph = self._graphs[shape]
        return self.network(x, sigma) if graph is None else graph(x, sigma)


class _Graph:
    def __init__(self, network: Network, x: Tensor, sigma: Tensor) -> None:
        self.x, self.sigma = x.clone(memory_format=torch.preserve_format), sigma.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.out = network(self.x, self.sigma)

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        self.x.copy_(x)
        self.sigma.copy_(sigma)
        self.graph.replay()
        return self.out


def _capture(network: Network, x: Tensor, sigma: Tensor) -> _Graph | None:
    try:
        return _Graph(network, x, sigma)
    except RuntimeError:  # a network that does what no graph can hold, or too little memory: as it was, then
        return None
