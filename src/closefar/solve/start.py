"""Where solvers start: the metric that the labels' second moments suggest."""

from __future__ import annotations

import numpy as np

from closefar.arrays import TINY, FloatArray
from closefar.solve.problem import Problem

__all__ = ["moment_start"]


def moment_start(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return a metric and thresholds near the optimum.

    The feasible part of mean(l zz') - mean(l) I points the right way (for normal rows by
    Stein's identity); its scale and the thresholds are then fitted by a few Newton steps on
    those numbers.
    """
    objective, least = problem.objective, problem.cone.least
    trend = objective.likelihood.trend(objective.source)
    moments = objective.outer(trend) - objective.total_trend * np.eye(objective.n_directions)
    matrix, squared = problem.project(moments)
    mean, spread = objective.mean_and_spread(squared)
    if spread <= 1e-9 * abs(mean):
        return np.zeros_like(matrix), problem.settle(0.0 * squared, np.zeros_like(least), tol=1e-6)[0]
    scale, thresholds = 1.0 / spread, np.full_like(least, mean / spread)
    for _ in range(8):
        gradient, hessian = objective.along(squared, scale, thresholds)
        damped = hessian + (1e-12 * np.trace(hessian) + TINY) * np.eye(len(hessian))
        step = np.linalg.solve(damped, gradient)
        scale = float(np.clip(scale - step[0], 0.3 * scale, 3.0 * scale))
        thresholds = np.maximum(thresholds - np.clip(step[1:], -3.0, 3.0), least)
        if gradient @ step < 1e-4:
            break
    return scale * matrix, thresholds
