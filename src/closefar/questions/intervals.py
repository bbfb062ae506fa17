"""Confidence intervals for a metric, its distances and its probabilities.

The covariance of the fitted parameters is a sandwich, at the fit or, if that is on the boundary, at the optimum over
all symmetric matrices; with few labels a jackknife widens it.  Everything that is a function of the parameters has an
interval from there.  `confidence`, at the end, chooses.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri
from scipy.stats import chi2
from scipy.stats import t as student
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from closefar import packed
from closefar.arrays import TINY, FloatArray, IndexArray
from closefar.errors import either, joined, setting
from closefar.fitting import Fit, Fitted, count_parameters, count_uncertain, score, without_penalty
from closefar.fitting.explain import name_columns
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.metric import root_of
from closefar.questions.dependence import Dependence, units_of_all
from closefar.questions.goodness_of_fit import DOUBT, check_noise_if_possible
from closefar.questions.likelihood import LabelLikelihood, LabelTerms, Moves, RankMoves, read_for, scaled_eigh
from closefar.rows import BlockRows, LegRows, Rows, rows_of
from closefar.solve import Answers, interval_terms, mixed_terms

# ---------------------------------------------------------------------------------------------------------------------
# Intervals, and where the parameters that they are about may be.


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate, its standard error, and the two ends of its confidence interval, as numbers or arrays.

    The estimate is the fit's own and need not be in the middle: with few labels it is biased, and on
    the boundary of the positive semidefinite matrices it can err to one side only.
    """

    estimate: Any
    standard_error: Any
    low: Any
    high: Any

    def mapped(self, function: Callable[[Any], Any], standard_error: Any = None) -> Interval:
        """The interval of an increasing function."""
        error = self.standard_error if standard_error is None else standard_error
        return Interval(function(self.estimate), error, function(self.low), function(self.high))

    @property
    def from_zero(self) -> Interval:
        """The part of an interval that is not negative."""
        return replace(self, low=np.maximum(self.low, 0.0), high=np.maximum(self.high, 0.0))


@dataclass(frozen=True, eq=False)
class ParameterEllipsoid:
    """Where the parameters may be: a centre, and a covariance root @ root.T around it.

    `shift` is the centre minus the parameters of the fit, and an interval extends `quantile` standard
    errors to either side of the centre.
    """

    shift: FloatArray
    root: FloatArray
    quantile: float


# The least flip rate, so that log odds stay finite: far below any rate that labels could show.
_LEAST_ODDS = 1e-6

_EIGENVALUE_ROUNDING = 1e-12  # eigenvalues up to this multiple of the largest are zero

# Eigenvalues are distinct if they differ by more than this many standard errors of the difference.
_DISTINCT_Z = 2.0


def _inside(probability: Any) -> Any:
    return np.clip(probability, 1e-300, 1.0 - 1e-16)


@dataclass(frozen=True, eq=False)
class Confidence:
    """Confidence intervals for a fitted metric, as returned by `confidence`.

    Attributes
    ----------
    method : {"sandwich", "jackknife", "none"}
        The method used.  "none": the pairs do not determine the metric, and every interval is
        unbounded.
    valid : bool
        Whether the intervals can be trusted.
    flaws : tuple of str
        The reasons why they can't, one sentence each; empty if they can.
    statement : str
        Which method was used and why, what it is valid for, or why none is valid.
    level : float
        The nominal coverage: the share of samples whose interval should contain the true value.
    metric : Metric
        The fitted metric; for a learner with a penalty, the one fitted without it.
    threshold : Interval or None
        For tau; None for levels, which have several, and for comparisons, which have none.
    thresholds : Interval
        For every threshold, lowest first: one for close/far labels, K - 1 for K levels, none for comparisons.
    directions : Interval
        For the mean squared distance along each direction, in the order of `metric.directions()`
        and, beyond its rank, zeros: one for every direction in which the pairs vary.  They do not
        depend on units; the second moment of the pairs is treated as known.  Directions that are not
        clearly distinct share one interval.
    matrix, eigenvalues : Interval
        For each entry of M and for its eigenvalues, largest first; both depend on the units of the
        data.
    relative_matrix : Interval
        For M / tr M, which does not depend on the scale of the noise: the only part of M that two fits without a
        common threshold, such as those of comparisons by different people, can be compared in.  It depends on the units
        of the data, too.
    flip_rate : Interval or None
        For the share of flipped labels, if it was estimated; with ``flip_rate="two"`` two numbers, of close pairs
        called far and of far pairs called close.
    """

    method: str
    valid: bool
    flaws: tuple[str, ...]
    statement: str
    level: float
    metric: Metric
    # An interval contains the estimate and the interval of each reach; without any it is unbounded.  Parameters are M
    # by its moves, the thresholds of levels, the strictness of annotators and, at the end, flip rates.
    _reaches: tuple[ParameterEllipsoid, ...] = field(repr=False)
    _moves: Moves = field(repr=False)
    _n_thresholds: int = field(default=1, repr=False)
    _n_rates: int = field(default=0, repr=False)
    _comparison_noise: float = field(default=1.0, repr=False)

    @cached_property
    def threshold(self) -> Interval | None:
        found = self.thresholds
        return found.mapped(itemgetter(0), found.standard_error[0]) if len(self.metric.thresholds) == 1 else None

    @cached_property
    def thresholds(self) -> Interval:
        n, thresholds = len(self._moves), np.array(self.metric.thresholds)
        return self._interval(thresholds, np.eye(self._n_parameters)[n : n + len(thresholds)]).from_zero

    @cached_property
    def directions(self) -> Interval:
        values = self._moves.values
        found = self._of_eigenvalues(values, np.diag(np.sqrt(values)), np.eye(len(values)))
        rounding = _EIGENVALUE_ROUNDING * values[0]
        estimate, error, high = (
            np.where(size <= rounding, 0.0, size) for size in (values, found.standard_error, found.high)
        )
        return Interval(estimate, error, found.low, high)

    @cached_property
    def matrix(self) -> Interval:
        entries = self._interval(self.metric.matrix, self._extended(self._of_entries))
        on_diagonal = np.eye(len(self._moves.basis), dtype=bool)
        return replace(entries, low=np.where(on_diagonal, np.maximum(entries.low, 0.0), entries.low))

    @cached_property
    def eigenvalues(self) -> Interval:
        return self._of_eigenvalues(self.metric.eigenvalues, self.metric.factor, self._moves.basis)

    @cached_property
    def relative_matrix(self) -> Interval:
        trace = float(self.metric.eigenvalues.sum())
        if trace == 0.0:
            return Interval(*[np.full(self.metric.matrix.shape, np.nan)] * 4)
        estimate = self.metric.matrix / trace
        of_trace = packed.form_gradients(self._moves.basis).sum(axis=0)
        on_matrix = (self._of_entries - np.outer(estimate.ravel(), of_trace)) / trace
        return self._interval(estimate, self._extended(on_matrix))

    @cached_property
    def flip_rate(self) -> Interval | None:
        if not self._n_rates:
            return None
        rates = np.array(self.metric.flip_rate, dtype=float)  # one is at most one half, and two sum to at most one
        found = self._interval(rates, np.eye(self._n_parameters)[-self._n_rates :])
        return found.mapped(lambda values: np.clip(values, 0.0, 1.0 if np.ndim(values) else 0.5)[()])

    def squared_distance(self, z: Any) -> Interval:
        """Return z'Mz for each difference z, with its interval."""
        rows = np.atleast_2d(np.asarray(z, dtype=np.float64)) @ self._moves.basis
        squared = self._interval(self.metric.squared_distance(z), self._extended(packed.form_gradients(rows)))
        return squared.from_zero

    def distance(self, z: Any) -> Interval:
        """Return the length of each difference z in the metric, with its interval."""
        squared = self.squared_distance(z)
        length = np.sqrt(squared.estimate)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(squared.standard_error > 0, 0.5 * squared.standard_error / length, 0.0)[()]
        return squared.mapped(np.sqrt, error)

    def probability_far(self, z: Any) -> Interval:
        """Return the probability that a pair with difference z is labelled far, with its interval."""
        _ = self.metric.known_threshold
        return self._probabilities(z, [1], np.shape(z)[:-1])

    def probabilities(self, z: Any) -> Interval:
        """Return the probability of each level, closest first, of a pair with difference z: arrays of shape (n, K).

        For annotators, they are those of the typical one.
        """
        if not self.metric.thresholds:
            _ = self.metric.known_threshold
        last = len(self.metric.thresholds)
        return self._probabilities(z, range(last + 1), (*np.shape(z)[:-1], last + 1))

    def _probabilities(self, z: Any, codes: Sequence[int], shape: tuple[int, ...]) -> Interval:
        rows = rows_of(np.atleast_2d(np.asarray(z, dtype=np.float64)))
        found = [self._probability(rows, np.full(rows.n_rows, code)) for code in codes]
        columns = zip(*((each.estimate, each.standard_error, each.low, each.high) for each in found), strict=True)
        return Interval(*(np.stack(column, axis=-1).reshape(shape)[()] for column in columns))

    def probability_as_given(self, comparisons: Any) -> Interval:
        """Return the probability that the first leg of each comparison is called the shorter one, with its interval.

        `comparisons` are triplets (n, 3, d) or quadruplets (n, 4, d), also by index.
        """
        rows = rows_of(comparisons)
        if isinstance(rows, BlockRows):
            raise ValueError(
                "comparisons must be triplets (n, 3, d) or quadruplets (n, 4, d); got shape "
                f"{tuple(comparisons.shape)}. Use probability_far for pairs."
            )
        scaled = LegRows(rows.legs, 0, rows.n_comparisons, 1.0 / self._comparison_noise)
        n_levels = len(self.metric.thresholds) + 1 if self.metric.thresholds else 0
        return self._probability(scaled, np.full(rows.n_comparisons, n_levels + 1))

    def _interval(self, estimate: Any, gradients: FloatArray) -> Interval:
        """The Wald interval of numbers with these gradients in the parameters; it is unbounded without any reach."""
        shape = np.shape(estimate)
        if not self._reaches:
            error, low, high = (np.full(shape, value) for value in (np.inf, -np.inf, np.inf))
            return Interval(estimate, error[()], low[()], high[()])
        error, low, high = np.zeros(shape), np.array(estimate, dtype=float), np.array(estimate, dtype=float)
        for reach in self._reaches:
            centre = estimate + np.reshape(gradients @ reach.shift, shape)
            errors = np.linalg.norm(gradients @ reach.root, axis=1).reshape(shape)
            error = np.maximum(error, errors)
            low = np.minimum(low, centre - reach.quantile * errors)
            high = np.maximum(high, centre + reach.quantile * errors)
        return Interval(estimate, error[()], low[()], high[()])

    @property
    def _of_entries(self) -> FloatArray:
        """The derivatives of the entries of M in the units of the data, a row each."""
        i, j = np.indices((len(self._moves.basis),) * 2).reshape(2, -1)
        return packed.form_gradients(self._moves.basis[i], self._moves.basis[j])

    def _of_eigenvalues(self, estimate: FloatArray, factor: FloatArray, transform: FloatArray) -> Interval:
        """Intervals for the eigenvalues of A A', largest first; those that are not distinct share one interval.

        d lambda = v' dM v for an eigenvector v, at the first of the centres.
        """
        values, vectors = estimate, np.linalg.svd(factor, full_matrices=True)[0] if factor.size else np.eye(len(factor))
        if self._reaches and np.any(self._reaches[0].shift):
            shift = packed.unpack(self._reaches[0].shift[: len(self._moves)], self._moves.basis.shape[1])
            values, vectors = np.linalg.eigh(factor @ factor.T + transform @ shift @ transform.T)
            values, vectors = values[::-1], vectors[:, ::-1]
        gradients = self._extended(packed.form_gradients(vectors.T @ transform))
        from_centre = [replace(reach, shift=reach.shift - self._reaches[0].shift) for reach in self._reaches]
        each = replace(self, _reaches=tuple(from_centre))._interval(values, gradients)
        low, high = np.minimum(each.low, estimate), np.maximum(each.high, estimate)
        error = self._interval(values[1:], gradients[:-1] - gradients[1:]).standard_error
        starts = np.flatnonzero(values[:-1] - values[1:] > _DISTINCT_Z * error) + 1
        for those in np.split(np.arange(len(values)), starts):
            low[those], high[those] = low[those].min(), high[those].max()
        return Interval(estimate, each.standard_error, low, high).from_zero

    def _probability(self, rows: Rows, codes: IndexArray) -> Interval:
        """Intervals for the probabilities of these answers, those to comparisons after those of pairs.

        If an answer has one end and the flip rates are known or zero, its interval follows from that of the margin,
        otherwise from that of the log odds.
        """
        metric, rates, n_cuts = self.metric, np.ravel(self.metric.flip_rate), len(self.metric.thresholds)
        likelihood = LabelLikelihood(
            rows,
            self._moves,
            Answers.of(n_cuts + 1 if n_cuts else 0, compares=True),
            codes,
            np.ones(len(codes)),
            metric.noise,
            () if self._n_rates else tuple(rates),
            self._n_rates,
            n_annotators=self._n_thresholds - n_cuts,
            beyond=rows.gather(rows.squared_distances(metric.factor)),
        )
        fitted = np.zeros(self._n_parameters)
        fitted[likelihood.cuts], fitted[likelihood.n_on_margin :] = metric.thresholds, rates[: self._n_rates]
        terms = likelihood.terms(fitted)
        estimate = np.exp(-terms.loss)
        if not self._reaches:
            return Interval(estimate, np.full(len(codes), np.inf), np.zeros(len(codes)), np.ones(len(codes)))
        above, below = likelihood.margins(fitted)
        has_lower, has_upper = np.isfinite(above), np.isfinite(below)
        if not self._n_rates and not np.any(has_lower & has_upper):
            # Agreement is the distance from the only end, whose derivatives in it are these.
            agreement = np.where(has_lower, above, -below)
            on_ends = terms._replace(low=-1.0 * has_lower, up=1.0 * has_upper)
            found = self._interval(agreement, np.vstack([along for _, along in likelihood.derivatives(on_ends)]))
            floor, kept, *_ = likelihood.mixture(())

            def probability(margin: FloatArray) -> FloatArray:
                return np.asarray(np.exp(-mixed_terms(interval_terms(metric.noise, margin, None, 0), floor, kept).loss))

            return found.mapped(probability, estimate * (terms.low - terms.up) * found.standard_error)
        low = high = logit(_inside(estimate))
        largest = 0.0 * estimate
        for reach in self._reaches:
            centre = fitted + reach.shift
            of_rates = centre[likelihood.n_on_margin :]
            of_rates[:] = np.clip(of_rates, _LEAST_ODDS, 0.5 if self._n_rates == 1 else 1.0)
            terms = likelihood.terms(centre)
            along = np.vstack([along for _, along in likelihood.derivatives(terms)])
            share = _inside(np.exp(-terms.loss))
            error = np.linalg.norm(along @ reach.root, axis=1) / (1.0 - share)
            low = np.minimum(low, logit(share) - reach.quantile * error)
            high = np.maximum(high, logit(share) + reach.quantile * error)
            largest = np.maximum(largest, error)
        return Interval(estimate, largest * estimate * (1.0 - estimate), expit(low), expit(high))

    @property
    def _n_parameters(self) -> int:
        return len(self._moves) + self._n_thresholds + self._n_rates

    def _extended(self, on_matrix: FloatArray) -> FloatArray:
        """Gradients in all parameters: these in M, and otherwise zero."""
        return np.column_stack([on_matrix, np.zeros((len(on_matrix), self._n_thresholds + self._n_rates))])


# ---------------------------------------------------------------------------------------------------------------------
# The input of standard errors: a fit in unit-free coordinates, and its observations.


_MOST_COVARIED = 4000  # matrices of 128 MB each, of which there are several


@dataclass(frozen=True, eq=False)
class Observed:
    """A fit, its likelihood, the number of observations that each row represents, and the dependence between rows.

    `parameters` are those of the fit.  The rows of attached comparisons come after those of pairs.
    """

    fit: Fit
    judgements: Judgements
    likelihood: LabelLikelihood
    parameters: FloatArray
    repeats: FloatArray
    dependence: Dependence
    largest_rank: int

    @classmethod
    def of(cls, fit: Fit, judgements: Judgements, groups: Any, *, stacklevel: int = 2) -> Observed:
        judgements.check_both_count()
        groups = units_of_all(groups, judgements, stacklevel=stacklevel + 1)
        weighted = judgements.weighted(fit.settings.class_weight)
        counts, counted = weighted.all_weights > 0, weighted.counted()
        moves = Moves.of(fit, counted, keeps_rank=False, is_complete=True)
        likelihood, parameters = LabelLikelihood.of(fit, counted, moves, estimates=True)
        if likelihood.n_on_margin > _MOST_COVARIED:
            raise ValueError(
                f"standard errors are limited to {_MOST_COVARIED} parameters; got {likelihood.n_on_margin} "
                f"({moves.size} columns). Leave columns out, or reduce them (for instance with PCA)."
            )
        dependence = Dependence(None if groups is None else groups[counts])
        largest_rank = min(fit.rank or moves.size, moves.size)
        repeats = judgements.all_weights[counts]
        return cls(fit, counted, likelihood, parameters, repeats, dependence, largest_rank)

    @property
    def size(self) -> int:
        """The number of directions of M."""
        return self.likelihood.moves.size


# ---------------------------------------------------------------------------------------------------------------------
# The covariance of fitted parameters: the sandwich H^-1 V H^-1.
#
# Parameters are one vector, that of `LabelLikelihood`. H is the observed information, V the sum of outer products
# of the scores, summed first over pairs that are not independent. Where the rank of M is fixed, both are taken on
# the moves that keep it: in coordinates in which M is diagonal, range first, all but those within its null space.


# With its diagonal scaled to one, an information with a smaller eigenvalue does not determine the parameters.
_SINGULAR = 1e-10

# If all labels that are informative about a move are right with near certainty, the variance of their scores is below
# this share of the information, and the optimum lies at infinity.  Otherwise the share is about one half.
_LEAST_SCORE_SHARE = 0.03


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
        The number of independent labels that one of these labels is worth: the variance of independent scores divided
        by that of these, summed over all parameters; at most one.
    """

    root: FloatArray | None
    rank: int = 0
    smallest: float = 0.0
    threshold: float = 0.0
    flip_rate: float = np.inf
    distance: float = np.inf
    independence: float = 1.0


def sandwich(
    likelihood: LabelLikelihood, parameters: FloatArray, dependence: Dependence, repeats: FloatArray, largest_rank: int
) -> Sandwich:
    """Compute the covariance of the parameters at an optimum over the M of at most the given rank.

    `repeats` is the number of observations that each row represents; the weights of the rows may
    also include class weights.  If M has a lower rank, all moves are allowed, as if there were no
    constraint.
    """
    (matrix, others), n_on_matrix = packed.split(parameters, likelihood.moves.size), len(likelihood.moves)
    terms, hessian, *spreads = _information_and_spreads(likelihood, parameters, dependence, repeats)
    slope = likelihood.gradient(terms, parameters, likelihood.shares)
    moves = RankMoves.at(matrix, packed.split(slope, len(matrix))[0], len(others))
    information = moves.information(hessian)
    basis, covering = (np.eye(len(hessian)), hessian) if moves.rank < largest_rank else (moves.basis, information)
    n = float(repeats.sum())
    plain, spread = (basis.T @ each @ basis for each in spreads)
    if _is_singular(information) or _is_singular(covering) or _vanishes(basis.T @ hessian @ basis, n * plain):
        return Sandwich(None, moves.rank)
    root = basis @ np.linalg.solve(covering, root_of(spread).T)
    weakest = moves.vectors[:, largest_rank - 1 : largest_rank].T
    error = np.linalg.norm(packed.form_gradients(weakest) @ root[:n_on_matrix])
    # The optimum is away along moves of parameters but thresholds that are held at zero.
    held = np.arange(len(slope))[likelihood.cuts]
    held = held[(parameters[held] <= 0.0) & (slope[held] > 0.0)]
    free = ~np.any(moves.basis[held] != 0.0, axis=0)
    push = moves.basis[:, free].T @ slope
    independent, actual = (float(np.trace(np.linalg.solve(covering, each))) for each in (plain, spread))
    ratios = parameters / np.maximum(np.linalg.norm(root, axis=1), TINY)
    return Sandwich(
        root,
        moves.rank,
        smallest=float(moves.values[largest_rank - 1] / max(error, TINY)),
        threshold=float(ratios[likelihood.cuts].min(initial=np.inf)),
        flip_rate=float(ratios[likelihood.n_on_margin :].min(initial=np.inf)),
        distance=float(np.sqrt(n * max(float(push @ np.linalg.solve(information[np.ix_(free, free)], push)), 0.0))),
        independence=min(1.0, independent / max(actual, TINY)),
    )


def _information_and_spreads(
    likelihood: LabelLikelihood, parameters: FloatArray, dependence: Dependence, repeats: FloatArray
) -> tuple[LabelTerms, FloatArray, FloatArray, FloatArray]:
    """The terms of all rows, the information, and the covariance of the scores if independent, and as they depend."""
    # Strictness is drawn anew from its prior as judgements are, so that the prior has scores, too.
    terms, prior = likelihood.terms(parameters), np.diag(likelihood.precisions) / float(repeats.sum())
    plain = Dependence(None).spread(likelihood, terms, repeats) + prior
    spread = plain if dependence.ids is None else dependence.spread(likelihood, terms, repeats) + prior
    return terms, likelihood.information(parameters, likelihood.shares, terms), plain, spread


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
    return not np.linalg.eigvalsh(whitening.T @ spread @ whitening)[0] > _LEAST_SCORE_SHARE


# ---------------------------------------------------------------------------------------------------------------------
# Fitting over all symmetric M, or over those of a fixed rank, by Newton's method.


_FREE_STEPS = 50  # some ten are usual
_FREE_HALVINGS = 30  # then the step is below rounding
_LARGEST_RATE = 0.499  # of flips: at one half, labels say nothing

# The optimum is reached when the next step would be shorter than this, in standard errors.
_OPTIMUM_Z = 1e-3

# The information is recomputed if steps with the previous one shrink by less than this factor.
_SHRINKAGE = 0.2

# The information does not determine a direction if an eigenvalue, with the diagonal scaled to one, is below this.
_NEWTON_SINGULAR = 1e-12


def find_optimum(
    likelihood: LabelLikelihood,
    start: FloatArray,
    weights: FloatArray,
    n_observations: float,
    information: FloatArray | None = None,
    rank: int | None = None,
) -> FloatArray | None:
    """Minimise the mean loss under these weights by Newton's method; None if it has no finite minimum.

    `information` is that of a similar fit, if there is one.  With a rank, M keeps it: steps are along the moves that do
    to first order, and end at the nearest matrix of that rank.
    """
    parameters, terms, size = start, likelihood.terms(start), likelihood.moves.size
    loss, last = likelihood.loss(terms, start, weights), np.inf
    solve = None
    for _ in range(_FREE_STEPS):
        gradient = likelihood.gradient(terms, parameters, weights)
        if information is None:
            information, solve = likelihood.information(parameters, weights, terms), None
        if solve is None or rank is not None:
            solve = _inverse(information, parameters, gradient, size, rank)
            if solve is None:
                return None
        step = -(solve @ gradient)
        decrement = -float(gradient @ step)
        if n_observations * decrement <= _OPTIMUM_Z**2:
            return parameters
        if decrement > _SHRINKAGE * last:
            information, last = None, np.inf
            continue
        last = decrement
        # At most half of the way to an invalid flip rate.
        rates, along = (each[likelihood.n_on_margin :] for each in (parameters, step))
        moved = along != 0.0
        room = np.where(along > 0, _LARGEST_RATE - rates, rates)[moved] / np.abs(along[moved])
        length = float(np.min(0.5 * room, initial=1.0))
        for _ in range(_FREE_HALVINGS):
            new = _of_rank(parameters + length * step, size, rank)
            terms = likelihood.terms(new)
            value = likelihood.loss(terms, new, weights)
            if value <= loss - 1e-4 * length * decrement:
                break
            length *= 0.5
        else:
            return None
        parameters, loss = new, value
    return None


def _inverse(
    information: FloatArray, parameters: FloatArray, gradient: FloatArray, size: int, rank: int | None
) -> FloatArray | None:
    """The inverse of the information, along the moves that keep the rank if there is one; None if it is singular."""
    basis = np.eye(len(information))
    if rank is not None:
        (matrix, others), (slope, _) = packed.split(parameters, size), packed.split(gradient, size)
        moves = RankMoves.at(matrix, slope, len(others), rank)
        basis, information = moves.basis, moves.information(information)
    values, vectors, scale = scaled_eigh(information)
    if not values[0] > _NEWTON_SINGULAR:
        return None
    root = basis @ (vectors / np.sqrt(values) / scale[:, None])
    return np.asarray(root @ root.T)


def _of_rank(parameters: FloatArray, size: int, rank: int | None) -> FloatArray:
    """The parameters with the positive semidefinite M of this rank that is nearest; unchanged without a rank."""
    if rank is None:
        return parameters
    matrix, others = packed.split(parameters, size)
    values, vectors = np.linalg.eigh(matrix)
    factor = vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))
    return packed.join(factor @ factor.T, others)


# ---------------------------------------------------------------------------------------------------------------------
# The optimum over all symmetric matrices: the centre of intervals if a fit is on the boundary of the metrics.


# The likelihood ratio test against the free optimum rejects the fit below this p-value.
_CONTRADICTED_P = 1e-3


def find_free_optimum(sample: Observed, facts: Sandwich, quantile: float) -> tuple[ParameterEllipsoid | None, bool]:
    """The optimum over all symmetric M and any tau, and whether the labels reject the fit; None: there is none."""
    n, likelihood = float(sample.repeats.sum()), sample.likelihood
    centre = find_optimum(likelihood, sample.parameters, likelihood.shares, n)
    if centre is None:
        return None, False
    _, information, plain, spread = _information_and_spreads(likelihood, centre, sample.dependence, sample.repeats)
    if _is_singular(information) or _vanishes(information, n * plain):
        return None, False
    root = np.asarray(np.linalg.solve(information, root_of(spread).T))
    losses = [likelihood.loss(likelihood.terms(each), each, likelihood.shares) for each in (sample.parameters, centre)]
    ratio = 2.0 * n * facts.independence * float(losses[0] - losses[1])
    n_more = packed.packed_size(sample.size - facts.rank) + int(0.0 in sample.fit.metric.thresholds)
    contradicts = n_more > 0 and float(chi2.sf(ratio, n_more)) < _CONTRADICTED_P
    return ParameterEllipsoid(centre - sample.parameters, root, quantile), contradicts


# ---------------------------------------------------------------------------------------------------------------------
# The jackknife: fits to parts of the pairs.


JACKKNIFE_PARTS = 20  # a standard error is then known to 16%, for which the quantile of Student's t allows


def jackknife(
    sample: Observed, centre: FloatArray, level: float, random_state: Any, n_jobs: int | None, *, keeps_rank: bool
) -> ParameterEllipsoid | None:
    """Fit without each of 20 random parts of the pairs in turn; None if a fit has no finite optimum.

    All fits have fewer pairs, so their mean estimates the bias, and their differences estimate the
    variance.  They have the rank of the original fit, or are over all symmetric M.
    """
    likelihood, n = sample.likelihood, float(sample.repeats.sum())
    rng = np.random.default_rng(check_random_state(0 if random_state is None else random_state).randint(2**31))
    # By margin and label, so that parts depend neither on the order of the rows nor on units.
    lower, upper = likelihood.margins(centre)
    order = np.lexsort((likelihood.codes, np.round(np.where(np.isfinite(lower), lower, upper), 7)))
    left_out = sample.dependence.parts(sample.repeats, np.argsort(order).astype(np.float64), JACKKNIFE_PARTS, rng)
    kept = sample.likelihood.shares[:, None] * (1.0 - left_out / sample.repeats[:, None])
    left = kept.sum(axis=0)
    if not np.all(left > 0.0):
        return None  # one part contains a point of every pair
    kept /= left
    near = likelihood.information(centre, likelihood.shares)
    rank = sample.largest_rank if keeps_rank else None
    found = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(find_optimum)(likelihood, centre, weights, n, near, rank=rank) for weights in kept.T
    )
    if any(each is None for each in found):
        return None
    fits = np.array(found)
    share = float(left_out.sum()) / (JACKKNIFE_PARTS * n)
    bias = (1.0 - share) / share * (fits.mean(axis=0) - centre)
    scale = np.sqrt(JACKKNIFE_PARTS / (JACKKNIFE_PARTS - 1.0)) * (1.0 - share)
    quantile = float(student.ppf(0.5 + 0.5 * level, JACKKNIFE_PARTS - 1))
    return ParameterEllipsoid(centre - bias - sample.parameters, scale * (fits - fits.mean(axis=0)).T, quantile)


# ---------------------------------------------------------------------------------------------------------------------
# Whether intervals can be trusted, and the sentences that say so.


# An eigenvalue, a threshold or a flip rate this many standard errors above zero is away from the boundary.
_INTERIOR_Z = 3.0

# A fit further than the first number from its optimum, in standard errors, shifts the intervals visibly; they can be
# centred at a new optimum unless the fit is further than the second number: then it was fitted to other pairs.
_AT_OPTIMUM_Z = 0.1
_NEAR_OPTIMUM_Z = 1.0  # standard error

# Groups or points: with fewer, the sum of their squared scores is 26% or more off.
_FEWEST_UNITS = 30

# Uncertain labels per parameter: below the first number no interval is valid, according to simulations with 80 to 5000
# pairs of 2 to 20 columns; from the second (or the number of parameters) on, the bias is small beside a standard error.
_INTERVAL_UNCERTAIN = 3.0
_MANY_UNCERTAIN = 25.0  # from the same simulations
_TIMES_WITH_FLIPS = 2.0  # since flipped labels carry no information


_KNOWN_RATES = (
    "The flip rates of annotators are estimated, but intervals treat them as known, and the "
    "scale of M, of thresholds and of probabilities depends on them; only relative_matrix, M / "
    "tr M, hardly does. For the others, leave out annotators who answer at random, and fit with "
    + setting(flip_rate=0)
    + "."
)


def _more(kind: Kind) -> str:
    return f"{kind.verb.capitalize()} more {kind.noun}s"


@dataclass(frozen=True, eq=False)
class Evidence:
    """A fit and its sandwich, the number of uncertain labels and of parameters; dependent labels count for less."""

    sample: Observed
    facts: Sandwich
    uncertain: float
    n_parameters: int

    @classmethod
    def of(cls, sample: Observed, facts: Sandwich) -> Evidence:
        fit, judgements, repeats = sample.fit, sample.judgements, sample.repeats
        # The sum of 4 p (1 - p), over attached comparisons, too.
        uncertain = count_uncertain(score(fit, judgements), repeats[: len(judgements)])
        if judgements.comparisons is not None:
            uncertain += count_uncertain(score(fit, judgements.comparisons), repeats[len(judgements) :])
        n_rates = np.size(fit.metric.flip_rate) * int(fit.known.estimates_flips)
        n_thresholds = sample.likelihood.n_on_margin - len(sample.likelihood.moves)
        found = cls(sample, facts, uncertain * facts.independence, 0)
        rank = sample.largest_rank if found.keeps_rank else None
        return replace(
            found, n_parameters=count_parameters(sample.size, rank, with_flips=n_rates, n_thresholds=n_thresholds)
        )

    @property
    def boundary(self) -> str | None:
        """Why the optimum may lie on the boundary of the feasible set; None if it is interior."""
        facts, largest_rank = self.facts, self.sample.largest_rank
        if facts.rank < largest_rank:
            return f"M has rank {facts.rank} of {largest_rank}"
        if not facts.smallest > _INTERIOR_Z:
            return f"the smallest eigenvalue of M is only {facts.smallest:.1f} standard errors above zero"
        if not facts.threshold > _INTERIOR_Z:
            return f"the threshold is only {facts.threshold:.1f} standard errors above zero"
        return None

    @property
    def keeps_rank(self) -> bool:
        """Whether the rank was set below its maximum, and is not that of the boundary.

        A rank chosen from these labels is not known.
        """
        is_set = not self.sample.fit.chose_rank and self.sample.largest_rank < self.sample.size
        return is_set and self.boundary is None

    @property
    def n_units(self) -> float:
        """The number of groups or points that make pairs dependent."""
        return math.inf if self.sample.dependence.n_units is None else float(self.sample.dependence.n_units)

    @property
    def per_parameter(self) -> float:
        return self.uncertain / self.n_parameters

    @property
    def many(self) -> float:
        """The uncertain labels per parameter from which on the sandwich alone is enough."""
        times = _TIMES_WITH_FLIPS if self.sample.fit.known.estimates_flips else 1.0
        return max(_MANY_UNCERTAIN, float(self.n_parameters)) * times

    @property
    def is_plenty(self) -> bool:
        return min(self.uncertain, self.n_units) >= self.many * self.n_parameters

    def flaws(self, method: str) -> tuple[str, ...]:
        """The reasons why a method can't be valid, one sentence each; no refit helps."""
        flaws, fit, dependence, kind = [], self.sample.fit, self.sample.dependence, self.sample.fit.kind
        distance, rate = self.facts.distance, fit.metric.flip_rate
        if not fit.certificate.converged:
            flaws.append("The fit did not converge; see certificate_.status.")
        elif not distance <= (_AT_OPTIMUM_Z if self.keeps_rank else _NEAR_OPTIMUM_Z):
            flaws.append(
                f"The fit is {distance:.2g} standard errors from the optimum. Pass the {kind.noun}s, "
                f"{kind.term}s and weights that it was fitted to, or fit with a smaller " + setting("tol") + "."
            )
        if fit.annotators is not None and fit.annotators.flip_rates is not None:
            flaws.append(_KNOWN_RATES)
        elif fit.known.estimates_flips and not (np.min(rate) > 0 and self.facts.flip_rate > _INTERIOR_Z):
            known = (
                tuple(round(each, 3) if each > min(rate) else 0.0 for each in rate) if isinstance(rate, tuple) else 0
            )
            flaws.append(
                f"The estimated flip rate, {np.min(rate):.2g}, is within {_INTERIOR_Z:g} standard errors of zero, its "
                f"boundary. {_more(kind)} or, if {kind.term}s are never flipped so, fit with "
                + setting(flip_rate=known)
                + "."
            )
        if not self.is_plenty and self.per_parameter < _INTERVAL_UNCERTAIN:
            needed = float(self.sample.repeats.sum()) * _INTERVAL_UNCERTAIN / max(self.per_parameter, 1e-3)
            dependent = f", dependent {kind.term}s for less" if math.isfinite(self.n_units) else ""
            flaws.append(
                f"Intervals need at least {_INTERVAL_UNCERTAIN:g} uncertain {kind.term}s per parameter; got "
                f"{self.per_parameter:.1f} ({self.uncertain:,.0f}, the sum of 4 p (1 - p), for {self.n_parameters:,} "
                f"parameters; weights count as repeats{dependent}). {kind.verb.capitalize()} about "
                f"{_rounded_up(needed):,} {kind.noun}s in total, or leave columns out."
            )
        elif not self.is_plenty and method != "jackknife":
            flaws.append(
                f"The {method} needs at least {self.many:.0f} uncertain {kind.term}s (and groups or points, if "
                f"any) per parameter; got {min(self.uncertain, self.n_units) / self.n_parameters:.1f}. Use "
                'method="jackknife".'
            )
        if self.n_units < _FEWEST_UNITS:
            what = "points" if dependence.by_points else "groups"
            flaws.append(f"Intervals need at least {_FEWEST_UNITS} {what}; got {dependence.n_units}. Add more {what}.")
        return tuple(flaws)

    def statement(self, method: str) -> str:
        """What valid intervals of the sandwich or the jackknife are based on."""
        sample, facts, term, boundary = self.sample, self.facts, self.sample.fit.kind.term, self.boundary
        if method == "jackknife":
            found, enough = f"{self.per_parameter:.1f} uncertain {term}s per parameter", f"{self.many:.0f}"
            if math.isfinite(self.n_units):
                units = "points" if sample.dependence.by_points else "groups"
                found = f"{self.n_units / self.n_parameters:.1f} {units} and {found} (dependent {term}s count less)"
                enough += " of each"
            statement = (
                f"Each interval contains that of the sandwich and that of a jackknife of {JACKKNIFE_PARTS} fits, which "
                f"corrects the bias with only {found}; from {enough} on the sandwich is enough."
            )
        else:
            threshold = f", the threshold {facts.threshold:.1f}" if math.isfinite(facts.threshold) else ""
            interior = (
                f": the optimum is interior (the smallest eigenvalue of M is {facts.smallest:.1f} standard errors "
                f"above zero{threshold})"
            )
            statement = f"Sandwich standard errors from the observed information{'' if boundary else interior}."
        is_limited = sample.largest_rank < sample.size
        if boundary is not None or (sample.fit.chose_rank and is_limited):
            reason = boundary if boundary is not None else f"the rank was chosen from these {term}s"
            statement += (
                f" Since {reason}, intervals are centred at the optimum over all symmetric matrices, which has no "
                "boundary, and extended to contain the fit's own estimate."
            )
        elif is_limited:
            statement += f" Rank {sample.largest_rank} is treated as known."
        return statement

    def centre(self, at_fit: ParameterEllipsoid) -> tuple[ParameterEllipsoid, tuple[str, ...], str]:
        """The sandwich at the fit or, if that is not in the interior, at the free optimum; flaws, and a remark."""
        sample, kind = self.sample, self.sample.fit.kind
        has_all_ranks = sample.largest_rank == sample.size
        if self.boundary is None and has_all_ranks and self.facts.distance <= _AT_OPTIMUM_Z:
            return at_fit, (), ""
        free, contradicts = find_free_optimum(sample, self.facts, at_fit.quantile)
        if self.keeps_rank:
            remark = (
                f" The {kind.term}s contradict it, so intervals are for the best metric of that rank, not for the M "
                "that generated them."
            )
            return at_fit, (), remark if contradicts else ""
        if free is None:
            flaw = (
                "M is on the boundary of the positive semidefinite matrices, and without that constraint the "
                f"{kind.term}s do not determine it. {_more(kind)}, leave columns out, or set the rank."
            )
            return at_fit, (flaw,), ""
        if has_all_ranks and contradicts:
            flaw = (
                f"The {kind.term}s contradict the model: an M with negative eigenvalues, which is not a metric, "
                f"explains them far better. Check which {kind.term} means far, and see "
                + either("diagnose()", "the warnings of the report")
                + ". With "
                + either("rank=...", "--rank")
                + ", intervals are for the best metric of that rank."
            )
            return at_fit, (flaw,), ""
        return free, (), ""


def undetermined_statement(sample: Observed, *, has_penalty: bool) -> str:
    """State what the labels do not determine; `has_penalty` is about the fit that was asked about."""
    remark = "" if has_penalty else (" A penalty (" + setting("alpha") + " > 0) gives a metric, but no intervals.")
    kind, likelihood = sample.fit.kind, sample.likelihood
    if sample.fit.is_quasi_separable and has_penalty:
        return (
            f"Not valid, and every interval is unbounded: one direction explains some {kind.term}s without exception, "
            f"so that without the penalty M grows without bound along it. {_more(kind)}."
        )
    if sample.fit.is_quasi_separable:
        return "Not valid, and every interval is unbounded: " + sample.fit.certificate.advice + remark
    where, why, there = "", f"all {kind.term}s can be explained without error", ""
    if not sample.fit.is_separable:
        # The combination of columns, each divided by its root mean square, that the labels determine least.
        _, vectors, scale = scaled_eigh(likelihood.information(sample.parameters, likelihood.shares))
        move = packed.unpack((vectors[:, 0] / scale)[: len(likelihood.moves)], sample.size)
        values, axes = np.linalg.eigh(move)
        direction = likelihood.moves.basis @ axes[:, np.argmax(np.abs(values))]
        direction = np.array(sample.fit.statistics.column_scales) * direction
        where = f" along {name_columns(sample.fit.metric.column_names, direction)}"
        why, there = (
            f"no {kind.term} is informative there, or all that are can be explained without error",
            " that differ there",
        )
    return (
        f"Not valid: the {kind.noun}s do not determine the metric{where} ({why}), so every interval is unbounded. "
        f"{_more(kind)}{there}, or leave columns out." + remark
    )


def _rounded_up(number: float) -> int:
    """Round up to two digits."""
    unit = 10 ** max(int(math.log10(max(number, 1.0))) - 1, 0)
    return int(math.ceil(number / unit) * unit)


# ---------------------------------------------------------------------------------------------------------------------
# Confidence intervals of a fit: the choice of a valid method, and a statement about it.


_METHODS = ("auto", "sandwich", "jackknife")


def confidence(
    learner: Fit | Fitted,
    pairs: Any = None,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    annotators: Any = None,
    comparisons: Any = None,
    level: float = 0.95,
    method: str = "auto",
    groups: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Confidence:
    """Compute confidence intervals for a fitted learner from its training judgements, of any kind.

    Their target is the M and the thresholds that generated the labels.  If the noise is of another kind than
    the learner's, the target is the best approximation: the M and thresholds that an infinite sample would
    give.  The statement says so if `check_noise_model` rejects the noise model.  Intervals for
    a probability are computed for the margin (with an estimated flip rate, for the log odds) and
    mapped to probabilities; those for a distance are computed for its square.

    Each interval contains the fit's estimate, but need not be centred there.  If M has eigenvalues at
    or near zero, or the rank was chosen from the labels, the centre is the optimum over all
    symmetric matrices, which has no boundary.  With few uncertain labels per parameter, the
    interval also allows for the bias of the fit.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A fitted learner without a learned origin.  If it has a penalty, as it has by default, the intervals are
        those of the fit without it, which takes one more fit; nothing is known of how far a penalty is from the
        truth.  A flip rate that was chosen is estimated again.  A rank that was set is treated as known, and so is
        the noise.
    pairs, labels, sample_weight, annotators, comparisons
        As passed to `fit`; for a comparison learner, `pairs` are the comparisons and `labels` the answers.  By
        default the training judgements.  The strictness of annotators is part of the uncertainty; the width of its
        distribution and an estimated noise of comparisons are treated as known.  With a flip rate for each annotator,
        only `relative_matrix` can be trusted.  A weight of 2
        counts as two independent observations of the pair:
        multiplying all weights by 4 halves the standard errors.  For weights that express the
        importance of an observation, pass ``groups=range(n)`` as well.
    level : float, default=0.95
    method : {"auto", "sandwich", "jackknife"}, default="auto"
        "sandwich": H^-1 V H^-1 with the observed information H and the variance V of the
        scores, which needs no refits but many uncertain labels per parameter.  "jackknife": an
        interval that contains that of the sandwich and that of 20 fits, each without one twentieth
        of the pairs, corrected for bias.  "auto" uses the first if it is valid, otherwise the second.
        No refits are made if they can't make the intervals valid.
    groups : array of n ids, or of shape (n, 2), optional
        Pairs that are not independent: those with the same id or, in the second form, those
        that share the id of a point.  By default, points that pairs share are detected in
        (n, 2, d) data.
    random_state : int, RandomState or None
        Seed of the jackknife parts; by default always the same.
    n_jobs : int, optional
        The number of refits to run in parallel, as in joblib.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(3000, 2, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> intervals = cf.confidence(learner, data.pairs, data.labels)
    >>> intervals.method, intervals.valid
    ('sandwich', True)
    >>> bool(intervals.threshold.low < learner.metric_.threshold < intervals.threshold.high)
    True
    """
    fit = Fit.of(learner)
    _check_arguments(fit, level, method)
    judgements = read_for(fit, pairs, labels, sample_weight, annotators, comparisons)
    plain = without_penalty(fit, judgements, class_weight=fit.settings.class_weight)
    sample = Observed.of(plain, judgements, groups)
    facts = sandwich(sample.likelihood, sample.parameters, sample.dependence, sample.repeats, sample.largest_rank)
    reaches: tuple[ParameterEllipsoid, ...] = ()
    if facts.root is None or sample.fit.is_separable or sample.fit.is_quasi_separable:
        method, statement = "none", undetermined_statement(sample, has_penalty=fit.alpha > 0)
        flaws: tuple[str, ...] = (statement,)
    else:
        at_fit = ParameterEllipsoid(
            np.zeros_like(sample.parameters), facts.root, float(ndtri(0.5 + 0.5 * float(level)))
        )
        evidence = Evidence.of(sample, facts)
        wanted = method if method != "auto" else "sandwich" if evidence.is_plenty else "jackknife"
        flaws = evidence.flaws(wanted)
        around, remark, is_skipped = at_fit, "", bool(flaws) and wanted != "sandwich"
        if not flaws:
            around, flaws, remark = evidence.centre(at_fit)
        reaches = (around,)
        if wanted == "jackknife" and not flaws:
            centre, keeps_rank = sample.parameters + around.shift, evidence.keeps_rank
            by_parts = jackknife(sample, centre, float(level), random_state, n_jobs, keeps_rank=keeps_rank)
            if by_parts is not None:
                reaches = (around, by_parts)
            else:
                kind = sample.fit.kind
                flaw = (
                    f"With {1.0 / JACKKNIFE_PARTS:.0%} of the {kind.noun}s left out, there is no finite optimum, so "
                    f"the fit depends on a few {kind.term}s. {_more(kind)}."
                )
                flaws = (flaw,)
        method = "sandwich" if flaws else wanted
        if flaws:
            skipped = ["No refits were made, since they would not help."] if is_skipped else []
            statement = joined(["Not valid.", *flaws, "The standard errors are those of the sandwich.", *skipped])
        else:
            statement = evidence.statement(method) + remark
    likelihood = sample.likelihood
    return Confidence(
        method=method,
        valid=not flaws,
        flaws=flaws,
        statement=statement + _remarks(fit, sample, is_determined=method != "none"),
        level=float(level),
        metric=sample.fit.metric,
        _reaches=reaches,
        _moves=likelihood.moves,
        _n_thresholds=likelihood.n_on_margin - len(likelihood.moves),
        _n_rates=likelihood.n_rates,
        _comparison_noise=sample.fit.relative_noise,
    )


def _check_arguments(fit: Fit, level: Any, method: Any) -> None:
    if not (isinstance(level, numbers.Real) and 0 < float(level) < 1):
        raise ValueError(f"level must be a number between 0 and 1, such as 0.95; got {level!r}.")
    if method not in _METHODS:
        raise ValueError(f"method must be one of {list(_METHODS)}; got {method!r}.")
    if fit.metric.origin is not None:
        raise ValueError(
            "confidence intervals need a learner with fit_origin=False; got "
            + setting(fit_origin=True)
            + ". Fit the differences of pairs without it."
        )


def _remarks(fit: Fit, sample: Observed, *, is_determined: bool) -> str:
    """Remarks for every method: penalty, noise, what is treated as known, and directions without data."""
    remarks = ""
    if fit.alpha > 0:
        remarks += (
            " The intervals are for the fit without the penalty "
            + setting("alpha", format(fit.alpha, ".3g"))
            + ", which shrinks M."
        )
    judgements = sample.judgements.with_weights(sample.repeats[: len(sample.judgements)])
    check = check_noise_if_possible(sample.fit, judgements, sample.dependence.ids) if is_determined else None
    if check is not None and check.p_value < DOUBT:
        remarks += (
            " "
            + either("check_noise_model rejects", "The noise check rejects")
            + " the noise model, so the intervals are for the best approximation, not for the M and tau "
            f"that generated the {fit.kind.term}s."
        )
    if sample.judgements.annotators is not None:
        remarks += " The width of the annotators' strictness is treated as known."
    if sample.judgements.comparisons is not None and fit.settings.comparison_noise == "estimate":
        remarks += " The noise of comparisons, which was estimated, is treated as known."
    n = len(sample.fit.metric.factor) - sample.size
    plural = "s" if n > 1 else ""
    return remarks + (f" The {fit.kind.noun}s do not vary in {n} direction{plural}; M is zero there." if n > 0 else "")
