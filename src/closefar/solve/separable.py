"""Separable labels: some metric gets every label right, so the likelihood has no finite maximum."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from closefar.solve.cone import Cone
from closefar.solve.loop import Limits, Run, Solver, State, run
from closefar.solve.problem import Problem
from closefar.solve.solvers.newton import Newton

__all__ = ["widest_margin"]

# The gap of first-order steps, as a share of the penalty and of the objective.
_SHARE, _RELATIVE = 1e-3, 0.01

# Newton steps that gain less than the first share of the objective hardly change which labels are right; they go on to
# the second if all are.
_ROUGH, _PRECISE = 1e-5, 1e-10


def widest_margin(
    kind: type[Solver], problem: Problem, separated: Run, rng: np.random.Generator, limits: Limits
) -> Run:
    """Replace an arbitrary separating metric by one with a wide margin.

    As the penalty falls to zero, its solution tends to the direction of largest margin; the first
    penalty whose solution separates the labels is used.
    """
    alpha = 0.01 * _largest_penalty(problem)
    cone = Cone(problem.cone.size, problem.objective.likelihood.least)
    state: State | None = None
    found = separated
    for _ in range(10):
        path = _follow(kind, Problem(problem.objective, alpha, cone), state, rng, limits)
        state = path.state
        found = replace(found, n_iter=found.n_iter + path.n_iter)
        if path.ending.is_early:
            return replace(found, ending=path.ending)
        if state.least_margin > 0.0:
            return replace(found, state=replace(state, bound=0.0))
        alpha *= 0.1
    return found


def _follow(kind: type[Solver], problem: Problem, state: State | None, rng: np.random.Generator, limits: Limits) -> Run:
    """Minimise with a penalty, from the solution of a larger one; roughly if the labels are then not separated."""
    if not issubclass(kind, Newton):  # whose last digits take long
        solver = kind(problem, _SHARE * problem.alpha, rng)
        begin = partial(_begin, solver, state)
        return run(solver, begin, Limits(solver.tol, limits.max_iter, limits.watch, relative_tol=_RELATIVE))
    newton, without_proof = Newton(problem, _ROUGH, rng), Limits(0.0, limits.max_iter, limits.watch)
    newton.proves = False
    path = run(newton, partial(_start, newton, state), without_proof)
    if path.ending.is_early or path.state.least_margin <= 0.0:
        return path
    newton.tol = _PRECISE
    rest = run(newton, partial(newton.resume, path.state), without_proof)
    return replace(rest, n_iter=path.n_iter + rest.n_iter)


def _start(solver: Solver, state: State | None) -> State:
    return solver.start() if state is None else solver.resume(state)


def _begin(solver: Solver, state: State | None) -> State:
    """Begin with the solution of the last penalty; the tolerance is a share of the objective there."""
    begun = _start(solver, state)
    solver.tol = max(solver.tol, 0.5 * _RELATIVE * begun.objective)
    return begun


def _largest_penalty(problem: Problem) -> float:
    """The alpha from which on M = 0 is optimal."""
    nothing = problem.objective.squared_distances(np.zeros((problem.cone.size, 0)))
    _, evaluation = problem.minimise_threshold(nothing, np.zeros_like(problem.cone.least))
    gradient = problem.objective.gradient(evaluation)[problem.cone.core, problem.cone.core]
    return max(-float(np.linalg.eigvalsh(gradient)[0]), 1e-8)
