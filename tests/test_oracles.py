"""Against other solvers: pyproximal's linearized ADMM, and our own methods among each other."""

from __future__ import annotations

import numpy as np
import pyproximal
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.denoisers import SoftThreshold, Tikhonov
from pnpladmm.operators.transforms import DCT
from pnpladmm.solvers.ladmm import LADMMState

SIGMA = 0.05


class PixelSoft:
    """Soft thresholding of the pixels themselves: `f = ||x||_1`, as pyproximal's `L1`."""

    promise = pl.Promise.CONVEX

    def __call__(self, v: Tensor, sigma: float) -> Tensor:
        return v.sign() * (v.abs() - sigma**2).clamp_min(0)


@pytest.mark.parametrize("beta", [80.0, 400.0])
def test_iterates_equal_pyproximals_linearized_admm(beta: float) -> None:
    problem, _ = small_problem(SIGMA)
    y, shape = problem.observed, problem.shape
    L_x = 1.05 * beta * float(problem.norm_squared.upper)
    weight = 20.0  # lambda f = weight ||x||_1
    sigma_d = float(np.sqrt(weight / L_x))

    x0 = torch.rand(shape, dtype=torch.float64)
    theirs: list[np.ndarray] = []
    from pylops import LinearOperator as Pylops

    pyproximal.optimization.primal.LinearizedADMM(
        pyproximal.L1(sigma=weight),
        pyproximal.L2(sigma=1 / SIGMA**2, b=y.numpy().ravel()),
        Pylops(problem.operator.to_scipy(shape)),
        x0=x0.numpy().ravel(),
        tau=1 / beta,
        mu=1 / L_x,
        niter=60,
        callback=lambda x: theirs.append(x.copy()),
    )
    method = pl.LADMM(PixelSoft(), sigma_d, beta=beta, L_x=L_x)
    Hx = problem.operator.forward(x0)
    state = LADMMState(x=x0, z=Hx, u=torch.zeros_like(Hx), Hx=Hx)  # where pyproximal starts
    for expected in theirs:
        state = method.step(problem, state)
        assert np.abs(state.x.numpy().ravel() - expected).max() < 1e-8
    assert len(theirs) == 60


@pytest.mark.parametrize("denoiser", [SoftThreshold(DCT(), weight=8.0), Tikhonov()], ids=["soft", "tikhonov"])
def test_limits_of_all_methods_agree_for_a_convex_prior(denoiser: SoftThreshold) -> None:
    """Same `lambda f`, five roads."""
    problem, _ = small_problem(SIGMA)
    smooth = float(problem.norm_squared.upper) / SIGMA**2
    lam = 1.0  # lambda = L_x sigma_d^2 for each

    def sigma_d(curvature: float) -> float:
        return float(np.sqrt(lam / curvature))

    beta = 0.3 / SIGMA**2
    L_x = beta * float(problem.norm_squared.upper)
    methods = [
        pl.LADMM(denoiser, sigma_d(L_x), beta=beta, L_x=L_x),
        pl.PrimalDual(denoiser, sigma_d(L_x), beta=beta, L_x=L_x),
        pl.ISTA(denoiser, sigma_d(smooth), L_x=smooth),
        pl.FISTA(denoiser, sigma_d(smooth), L_x=smooth),
        pl.ADMM(denoiser, sigma_d(100.0), rho=100.0, cg_iterations=200, cg_tolerance=1e-12),
    ]
    images = [pl.solve(problem, method, 20_000, 1e-10).image for method in methods]
    for image, method in zip(images[1:], methods[1:], strict=True):
        assert float((image - images[0]).abs().max()) < 1e-5, method.name


def test_limit_is_the_dense_solution_for_a_quadratic_problem() -> None:
    """`(H^T H / sigma^2 + lambda weight grad^T grad) x = H^T y / sigma^2`."""
    from conftest import dense
    from pnpladmm.denoisers.tv import gradient, gradient_adjoint

    problem, _ = small_problem(SIGMA, size=12)
    method = pl.LADMM.certified(Tikhonov(weight=10.0), problem, 0.1)
    H = torch.from_numpy(dense(problem.operator, problem.shape))
    eye = torch.eye(144, dtype=torch.float64).reshape(144, 1, 12, 12)
    laplacian = gradient_adjoint(gradient(eye)).reshape(144, 144)
    lam = float(method.L_x) * 0.1**2
    expected = torch.linalg.solve(
        H.T @ H / SIGMA**2 + lam * 10 * laplacian, H.T @ problem.observed.flatten() / SIGMA**2
    )
    found = pl.solve(problem, method, 20_000, 1e-12).image.flatten()
    assert float((found - expected).abs().max()) < 1e-8


def test_box_constraint_of_primal_dual_is_exact() -> None:
    """The constrained quadratic solution equals scipy's bounded least squares."""
    from scipy.optimize import lsq_linear

    from conftest import dense

    operator = positive_blur((8, 8), k=3)
    y = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    problem = pl.Problem(y, operator, pl.Gaussian(1.0))
    L_x = float(operator.norm_squared().upper) + 1
    method = pl.PrimalDual(pl.load_denoiser("identity"), 1.0, beta=1.0, L_x=L_x, box=(0.0, 0.5))
    result = pl.solve(problem, method, 20_000, 1e-13)
    expected = lsq_linear(dense(operator, problem.shape), y.numpy().ravel(), bounds=(0, 0.5), tol=1e-14).x
    np.testing.assert_allclose(result.image.numpy().ravel(), expected, atol=1e-5)
    assert result.certificate.level is pl.Level.CONVEX


def test_richardson_lucy_equals_scikit_images_inside() -> None:
    """Uniform blur, where `H^T 1 = 1`; scikit-image pads with zeros, so compare away from the border."""
    from skimage.restoration import richardson_lucy

    from pnpladmm.blur import gaussian

    sharp = picture(64)
    kernel = gaussian(1.5)
    operator = pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, 64, 64), "zero")
    y = operator.forward(sharp)
    start = torch.full_like(sharp, 0.5)
    expected = richardson_lucy(y[0, 0].numpy(), kernel.numpy(), num_iter=8, clip=False)
    found = pl.solve(pl.Problem(y, operator, pl.Gaussian(0.01)), pl.RichardsonLucy(), 8, 0, start=start).image
    inside = np.s_[24:40, 24:40]  # at zero borders H^T 1 < 1, and only ours divides by it
    assert np.abs(found[0, 0].numpy()[inside] - expected[inside]).max() < 0.02


def test_richardson_lucy_divides_by_the_adjoint_of_one() -> None:
    """For columns that do not sum to one only the normalised iteration keeps the truth fixed."""
    from test_norm import paper_like_blur

    operator = paper_like_blur(0, 64)
    sharp = picture(64)
    problem = pl.Problem(operator.forward(sharp), operator, pl.Gaussian(0.01))
    result = pl.solve(problem, pl.RichardsonLucy(), 3, 0, start=sharp)
    assert float((result.image - sharp).abs().max()) < 1e-10
