"""Solvers: each one file and one line of `SOLVERS`; `solve` chooses, runs and certifies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.certificate import Certificate
from closefar.objective import Pointwise, Risk
from closefar.packed import packed_size
from closefar.problem import Cone, Problem, psd_factor
from closefar.solvers.factor import Factor
from closefar.solvers.fista import Fista
from closefar.solvers.history import FitStep, Recorder
from closefar.solvers.loop import Outcome, Solver, State, Watch, run
from closefar.solvers.newton import Newton

__all__ = ["SOLVERS", "Solution", "solve"]

SOLVERS: dict[str, type[Newton] | type[Fista] | type[Factor]] = {
    "newton": Newton,
    "fista": Fista,
    "factor": Factor,
}


@dataclass(frozen=True)
class Solution:
    """M = A A' and tau in unit-free coordinates, each row's margin, the proof, and the way there."""

    factor: FloatArray
    threshold: float
    margin: Array
    certificate: Certificate
    n_iter: int
    history: tuple[FitStep, ...]


def solve(
    risk: Risk,
    *,
    alpha: float,
    rank: int | None,
    has_constant: bool,
    solver: str,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    watch: Watch,
    start: tuple[FloatArray, float] | None = None,
) -> Solution:
    """Minimise R(M, tau) + alpha tr M over the feasible (M, tau), M of at most that rank.

    `has_constant` says that the last coordinate of each row is the constant 1 of a learned
    origin; `start` is a feasible (M, tau) near the optimum.
    """
    kind = SOLVERS[_choose(risk) if solver == "auto" else solver]
    # A penalty on all of M keeps the origin finite; without one its linear terms must be free.
    cone = Cone(risk.n_directions, has_constant and alpha == 0.0)
    problem = Problem(risk, alpha, cone)
    inner_tol = 0.5 * tol if cone.has_constant else tol
    recorder = Recorder(risk, watch)
    settings = _Settings(inner_tol, max_iter, stop_if_separable=alpha == 0.0, watch=recorder)
    convex = kind(problem, inner_tol, rng)
    begin = convex.start if start is None else partial(convex.resume, State(*start, np.inf, 0.0, -np.inf, None))
    outcome = _run(convex, begin, settings)
    if outcome.ending == "separable":
        # Not recorded: its penalties are not of this objective.
        outcome = _widest_margin(kind, problem, outcome, rng, replace(settings, watch=watch))
    if cone.has_constant and outcome.state.matrix[-1, -1] == 0.0:
        outcome = replace(outcome, state=_with_finite_origin(problem, outcome.state, 0.25 * tol))
    n_iter = outcome.n_iter
    if rank is not None and rank < psd_factor(outcome.state.matrix).shape[1]:
        restricted = Factor(problem, tol, rng, rank)
        begin = partial(restricted.resume, outcome.state)
        if outcome.ending == "interrupted":
            outcome = replace(outcome, state=begin())
        else:
            outcome = _run(restricted, begin, settings)
            n_iter += outcome.n_iter
    threshold = outcome.state.threshold
    factor = psd_factor(outcome.state.matrix)
    forms = problem.forms(factor)
    pointwise = risk.pointwise(forms, threshold)
    objective = problem.value(pointwise, factor @ factor.T)
    certificate = _certify(problem, outcome, pointwise, objective, rank, tol, max_iter)
    history = (*recorder.steps, FitStep.last(certificate))
    return Solution(factor, threshold, forms - threshold, certificate, n_iter, history)


def _choose(risk: Risk) -> str:
    """A dense Hessian, while it costs less than the gradient steps that it saves."""
    d, n = risk.n_directions, len(risk.rows)
    many_rows = n >= 16 * packed_size(d)
    return "newton" if d <= 16 or (d <= 32 and many_rows) else "fista"


@dataclass(frozen=True)
class _Settings:
    tol: float
    max_iter: int
    stop_if_separable: bool
    watch: Watch
    relative_tol: float = 0.0


def _run(solver: Solver, start: Callable[[], State], settings: _Settings) -> Outcome:
    return run(solver, start, **vars(settings))


def _with_finite_origin(problem: Problem, state: State, cost: float) -> State:
    """Turn x'Mx + b'x - tau into |(x, 1)'A|^2 - tau, a squared distance from a finite origin.

    Where b leaves the range of M the best origin lies at infinity; an eigenvalue of `cost`
    in that direction raises the loss by about as much and brings it back; below 1e-7 the
    origin would be so far that margins lose their digits.
    """
    core = problem.cone.core
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
    return replace(state, matrix=matrix, threshold=state.threshold + corner)


def _widest_margin(
    kind: type[Newton] | type[Fista] | type[Factor],
    problem: Problem,
    outcome: Outcome,
    rng: np.random.Generator,
    settings: _Settings,
) -> Outcome:
    """Replace an arbitrary separating metric by one of wide margin.

    As the penalty falls to zero its solution tends to the direction of largest margin;
    the first penalty whose solution still separates the labels is taken.
    """
    alpha = 0.01 * _largest_penalty(problem)
    # Newton's last digits are cheap; first-order steps would crawl to them.
    share, relative_tol = (1e-6, 0.0) if kind is Newton else (1e-3, 0.01)
    state: State | None = None
    for _ in range(10):
        tol = share * alpha
        solver = kind(Problem(problem.risk, alpha, Cone(problem.cone.size)), tol, rng)
        start = solver.start if state is None else partial(solver.resume, state)
        path = _run(solver, start, replace(settings, tol=tol, stop_if_separable=False, relative_tol=relative_tol))
        state = path.state
        outcome = replace(outcome, n_iter=outcome.n_iter + path.n_iter)
        if path.ending == "interrupted":
            return replace(outcome, ending="interrupted")
        if state.least_margin > 0.0:
            return replace(outcome, state=replace(state, bound=0.0))
        alpha *= 0.1
    return outcome


def _largest_penalty(problem: Problem) -> float:
    """The alpha from which on M = 0 is optimal."""
    _, pointwise = problem.settle(np.zeros(len(problem.risk.rows)), 0.0)
    gradient = problem.risk.outer_sum(pointwise.pull)[problem.cone.core, problem.cone.core]
    return max(-float(np.linalg.eigvalsh(gradient)[0]), 1e-8)


def _certify(
    problem: Problem,
    outcome: Outcome,
    pointwise: Pointwise,
    objective: float,
    rank: int | None,
    tol: float,
    max_iter: int,
) -> Certificate:
    separable = problem.alpha == 0.0 and pointwise.least_margin > 0.0
    ending = "separable" if separable and outcome.ending != "interrupted" else outcome.ending
    bound = 0.0 if separable else float(outcome.state.bound)
    gap = max(objective - bound, 0.0)
    return Certificate(
        loss=pointwise.loss,
        gap=gap,
        converged=gap <= tol or (rank is not None and ending == "stuck"),
        status=_status(ending, gap, bound > 0.0, tol, rank, max_iter),
        n_passes=problem.risk.n_passes,
        objective=objective,
        lower_bound=bound,
        threshold_multiplier=pointwise.threshold_slope,
        globally_optimal=gap <= tol,
    )


def _status(ending: str, gap: float, proven: bool, tol: float, rank: int | None, max_iter: int) -> str:
    """What happened and what to do about it, in sentences that start with one word."""
    left = f"the proven gap is {gap:.1e}" if proven else "no gap is proven yet"
    if ending == "separable":
        return (
            "separable: this metric gets every label right, so the likelihood has no finite maximum and the scale of "
            "M and tau (hence the probabilities) is arbitrary; M / tau has a wide margin. "
            "Set alpha > 0 (try 0.01) or label more pairs."
        )
    if ending == "interrupted":
        return f"interrupted: stopped by hand; {left}. The metric is usable."
    if gap <= tol:
        also = f" Rank {rank} costs nothing: no metric of higher rank is better." if rank else ""
        return f"converged: the objective is within a proven {gap:.1e} of its global minimum.{also}"
    if rank is not None and ending == "stuck":
        return (
            f"restricted: no small change of this rank-{rank} metric improves it, but metrics of higher rank may be "
            f"better, by at most {gap:.1e}. Raise rank, or leave it out, to close the gap."
        )
    if ending == "limit":
        return (
            f"unfinished: max_iter={max_iter} steps did not reach tol={tol:.1e}; {left}. "
            "The metric is usable; raise max_iter, tol or alpha."
        )
    return (
        f"stalled: further steps gain nothing, but tol={tol:.1e} is not proven; {left}. The optimum may lie at "
        "infinity (as with 0/1 columns and fit_origin). The metric is usable; raise alpha (try 0.001) or tol."
    )
