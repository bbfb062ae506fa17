"""From an objective to a certified solution: choose a solver, run it, and certify the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.packed import packed_size
from closefar.rows import Trait
from closefar.solve.certificate import Certificate, Outcome, advise_outcome, prove_bound
from closefar.solve.likelihood import Evaluation
from closefar.solve.loop import Ending, FitStep, Recorder, Run, Solver, SolverSettings, State, Watch, ignore_progress
from closefar.solve.low_rank import LowRank
from closefar.solve.newton import Newton
from closefar.solve.problem import Cone, Problem, enough_for_hessian, psd_factor
from closefar.solve.sampled import Sampled
from closefar.solve.separation import max_margin

# ---------------------------------------------------------------------------------------------------------------------
# A learned origin in the solver's coordinates: from free linear terms to a finite point.


def with_finite_origin(cone: Cone, state: State, cost: float) -> State:
    """Turn x'Mx + b'x - tau into |(x, 1)'A|^2 - tau, a squared distance from a finite origin.

    If b is not in the range of M, the best origin lies at infinity.  An eigenvalue of `cost` in that
    direction makes it finite, and raises the loss by about as much; below 1e-7 the origin would be so
    far away that margins lose their precision.
    """
    core = cone.core
    values, vectors = np.linalg.eigh(state.matrix[core, core])
    values = np.maximum(values, 0.0)
    half_border = vectors.T @ state.matrix[core, -1]
    lift = (values <= 1e-9 * values[-1]) & (np.abs(half_border) > 1e-9 * np.abs(half_border).max())
    values = np.where(lift, max(cost, 1e-7), values)
    moved = np.divide(half_border, values, out=np.zeros_like(values), where=values > 0)
    corner = float(moved @ half_border)
    matrix = np.zeros_like(state.matrix)
    matrix[core, core] = (vectors * values) @ vectors.T
    matrix[core, -1] = matrix[-1, core] = vectors @ (values * moved)
    matrix[-1, -1] = corner
    return replace(state, matrix=matrix, thresholds=state.thresholds + corner)


def with_free_corner(cone: Cone, state: State) -> State:
    """Move the corner of M to the threshold, as free linear terms require."""
    if not cone.has_constant:
        return state
    matrix = state.matrix.copy()
    matrix[-1, -1] = 0.0
    return replace(state, matrix=matrix, thresholds=state.thresholds - float(state.matrix[-1, -1]))


SOLVERS: dict[str, type[Solver]] = {"newton": Newton, "lowrank": LowRank, "sampled": Sampled}

# With more columns, a limited rank is solved without the convex problem, which would take longer.
_DIRECT_RANK_COLUMNS = 128

# The most that the projections of all rows may take. It is more if columns are many, where gradient steps in M, which
# need no projections, are too slow.
_PROJECTION_BYTES = 1 << 28
_LONG_REMOTE_PASS = 1e9  # multiplications
_WORTH_FUSING = 1 << 20  # judgements
_TYPICAL_RANK = 128  # at most, of metrics of many columns

# The accuracy of the quadratic model of a step, relative to what it gains, in fits of at most the tolerance of those
# that are only compared.  With flips, steps add up, and a model is solved better.
_COMPARING_TOL, _COMPARING_MODEL, _FINE_MODEL = 1e-2, 1e-2, 1e-3


@dataclass(frozen=True)
class Solution:
    """M = A A' and thresholds in unit-free coordinates, the squared distance of each row, certificate and history.

    `squared` is a handle of the rows.
    """

    factor: FloatArray
    thresholds: FloatArray
    squared: Array
    certificate: Certificate
    n_iter: int
    history: tuple[FitStep, ...]

    @property
    def state(self) -> State:
        """The state from which another solver can continue."""
        return State.at(self.factor @ self.factor.T, *self.thresholds)


def solve(
    problem: Problem,
    settings: SolverSettings,
    *,
    rng: np.random.Generator,
    watch: Watch | None = None,
    start: State | None = None,
    stay_near: bool = False,
) -> Solution:
    """Minimise a problem, with M of at most the rank of the settings.

    `start` is a feasible state close to the optimum; if its gap was proven, that is tried again first.  If the rank
    is limited, the search within it begins at the convex solution or, with `stay_near`, at `start`.
    """
    recorder = Recorder(problem.passes, watch or ignore_progress)
    kind, rank, proven = solver_for(problem, settings), settings.rank, None
    # Making a free origin finite may use the other half of the tolerance.
    tol = 0.5 * settings.tol if problem.cone.has_constant else settings.tol
    limits: dict[str, Any] = {"tol": tol, "max_iter": settings.max_iter, "watch": recorder}
    limits["stop_if_separable"] = problem.alpha == 0.0
    if start is not None and start.gap < np.inf:
        if rank is None and kind is not LowRank:  # whose own proof takes fewer passes
            proven = _prove_again(problem, start, tol, recorder)
        start = replace(start, objective=np.inf, bound=0.0)
    if proven is not None:
        found = proven
    elif rank is not None and kind is LowRank and problem.n_directions > _DIRECT_RANK_COLUMNS:
        direct = LowRank(problem, settings.tol, rng, rank)
        found = direct.run(direct.beginning(start), **limits)
    else:
        solver = kind(problem, tol, rng)
        if isinstance(solver, LowRank):
            solver.proves = settings.proves
        found = solver.run(solver.beginning(start), **limits)
        if found.ending is Ending.SEPARABLE:
            # Not recorded, since its penalties differ from this objective's.
            found = max_margin(kind, problem, found, rng, settings.max_iter, recorder.watch)
        if problem.cone.has_constant and found.state.matrix[-1, -1] == 0.0:
            moved = with_finite_origin(problem.cone, found.state, 0.25 * settings.tol)
            found = replace(found, state=replace(moved, factor=None, squared=None))
        if rank is not None and rank < _factor(found.state).shape[1]:
            near = replace(start, bound=found.state.bound) if stay_near and start is not None else found.state
            within = (Sampled if kind is Sampled and not problem.cone.has_constant else LowRank)(
                problem, settings.tol, rng, rank
            )
            if found.ending.is_early:  # only truncate the metric
                found = replace(found, state=within.resume(near))
            else:
                restricted = within.run(partial(within.resume, near), **limits)
                found = replace(restricted, n_iter=found.n_iter + restricted.n_iter)
    thresholds, factor = found.state.thresholds, _factor(found.state)
    squared = problem.squared_distances(factor) if found.state.squared is None else found.state.squared
    evaluation = problem.evaluate(squared, thresholds)
    certificate = _certify(problem, settings, found, evaluation, factor)
    steps = (*recorder.steps, FitStep.last(certificate))
    return Solution(factor, thresholds, squared, certificate, found.n_iter, steps)


def solve_roughly(
    problem: Problem,
    rank: int | None,
    start: State | None = None,
    *,
    tol: float,
    n_steps: int,
    watch: Watch | None = None,
) -> Run:
    """Minimise without a proof, as part of a longer computation.

    This also suits a risk that is not convex.  `start` is the state of a similar problem.  `tol` is relative to the
    objective (Newton) or absolute.
    """
    rng, d, n = np.random.default_rng(0), problem.n_directions, problem.n_judgements
    solver: Solver
    if rank is None and (d <= 16 or (d <= 32 and n >= 16 * packed_size(d))):
        solver = Newton(problem, tol, rng)
        solver.proves, solver.is_rough = False, tol >= _COMPARING_TOL
        if tol >= _FINE_MODEL:
            solver.inexactness = _COMPARING_MODEL if solver.is_rough else _FINE_MODEL
    else:
        solver = LowRank(problem, tol, rng, rank, proves=False)
    begin = solver.beginning(start)
    return solver.run(begin, tol=0.0, max_iter=n_steps, watch=watch, stop_if_separable=problem.alpha == 0.0)


def solver_for(problem: Problem, settings: SolverSettings) -> type[Solver]:
    """The solver that is asked for, or the one that suits the problem."""
    name = settings.solver
    if name == "auto":
        name = choose_solver(problem, is_limited=settings.rank is not None)
    return Sampled if SOLVERS[name].needs - problem.traits else SOLVERS[name]


def choose_solver(problem: Problem, *, is_limited: bool = False) -> str:
    """Choose a dense Hessian if it costs less than the gradient steps that it saves."""
    d, n, traits = problem.n_directions, problem.n_judgements, problem.traits
    is_long = 4.0 * n * d**2 >= _LONG_REMOTE_PASS
    if Trait.REMOTE in traits and (d > 16 or is_long) and enough_for_hessian(problem):
        return "sampled"  # a step is one round trip
    if Trait.KERNELS in traits and n >= _WORTH_FUSING and enough_for_hessian(problem):
        return "sampled"
    if d <= 16 or (d <= 32 and n >= 16 * packed_size(d)):
        return "newton"
    # Projections are kept at a point and along a line: on half as many columns or, of many, on a low rank.
    takes = 2 * problem.rows.projected_bytes * min(d // 2, _TYPICAL_RANK)
    is_wide = d > _DIRECT_RANK_COLUMNS
    most = problem.rows.most_projected if is_wide else _PROJECTION_BYTES
    is_projected = Trait.PROJECTIONS in traits and takes <= most
    has_low_rank = is_limited or (is_wide and problem.alpha > 0.0)
    if enough_for_hessian(problem) and not (has_low_rank and is_projected):
        return "sampled"
    return "lowrank" if is_projected else "sampled"


def _factor(state: State) -> FloatArray:
    return psd_factor(state.matrix) if state.factor is None else state.factor


def _prove_again(problem: Problem, start: State, tol: float, watch: Watch) -> Run | None:
    """The state itself, if its gap can be proven here too; what was proven elsewhere is not believed."""
    if start.gap > tol or problem.cone.has_constant:
        return None
    point = problem.at(start.matrix, start.thresholds)
    least_margin = point.evaluation.least_margin
    state = replace(start, objective=point.value, bound=prove_bound(point, tol), least_margin=least_margin)
    watch(0, state)
    return Run(state, Ending.CONVERGED, 0) if state.gap <= tol else None


def _certify(
    problem: Problem, settings: SolverSettings, found: Run, evaluation: Evaluation, factor: FloatArray
) -> Certificate:
    objective = problem.value(evaluation, factor @ factor.T)
    is_separable = problem.alpha == 0.0 and evaluation.least_margin > 0.0
    bound = 0.0 if is_separable else float(found.state.bound)
    gap = max(objective - bound, 0.0)
    outcome = _outcome(found.ending, settings, gap, is_separable)
    advice = advise_outcome(
        outcome,
        gap=gap,
        is_proven=bound > 0.0,
        tol=settings.tol,
        rank=settings.rank,
        max_iter=settings.max_iter,
        has_thresholds=problem.likelihood.n_thresholds > 0,
    )
    return Certificate(
        loss=evaluation.loss - problem.likelihood.penalty(found.state.thresholds),
        gap=gap,
        converged=gap <= settings.tol or outcome is Outcome.RESTRICTED,
        outcome=outcome,
        advice=advice,
        n_passes=problem.passes.count,
        objective=objective,
        lower_bound=bound,
        threshold_multiplier=float(evaluation.slopes.sum()),
        globally_optimal=gap <= settings.tol,
    )


def _outcome(ending: Ending, settings: SolverSettings, gap: float, is_separable: bool) -> Outcome:
    if ending is Ending.INTERRUPTED:
        return Outcome.INTERRUPTED
    if ending is Ending.OUT_OF_TIME and gap > settings.tol:
        return Outcome.UNFINISHED
    if is_separable or ending is Ending.SEPARABLE:
        return Outcome.SEPARABLE
    if gap <= settings.tol:
        return Outcome.CONVERGED
    if ending is Ending.STUCK and settings.rank is not None:
        return Outcome.RESTRICTED
    return Outcome.UNFINISHED if ending is Ending.LIMIT else Outcome.STALLED
