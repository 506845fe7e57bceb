"""Bad input gives one line that names the value, and never a traceback from the depths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pnpladmm as pl

K = torch.rand(2, 3, 3)
U = torch.rand(2, 8, 9)
Y = torch.rand(1, 1, 8, 9)
NAN = Y.clone()
NAN[0, 0, 2, 3] = torch.nan


def blur() -> pl.SpatiallyVaryingBlur:
    return pl.SpatiallyVaryingBlur(K, U)


def problem(y: torch.Tensor = Y) -> pl.Problem:
    return pl.Problem(y, blur(), pl.Gaussian(0.1))


def tv() -> object:
    return pl.load_denoiser("tv")


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "counts differ": (
        lambda: pl.SpatiallyVaryingBlur(torch.rand(5, 3, 3), torch.rand(4, 8, 9)),
        "kernels: 5, weights: 4",
    ),
    "weights of 2 axes": (lambda: pl.SpatiallyVaryingBlur(K, U[0]), r"weights have shape \(8, 9\)"),
    "kernels of 2 axes": (lambda: pl.SpatiallyVaryingBlur(K[0], U), r"kernels have shape \(3, 3\)"),
    "no kernels": (lambda: pl.SpatiallyVaryingBlur(K[:0], U[:0]), r"kernels have shape"),
    "kernel larger than picture": (
        lambda: pl.SpatiallyVaryingBlur(torch.rand(2, 11, 3), U),
        "kernels are 11x3, the picture 8x9",
    ),
    "zero weights": (lambda: pl.SpatiallyVaryingBlur(K, 0 * U), "weights are all zero"),
    "zero kernels": (lambda: pl.SpatiallyVaryingBlur(0 * K, U), "kernels are all zero"),
    "NaN kernels": (lambda: pl.SpatiallyVaryingBlur(K / 0 * 0, U), "kernels have 18 values that are NaN"),
    "complex kernels": (lambda: pl.SpatiallyVaryingBlur(K + 0j, U), "complex64: give real numbers"),
    "unknown boundary name": (
        lambda: pl.SpatiallyVaryingBlur(K, U, "mirror"),
        "boundary 'mirror': choose one of circular",
    ),
    "unknown order": (lambda: pl.SpatiallyVaryingBlur(K, U, order="both"), "order 'both'"),
    "a blur for 2 pictures, 3 given": (
        lambda: pl.SpatiallyVaryingBlur(K[None].repeat(2, 1, 1, 1), U[None].repeat(2, 1, 1, 1)).forward(
            Y.repeat(3, 1, 1, 1)
        ),
        "blurs: 2, pictures: 3",
    ),
    "batched weights, plain kernels": (lambda: pl.SpatiallyVaryingBlur(K, U[None]), r"kernels have shape \(2, 3, 3\)"),
    "channels differ": (
        lambda: pl.SpatiallyVaryingBlur(torch.rand(2, 3, 3, 3), U).forward(Y.repeat(1, 2, 1, 1)),
        "kernels have 3 channels, the picture has 2",
    ),
    "forward of an array": (lambda: blur().forward(Y.numpy()), "the picture is a ndarray"),
    "forward of 3 axes": (lambda: blur().forward(Y[0]), r"the picture has shape \(1, 8, 9\)"),
    "adjoint of bytes": (lambda: blur().adjoint((Y * 255).byte()), "dtype torch.uint8"),
    "kernels that are none": (lambda: pl.SpatiallyVaryingBlur(None, U), "kernels are a"),
    "ragged kernels": (lambda: pl.SpatiallyVaryingBlur([[[1.0], [1.0, 2.0]]], U), "kernels are a"),
    "state of another method": (
        lambda: pl.solve(problem(), pl.ISTA(tv(), 0.1, 9.0), start=pl.LADMM(tv(), 0.1, 1.0, 2.0).init(problem())),
        "start is a LADMMState: ISTA goes on from a ISTAState; start=state.x begins with its picture",
    ),
    "reference an array": (
        lambda: pl.solve(problem(), pl.RichardsonLucy(), reference=Y.numpy()),
        "reference is a ndarray",
    ),
    "picture of another size": (
        lambda: blur().forward(torch.rand(1, 1, 7, 9)),
        "the picture is 7x9: the operator takes 8x9",
    ),
    "decimation factor": (lambda: pl.Decimation(0), "decimation factor 0"),
    "odd size decimated": (lambda: pl.Decimation(2).forward(Y), "8x9 cannot be decimated by 2"),
    "composition that does not fit": (lambda: pl.Decimation(2) @ blur(), "8x9 cannot be decimated by 2"),
    "mask of another size": (
        lambda: pl.Mask(torch.ones(3, 3)).forward(Y),
        "the picture is 8x9: the operator takes 3x3",
    ),
    "empty mask": (lambda: pl.Mask(torch.zeros(3, 3)), "the mask is all zero"),
    "fraction": (lambda: pl.SubsampledTransform((8, 8), 1.5), "fraction 1.5"),
    "Hadamard of a wrong size": (lambda: pl.SubsampledTransform((8, 9), 0.5, "hadamard"), "a side of 9 pixels"),
    "transform name": (lambda: pl.SubsampledTransform((8, 8), 0.5, "fourier"), "transform 'fourier'"),
    "not an operator": (lambda: pl.Problem(Y, "blur", pl.Gaussian(0.1)), "operator is a str"),
    "norm without a size": (lambda: pl.LinearOperator.norm_squared(pl.Decimation(2)), "give its shape"),
    "sigma 0": (lambda: pl.Gaussian(0), "sigma = 0: give a finite number above 0"),
    "sigma negative": (lambda: pl.Gaussian(-1.5), "sigma = -1.5"),
    "sigma NaN": (lambda: pl.Gaussian(float("nan")), "sigma = nan"),
    "sigmas for another batch": (lambda: pl.Problem(Y, blur(), pl.Gaussian(torch.tensor([0.1, 0.2]))), r"shape \(2,\)"),
    "precision negative": (lambda: pl.WeightedGaussian(-torch.ones(8, 9)), "precision has negative"),
    "precision of another size": (
        lambda: pl.Problem(Y, blur(), pl.WeightedGaussian(torch.ones(3, 3))),
        r"precision has shape \(3, 3\)",
    ),
    "no precision": (lambda: pl.WeightedGaussian(torch.zeros(8, 9)), "precision is 0 everywhere"),
    "Poisson without background": (lambda: pl.Poisson(), "background = 0.0"),
    "negative counts": (lambda: pl.Problem(-Y, blur(), pl.Poisson(1.0, 0.1)), "must not be negative"),
    "NaN pixels": (lambda: problem(NAN), "observed has 1 pixels that are NaN"),
    "8-bit pixels": (lambda: problem((Y * 255).byte()), "observed has dtype torch.uint8"),
    "empty batch": (lambda: problem(Y[:0]), r"observed has shape \(0, 1, 8, 9\)"),
    "3 axes": (lambda: problem(Y[0]), r"observed has shape \(1, 8, 9\)"),
    "an array": (lambda: problem(Y.numpy()), "observed is a ndarray"),
    "observation of another size": (lambda: problem(torch.rand(1, 1, 9, 9)), "is 9x9: the operator takes 8x9"),
    "not a data term": (lambda: pl.Problem(Y, blur(), 0.1), "data_term is a float"),
    "denoiser name": (lambda: pl.load_denoiser("bm3d"), "denoiser 'bm3d': choose one of"),
    "denoiser is no callable": (lambda: pl.LADMM("tv", 0.1, 1.0, 1.0), "denoiser is a str"),
    "sigma_d 0": (lambda: pl.LADMM(tv(), 0.0, 1.0, 1.0), "sigma_d = 0.0"),
    "beta negative": (lambda: pl.LADMM(tv(), 0.1, -1.0, 1.0), "beta = -1.0"),
    "L_x infinite": (lambda: pl.ISTA(tv(), 0.1, float("inf")), "L_x = inf"),
    "rho 0": (lambda: pl.ADMM(tv(), 0.1, 0.0), "rho = 0.0"),
    "no CG steps": (lambda: pl.ADMM(tv(), 0.1, 1.0, cg_iterations=0), "cg_iterations = 0"),
    "CG steps of other calls": (
        lambda: pl.Annealed(tv(), 0.1, calls=4, cg_iterations=torch.full((1, 3, 2), 5)),
        r"of shape \(1, 3, 2\): give a whole number, or whole numbers of shape \(B, 4\) or \(B, 4, C\)",
    ),
    "CG steps that grow": (
        lambda: pl.Annealed(tv(), 0.1, calls=2, cg_iterations=torch.tensor([[[5, 3, 2], [3, 4, 2]]])),
        "grow from one colour plane to the next",
    ),
    "CG steps of no calls": (
        lambda: pl.Annealed(tv(), 0.1, calls=4, cg_iterations=torch.full((4,), 5)),
        r"of shape \(4,\): give",
    ),
    "half a CG step": (lambda: pl.Annealed(tv(), 0.1, cg_iterations=torch.tensor(2.5)), "are torch.float32 of shape"),
    "CG steps for nobody": (lambda: pl.Annealed(tv(), 0.1, cg_iterations=torch.ones(0)), r"= tensor\(\[\]\)"),
    "box upside down": (lambda: pl.PrimalDual(tv(), 0.1, 1.0, 1.0, box=(1, 0)), r"box \(1, 0\)"),
    "ADMM with counts": (
        lambda: pl.solve(pl.Problem(Y, blur(), pl.Poisson(1.0, 0.1)), pl.ADMM(tv(), 0.1, 1.0)),
        "ADMM needs a quadratic data term, Poisson is not",
    ),
    "Richardson-Lucy with a signed blur": (
        lambda: pl.solve(pl.Problem(Y, pl.SpatiallyVaryingBlur(K - 0.5, U), pl.Gaussian(0.1)), pl.RichardsonLucy()),
        "without negative entries",
    ),
    "no iterations": (lambda: pl.solve(problem(), pl.RichardsonLucy(), 0), "iterations = 0"),
    "start of another shape": (
        lambda: pl.solve(problem(), pl.RichardsonLucy(), start=torch.rand(1, 1, 3, 3)),
        "start has shape",
    ),
    "start by a wrong name": (lambda: pl.solve(problem(), pl.RichardsonLucy(), start="zero"), "start 'zero'"),
    "z_start by a wrong name": (lambda: pl.solve(problem(), pl.LADMM(tv(), 0.1, 1.0, 2.0, z_start="x")), "z_start 'x'"),
    "z_start of another shape": (
        lambda: pl.solve(problem(), pl.LADMM(tv(), 0.1, 1.0, 2.0, z_start=torch.rand(1, 1, 2, 2))),
        r"z_start has shape \(1, 1, 2, 2\)",
    ),
    "reference of another shape": (
        lambda: pl.solve(problem(), pl.RichardsonLucy(), reference=torch.rand(1, 1, 3, 3)),
        "reference has shape",
    ),
    "sigma_d for another batch": (
        lambda: pl.solve(problem(), pl.LADMM(tv(), torch.tensor([0.1, 0.2]), 1.0, 2.0)),
        r"shape \(2,\): give one number, or 1 of them",
    ),
    "denoiser that changes the shape": (
        lambda: pl.solve(problem(), pl.LADMM(lambda x, s: x[..., 1:], 0.1, 1.0, 2.0)),
        "denoiser <lambda> returned shape",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_that_names_the_value(name: str) -> None:
    action, message = CASES[name]
    with pytest.raises(pl.InputError, match=message) as caught:
        action()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)
