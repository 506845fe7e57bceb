r"""A learned prior that is proved: a ridge regulariser whose gradient step is a proximal operator for all pictures.

    D(x) = x - grad g(x),    g(x) = sigma^2 sum_o a_o / s_o^2  sum_g sum_p  psi_o( s_o (w_o^g * x~)(p) / sigma )

`w_o` are learned filters without a mean, each in its four mirror images `g`; `x~` is the picture continued by its
mirror image; `psi_o` are even functions whose derivatives are learned linear splines. `s_o` and `a_o >= 0` depend on
sigma. So `grad g = sigma sum_o a_o / s_o  W_o^T psi_o'( s_o W_o x / sigma )`, and with the slopes of the splines in
`[-m_o, M_o]`

    -sum_o a_o m_o W_o^T W_o  <=  Hessian of g  <=  sum_o a_o M_o W_o^T W_o  <=  Lambda,

for every picture of every size, where filter_bound.py computes `Lambda` from the weights. `a_o` is linear between the
noise levels of a table and constant beyond them, and the bound is convex in it: its largest value in the table holds
for every sigma. If `Lambda <= 1`, then `D = prox_phi` with `phi(D(v)) = g(v) - 1/2 ||v - D(v)||^2`
(docs/reference/proof.md, statement 1). Weights with a larger bound are refused. `psi_o' >= 0` right of 0, so `g >= 0`
and `phi >= 0`.

Weakly convex ridge regularisers are those of Goujon, Neumayer and Unser (arXiv 2308.10542), who minimise over them.
Here the gradient step itself is the denoiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pnpladmm.denoisers.architecture import Network, Tensors
from pnpladmm.denoisers.filter_bound import largest_on_grid, spectrum_bound
from pnpladmm.denoisers.shipped import shipped_network
from pnpladmm.tensors import InputError

KNOTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0)
"""Knots of the splines right of 0, where they are odd; beyond the last they are constant."""
CELL = 0.5
"""All knots are multiples of it."""
PIECES = [j for j in range(len(KNOTS) - 1) for _ in range(round((KNOTS[j + 1] - KNOTS[j]) / CELL))] + [len(KNOTS) - 1]
"""The piece of a spline that each cell lies in; the last cell is all beyond the last knot."""
LEVELS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Noise levels (of 255) of the tables."""
SIDE = 9
"""Of the filters, in pixels."""
TRAINING_POINTS = 32
"""Grid points of the bound during a training; what it misses is divided out when the weights are written."""
IMAGES = ((), (-1,), (-2,), (-2, -1))
"""The axes along which a filter is mirrored."""


@shipped_network("ridge", color="ridge_color.safetensors", grey="ridge_grey.safetensors")
class RidgeNet(Network):
    """`D` for `channels` picture channels, with `orbits` filters in four mirror images each."""

    stride = 1
    description = "ridge regulariser"
    first_layer = "filters"
    shipped_widths: ClassVar[tuple[int, ...]] = (32,)
    file_precision: ClassVar[torch.dtype] = torch.float32

    def __init__(self, channels: int = 3, orbits: int = 32, side: int = SIDE) -> None:
        super().__init__()
        self.channels = channels
        self.filters = nn.Parameter(torch.zeros(orbits, channels, side, side))
        self.values = nn.Parameter(torch.zeros(orbits, len(KNOTS) - 1))
        """Of the splines at the knots right of 0; at least 0 in weight files."""
        self.scales = nn.Parameter(torch.zeros(orbits, len(LEVELS)))
        """`log s_o` at the noise levels."""
        self.shares = nn.Parameter(torch.zeros(orbits, len(LEVELS)))
        """`a_o` at the noise levels; at least 0 in weight files."""

    @property
    def reach(self) -> int:
        """Filter and mirrored filter."""
        return int(self.filters.shape[-1]) - 1

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """`D(x)`; in training with what the bound asks for divided out."""
        return x - self.gradient(x, sigma)

    def gradient(self, x: Tensor, sigma: Tensor) -> Tensor:
        """`grad g` at x (B, C, H, W) for sigma (B,)."""
        ready = self.prepared()
        return ready.gradient(x, *ready.at(sigma))

    def prepared(self) -> Prepared:
        """What all calls need: the whole bank, the slopes, the tables."""
        weights = self.normalised() if self.training else dict(self.named_parameters())
        return Prepared(weights)

    def normalised(self) -> dict[str, Tensor]:
        """The parameters of a regulariser for which the bound holds: filters without a mean, nothing below 0, and
        shares divided by the bound where it is larger than 1, or that of minus the Hessian."""
        filters = self.filters - self.filters.mean((2, 3), keepdim=True)
        values, shares = self.values.clamp_min(0), self.shares.clamp_min(0)
        weights = [shares * steepest(values, end)[:, None] for end in (1, -1)]
        worst = torch.stack([largest_on_grid(filters, one, TRAINING_POINTS) for one in weights]).amax(0)
        shares = shares / worst.clamp_min(1)
        return {"filters": filters, "values": values, "scales": self.scales, "shares": shares}

    def finished(self) -> dict[str, Tensor]:
        """The weights to be written, in float32: rounded first, then divided by the bound of what was rounded."""
        with torch.no_grad():
            double = {name: value.double() for name, value in self.normalised().items()}
            mean = double["filters"].mean((2, 3), keepdim=True)
            found = {name: value.float() for name, value in {**double, "filters": double["filters"] - mean}.items()}
            filters, values, shares = (found[name].double().cpu() for name in ("filters", "values", "shares"))
            worst = torch.stack([curvature_bounds(filters, values, shares, end) for end in (1, -1)]).amax(0)
            found["shares"] = (shares / worst.clamp_min(1) * (1 - 1e-6)).float()
        return {name: value.cpu().contiguous() for name, value in found.items()}

    def bounds(self) -> tuple[float, float]:
        """Proved bounds of the Hessian of `g` for all pictures and noise levels: `(lowest, Lambda)`."""
        filters, values, shares = (p.detach().double().cpu() for p in (self.filters, self.values, self.shares))
        high, low = (float(curvature_bounds(filters, values, shares, end).max()) for end in (1, -1))
        return -low, high

    def check(self, source: str) -> None:
        """Refuse weights for which it is not proved that `D` is a proximal operator."""
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters()):
            raise InputError(f"{source}: weights that are not finite: give other weights")
        for name, p in (("values", self.values), ("shares", self.shares)):
            least = float(p.detach().min())
            if least < 0:
                raise InputError(f"{source}: {name} has {least:.4g}, and must be at least 0: give other weights")
        high = self.bounds()[1]
        if not high <= 1:
            raise InputError(
                f"{source}: the curvature bound of these weights is {high:.6g}, above 1: "
                "no proximal operator is proved; divide their shares by it"
            )

    def initialise(self) -> None:
        """Random filters without a mean, and splines that cut what is below three times the noise."""
        nn.init.normal_(self.filters, std=0.05)
        knots = torch.tensor(KNOTS[1:])
        with torch.no_grad():
            self.values.copy_(knots.clamp(max=3).expand_as(self.values))
            self.shares.fill_(1)
            lengths = (self.filters - self.filters.mean((2, 3), keepdim=True)).square().sum((1, 2, 3)).sqrt()
            self.scales.copy_(-lengths.log()[:, None].expand_as(self.scales))
            self.shares.copy_(self.normalised()["shares"])

    @classmethod
    def of_size(cls, channels: int, widths: tuple[int, ...] | None = None, blocks: int | None = None) -> Self:
        """The width is the number of filters, each of which has three mirror images."""
        if blocks is not None:
            raise InputError(f"blocks = {blocks}: a ridge regulariser has none; leave it out")
        return cls(channels, *(widths or cls.shipped_widths))

    @classmethod
    def fitting(cls, tensors: Tensors, source: str) -> Self:
        """Of the sizes of these tensors."""
        filters = tensors[cls.first_layer]
        if filters.ndim != 4 or 0 in filters.shape or filters.shape[-1] % 2 == 0 or filters.shape[-1] > 65:
            raise InputError(f"{source}: filters of shape {tuple(filters.shape)}: not those of a {cls.description}")
        return cls(int(filters.shape[1]), int(filters.shape[0]), int(filters.shape[-1]))


class Prepared:
    """The parameters of a regulariser as its calls need them, with all four images of each filter."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        filters = weights["filters"]
        self.radius = int(filters.shape[-1]) // 2
        self.bank = torch.cat([filters.flip(axes) if axes else filters for axes in IMAGES])
        self.slopes = slopes_of(weights["values"]).repeat(len(IMAGES), 1)
        self.table = spline_table(self.slopes)
        self._scales, self._shares = weights["scales"], weights["shares"]

    def gradient(self, x: Tensor, scale: Tensor, share: Tensor) -> Tensor:
        """`grad g` at x (B, C, H, W) with what `at` gives for its noise levels."""
        t = F.conv2d(extended(x, self.radius), self.bank) * scale
        response = Spline.apply(t, self.slopes, self.table) * (share / scale)  # type: ignore[no-untyped-call]
        return folded(transposed(response, self.bank), self.radius)

    def at(self, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """`s_o / sigma` and `a_o` at noise levels (B,), each (B, filters, 1, 1)."""
        sigma = sigma.to(self._scales)
        levels = sigma.new_tensor(LEVELS)
        place = (sigma * 255 / levels[0]).log2().clamp(0, len(LEVELS) - 1)
        low = place.floor().long().clamp(max=len(LEVELS) - 2)
        rest = place - low
        tables = (table[:, low] * (1 - rest) + table[:, low + 1] * rest for table in (self._scales, self._shares))
        scale, share = (one.T.repeat(1, len(IMAGES))[:, :, None, None] for one in tables)
        return scale.exp() / sigma[:, None, None, None], share


def slopes_of(values: Tensor) -> Tensor:
    """Slopes of the splines between their knots, (O, knots - 1), from their values right of 0."""
    steps = values.new_tensor(KNOTS).diff()
    return torch.diff(values, prepend=torch.zeros_like(values[:, :1]), dim=1) / steps


def steepest(values: Tensor, end: int) -> Tensor:
    """The largest slope of each spline, or for `end = -1` minus the least; at least 0."""
    return (end * slopes_of(values)).amax(1).clamp_min(0)


def curvature_bounds(filters: Tensor, values: Tensor, shares: Tensor, end: int) -> Tensor:
    """The bound of the largest eigenvalue of `end` times the Hessian of `g` at each noise level of the table."""
    return spectrum_bound(filters, shares * steepest(values, end)[:, None])


class Spline(torch.autograd.Function):
    """The odd linear splines of all filters, `phi(t) = sign(t) sum_j d_j clamp(|t| - t_j, 0, t_{j+1} - t_j)`."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, slopes: Tensor, table: Tensor) -> Tensor:
        """`phi` of t (B, F, H, W) for slopes (F, J) and their `spline_table`."""
        slope, start = pieces(t, table[..., :2])
        ctx.save_for_backward(t, slope)
        return torch.addcmul(start, slope, t.abs()).mul_(t.sign())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Derivatives in `t` and in the slopes."""
        t, slope = ctx.saved_tensors
        found = []
        if ctx.needs_input_grad[1]:
            u, signed = t.abs(), gradients[0] * t.sign()
            for low, high in pairwise(KNOTS):
                found.append((u - low).clamp_(0, high - low).mul_(signed).sum((0, 2, 3)))
        return gradients[0] * slope, torch.stack(found, 1) if found else None, None


def spline_and_energy(t: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """`phi(t)`, and `psi` summed over the pixels in float64, (B, F), for t (B, F, H, W) and a `spline_table`."""
    slope, start, constant = pieces(t, table)
    u = t.abs()
    phi = torch.addcmul(start, slope, u)
    # psi(u) = A + (start + phi) u / 2
    psi = torch.addcmul(constant, start.add_(phi), u, value=0.5).sum((2, 3), dtype=torch.float64)
    return phi.mul_(t.sign()), psi


def spline_table(slopes: Tensor) -> Tensor:
    """`phi(u) = start + slope u` and `psi(u) = A + start u + slope u^2 / 2` in cells of half a unit: (F, cells, 3).

    The last cell is all that lies beyond the last knot.
    """
    knots = torch.tensor(KNOTS, dtype=torch.float64, device=slopes.device)
    slope = F.pad(slopes.detach().double(), (0, 1))
    value = F.pad((slope[:, :-1] * knots.diff()).cumsum(1), (1, 0))
    energy = (value[:, :-1] + slope[:, :-1] * knots.diff() / 2) * knots.diff()
    start = value - slope * knots
    constant = F.pad(energy.cumsum(1), (1, 0)) - (start + slope * knots / 2) * knots
    table = torch.stack([slope, start, constant], -1)
    return table[:, torch.tensor(PIECES, device=slopes.device)].to(slopes)


def pieces(t: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """The columns of the table for the cells in which t (B, F, H, W) lies."""
    filters, cells, kinds = table.shape
    place = (t.abs() / CELL).clamp_(max=cells - 1).int()
    place += cells * torch.arange(filters, dtype=torch.int32, device=t.device)[:, None, None]
    columns = (table[..., i].reshape(-1, 1) for i in range(kinds))
    return tuple(F.embedding(place, column).squeeze(-1) for column in columns)


def transposed(response: Tensor, bank: Tensor) -> Tensor:
    """The adjoint of `conv2d(., bank)`. On CPUs a matrix product and sums of shifted planes take half the time."""
    if response.is_cuda:
        return F.conv_transpose2d(response, bank)
    (batch, filters), (height, width), side = response.shape[:2], response.shape[2:], bank.shape[-1]
    columns = bank.reshape(filters, -1).T @ response.reshape(batch, filters, -1)
    return F.fold(columns, (height + side - 1, width + side - 1), (side, side))


def extended(x: Tensor, radius: int) -> Tensor:
    """x (B, C, H, W) continued by its mirror image, by `radius` pixels at each side."""
    for axis in (-2, -1):
        x = x.index_select(axis, mirrored_places(x.shape[axis], radius, x.device))
    return x


def folded(y: Tensor, radius: int) -> Tensor:
    """The adjoint of `extended`."""
    for axis in (-2, -1):
        side = y.shape[axis] - 2 * radius
        places = mirrored_places(side, radius, y.device)
        middle = y.narrow(axis, radius, side)
        for first in (0, radius + side):
            middle = middle.index_add(axis, places[first : first + radius], y.narrow(axis, first, radius))
        y = middle
    return y


def mirrored_places(side: int, radius: int, device: torch.device) -> Tensor:
    """The pixel that stands at each place of a line of `side` pixels continued by its mirror image."""
    line = torch.arange(-radius, side + radius, device=device) % (2 * side)
    return torch.minimum(line, 2 * side - 1 - line)
