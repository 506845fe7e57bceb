"""Large banks of kernels are compressed to a stated error, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import dense, picture, positive_blur
from pnpladmm.blur import gaussian
from pnpladmm.operators.compression import _decompose, compress

DOUBLE = torch.float64


def psf_grid(rows: int, columns: int, size: tuple[int, int], spread: float) -> pl.SpatiallyVaryingBlur:
    """Gaussian kernels that turn and widen over the picture; weights are normalised bumps of width `spread` cells."""
    kernels = torch.stack(
        [
            gaussian((0.8 + 1.2 * i / rows, 0.7 + 1.5 * j / columns), 90 * (i / rows + j / columns), size=15)
            for i in range(rows)
            for j in range(columns)
        ]
    )

    def bumps(count: int, length: int) -> Tensor:
        position = torch.linspace(0, count - 1, length, dtype=DOUBLE) - torch.arange(count).unsqueeze(1)
        return torch.exp(-0.5 * (position / spread).square())

    weights = (bumps(rows, size[0])[:, None, :, None] * bumps(columns, size[1])[None, :, None, :]).flatten(0, 1)
    weights = torch.where(weights < 1e-4, 0.0, weights)
    return pl.SpatiallyVaryingBlur(kernels, weights / weights.sum(0), "reflect")


def relative_error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3])
def test_a_large_bank_is_compressed_to_a_stated_error(tolerance: float) -> None:
    whole = psf_grid(15, 20, (96, 90), 4.0)
    small = whole.compressed(tolerance)
    kept = small.compression
    assert kept is not None
    assert kept.before == 300
    assert kept.after == small.kernels.shape[1] < 40
    assert max(kept.white_error, kept.photo_error) <= tolerance
    fewer = compress(whole.kernels, whole.weights, tolerance * 1.0001)
    assert fewer.compression.after <= kept.after
    white, photo = torch.randn(1, 2, 96, 90, dtype=DOUBLE), picture(96)[..., :90]
    assert relative_error(small.forward(white), whole.forward(white)) == pytest.approx(kept.white_error, rel=0.1)
    assert relative_error(small.forward(photo), whole.forward(photo)) < tolerance
    assert relative_error(small.adjoint(photo), whole.adjoint(photo)) < 2 * tolerance
    assert pl.check_adjoint(small, (1, 2, 96, 90)) < 1e-14
    assert small.boundary == whole.boundary


def test_no_rank_less_would_do() -> None:
    """The rank chosen is the least: with one kernel less an error is above the tolerance."""
    whole = psf_grid(5, 6, (40, 36), 2.0)
    pieces = _decompose(whole.kernels[0].double(), whole.weights[0].double())
    for tolerance in (0.3, 0.03, 1e-3, 1e-5):
        rank = pieces.rank(tolerance)
        assert bool((pieces.errors[:, rank] <= tolerance).all())
        assert bool((pieces.errors[:, rank - 1] > tolerance).any())
    # Rank P is the blur itself.
    assert relative_error(*_both_fields(whole, 1e-7)) < 1e-6


def _both_fields(whole: pl.SpatiallyVaryingBlur, tolerance: float) -> tuple[Tensor, Tensor]:
    """The kernels at all pixels, compressed and not."""
    small = compress(whole.kernels, whole.weights, tolerance)
    pairs = ((small.kernels, small.weights), (whole.kernels, whole.weights))
    compressed, plain = (torch.einsum("bpcij,bpohw->bhwcij", k, w) for k, w in pairs)
    return compressed, plain


def test_each_picture_of_a_batch_is_compressed_as_well_as_the_tolerance_asks() -> None:
    blurs = [psf_grid(6, 7, (40, 36), spread) for spread in (2.0, 4.0)]
    kernels, weights = (torch.cat([getattr(b, n) for b in blurs]) for n in ("kernels", "weights"))
    both = pl.SpatiallyVaryingBlur(kernels.squeeze(2), weights.squeeze(2), "reflect")
    small = both.compressed(1e-2)
    x = torch.randn(2, 1, 40, 36, dtype=DOUBLE)
    for i in range(2):
        assert relative_error(small.forward(x)[i], both.forward(x)[i]) < 1.2e-2


def test_compression_that_gains_nothing_is_refused() -> None:
    small_weights = psf_grid(15, 20, (256, 288), 0.4)  # each weight covers a few dozen pixels: boxes are as fast
    with pytest.raises(pl.InputError, match="no faster"):
        small_weights.compressed(1e-3)
    assert small_weights.compressed(1e-3, device="cuda").compression is not None  # many small boxes are slow there
    with pytest.raises(pl.InputError, match="no faster"):
        positive_blur(count=3).compressed(1e-6)
    with pytest.raises(pl.InputError, match="tolerance = 0"):
        positive_blur().compressed(0)


def test_the_norm_of_a_compressed_blur_is_bounded() -> None:
    whole = psf_grid(6, 6, (24, 22), 3.0)
    small = whole.compressed(1e-2)
    bound = small.norm_squared()
    truth = float(torch.linalg.matrix_norm(torch.from_numpy(dense(small, small.domain)), 2)) ** 2
    assert float(bound.lower) <= truth <= float(bound.upper) <= 1.1 * truth
