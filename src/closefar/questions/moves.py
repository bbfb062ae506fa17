"""How (M, tau) can move while M keeps its rank: the geometry behind standard errors, tests and sample sizes.

A fitted M of rank r can move in the tangent space of the matrices of that rank; the
optimum is stationary there even where M has zero eigenvalues.  In coordinates y in
which M is diagonal, range first, those moves are the products y_i y_j with i <= r.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import Array, BoolArray, FloatArray, to_numpy
from closefar.judgements import Judgements
from closefar.model import Metric
from closefar.questions.label_model import LabelModel
from closefar.questions.optimum import Optimum
from closefar.rows import pair_rows

__all__ = ["MarginMoves", "Moves", "RankMoves", "pseudo_inverse", "scaled_eigh"]

# With more moves than this, only the eigenvalues of M and the threshold move.
MOST_MOVES = 1500


@dataclass(frozen=True)
class Moves:
    """The entries of M, packed, that may move in coordinates in which M is diagonal, range first; and tau, last."""

    size: int
    kept: BoolArray

    @classmethod
    def keeping_rank(cls, rank: int, size: int) -> Moves:
        left, _ = np.triu_indices(size)
        return cls(size, left < rank)

    def __len__(self) -> int:
        return int(self.kept.sum()) + 1

    def diagonal(self) -> Moves:
        """The moves of the eigenvalues alone."""
        left, right = np.triu_indices(self.size)
        return Moves(self.size, self.kept & (left == right))

    def gradients(self, coordinates: FloatArray) -> FloatArray:
        """The derivative of each margin along each move, of length one, for rows y in those coordinates."""
        columns, left = np.ascontiguousarray(coordinates.T), np.triu_indices(self.size)[0]
        along = np.empty((len(self), len(coordinates)))  # contiguous for each move
        line = 0
        for index in range(self.size):
            others = index + np.flatnonzero(self.kept[left == index])
            np.multiply(columns[others], columns[index], out=along[line : line + len(others)])
            line += len(others)
        along[:-1] *= packed.weights(self.size)[self.kept][:, None]
        along[-1] = -1.0
        return along.T

    def basis(self, vectors: FloatArray) -> FloatArray:
        """The moves as orthonormal columns of (packed M, tau), for the eigenvectors of M."""
        basis = np.zeros((len(self.kept) + 1, len(self)))
        basis[:-1, :-1] = packed.packed_rotation(vectors)[:, self.kept]
        basis[-1, -1] = 1.0
        return basis


@dataclass(frozen=True)
class RankMoves:
    """The moves that keep the rank of M, as columns of (packed M, tau), and the curvature term of the information.

    To second order, a move U between range and null space also moves M along U' M^+ U, which raises
    the loss by the gradient on the null space or, if the rank is fixed, may lower it.
    """

    basis: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, values: FloatArray, vectors: FloatArray, rank: int, gradient: FloatArray) -> RankMoves:
        """The moves at a matrix with these eigenvalues, largest first, and eigenvectors; `gradient` is dR/dM there."""
        moves = Moves.keeping_rank(rank, len(values))
        null = vectors[:, rank:]
        multipliers, rotation = np.linalg.eigh(null.T @ gradient @ null)
        costs = np.append(np.zeros(rank), multipliers)
        left, right = (index[moves.kept] for index in np.triu_indices(len(values)))
        curvature = np.append(costs[right] / values[left], 0.0)
        return cls(moves.basis(np.hstack([vectors[:, :rank], null @ rotation])), curvature)

    def information(self, hessian: FloatArray) -> FloatArray:
        """The second derivative along the moves."""
        return self.basis.T @ hessian @ self.basis + np.diag(self.curvature)


class MarginMoves:
    """How margins move with a fitted metric.

    Parameters
    ----------
    metric : Metric
    judgements : Judgements
        The pairs whose second moment defines the coordinates.
    keep_rank : bool
        Whether M keeps its rank; otherwise it may move within all quadratic forms.
    """

    def __init__(self, metric: Metric, judgements: Judgements, *, keep_rank: bool = True) -> None:
        optimum = Optimum.of(metric, judgements)
        vectors = np.linalg.svd(optimum.factor, full_matrices=True)[0]
        self._metric = metric
        self._basis = optimum.coordinates.transform @ vectors
        size = self._basis.shape[1] + (metric.origin is not None)
        self.moves = Moves.keeping_rank(metric.rank if keep_rank else size, size)
        self.is_partial = len(self.moves) - 1 > MOST_MOVES
        if self.is_partial:
            self.moves = self.moves.diagonal()

    def blocks(self, data: Array) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin along each move, one row per pair."""
        for where, block in pair_rows(data, self._metric.origin).blocks():
            yield where, self.moves.gradients(self._in_coordinates(block))

    def mean_squares(self, data: Array) -> FloatArray:
        """The mean square of the coordinates of each row: one on average."""
        blocks = (self._in_coordinates(block) for _, block in pair_rows(data, self._metric.origin).blocks())
        return np.concatenate([np.mean(y**2, axis=1) for y in blocks])

    def null_coordinates(self, data: Array) -> FloatArray:
        """The coordinates of each row in the null space of M."""
        rank = self._metric.rank
        return np.vstack(
            [self._in_coordinates(block)[:, rank:] for _, block in pair_rows(data, self._metric.origin).blocks()]
        )

    def _in_coordinates(self, block: Array) -> FloatArray:
        y: FloatArray = to_numpy(block).T @ self._basis
        return y if self._metric.origin is None else np.column_stack([y, np.ones(len(y))])

    def covariance(self, data: Array, model: LabelModel, weights: FloatArray) -> FloatArray:
        """The covariance of the fitted moves if the model is correct; a weight of 2 counts as two observations."""
        information = np.zeros((len(self.moves), len(self.moves)))
        scale = weights * model.information
        for where, along in self.blocks(data):
            information += along.T @ (along * scale[where, None])
        return pseudo_inverse(information)

    def variances(self, data: Array, covariance: FloatArray) -> FloatArray:
        """The variance of each margin, given the covariance of the moves."""
        parts = [np.einsum("ij,ij->i", along @ covariance, along) for _, along in self.blocks(data)]
        variances: FloatArray = np.maximum(np.concatenate(parts), 0.0)
        return variances


def scaled_eigh(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The eigenvalues and eigenvectors of a symmetric matrix with its diagonal scaled to one, and the scale."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return values, vectors, scale


def pseudo_inverse(matrix: FloatArray, tol: float = 1e-10) -> FloatArray:
    """The inverse of a positive semidefinite matrix on its range, determined with its diagonal scaled to one."""
    values, vectors, scale = scaled_eigh(matrix)
    keep = values > tol * values[-1]
    inverse: FloatArray = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T / np.outer(scale, scale)
    return inverse
