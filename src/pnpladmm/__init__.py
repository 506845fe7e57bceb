"""Restore pictures that a known operator blurred: Plug & Play linearized ADMM.

>>> import numpy as np, pnpladmm as pl
>>> blurred = np.zeros((32, 32)); blurred[8:24, 8:24] = 0.5      # or a file: PNG, JPEG, TIFF, FITS, NPY
>>> psf = np.ones((3, 3)) / 9                                    # or a blur file, or one kernel per region
>>> result = pl.restore(blurred, psf, noise=2 / 255)
>>> np.asarray(result).shape
(32, 32)

`restore` chooses the settings; `solve`, the methods, data terms, operators and denoisers are its parts.
"""

from typing import TYPE_CHECKING

from pnpladmm.allocator import keep_memory
from pnpladmm.blur import Blur, as_blur, read_blur, write_blur
from pnpladmm.data_terms import Gaussian, Poisson, WeightedGaussian
from pnpladmm.denoisers import DENOISERS, Promise, anchored, as_denoiser, load_denoiser, relaxed
from pnpladmm.estimate import estimate_blur
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
from pnpladmm.restoration import Restoration
from pnpladmm.restore import restore
from pnpladmm.simulate import simulate
from pnpladmm.solvers import (
    ADMM,
    FISTA,
    ISTA,
    LADMM,
    METHODS,
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
    Sources,
    Status,
    load_state,
    save_state,
    solve,
    solve_with_gradients,
)
from pnpladmm.tensors import InputError

__all__ = [
    "ADMM",
    "DENOISERS",
    "FISTA",
    "ISTA",
    "LADMM",
    "METHODS",
    "Annealed",
    "Blur",
    "Certificate",
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
    "Sources",
    "SpatiallyVaryingBlur",
    "Status",
    "SubsampledTransform",
    "WeightedGaussian",
    "anchored",
    "as_blur",
    "as_denoiser",
    "check_adjoint",
    "estimate_blur",
    "keep_memory",
    "load_denoiser",
    "load_state",
    "read_blur",
    "read_picture",
    "relaxed",
    "restore",
    "save_state",
    "simulate",
    "solve",
    "solve_with_gradients",
    "write_blur",
    "write_picture",
]
__version__ = "0.1.0"


def _html(result: Result) -> str:
    from pnpladmm.report import as_html  # not needed before a notebook shows a result

    return as_html(result)


Result.html = staticmethod(_html)

_MEANT = {"deblur": "restore", "deconvolve": "restore", "denoise": "load_denoiser"}
"""What people try first, and the name that it has here."""

if not TYPE_CHECKING:  # type checkers know better what exists

    def __getattr__(name: str) -> object:
        """Only for names that do not exist."""
        hint = f": write pnpladmm.{_MEANT[name]}" if name in _MEANT else ""
        raise AttributeError(f"module 'pnpladmm' has no attribute {name!r}{hint}")
