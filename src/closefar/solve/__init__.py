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
from closefar.solve.likelihood import (
    CloseFar,
    Compared,
    Evaluation,
    Likelihood,
    MarginCurvature,
    flip_mixture,
    interval_terms,
    mixed_terms,
)
from closefar.solve.loop import FitStep, Solver, State, ignore_progress
from closefar.solve.problem import Objective, OutOfTime, Passes, Supervisor, psd_factor, supervised, supervisor
from closefar.solve.separation import find_free_directions, find_recession
from closefar.solve.solution import SOLVERS, Options, Solution, solve, solve_roughly

__all__ = ["Centred", "Certificate", "Outcome", "advise_in_time"]
__all__ += ["CentredFlips", "Flipped", "FlippedCloseFar", "FlippedGraded", "RateOfEach", "SharedRate", "SideRates"]
__all__ += ["CloseFar", "Compared", "Evaluation", "Graded", "Likelihood", "MarginCurvature", "solve_with_flips"]
__all__ += ["flip_mixture", "interval_terms", "mixed_terms"]
__all__ += ["FitStep", "Solver", "State", "ignore_progress"]
__all__ += ["Objective", "OutOfTime", "Passes", "Supervisor", "psd_factor", "supervised", "supervisor"]
__all__ += ["SOLVERS", "Options", "Solution", "find_free_directions", "find_recession", "solve", "solve_roughly"]
