"""Accelerated gradient steps in M and the threshold together, where a fused pass is all that a step takes."""

from __future__ import annotations

import math

import numpy as np

from closefar.solve.loop import State
from closefar.solve.problem import Point, Problem
from closefar.solve.start import moment_start

__all__ = ["approach_jointly"]

_MOST_STEPS = 100
_FIRST_SMOOTHNESS = 0.15
_GROWTH = 1.5


def approach_jointly(problem: Problem, tol: float) -> State | None:
    """Step until the gap is probably below `tol`, which is not proven; None if the labels turn out to be separable.

    In (M, b) with b = tau - tr M, the curvature of rows in unit-free coordinates is nearly the same in all directions
    of M, and half of that in b.
    """
    cone = problem.cone
    least = float(cone.least[0])
    matrix, thresholds = moment_start(problem)
    before, momentum, smoothness = (matrix, float(thresholds[0]) - cone.trace(matrix)), 1.0, _FIRST_SMOOTHNESS
    here = base = before
    last: Point | None = None
    for _ in range(_MOST_STEPS):
        point = problem.at(base[0], np.array([max(base[1] + cone.trace(base[0]), least)]))
        if problem.alpha == 0.0 and point.evaluation.least_margin > 0.0:
            return None
        slope = float(point.slopes[0])
        pull = point.gradient + slope * cone.identity
        if last is not None and _is_too_curved(point, last, smoothness):
            # The last step was too long for this curvature: shorter ones from here, without momentum.
            smoothness, momentum = _GROWTH * smoothness, 1.0
        target = cone.project(base[0] - pull / smoothness), base[1] - 2.0 * slope / smoothness
        moved = math.hypot(float(np.linalg.norm(target[0] - base[0])), target[1] - base[1])
        turned = float(np.sum((base[0] - target[0]) * (target[0] - here[0])))
        if turned + (base[1] - target[1]) * (target[1] - here[1]) > 0.0:
            momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        weight = (momentum - 1.0) / following
        before, here, momentum, last = here, target, following, point
        base = here[0] + weight * (here[0] - before[0]), here[1] + weight * (here[1] - before[1])
        if smoothness * moved <= 0.3 * math.sqrt(tol * smoothness):
            break
    return State.at(here[0], max(here[1] + cone.trace(here[0]), least))


def _is_too_curved(point: Point, last: Point, smoothness: float) -> bool:
    """Whether the gradient changed by more than the smoothness allows between two points."""
    identity = point.problem.cone.identity
    step = point.matrix - last.matrix
    shift = float(point.thresholds[0] - last.thresholds[0])
    change = float(np.sum((point.gradient - last.gradient) * step)) + shift * float(point.slopes[0] - last.slopes[0])
    across = shift - float(np.sum(identity * step))
    return change > smoothness * (float(np.sum(step * step)) + 0.5 * across**2)
