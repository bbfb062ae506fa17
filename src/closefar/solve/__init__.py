"""From rows to a certified solution: the likelihood, the problem, solvers in one loop, and the certificate."""

from closefar.solve.certificate import Certificate, Outcome, advise_in_time
from closefar.solve.flips import RateOfEach, Rates, SharedRate, SideRates, solve_with_flips
from closefar.solve.likelihood import (
    Answers,
    Evaluation,
    FlipRates,
    Likelihood,
    interval_terms,
    mixed_loss,
    mixed_terms,
)
from closefar.solve.loop import Ending, FitStep, Solver, SolverSettings, State, ignore_progress
from closefar.solve.problem import OutOfTime, Passes, Problem, Supervisor, psd_factor, supervised, supervisor
from closefar.solve.separation import find_free_directions, find_recession
from closefar.solve.solution import SOLVERS, Solution, solve, solve_roughly

__all__ = ["Answers", "Certificate", "Evaluation", "FlipRates", "Likelihood", "Outcome", "advise_in_time"]
__all__ += ["RateOfEach", "Rates", "SharedRate", "SideRates", "solve_with_flips"]
__all__ += ["interval_terms", "mixed_loss", "mixed_terms"]
__all__ += ["Ending", "FitStep", "Solver", "SolverSettings", "State", "ignore_progress"]
__all__ += ["OutOfTime", "Passes", "Problem", "Supervisor", "psd_factor", "supervised", "supervisor"]
__all__ += ["SOLVERS", "Solution", "find_free_directions", "find_recession", "solve", "solve_roughly"]
