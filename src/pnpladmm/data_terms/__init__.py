"""The data term `h(z)`: minus the log-likelihood of the observed `y` given the blurred picture `z = Hx`."""

from pnpladmm.data_terms.base import DataTerm
from pnpladmm.data_terms.gaussian import Gaussian, WeightedGaussian
from pnpladmm.data_terms.poisson import Poisson

__all__ = ["DataTerm", "Gaussian", "Poisson", "WeightedGaussian"]
