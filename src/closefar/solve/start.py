"""The start of solvers: a metric from the second moments of the labelled rows."""

from __future__ import annotations

import numpy as np

from closefar.arrays import TINY, Array, FloatArray
from closefar.solve.problem import Problem

__all__ = ["fit_scale", "moment_start"]


def moment_start(problem: Problem, accuracy: float = 1e-4) -> tuple[FloatArray, FloatArray]:
    """Return a metric and thresholds close to the optimum.

    The feasible part of mean(l zz') - mean(l) I has approximately the right direction (for normal
    rows by Stein's identity; without thresholds, mean(l) is not subtracted, since nothing else can
    absorb it).  Its scale and a threshold are then fitted by a few Newton steps; several thresholds
    are ordered, which such steps would not preserve, and are fitted to the scale.  `accuracy` is that
    of the loss there.
    """
    objective = problem.objective
    moments, mean_trend = objective.trend_moment()
    if len(problem.cone.least) > 0:
        moments = moments - mean_trend * np.eye(objective.n_directions)
    matrix, squared = problem.project(moments)
    scale, thresholds = fit_scale(problem, squared, accuracy=accuracy)
    return scale * matrix, thresholds


def fit_scale(
    problem: Problem, squared: Array, penalty: float = 0.0, *, accuracy: float = 1e-4
) -> tuple[float, FloatArray]:
    """Fit a scale of these squared distances, and thresholds; `penalty` is that of scale one."""
    objective, least = problem.objective, problem.cone.least
    mean, spread = objective.mean_and_spread(squared)
    if spread <= 1e-9 * abs(mean):
        return 0.0, problem.minimise_threshold(0.0 * squared, np.zeros_like(least), tol=1e-6)[0]
    scale, thresholds = 1.0 / spread, np.full_like(least, mean / spread)
    if len(least) > 1:
        return scale, problem.minimise_threshold(scale * squared, thresholds, tol=1e-6)[0]
    for _ in range(8):
        gradient, hessian = objective.along(squared, scale, thresholds)
        gradient[0] += penalty
        damped = hessian + (1e-12 * np.trace(hessian) + TINY) * np.eye(len(hessian))
        step = np.linalg.solve(damped, gradient)
        scale = float(np.clip(scale - step[0], 0.3 * scale, 3.0 * scale))
        thresholds = np.maximum(thresholds - np.clip(step[1:], -3.0, 3.0), least)
        if gradient @ step < accuracy:
            break
    return scale, thresholds
