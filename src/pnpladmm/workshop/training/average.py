"""A running average of a network's weights, which denoises better than the last weights."""

from __future__ import annotations

from copy import deepcopy

from torch.optim.swa_utils import get_ema_multi_avg_fn

from pnpladmm.denoisers.architecture import Network


class WeightAverage:
    """Exponential moving average of a network's weights.

    torch's `AveragedModel` keeps its count of steps in a tensor and waits for the GPU at each step to read it. Here
    the caller gives the count.

    Parameters
    ----------
    network : Network
        The network in training. Its weights must stay the same tensors, as optimizers and `load_state_dict` leave them.
    decay : float
        Weight of the earlier steps, below 1. The first steps have a smaller decay, so that they are soon forgotten.
    """

    def __init__(self, network: Network, decay: float) -> None:
        self.network: Network = deepcopy(network)
        """The network with the averaged weights."""
        self.decay = decay
        # Listed once: the steps of a small network are short.
        self._averaged = list(self.network.state_dict().values())
        self._current = list(network.state_dict().values())

    def update(self, step: int) -> None:
        """Add the weights after `step` steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(self._averaged, self._current, step)  # type: ignore[no-untyped-call]
