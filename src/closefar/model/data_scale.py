"""Telling a metric the scale of some data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from closefar.model.factors import as_directions
from closefar.model.metric import Metric
from closefar.rows import column_scales, rows_of

__all__ = ["in_data_scale"]


def in_data_scale(metric: Metric, data: Any, weights: Any = None) -> Metric:
    """Return the metric with the scale of these differences for its `data_factor` and `data_eigenvalues`.

    `data` are differences (n, d) or pairs (n, 2, d).  A metric with an origin is for single
    points, whose scale is their covariance.
    """
    data = data if hasattr(data, "shape") else np.asarray(data)
    n = int(data.shape[0])
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(weights >= 0) or not weights.sum() > 0:
        raise ValueError(f"weights must be numbers >= 0, not all 0, one per pair; got shape {weights.shape} for {n}.")
    shares = weights / weights.sum()
    mapped = metric.coordinates(data, metric.factor)
    if metric.origin is not None:
        mapped = mapped - shares @ mapped
    values, vectors = np.linalg.eigh((mapped * shares[:, None]).T @ mapped)
    scales = column_scales(rows_of(data), shares, centred=metric.origin is not None)
    columns, values = as_directions(metric.factor @ vectors[:, ::-1], np.maximum(values[::-1], 0.0), scales)
    return replace(metric, data_factor=columns, data_eigenvalues=values)
