"""A fitted metric in unit-free coordinates, with the objective around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.judgements import Judgements
from closefar.model import Metric
from closefar.model.factors import root_of
from closefar.rows import BlockRows, Coordinates, factor_in_rows, pair_rows, unit_free
from closefar.solve import CloseFar, Evaluation, MarginCurvature, Objective, Passes

__all__ = ["Optimum"]


@dataclass(frozen=True)
class Optimum:
    """z'Mz = |factor' w|^2 for `rows` w = transform' z, and the objective of the judgements that it was fitted to.

    For a metric with an origin, w = transform' (x - origin).  `moment_root` is R, with R'R the
    second moment of w: the identity, unless a penalty uses another scale.
    """

    rows: BlockRows
    objective: Objective
    coordinates: Coordinates
    factor: FloatArray
    threshold: float
    moment_root: FloatArray

    @classmethod
    def of(cls, metric: Metric, judgements: Judgements, *, blend: float = 0.0) -> Optimum:
        source = pair_rows(judgements.data, metric.origin)
        signs, shares = judgements.signs_in(source), judgements.shares_in(source)
        rows, coordinates = unit_free(source, shares, blend=blend, signs=signs, finds_null=False)
        likelihood = CloseFar(metric.noise, signs, shares)
        factor = factor_in_rows(rows, source, shares, metric.factor)
        root = np.eye(len(factor)) if blend == 0.0 else root_of(rows.outer(shares))
        return cls(rows, Objective(rows, likelihood, Passes()), coordinates, factor, metric.known_threshold, root)

    @property
    def size(self) -> int:
        """The number of coordinates: the columns of M."""
        return self.objective.n_directions

    @property
    def matrix(self) -> FloatArray:
        return self.factor @ self.factor.T

    @property
    def parameters(self) -> FloatArray:
        """(packed M, tau)."""
        return packed.joined(self.matrix, np.array([self.threshold]))

    def evaluation(self) -> Evaluation:
        """The risk at the optimum, with its curvature."""
        squared = self.objective.squared_distances(self.factor)
        return self.objective.evaluate(squared, np.array([self.threshold]), order=2)

    def sum_of_squared_scores(self, scores: FloatArray) -> FloatArray:
        """The sum of u u' over rows, u = score times the derivative of the row's margin in (packed M, tau)."""
        squares = MarginCurvature(self.rows.row_array(scores**2), np.empty((1, 1)))
        return self.objective.hessian(squares)
