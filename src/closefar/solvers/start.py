"""Where solvers start: the metric that the labels' second moments suggest."""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray
from closefar.problem import Problem

__all__ = ["moment_start"]


def moment_start(problem: Problem) -> tuple[FloatArray, float]:
    """Return a metric and a threshold near the optimum.

    The feasible part of mean(l zz') - mean(l) I points the right way (for normal rows by
    Stein's identity); its scale and the threshold are then fitted by a few Newton steps
    on two numbers.
    """
    risk = problem.risk
    signs = risk.rows.signs * risk.rows.weights
    moments = risk.outer_sum(signs) - float(np.sum(signs)) * np.eye(risk.n_directions)
    matrix, forms = problem.project(moments)
    mean = float(np.sum(risk.rows.weights * forms))
    spread = float(np.sqrt(np.sum(risk.rows.weights * (forms - mean) ** 2)))
    if spread <= 1e-9 * abs(mean):
        return np.zeros_like(matrix), problem.settle(np.zeros_like(forms), 0.0, tol=1e-6)[0]
    scale, threshold = 1.0 / spread, mean / spread
    for _ in range(8):
        point = risk.pointwise(scale * forms, threshold, order=2)
        bend = point.curvature
        gradient = np.array([np.sum(point.pull * forms), point.threshold_slope])
        cross = -np.sum(bend * forms)
        hessian = np.array([[np.sum(bend * forms**2), cross], [cross, np.sum(bend)]])
        step = np.linalg.solve(hessian + (1e-12 * np.trace(hessian) + 1e-300) * np.eye(2), gradient)
        scale = float(np.clip(scale - step[0], 0.3 * scale, 3.0 * scale))
        threshold = max(threshold - float(np.clip(step[1], -3.0, 3.0)), problem.cone.least_threshold)
        if gradient @ step < 1e-4:
            break
    return scale * matrix, threshold
