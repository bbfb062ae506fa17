"""Adding the scale of some data to a metric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from closefar.model.factors import as_directions
from closefar.model.metric import Metric
from closefar.rows import column_scales, rows_of

__all__ = ["in_data_scale"]


def in_data_scale(metric: Metric, data: Any, weights: Any = None) -> Metric:
    """Return the metric with `data_factor` and `data_eigenvalues` in the scale of these differences.

    `data` holds differences (n, d) or pairs (n, 2, d).  For a metric with an origin it holds single
    points, and the scale is their covariance.
    """
    data = data if hasattr(data, "shape") else np.asarray(data)
    n = int(data.shape[0])
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(weights >= 0) or not weights.sum() > 0:
        raise ValueError(
            f"weights must be numbers >= 0, not all 0, one per pair; got shape {weights.shape} for {n} pairs."
        )
    shares = weights / weights.sum()
    mapped = metric.coordinates(data, metric.factor)
    if metric.origin is not None:
        mapped = mapped - shares @ mapped
    values, vectors = np.linalg.eigh((mapped * shares[:, None]).T @ mapped)
    scales = column_scales(rows_of(data), shares, centred=metric.origin is not None)
    columns, values = as_directions(metric.factor @ vectors[:, ::-1], np.maximum(values[::-1], 0.0), scales)
    return replace(metric, data_factor=columns, data_eigenvalues=values)
