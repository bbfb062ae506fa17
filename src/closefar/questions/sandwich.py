"""The covariance of a fitted (M, tau): the sandwich H^-1 V H^-1.

Parameters are one vector: M in unit-free coordinates, packed, then tau.  H is the
observed information, V the sum of outer products of the scores, summed first over pairs
that are not independent.  Where the rank of M is fixed, both are taken on the moves that
keep it: in coordinates in which M is diagonal, range first, all but those within its
null space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import TINY, FloatArray
from closefar.model.factors import root_of
from closefar.questions.dependence import Dependence
from closefar.questions.moves import RankMoves, scaled_eigh
from closefar.questions.optimum import Optimum

__all__ = ["Sandwich", "sandwich"]

# Eigenvalues of M, in unit-free coordinates, that count as zero beside the largest.
_ZERO = 1e-8

# With its diagonal scaled to one, an information whose smallest eigenvalue is below this leaves a move undetermined.
_SINGULAR = 1e-10


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


def sandwich(optimum: Optimum, dependence: Dependence, repeats: FloatArray, largest_rank: int) -> Sandwich:
    """Compute the covariance of the parameters at an optimum over the M of at most that rank.

    `repeats` says how many observations each row stands for; the weights of the rows may
    further hold class weights.  Where M has a lower rank all moves are allowed, as if the
    constraint were not there.
    """
    objective, here = optimum.objective, optimum.evaluation()
    pull = objective.source.gather(here.pull)
    values, vectors = np.linalg.eigh(optimum.matrix)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    rank = int(np.sum(values > _ZERO * max(values[0], 0.0)))
    gradient = objective.gradient(here)
    hessian = objective.hessian(here.curvature)
    moves = RankMoves.at(values, vectors, rank, gradient)
    information = moves.information(hessian)
    if rank < largest_rank:
        basis, covering = np.eye(len(hessian)), hessian
    else:
        basis, covering = moves.basis, information
    if _is_singular(information) or _is_singular(covering):
        return Sandwich(None, rank, 0.0, 0.0, np.inf)
    slope = moves.basis.T @ packed.joined(gradient, here.slopes)
    spread = basis.T @ dependence.spread(optimum, pull, repeats) @ basis
    root = basis @ np.linalg.solve(covering, root_of(spread).T)
    error = np.linalg.norm(packed.form_gradients(vectors[:, largest_rank - 1 : largest_rank].T) @ root[:-1])
    return Sandwich(
        root,
        rank,
        smallest=float(values[largest_rank - 1] / max(error, TINY)),
        threshold=optimum.threshold / max(float(np.linalg.norm(root[-1])), TINY),
        distance=float(np.sqrt(repeats.sum() * max(slope @ np.linalg.solve(information, slope), 0.0))),
    )


def _is_singular(information: FloatArray) -> bool:
    values, _, _ = scaled_eigh(information)
    return not values[0] > _SINGULAR
