"""A fitted metric in unit-free coordinates, with the objective around it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.factors import root_of
from closefar.rows import Coordinates, Rows, factor_in_rows, judged_rows, rows_of, unit_free
from closefar.solve import CloseFar, Evaluation, Likelihood, MarginCurvature, Objective, Passes

__all__ = ["Optimum", "coordinates_of"]


def coordinates_of(metric: Metric, judgements: Judgements) -> tuple[Coordinates, FloatArray]:
    """The unit-free coordinates of the judgements, and a factor of the metric there."""
    found = Optimum.of(metric, judgements)
    return found.coordinates, found.factor


@dataclass(frozen=True)
class Optimum:
    """z'Mz = |factor' w|^2 for `rows` w = transform' z, and the objective of the judgements that it was fitted to.

    For a metric with an origin, w = transform' (x - origin).  `moment_root` is R, with R'R the
    second moment of w: the identity, unless a penalty uses another scale.  `thresholds` are those of levels
    and the strictness of each annotator.
    """

    rows: Rows
    coordinates: Coordinates
    factor: FloatArray
    thresholds: FloatArray
    moment_root: FloatArray
    likelihood: Likelihood | None = None

    @classmethod
    def of(
        cls,
        metric: Metric,
        judgements: Judgements,
        *,
        blend: float = 0.0,
        comparison_noise: float = 1.0,
        strictness: FloatArray | None = None,
    ) -> Optimum:
        if metric.origin is None:
            source = judged_rows(judgements, comparison_noise)
        else:
            source = rows_of(judgements.data, metric.origin)
        signs, shares = judgements.signs_in(source), judgements.shares_in(source)
        rows, coordinates = unit_free(source, shares, blend=blend, signs=signs, finds_null=False)
        factor = factor_in_rows(rows, source, shares, metric.factor)
        root = np.eye(len(factor)) if blend == 0.0 else root_of(rows.outer(shares))
        thresholds = np.append(metric.thresholds, () if strictness is None else strictness)
        plain = judgements.kind is Kind.CLOSE_FAR and judgements.comparisons is None and strictness is None
        likelihood = CloseFar(metric.noise, signs, shares) if plain else None
        return cls(rows, coordinates, factor, thresholds, root, likelihood)

    @property
    def threshold(self) -> float:
        return float(self.thresholds[0])

    @cached_property
    def objective(self) -> Objective:
        assert self.likelihood is not None
        return Objective(self.rows, self.likelihood, Passes())

    @property
    def size(self) -> int:
        """The number of coordinates: the columns of M."""
        return self.rows.n_columns

    @property
    def matrix(self) -> FloatArray:
        return self.factor @ self.factor.T

    @property
    def parameters(self) -> FloatArray:
        """(packed M, thresholds)."""
        return packed.joined(self.matrix, self.thresholds)

    def evaluation(self) -> Evaluation:
        """The risk at the optimum, with its curvature."""
        squared = self.objective.squared_distances(self.factor)
        return self.objective.evaluate(squared, self.thresholds, order=2)

    def sum_of_squared_scores(self, scores: FloatArray) -> FloatArray:
        """The sum of u u' over rows, u = score times the derivative of the row's margin in (packed M, tau)."""
        squares = MarginCurvature(self.rows.row_array(scores**2), np.empty((1, 1)))
        return self.objective.hessian(squares)
