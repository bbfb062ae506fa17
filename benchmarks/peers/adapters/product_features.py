"""Products of differences as features: what a linear model needs to be a metric without M >= 0."""

from __future__ import annotations

import numpy as np


def products(differences: np.ndarray) -> np.ndarray:
    """Return all products z_i z_j."""
    rows, columns = np.triu_indices(differences.shape[1])
    return np.asarray(differences[:, rows] * differences[:, columns])


def scales_of(features: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each feature, one if that is zero."""
    scales = features.std(axis=0)
    return np.where(scales > 0, scales, 1.0)


def matrix_of(coefficients: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix M with z'Mz = the sum of coefficients and products."""
    d = int(np.sqrt(2 * len(coefficients)))
    metric = np.zeros((d, d))
    metric[np.triu_indices(d)] = coefficients
    return np.asarray((metric + metric.T) / 2.0)
