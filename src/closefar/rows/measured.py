"""What is measured of the columns of rows, from which unit-free coordinates are found."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray, like, to_numpy
from closefar.rows.coordinates import Coordinates
from closefar.rows.products import (
    is_uniform,
    line_extremes,
    matching,
    roots,
    scaled_rows,
    squared_columns,
    summed,
    triangle_of,
)
from closefar.rows.source import RowSource, concatenated

__all__ = ["MeasuredRows"]

_SAFE_SCALES = 1e-60, 1e60  # of columns, whose squares and their sums neither overflow nor underflow


class MeasuredRows(RowSource):
    """Rows z_i that are read in blocks; weights are handles, and sums are NumPy's."""

    @abstractmethod
    def read(self, where: slice) -> Array:
        """Return these rows, each as a column, in double precision."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Give the rows, a block at a time, and where they are."""

    def largest(self, centre: FloatArray) -> FloatArray:
        """Return the largest absolute value of each column, measured from `centre`."""
        upper, lower = np.max([line_extremes(block) for _, block in self.blocks()], axis=0)
        found: FloatArray = np.maximum(upper - centre, centre + lower)
        return found

    def scaled_moment(self, weights: Array, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest absolute value of each column, measured from `centre`, and the second moment in it.

        The moment is zero if a value is not finite.
        """
        largest = self.largest(centre)
        scale = np.where(largest > 0.0, largest, 1.0)
        is_finite = bool(np.all(np.isfinite(largest)))
        return largest, self.second_moment(weights, centre, scale) if is_finite else np.zeros((len(scale), len(scale)))

    def weighted_sum(self, weights: Array) -> FloatArray:
        """Return sum_i w_i z_i."""
        return to_numpy(summed(block @ matching(block, weights[where]) for where, block in self.blocks()))

    def second_moment(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return sum_i w_i x_i x_i' of the scaled rows x = (z - centre) / scale."""
        lowest, highest = _SAFE_SCALES
        finite = scale[np.isfinite(scale)]
        # Sums of such numbers can be scaled instead of the rows, which would take as long as the sums of few columns.
        scales_sums = not np.any(centre) and lowest < finite.min(initial=1.0) and finite.max(initial=1.0) < highest
        is_weighted = not is_uniform(weights)

        def scaled(where: slice, block: Array) -> Array:
            rows = block if scales_sums else scaled_rows(block, centre, scale)
            return rows * roots(block, weights[where]) if is_weighted else rows

        blocks = (scaled(where, block) for where, block in self.blocks())
        total = to_numpy(summed(each @ each.T for each in blocks))
        if scales_sums:
            total = total / scale[:, None] / scale
        return total if is_weighted or self.n_rows == 0 else total * float(weights[0])

    def scaled_squares(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the diagonal of that second moment alone."""

        def squares(where: slice, block: Array) -> Array:
            rows = scaled_rows(block, centre, scale)
            return (rows * rows) @ matching(block, weights[where])

        return to_numpy(summed(squares(where, block) for where, block in self.blocks()))

    def triangle(self, weights: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
        """Return a triangular R with R'R = sum_i w_i x_i x_i', without the rounding errors of that sum."""
        found: Array = None
        for where, block in self.blocks():
            rows = (scaled_rows(block, centre, scale) * roots(block, weights[where])).T
            found = triangle_of(rows if found is None else array_namespace(rows).concat([found, rows]))
        return to_numpy(found)

    def cross_moment(self, other: MeasuredRows, factor: FloatArray, weights: Array) -> FloatArray:
        """Return sum_i w_i z_i (A'y_i)', where y_i are the same rows in other coordinates."""

        def crossed(where: slice, block: Array) -> Array:
            here = self.read(where)
            return (here * matching(here, weights[where])) @ (block.T @ like(block, factor))

        return to_numpy(summed(crossed(where, block) for where, block in other.blocks()))

    def squared_lengths(self, coordinates: Coordinates) -> Array:
        """Return the squared length of each row in coordinates, without the constant of a learned origin."""
        if not coordinates.has_constant:
            return self.squared_distances(coordinates.transform)
        return concatenated([squared_columns(coordinates.apply(block)[:-1, :]) for _, block in self.blocks()])
