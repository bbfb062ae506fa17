"""Symmetric matrices as vectors: packing that keeps inner products.

The upper triangle row by row, off-diagonal entries times sqrt(2), so the dot product
of two packed matrices is their trace inner product.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray

__all__ = ["pack", "pack_plain", "packed_rotation", "packed_size", "row_products", "unpack", "weights"]


def packed_size(d: int) -> int:
    return d * (d + 1) // 2


@lru_cache(maxsize=8)
def _indices(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows, columns = np.triu_indices(d)
    return rows.astype(np.intp), columns.astype(np.intp)


@lru_cache(maxsize=8)
def weights(d: int) -> FloatArray:
    """The factor of each packed entry: 1 on the diagonal, sqrt(2) off it."""
    rows, columns = _indices(d)
    return np.where(rows == columns, 1.0, np.sqrt(2.0))


def pack(matrix: FloatArray) -> FloatArray:
    d = len(matrix)
    return matrix[_indices(d)] * weights(d)


def pack_plain(matrix: FloatArray) -> FloatArray:
    """The same entries without the factor sqrt(2): coefficients of packed entries."""
    return matrix[_indices(len(matrix))]


def unpack(vector: FloatArray, d: int) -> FloatArray:
    matrix = np.zeros((d, d))
    matrix[_indices(d)] = vector / weights(d)
    return matrix + np.triu(matrix, 1).T


def packed_rotation(rotation: FloatArray) -> FloatArray:
    """The orthogonal matrix Q with ``pack(V S V') = Q @ pack(S)``."""
    d = len(rotation)
    i, j = _indices(d)
    left, right = rotation[i], rotation[j]
    product = left[:, i] * right[:, j] + left[:, j] * right[:, i]
    scale = weights(d)
    return product * (0.5 * np.outer(scale, scale))


def row_products(columns: FloatArray, scale: FloatArray, out: FloatArray) -> FloatArray:
    """Fill `out` with the products z_i z_j * scale of each row, one pair (i <= j) a line.

    `columns` is d x n, one column a row of data; `out` is packed_size(d) x n.
    """
    start = 0
    scaled = columns * scale
    for i, column in enumerate(scaled):
        stop = start + len(columns) - i
        np.multiply(columns[i:], column, out=out[start:stop])
        start = stop
    return out
