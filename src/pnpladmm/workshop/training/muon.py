"""Muon: the momentum of each matrix is made orthogonal before each step (Jordan et al., 2024).

A convolution is the matrix W (outputs, inputs * kernel). With the gradient G and momentum M,

    M <- mu M + G,        W <- W - rate * orthogonal(G + mu M),

where orthogonal(A) = U V^T for A = U S V^T. All directions of a layer change equally, and `rate` is the spectral norm
of the change, whatever the layer's width. AdamW changes each number by about `rate` instead; in wide layers such a step
can have a larger spectral norm than the weights.

`torch.optim.Muon` needs torch 2.9 (this package runs with 2.6) and takes matrices only, not the filters of
convolutions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Jordan's coefficients: A s + B s^3 + C s^5, applied five times, takes singular values of 0.002 to 1 close to 1.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """For weights that are matrices or filters; `lr` is the spectral norm of a step.

    The weight decay takes the share `lr * weight_decay` of the weights at each step.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closures here
        """Change every weight that has a gradient."""
        for group in self.param_groups:
            for parameters in _alike(group["params"]):
                self._move(parameters, group)

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """One step of the weights of one shape, whose matrices are multiplied as one batch."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
        momenta = [self.state[parameter]["exp_avg"] for parameter in parameters]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, gradients)
        ahead = torch._foreach_add(gradients, momenta, alpha=group["momentum"])
        steps = orthogonal(torch.stack([one.flatten(1) for one in ahead]))
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(
            parameters, [s.view(p.shape) for s, p in zip(steps, parameters, strict=True)], alpha=-group["lr"]
        )


def orthogonal(matrices: Tensor) -> Tensor:
    """About U V^T for each of the matrices U S V^T (n, rows, columns), with singular values between 0.7 and 1.2.

    Those below 0.002 of the Frobenius norm stay smaller. Newton-Schulz iterations need products only, and are fast in
    bfloat16 on GPUs.
    """
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-20)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x if wide else x.mT).to(matrices.dtype)


def _alike(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """Weights that have a gradient, grouped by shape."""
    groups: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            groups[parameter.shape].append(parameter)
    return list(groups.values())
