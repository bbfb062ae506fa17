"""From rows to a certified solution: likelihoods, the problem, solvers in one loop, and the certificate."""

from closefar.solve.certificate import Certificate, Outcome
from closefar.solve.cone import psd_factor
from closefar.solve.curvature import Curvature, MarginCurvature
from closefar.solve.flipped import solve_with_flips
from closefar.solve.history import FitStep
from closefar.solve.likelihood import CloseFar, Evaluation, Likelihood
from closefar.solve.loop import Solver, State, Watch, unwatched
from closefar.solve.objective import Objective, Passes
from closefar.solve.recession import find_recession
from closefar.solve.sampling import share_for_hessian
from closefar.solve.solution import Options, Solution, choose_solver, solve
from closefar.solve.solvers import SOLVERS

__all__ = [
    "SOLVERS",
    "Certificate",
    "CloseFar",
    "Curvature",
    "Evaluation",
    "FitStep",
    "Likelihood",
    "MarginCurvature",
    "Objective",
    "Options",
    "Outcome",
    "Passes",
    "Solution",
    "Solver",
    "State",
    "Watch",
    "choose_solver",
    "find_recession",
    "psd_factor",
    "share_for_hessian",
    "solve",
    "solve_with_flips",
    "unwatched",
]
