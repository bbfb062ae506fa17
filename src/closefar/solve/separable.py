"""Separable labels: some metric gets every label right, so the likelihood has no finite maximum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from closefar.solve.cone import Cone
from closefar.solve.loop import Limits, Run, Solver, State, run
from closefar.solve.problem import Problem

__all__ = ["widest_margin"]


def widest_margin(
    kind: type[Solver], problem: Problem, separated: Run, rng: np.random.Generator, limits: Limits
) -> Run:
    """Replace an arbitrary separating metric by one with a wide margin.

    As the penalty falls to zero, its solution tends to the direction of largest margin; the first
    penalty whose solution separates the labels is used.
    """
    alpha = 0.01 * _largest_penalty(problem)
    cone = Cone(problem.cone.size, problem.objective.likelihood.least)
    # First-order steps would be slow for the last digits.
    share, relative_tol = (1e-6, 0.0) if kind.last_digits_are_cheap else (1e-3, 0.01)
    state: State | None = None
    found = separated
    for _ in range(10):
        tol = share * alpha
        solver = kind(Problem(problem.objective, alpha, cone), tol, rng)
        begin = partial(_begin, solver, state, relative_tol)
        path = run(solver, begin, Limits(tol, limits.max_iter, limits.watch, relative_tol=relative_tol))
        state = path.state
        found = replace(found, n_iter=found.n_iter + path.n_iter)
        if path.ending.is_early:
            return replace(found, ending=path.ending)
        if state.least_margin > 0.0:
            return replace(found, state=replace(state, bound=0.0))
        alpha *= 0.1
    return found


def _begin(solver: Solver, state: State | None, relative_tol: float) -> State:
    """Begin with the solution of the last penalty; the tolerance is a share of the objective there."""
    begun = solver.start() if state is None else solver.resume(state)
    solver.tol = max(solver.tol, 0.5 * relative_tol * begun.objective)
    return begun


def _largest_penalty(problem: Problem) -> float:
    """The alpha from which on M = 0 is optimal."""
    nothing = problem.objective.squared_distances(np.zeros((problem.cone.size, 0)))
    _, evaluation = problem.minimise_threshold(nothing, np.zeros_like(problem.cone.least))
    gradient = problem.objective.gradient(evaluation)[problem.cone.core, problem.cone.core]
    return max(-float(np.linalg.eigvalsh(gradient)[0]), 1e-8)
