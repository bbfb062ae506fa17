"""Solvers: each one file and one line of `SOLVERS`; `solve` chooses, runs and certifies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.certificate import Certificate
from closefar.objective import Risk
from closefar.solvers.factor import Factor
from closefar.solvers.fista import Fista
from closefar.solvers.loop import Outcome, State, Watch, run
from closefar.solvers.newton import Newton
from closefar.solvers.start import psd_factor

__all__ = ["SOLVERS", "Solution", "solve"]

SOLVERS: dict[str, type[Newton] | type[Fista] | type[Factor]] = {
    "newton": Newton,
    "fista": Fista,
    "factor": Factor,
}

# Up to here a dense Hessian costs less than the gradient steps that it saves.
_NEWTON_UP_TO = 20


@dataclass(frozen=True)
class Solution:
    """M = A A' and tau in unit-free coordinates, with their proof."""

    factor: np.ndarray
    threshold: float
    certificate: Certificate
    n_iter: int


def solve(
    risk: Risk,
    *,
    alpha: float,
    rank: int | None,
    solver: str,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    watch: Watch,
) -> Solution:
    """Minimise R(M, tau) + alpha tr M over M PSD (of at most that rank) and tau >= 0."""
    if solver == "auto":
        solver = "newton" if risk.n_directions <= _NEWTON_UP_TO else "fista"
    kind = SOLVERS[solver]
    settings = {"tol": tol, "max_iter": max_iter, "stop_if_separable": alpha == 0.0, "watch": watch}
    convex = kind(risk, alpha, tol, rng)
    outcome = run(convex, convex.start, **settings)
    if outcome.ending == "separable":
        outcome = _widest_margin(kind, risk, outcome, rng, settings)
    n_iter = outcome.n_iter
    if rank is not None and rank < psd_factor(outcome.state.matrix).shape[1] and outcome.ending != "interrupted":
        restricted = Factor(risk, alpha, tol, rng, rank)
        whole = outcome.state
        outcome = run(restricted, lambda: restricted.resume(whole), **settings)
        n_iter += outcome.n_iter
    certificate = _certify(risk, outcome, alpha, rank, tol, max_iter)
    return Solution(psd_factor(outcome.state.matrix), outcome.state.threshold, certificate, n_iter)


def _widest_margin(
    kind: type[Newton] | type[Fista] | type[Factor],
    risk: Risk,
    outcome: Outcome,
    rng: np.random.Generator,
    settings: dict[str, object],
) -> Outcome:
    """Replace an arbitrary separating metric by one of wide margin.

    As the penalty falls to zero its solution tends to the direction of largest margin;
    the first penalty whose solution still separates the labels is taken.
    """
    state = outcome.state
    alpha = 0.01 * _largest_penalty(risk)
    for _ in range(10):
        solver = kind(risk, alpha, 1e-6 * alpha, rng)
        before = state
        path = run(solver, lambda: solver.resume(before), **{**settings, "tol": 1e-6 * alpha, "stop_if_separable": False})
        state = path.state
        outcome = replace(outcome, n_iter=outcome.n_iter + path.n_iter)
        if path.ending == "interrupted":
            return replace(outcome, ending="interrupted")
        if state.least_margin > 0.0:
            loss = state.objective - alpha * float(np.trace(state.matrix))
            return replace(outcome, state=replace(state, objective=loss, bound=0.0))
        alpha *= 0.1
    return outcome


def _largest_penalty(risk: Risk) -> float:
    """The alpha from which on M = 0 is optimal."""
    _, pointwise = risk.best_threshold(np.zeros(len(risk.rows)), 0.0)
    return max(-float(np.linalg.eigvalsh(risk.outer_sum(pointwise.pull))[0]), 1e-8)


def _certify(risk: Risk, outcome: Outcome, alpha: float, rank: int | None, tol: float, max_iter: int) -> Certificate:
    state = outcome.state
    separable = alpha == 0.0 and state.least_margin > 0.0
    ending = "separable" if separable and outcome.ending != "interrupted" else outcome.ending
    factor = psd_factor(state.matrix)
    forms = risk.quadratic_forms(factor) if factor.shape[1] else np.zeros(len(risk.rows))
    pointwise = risk.pointwise(forms, state.threshold)
    bound = 0.0 if separable else state.bound
    objective = pointwise.loss + alpha * float(np.sum(factor * factor))
    gap = max(objective - bound, 0.0)
    return Certificate(
        loss=pointwise.loss,
        gap=gap,
        converged=gap <= tol,
        status=_status(ending, state, gap, tol, rank, max_iter),
        n_passes=risk.n_passes,
        objective=objective,
        lower_bound=bound,
        threshold_multiplier=pointwise.threshold_slope,
        globally_optimal=gap <= tol,
    )


def _status(ending: str, state: State, gap: float, tol: float, rank: int | None, max_iter: int) -> str:
    """What happened and what to do about it, in one sentence that starts with one word."""
    if ending == "separable":
        return (
            "separable: this metric gets every label right, so the likelihood has no finite maximum and the scale of "
            "M and tau (hence the probabilities) is arbitrary; M / tau has a wide margin. "
            "Set alpha > 0 (try 0.001) or label more pairs."
        )
    if ending == "interrupted":
        return f"interrupted: stopped by hand within a proven {gap:.1e} of the minimum; the metric is usable."
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
            f"unfinished: max_iter={max_iter} steps left a proven gap of {gap:.1e}, above tol={tol:.1e}. "
            "Raise max_iter or tol, or set alpha > 0."
        )
    return (
        f"stalled: rounding stops further progress; the proven gap is {gap:.1e}, above tol={tol:.1e}. "
        "The metric is usable; raise tol, or set alpha > 0."
    )
