"""What a preconditioner is: an approximate inverse of `A^T p A + a`, which conjugate gradient applies in every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor


class Preconditioner(ABC):
    """`r -> M^-1 r`, symmetric positive definite, near `(A^T p A + a)^-1`. Pictures have the shape (B, C, H, W).

    `a` can be changed with `set`, so that one preconditioner serves many systems that differ in `a` only.
    """

    recordable: bool = False
    """May an application be recorded in a CUDA graph? It must then decide nothing in Python that depends on `a`, not
    wait for the GPU, and `set` must change `a` where it lies in memory."""

    @abstractmethod
    def __call__(self, r: Tensor) -> Tensor:
        """`M^-1 r`."""

    @abstractmethod
    def set(self, a: Tensor) -> None:
        """Use another `a` of the same shape."""


class FormulaPreconditioner(Preconditioner):
    """`M^-1 r = formula(r, a)`, for operators with a short formula for it."""

    def __init__(self, formula: Callable[[Tensor, Tensor], Tensor], a: Tensor) -> None:
        self.formula, self.a = formula, a

    def __call__(self, r: Tensor) -> Tensor:
        """`formula(r, a)`."""
        return self.formula(r, self.a)

    def set(self, a: Tensor) -> None:
        """Use another `a`."""
        self.a = a
