"""The covariance of a fitted (M, tau): the sandwich H^-1 V H^-1.

Parameters are one vector: M in unit-free coordinates, packed, then tau.  H is the
observed information, V the sum of outer products of the scores, summed first over pairs
that are not independent.  Where the rank of M is fixed, both are taken on the moves that
keep it: in coordinates in which M is diagonal, range first, all but those within its
null space.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from closefar import packed
from closefar.arrays import FloatArray
from closefar.metric import Metric
from closefar.objective import Pointwise, Risk
from closefar.pairs import Differences, unit_free_rows

__all__ = ["Dependence", "Optimum", "Sandwich", "form_gradients", "rank_moves", "sandwich"]

# Eigenvalues of M, in unit-free coordinates, that count as zero beside the largest.
_ZERO = 1e-8

# With its diagonal scaled to one, an information whose smallest eigenvalue is below this leaves a move undetermined.
_SINGULAR = 1e-10


@dataclass(frozen=True)
class Optimum:
    """A fitted metric in unit-free coordinates: z'Mz = |factor' w|^2 with w = transform' z.

    `repeats` says how many observations each row stands for; the weights of the rows may
    further hold class weights.
    """

    risk: Risk
    transform: FloatArray
    factor: FloatArray
    threshold: float
    repeats: FloatArray

    @classmethod
    def of(
        cls,
        metric: Metric,
        differences: Differences,
        signs: FloatArray,
        repeats: FloatArray,
        weights: FloatArray,
        mix_columns: bool,
    ) -> Optimum:
        rows, coordinates = unit_free_rows(differences, signs, weights, with_constant=False, mix_columns=mix_columns)
        factor = rows.factor_of(differences, metric.factor)
        return cls(Risk(rows, metric.noise), coordinates.transform, factor, metric.threshold, repeats)

    @property
    def matrix(self) -> FloatArray:
        return self.factor @ self.factor.T

    @property
    def parameters(self) -> FloatArray:
        return np.append(packed.pack(self.matrix), self.threshold)

    @property
    def size(self) -> int:
        """The number of coordinates: the columns of M."""
        return self.risk.n_directions

    def pointwise(self) -> Pointwise:
        return self.risk.pointwise(self.risk.quadratic_forms(self.factor), self.threshold, order=2)


class Dependence:
    """Which pairs depend on each other: none, those of a group, or those that share a point.

    `groups` is None, n group ids, or an array of shape (n, 2) of point ids; `n_units` the
    number of groups or points.
    """

    def __init__(self, groups: NDArray[Any] | None) -> None:
        self.ids: NDArray[np.intp] | None = None
        self.n_units: int | None = None
        if groups is not None:
            labels, inverse = np.unique(groups, return_inverse=True)
            self.ids, self.n_units = inverse.reshape(groups.shape), len(labels)

    @staticmethod
    def check(groups: Any, n: int) -> NDArray[Any] | None:
        """Check the ids of n pairs."""
        if groups is None:
            return None
        ids = np.asarray(groups)
        if ids.shape not in ((n,), (n, 2)):
            raise ValueError(
                f"groups must hold one group id a pair, or the ids of its two points in shape ({n}, 2); "
                f"got shape {ids.shape}."
            )
        return ids

    @property
    def by_points(self) -> bool:
        return self.ids is not None and self.ids.ndim == 2

    def draw(self, repeats: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The weight of each row in one bootstrap sample."""
        if self.ids is None or self.n_units is None:
            return rng.multinomial(max(round(repeats.sum()), 1), repeats / repeats.sum()).astype(float)
        counts = rng.multinomial(self.n_units, np.full(self.n_units, 1.0 / self.n_units)).astype(float)
        if not self.by_points:
            counted: FloatArray = repeats * counts[self.ids]
            return counted
        left, right = self.ids.T
        by_both: FloatArray = repeats * counts[left] * np.where(left == right, 1.0, counts[right])
        return by_both

    def spread(self, optimum: Optimum, pull: FloatArray) -> FloatArray:
        """V, the covariance of the sum of the scores."""
        if self.ids is None or self.n_units is None:
            n = float(optimum.repeats.sum())
            return optimum.risk.dense_hessian(pull**2 / optimum.repeats) * (n / max(n - 1.0, 1e-9))
        correction = self.n_units / max(self.n_units - 1.0, 1e-9)
        if not self.by_points:
            return correction * _outer_sums(optimum, pull, self.ids[:, None])
        # Summed over points, two pairs that share both count twice; once is right (Aronow, Samii and Assenova 2015).
        low, high = np.sort(self.ids, axis=1).T
        apart = low != high
        members = np.where(np.column_stack([np.ones_like(apart), apart]), np.column_stack([low, high]), -1)
        pairs = np.where(apart, np.unique(low * self.n_units + high, return_inverse=True)[1], -1)
        total = _outer_sums(optimum, pull, members) - _outer_sums(optimum, pull, pairs[:, None])
        values, vectors = np.linalg.eigh(total)
        spread: FloatArray = correction * (vectors * np.maximum(values, 0.0)) @ vectors.T
        return spread


@dataclass(frozen=True)
class Sandwich:
    """The covariance of the parameters, as root @ root.T, and what tells whether to trust it.

    Attributes
    ----------
    root : array, or None where the information leaves a move of the parameters undetermined
    rank : int
        That of M.
    smallest : float
        The smallest eigenvalue of M that may be positive, in its standard errors.
    threshold : float
        tau in its standard errors.
    distance : float
        How far the fit is from the best one of its rank, in standard errors.
    """

    root: FloatArray | None
    rank: int
    smallest: float
    threshold: float
    distance: float


def sandwich(optimum: Optimum, dependence: Dependence, largest_rank: int) -> Sandwich:
    """Compute the covariance of the parameters at an optimum over the M of at most that rank.

    Where M has a lower rank all moves are allowed, as if the constraint were not there.
    """
    point = optimum.pointwise()
    values, vectors = np.linalg.eigh(optimum.matrix)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    rank = int(np.sum(values > _ZERO * max(values[0], 0.0)))
    gradient = optimum.risk.outer_sum(point.pull)
    hessian = optimum.risk.dense_hessian(point.curvature)
    moves, bend = rank_moves(values, vectors, rank, gradient)
    information = moves.T @ hessian @ moves + np.diag(bend)
    if rank < largest_rank:
        basis, covering = np.eye(len(hessian)), hessian
    else:
        basis, covering = moves, information
    if _is_singular(information) or _is_singular(covering):
        return Sandwich(None, rank, 0.0, 0.0, np.inf)
    slope = moves.T @ np.append(packed.pack(gradient), point.threshold_slope)
    spread = basis.T @ dependence.spread(optimum, point.pull) @ basis
    root = basis @ np.linalg.solve(covering, _root(spread))
    error = np.linalg.norm(form_gradients(vectors[:, largest_rank - 1 : largest_rank].T) @ root)
    return Sandwich(
        root,
        rank,
        smallest=float(values[largest_rank - 1] / max(error, 1e-300)),
        threshold=optimum.threshold / max(float(np.linalg.norm(root[-1])), 1e-300),
        distance=float(np.sqrt(optimum.repeats.sum() * max(slope @ np.linalg.solve(information, slope), 0.0))),
    )


def form_gradients(left: FloatArray, right: FloatArray | None = None) -> FloatArray:
    """The derivative of x'My in the parameters, for each row x of `left` and y of `right` (the same, if left out)."""
    right = left if right is None else right
    d = left.shape[1]
    i, j = np.triu_indices(d)
    products = 0.5 * packed.weights(d) * (left[:, i] * right[:, j] + left[:, j] * right[:, i])
    return np.column_stack([products, np.zeros(len(left))])


def rank_moves(
    values: FloatArray, vectors: FloatArray, rank: int, gradient: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """An orthonormal basis of the moves that keep the rank of M, and what its curvature adds to the information.

    A move U between range and null space takes M to second order along U' M^+ U, which
    the gradient on the null space makes costly, or, where the rank is fixed, profitable.
    """
    d = len(values)
    turn = vectors.copy()
    multipliers, rotation = np.linalg.eigh(vectors[:, rank:].T @ gradient @ vectors[:, rank:])
    turn[:, rank:] = vectors[:, rank:] @ rotation
    i, j = np.triu_indices(d)
    kept = i < rank
    size = len(i)
    moves = np.zeros((size + 1, int(kept.sum()) + 1))
    moves[:size, :-1] = packed.packed_rotation(turn)[:, kept]
    moves[-1, -1] = 1.0
    costs = np.append(np.zeros(rank), multipliers)
    bend = costs[j[kept]] / values[i[kept]]
    return moves, np.append(bend, 0.0)


def _outer_sums(optimum: Optimum, pull: FloatArray, members: NDArray[np.intp]) -> FloatArray:
    """The sum of u u' over the units, u the summed scores of the rows with that unit in `members` (-1: none)."""
    n_units = int(members.max(initial=0)) + 1
    sums = np.zeros((n_units, len(optimum.parameters)))
    for where, columns in optimum.risk.rows.blocks():
        scores = form_gradients(columns.T) * pull[where, None]
        scores[:, -1] = -pull[where]
        row, column = np.nonzero(members[where] >= 0)
        units = members[where][row, column]
        belongs: Any = csr_array((np.ones(len(row)), (units, row)), shape=(n_units, len(scores)))
        sums += belongs @ scores
    return sums.T @ sums


def _is_singular(information: FloatArray) -> bool:
    scale = 1.0 / np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    return not np.linalg.eigvalsh(information * np.outer(scale, scale))[0] > _SINGULAR


def _root(matrix: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(matrix)
    root: FloatArray = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
