"""The covariance of fitted parameters: the sandwich H^-1 V H^-1.

Parameters are one vector, that of `LabelLikelihood`.  H is the observed information, V
the sum of outer products of the scores, summed first over pairs that are not
independent.  Where the rank of M is fixed, both are taken on the moves that keep it: in
coordinates in which M is diagonal, range first, all but those within its null space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar import packed
from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.model.factors import root_of
from closefar.questions.dependence import Dependence
from closefar.questions.label_likelihood import LabelLikelihood
from closefar.questions.moves import RankMoves, scaled_eigh

__all__ = ["Sandwich", "free_root", "sandwich"]

# Eigenvalues of M, in unit-free coordinates, that count as zero beside the largest.
_ZERO = 1e-8

# With its diagonal scaled to one, an information with a smaller eigenvalue does not determine the parameters.
_SINGULAR = 1e-10

# If all labels that are informative about a move are right with near certainty, the variance of their scores is below
# this share of the information, and the optimum lies at infinity.  Otherwise the share is about one half.
_VANISHES = 0.03


@dataclass(frozen=True, eq=False)
class Sandwich:
    """The covariance of the parameters, as root @ root.T, and diagnostics of its validity.

    Attributes
    ----------
    root : array, or None if the labels do not determine a move of the parameters
    rank : int
        The rank of M.
    smallest : float
        The smallest eigenvalue of M that may be positive, in standard errors.
    threshold : float
        The smallest threshold in standard errors; infinite if there is none.
    flip_rate : float
        The flip rate, or the smaller of two, in standard errors; infinite if it is not a parameter.
    distance : float
        The distance of the fit from the best fit of its rank, in standard errors.
    independence : float
        The number of independent labels that one of these labels is worth.
    """

    root: FloatArray | None
    rank: int = 0
    smallest: float = 0.0
    threshold: float = 0.0
    flip_rate: float = np.inf
    distance: float = np.inf
    independence: float = 1.0


def sandwich(
    likelihood: LabelLikelihood,
    parameters: FloatArray,
    dependence: Dependence,
    repeats: FloatArray,
    largest_rank: int,
) -> Sandwich:
    """Compute the covariance of the parameters at an optimum over the M of at most the given rank.

    `repeats` is the number of observations that each row represents; the weights of the rows may
    also include class weights.  If M has a lower rank, all moves are allowed, as if there were no
    constraint.
    """
    matrix, others = packed.split(parameters, likelihood.rows.n_columns)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    rank = int(np.sum(values > _ZERO * max(values[0], 0.0)))
    terms = likelihood.terms(parameters)
    slope = likelihood.gradient(terms, parameters, likelihood.shares)
    few, few_repeats = likelihood.thinned(repeats)
    few_terms = terms if few is likelihood else few.terms(parameters)
    hessian = few.information(parameters, few.shares, few_terms)
    moves = RankMoves.at(values, vectors, rank, packed.split(slope, len(matrix))[0], n_more=len(others))
    information = moves.information(hessian)
    if rank < largest_rank:
        basis, covering = np.eye(len(hessian)), hessian
    else:
        basis, covering = moves.basis, information
    n = float(repeats.sum())
    prior = likelihood.spread_of_prior(n)
    plain = basis.T @ (Dependence(None).spread(few, few_terms, few_repeats) + prior) @ basis
    if _is_singular(information) or _is_singular(covering) or _vanishes(basis.T @ hessian @ basis, n * plain):
        return Sandwich(None, rank)
    spread = plain
    if dependence.ids is not None:
        spread = basis.T @ (dependence.spread(likelihood, terms, repeats) + prior) @ basis
    root = basis @ np.linalg.solve(covering, root_of(spread).T)
    error = np.linalg.norm(
        packed.form_gradients(vectors[:, largest_rank - 1 : largest_rank].T) @ root[: likelihood.n_on_matrix]
    )
    ratios = others / np.maximum(np.linalg.norm(root[likelihood.n_on_matrix :], axis=1), TINY)
    return Sandwich(
        root,
        rank,
        smallest=float(values[largest_rank - 1] / max(error, TINY)),
        threshold=float(ratios[: likelihood.outcomes.n_cuts].min(initial=np.inf)),
        flip_rate=float(ratios[likelihood.outcomes.n_thresholds :].min(initial=np.inf)),
        distance=_distance(moves.basis, information, slope, _held(likelihood, parameters, slope), n),
        independence=_ratio(covering, plain, spread),
    )


def free_root(
    likelihood: LabelLikelihood, parameters: FloatArray, dependence: Dependence, repeats: FloatArray
) -> FloatArray | None:
    """A root of the covariance at an optimum over all symmetric M; None if the labels do not determine a move."""
    few, few_repeats = likelihood.thinned(repeats)
    terms = few.terms(parameters)
    information = few.information(parameters, few.shares, terms)
    prior = likelihood.spread_of_prior(float(repeats.sum()))
    plain = Dependence(None).spread(few, terms, few_repeats) + prior
    if _is_singular(information) or _vanishes(information, float(repeats.sum()) * plain):
        return None
    spread = plain
    if dependence.ids is not None:
        spread = dependence.spread(likelihood, likelihood.terms(parameters), repeats) + prior
    return np.asarray(np.linalg.solve(information, root_of(spread).T))


def _held(likelihood: LabelLikelihood, parameters: FloatArray, slope: FloatArray) -> BoolArray:
    """Which parameters are thresholds that are held at zero, where their slope need not vanish."""
    held = np.zeros(len(parameters), dtype=bool)
    cuts = slice(likelihood.n_on_matrix, likelihood.n_on_matrix + likelihood.outcomes.n_cuts)
    held[cuts] = (parameters[cuts] <= 0.0) & (slope[cuts] > 0.0)
    return held


def _distance(basis: FloatArray, information: FloatArray, slope: FloatArray, held: BoolArray, n: float) -> float:
    """How many standard errors the optimum is away, along moves of parameters that are not held."""
    free = ~np.any(basis[held] != 0.0, axis=0)
    push = basis[:, free].T @ slope
    return float(np.sqrt(n * max(float(push @ np.linalg.solve(information[np.ix_(free, free)], push)), 0.0)))


def _is_singular(information: FloatArray) -> bool:
    values, _, _ = scaled_eigh(information)
    return not values[0] > _SINGULAR


def _vanishes(hessian: FloatArray, spread: FloatArray) -> bool:
    """Whether all labels that some move affects are right with near certainty.

    `spread` is the sum of squared scores, which has the expectation `hessian` if the model is
    correct.  Moves that affect no label are not considered.
    """
    values, vectors, scale = scaled_eigh(hessian)
    informative = values > _SINGULAR
    whitening = vectors[:, informative] / np.sqrt(values[informative]) / scale[:, None]
    return not np.linalg.eigvalsh(whitening.T @ spread @ whitening)[0] > _VANISHES


def _ratio(information: FloatArray, plain: FloatArray, spread: FloatArray) -> float:
    """The variance of independent scores divided by that of these, summed over all parameters; at most one."""
    independent, actual = (float(np.trace(np.linalg.solve(information, each))) for each in (plain, spread))
    return min(1.0, independent / max(actual, TINY))
