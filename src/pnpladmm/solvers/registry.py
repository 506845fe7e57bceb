"""Methods by name. Each is registered in its own file; other packages add theirs by entry points."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pnpladmm.denoisers.base import Denoiser
from pnpladmm.registry import Registry
from pnpladmm.solvers.method import Method
from pnpladmm.solvers.problem import Problem
from pnpladmm.tensors import InputError, type_words

LISTED_FIRST = ("fast", "ladmm", "certified")
"""The methods that help and errors name before all others: the default, the paper's, and the one with a proof."""


class MethodRegistry(Registry[type[Method[Any]]]):
    """The registry of methods, which lists the most used ones first.

    Examples
    --------
    >>> METHODS.names()[:3]
    ('fast', 'ladmm', 'certified')
    """

    def names(self) -> tuple[str, ...]:
        """All names: those of `LISTED_FIRST`, the others of this package, those of other packages."""
        names = super().names()
        first = tuple(name for name in LISTED_FIRST if name in names)
        return (*first, *(name for name in names if name not in first))


METHODS = MethodRegistry("method", "pnpladmm.methods")
"""Method classes by name. An entry point of the group `pnpladmm.methods` names a subclass of `Method`."""


def method_class(name: str) -> type[Method[Any]]:
    """The class registered under a name, for what it declares."""
    kind: object = METHODS[name]
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InputError(f"method {name!r}: the entry point names {type_words(kind)}, not a subclass of Method")
    return kind


def make_method(
    name: str,
    denoiser: Denoiser,
    problem: Problem,
    sigma: Tensor,
    strength: float = 1.0,
    calls: int | None = None,
) -> Method[Any]:
    """Make a method with parameters that suit the noise.

    Parameters
    ----------
    name : str
        One of `METHODS.names()`.
    denoiser : Denoiser
        The prior.
    problem : Problem
        What is to be solved: some parameters depend on its norm and its data term.
    sigma : Tensor
        Noise levels, (B,), for pictures in [0, 1]. Each picture gets its own parameters.
    strength : float
        Scales `sigma_d`, and with its square the weight of the prior. 1 is the tuned smoothing, more is smoother.
    calls : int, optional
        The number of denoiser calls, for methods with a schedule.

    Returns
    -------
    Method
        Ready for `solve(problem, method)`.
    """
    return method_class(name).for_noise(denoiser, problem, sigma, strength, calls)
