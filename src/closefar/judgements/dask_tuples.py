"""Pairs by index whose index is a dask array: points once per worker, and the index in partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import is_dask
from closefar.judgements.frames import names_of_frame
from closefar.judgements.point_array import checked_points

__all__ = ["DaskTuples"]


class DaskTuples:
    """Pairs of points, given by a dask array of row numbers; `Tuples` of such an index are these.

    Parameters
    ----------
    points : array or frame of shape (n_points, d), or dask array
        Each point once.  They are sent to each worker that needs them, once; those of a dask array are computed there.
    index : dask array or frame of int, of shape (n, 2)
        The row numbers of the two points of each pair.

    Attributes
    ----------
    points : array of shape (n_points, d), or a `dask.delayed.Delayed` of one
    index : dask array
    feature_names : tuple of str, optional
    shape : tuple
        The number of pairs may be NaN, where dask does not know it.
    """

    def __init__(self, points: Any, index: Any) -> None:
        self.feature_names = names_of_frame(points)
        self.points, n_points, n_columns = _points_of(points)
        index = index.to_dask_array() if hasattr(index, "divisions") else index
        if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
            raise ValueError(
                "an index on a cluster must hold integers, the row numbers of two points per pair, in a dask array of "
                f"shape (n, 2); got {index.dtype} of shape {index.shape}."
            )
        self.index = index
        self.n_points = n_points
        self.shape = (index.shape[0], 2, n_columns)

    ndim = 3

    def __repr__(self) -> str:
        return f"DaskTuples({self.index.numblocks[0]:,} partitions, {self.n_points} points, {self.shape[2]} columns)"


def _points_of(points: Any) -> tuple[Any, Any, int]:
    """The points as an array or as a Delayed of one, how many there are, and their number of columns."""
    if not is_dask(points):
        array = checked_points(points)
        return array, len(array), int(array.shape[1])
    if hasattr(points, "divisions"):
        points = points.to_dask_array()
    if points.ndim != 2 or points.dtype.kind not in "biuf":
        raise ValueError(
            f"points must hold real numbers in shape (n_points, d); got {points.dtype} of shape {points.shape}."
        )
    import dask

    whole = dask.delayed(_joined)(points.to_delayed(optimize_graph=False).tolist())
    return whole, points.shape[0], int(points.shape[1])


def _joined(blocks: list[list[NDArray[Any]]]) -> NDArray[Any]:
    return np.block(blocks)
