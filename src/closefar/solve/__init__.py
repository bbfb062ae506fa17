"""From rows to a certified solution: likelihoods, the problem, solvers in one loop, and the certificate."""

from closefar.solve.centre import Centred
from closefar.solve.certificate import Certificate, Outcome, advise_in_time
from closefar.solve.flips import (
    CentredFlips,
    Flipped,
    FlippedCloseFar,
    FlippedGraded,
    RateOfEach,
    SharedRate,
    SideRates,
    solve_with_flips,
)
from closefar.solve.levels import Graded
from closefar.solve.likelihood import CloseFar, Compared, Evaluation, Likelihood, MarginCurvature
from closefar.solve.loop import FitStep, Solver, State, ignore_progress
from closefar.solve.problem import Objective, OutOfTime, Passes, Supervisor, psd_factor, supervised, supervisor
from closefar.solve.separation import find_free_directions, find_recession
from closefar.solve.solution import SOLVERS, Options, Solution, solve, solve_roughly

__all__ = [
    "SOLVERS",
    "Centred",
    "CentredFlips",
    "Certificate",
    "CloseFar",
    "Compared",
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
    "advise_in_time",
    "find_free_directions",
    "find_recession",
    "ignore_progress",
    "psd_factor",
    "solve",
    "solve_roughly",
    "solve_with_flips",
    "supervised",
    "supervisor",
]
