"""Linear maps between batches of pictures, with exact adjoints.

An operator maps pictures (B, C, H, W) to measurements (B, C, H', W'). It knows tensors only: dtype and
device are those of what it is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pnpladmm.operators.norm import NormBound, bound_norm_squared
from pnpladmm.operators.preconditioning import FormulaPreconditioner, Preconditioner
from pnpladmm.tensors import InputError, squared_norm, type_words

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator as ScipyOperator

Shape: TypeAlias = tuple[int, int, int, int]
"""(B, C, H, W)."""


class LinearOperator(ABC):
    """A linear map `y = A x` between batches of pictures, and its adjoint `x = A^T y`.

    A subclass gives the two maps and the two shapes. It may also declare what is known of the map. Solvers ask for
    these properties and never for the class:

    ============================ ===================================================================================
    `channelwise`                each channel of `A x` depends on the same channel of `x` alone
    `channels_alike`             all channels are mapped alike, so `A` commutes with every mixture of the channels
    `blurs`                      each pixel of `x` is seen in a few pixels of `A x`, and each of these sees a few
    `recordable`                 `forward` and `adjoint` may be recorded in a CUDA graph
    `steps_per_root_condition`   steps of conjugate gradient that the preconditioner leaves necessary
    `crop_offset`                where the observation lies in `x`, if it is a crop of it
    `absolute()`                 a non-negative operator that bounds it; needed for a proven bound of the norm
    `preconditioner(p, a)`       an approximate inverse of `A^T p A + a`
    ============================ ===================================================================================

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> class Halve(pl.LinearOperator):
    ...     def forward(self, x):
    ...         return x / 2
    ...     def adjoint(self, y):
    ...         return y / 2
    ...     def output_shape(self, shape):
    ...         return shape
    ...     def input_shape(self, shape):
    ...         return shape
    >>> pl.check_adjoint(Halve(), (1, 1, 8, 8)) < 1e-15
    True
    """

    channelwise: bool = True
    """Each channel of `A x` depends on that channel of `x` alone."""
    channels_alike: bool = False
    """All channels are mapped alike and do not mix: `A` commutes with every mixture of the channels."""
    blurs: bool = False
    """Each pixel of `x` is seen in a few pixels of `A x`, about where it lies, as in a blur. Accelerated descent then
    needs far fewer iterations than a split; it needs more for transforms of which few numbers are measured."""
    recordable: bool = False
    """`forward` and `adjoint` may be recorded in a CUDA graph: after their first call they make no decision in Python
    that depends on values, and never wait for the GPU."""
    steps_per_root_condition: float = 1.2
    """How many steps of conjugate gradient a data step needs with this operator's preconditioner, divided by the root
    of the condition number of `A^T p A + a`. Measured; smaller where the preconditioner is better."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """`A x`."""

    @abstractmethod
    def adjoint(self, y: Tensor) -> Tensor:
        """`A^T y`: `<A x, y> = <x, A^T y>` to rounding."""

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """Shape of `A x` for `x` of this shape; refuses a shape that does not fit."""

    @abstractmethod
    def input_shape(self, shape: Shape) -> Shape:
        """Shape of `A^T y` for `y` of this shape; refuses a shape that does not fit."""

    @property
    def domain(self) -> Shape | None:
        """The smallest shape of `x` on which the operator has its full norm; None if it fits any size."""
        return None

    @property
    def device(self) -> torch.device | None:
        """Where the operator's own tensors lie; None if it has none."""
        return None

    @property
    def crop_offset(self) -> tuple[int, int] | None:
        """Where the observation's first pixel lies in `x`, if the observation is a crop of `x`'s domain; else None."""
        return None

    def start(self, y: Tensor) -> Tensor:
        """A picture to start from: `y` where the shapes agree, else `A^T y`. Subclasses may give a better one."""
        return y.clone() if self.input_shape(shape_of("y", y)) == tuple(y.shape) else self.adjoint(y)

    def absolute(self) -> LinearOperator | None:
        """A non-negative operator that dominates `|A|` entry by entry; `self` if `A` is non-negative.

        Its norm bounds that of `A` from above, and can itself be bounded. None where nothing is known.
        """
        return None

    def preconditioner(self, precision: Tensor, a: Tensor) -> Preconditioner | None:
        """`r -> M^-1 r`, symmetric positive definite, near `(A^T p A + a)^-1`; None where nothing better is known.

        `precision` broadcasts to `A x`; `a` is () or (B, 1, 1, 1), in the dtype and on the device of the pictures.
        """
        diagonal = self.pulled_back(as_map(precision))
        return None if diagonal is None else FormulaPreconditioner(lambda r, a: r / (diagonal + a), a)

    def pulled_back(self, precision: Tensor) -> Tensor | None:
        """The diagonal of `A^T p A` if this matrix is diagonal (as for masks), else None.

        `precision` is () or has four dimensions. Its mean may stand for it, as preconditioners need no more.
        """
        return None

    def norm_squared(self, shape: Shape | None = None) -> NormBound:
        """Lower and upper bound of `||A||^2`, one for each picture that has an operator of its own.

        `shape` is that of `x`; needed only by operators that fit any size.
        """
        shape = shape or self.domain
        if shape is None:
            raise InputError(f"the norm of {type(self).__name__} depends on the picture's size: give its shape")
        return bound_norm_squared(self, shape)

    def __matmul__(self, inner: LinearOperator) -> LinearOperator:
        """`outer @ inner`: first `inner`, then `outer`."""
        from pnpladmm.operators.composition import Composition

        return Composition(self, as_operator(inner))

    def to_scipy(self, shape: Shape) -> ScipyOperator:
        """The operator on flattened float64 pictures of this shape, for scipy's solvers."""
        from scipy.sparse.linalg import LinearOperator as ScipyOperator

        out = self.output_shape(shape)

        def run(apply: Any, v: np.ndarray, shape: Shape) -> np.ndarray:
            x = torch.as_tensor(np.asarray(v, dtype=np.float64).reshape(shape), device=self.device)
            result: np.ndarray = apply(x).cpu().numpy().ravel()
            return result

        return ScipyOperator(
            shape=(int(np.prod(out)), int(np.prod(shape))),
            matvec=lambda v: run(self.forward, v, shape),
            rmatvec=lambda v: run(self.adjoint, v, out),
            dtype=np.float64,
        )


class PhysicsOperator(LinearOperator):
    """An object with `A(x)` and `A_adjoint(y)` (deepinv's linear physics) as an operator.

    Nothing is known of its entries, so its norm has a lower bound by power iteration and no upper bound.
    """

    channelwise = False

    def __init__(self, physics: Any, like: Tensor | None = None) -> None:
        """`like`: what the physics computes in, where its own parameters and buffers do not tell."""
        self.physics = physics
        named = [pair for kind in ("parameters", "buffers") for pair in _named(physics, kind)]
        # The level of its noise, and what deepinv keeps to know its device, say nothing of the map.
        held = [t for name, t in named if not name.startswith(("noise_model", "_"))]
        floating = [t for t in held if t.is_floating_point()]
        self.like = floating[0] if floating else like

    def forward(self, x: Tensor) -> Tensor:
        """`physics.A(x)`."""
        return self._apply(self.physics.A, x)

    def adjoint(self, y: Tensor) -> Tensor:
        """`physics.A_adjoint(y)`."""
        return self._apply(self.physics.A_adjoint, y)

    def _apply(self, run: Any, v: Tensor) -> Tensor:
        result: Tensor = run(v if self.like is None else v.to(self.like))
        return result.to(v)

    def output_shape(self, shape: Shape) -> Shape:
        """Found by applying the map once."""
        return shape_of("A x", self.forward(torch.zeros(shape)))

    def input_shape(self, shape: Shape) -> Shape:
        """Found by applying the adjoint once."""
        return shape_of("A^T y", self.adjoint(torch.zeros(shape)))


def _named(physics: Any, kind: str) -> list[tuple[str, Tensor]]:
    """The named tensors of a module; none of another object."""
    return list(getattr(physics, f"named_{kind}")()) if hasattr(physics, f"named_{kind}") else []


def as_operator(operator: Any, like: Tensor | None = None) -> LinearOperator:
    """`operator` itself, or an object with `A` and `A_adjoint` wrapped; one that only masks pixels as a `Mask`."""
    if isinstance(operator, LinearOperator):
        return operator
    if hasattr(operator, "A") and hasattr(operator, "A_adjoint"):
        from pnpladmm.operators.sampling import mask_of  # which needs this module

        return mask_of(operator) or PhysicsOperator(operator, like)
    raise InputError(f"operator is {type_words(operator)}: give a pnpladmm operator, or an object with A and A_adjoint")


def check_adjoint(operator: Any, shape: Shape, seed: int = 0) -> float:
    """Measure how far `operator.adjoint` is from the adjoint of `operator.forward`, for random `x` and `y` in float64.

    Parameters
    ----------
    operator : LinearOperator or object
        An operator, or an object with `A` and `A_adjoint`.
    shape : tuple of int
        The shape of `x`, (B, C, H, W).
    seed : int
        Of the random pictures.

    Returns
    -------
    float
        `|<A x, y> - <x, A^T y>| / (||A x|| ||y||)`: about 1e-16 for a true adjoint, and 0.1 or more for a mistake
        such as weights on the wrong side.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> pl.check_adjoint(pl.Decimation(2), (1, 1, 8, 8)) < 1e-14
    True
    """
    operator = as_operator(operator)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64, generator=generator).to(operator.device)
    ax = operator.forward(x)
    # y close to A x, so that the inner product is large and a relative mismatch means something.
    noise = torch.randn(ax.shape, dtype=torch.float64, generator=generator).to(ax.device)
    y = ax + noise * (squared_norm(ax).sum() / ax.numel()).sqrt()
    mismatch = (ax * y).sum() - (x * operator.adjoint(y)).sum()
    return float(mismatch.abs() / (ax.norm() * y.norm()).clamp_min(torch.finfo(torch.float64).tiny))


def as_map(precision: Tensor) -> Tensor:
    """A precision that broadcasts to pictures, with four dimensions or none."""
    return precision if precision.ndim in (0, 4) else precision.reshape((1,) * (4 - precision.ndim) + precision.shape)


def check_size(name: str, got: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Refuse pictures that do not have the size an operator was made for."""
    if got != wanted:
        raise InputError(f"{name} is {got[0]}x{got[1]}: the operator takes {wanted[0]}x{wanted[1]}")


def shape_of(name: str, x: Any) -> Shape:
    """(B, C, H, W) of what an operator was given, or one line on what is wrong with it."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} is {type_words(x)}: give a torch tensor of shape (B, C, H, W)")
    if x.ndim != 4:
        raise InputError(f"{name} has shape {tuple(x.shape)}: give (B, C, H, W)")
    if x.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{name} has dtype {x.dtype}: give float32 or float64")
    b, c, h, w = x.shape
    return b, c, h, w
