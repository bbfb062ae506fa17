"""From an objective to a certified solution: choose a solver, run it, and certify the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.packed import packed_size
from closefar.solve.bound import prove_bound
from closefar.solve.certificate import Certificate, Outcome, advise_outcome
from closefar.solve.fista import Fista, Sampled
from closefar.solve.likelihood import Evaluation
from closefar.solve.loop import Ending, FitStep, Recorder, Run, RunLimits, Solver, State, Watch, ignore_progress
from closefar.solve.low_rank import Factor, LowRank
from closefar.solve.newton import Newton
from closefar.solve.problem import Cone, Objective, Problem, enough_for_hessian, psd_factor
from closefar.solve.separation import bound_by_negative_penalty, max_margin

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


SOLVERS: dict[str, type[Solver]] = {
    "newton": Newton,
    "fista": Fista,
    "factor": Factor,
    "lowrank": LowRank,
    "sampled": Sampled,
}

# With more columns, a limited rank is solved without the convex problem, which would take longer.
_DIRECT_RANK_COLUMNS = 128

# The most that the projections of all rows may take: the second if columns are many, where gradient steps in M, which
# need no projections, are too slow.
_PROJECTION_BYTES, _MOST_PROJECTION_BYTES = 1 << 28, 1 << 31
_LONG_REMOTE_PASS = 1e9  # multiplications
_WORTH_FUSING = 1 << 20  # judgements
_TYPICAL_RANK = 128  # at most, of metrics of many columns

# Fits that are only compared: their tolerance, the accuracy of the quadratic model of a step, relative to what it
# gains, and the most steps.  With flips, steps add up, and a model is solved better.
_COMPARING_TOL, _COMPARING_MODEL, _FINE_MODEL, _COMPARING_STEPS = 1e-2, 1e-2, 1e-3, 40


@dataclass(frozen=True)
class Options:
    """What is minimised, and to which tolerance.

    With `has_constant`, the last coordinate of each row is the constant 1 of a learned origin.  With
    `proves`, a gap is proven even if that is additional work.
    """

    alpha: float
    rank: int | None
    has_constant: bool
    solver: str
    tol: float
    max_iter: int
    proves: bool = True

    def problem(self, objective: Objective) -> Problem:
        """Minimise R + alpha tr M: over M positive semidefinite and thresholds >= 0."""
        # A penalty on all of M keeps the origin finite; without a penalty its linear terms must be free.
        is_free = self.has_constant and self.alpha == 0.0
        least = objective.likelihood.least
        least = np.full_like(least, -np.inf) if is_free else least
        return Problem(objective, self.alpha, Cone(objective.n_directions, least, is_free))

    def limits(self, problem: Problem, watch: Watch) -> RunLimits:
        """The limits of a run; making a free origin finite may use the other half of the tolerance."""
        tol = 0.5 * self.tol if problem.cone.has_constant else self.tol
        return RunLimits(tol, self.max_iter, watch, stop_if_separable=self.alpha == 0.0)


@dataclass(frozen=True)
class Solution:
    """M = A A' and thresholds in unit-free coordinates, the squared distance of each row, certificate and history.

    `squared` is a handle of the source.
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
    objective: Objective,
    options: Options,
    *,
    rng: np.random.Generator,
    watch: Watch,
    start: State | None = None,
    stay_near: bool = False,
) -> Solution:
    """Minimise R(M, thresholds) + alpha tr M over the feasible set, with M of at most the given rank.

    `start` is a feasible state close to the optimum; if its gap was proven, that is tried again first.  If the rank
    is limited, the search within it begins at the convex solution or, with `stay_near`, at `start`.
    """
    problem = options.problem(objective)
    recorder = Recorder(objective.passes, watch)
    kind, proven = _kind(problem, options), None
    if start is not None and start.gap < np.inf:
        if options.rank is None and kind is not LowRank:  # whose own proof takes fewer passes
            proven = _prove_again(problem, start, options.limits(problem, recorder))
        start = replace(start, objective=np.inf, bound=0.0)
    if proven is not None:
        found = proven
    elif options.rank is not None and kind is LowRank and objective.n_directions > _DIRECT_RANK_COLUMNS:
        solver: Solver = LowRank(problem, options.tol, rng, options.rank)
        found = solver.run(partial(solver.begin, start), options.limits(problem, recorder))
    else:
        found = _solve_convex(kind, problem, options, recorder, rng, start)
        if options.rank is not None and options.rank < _factor(found.state).shape[1]:
            near = replace(start, bound=found.state.bound) if stay_near and start is not None else found.state
            # On a GPU, where `Sampled` finds the convex solution, projections take less time than passes of `Factor`.
            suits = kind is LowRank or (objective.source.can_fuse and not problem.cone.has_constant)
            within = LowRank if suits else Factor
            solver = within(problem, options.tol, rng, options.rank)
            if found.ending.is_early:  # only truncate the metric
                found = replace(found, state=solver.resume(near))
            else:
                restricted = solver.run(partial(solver.resume, near), options.limits(problem, recorder))
                found = replace(restricted, n_iter=found.n_iter + restricted.n_iter)
    thresholds, factor = found.state.thresholds, _factor(found.state)
    squared = found.state.squared if found.state.factor is not None else None
    squared = objective.squared_distances(factor) if squared is None else squared
    evaluation = objective.evaluate(squared, thresholds)
    value = evaluation.loss + options.alpha * problem.cone.trace(factor @ factor.T)
    evaluation = replace(evaluation, loss=evaluation.loss - objective.likelihood.penalty(thresholds))
    certificate = _certify(problem, options, found, evaluation, value)
    steps = (*recorder.steps, FitStep.last(certificate))
    return Solution(factor, thresholds, squared, certificate, found.n_iter, steps)


def solve_roughly(
    objective: Objective,
    options: Options,
    start: State | None = None,
    *,
    tol: float = _COMPARING_TOL,
    n_steps: int = _COMPARING_STEPS,
) -> State:
    """Minimise without a proof, as part of a longer computation: by default for comparing held-out losses."""
    found = run_roughly(objective, options, start, tol=tol, n_steps=n_steps)
    if found.ending is Ending.INTERRUPTED:  # there is no result yet
        raise KeyboardInterrupt
    return found.state


def run_roughly(
    objective: Objective,
    options: Options,
    start: State | None,
    *,
    tol: float,
    n_steps: int,
    watch: Watch = ignore_progress,
) -> Run:
    """Minimise without a proof, which also suits a risk that is not convex.

    `start` is the state of a similar problem.  `tol` is relative to the objective (Newton) or absolute.
    """
    problem, rng = options.problem(objective), np.random.default_rng(0)
    d, n = objective.n_directions, objective.n_judgements
    solver: Solver
    if options.rank is not None:
        solver = LowRank(problem, tol, rng, options.rank, proves=False)
    elif d <= 16 or (d <= 32 and n >= 16 * packed_size(d)):
        solver = Newton(problem, tol, rng)
        solver.proves, solver.is_rough = False, tol >= _COMPARING_TOL
        if tol >= _FINE_MODEL:
            solver.inexactness = _COMPARING_MODEL if solver.is_rough else _FINE_MODEL
    elif objective.source.can_project and not problem.cone.has_constant:
        solver = LowRank(problem, tol, rng, proves=False)
    else:
        solver = Factor(problem, tol, rng, proves=False)
    limits = RunLimits(0.0, n_steps, watch, stop_if_separable=options.alpha == 0.0)
    return solver.run(partial(solver.begin, start), limits)


def _kind(problem: Problem, options: Options) -> type[Solver]:
    """The solver that is asked for, or the one that suits the problem."""
    chosen = choose_solver(problem.objective, is_limited=options.rank is not None)
    suits_factors = problem.objective.source.can_project and not problem.cone.has_constant
    name = options.solver
    if name == "auto" or (name == "factor" and not options.proves and chosen == "lowrank"):
        name = chosen
    return SOLVERS["fista" if name == "lowrank" and not suits_factors else name]


def choose_solver(objective: Objective, *, is_limited: bool = False) -> str:
    """Choose a dense Hessian if it costs less than the gradient steps that it saves."""
    d, n = objective.n_directions, objective.n_judgements
    is_long = 4.0 * n * d**2 >= _LONG_REMOTE_PASS
    if objective.source.is_remote and (d > 16 or is_long) and enough_for_hessian(objective):
        return "sampled"  # a step is one round trip
    has_many = n >= 16 * packed_size(d)
    if objective.source.can_fuse and n >= _WORTH_FUSING and enough_for_hessian(objective):
        return "sampled"
    if d <= 16 or (d <= 32 and has_many):
        return "newton"
    # Projections are kept at a point and along a line: on half as many columns or, of many, on a low rank.
    takes = 2 * 8 * objective.source.n_projected * min(d // 2, _TYPICAL_RANK)
    most = _PROJECTION_BYTES if d <= _DIRECT_RANK_COLUMNS else _MOST_PROJECTION_BYTES
    is_projected = objective.source.can_project and takes <= most
    if enough_for_hessian(objective) and not (is_limited and is_projected):
        return "sampled"
    return "lowrank" if is_projected else "fista"


def _factor(state: State) -> FloatArray:
    return psd_factor(state.matrix) if state.factor is None else state.factor


def _solve_convex(
    kind: type[Solver],
    problem: Problem,
    options: Options,
    recorder: Recorder,
    rng: np.random.Generator,
    start: State | None,
) -> Run:
    """Minimise without a limit on the rank."""
    limits = options.limits(problem, recorder)
    solver = kind(problem, limits.tol, rng)
    if isinstance(solver, (Factor, LowRank)) and not options.proves:
        solver.proves = False
    found = solver.run(partial(solver.begin, start), limits)
    if found.ending is Ending.SEPARABLE:
        # Not recorded, since its penalties differ from this objective's.
        found = max_margin(kind, problem, found, rng, replace(limits, watch=recorder.watch))
    if options.proves and found.ending is Ending.STUCK and problem.alpha == 0.0 and not problem.cone.has_constant:
        found = bound_by_negative_penalty(kind, problem, found, rng, limits.tol)
    if problem.cone.has_constant and found.state.matrix[-1, -1] == 0.0:
        moved = with_finite_origin(problem.cone, found.state, 0.25 * options.tol)
        found = replace(found, state=replace(moved, factor=None))
    return found


def _prove_again(problem: Problem, start: State, limits: RunLimits) -> Run | None:
    """The state itself, if its gap can be proven here too; what was proven elsewhere is not believed."""
    if start.gap > limits.tol or problem.cone.has_constant:
        return None
    point = problem.at(start.matrix, start.thresholds)
    least_margin = point.evaluation.least_margin
    state = replace(start, objective=point.value, bound=prove_bound(point, limits.tol), least_margin=least_margin)
    limits.watch(0, state)
    return Run(state, Ending.CONVERGED, 0) if state.gap <= limits.tol else None


def _certify(problem: Problem, options: Options, found: Run, evaluation: Evaluation, objective: float) -> Certificate:
    is_separable = problem.alpha == 0.0 and evaluation.least_margin > 0.0
    bound = 0.0 if is_separable else float(found.state.bound)
    gap = max(objective - bound, 0.0)
    outcome = _outcome(found.ending, options, gap, is_separable)
    advice = advise_outcome(
        outcome,
        gap=gap,
        is_proven=bound > 0.0,
        tol=options.tol,
        rank=options.rank,
        max_iter=options.max_iter,
        has_thresholds=problem.objective.likelihood.n_thresholds > 0,
    )
    return Certificate(
        loss=evaluation.loss,
        gap=gap,
        converged=gap <= options.tol or outcome is Outcome.RESTRICTED,
        outcome=outcome,
        advice=advice,
        n_passes=problem.objective.passes.count,
        objective=objective,
        lower_bound=bound,
        threshold_multiplier=float(evaluation.slopes.sum()),
        globally_optimal=gap <= options.tol,
    )


def _outcome(ending: Ending, options: Options, gap: float, is_separable: bool) -> Outcome:
    if ending is Ending.INTERRUPTED:
        return Outcome.INTERRUPTED
    if ending is Ending.OUT_OF_TIME and gap > options.tol:
        return Outcome.UNFINISHED
    if is_separable or ending is Ending.SEPARABLE:
        return Outcome.SEPARABLE
    if gap <= options.tol:
        return Outcome.CONVERGED
    if ending is Ending.STUCK and options.rank is not None:
        return Outcome.RESTRICTED
    return Outcome.UNFINISHED if ending is Ending.LIMIT else Outcome.STALLED
