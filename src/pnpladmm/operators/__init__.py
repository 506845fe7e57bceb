"""Linear maps with exact adjoints. They know tensors only."""

from pnpladmm.operators.base import LinearOperator, Shape, as_operator, check_adjoint
from pnpladmm.operators.blur import SpatiallyVaryingBlur
from pnpladmm.operators.boundary import Boundary
from pnpladmm.operators.norm import NormBound
from pnpladmm.operators.preconditioning import Preconditioner
from pnpladmm.operators.sampling import Decimation, Mask
from pnpladmm.operators.subsampled_transform import SubsampledTransform

__all__ = [
    "Boundary",
    "Decimation",
    "LinearOperator",
    "Mask",
    "NormBound",
    "Preconditioner",
    "Shape",
    "SpatiallyVaryingBlur",
    "SubsampledTransform",
    "as_operator",
    "check_adjoint",
]
