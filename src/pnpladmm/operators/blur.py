"""Blur that changes over the picture: `H = sum_i U_i K_i` (O'Leary) with exact adjoint."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pnpladmm.operators.absolute_blur import AbsoluteBlur
from pnpladmm.operators.base import LinearOperator, Shape, as_map, check_size, shape_of
from pnpladmm.operators.boundary import Boundary, Extension, check_boundary
from pnpladmm.operators.compression import Compression, compress
from pnpladmm.operators.convolution import Bank, TransposedBank, bank_cost, make_bank
from pnpladmm.operators.division import Division
from pnpladmm.operators.preconditioner import LocalWiener, Regions, regions_of
from pnpladmm.operators.windows import BankData, Domain
from pnpladmm.tensors import InputError, type_words

Order: TypeAlias = Literal["convolve-then-weight", "weight-then-convolve"]


class SpatiallyVaryingBlur(LinearOperator):
    """Blur that changes over the picture, with its exact adjoint.

        H x = sum_i U_i (k_i * x)      for order "convolve-then-weight" (the paper's),
        H x = sum_i k_i * (U_i x)      for order "weight-then-convolve".

    The adjoint is `H^T y = sum_i K_i^T U_i y`: weight first, then correlate. Uniform blur is P = 1 with a weight of
    ones.

    Parameters
    ----------
    kernels : array or tensor
        (P, kh, kw), shared by all channels, or (P, C, kh, kw). `*` is true convolution, not correlation; the centre of
        a kernel is at index `k // 2`. Kernels are not normalised here.
    weights : array or tensor
        (P, H, W). They may be negative and need not sum to one. With a leading B, (B, P, H, W), each picture has its
        own blur, and the kernels have a leading B too. Weights lie where they act: on the blurred picture for
        `convolve-then-weight`, on the sharp one for `weight-then-convolve` (with `unknown` they have the scene's size).
    boundary : str
        `circular`, `replicate`, `reflect` or `zero` say what lies beyond the border. `unknown` says that the picture
        is a crop of a larger scene: the operator maps the scene, `k - 1` rows and columns larger, to the picture.
    order : str
        `convolve-then-weight` or `weight-then-convolve`.

    Examples
    --------
    >>> import torch, pnpladmm as pl
    >>> kernels = torch.full((2, 3, 3), 1 / 9)
    >>> weights = torch.zeros(2, 16, 16)
    >>> weights[0, :, :8] = weights[1, :, 8:] = 1
    >>> blur = pl.SpatiallyVaryingBlur(kernels, weights, boundary="unknown")
    >>> tuple(blur.forward(torch.rand(1, 3, 18, 18)).shape)
    (1, 3, 16, 16)
    """

    blurs = True
    steps_per_root_condition = 0.25
    compression: Compression | None = None
    """The error of the compression; None for a blur that was not compressed."""
    division: tuple[Division, ...] | None = None
    """Of a part of a picture: the regions of the whole one, for each picture of a batch."""

    def __init__(
        self,
        kernels: Any,
        weights: Any,
        boundary: Boundary = "circular",
        order: Order = "convolve-then-weight",
    ) -> None:
        check_boundary(boundary)
        if order not in get_args(Order):
            raise InputError(f"order {order!r}: choose one of {', '.join(get_args(Order))}")
        self.boundary, self.order = boundary, order
        self.kernels, self.weights = _check(kernels, weights)
        self.channels_alike = self.kernels.shape[2] == 1
        # Python code of a subclass would run while the graph is recorded and never again.
        self.recordable = type(self) is SpatiallyVaryingBlur
        kh, kw = self.kernels.shape[-2:]
        h, w = self.weights.shape[-2:]
        if boundary == "unknown" and order == "weight-then-convolve":
            self.scene, self.observed = (h, w), (h - kh + 1, w - kw + 1)
        else:
            self.observed = (h, w)
            self.scene = (h + kh - 1, w + kw - 1) if boundary == "unknown" else (h, w)
        if kh > self.observed[0] or kw > self.observed[1]:
            raise InputError(
                f"kernels are {kh}x{kw}, the picture {self.observed[0]}x{self.observed[1]}: "
                "a kernel must fit into the picture; crop its empty margin"
            )
        after = (kh // 2, kw // 2)
        before = (kh - 1 - after[0], kw - 1 - after[1])
        self.extension = None if boundary == "unknown" else Extension(boundary, self.scene, before, after)
        self._banks: dict[tuple[torch.device, torch.dtype], Bank] = {}
        self._regions: dict[tuple[torch.device, torch.dtype], Regions] = {}

    def __repr__(self) -> str:
        """Kernels, size of the observation, border and order in one line."""
        batch, count = self.kernels.shape[:2]
        (kh, kw), (height, width) = self.kernels.shape[-2:], self.observed
        each = f" for each of {batch} pictures" if batch > 1 else ""
        kernels = f"{count} kernel{'s' if count > 1 else ''} of {kh}x{kw}{each}"
        return f"{type(self).__name__}({kernels} for {height}x{width}, {self.boundary}, {self.order})"

    @property
    def domain(self) -> Shape:
        """Shape of one picture (or one for each blur) as the kernels see it."""
        return self.weights.shape[0], self.kernels.shape[2], *self.scene

    @property
    def device(self) -> torch.device:
        """Where kernels and weights lie. Pictures may lie elsewhere: a copy is kept there."""
        return self.weights.device

    def output_shape(self, shape: Shape) -> Shape:
        """(B, C, observed size)."""
        self._check_batch(shape)
        check_size("the picture", shape[2:], self.scene)
        return *shape[:2], *self.observed

    def input_shape(self, shape: Shape) -> Shape:
        """(B, C, size of the scene)."""
        self._check_batch(shape)
        check_size("the blurred picture", shape[2:], self.observed)
        return *shape[:2], *self.scene

    def forward(self, x: Tensor) -> Tensor:
        """Blur: (B, C, scene) -> (B, C, observed)."""
        self.output_shape(shape_of("the picture", x))
        bank = self._bank(x)
        return bank.forward(self._extend(x, bank))

    def adjoint(self, y: Tensor) -> Tensor:
        """`H^T y`: (B, C, observed) -> (B, C, scene)."""
        self.input_shape(shape_of("the measurement", y))
        bank = self._bank(y)
        x = bank.adjoint(y)
        return x if self._whole(bank) else cast(Extension, self.extension).adjoint(x)

    @property
    def crop_offset(self) -> tuple[int, int] | None:
        """Where the picture lies in the scene, if the boundary is `unknown`; else None."""
        kh, kw = self.kernels.shape[-2:]
        return (kh - 1 - kh // 2, kw - 1 - kw // 2) if self.boundary == "unknown" else None

    def start(self, y: Tensor) -> Tensor:
        """The blurred picture, its border repeated where the scene goes on beyond it."""
        if self.crop_offset is None:
            return y.clone()
        return F.pad(y, self.border_widths, mode="replicate")

    def absolute(self) -> LinearOperator:
        """`|sum_i U_i K_i|`, entry by entry. This is the blur itself where no kernel and no weight is negative."""
        if bool((self.kernels >= 0).all()) and bool((self.weights >= 0).all()):
            return self
        return AbsoluteBlur(self)

    def compressed(self, tolerance: float = 1e-3, device: str | torch.device | None = None) -> SpatiallyVaryingBlur:
        """The blur with fewer kernels and signed weights, off by at most `tolerance` of what it does to a picture.

        The error is that of operators/compression.py, and stands in `compression` of the result. For large banks of
        kernels that change smoothly (PSF grids). Refuses where the result is not faster on `device` (default: that of
        the weights): on a CPU, weights that each cover a small part of the picture are fast as they are.
        """
        if not 0 < tolerance < 1:
            raise InputError(f"tolerance = {tolerance}: give the relative error allowed, above 0 and below 1")
        small = compress(self.kernels, self.weights, tolerance)
        kernels, weights = (t.squeeze(2).to(self.weights.dtype) for t in (small.kernels, small.weights))
        blur = SpatiallyVaryingBlur(kernels, weights, self.boundary, self.order)
        blur.compression = kept = small.compression
        on_gpu = torch.device(device or self.device).type == "cuda"
        after, before = (bank_cost(b._bank_data(b.weights), b.observed, on_gpu) for b in (blur, self))
        if after >= before:
            raise InputError(
                f"{kept.before} kernels compressed to {tolerance:g} are {kept.after}, each everywhere: no faster than "
                "the blur as it is; allow a larger error, or keep it"
            )
        return blur

    def preconditioner(self, precision: Tensor, a: Tensor) -> LocalWiener:
        """A Wiener filter for each region of the picture (operators/preconditioner.py)."""
        key = (a.device, a.dtype)
        if key not in self._regions:
            self._regions[key] = regions_of(self, a)
        return LocalWiener(self._regions[key], as_map(precision), a)

    def on_scene(self, maps: Tensor) -> Tensor:
        """Maps (..., H, W) of the weights' size on the scene, their border repeated where it goes on beyond them."""
        if maps.shape[-2:] == self.scene:
            return maps
        padded = F.pad(maps.flatten(0, 1), self.border_widths, mode="replicate")
        return padded.view(*maps.shape[:2], *padded.shape[1:])

    def on_observed(self, maps: Tensor) -> Tensor:
        """Maps (..., H, W) of the weights' size cropped to the observation."""
        if maps.shape[-2:] == self.observed:
            return maps
        left, _, top, _ = self.border_widths
        return maps[..., top : top + self.observed[0], left : left + self.observed[1]]

    @property
    def border_widths(self) -> tuple[int, int, int, int]:
        """Pixels of the scene beyond the observation: left, right, top, bottom."""
        (top, left), (h, w), (rows, columns) = self.crop_offset or (0, 0), self.scene, self.observed
        return left, w - columns - left, top, h - rows - top

    def data(self, like: Tensor) -> BankData:
        """Kernels and weights in the dtype and on the device of `like`; weights where the bank wants them."""
        kernels, weights = (t.to(like.device, like.dtype) for t in (self.kernels, self.weights))
        if self.order == "convolve-then-weight":
            return BankData(kernels, weights, "observed")
        # E (u x) = (E u)(E x), so the weights are extended once instead of every product.
        extended = weights if self.extension is None else self.extension.forward(weights)
        return BankData(kernels, extended, "extended")

    @property
    def _turned(self) -> bool:
        """`sum_i K_i U_i` is the transpose of `sum_i U_i K_i^T`, whose windows do not wrap round with the weights."""
        return (self.boundary, self.order) == ("circular", "weight-then-convolve")

    def _bank_data(self, like: Tensor) -> BankData:
        data = self.data(like)
        if not self._turned:
            return data
        return BankData(data.kernels.flip(-2, -1), self.weights.to(data.weights), "observed")

    def _bank(self, like: Tensor) -> Bank:
        if torch.is_grad_enabled() and (self.kernels.requires_grad or self.weights.requires_grad):
            return self._make_bank(like)  # part of the graph of autograd, which serves once
        key = (like.device, like.dtype)
        if key not in self._banks:
            with torch.no_grad():
                self._banks[key] = self._make_bank(like)
        return self._banks[key]

    def _make_bank(self, like: Tensor) -> Bank:
        data = self._bank_data(like)
        weights_on: Domain = "observed" if self.order == "convolve-then-weight" else "extended"
        plain = BankData(self.kernels.to(data.kernels), self.weights.to(data.weights), weights_on)
        bank: Bank = make_bank(data, self.observed, like, plain if self.boundary == "circular" else None)
        if self._turned and not self._whole(bank):
            extension = cast(Extension, self.extension)
            return TransposedBank(bank, Extension("circular", self.scene, extension.after, extension.before))
        return bank

    def _whole(self, bank: Bank) -> bool:
        """Does the bank take the picture without an extension?"""
        return self.extension is None or bank.extended == self.scene

    def _extend(self, x: Tensor, bank: Bank) -> Tensor:
        return x if self._whole(bank) else cast(Extension, self.extension).forward(x)

    def _check_batch(self, shape: Shape) -> None:
        b, c = self.weights.shape[0], self.kernels.shape[2]
        if b not in (1, shape[0]):
            raise InputError(f"blurs: {b}, pictures: {shape[0]}: they must match")
        if c not in (1, shape[1]):
            raise InputError(f"kernels have {c} channels, the picture has {shape[1]}: they must match")


def _check(kernels: Any, weights: Any) -> tuple[Tensor, Tensor]:
    """Kernels as (b, P, c, kh, kw) and weights as (b, P, 1, H, W), or a sentence on what is wrong."""
    kernels, weights = _real("kernels", kernels), _real("weights", weights)
    if weights.ndim not in (3, 4):
        raise InputError(f"weights have shape {tuple(weights.shape)}: give (P, H, W), or (B, P, H, W)")
    if weights.ndim == 3:
        weights = weights.unsqueeze(0)
        if kernels.ndim in (3, 4):
            kernels = kernels.unsqueeze(0)
    if kernels.ndim == 4:
        kernels = kernels.unsqueeze(2)
    if kernels.ndim != 5 or 0 in kernels.shape:
        raise InputError(
            f"kernels have shape {tuple(kernels.shape)}: give (P, k, k) or (P, C, k, k), "
            "with a leading B if the weights have one"
        )
    if kernels.shape[0] != weights.shape[0]:
        raise InputError(f"kernels for {kernels.shape[0]} pictures, weights for {weights.shape[0]}: they must match")
    if kernels.shape[1] != weights.shape[1]:
        raise InputError(f"kernels: {kernels.shape[1]}, weights: {weights.shape[1]}: they must match")
    for name, tensor in (("kernels", kernels), ("weights", weights)):
        if not bool(tensor.flatten(1).any(1).all()):
            raise InputError(f"{name} are all zero: such a blur makes every picture black")
    return kernels, weights.unsqueeze(2)


def _real(name: str, values: Any) -> Tensor:
    try:
        if not isinstance(values, Tensor):
            # Flipped arrays and those of FITS files (other byte order) are none that torch takes.
            array = np.ascontiguousarray(values)
            values = array.astype(array.dtype.newbyteorder("="))
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} are {type_words(values)} of no numbers: give an array or tensor") from None
    if tensor.is_complex():
        raise InputError(f"{name} have dtype {tensor.dtype}: give real numbers")
    if not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} have {int((~torch.isfinite(tensor)).sum())} values that are NaN or infinite")
    return tensor
