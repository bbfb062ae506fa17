"""A map of the points in the learned metric that turns as little as possible from one fit to the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.model import Metric

_MOST_POINTS = 400
_DECIMALS = 4


def point_map(metric: Metric, features: FloatArray, previous: dict[str, Any] | None) -> dict[str, Any] | None:
    """The two directions in which distances between points vary most, in units of their root mean square.

    `previous` is the last map of the same points: the new one is turned, and reflected if necessary, to match it.
    None if all distances are zero.
    """
    rows = _rows(len(features))
    mapped = features[rows] @ metric.factor
    mapped = mapped - mapped.mean(axis=0)
    if not np.any(mapped):
        return None
    left, lengths, _ = np.linalg.svd(mapped, full_matrices=False)
    shares = np.zeros(2)
    shares[: min(2, len(lengths))] = (lengths**2 / np.sum(lengths**2))[:2]
    places = np.zeros((len(rows), 2))
    places[:, : min(2, len(lengths))] = (left * lengths)[:, :2]
    places /= np.sqrt(np.mean(np.sum(places**2, axis=1)))
    turned = places @ _turn(places, rows, previous)
    across, up = np.round(turned, _DECIMALS).T + 0.0
    return {"rows": rows.tolist(), "x": across.tolist(), "y": up.tolist(), "shares": shares.tolist()}


def _rows(n: int) -> IndexArray:
    """All points or a random sample of them, which is always the same."""
    if n <= _MOST_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, _MOST_POINTS, replace=False))


def _turn(places: FloatArray, rows: IndexArray, previous: dict[str, Any] | None) -> FloatArray:
    """The rotation or reflection that brings the places nearest to those of the previous map (Procrustes)."""
    if previous is None or previous["rows"] != rows.tolist():
        return np.eye(2)
    before = np.column_stack([previous["x"], previous["y"]])
    left, _, right = np.linalg.svd(places.T @ before)
    turn: FloatArray = left @ right
    return turn
