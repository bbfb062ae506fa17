"""How M and thresholds can move while M keeps its rank: the geometry behind standard errors, tests and sample sizes.

A fitted M of rank r can move in the tangent space of the matrices of that rank; the
optimum is stationary there even where M has zero eigenvalues.  In coordinates y in
which M is diagonal, range first, those moves are the products y_i y_j with i <= r.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray, to_numpy
from closefar.fitting import AnnotatorTable, Fit, score
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.questions.likelihood import (
    LabelLikelihood,
    Outcomes,
    by_legs,
    coordinates_of,
    differences,
    leg_blocks,
    representatives,
)
from closefar.rows import BlockRows, Rows, rows_of

# ---------------------------------------------------------------------------------------------------------------------
# What a fit knows of the annotators of judgements, and judgements that are read for a question.


def table_of(fit: Fit, judgements: Judgements) -> AnnotatorTable | None:
    """What the fit knows of the annotators of these judgements; None if they have none."""
    return None if judgements.annotators is None else fit.annotators


def annotator_rates(fit: Fit, judgements: Judgements) -> FloatArray | None:
    """The flip rate of each judgement, attached comparisons last; None if annotators have no rates of their own."""
    table = fit.annotators
    if table is None or judgements.annotators is None or table.flip_rates is None:
        return None
    rates = table.flip_rates[judgements.annotators.codes]
    others = judgements.comparisons
    return rates if others is None else np.append(rates, np.full(len(others), fit.metric.one_flip_rate))


def read_for(
    fit: Fit, X: Any, y: Any = None, sample_weight: Any = None, annotators: Any = None, comparisons: Any = None
) -> Judgements:
    """Validate judgements for a question, or return those of training; a fit with annotators needs theirs."""
    if X is None:
        if annotators is not None or comparisons is not None:
            raise ValueError("annotators and comparisons must be given with their pairs; got no pairs. Pass them, too.")
        return fit.training()
    if isinstance(X, Judgements):
        return X
    if fit.kind is Kind.COMPARISONS and (annotators is not None or comparisons is not None):
        raise ValueError("annotators and comparisons belong to pairs; got them with comparisons alone. Leave them out.")
    if fit.annotators is not None and annotators is None:
        raise ValueError(
            "this fit has annotators, so their ids must be given with pairs and labels; got none. Pass annotators=ids."
        )
    if fit.annotators is None and annotators is not None:
        raise ValueError("this fit has no annotators; got annotators. Leave them out, or fit with annotators=ids.")
    return fit.read(X, y, sample_weight, annotators=annotators, comparisons=comparisons)


# With more moves than this, only the eigenvalues of M and the threshold move: the inverse of a matrix of this size
# takes about a second.
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
        vectors, lengths, _ = np.linalg.svd(factor, full_matrices=True)
        self._metric = metric
        self._basis = coordinates.transform @ vectors
        self._noise = comparison_noise
        size = self._basis.shape[1] + (metric.origin is not None)
        n_more = int(judgements.kind is not Kind.COMPARISONS)
        self.moves = Moves.keeping_rank(metric.rank if keep_rank else size, size, n_more)
        self.is_partial = self.moves.n_on_matrix > MOST_MOVES
        if self.is_partial:
            self.moves = self.moves.diagonal()
        values = np.append(lengths**2, np.zeros(size - len(lengths)))
        self.matrix = packed.pack(np.diag(values))[self.moves.kept]  # M, by its moves

    def rows(self, data: Array) -> Rows:
        """The rows that margins are of, but for thresholds."""
        rows = rows_of(data, self._metric.origin)
        return rows if isinstance(rows, BlockRows) else rows.with_scale(1.0 / self._noise)

    def blocks(self, data: Array) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin along each move, one row per judgement."""
        return by_legs(self.rows(data), lambda block: self.moves.gradients(self._in_coordinates(block)))

    def on_matrix(self, block: FloatArray) -> FloatArray:
        """The derivative of z'Mz along each move of M, for the columns z of a block."""
        return self.moves.gradients(self._in_coordinates(block))[:, : self.moves.n_on_matrix]

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
    return np.asarray((vectors[:, keep] / values[keep]) @ vectors[:, keep].T / np.outer(scale, scale))


# ---------------------------------------------------------------------------------------------------------------------
# The standard errors of margins, from each threshold of a metric.


@dataclass(frozen=True)
class SideErrors:
    """The standard errors of margins, without the common scale of all margins, which changes no side.

    Margins are linear in M, the thresholds and the strictness of annotators, so the scale has the information
    of a step along all of these, and is independent, to first order, of the rest.
    """

    moves: MarginMoves
    n_cuts: int
    n_annotators: int
    covariance: FloatArray
    of_scale: float

    @classmethod
    def of(cls, fit: Fit, seen: Judgements) -> SideErrors:
        """The errors of the margins of a fit to these judgements; attached comparisons are left out."""
        moves = MarginMoves(fit.metric, seen, comparison_noise=fit.relative_noise)
        chosen, number = representatives(seen.weights, moves.mean_squares(seen.data))
        if len(chosen) < len(seen):
            seen = seen.take(chosen)
            seen = seen.with_weights(number * seen.weights)
        table, taus = table_of(fit, seen), fit.metric.thresholds if seen.n_thresholds else ()
        likelihood = LabelLikelihood(
            moves.rows(seen.data),
            Outcomes.of(seen),
            seen.weights,
            fit.metric.noise,
            score(fit, seen).flip_rate,
            precision=0.0 if table is None else table.width**-2.0,
            gradients=moves.on_matrix,
            n_on_matrix=len(moves.matrix),
        )
        parameters = np.concatenate([moves.matrix, taus, () if table is None else table.strictness])
        information = likelihood.fisher(parameters, likelihood.shares)
        of_scale = float(parameters @ (information - likelihood.of_prior) @ parameters)
        n_annotators = 0 if table is None else len(table)
        return cls(moves, len(taus), n_annotators, pseudo_inverse(information), 1.0 / max(of_scale, TINY))

    def at(self, data: Array, margins: FloatArray, annotators: IndexArray | None = None) -> FloatArray:
        """The error of each of these margins, (n, cuts)."""
        variances, n = np.empty(margins.shape), len(self.moves.matrix)
        covariance, cuts = self.covariance, slice(n, n + self.n_cuts)
        for where, along in by_legs(self.moves.rows(data), self.moves.on_matrix):
            slopes = np.hstack([along, np.zeros((len(along), self.n_cuts + self.n_annotators))])
            if annotators is not None and self.n_annotators:
                slopes[np.arange(len(along)), cuts.stop + annotators[where]] = -1.0
            spread = slopes @ covariance
            variances[where] = np.einsum("ij,ij->i", spread, slopes)[:, None]
            if self.n_cuts:
                variances[where] += np.diag(covariance)[cuts] - 2.0 * spread[:, cuts]
        return np.sqrt(np.maximum(np.maximum(variances, 0.0) - self.of_scale * margins**2, 0.0))
