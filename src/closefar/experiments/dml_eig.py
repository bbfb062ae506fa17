"""DML-eig of Ying and Li (2012, JMLR 13, 1-26), to compare with.

Among the M for which the squared distances of the close pairs sum to at most 1, find one whose least squared
distance over the far pairs is largest.  With X = sum of zz' over the close pairs and S = X^1/2 M X^1/2 that is

    max over S positive semidefinite with tr S = 1  of  min over far pairs of y'Sy,  y = X^-1/2 z,

and M = X^-1/2 S X^-1/2.  The least is smoothed with mu, and Frank-Wolfe steps maximise it: each needs one
eigenvector.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from closefar.arrays import FloatArray

__all__ = ["EigenMetric", "best_threshold", "dml_eig", "squared_distances"]

# Relative to the largest eigenvalue of X: with fewer close pairs than columns X is singular.
_LEAST_EIGENVALUE = 1e-10


class EigenMetric(NamedTuple):
    """A learned matrix, the least squared distance of the far pairs under M, and a proven bound on any M's."""

    matrix: FloatArray
    least: float
    bound: float


def dml_eig(
    differences: FloatArray,
    labels: NDArray[np.int64],
    *,
    smoothing: float,
    n_iter: int = 200,
    step: int = 2,
    mapped_back: bool = True,
) -> EigenMetric:
    """Learn a metric with DML-eig.

    Parameters
    ----------
    differences : array of shape (n, d)
    labels : array of n labels, -1 close and +1 far; both occur
    smoothing : float
        mu > 0, in the unit of squared distances, whose mean over the close pairs is one over their number.
    n_iter : int
        Number of Frank-Wolfe steps.
    step : int
        The t-th step, from 0, has the length step / (t + step).
    mapped_back : bool
        Return M; otherwise S, which measures distances between whitened differences, not between the given ones.
    """
    close, far = differences[labels < 0], differences[labels > 0]
    whitening = _inverse_root(close.T @ close)
    columns = whitening @ far.T
    matrix = np.eye(len(columns)) / len(columns)
    squared = _squared_distances(matrix, columns)
    bound = np.inf
    for t in range(n_iter):
        weights = softmax(-squared / smoothing)
        values, vectors = np.linalg.eigh((columns * weights) @ columns.T)
        # The least over pairs is at most any weighted mean, and that is largest at the top eigenvector.
        bound = min(bound, float(values[-1]))
        length = step / (t + step)
        matrix = (1.0 - length) * matrix + length * np.outer(vectors[:, -1], vectors[:, -1])
        squared = _squared_distances(matrix, columns)
    learned = whitening @ matrix @ whitening if mapped_back else matrix
    return EigenMetric(learned, float(np.min(squared)), bound)


def squared_distances(matrix: FloatArray, differences: FloatArray) -> FloatArray:
    """Return z'Mz for each row z."""
    return _squared_distances(matrix, differences.T)


def best_threshold(distances: FloatArray, labels: NDArray[np.int64]) -> float:
    """Return a threshold on squared distances at or above which calling pairs far gets the most labels right."""
    order = np.argsort(distances)
    ordered, far = distances[order], labels[order] > 0
    # Entry k: the k nearest pairs are called close, the others far.
    n_right = np.concatenate([[0], np.cumsum(~far)]) + np.sum(far) - np.concatenate([[0], np.cumsum(far)])
    above_all = np.nextafter(2.0 * ordered[-1], np.inf)
    thresholds = np.concatenate([[0.0], 0.5 * (ordered[:-1] + ordered[1:]), [above_all]])
    # Pairs at one distance can't be called differently.
    possible = np.concatenate([[True], np.diff(ordered) > 0, [True]])
    return float(thresholds[np.argmax(np.where(possible, n_right, -1))])


def _squared_distances(matrix: FloatArray, columns: FloatArray) -> FloatArray:
    squared: FloatArray = np.einsum("ij,ij->j", matrix @ columns, columns)
    return squared


def _inverse_root(matrix: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(matrix)
    inverse: FloatArray = (vectors / np.sqrt(np.maximum(values, _LEAST_EIGENVALUE * values[-1]))) @ vectors.T
    return inverse
