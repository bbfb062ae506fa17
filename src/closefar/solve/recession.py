"""Whether the optimum lies at infinity: a direction in which M and tau can grow without bound at no cost.

The risk decreases for ever along (D, t), with D positive semidefinite and t >= 0, if
l (z'Dz - t) >= 0 for every label l, and > 0 for some.  Labels that are still uncertain at the
solution must have z'Dz = t, which leaves few candidate directions, usually none.  With t = 0 they
are the directions in which no close pair differs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog

from closefar import packed
from closefar.arrays import BoolArray, FloatArray, IndexArray, to_numpy
from closefar.rows import BlockRows

__all__ = ["find_recession"]

# With more parameters, the search around a threshold takes longer than the fit.
_MOST_PARAMETERS = 600

# Labels with 4 p (1 - p) above this count as uncertain; those of a rare kind still are when a fit has converged.
_IN_DOUBT = (0.5, 0.05, 0.005, 0.0005)

_NULL = 1e-11  # an eigenvalue of a Gram matrix of unit vectors, relative to the largest
_ZERO = 1e-5  # a change of a margin, relative to the largest
_MOST_ROUNDS = 20
_CHUNK = 4096

Features = Callable[[BlockRows, IndexArray], FloatArray]


def find_recession(rows: BlockRows, signs: FloatArray, in_doubt: FloatArray) -> tuple[FloatArray, float] | None:
    """Return (D, t), or None if there is none or the search would take too long.

    `in_doubt` is 4 p (1 - p) of each label at the solution.
    """
    free = _null_space(rows, signs < 0.0, _unit_rows, rows.n_columns)
    if free.shape[1] > 0:
        along, lengths = (rows.gather(rows.squared_distances(each)) for each in (free, np.eye(len(free))))
        if np.any(along > _ZERO**2 * lengths):
            return free @ free.T, 0.0  # directions in which no close pair differs
    n_parameters = packed.packed_size(rows.n_columns) + 1
    if n_parameters > _MOST_PARAMETERS:
        return None
    for level in _IN_DOUBT:
        basis = _null_space(rows, in_doubt >= level, _form_features, n_parameters)
        if basis.shape[1] == 0:
            return None
        found = _around_threshold(rows, signs, basis)
        if found is not None:
            return found
    return None


def _null_space(rows: BlockRows, chosen: BoolArray, features: Features, size: int) -> FloatArray:
    """The orthogonal complement of the features of the chosen rows; a few rows often prove that it is empty."""
    indices = np.flatnonzero(chosen)
    few = indices[:: max(len(indices) // (4 * size), 1)]
    for part in (few, indices):
        gram = np.zeros((size, size))
        for start in range(0, len(part), _CHUNK):
            block = features(rows, part[start : start + _CHUNK])
            gram += block.T @ block
        if _has_full_rank(gram):
            return np.zeros((size, 0))
    values, vectors = np.linalg.eigh(gram)
    basis: FloatArray = vectors[:, values <= _NULL * max(values[-1], 1.0)]
    return basis


def _has_full_rank(gram: FloatArray) -> bool:
    """Whether it clearly has full rank, by a Cholesky factorisation, ten times as fast as eigenvalues."""
    try:
        np.linalg.cholesky(gram - _NULL * max(float(np.trace(gram)), 1.0) * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return False
    return True


def _unit_rows(rows: BlockRows, indices: IndexArray) -> FloatArray:
    """The rows scaled to length one; zero rows stay zero."""
    points = to_numpy(rows.take_rows(indices).read(slice(0, len(indices)))).T
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    unit: FloatArray = points / np.where(lengths > 0.0, lengths, 1.0)
    return unit


def _form_features(rows: BlockRows, indices: IndexArray) -> FloatArray:
    """The derivative of each margin in (packed M, tau), scaled to length one."""
    features = packed.margin_gradients(to_numpy(rows.take_rows(indices).read(slice(0, len(indices)))))
    unit: FloatArray = features / np.linalg.norm(features, axis=1, keepdims=True)
    return unit


def _around_threshold(rows: BlockRows, signs: FloatArray, basis: FloatArray) -> tuple[FloatArray, float] | None:
    """(D, t) by a linear program over the basis that adds violated constraints: labels, and eigenvectors of D."""
    n, d = rows.n_rows, rows.n_columns
    chunks = (np.arange(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK))
    changes = np.concatenate([_form_features(rows, chunk) @ basis for chunk in chunks]) * signs[:, None]
    gain = changes.sum(axis=0)
    constraints = [basis[-1], *(packed.form_gradients(np.eye(d)) @ basis[:-1])]
    for _ in range(_MOST_ROUNDS):
        program = linprog(-gain, A_ub=-np.array(constraints), b_ub=np.zeros(len(constraints)), bounds=(-1.0, 1.0))
        if program.x is None or -program.fun <= _ZERO * np.abs(gain).sum():
            return None
        matrix, threshold = packed.split(basis @ program.x, d)
        values, vectors = np.linalg.eigh(matrix)
        inside = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if _is_recession(changes, basis, packed.joined(inside, threshold)):
            return inside, float(threshold[0])
        objecting = changes @ program.x
        worst = np.argsort(objecting)[: 10 + 2 * basis.shape[1]]
        constraints += list(packed.form_gradients(vectors[:, values < 0.0].T) @ basis[:-1])
        constraints += list(changes[worst[objecting[worst] < 0.0]])
    return None


def _is_recession(changes: FloatArray, basis: FloatArray, direction: FloatArray) -> bool:
    """Whether a direction contradicts no label and is, up to rounding, within the basis."""
    coefficients, size = basis.T @ direction, float(np.linalg.norm(direction))
    agreed = changes @ coefficients
    largest = float(agreed.max(initial=0.0))
    is_within = float(np.linalg.norm(direction - basis @ coefficients)) <= _ZERO * size
    return is_within and largest > 1e-3 * size and float(agreed.min()) >= -_ZERO * largest
