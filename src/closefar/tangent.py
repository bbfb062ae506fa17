"""How margins move with the metric: the first-order geometry behind standard errors and goodness of fit.

A fitted M of rank r can move in the tangent space of the matrices of that rank; the
optimum is stationary there even where M has zero eigenvalues.  In coordinates y in
which M is diagonal, range first, those moves are the products y_i y_j with i <= r.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.metric import Metric
from closefar.noise import Noise, with_flips
from closefar.pairs import Differences, unit_free_rows

__all__ = ["LabelModel", "Tangent", "pseudo_inverse"]

# Beyond this many moves only the eigenvalues of M and the threshold move.
_MOST_MOVES = 1500


@dataclass(frozen=True)
class LabelModel:
    """P(far) = q + (1 - 2q) Phi(margin) at given margins, with what tests and standard errors need of it.

    `variance` is that of the label, `slope` the derivative of P(far) in the margin and
    `flip_slope` that in q.
    """

    far: FloatArray
    close: FloatArray
    slope: FloatArray
    flip_slope: FloatArray

    @classmethod
    def at(cls, margin: FloatArray, noise: Noise, flip_rate: float) -> LabelModel:
        upper, lower = noise.cdf(margin), noise.cdf(-margin)
        slope = (1.0 - 2.0 * flip_rate) * noise.pdf(margin)
        return cls(with_flips(upper, flip_rate), with_flips(lower, flip_rate), slope, lower - upper)

    @property
    def variance(self) -> FloatArray:
        return np.maximum(self.far * self.close, np.finfo(float).tiny)

    @property
    def information(self) -> FloatArray:
        """Fisher's information of the margin in a label."""
        return self.slope**2 / self.variance

    def residual(self, is_far: NDArray[np.bool_]) -> FloatArray:
        """The label (far 1, close 0) minus its expectation."""
        return np.where(is_far, self.close, -self.far)


class Tangent:
    """The moves of (M, tau) at a fitted metric, in coordinates free of units.

    Parameters
    ----------
    metric : Metric
    differences, weights
        The rows whose second moment sets the coordinates.
    """

    def __init__(self, metric: Metric, differences: Differences, weights: FloatArray) -> None:
        self.origin = metric.origin
        points = self._from_origin(differences)
        rows, coordinates = unit_free_rows(points, np.ones(len(weights)), weights, with_constant=False)
        rotation = np.linalg.svd(rows.factor_of(points, metric.factor), full_matrices=True)[0]
        self.basis = coordinates.transform @ rotation
        self.left, self.right = _products(metric.rank, self.basis.shape[1] + (self.origin is not None))

    @property
    def n_moves(self) -> int:
        """The number of free directions, the threshold's included."""
        return len(self.left) + 1

    def blocks(self, differences: Differences) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin along each move, one row a pair."""
        for where, block in self._from_origin(differences).blocks():
            y = block @ self.basis
            if self.origin is not None:
                y = np.column_stack([y, np.ones(len(y))])
            moves = np.empty((len(y), self.n_moves))
            np.multiply(y[:, self.left], y[:, self.right], out=moves[:, :-1])
            moves[:, -1] = -1.0
            yield where, moves

    def covariance(self, differences: Differences, model: LabelModel, weights: FloatArray) -> FloatArray:
        """The covariance of the fitted moves if the model is right; a weight of 2 counts as two observations."""
        information = np.zeros((self.n_moves, self.n_moves))
        scale = weights * model.information
        for where, moves in self.blocks(differences):
            information += moves.T @ (moves * scale[where, None])
        return pseudo_inverse(information)

    def margin_variances(self, differences: Differences, covariance: FloatArray) -> FloatArray:
        """The variance of each margin, given that of the moves."""
        parts = [np.einsum("ij,ij->i", moves @ covariance, moves) for _, moves in self.blocks(differences)]
        variances: FloatArray = np.maximum(np.concatenate(parts), 0.0)
        return variances

    def _from_origin(self, differences: Differences) -> Differences:
        return differences if self.origin is None else Differences(differences.data - self.origin)


def pseudo_inverse(matrix: FloatArray, tol: float = 1e-10) -> FloatArray:
    """The inverse of a positive semidefinite matrix on its range, decided with its diagonal scaled to one."""
    scale = np.sqrt(np.diag(matrix))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    keep = values > tol * max(values[-1], 0.0)
    inverse: FloatArray = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T / np.outer(scale, scale)
    return inverse


def _products(rank: int, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    left, right = np.triu_indices(n)
    keep = left < rank
    if np.sum(keep) > _MOST_MOVES:
        keep &= left == right
    return left[keep], right[keep]
