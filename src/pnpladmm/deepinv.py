"""deepinv both ways: our operators, methods and denoisers as its classes, its physics as our operators.

    physics = to_physics(pl.SpatiallyVaryingBlur(kernels, weights), noise=0.02)   # a LinearPhysics
    model = to_reconstructor("fast")                                              # a Reconstructor
    image = model(physics(x), physics)

    operator = to_operator(their_physics, y.shape)                                # for pl.Problem

Their denoisers and networks are taken as they are: `pl.restore(y, physics, denoiser=deepinv.models.DnCNN())`.
deepinv is optional (extra `deepinv`); it is imported when it is needed.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from pnpladmm.denoisers import Denoiser, as_denoiser, load_denoiser
from pnpladmm.files import optional
from pnpladmm.operators import Boundary, LinearOperator, SpatiallyVaryingBlur
from pnpladmm.operators.base import Shape, as_operator
from pnpladmm.restore import restore
from pnpladmm.tensors import InputError

PADDINGS: dict[str, Boundary] = {
    "circular": "circular",
    "replicate": "replicate",
    "reflect": "reflect",
    "valid": "unknown",
}
"""deepinv's paddings of a blur, and our boundaries."""
AGREE = 1e-5
"""Largest relative difference between a physics and the operator that stands for it, in float32."""

_loaded: list[Any] = []
"""torch drops the operators of a library with the library."""


def load_deepinv() -> Any:
    """deepinv, with what its import needs of torchvision.

    Returns
    -------
    module
        `deepinv`.

    Raises
    ------
    InputError
        Where it is not installed, or cannot be imported; in one line.

    Examples
    --------
    >>> load_deepinv().physics.LinearPhysics.__name__
    'LinearPhysics'
    """
    _prepare_torchvision()
    return optional("deepinv", "the adapter")


def to_physics(operator: LinearOperator, noise: float | None = None) -> Any:
    """Make a `LinearPhysics` of deepinv of one of our operators.

    Parameters
    ----------
    operator : LinearOperator
        With its exact adjoint and its fast products.
    noise : float, optional
        The standard deviation of the Gaussian noise that `physics(x)` adds; none by default.

    Returns
    -------
    deepinv.physics.LinearPhysics
        `A`, `A_adjoint`, and all that deepinv derives of them (`A_dagger`, `prox_l2`, `compute_norm`).

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> physics = to_physics(pl.Mask(torch.eye(8)), noise=0.1)
    >>> physics(torch.ones(1, 1, 8, 8)).shape
    torch.Size([1, 1, 8, 8])
    """
    if not isinstance(operator, LinearOperator):
        raise InputError(f"operator is {type(operator).__name__}: give an operator of pnpladmm")
    return _classes().physics(operator, noise)


def to_reconstructor(
    method: str = "fast", denoiser: str | Path | Denoiser | None = None, noise: float | None = None, **options: Any
) -> Any:
    """Make a `Reconstructor` of deepinv of one of our methods.

    Parameters
    ----------
    method : str
        As in `pl.restore`: "fast" (8 denoiser calls), "certified", "ladmm" ...
    denoiser : str, path or callable, optional
        As in `pl.restore`: one of ours by name, or a denoiser of deepinv.
    noise : float, optional
        The noise level. If it is not given, that of `physics.noise_model`, and where that says nothing, an estimate.
    **options
        Further arguments of `pl.restore`, such as `iterations` and `strength`.

    Returns
    -------
    deepinv.models.Reconstructor
        `model(y, physics)` is the restored picture, on the domain of `physics.A`. `model.result` is the last
        `Restoration`, with its certificate. It records no gradients: `pl.solve_with_gradients` does.

    Examples
    --------
    >>> import deepinv, torch
    >>> physics = deepinv.physics.Inpainting((1, 16, 16), mask=0.8, noise_model=deepinv.physics.GaussianNoise(0.02))
    >>> model = to_reconstructor("fast", iterations=3)
    >>> model(physics(torch.ones(1, 1, 16, 16) / 2), physics).shape
    torch.Size([1, 1, 16, 16])
    """
    return _classes().reconstructor(method, denoiser, noise, options)


def to_denoiser(denoiser: str | Path | Denoiser) -> Any:
    """Make a `Denoiser` of deepinv of one of ours.

    Parameters
    ----------
    denoiser : str, path or callable
        Its name, a file of weights, or the denoiser.

    Returns
    -------
    deepinv.models.Denoiser
        `model(x, sigma)`.

    Examples
    --------
    >>> import torch
    >>> to_denoiser("tv")(torch.zeros(1, 1, 8, 8), 0.1).abs().max()
    tensor(0.)
    """
    return _classes().denoiser(load_denoiser(denoiser) if isinstance(denoiser, str | Path) else denoiser)


def to_operator(physics: Any, shape: Shape) -> LinearOperator:
    """Make one of our operators of a linear physics of deepinv.

    Parameters
    ----------
    physics : deepinv.physics.LinearPhysics
        Anything with `A` and `A_adjoint`. Blurs (`Blur`, `BlurFFT`, `SpaceVaryingBlur`) become a
        `SpatiallyVaryingBlur`, which is faster and whose norm is bounded from above, so that certificates can be
        given; `Inpainting` becomes a `Mask`. Both are compared on random numbers. Where they differ, the physics is
        used as it is.
    shape : tuple of int
        Of the measurements, (B, C, H, W).

    Returns
    -------
    LinearOperator
        The same map.

    Examples
    --------
    >>> import deepinv, torch
    >>> blur = deepinv.physics.Blur(torch.ones(1, 1, 3, 3) / 9, padding="circular")
    >>> type(to_operator(blur, (1, 1, 16, 16))).__name__
    'SpatiallyVaryingBlur'
    """
    if isinstance(physics, LinearOperator):
        return physics
    blur = _blur_of(physics, shape)
    return blur if blur is not None and _agree(physics, blur, shape) else as_operator(physics)


def _blur_of(physics: Any, shape: Shape) -> SpatiallyVaryingBlur | None:
    """The blur of a physics that is one, as its documentation defines it."""
    kinds = load_deepinv().physics
    padding = "circular" if isinstance(physics, kinds.BlurFFT) else getattr(physics, "padding", None)
    if padding not in PADDINGS:
        return None
    boundary = PADDINGS[padding]
    try:
        if isinstance(physics, kinds.SpaceVaryingBlur):
            # Theirs: (b, c, P, ...). Ours: (b, P, c, ...), with weights that do not depend on the channel.
            kernels, weights = physics.filters.transpose(1, 2), physics.multipliers
            if weights.shape[1] > 1 and not bool((weights == weights[:, :1]).all()):
                return None
            order = "weight-then-convolve" if getattr(physics, "mask_first", True) else "convolve-then-weight"
            return SpatiallyVaryingBlur(kernels, weights[:, 0], boundary, order)  # type: ignore[arg-type]
        if isinstance(physics, kinds.Blur | kinds.BlurFFT) and physics.filter.ndim == 4:
            kernel = physics.filter[:, None]  # (b, 1, c, k, k)
            ones = kernel.new_ones(len(kernel), 1, *shape[-2:])
            return SpatiallyVaryingBlur(kernel, ones, boundary)
    except (InputError, AttributeError):
        return None
    return None


def _agree(physics: Any, blur: SpatiallyVaryingBlur, shape: Shape) -> bool:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(blur.input_shape(shape), generator=generator).to(blur.kernels)
    theirs, ours = physics.A(x), blur.forward(x)
    return theirs.shape == ours.shape and float((theirs - ours).norm() / ours.norm()) < AGREE


def _noise_of(physics: Any) -> dict[str, Any]:
    """What `physics.noise_model` says of the noise, as arguments of `restore`."""
    model: Any = getattr(physics, "noise_model", None)
    name = type(model).__name__
    if name in ("GaussianNoise", "UniformGaussianNoise") and getattr(model, "sigma", None) is not None:
        levels = torch.as_tensor(model.sigma).double().flatten()
        return {} if not bool((levels > 0).all()) else {"noise": levels}
    if name == "PoissonNoise" and getattr(model, "normalize", False):
        return {"gain": float(torch.as_tensor(model.gain).flatten()[0])}
    return {}


@cache
def _classes() -> SimpleNamespace:
    """The classes, which need deepinv's to be made."""
    deepinv = load_deepinv()

    class OperatorPhysics(deepinv.physics.LinearPhysics):  # type: ignore[misc, name-defined]
        """`A x` and `A^T y` of an operator of pnpladmm."""

        def __init__(self, operator: LinearOperator, noise: float | None) -> None:
            model = deepinv.physics.ZeroNoise() if noise is None else deepinv.physics.GaussianNoise(sigma=noise)
            super().__init__(noise_model=model)
            self.operator = operator

        def A(self, x: Tensor, **others: Any) -> Tensor:
            return self.operator.forward(x)

        def A_adjoint(self, y: Tensor, **others: Any) -> Tensor:
            return self.operator.adjoint(y)

    class Restorer(deepinv.models.Reconstructor):  # type: ignore[misc, name-defined]
        """`restore` as `model(y, physics)`."""

        def __init__(self, method: str, denoiser: Any, noise: float | None, options: dict[str, Any]) -> None:
            super().__init__()
            self.method, self.noise, self.options = method, noise, options
            self.denoiser = as_denoiser(denoiser) if isinstance(denoiser, nn.Module) else denoiser
            self.result: Any = None

        @torch.no_grad()
        def forward(self, y: Tensor, physics: Any, **others: Any) -> Tensor:
            operator = getattr(physics, "operator", None)
            if not isinstance(operator, LinearOperator):
                operator = to_operator(physics, cast(Shape, tuple(y.shape)))
            noise = _noise_of(physics) if self.noise is None else {"noise": self.noise}
            options = {**noise, **self.options}
            result = restore(y, operator, method=self.method, denoiser=self.denoiser, axes="BCHW", **options)
            self.result = result
            # `restore` crops to the observation; deepinv compares with the whole of x.
            whole = result.image if tuple(result.image.shape) == result.problem.shape else result.state.x
            return whole.to(y)

    class OurDenoiser(deepinv.models.Denoiser):  # type: ignore[misc, name-defined]
        """A denoiser of pnpladmm."""

        def __init__(self, denoiser: Denoiser) -> None:
            super().__init__()
            self.ours = denoiser

        def forward(self, x: Tensor, sigma: Any, **others: Any) -> Tensor:
            level = sigma.flatten() if isinstance(sigma, Tensor) else sigma
            return self.ours(x, level)

    return SimpleNamespace(physics=OperatorPhysics, reconstructor=Restorer, denoiser=OurDenoiser)


def _prepare_torchvision() -> None:
    """Make torchvision, which deepinv imports, importable beside a torch for CPUs.

    Its usual build looks for two compiled operators that are not there then. deepinv calls neither of them.
    """
    try:
        import_module("torchvision")
    except ImportError:
        return  # deepinv's own import will fail, too
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _loaded.append(library)
