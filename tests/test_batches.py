"""Batches of blurs with different numbers of kernels: nothing is computed for kernels that a picture does not use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.operators import convolution, kernel_order
from pnpladmm.operators.convolution import DenseBank
from pnpladmm.operators.kernel_order import KernelOrder
from pnpladmm.operators.preconditioner import LocalWiener, Patch, Regions
from pnpladmm.operators.windows import BankData, Domain

DOUBLE = torch.float64


def uneven_weights(counts: tuple[int, ...], size: tuple[int, int], most: int = 4) -> Tensor:
    """(b, P, 1, H, W): so many kernels for each picture, and not the first ones."""
    weights = torch.zeros(len(counts), most, 1, *size, dtype=DOUBLE)
    for b, count in enumerate(counts):
        weights[b, most - count :] = torch.rand(count, 1, *size, dtype=DOUBLE) + 0.1
    return weights


@pytest.mark.parametrize("counts", [(1, 3, 2, 4), (4, 3, 3, 1), (2, 2), (1,)])
@pytest.mark.parametrize("weights_on", ["observed", "extended"])
@pytest.mark.parametrize("at_once", [0, 1 << 20], ids=["one kernel at once", "many, as on a GPU"])
def test_a_batch_of_uneven_blurs_is_its_pictures_and_costs_no_more(
    counts: tuple[int, ...], weights_on: Domain, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_order, "CPU_CHUNK_PIXELS", at_once)
    observed, k = (12, 9), 5
    size = observed if weights_on == "observed" else (16, 13)
    weights = uneven_weights(counts, size)
    kernels = torch.rand(len(counts), 4, 2, k, k, dtype=DOUBLE)
    x, y = (torch.randn(len(counts), 2, *n, dtype=DOUBLE) for n in ((16, 13), observed))
    bank = DenseBank(BankData(kernels, weights, weights_on), observed)
    transformed: list[int] = []
    for name in ("rfft2", "irfft2"):
        plain = getattr(convolution, name)

        def counted(v: Tensor, *rest: object, plain: Callable[..., Tensor] = plain, **named: object) -> Tensor:
            transformed.append(v.shape[:-2].numel())
            return plain(v, *rest, **named)

        monkeypatch.setattr(convolution, name, counted)
    together = bank.forward(x), bank.adjoint(y)
    assert sum(transformed) == 2 * 2 * (len(counts) + sum(counts))  # both maps, two channels
    if at_once:
        assert len(transformed) == 2 * (1 + len(set(KernelOrder.from_weights(weights).pictures_per_kernel)))
    for b in range(len(counts)):
        own = BankData(kernels[b : b + 1], weights[b : b + 1], weights_on)
        alone = DenseBank(own, observed)
        torch.testing.assert_close(together[0][b : b + 1], alone.forward(x[b : b + 1]), rtol=0, atol=1e-12)
        torch.testing.assert_close(together[1][b : b + 1], alone.adjoint(y[b : b + 1]), rtol=0, atol=1e-12)


def test_a_shared_blur_serves_every_picture_with_the_kernels_that_do_something() -> None:
    weights, kernels = uneven_weights((2,), (10, 11)), torch.rand(1, 4, 1, 3, 3, dtype=DOUBLE)
    bank = DenseBank(BankData(kernels, weights, "observed"), (10, 11))
    assert bank.spectra.shape[1] == 2
    x = torch.randn(3, 2, 12, 13, dtype=DOUBLE)
    some = DenseBank(BankData(kernels[:, 2:], weights[:, 2:], "observed"), (10, 11))
    torch.testing.assert_close(bank.forward(x), some.forward(x), rtol=0, atol=1e-14)


def test_where_all_have_all_nothing_is_moved() -> None:
    weights = torch.rand(2, 3, 1, 5, 5) + 0.1
    order = KernelOrder.from_weights(weights)
    assert order.reorder_kernels(weights) is weights
    assert order.reorder(weights) is weights
    assert order.reorder_back(weights) is weights


def test_regions_that_are_filtered_together_are_those_filtered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: all regions of all pictures in whole pictures, each picture with another number of them."""
    monkeypatch.setattr(kernel_order, "CPU_CHUNK_PIXELS", 1 << 20)
    counts, size = (1, 3, 2), (8, 10)
    root, power = uneven_weights(counts, size, most=3).sqrt(), torch.rand(3, 3, 1, 8, 6, dtype=DOUBLE)
    whole = (slice(0, 8), slice(0, 10))
    patch = Patch.of(slice(None), whole, root, power, size)
    wiener = patch.order.reorder_kernels(torch.rand(3, 3, 1, 8, 6, dtype=DOUBLE))
    r = torch.randn(3, 2, *size, dtype=DOUBLE)
    found = patch.filtered(r, wiener)
    back = torch.empty(3, dtype=torch.long)
    back[torch.tensor([1, 2, 0])] = torch.arange(3)  # most regions first: pictures 1, 2, 0
    for b, count in enumerate(counts):
        expected = torch.zeros(2, *size, dtype=DOUBLE)
        for q in range(count):
            v = root[b, 3 - count + q]
            spectrum = torch.fft.rfft2(v * r[b]) * wiener[back[b], q]
            expected += v * torch.fft.irfft2(spectrum, size, norm="forward")
        torch.testing.assert_close(found[b], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("map_of_precision", [False, True])
def test_filters_of_uneven_pictures_have_their_own_numbers(map_of_precision: bool) -> None:
    """`a`, precision and floor of each picture go with it, wherever it stands in the line."""
    size = (8, 10)
    whole = (slice(0, 8), slice(0, 10))
    root, power = uneven_weights((1, 3, 2), size, most=3).sqrt(), torch.rand(3, 3, 1, 8, 6, dtype=DOUBLE)
    a = torch.tensor([0.5, 3.0, 20.0], dtype=DOUBLE).reshape(3, 1, 1, 1)
    floor = torch.tensor([0.0, 0.1, 0.4], dtype=DOUBLE).reshape(3, 1, 1, 1, 1)
    precision = 50 * torch.rand(3, 1, *(size if map_of_precision else (1, 1)), dtype=DOUBLE) + 1
    r = torch.randn(3, 2, *size, dtype=DOUBLE)

    def filtered(which: slice) -> Tensor:
        patch = Patch.of(slice(None), whole, root[which], power[which], size)
        regions = Regions((patch,), (0, 0, 0, 0), floor[which])
        return LocalWiener(regions, precision[which], a[which])(r[which])

    together = filtered(slice(None))
    for b in range(3):
        alone = slice(b, b + 1)
        torch.testing.assert_close(together[alone], filtered(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize("map_of_precision", [False, True])
@pytest.mark.parametrize("boundary", ["circular", "unknown"])
def test_filters_that_are_set_anew_are_new_ones(boundary: str, map_of_precision: bool) -> None:
    weights = uneven_weights((1, 3, 2), (14, 15)).squeeze(2)
    blur = pl.SpatiallyVaryingBlur(torch.rand(3, weights.shape[1], 3, 4, dtype=DOUBLE), weights, boundary)
    precision = 50 * torch.rand(3, 1, *((14, 15) if map_of_precision else (1, 1)), dtype=DOUBLE) + 1
    a, other = (torch.rand(3, 1, 1, 1, dtype=DOUBLE) * scale for scale in (1.0, 90.0))
    r = torch.randn(3, 2, *blur.scene, dtype=DOUBLE)
    kept = blur.preconditioner(precision, a)
    before = kept(r)
    kept.set(other)
    torch.testing.assert_close(kept(r), blur.preconditioner(precision, other)(r), rtol=1e-12, atol=0)
    kept.set(a)
    assert torch.equal(kept(r), before)


def test_the_dense_way_is_not_charged_for_kernels_that_are_not_there() -> None:
    """Ten pictures of one kernel each that covers them: one transform there and one back, padded once for all."""
    weights = uneven_weights((1,) * 9 + (4,), (40, 40)).squeeze(2)
    blur = pl.SpatiallyVaryingBlur(torch.rand(10, 4, 5, 5), weights, "unknown")
    assert isinstance(blur._bank(torch.rand(10, 3, *blur.scene, dtype=DOUBLE)), DenseBank)
