"""A proof for a run that is stuck: the minimum with a small reward for tr M has its gradient in the dual cone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from closefar.solve.bound import proven_bound
from closefar.solve.loop import Limits, Run, Solver, run, unwatched
from closefar.solve.problem import Problem
from closefar.solve.supervision import supervisor

__all__ = ["with_reward_proof"]

# If the smallest reward fails, it is approached from larger ones.
_MULTIPLES = (1.0, 100.0, 10.0, 1.0)
_MOST_STEPS = 30


def with_reward_proof(kind: type[Solver], problem: Problem, found: Run, rng: np.random.Generator, tol: float) -> Run:
    """Prove a bound if the curvature is discontinuous (Laplace noise), so that no Newton step leads into the dual cone.

    Near the minimum of R - reward tr M, the gradient of R is at least the reward times the identity;
    the bound that it proves is too low by about the reward times tr M.  A result that is better by
    more than half the tolerance is kept.
    """
    state = near = found.state
    reward = 0.3 * tol / max(problem.cone.trace(state.matrix), 1.0)
    for multiple in _MULTIPLES:
        solver = kind(replace(problem, alpha=-multiple * reward), tol, rng)
        near = run(solver, partial(solver.resume, near), Limits(0.0, _MOST_STEPS, unwatched)).state
        squared = problem.objective.quadratic_forms(near.matrix)
        point = problem.known(near.matrix, *problem.minimise_threshold(squared, near.thresholds))
        if point.value < state.objective - 0.5 * tol:
            state = replace(state, matrix=point.matrix, factor=None, thresholds=point.thresholds, objective=point.value)
        state = replace(state, bound=max(state.bound, proven_bound(point, state.objective)))
        if state.gap <= tol or supervisor().has_ended_a_run:
            break
    return replace(found, state=state)
