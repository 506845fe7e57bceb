"""Plug & Play linearized ADMM for pictures degraded by operators that no closed form undoes.

import pnpladmm as pl

op = pl.SpatiallyVaryingBlur(kernels, weights, boundary="unknown")
problem = pl.Problem(observed, op, pl.Gaussian(sigma=5 / 255))
result = pl.solve(problem, pl.LADMM.certified(pl.load_denoiser("tv"), problem, sigma_d=0.03))
print(result.status.advice, result.certificate)
"""

from pnpladmm.allocator import keep_memory
from pnpladmm.blur import Blur, read_blur, write_blur
from pnpladmm.data_terms import Gaussian, Poisson, WeightedGaussian
from pnpladmm.denoisers import Promise, as_denoiser, load_denoiser, relaxed
from pnpladmm.operators import (
    Decimation,
    LinearOperator,
    Mask,
    NormBound,
    SpatiallyVaryingBlur,
    SubsampledTransform,
    check_adjoint,
)
from pnpladmm.pictures import Picture, read_picture, write_picture
from pnpladmm.restore import Counts, Restoration, restore, restore_picture
from pnpladmm.simulate import simulate
from pnpladmm.solvers import (
    ADMM,
    FISTA,
    ISTA,
    LADMM,
    Annealed,
    Certificate,
    History,
    LeapingLADMM,
    Level,
    PrimalDual,
    Problem,
    Progress,
    Result,
    RichardsonLucy,
    Status,
    load_state,
    save_state,
    solve,
)
from pnpladmm.tensors import InputError

__all__ = [
    "ADMM",
    "FISTA",
    "ISTA",
    "LADMM",
    "Annealed",
    "Blur",
    "Certificate",
    "Counts",
    "Decimation",
    "Gaussian",
    "History",
    "InputError",
    "LeapingLADMM",
    "Level",
    "LinearOperator",
    "Mask",
    "NormBound",
    "Picture",
    "Poisson",
    "PrimalDual",
    "Problem",
    "Progress",
    "Promise",
    "Restoration",
    "Result",
    "RichardsonLucy",
    "SpatiallyVaryingBlur",
    "Status",
    "SubsampledTransform",
    "WeightedGaussian",
    "as_denoiser",
    "check_adjoint",
    "keep_memory",
    "load_denoiser",
    "load_state",
    "read_blur",
    "read_picture",
    "relaxed",
    "restore",
    "restore_picture",
    "save_state",
    "simulate",
    "solve",
    "write_blur",
    "write_picture",
]
__version__ = "0.1.0"
