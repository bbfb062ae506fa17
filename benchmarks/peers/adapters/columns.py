"""Columns in the units that a peer learns best in, for all peers that depend on units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from peers.worker import Learned, Train


@dataclass(frozen=True)
class Columns:
    """Standardised columns; those with a common unit keep their proportions."""

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, train: Train) -> Columns:
        """Measure the points, or the points of all pairs."""
        points = train["points"] if "points" in train else train["pairs"].reshape(-1, train["pairs"].shape[2])
        scale = points.std(axis=0)
        if train.get("same_units", np.array(False)):
            scale = np.full_like(scale, np.sqrt(np.square(scale).mean()))
        return cls(points.mean(axis=0), np.where(scale > 0.0, scale, 1.0))

    def standardise(self, points: np.ndarray) -> np.ndarray:
        """Return points or pairs in these units."""
        return np.asarray((points - self.centre) / self.scale)

    def metric(self, learned: np.ndarray) -> np.ndarray:
        """Return a metric of standardised columns in the units of the data."""
        return np.asarray(learned / np.outer(self.scale, self.scale))


def transformer(make: Callable[[Train], Any], least_variance: float | None = None) -> Callable[[Train], Learned]:
    """Return the adapter of a model with fit(points, classes) and transform(points).

    With `least_variance` it gets only the principal components with at least this share of the largest variance: some
    models invert a covariance, which is not regular where columns are constant or depend on each other.
    """

    def adapter(train: Train) -> Learned:
        columns = Columns.of(train)
        points = columns.standardise(train["points"])
        basis = np.eye(points.shape[1])
        if least_variance is not None:
            variances, vectors = np.linalg.eigh(np.cov(points.T))
            basis = vectors[:, variances > least_variance * variances[-1]]
        model = make(train).fit(points @ basis, train["classes"])
        return Learned(transform=lambda new: np.asarray(model.transform(columns.standardise(new) @ basis)))

    return adapter
