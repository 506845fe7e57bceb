"""The blur against an explicit matrix that is built entry by entry, without FFT and without the package."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pnpladmm as pl
from conftest import dense, dense_adjoint, positive_blur
from pnpladmm.operators import convolution
from pnpladmm.operators.convolution import BoxBank, DenseBank, TransposedBank
from pnpladmm.operators.windows import BankData

BOUNDARIES = ["circular", "replicate", "reflect", "zero", "unknown"]
ORDERS = ["convolve-then-weight", "weight-then-convolve"]


def source(index: int, n: int, boundary: str, before: int) -> int | None:
    """Where the pixel `index` (possibly outside 0..n-1) comes from."""
    if boundary == "unknown":
        return index + before
    if 0 <= index < n:
        return index
    if boundary == "circular":
        return index % n
    if boundary == "replicate":
        return min(max(index, 0), n - 1)
    if boundary == "reflect":
        return -index if index < 0 else 2 * (n - 1) - index
    return None


def explicit_matrix(kernels: np.ndarray, weights: np.ndarray, boundary: str, order: str) -> np.ndarray:
    """`A[q, r] = sum_i u_i(q or r) k_i[d]`, where pixel r is seen from q at displacement d - k//2."""
    count, kh, kw = kernels.shape
    after = (kh // 2, kw // 2)
    before = (kh - 1 - after[0], kw - 1 - after[1])
    h, w = weights.shape[1:]
    if boundary == "unknown" and order == "weight-then-convolve":
        out, scene = (h - kh + 1, w - kw + 1), (h, w)
    else:
        out = (h, w)
        scene = (h + kh - 1, w + kw - 1) if boundary == "unknown" else (h, w)
    matrix = np.zeros((*out, *scene))
    for q in np.ndindex(*out):
        for d in np.ndindex(kh, kw):
            r = [source(q[a] - d[a] + after[a], out[a], boundary, before[a]) for a in (0, 1)]
            if None in r:
                continue
            at = q if order == "convolve-then-weight" else tuple(r)
            matrix[(*q, *r)] += sum(weights[(i, *at)] * kernels[(i, *d)] for i in range(count))
    return matrix.reshape(out[0] * out[1], -1)


@st.composite
def blurs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, str, str]:
    boundary = draw(st.sampled_from(BOUNDARIES))
    order = draw(st.sampled_from(ORDERS))
    kh, kw = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    h, w = draw(st.integers(kh, 8)), draw(st.integers(kw, 8))
    count = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kernels = rng.standard_normal((count, kh, kw))
    grow = (kh - 1, kw - 1) if (boundary, order) == ("unknown", "weight-then-convolve") else (0, 0)
    weights = rng.standard_normal((count, h + grow[0], w + grow[1]))
    if draw(st.booleans()):  # sparse weights, as segments are
        weights *= rng.random(weights.shape) < 0.15
        weights[:, 0, 0] = 1
    return kernels, weights, boundary, order


@settings(max_examples=150, deadline=None)
@given(blurs())
def test_forward_and_adjoint_equal_the_explicit_matrix(case: tuple[np.ndarray, np.ndarray, str, str]) -> None:
    kernels, weights, boundary, order = case
    operator = pl.SpatiallyVaryingBlur(kernels, weights, boundary, order)
    matrix = explicit_matrix(*case)
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(dense(operator, operator.domain), matrix, atol=1e-12 * scale)
    np.testing.assert_allclose(dense_adjoint(operator, operator.domain), matrix.T, atol=1e-12 * scale)


@settings(max_examples=60, deadline=None)
@given(blurs(), st.integers(1, 3), st.integers(1, 3))
def test_adjoint_on_batches_and_channels(
    case: tuple[np.ndarray, np.ndarray, str, str], batch: int, channels: int
) -> None:
    operator = pl.SpatiallyVaryingBlur(*case)
    assert pl.check_adjoint(operator, (batch, channels, *operator.scene)) < 1e-10


@settings(max_examples=60, deadline=None)
@given(blurs())
def test_both_ways_to_convolve_agree(case: tuple[np.ndarray, np.ndarray, str, str]) -> None:
    kernels, weights, boundary, order = case
    operator = pl.SpatiallyVaryingBlur(kernels, weights, boundary, order)
    data = operator.data(torch.zeros(1, dtype=torch.float32))
    banks = DenseBank(data, operator.observed), BoxBank(data, operator.observed)
    x, y = torch.randn(2, 2, *banks[0].extended), torch.randn(2, 2, *operator.observed)
    scale = float(data.kernels.abs().sum() * data.weights.abs().max())
    for a, b in zip(*([bank.forward(x), bank.adjoint(y)] for bank in banks), strict=True):
        assert float((a - b).abs().max()) <= 1e-6 * scale * 4  # |x|, |y| reach 4


def test_segments_take_boxes_and_dense_weights_do_not() -> None:
    kernels = torch.rand(8, 9, 9)
    labels = torch.arange(64).repeat(64, 1) // 8
    segments = torch.stack([(labels == i).float() for i in range(8)])
    like = torch.zeros(1, 1, 64, 64)
    assert isinstance(pl.SpatiallyVaryingBlur(kernels, segments)._bank(like), BoxBank)
    assert isinstance(pl.SpatiallyVaryingBlur(kernels, torch.rand(8, 64, 64))._bank(like), DenseBank)


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("size", [(60, 64), (62, 67)])
def test_weights_that_act_first_take_boxes_where_the_picture_wraps_round(side: int, size: tuple[int, int]) -> None:
    kernels = torch.rand(8, side, side - 2, dtype=torch.float64)
    labels = torch.arange(size[1]).repeat(size[0], 1) // 9
    segments = torch.stack([(labels == i).double() for i in range(8)])
    blur = pl.SpatiallyVaryingBlur(kernels, segments, "circular", "weight-then-convolve")
    x = torch.rand(2, 3, *size, dtype=torch.float64)
    bank = blur._bank(x)
    assert isinstance(bank, TransposedBank)
    assert isinstance(bank.bank, BoxBank)
    # sum_i k_i * (u_i x), one uniform blur after the other.
    expected = torch.zeros_like(x)
    for kernel, segment in zip(kernels, segments, strict=True):
        uniform = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, *size, dtype=torch.float64))
        expected += uniform.forward(segment * x)
    torch.testing.assert_close(blur.forward(x), expected, rtol=1e-12, atol=1e-12)
    assert pl.check_adjoint(blur, x.shape) < 1e-12


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("boundary", ["circular", "reflect", "unknown"])
@pytest.mark.parametrize("own", [False, True])
def test_large_pictures_channel_by_channel(
    boundary: str, order: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels shared by the channels, or of their own; blurs shared by the pictures, or of their own."""
    kernels = torch.rand(2, 4, 3, 5, 4) if own else torch.rand(4, 5, 4)
    grow = (4, 3) if (boundary, order) == ("unknown", "weight-then-convolve") else (0, 0)
    weights = torch.rand(*((2, 4) if own else (4,)), 30 + grow[0], 32 + grow[1])
    blur = pl.SpatiallyVaryingBlur(kernels.double(), weights.double(), boundary, order)
    assert not isinstance(blur._bank(torch.rand(2, 3, *blur.scene, dtype=torch.float64)), BoxBank)
    x = torch.rand(2, 3, *blur.scene, dtype=torch.float64)
    y = torch.rand(2, 3, *blur.observed, dtype=torch.float64)
    whole = blur.forward(x), blur.adjoint(y)
    monkeypatch.setattr(convolution, "CPU_SAMPLES", 0)
    for a, b in zip(whole, (blur.forward(x), blur.adjoint(y)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_paths_agree_at_full_size_in_float32() -> None:
    kernels = torch.rand(4, 33, 33)
    kernels /= kernels.sum((1, 2), keepdim=True)
    weights = torch.zeros(4, 120, 150)
    for i in range(4):
        weights[i, 30 * i : 30 * i + 40] = 1
    weights /= weights.sum(0)
    data = BankData(kernels[None, :, None], weights[None, :, None], "observed")
    x = torch.rand(1, 3, 152, 182)
    a, b = DenseBank(data, (120, 150)).forward(x), BoxBank(data, (120, 150)).forward(x)
    assert float((a - b).abs().max()) < 1e-6


def test_delta_kernel_is_the_identity() -> None:
    for size in (1, 4, 5):
        kernel = torch.zeros(1, size, size)
        kernel[0, size // 2, size // 2] = 1
        for boundary in BOUNDARIES[:4]:
            operator = pl.SpatiallyVaryingBlur(kernel, torch.ones(1, 9, 11), boundary)
            x = torch.randn(1, 1, 9, 11, dtype=torch.float64)
            torch.testing.assert_close(operator.forward(x), x, atol=1e-12, rtol=0)


def test_convolution_is_not_correlation() -> None:
    kernel = torch.zeros(1, 3, 3)
    kernel[0, 2, 1] = 1  # below the centre: convolution moves the picture down
    x = torch.zeros(1, 1, 7, 7, dtype=torch.float64)
    x[0, 0, 3, 3] = 1
    moved = pl.SpatiallyVaryingBlur(kernel, torch.ones(1, 7, 7)).forward(x)
    assert float(moved[0, 0, 4, 3]) == pytest.approx(1)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_blur_per_picture_and_per_channel(boundary: str, order: str) -> None:
    grow = 3 if (boundary, order) == ("unknown", "weight-then-convolve") else 0
    kernels = torch.randn(2, 3, 2, 4, 4, dtype=torch.float64)
    weights = torch.randn(2, 3, 10 + grow, 11 + grow, dtype=torch.float64)
    batched = pl.SpatiallyVaryingBlur(kernels, weights, boundary, order)
    x = torch.randn(2, 2, *batched.scene, dtype=torch.float64)
    for b in range(2):
        for c in range(2):
            single = pl.SpatiallyVaryingBlur(kernels[b, :, c], weights[b], boundary, order)
            expected = single.forward(x[b : b + 1, c : c + 1])
            torch.testing.assert_close(batched.forward(x)[b : b + 1, c : c + 1], expected, atol=1e-12, rtol=0)
    assert pl.check_adjoint(batched, tuple(x.shape)) < 1e-10


def test_unknown_boundary_invents_nothing() -> None:
    """Blurring a crop's scene gives the crop of the blurred larger picture."""
    kernel = torch.rand(1, 5, 4, dtype=torch.float64)
    large = torch.randn(1, 1, 30, 30, dtype=torch.float64)
    whole = pl.SpatiallyVaryingBlur(kernel, torch.ones(1, 30, 30), "zero").forward(large)
    crop = pl.SpatiallyVaryingBlur(kernel, torch.ones(1, 10, 12), "unknown")
    # 5 rows: 2 before, 2 after the picture; 4 columns: 1 before, 2 after.
    seen = crop.forward(large[..., 8:22, 9:24])
    torch.testing.assert_close(seen, whole[..., 10:20, 10:22], atol=1e-12, rtol=0)


def test_wrong_side_weights_are_caught_by_check_adjoint() -> None:
    """Correlating first and weighting after, as the paper's published code does, is no adjoint."""
    operator = positive_blur()

    class Published:
        def A(self, x: torch.Tensor) -> torch.Tensor:
            return operator.forward(x)

        def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
            kernels, weights = operator.kernels[0, :, 0], operator.weights[0, :, 0]
            return pl.SpatiallyVaryingBlur(kernels.flip(-2, -1), weights).forward(y)

    assert pl.check_adjoint(operator, operator.domain) < 1e-14
    assert pl.check_adjoint(Published(), operator.domain) > 0.005


def test_dtype_and_device_follow_the_picture() -> None:
    operator = positive_blur()
    for dtype in (torch.float32, torch.float64):
        assert operator.forward(torch.rand(1, 1, 24, 20, dtype=dtype)).dtype == dtype
