"""Positive semidefinite matrices only: a normal distribution with the moments of draws that are moved into the cone."""

from __future__ import annotations

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray

__all__ = ["moments_in_cone", "oriented"]

_N_DRAWS = 1000
_SEED = 0


def moments_in_cone(mean: FloatArray, covariance: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """The mean and covariance of (packed M, thresholds) once each draw of M is moved to the nearest matrix in the cone.

    Coordinates have unit second moment, so that this adds the change of tr M to squared distances on average.  The
    judgements know the average margin well, and so the thresholds of a draw move with it.
    """
    n = packed.packed_size(d)
    normal = np.random.default_rng(_SEED).standard_normal((_N_DRAWS // 2, len(mean)))
    values, vectors = np.linalg.eigh(covariance)
    steps = np.vstack([normal, -normal]) @ (vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
    draws = mean + steps
    values, vectors = np.linalg.eigh(packed.unpack(draws[:, :n], d))
    inside = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    draws[:, :n] = packed.pack(inside)
    draws[:, n:] = np.maximum(draws[:, n:] + np.sum(np.maximum(-values, 0.0), axis=1, keepdims=True), 0.0)
    return draws.mean(axis=0), np.atleast_2d(np.cov(draws, rowvar=False))


def oriented(basis: FloatArray, values: FloatArray, fourth: FloatArray) -> FloatArray:
    """The same coordinates with the axes and signs that the data give them, so that fixed draws mean the same.

    `fourth` is the second moment of coordinates weighted by their squared length.  Where M is zero, its eigenvectors
    are the axes; a sign is that of the largest moment with an axis before.
    """
    is_null = values <= 0.0
    turn = np.eye(len(values))
    turn[np.ix_(is_null, is_null)] = np.linalg.eigh(fourth[np.ix_(is_null, is_null)])[1]
    moments = turn.T @ fourth @ turn
    for axis in range(1, len(values)):
        before = moments[axis, :axis]
        if before[np.argmax(np.abs(before))] < 0.0:
            turn[:, axis] *= -1.0
            moments[axis] *= -1.0
            moments[:, axis] *= -1.0
    return basis @ turn
