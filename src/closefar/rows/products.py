"""Products with one block of rows, in the library of its array: each row is a column of the block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from closefar.arrays import Array, FloatArray, IndexArray, as_float64, is_on_gpu, like, to_numpy

__all__ = [
    "as_type_of",
    "columns_at",
    "empty_like",
    "is_uniform",
    "line_extremes",
    "matching",
    "quadratic_forms",
    "roots",
    "row_array_like",
    "row_dots",
    "scaled_rows",
    "squared_columns",
    "squared_lengths",
    "summed",
    "symmetric_in_numpy",
    "triangle_of",
    "weighted_outer",
]

_LONG = 32  # rows that are reduced at a time
_MANY_COLUMNS = 48  # from here on, a sum of outer products is limited by its products


def line_extremes(block: Array) -> list[FloatArray]:
    """The largest and minus the smallest entry of each line of a block."""
    d, n = block.shape
    if is_numpy_array(block) and block.T.flags.c_contiguous and n >= _LONG:
        # Lines that lie side by side are reduced many at a time.
        wide = block.T[: n - n % _LONG].reshape(-1, _LONG * d)
        rest = block[:, n - n % _LONG :]
        lines = np.hstack([wide.max(axis=0).reshape(_LONG, d).T, wide.min(axis=0).reshape(_LONG, d).T, rest])
        return [lines.max(axis=1), -lines.min(axis=1)]
    xp = array_namespace(block)
    return list(to_numpy(xp.stack([xp.max(block, axis=1), -xp.min(block, axis=1)])))


def is_uniform(weights: Array) -> bool:
    """Whether all weights are the same, as one number that stands for all, or as so many numbers."""
    if is_numpy_array(weights) and weights.strides == (0,):
        return True
    return not bool(array_namespace(weights).any(weights != weights[:1]))


def scaled_rows(block: Array, centre: FloatArray, scale: FloatArray) -> Array:
    """The rows x = (z - centre) / scale, each a column."""
    centred = block - like(block, centre)[:, None] if np.any(centre) else block
    return centred / like(block, scale)[:, None]


def roots(block: Array, weights: Array) -> Array:
    """The square roots of weights, in the library of a block."""
    weights = matching(block, weights)
    return array_namespace(weights).sqrt(weights)


def triangle_of(rows: Array) -> Array:
    """The triangular factor of a QR decomposition."""
    if is_numpy_array(rows):
        return np.linalg.qr(rows, mode="r")
    return array_namespace(rows).linalg.qr(rows)[1]


def columns_at(block: Array, indices: IndexArray) -> Array:
    """Some columns of a block, in its memory order."""
    if is_numpy_array(block):
        if block.strides[1] != block.itemsize:
            return block[:, indices]
        found = np.empty((len(block), len(indices)), dtype=block.dtype)
        for line, values in enumerate(block):
            np.take(values, indices, out=found[line])
        return found
    return array_namespace(block).take(block, like(block, indices), axis=1)


def summed(parts: Iterator[Array]) -> Array:
    """The sum in double precision, whatever that of the parts is."""
    total = as_float64(next(parts))
    for part in parts:
        total += part
    return total


def empty_like(block: Array, shape: tuple[int, int], dtype: Any = None) -> Array:
    return array_namespace(block).empty(shape, dtype=dtype or block.dtype, device=device(block))


def as_type_of(array: Array, model: Array) -> Array:
    return array_namespace(array).astype(array, model.dtype, copy=False)


def matching(block: Array, values: Array) -> Array:
    """These numbers in the library and the precision of a block."""
    if is_numpy_array(block):
        return values.astype(block.dtype, copy=False)
    return as_type_of(like(block, values) if is_numpy_array(values) else values, block)


def row_array_like(model: Array, values: FloatArray) -> Array:
    """One number per row in the library and on the device of the rows: copied as they are stored, or as one number."""
    xp = array_namespace(model)
    if values.strides == (0,) and len(values):
        return xp.broadcast_to(like(model, values[:1].astype(np.float64)), values.shape)
    handle = like(model, values)
    # Torch and CuPy compute with signs of one byte as NumPy does.
    return handle if values.dtype == np.int8 and is_on_gpu(model) else xp.astype(handle, xp.float64, copy=False)


def weighted_outer(block: Array, coefficients: Array) -> Array:
    """sum_i c_i z_i z_i' over the columns z_i of a block.

    If there are many columns of data, the rows of each sign are summed apart: a product with its own transpose
    takes half the time.
    """
    if not is_numpy_array(block) or len(block) < _MANY_COLUMNS:
        return block @ (block * matching(block, coefficients)).T
    root = matching(block, np.sqrt(np.abs(coefficients)))
    total = np.zeros((len(block), len(block)))
    for add, chosen in ((np.add, coefficients > 0.0), (np.subtract, coefficients < 0.0)):
        indices = np.flatnonzero(chosen)
        some = np.take(block.T, indices, axis=0)
        some *= root[indices, None]
        add(total, some.T @ some, out=total)
    return total


def has_contiguous_rows(block: Array) -> bool:
    """Whether each row, a column of the block, is contiguous in memory."""
    return bool(is_numpy_array(block) and block.flags.f_contiguous)


def squared_lengths(block: Array, factor: Array) -> Array:
    if has_contiguous_rows(block):
        projected = block.T @ factor
        return row_dots(projected, projected)
    return squared_columns(factor.T @ block)


def quadratic_forms(matrix: Array, block: Array) -> Array:
    if has_contiguous_rows(block):
        return row_dots(block.T @ matrix, block.T)
    return column_dots(matrix @ block, block)


def row_dots(left: FloatArray, right: FloatArray) -> FloatArray:
    """The dot product of each row of `left` with the same row of `right`, to the precision of its terms."""
    dots: FloatArray = np.einsum("ij,ij->i", left, right).astype(np.float64, copy=False)
    return dots


def squared_columns(product: Array) -> Array:
    """The squared length of each column."""
    return column_dots(product, product)


def column_dots(left: Array, right: Array) -> Array:
    """The dot product of each column of `left` with the same column of `right`."""
    if is_numpy_array(left):
        return np.einsum("ij,ij->j", left, right, dtype=np.float64)
    return as_float64(array_namespace(left).vecdot(left, right, axis=-2))


def symmetric_in_numpy(total: Array) -> FloatArray:
    matrix: FloatArray = to_numpy(0.5 * (total + total.T))
    return matrix
