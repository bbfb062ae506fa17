"""What labels might depend on besides a quadratic form of the differences, as columns of numbers.

All are unit-free and bounded, so that no test is decided by a few pairs.
"""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray, to_numpy
from closefar.model import Metric
from closefar.packed import form_gradients
from closefar.questions.legs import differences
from closefar.rows import Rows

__all__ = ["absolute_sums", "bounded", "by_place", "differences_of", "place_columns", "products"]

# Values are clipped at this many times their mean absolute value.
_LARGEST = 4.0


def bounded(values: FloatArray) -> FloatArray:
    """Columns divided by their mean absolute value, and clipped."""
    size = np.mean(np.abs(values), axis=0)
    return np.clip(values / np.where(size > 0, size, 1.0), -_LARGEST, _LARGEST)


def differences_of(rows: Rows) -> FloatArray:
    """The difference of each pair, of each point and the origin, or of each leg of comparisons."""
    return np.vstack([to_numpy(block).T for block in differences(rows)])


def products(values: FloatArray) -> FloatArray:
    """All products of two columns, squares included."""
    return form_gradients(bounded(values))


def absolute_sums(z: FloatArray, metric: Metric) -> FloatArray:
    """The city-block distance with the weights of the metric's diagonal, and its square."""
    total = bounded(np.sum(np.abs(z) * np.sqrt(np.maximum(np.diag(metric.matrix), 0.0)), axis=1)[:, None])
    return np.hstack([total, total**2])


def by_place(x: FloatArray, y: FloatArray, z: FloatArray, metric: Metric) -> list[FloatArray]:
    """Three ways in which a metric can depend on where the midpoint of a pair lies, for its points x and y.

    First, place itself may matter, and each column may have another unit where its values are large, as
    under a logarithm.  Second, the scale of the whole metric may depend on place.  Third, the weights of
    columns may depend on the place of other columns.
    """
    middle = 0.5 * x + 0.5 * y
    place = bounded(middle - np.median(middle, axis=0))
    squares, distance = bounded(z) ** 2, bounded(metric.measure(z)[:, None])
    return [
        np.hstack([place, place**2, place * squares]),
        np.hstack([place * distance, place**2 * distance]),
        np.hstack([column[:, None] * squares for column in place.T]),
    ]


def place_columns(d: int) -> FloatArray:
    """The column whose place is part of each term of `by_place`, for d columns."""
    every = np.arange(d)
    return np.concatenate([np.tile(every, 5), np.repeat(every, d)])
