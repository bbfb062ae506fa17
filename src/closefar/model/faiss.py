"""The metric as a FAISS index."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.model.exported import Exported, import_extra

__all__ = ["to_faiss"]

_CHECKED_ROWS = 10_000  # points that are checked for rounding in float32
_ROUNDING = 1e-3  # a shift that matters, relative to the distance at which a pair is no longer the closest


def to_faiss(metric: Exported, points: Any = None) -> Any:
    """Return a FAISS index in which L2 search is the learned metric; see `Metric.to_faiss`."""
    faiss = import_extra("faiss", needed_by="to_faiss")
    d, k = metric.factor.shape
    if k == 0:
        raise ValueError(
            "to_faiss needs a metric of rank 1 or more; got rank 0, where all distances are zero. Fit again with a "
            "smaller alpha, or truncate less."
        )
    rows = None if points is None else _check_points(metric, points)
    centre = np.mean(rows, axis=0) if rows is not None and len(rows) else metric.origin
    linear = faiss.LinearTransform(d, k, False)
    faiss.copy_array_to_vector(_single(metric.components, "the metric's components").ravel(), linear.A)
    linear.is_trained = True
    flat = faiss.IndexFlatL2(k)
    index = faiss.IndexPreTransform(linear, flat)
    if centre is not None:
        # Subtracted before the map, not by its bias: near the centre, float32 subtraction is exact.
        centring = faiss.CenteringTransform(d)
        faiss.copy_array_to_vector(_single(centre, "the centre of the points"), centring.mean)
        centring.is_trained = True
        index.prepend_transform(centring)
    if rows is not None:
        index.add(_single(rows, "points"))
        _warn_of_rounding(metric, flat, rows)
    return index


def _check_points(metric: Exported, points: Any) -> FloatArray:
    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(metric.factor):
        raise ValueError(f"points must have the metric's {len(metric.factor)} columns; got shape {rows.shape}.")
    if not np.all(np.isfinite(rows)):
        raise ValueError("points must be finite; got NaN or infinity. Leave those rows out, or fill them in.")
    return rows


def _single(values: FloatArray, what: str) -> Any:
    """The values as float32, the only type that FAISS supports."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if not np.all(np.isfinite(single)):
        largest = np.max(np.abs(values))
        raise ValueError(
            f"FAISS works in float32, whose largest number is 3.4e38; got {largest:.3g} in {what}. Choose other "
            "units, and convert the metric with Metric.change_units."
        )
    return single


def _warn_of_rounding(metric: Exported, stored: Any, rows: FloatArray) -> None:
    """Warn if float32 moves points noticeably, because a column has a large offset and little spread."""
    if len(rows) < 2:
        return
    sample = np.arange(0, len(rows), max(1, len(rows) // _CHECKED_ROWS))
    shift = stored.reconstruct_batch(sample) - (rows[sample] - np.mean(rows, axis=0)) @ metric.components.T
    shift -= np.mean(shift, axis=0)  # a common shift changes no distance
    largest = float(np.sqrt(np.max(np.sum(shift * shift, axis=1))))
    reach = math.sqrt(min((threshold for threshold in metric.thresholds if threshold > 0), default=1.0))
    if largest > _ROUNDING * reach:
        warnings.warn(
            f"float32 moves some of these points by {largest:.2g}, while a distance of {reach:.2g} matters: "
            "a column has a large offset for its spread. Subtract the same numbers, such as points.mean(axis=0), from "
            "points and queries in float64 first; distances do not change.",
            UserWarning,
            stacklevel=4,
        )
