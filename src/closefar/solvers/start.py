"""Where solvers start: the metric that the labels' second moments suggest."""

from __future__ import annotations

import numpy as np

from closefar.objective import Risk

__all__ = ["moment_start", "psd_factor"]


def psd_factor(matrix: np.ndarray, cutoff: float = 1e-12) -> np.ndarray:
    """A factor A of the projection of a symmetric matrix onto the PSD cone.

    Eigenvalues up to `cutoff` times the largest count as zero.
    """
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    keep = values > max(cutoff * values[-1], 0.0)
    return vectors[:, keep] * np.sqrt(values[keep])


def moment_start(risk: Risk) -> tuple[np.ndarray, float]:
    """Return a factor and a threshold near the optimum.

    The PSD part of mean(l zz') - mean(l) I points the right way (for normal differences
    by Stein's identity); its scale and the threshold are then fitted by a few Newton
    steps on two numbers.
    """
    signs = risk.rows.signs * risk.rows.weights
    moments = risk.outer_sum(signs) - float(np.sum(signs)) * np.eye(risk.n_directions)
    factor = psd_factor(moments)
    if factor.shape[1] == 0:
        return factor, risk.best_threshold(np.zeros(len(risk.rows)), 0.0, tol=1e-6)[0]
    forms = risk.quadratic_forms(factor)
    mean = float(np.sum(risk.rows.weights * forms))
    spread = float(np.sqrt(np.sum(risk.rows.weights * (forms - mean) ** 2)))
    spread = spread if spread > 1e-9 * mean else mean
    scale, threshold = 1.0 / spread, mean / spread
    for _ in range(8):
        point = risk.pointwise(scale * forms, threshold, order=2)
        bend = point.curvature
        gradient = np.array([np.sum(point.pull * forms), point.threshold_slope])
        cross = -np.sum(bend * forms)
        hessian = np.array([[np.sum(bend * forms**2), cross], [cross, np.sum(bend)]])
        step = np.linalg.solve(hessian + (1e-12 * np.trace(hessian) + 1e-300) * np.eye(2), gradient)
        scale = min(max(scale - step[0], 0.3 * scale), 3.0 * scale)
        threshold = min(max(threshold - step[1], 0.3 * threshold), 3.0 * threshold)
        if gradient @ step < 1e-4:
            break
    return factor * np.sqrt(scale), threshold
