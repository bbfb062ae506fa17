"""From rows to a certified solution: likelihoods, the problem, solvers in one loop, and the certificate."""

from closefar.solve.centre import Centred, CentredFlips
from closefar.solve.certificate import Certificate, Outcome, advise_in_time
from closefar.solve.compared import Compared
from closefar.solve.cone import psd_factor
from closefar.solve.curvature import Curvature, MarginCurvature
from closefar.solve.flip_rates import RateOfEach, SharedRate, SideRates
from closefar.solve.flipped import solve_with_flips
from closefar.solve.flipped_graded import Flipped, FlippedGraded
from closefar.solve.flips import FlippedCloseFar
from closefar.solve.graded import Graded
from closefar.solve.history import FitStep
from closefar.solve.journal import Journal
from closefar.solve.likelihood import CloseFar, Evaluation, Likelihood
from closefar.solve.loop import Solver, State, Watch, unwatched
from closefar.solve.objective import Objective, Passes
from closefar.solve.recession import find_free_directions, find_recession
from closefar.solve.sampling import share_for_hessian
from closefar.solve.solution import Options, Solution, choose_solver, solve, solve_roughly
from closefar.solve.solvers import SOLVERS
from closefar.solve.supervision import OutOfTime, Supervisor, supervised, supervisor

__all__ = [
    "SOLVERS",
    "Centred",
    "CentredFlips",
    "Certificate",
    "CloseFar",
    "Compared",
    "Curvature",
    "Evaluation",
    "FitStep",
    "Flipped",
    "FlippedCloseFar",
    "FlippedGraded",
    "Graded",
    "Journal",
    "Likelihood",
    "MarginCurvature",
    "Objective",
    "Options",
    "OutOfTime",
    "Outcome",
    "Passes",
    "RateOfEach",
    "SharedRate",
    "SideRates",
    "Solution",
    "Solver",
    "State",
    "Supervisor",
    "Watch",
    "advise_in_time",
    "choose_solver",
    "find_free_directions",
    "find_recession",
    "psd_factor",
    "share_for_hessian",
    "solve",
    "solve_roughly",
    "solve_with_flips",
    "supervised",
    "supervisor",
    "unwatched",
]
