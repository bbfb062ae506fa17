"""The leading directions of a metric, and in which scale they lead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from closefar.arrays import FloatArray
from closefar.model.metric import Metric

__all__ = ["Directions", "in_data_scale"]


class Directions(NamedTuple):
    """Columns with M = D D', longest first, and their squared lengths, in the scale in which they are orthogonal."""

    columns: FloatArray
    values: FloatArray
    is_data_scale: bool

    @classmethod
    def of(cls, metric: Metric, scale: str | None = None) -> Directions:
        """The columns of B in the data's scale, those of A in its units; by default as `Metric.truncate` has it."""
        metric.check_scale(scale)
        if scale != "units" and metric.data_factor is not None and metric.data_eigenvalues is not None:
            return cls(metric.data_factor, metric.data_eigenvalues, True)
        return cls(metric.factor, metric.eigenvalues[: metric.rank], False)

    @property
    def shares(self) -> FloatArray:
        """What each contributes to the sum of the values."""
        return self.values / max(float(self.values.sum()), np.finfo(float).tiny)


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
    return replace(
        metric,
        data_factor=metric.factor @ vectors[:, ::-1],
        data_eigenvalues=np.maximum(values[::-1], 0.0),
    )
