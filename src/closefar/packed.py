"""Symmetric matrices as vectors: packing that keeps inner products.

The upper triangle row by row, off-diagonal entries times sqrt(2), so the dot product
of two packed matrices is their trace inner product.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from array_api_compat import is_numpy_array
from numpy.typing import NDArray

from closefar.arrays import Array, FloatArray

__all__ = ["fill_products", "form_gradients", "join", "margin_gradients", "pack", "pack_plain", "packed_rotation"]
__all__ += ["packed_size", "split", "unpack", "weights"]


def packed_size(d: int) -> int:
    return d * (d + 1) // 2


@lru_cache(maxsize=8)
def _indices(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows, columns = np.triu_indices(d)
    return rows.astype(np.intp), columns.astype(np.intp)


@lru_cache(maxsize=8)
def _places(d: int) -> NDArray[np.intp]:
    """The place of each entry of a symmetric matrix in its packed vector."""
    places = np.zeros((d, d), dtype=np.intp)
    places[_indices(d)] = np.arange(packed_size(d))
    return np.maximum(places, places.T)


@lru_cache(maxsize=8)
def weights(d: int) -> FloatArray:
    """The factor of each packed entry: 1 on the diagonal, sqrt(2) off it."""
    rows, columns = _indices(d)
    return np.where(rows == columns, 1.0, np.sqrt(2.0))


def pack(matrix: FloatArray) -> FloatArray:
    """Pack a matrix, or each of several."""
    rows, columns = _indices(matrix.shape[-1])
    packed: FloatArray = matrix[..., rows, columns] * weights(matrix.shape[-1])
    return packed


def pack_plain(matrix: FloatArray) -> FloatArray:
    """The same entries without the factor sqrt(2): coefficients of packed entries."""
    return matrix[_indices(len(matrix))]


def unpack(vector: FloatArray, d: int) -> FloatArray:
    """Unpack a vector, or each line of a matrix."""
    matrix: FloatArray = (vector / weights(d))[..., _places(d)]
    return matrix


def join(matrix: FloatArray, more: FloatArray) -> FloatArray:
    """A packed matrix and further numbers in one vector."""
    return np.concatenate([pack(matrix), more])


def split(vector: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """The matrix and the further numbers of such a vector."""
    size = packed_size(d)
    return unpack(vector[:size], d), vector[size:]


def packed_rotation(rotation: FloatArray) -> FloatArray:
    """The orthogonal matrix Q with ``pack(V S V') = Q @ pack(S)``."""
    d = len(rotation)
    i, j = _indices(d)
    left, right = rotation[i], rotation[j]
    product = left[:, i] * right[:, j] + left[:, j] * right[:, i]
    scale = weights(d)
    return product * (0.5 * np.outer(scale, scale))


def form_gradients(left: FloatArray, right: FloatArray | None = None) -> FloatArray:
    """The derivative of x'My in packed M, for each row x of `left` and y of `right` (the same, if left out)."""
    n, d = left.shape
    if right is None:
        gradients = np.empty((packed_size(d), n))  # those in one entry of M are side by side
        fill_products(left.T, 1.0, out=gradients)
        gradients *= weights(d)[:, None]
        return gradients.T
    i, j = _indices(d)
    return 0.5 * weights(d) * (left[:, i] * right[:, j] + left[:, j] * right[:, i])


def margin_gradients(columns: FloatArray) -> FloatArray:
    """The derivative of z'Mz less the threshold in (packed M, threshold), a row for each column z."""
    return np.hstack([form_gradients(columns.T), np.full((columns.shape[1], 1), -1.0)])


def fill_products(columns: Array, scale: Array, out: Array) -> None:
    """Fill the first lines of `out` with the products z_i z_j * scale of each row, one pair (i <= j) per line.

    `columns` is d x n, one column for each row of data; `out` has n columns.
    """
    start, d = 0, columns.shape[0]
    scaled = columns * scale
    for i in range(d):
        stop = start + d - i
        if is_numpy_array(out):
            np.multiply(columns[i:], scaled[i], out=out[start:stop])
        else:
            out[start:stop, :] = columns[i:, :] * scaled[i, :]
        start = stop
