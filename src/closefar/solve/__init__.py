"""From rows to a certified solution: likelihoods, the problem, solvers in one loop, and the certificate."""

from closefar.solve.centre import Centred, CentredFlips
from closefar.solve.certificate import Certificate, Outcome, advise_in_time
from closefar.solve.flips import (
    Flipped,
    FlippedCloseFar,
    FlippedGraded,
    RateOfEach,
    SharedRate,
    SideRates,
    solve_with_flips,
)
from closefar.solve.levels import Graded
from closefar.solve.likelihood import CloseFar, Compared, Curvature, Evaluation, Likelihood, MarginCurvature
from closefar.solve.loop import FitStep, Solver, State, Watch, unwatched
from closefar.solve.problem import (
    Objective,
    OutOfTime,
    Passes,
    Supervisor,
    psd_factor,
    share_for_hessian,
    supervised,
    supervisor,
)
from closefar.solve.separation import find_free_directions, find_recession
from closefar.solve.solution import SOLVERS, Options, Solution, choose_solver, solve, solve_roughly

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
