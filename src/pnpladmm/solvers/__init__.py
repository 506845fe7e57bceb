"""Problem, methods, the one loop, certificate and result. A solver never prints and never reads pictures."""

from pnpladmm.solvers.admm import ADMM
from pnpladmm.solvers.annealed import Annealed
from pnpladmm.solvers.certificate import Certificate, Level
from pnpladmm.solvers.checkpoint import load_state, save_state
from pnpladmm.solvers.fista import FISTA
from pnpladmm.solvers.history import History
from pnpladmm.solvers.ista import ISTA
from pnpladmm.solvers.ladmm import LADMM
from pnpladmm.solvers.leaping import LeapingLADMM
from pnpladmm.solvers.loop import Progress, solve
from pnpladmm.solvers.method import Method, State
from pnpladmm.solvers.primal_dual import PrimalDual
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.result import Result, Status
from pnpladmm.solvers.richardson_lucy import RichardsonLucy

__all__ = [
    "ADMM",
    "FISTA",
    "ISTA",
    "LADMM",
    "Annealed",
    "Certificate",
    "History",
    "LeapingLADMM",
    "Level",
    "Method",
    "PrimalDual",
    "Problem",
    "Progress",
    "Result",
    "RichardsonLucy",
    "State",
    "Status",
    "load_state",
    "save_state",
    "solve",
]
