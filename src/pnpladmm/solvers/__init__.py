"""Problem, methods, the one loop, certificate and result. A solver never prints and never reads pictures.

Importing this room registers all methods of the package in `METHODS`.
"""

from pnpladmm.solvers.admm import ADMM
from pnpladmm.solvers.annealed import Annealed
from pnpladmm.solvers.certificate import Certificate, Level
from pnpladmm.solvers.checkpoint import load_state, save_state
from pnpladmm.solvers.fista import FISTA
from pnpladmm.solvers.gradients import solve_with_gradients
from pnpladmm.solvers.history import History
from pnpladmm.solvers.ista import ISTA
from pnpladmm.solvers.ladmm import LADMM
from pnpladmm.solvers.leaping import LeapingLADMM
from pnpladmm.solvers.loop import Progress, solve
from pnpladmm.solvers.method import Method, PlugAndPlay
from pnpladmm.solvers.primal_dual import PrimalDual
from pnpladmm.solvers.problem import Problem
from pnpladmm.solvers.registry import METHODS, make_method, method_class
from pnpladmm.solvers.result import Result, Status
from pnpladmm.solvers.richardson_lucy import RichardsonLucy
from pnpladmm.solvers.sources import Sources
from pnpladmm.solvers.state import PlugAndPlayState, State
from pnpladmm.solvers.workspace import Workspace

__all__ = [
    "ADMM",
    "FISTA",
    "ISTA",
    "LADMM",
    "METHODS",
    "Annealed",
    "Certificate",
    "History",
    "LeapingLADMM",
    "Level",
    "Method",
    "PlugAndPlay",
    "PlugAndPlayState",
    "PrimalDual",
    "Problem",
    "Progress",
    "Result",
    "RichardsonLucy",
    "Sources",
    "State",
    "Status",
    "Workspace",
    "load_state",
    "make_method",
    "method_class",
    "save_state",
    "solve",
    "solve_with_gradients",
]
