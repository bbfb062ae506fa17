"""Factors A of M = A A': each M has many, which differ by a rotation of their columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from closefar.arrays import FloatArray

# ---------------------------------------------------------------------------------------------------------------------
# The directions of a metric, in the order used everywhere.


class Directions(NamedTuple):
    """Columns D with M = D D', longest first, and their squared lengths, in the scale in which they are orthogonal.

    In the scale of the training pairs, the squared length of a direction is the mean squared
    distance along it; for points around an origin, their variance.
    """

    columns: FloatArray
    values: FloatArray
    is_data_scale: bool
    measure: str = "mean squared distance"  # what the values are, and are shares of

    @property
    def shares(self) -> FloatArray:
        """The share of each value in their sum."""
        return self.values / max(float(self.values.sum()), np.finfo(float).tiny)


_TIED = 1e-6  # loadings, and lengths of directions, that differ by a smaller share are treated as equal


def canonical(factor: FloatArray) -> FloatArray:
    """Rotate A to orthogonal columns, longest first, largest loading positive; drop directions of length zero.

    Rows are scaled to one to decide which directions are zero, so the decision does not depend on
    units.  A V is formed rather than U S, so that each row keeps its own relative accuracy.
    """
    size = np.abs(factor).max(axis=1, initial=0.0, keepdims=True)
    _, lengths, turn = np.linalg.svd(factor / np.where(size > 0, size, 1.0), full_matrices=False)
    return rotated(factor @ turn[lengths > 1e-13 * lengths.max(initial=0.0)].T)


def rotated(factor: FloatArray) -> FloatArray:
    """Rotate A to orthogonal columns, longest first, largest loading positive."""
    if factor.size == 0:
        return factor
    scale = np.abs(factor).max()
    turned = factor @ np.linalg.svd(factor / scale, full_matrices=False)[2].T
    return with_positive_loadings(turned[:, np.argsort(-np.sum((turned / scale) ** 2, axis=0), kind="stable")])


def with_positive_loadings(factor: FloatArray, scales: FloatArray | None = None) -> FloatArray:
    """Flip the sign of columns so that the largest loading of each is positive.

    Loadings are entries times the `scales` of their rows, if given.  Of loadings that are equal but
    for rounding, the first decides.
    """
    if factor.size == 0:
        return factor
    sizes = np.abs(factor if scales is None else factor * scales[:, None])
    largest = np.argmax(sizes >= (1.0 - _TIED) * sizes.max(axis=0), axis=0)
    positive: FloatArray = factor * np.where(factor[largest, range(factor.shape[1])] < 0, -1.0, 1.0)
    return positive


def as_directions(
    columns: FloatArray, values: FloatArray, scales: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return columns of these squared lengths, longest first, as directions that are unique.

    Columns of equal length are determined only up to a rotation: they are rotated so that their
    loadings are orthogonal, largest first.  The largest loading of each is positive.
    """
    columns, values = columns.copy(), values.copy()
    starts = np.flatnonzero(values[:-1] - values[1:] > _TIED * values[:-1]) + 1
    for tied in np.split(np.arange(len(values)), starts):
        if len(tied) > 1:
            block = columns[:, tied] if scales is None else columns[:, tied] * scales[:, None]
            largest = np.abs(block).max() or 1.0
            columns[:, tied] = columns[:, tied] @ np.linalg.svd(block / largest, full_matrices=False)[2].T
            values[tied] = values[tied].mean()
    return with_positive_loadings(columns, scales), values


def root_of(second_moment: FloatArray) -> FloatArray:
    """R with R'R = S."""
    values, vectors = np.linalg.eigh(second_moment)
    root: FloatArray = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return root


def data_scale_of(
    factor: FloatArray, data_factor: FloatArray, data_eigenvalues: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return B and its eigenvalues for a factor A = B_0 Q, with orthonormal columns in Q and a known B_0."""
    left, right = with_common_scales(factor, data_factor)
    turn, _, back = np.linalg.svd(np.linalg.lstsq(right, left, rcond=None)[0], full_matrices=False)
    _, lengths, rotation = np.linalg.svd(np.sqrt(data_eigenvalues)[:, None] * (turn @ back), full_matrices=False)
    return as_directions(factor @ rotation.T, lengths**2)


def with_common_scales(factor: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both factors with each row divided by its largest entry, so that a comparison does not depend on units."""
    size = np.maximum(np.abs(factor).max(axis=1, initial=0.0), np.abs(other).max(axis=1, initial=0.0))[:, None]
    size[size == 0] = 1.0
    return factor / size, other / size


def has_ordered_orthogonal_columns(factor: FloatArray) -> bool:
    scale = np.abs(factor).max(initial=0.0)
    if scale == 0:
        return True
    products = (factor / scale).T @ (factor / scale)
    lengths = np.diag(products)
    slack = 1e-8 * lengths.max()
    return bool(np.all(np.abs(products - np.diag(lengths)) <= slack) and np.all(np.diff(lengths) <= slack))


def loadings(factor: FloatArray, scales: FloatArray) -> FloatArray:
    """The loadings of each direction: rows times their scales, columns normalised to length one."""
    scaled = factor * scales[:, None]
    lengths = np.linalg.norm(scaled, axis=0)
    unit: FloatArray = scaled / np.where(lengths > 0, lengths, 1.0)
    return unit
