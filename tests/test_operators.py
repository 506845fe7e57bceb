"""Decimation, masks, subsampled transforms, compositions, and the doors to other libraries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import svds

import pnpladmm as pl
from conftest import dense, dense_adjoint, positive_blur
from pnpladmm.blur import Blur


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_decimation_equals_slicing(factor: int, rows: int, columns: int) -> None:
    shape = (1, 1, factor * rows, factor * columns)
    kept = np.arange(shape[2] * shape[3]).reshape(shape[2:])[::factor, ::factor].ravel()
    matrix = np.eye(shape[2] * shape[3])[kept]
    np.testing.assert_array_equal(dense(pl.Decimation(factor), shape), matrix)
    np.testing.assert_array_equal(dense_adjoint(pl.Decimation(factor), shape), matrix.T)


@pytest.mark.parametrize("shape", [(4, 5), (2, 4, 5), (3, 2, 4, 5)])
def test_mask_is_diagonal(shape: tuple[int, ...]) -> None:
    mask = torch.randn(shape, dtype=torch.float64)
    operator = pl.Mask(mask)
    full = mask.expand(3, 2, 4, 5)
    np.testing.assert_allclose(dense(operator, (3, 2, 4, 5)), np.diag(full.reshape(-1)), atol=1e-15)
    assert pl.check_adjoint(operator, (3, 2, 4, 5)) < 1e-10
    norm = operator.norm_squared()
    per_picture = full.square().flatten(1).amax(1)
    torch.testing.assert_close(norm.upper.expand(3), per_picture)


@pytest.mark.parametrize(("transform", "size"), [("dct", (6, 7)), ("hadamard", (8, 4))])
def test_subsampled_transform_has_orthonormal_rows(transform: str, size: tuple[int, int]) -> None:
    operator = pl.SubsampledTransform(size, 0.4, transform, seed=3)
    matrix = dense(operator, (1, 1, *size))
    rows = round(0.4 * size[0] * size[1])
    assert matrix.shape == (rows, size[0] * size[1])
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(rows), atol=1e-12)
    np.testing.assert_allclose(dense_adjoint(operator, (1, 1, *size)), matrix.T, atol=1e-12)
    assert pl.check_adjoint(operator, (2, 3, *size)) < 1e-10


def test_dct_and_hadamard_are_the_textbook_ones() -> None:
    from scipy.fft import dctn
    from scipy.linalg import hadamard

    from pnpladmm.operators.transforms import DCT, Hadamard

    x = torch.randn(2, 3, 9, 14, dtype=torch.float64)
    np.testing.assert_allclose(DCT().forward(x), dctn(x.numpy(), axes=(-2, -1), norm="ortho"), atol=1e-12)
    x = torch.randn(1, 1, 8, 16, dtype=torch.float64)
    expected = hadamard(8) @ x.numpy() @ hadamard(16) / np.sqrt(8 * 16)
    np.testing.assert_allclose(Hadamard().forward(x), expected, atol=1e-12)


COMPOSITIONS = {
    "super-resolution": lambda: pl.Decimation(2) @ positive_blur(),
    "inpainting after blur": lambda: pl.Mask(torch.rand(24, 20) > 0.5) @ positive_blur(),
    "compressed sensing of a blur": lambda: pl.SubsampledTransform((24, 20), 0.5) @ positive_blur(),
    "blur of a masked picture": lambda: positive_blur() @ pl.Mask(torch.rand(24, 20) > 0.5),
    "signed mask": lambda: pl.Mask(torch.randn(24, 20)) @ positive_blur(boundary="unknown"),
    "three": lambda: pl.Decimation(2) @ pl.Mask(torch.rand(24, 20)) @ positive_blur(boundary="reflect"),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_composition_is_the_matrix_product(name: str) -> None:
    operator = COMPOSITIONS[name]()
    shape = operator.domain
    matrix = dense(operator, shape)
    assert pl.check_adjoint(operator, shape) < 1e-10
    expected = dense(operator.outer, operator.inner.output_shape(shape)) @ dense(operator.inner, shape)
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
    bound, truth = operator.norm_squared(), np.linalg.norm(matrix, 2) ** 2
    assert float(bound.lower) <= truth <= float(bound.upper)
    assert operator.input_shape(operator.output_shape(shape)) == shape


def test_super_resolution_is_bounded_as_a_whole() -> None:
    """The product of bounds is several times loose, the whole is not."""
    operator = pl.Decimation(2) @ positive_blur((32, 32), k=7)
    truth = np.linalg.norm(dense(operator, operator.domain), 2) ** 2
    assert float(operator.norm_squared().upper) < 1.02 * truth
    assert float(operator.inner.norm_squared().upper) > 2 * truth


def test_scipy_can_solve_with_it() -> None:
    operator = positive_blur((12, 12))
    largest = svds(operator.to_scipy((1, 1, 12, 12)), k=1, return_singular_vectors=False)[0]
    assert largest**2 == pytest.approx(np.linalg.norm(dense(operator, (1, 1, 12, 12)), 2) ** 2, rel=1e-6)


def test_deepinv_physics_is_an_operator() -> None:
    inner = positive_blur()

    class Physics:
        def A(self, x: torch.Tensor) -> torch.Tensor:
            return inner.forward(x)

        def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
            return inner.adjoint(y)

    y = torch.rand(1, 1, 24, 20)
    problem = pl.Problem(y, Physics(), pl.Gaussian(0.1))
    assert problem.shape == (1, 1, 24, 20)
    bound = problem.norm_squared
    truth = np.linalg.norm(dense(inner, inner.domain), 2) ** 2
    assert 0.99 * truth < float(bound.lower) <= truth
    assert torch.isinf(bound.upper).all()
    assert pl.solve(problem, pl.LADMM(pl.load_denoiser("tv"), 0.03, beta=50.0, L_x=60.0), 3).image.shape == y.shape
    with pytest.raises(pl.InputError, match="no proven upper bound"):
        pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05)


def test_a_physics_of_its_own_dtype_is_served_in_it() -> None:
    """A float32 convolution, as deepinv's modules are: runs, bounds and adjoint checks work."""
    import torch.nn.functional as F

    class Convolution(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kernel", torch.rand(1, 1, 5, 5) / 12)

        def A(self, x: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x, self.kernel, padding=2)

        def A_adjoint(self, y: torch.Tensor) -> torch.Tensor:
            return F.conv_transpose2d(y, self.kernel, padding=2)

    physics = Convolution()
    assert pl.check_adjoint(physics, (1, 1, 16, 16)) < 1e-6
    problem = pl.Problem(torch.rand(1, 1, 16, 16), physics, pl.Gaussian(0.05))
    result = pl.solve(problem, pl.LADMM(pl.load_denoiser("tv"), 0.03, beta=300.0, L_x=500.0), 5)
    assert result.certificate.level is pl.Level.OUTSIDE
    assert "inf" in str(result.certificate)


def test_kernels_from_flipped_and_big_endian_arrays() -> None:
    kernels, weights = np.random.default_rng(0).random((1, 3, 3)), np.ones((1, 8, 8))
    plain = pl.SpatiallyVaryingBlur(kernels[:, ::-1, ::-1].copy(), weights)
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    flipped = pl.SpatiallyVaryingBlur(kernels[:, ::-1, ::-1], weights.astype(">f8"))
    assert torch.equal(flipped.forward(x), plain.forward(x))
    assert pl.Decimation(np.int64(2)).factor == 2


def test_a_mask_starts_from_a_filled_picture() -> None:
    """Known pixels stay, a constant is found exactly, and a hole of any size is filled from its rim."""
    generator = torch.Generator().manual_seed(0)
    mask = (torch.rand(1, 1, 24, 31, generator=generator) > 0.7).double()
    mask[..., 4:20, 5:22] = 0
    x = torch.rand(2, 3, 24, 31, generator=generator, dtype=torch.float64)
    operator = pl.Mask(mask)
    start = operator.start(operator.forward(x))
    known = mask.bool().expand_as(x)
    assert torch.equal(start[known], x[known])
    assert float(start.min()) >= float(x[known].min())
    torch.testing.assert_close(operator.start(operator.forward(torch.full_like(x, 0.3))), torch.full_like(x, 0.3))
    nearest = pl.Mask(torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5]]))
    filled = nearest.start(torch.tensor([[[[1.0, 3.0, 0.0, 0.0, 0.0, 0.0, 4.0]]]]))
    torch.testing.assert_close(filled, torch.tensor([[[[1.0, 3.0, 3.0, 3.0, 8.0, 8.0, 8.0]]]]))


def test_operators_and_blurs_show_in_one_line() -> None:
    blur = pl.SpatiallyVaryingBlur(torch.rand(3, 5, 7), torch.rand(3, 16, 18), boundary="reflect")
    shown = "SpatiallyVaryingBlur(3 kernels of 5x7 for 16x18, reflect, convolve-then-weight)"
    assert repr(pl.Decimation(2) @ blur) == f"Decimation(2) @ {shown}"
    scene = pl.SpatiallyVaryingBlur(torch.rand(2, 1, 3, 3), torch.rand(2, 1, 9, 9), "unknown", "weight-then-convolve")
    shown = "SpatiallyVaryingBlur(1 kernel of 3x3 for each of 2 pictures for 7x7, unknown, weight-then-convolve)"
    assert repr(scene) == shown
    mask = torch.ones(4, 10)
    mask[0, :5] = 0
    assert repr(pl.Mask(mask)) == "Mask(4x10, 87.5 % known)"
    described = Blur(torch.rand(3, 33, 33), torch.rand(3, 48, 64))
    assert str(described) == "Blur(3 kernels of 33x33 for 48x64, convolve-then-weight)"
