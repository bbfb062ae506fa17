"""How M and thresholds can move while M keeps its rank: the geometry behind standard errors, tests and sample sizes.

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
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.questions.legs import by_legs, differences, leg_blocks
from closefar.questions.optimum import coordinates_of
from closefar.rows import BlockRows, rows_of

__all__ = ["MarginMoves", "Moves", "RankMoves", "pseudo_inverse", "scaled_eigh"]

# With more moves than this, only the eigenvalues of M and the threshold move.
MOST_MOVES = 1500


@dataclass(frozen=True)
class Moves:
    """The entries of M, packed, that may move in coordinates in which M is diagonal, range first; thresholds last.

    `n_more` is the number of thresholds and, in standard errors, of all other parameters besides M.
    """

    size: int
    kept: BoolArray
    n_more: int = 1

    @classmethod
    def keeping_rank(cls, rank: int, size: int, n_more: int = 1) -> Moves:
        left, _ = np.triu_indices(size)
        return cls(size, left < rank, n_more)

    def __len__(self) -> int:
        return self.n_on_matrix + self.n_more

    @property
    def n_on_matrix(self) -> int:
        return int(self.kept.sum())

    def diagonal(self) -> Moves:
        """The moves of the eigenvalues alone."""
        left, right = np.triu_indices(self.size)
        return Moves(self.size, self.kept & (left == right), self.n_more)

    def gradients(self, coordinates: FloatArray) -> FloatArray:
        """The derivative of each margin along each move, of length one, for rows y in those coordinates."""
        columns, left = np.ascontiguousarray(coordinates.T), np.triu_indices(self.size)[0]
        along = np.empty((len(self), len(coordinates)))  # contiguous for each move
        line = 0
        for index in range(self.size):
            others = index + np.flatnonzero(self.kept[left == index])
            np.multiply(columns[others], columns[index], out=along[line : line + len(others)])
            line += len(others)
        along[:line] *= packed.weights(self.size)[self.kept][:, None]
        along[line:] = -1.0
        return along.T

    def basis(self, vectors: FloatArray) -> FloatArray:
        """The moves as orthonormal columns of (packed M, thresholds), for the eigenvectors of M."""
        size, n = len(self.kept), self.n_on_matrix
        basis = np.zeros((size + self.n_more, len(self)))
        basis[:size, :n] = packed.packed_rotation(vectors)[:, self.kept]
        basis[size:, n:] = np.eye(self.n_more)
        return basis


@dataclass(frozen=True)
class RankMoves:
    """The moves that keep the rank of M, as columns of all parameters, and the curvature term of the information.

    To second order, a move U between range and null space also moves M along U' M^+ U, which raises
    the loss by the gradient on the null space or, if the rank is fixed, may lower it.
    """

    basis: FloatArray
    curvature: FloatArray

    @classmethod
    def at(
        cls, values: FloatArray, vectors: FloatArray, rank: int, gradient: FloatArray, *, n_more: int = 1
    ) -> RankMoves:
        """The moves at a matrix with these eigenvalues, largest first, and eigenvectors; `gradient` is dR/dM there.

        `n_more` is the number of parameters besides M.
        """
        moves = Moves.keeping_rank(rank, len(values), n_more)
        null = vectors[:, rank:]
        multipliers, rotation = np.linalg.eigh(null.T @ gradient @ null)
        costs = np.append(np.zeros(rank), multipliers)
        left, right = (index[moves.kept] for index in np.triu_indices(len(values)))
        curvature = np.append(costs[right] / values[left], np.zeros(n_more))
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
        Those whose second moment defines the coordinates: of two sides, or comparisons, which have no threshold.
    keep_rank : bool
        Whether M keeps its rank; otherwise it may move within all quadratic forms.
    comparison_noise : float
        The noise of comparisons, by which their margins are divided.
    """

    def __init__(
        self, metric: Metric, judgements: Judgements, *, keep_rank: bool = True, comparison_noise: float = 1.0
    ) -> None:
        coordinates, factor = coordinates_of(metric, judgements)
        vectors = np.linalg.svd(factor, full_matrices=True)[0]
        self._metric = metric
        self._basis = coordinates.transform @ vectors
        self._scale = 1.0 / comparison_noise
        size = self._basis.shape[1] + (metric.origin is not None)
        n_more = int(judgements.kind is not Kind.COMPARISONS)
        self.moves = Moves.keeping_rank(metric.rank if keep_rank else size, size, n_more)
        self.is_partial = self.moves.n_on_matrix > MOST_MOVES
        if self.is_partial:
            self.moves = self.moves.diagonal()

    def blocks(self, data: Array) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin along each move, one row per judgement."""
        rows = rows_of(data, self._metric.origin)
        scale = 1.0 if isinstance(rows, BlockRows) else self._scale
        for where, along in by_legs(rows, lambda block: self.moves.gradients(self._in_coordinates(block))):
            yield where, along if scale == 1.0 else scale * along

    def mean_squares(self, data: Array) -> FloatArray:
        """The mean square of the coordinates of each row: one on average."""
        means = [
            sum(np.mean(self._in_coordinates(block) ** 2, axis=1) for _, block in legs) / len(legs)
            for _, legs in leg_blocks(rows_of(data, self._metric.origin))
        ]
        return np.concatenate(means)

    def null_coordinates(self, data: Array) -> FloatArray:
        """The coordinates of each leg in the null space of M."""
        rank = self._metric.rank
        return np.vstack(
            [self._in_coordinates(block)[:, rank:] for block in differences(rows_of(data, self._metric.origin))]
        )

    def _in_coordinates(self, block: Array) -> FloatArray:
        y: FloatArray = to_numpy(block).T @ self._basis
        return y if self._metric.origin is None else np.column_stack([y, np.ones(len(y))])


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
