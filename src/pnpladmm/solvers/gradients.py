r"""Restorations with gradients: derivatives of the result in the observation, the noise level and the blur.

No gradient passes through the many steps inside a method. Each result solves an equation, and the implicit function
theorem gives its derivative:

- A method with a schedule: each data step solves `(H^T p H + a) z = H^T p y + a x`. With a change `dr` of the residual
  of this equation, `dz = (H^T p H + a)^-1 dr`. The denoiser is differentiated by autograd.
- All others: the result is a fixed point, `x = D(v)` with `v = x - H^T grad h(Hx) / L_x`. With `J` the Jacobian of `D`
  at `v` and `A = I - H^T h'' H / L_x`, `dx = (I - J A)^-1 J dv`.

The backward pass solves the transposed equations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor

from pnpladmm.solvers.data_step import DataSolver, DataStep, NormalSystem
from pnpladmm.solvers.inner_products import squared
from pnpladmm.solvers.loop import solve
from pnpladmm.solvers.method import Method, PlugAndPlay
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, PerPicture, per_picture

Map: TypeAlias = Callable[[Tensor], Tensor]

MOST_STEPS = 2000
"""Of the backward pass."""
CLOSE = 1e-8
"""Relative error at which the backward pass is done in float64; float32 stops at its own rounding."""
NO_GRADIENTS = "the denoiser passes no gradients: use a network, tikhonov, or a callable made of torch's functions"


@runtime_checkable
class ByDataSteps(Protocol):
    """A method whose iterations are data steps and denoiser calls on a schedule."""

    @property
    def length(self) -> int:
        """Calls of the whole schedule."""
        ...

    def init(self, problem: Problem) -> Any:
        """The state before the first call."""
        ...

    def step_by(self, solved: DataSolver, problem: Problem, state: Any) -> Any:
        """One call, with another way to solve the data step."""
        ...


@runtime_checkable
class SymmetricJacobian(Protocol):
    """A denoiser that multiplies with its own Jacobian, which is symmetric: a gradient step."""

    def jacobian_product(self, v: Tensor, sigma: PerPicture, u: Tensor, /) -> Tensor:
        """`J_D(v) u`."""
        ...


def solve_with_gradients(
    problem: Problem, method: Method[Any], iterations: int | None = None, tolerance: float = 1e-6
) -> Tensor:
    """The picture that `solve` returns, with gradients.

    Parameters
    ----------
    problem : Problem
        Gradients reach its observation, the noise level of its data term, and the tensors that its operator was made
        of, such as the kernels of `SpatiallyVaryingBlur`.
    method : Method
        A plug-and-play method. Its own parameters are constants. Methods without a schedule must converge, because only
        a fixed point has these derivatives: use `LADMM.certified`.
    iterations : int, optional
        The largest number of iterations; by default the length of the schedule, or 1,000.
    tolerance : float
        The relative change per iteration at which a fixed point is reached.

    Returns
    -------
    Tensor, (B, C, H, W)
        On the domain of the operator.

    Raises
    ------
    InputError
        If the method or the denoiser passes no gradients, or if there is no fixed point within the iterations.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> psf = torch.full((1, 3, 3), 1 / 9, requires_grad=True)
    >>> blur = pl.SpatiallyVaryingBlur(psf, torch.ones(1, 16, 16))
    >>> problem = pl.Problem(torch.rand(1, 1, 16, 16), blur, pl.Gaussian(0.05))
    >>> method = pl.LADMM.certified(pl.load_denoiser("tikhonov"), problem, sigma_d=0.05)
    >>> pl.solve_with_gradients(problem, method).square().sum().backward()
    >>> psf.grad.shape
    torch.Size([1, 3, 3])
    """
    if not isinstance(method, PlugAndPlay):
        raise InputError(f"{method.name} passes no gradients: use a method with a denoiser, such as fast or certified")
    scheduled: object = method
    if isinstance(scheduled, ByDataSteps):
        return _through_schedule(problem, scheduled, iterations or scheduled.length)
    return _at_fixed_point(problem, method, iterations or 1000, tolerance)


def _through_schedule(problem: Problem, method: ByDataSteps, calls: int) -> Tensor:
    """Call after call. The values are those of `solve`."""
    state = method.init(problem)
    for _ in range(calls):
        state = method.step_by(_solved, problem, state)
    if not state.x.requires_grad and problem.observed.requires_grad:
        raise InputError(NO_GRADIENTS)
    return cast(Tensor, state.x)


def _solved(step: DataStep, a: Tensor, x: Tensor, z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """`DataStep.solve` with gradients to the problem and to `x`."""
    with torch.no_grad():
        solved, slope = step.solve(a, x.detach(), z.detach(), g.detach())
    # The residual is nearly 0. Its derivatives are what matters.
    residual = step.gradient(solved) + a * (x - solved)

    def inverse(gradient: Tensor) -> Tensor:
        system = NormalSystem(step.operator, step.precision.detach(), a.detach())
        goal = _closeness(gradient) ** 2 * squared(gradient if system.precondition is None else gradient / a)
        return system.descend(gradient, goal, MOST_STEPS)[0]

    return cast(Tensor, _Implicit.apply(residual, solved, inverse)), slope  # type: ignore[no-untyped-call]  # torch's


def _at_fixed_point(problem: Problem, method: PlugAndPlay[Any], iterations: int, tolerance: float) -> Tensor:
    """The fixed point, by its implicit derivative."""
    with torch.no_grad():
        still = replace(problem, observed=problem.observed.detach())
        found = solve(still, method, iterations=iterations, tolerance=tolerance)
        x = found.state.x.detach()
    if not all(status.label == "converged" for status in found.statuses):
        change = float(found.history.x_change[-1].max())
        raise InputError(
            f"{method.name} has no fixed point within {iterations} iterations (relative change {change:.1e}): "
            "allow more iterations, or use a certified method"
        )
    H, h = problem.operator, problem.data_term
    L_x = per_picture(torch.as_tensor(method.prior_weight).detach(), x)
    v = x - H.adjoint(h.gradient(H.forward(x), problem.observed)) / L_x
    curvature = _second_derivative(problem, H.forward(x).detach())
    jacobian = _jacobian(method, v.detach())

    def inverse(gradient: Tensor) -> Tensor:
        """`J^T lambda` for `lambda = gradient + A J^T lambda`."""
        total = jacobian(gradient)
        change = total
        goal = _closeness(gradient) * float(total.norm())
        for _ in range(MOST_STEPS):
            if float(change.norm()) <= goal:
                return total
            change = jacobian(change - H.adjoint(curvature * H.forward(change)) / L_x)
            total = total + change
        raise InputError(
            f"the gradient has not settled after {MOST_STEPS} steps: the fixed point is not stable enough, "
            "use a larger sigma_d or a certified method"
        )

    return cast(Tensor, _Implicit.apply(v, x, inverse))  # type: ignore[no-untyped-call]  # torch's


def _second_derivative(problem: Problem, z: Tensor) -> Tensor:
    """The diagonal of `h''` at `z`."""
    with torch.enable_grad():
        z = z.requires_grad_(True)
        slope = problem.data_term.gradient(z, problem.observed.detach())
        (diagonal,) = torch.autograd.grad(slope.sum(), z)
    return diagonal.detach()


def _jacobian(method: PlugAndPlay[Any], v: Tensor) -> Map:
    """`u -> J^T u` for the denoiser at `v`."""
    denoiser = method.denoiser
    if isinstance(denoiser, SymmetricJacobian):
        symmetric = denoiser
        return lambda u: symmetric.jacobian_product(v, method.sigma_d, u)
    with torch.enable_grad():
        entered = v.clone().requires_grad_(True)
        left = method.denoise(entered)
    if not left.requires_grad:
        raise InputError(NO_GRADIENTS)
    return lambda u: torch.autograd.grad(left, entered, u, retain_graph=True)[0]


def _closeness(x: Tensor) -> float:
    return max(CLOSE, 4 * torch.finfo(x.dtype).eps)


class _Implicit(torch.autograd.Function):
    """A known solution as a function of what defines it."""

    @staticmethod
    def forward(ctx: Any, defining: Tensor, solution: Tensor, inverse: Map) -> Tensor:
        """The solution."""
        ctx.inverse = inverse
        return solution.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The transposed equation, solved."""
        with torch.no_grad():
            return ctx.inverse(gradients[0].contiguous()), None, None
