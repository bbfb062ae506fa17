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
from closefar.fitting.fitting import name_columns
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.factors import root_of
from closefar.noise import FlipRate
from closefar.questions.dependence import Dependence, units_of_all
from closefar.questions.goodness_of_fit import DOUBT, check_noise_if_possible
from closefar.questions.likelihood import (
    LabelLikelihood,
    LabelTerms,
    Optimum,
    Outcomes,
    RankMoves,
    annotator_rates,
    read_for,
    scaled_eigh,
    table_of,
)
from closefar.rows import BlockRows, LegRows, Rows, rows_of

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


def mapped(interval: Interval, function: Callable[[Any], Any], standard_error: Any = None) -> Interval:
    """The interval of an increasing function."""
    error = interval.standard_error if standard_error is None else standard_error
    return Interval(function(interval.estimate), error, function(interval.low), function(interval.high))


def from_zero(interval: Interval) -> Interval:
    """The part of an interval that is not negative."""
    low, high = np.maximum(interval.low, 0.0), np.maximum(interval.high, 0.0)
    return Interval(interval.estimate, interval.standard_error, low, high)


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

_ENDS = ("estimate", "standard_error", "low", "high")


@dataclass(frozen=True, eq=False)
class Spread:
    """Where the parameters may be in unit-free coordinates, and the transformation to the user's units.

    An interval contains the estimate and the interval of each of `reaches`; without any it is unbounded.
    Parameters are (packed M, thresholds) and, at the end, `n_rates` flip rates; the thresholds of levels come before
    the strictness of annotators.
    """

    reaches: tuple[ParameterEllipsoid, ...]
    transform: FloatArray
    n_thresholds: int = 1
    n_rates: int = 0

    def interval(self, estimate: Any, gradients: FloatArray) -> Interval:
        """The Wald interval of numbers with these gradients in the parameters; it is unbounded without any reach."""
        shape = np.shape(estimate)
        if not self.reaches:
            error, low, high = (np.full(shape, value) for value in (np.inf, -np.inf, np.inf))
            return Interval(estimate, error[()], low[()], high[()])
        error, low, high = np.zeros(shape), np.array(estimate, dtype=float), np.array(estimate, dtype=float)
        for reach in self.reaches:
            centre = estimate + np.reshape(gradients @ reach.shift, shape)
            errors = np.linalg.norm(gradients @ reach.root, axis=1).reshape(shape)
            error = np.maximum(error, errors)
            low = np.minimum(low, centre - reach.quantile * errors)
            high = np.maximum(high, centre + reach.quantile * errors)
        return Interval(estimate, error[()], low[()], high[()])

    def squared_distances(self, z: Any, estimate: Any, slope: float) -> Interval:
        """Intervals for z'Mz + slope tau, where tau is the first threshold."""
        return self.interval(estimate, self._gradients(z, slope))

    def thresholds(self, metric: Metric) -> Interval:
        gradients = np.eye(self._n_parameters)[self._n_on_matrix :][: len(metric.thresholds)]
        return from_zero(self.interval(np.array(metric.thresholds), gradients))

    def matrix(self, metric: Metric) -> Interval:
        entries = self.interval(metric.matrix, self._extended(self._of_entries))
        low = np.where(np.eye(len(metric.factor), dtype=bool), np.maximum(entries.low, 0.0), entries.low)
        return Interval(entries.estimate, entries.standard_error, low, entries.high)

    def relative_matrix(self, metric: Metric) -> Interval:
        """Intervals for M / tr M, in the units of the data."""
        trace = float(metric.eigenvalues.sum())
        if trace == 0.0:
            unknown = np.full(metric.matrix.shape, np.nan)
            return Interval(unknown, unknown, unknown, unknown)
        estimate = metric.matrix / trace
        of_trace = packed.form_gradients(self.transform).sum(axis=0)
        on_matrix = (self._of_entries - np.outer(estimate.ravel(), of_trace)) / trace
        return self.interval(estimate, self._extended(on_matrix))

    @property
    def _of_entries(self) -> FloatArray:
        """The derivatives of the entries of M in the units of the data, a row each."""
        i, j = np.indices((len(self.transform),) * 2).reshape(2, -1)
        return packed.form_gradients(self.transform[i], self.transform[j])

    def eigenvalues(self, metric: Metric) -> Interval:
        """Intervals for the eigenvalues of M in the units of the data, largest first."""
        values, vectors = self._centre(metric)
        return self._of_eigenvalues(metric.eigenvalues, values, self._gradients(vectors.T, 0.0))

    def directions(self, matrix: FloatArray) -> Interval:
        """The mean squared distance along each direction: the eigenvalues of M in unit-free coordinates, largest first.

        The second moment of the training pairs is the identity there, and treated as known.  d lambda = v' dM v for an
        eigenvector v.
        """
        centre = matrix
        if self.reaches:
            centre = matrix + packed.unpack(self.reaches[0].shift[: self._n_on_matrix], len(matrix))
        values, vectors = np.linalg.eigh(centre)
        gradients = self._extended(packed.form_gradients(vectors[:, ::-1].T))
        found = np.linalg.eigvalsh(matrix)[::-1]
        rounding = _EIGENVALUE_ROUNDING * found[0]
        estimate = np.where(found > rounding, found, 0.0)
        interval = self._of_eigenvalues(estimate, values[::-1], gradients)
        error, high = (np.where(size <= rounding, 0.0, size) for size in (interval.standard_error, interval.high))
        return Interval(estimate, error, interval.low, high)

    def _of_eigenvalues(self, estimate: FloatArray, values: FloatArray, gradients: FloatArray) -> Interval:
        """Intervals for eigenvalues with these gradients; those that are not distinct share one interval."""
        from_centre = [replace(reach, shift=reach.shift - self.reaches[0].shift) for reach in self.reaches]
        each = replace(self, reaches=tuple(from_centre)).interval(values, gradients)
        low, high = np.minimum(each.low, estimate), np.maximum(each.high, estimate)
        error = self.interval(values[1:], gradients[:-1] - gradients[1:]).standard_error
        for those in np.split(
            np.arange(len(values)), np.flatnonzero(values[:-1] - values[1:] > _DISTINCT_Z * error) + 1
        ):
            low[those], high[those] = low[those].min(), high[those].max()
        return from_zero(Interval(estimate, each.standard_error, low, high))

    def flip_rate(self, metric: Metric) -> Interval | None:
        if not self.n_rates:
            return None
        gradients = np.eye(self._n_parameters)[-self.n_rates :]
        return mapped(self.interval(np.array(metric.flip_rate, dtype=float), gradients), _as_rates)

    def probability(self, metric: Metric, rows: Rows, codes: IndexArray) -> Interval:
        """Intervals for the probabilities of these outcomes, by the codes of `Outcomes`.

        If an outcome has one end and the flip rates are known or zero, its interval follows from that of the margin,
        otherwise from that of the log odds.
        """
        rates, n_cuts = np.ravel(metric.flip_rate), len(metric.thresholds)
        likelihood = LabelLikelihood(
            rows,
            Outcomes(codes, n_cuts + 1, n_annotators=self.n_thresholds - n_cuts),
            np.ones(len(codes)),
            metric.noise,
            None if self.n_rates else metric.flip_rate,
            self.n_rates,
            beyond=rows.gather(rows.squared_distances(metric.factor)),
            gradients=lambda block: packed.form_gradients(block.T @ self.transform),
            n_on_matrix=self._n_on_matrix,
        )
        strictness = np.zeros(likelihood.outcomes.n_annotators)
        fitted = np.concatenate([np.zeros(self._n_on_matrix), metric.thresholds, strictness, rates[: self.n_rates]])
        terms = likelihood.terms(fitted)
        estimate = np.exp(-terms.loss)
        if not self.reaches:
            return Interval(estimate, np.full(len(codes), np.inf), np.zeros(len(codes)), np.ones(len(codes)))
        above, below = likelihood.ends(fitted)
        has_lower, has_upper = np.isfinite(above), np.isfinite(below)
        if not self.n_rates and not np.any(has_lower & has_upper):
            agreement = np.where(has_lower, above, -below)
            # The derivatives of the agreement: scores of losses whose slopes are one.
            falling = replace(terms, low=1.0 * has_lower, up=-1.0 * has_upper)
            gradients = np.vstack([scores for _, scores in likelihood.scores(falling)])
            base, kept = likelihood.flips.at(())
            found = self.interval(agreement, gradients)
            error = kept * metric.noise.pdf(agreement) * found.standard_error
            return mapped(found, lambda margin: base + kept * metric.noise.cdf(margin), error)
        low = high = logit(_inside(estimate))
        largest = 0.0 * estimate
        for reach in self.reaches:
            centre = fitted + reach.shift
            of_rates = centre[likelihood.n_on_margin :]
            of_rates[:] = np.clip(of_rates, _LEAST_ODDS, 0.5 if self.n_rates == 1 else 1.0)
            terms = likelihood.terms(centre)
            scores = np.vstack([scores for _, scores in likelihood.scores(terms)])
            share = _inside(np.exp(-terms.loss))
            error = np.linalg.norm(scores @ reach.root, axis=1) / (1.0 - share)
            low = np.minimum(low, logit(share) - reach.quantile * error)
            high = np.maximum(high, logit(share) + reach.quantile * error)
            largest = np.maximum(largest, error)
        return Interval(estimate, largest * estimate * (1.0 - estimate), expit(low), expit(high))

    @property
    def _n_on_matrix(self) -> int:
        return packed.packed_size(self.transform.shape[1])

    @property
    def _n_parameters(self) -> int:
        return self._n_on_matrix + self.n_thresholds + self.n_rates

    def _gradients(self, z: Any, slope: float) -> FloatArray:
        rows = np.atleast_2d(np.asarray(z, dtype=np.float64)) @ self.transform
        return self._extended(packed.form_gradients(rows), slope)

    def _extended(self, on_matrix: FloatArray, slope: float = 0.0) -> FloatArray:
        """Gradients in all parameters: these in M, `slope` in the first threshold, and otherwise zero."""
        rest = np.zeros((len(on_matrix), self.n_thresholds + self.n_rates))
        rest[:, : int(slope != 0.0)] = slope
        return np.column_stack([on_matrix, rest])

    def _centre(self, metric: Metric) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors, largest first, of M at the first of the centres."""
        vectors = np.linalg.svd(metric.factor, full_matrices=True)[0] if metric.rank else np.eye(len(metric.factor))
        if not self.reaches or not np.any(self.reaches[0].shift):
            return metric.eigenvalues, vectors
        shift = packed.unpack(self.reaches[0].shift[: self._n_on_matrix], self.transform.shape[1])
        values, vectors = np.linalg.eigh(metric.matrix + self.transform @ shift @ self.transform.T)
        return values[::-1], vectors[:, ::-1]


def _as_rates(values: Any) -> Any:
    """Flip rates within their range: one is at most one half, and two have a sum of at most one."""
    return np.clip(values, 0.0, 0.5 if np.ndim(values) == 0 else 1.0)[()]


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
    threshold: Interval | None
    thresholds: Interval
    directions: Interval
    matrix: Interval
    eigenvalues: Interval
    relative_matrix: Interval
    flip_rate: Interval | None
    _spread: Spread = field(repr=False)
    _comparison_noise: float = field(default=1.0, repr=False)

    def squared_distance(self, z: Any) -> Interval:
        """Return z'Mz for each difference z, with its interval."""
        return from_zero(self._spread.squared_distances(z, self.metric.squared_distance(z), slope=0.0))

    def distance(self, z: Any) -> Interval:
        """Return the length of each difference z in the metric, with its interval."""
        squared = self.squared_distance(z)
        length = np.sqrt(squared.estimate)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(squared.standard_error > 0, 0.5 * squared.standard_error / length, 0.0)[()]
        return mapped(squared, np.sqrt, error)

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
        found = [self._spread.probability(self.metric, rows, np.full(rows.n_rows, code)) for code in codes]
        ends = (np.stack([getattr(each, end) for each in found], axis=-1).reshape(shape)[()] for end in _ENDS)
        return Interval(*ends)

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
        as_given = np.full(rows.n_comparisons, len(self.metric.thresholds) + 1)
        return self._spread.probability(self.metric, scaled, as_given)


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
    optimum: Optimum
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
        table = table_of(fit, counted)
        optimum = Optimum.of(
            fit.metric,
            counted,
            comparison_noise=fit.relative_noise,
            strictness=None if table is None else table.strictness,
        )
        n_parameters = packed.packed_size(optimum.size) + len(optimum.thresholds)
        if n_parameters > _MOST_COVARIED:
            raise ValueError(
                f"standard errors are limited to {_MOST_COVARIED} parameters; got {n_parameters} ({optimum.size} "
                "columns). Leave columns out, or reduce them (for instance with PCA)."
            )
        # A rate of zero is on the boundary, where it is not treated as a parameter.
        rates = np.ravel(fit.metric.flip_rate)
        known = annotator_rates(fit, counted)
        is_free = known is None and fit.known.estimates_flips and bool(np.all(rates > 0))
        likelihood = LabelLikelihood.of(
            optimum,
            counted,
            fit.metric.noise,
            None if is_free else fit.metric.flip_rate if known is None else known,
            n_rates=len(rates) if is_free else 0,
            precision=0.0 if table is None else 1.0 / (table.width**2 * counted.total_weight),
        )
        return cls(
            fit,
            counted,
            optimum,
            likelihood,
            parameters=np.append(optimum.parameters, rates) if is_free else optimum.parameters,
            repeats=judgements.all_weights[counts],
            dependence=Dependence(None if groups is None else groups[counts]),
            largest_rank=min(fit.rank or optimum.size, optimum.size),
        )

    @property
    def knows_rank(self) -> bool:
        """Whether the rank was set below its maximum; a rank chosen from these labels is not known."""
        return not self.fit.chose_rank and self.largest_rank < self.optimum.size

    def count_parameters(self, *, keeps_rank: bool) -> int:
        rank = self.largest_rank if keeps_rank else None
        n_rates = np.size(self.fit.metric.flip_rate) * self.fit.known.estimates_flips
        return count_parameters(self.optimum.size, rank) - 1 + len(self.optimum.thresholds) + int(n_rates)

    def count_uncertain(self) -> float:
        """The number of uncertain labels: the sum of 4 p (1 - p), over attached comparisons, too."""
        n, others = len(self.judgements), self.judgements.comparisons
        found = count_uncertain(score(self.fit, self.judgements), self.repeats[:n])
        return found if others is None else found + count_uncertain(score(self.fit, others), self.repeats[n:])


# ---------------------------------------------------------------------------------------------------------------------
# The covariance of fitted parameters: the sandwich H^-1 V H^-1.
#
# Parameters are one vector, that of `LabelLikelihood`. H is the observed information, V the sum of outer products
# of the scores, summed first over pairs that are not independent. Where the rank of M is fixed, both are taken on
# the moves that keep it: in coordinates in which M is diagonal, range first, all but those within its null space.


# Eigenvalues of M, in unit-free coordinates, that count as zero beside the largest.
_ZERO_EIGENVALUE = 1e-8

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
    matrix, others = packed.split(parameters, likelihood.rows.n_columns)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
    rank = int(np.sum(values > _ZERO_EIGENVALUE * max(values[0], 0.0)))
    terms, hessian, *spreads = _information_and_spreads(likelihood, parameters, dependence, repeats)
    slope = likelihood.gradient(terms, parameters, likelihood.shares)
    moves = RankMoves.at(values, vectors, rank, packed.split(slope, len(matrix))[0], n_more=len(others))
    information = moves.information(hessian)
    if rank < largest_rank:
        basis, covering = np.eye(len(hessian)), hessian
    else:
        basis, covering = moves.basis, information
    n = float(repeats.sum())
    plain, spread = (basis.T @ each @ basis for each in spreads)
    if _is_singular(information) or _is_singular(covering) or _vanishes(basis.T @ hessian @ basis, n * plain):
        return Sandwich(None, rank)
    root = basis @ np.linalg.solve(covering, root_of(spread).T)
    error = np.linalg.norm(
        packed.form_gradients(vectors[:, largest_rank - 1 : largest_rank].T) @ root[: likelihood.n_on_matrix]
    )
    # The optimum is away along moves of parameters but thresholds that are held at zero.
    held = likelihood.n_on_matrix + np.arange(likelihood.outcomes.n_cuts)
    held = held[(parameters[held] <= 0.0) & (slope[held] > 0.0)]
    free = ~np.any(moves.basis[held] != 0.0, axis=0)
    push = moves.basis[:, free].T @ slope
    independent, actual = (float(np.trace(np.linalg.solve(covering, each))) for each in (plain, spread))
    ratios = others / np.maximum(np.linalg.norm(root[likelihood.n_on_matrix :], axis=1), TINY)
    return Sandwich(
        root,
        rank,
        smallest=float(values[largest_rank - 1] / max(error, TINY)),
        threshold=float(ratios[: likelihood.outcomes.n_cuts].min(initial=np.inf)),
        flip_rate=float(ratios[likelihood.outcomes.n_thresholds :].min(initial=np.inf)),
        distance=float(np.sqrt(n * max(float(push @ np.linalg.solve(information[np.ix_(free, free)], push)), 0.0))),
        independence=min(1.0, independent / max(actual, TINY)),
    )


def _information_and_spreads(
    likelihood: LabelLikelihood, parameters: FloatArray, dependence: Dependence, repeats: FloatArray
) -> tuple[LabelTerms, FloatArray, FloatArray, FloatArray]:
    """The terms of all rows, the information, and the covariance of the scores if independent, and as they depend."""
    # Strictness is drawn anew from its prior as judgements are, so that the prior has scores, too.
    terms, prior = likelihood.terms(parameters), likelihood.of_prior / float(repeats.sum())
    few, few_repeats = likelihood.thinned(repeats)
    few_terms = terms if few is likelihood else few.terms(parameters)
    plain = Dependence(None).spread(few, few_terms, few_repeats) + prior
    spread = plain if dependence.ids is None else dependence.spread(likelihood, terms, repeats) + prior
    return terms, few.information(parameters, few.shares, few_terms), plain, spread


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


def minimise(
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
    parameters, terms = start, likelihood.terms(start)
    loss, last = likelihood.loss(terms, start, weights), np.inf
    solve = None
    for _ in range(_FREE_STEPS):
        gradient = likelihood.gradient(terms, parameters, weights)
        if information is None:
            information, solve = likelihood.information(parameters, weights, terms), None
        if solve is None or rank is not None:
            solve = _inverse(information, parameters, gradient, likelihood.rows.n_columns, rank)
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
        length = _longest_step(likelihood, parameters, step)
        for _ in range(_FREE_HALVINGS):
            new = _of_rank(parameters + length * step, likelihood.rows.n_columns, rank)
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
    basis = None
    if rank is not None:
        (matrix, others), (slope, _) = packed.split(parameters, size), packed.split(gradient, size)
        values, vectors = np.linalg.eigh(matrix)
        moves = RankMoves.at(values[::-1], vectors[:, ::-1], rank, slope, n_more=len(others))
        basis, information = moves.basis, moves.information(information)
    values, vectors, scale = scaled_eigh(information)
    if not values[0] > _NEWTON_SINGULAR:
        return None
    root = vectors / np.sqrt(values) / scale[:, None]
    root = root if basis is None else basis @ root
    return np.asarray(root @ root.T)


def _of_rank(parameters: FloatArray, size: int, rank: int | None) -> FloatArray:
    """The parameters with the positive semidefinite M of this rank that is nearest; unchanged without a rank."""
    if rank is None:
        return parameters
    matrix, others = packed.split(parameters, size)
    values, vectors = np.linalg.eigh(matrix)
    factor = vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))
    return packed.join(factor @ factor.T, others)


def _longest_step(likelihood: LabelLikelihood, parameters: FloatArray, step: FloatArray) -> float:
    """At most one, and at most half of the way to an invalid flip rate."""
    length = 1.0
    for rate, along in zip(*(each[likelihood.n_on_margin :] for each in (parameters, step)), strict=True):
        if along != 0.0:
            room = _LARGEST_RATE - rate if along > 0 else rate
            length = float(min(length, 0.5 * room / abs(along)))
    return length


# ---------------------------------------------------------------------------------------------------------------------
# The optimum over all symmetric matrices: the centre of intervals if a fit is on the boundary of the metrics.


# The likelihood ratio test against the free optimum rejects the fit below this p-value.
_CONTRADICTED_P = 1e-3


def find_free_optimum(sample: Observed, facts: Sandwich, quantile: float) -> tuple[ParameterEllipsoid | None, bool]:
    """The optimum over all symmetric M and any tau, and whether the labels reject the fit; None: there is none."""
    n, likelihood = float(sample.repeats.sum()), sample.likelihood
    few, _ = likelihood.thinned(sample.repeats)
    near = None if few is likelihood else few.information(sample.parameters, few.shares)
    centre = minimise(likelihood, sample.parameters, likelihood.shares, n, near)
    if centre is None:
        return None, False
    _, information, plain, spread = _information_and_spreads(likelihood, centre, sample.dependence, sample.repeats)
    if _is_singular(information) or _vanishes(information, n * plain):
        return None, False
    root = np.asarray(np.linalg.solve(information, root_of(spread).T))
    losses = [likelihood.loss(likelihood.terms(each), each, likelihood.shares) for each in (sample.parameters, centre)]
    ratio = 2.0 * n * facts.independence * float(losses[0] - losses[1])
    n_more = packed.packed_size(sample.optimum.size - facts.rank) + int(0.0 in sample.fit.metric.thresholds)
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
    order = np.lexsort((likelihood.outcomes.codes, np.round(likelihood.margins(centre), 7)))
    left_out = sample.dependence.parts(sample.repeats, np.argsort(order).astype(np.float64), JACKKNIFE_PARTS, rng)
    kept = sample.likelihood.shares[:, None] * (1.0 - left_out / sample.repeats[:, None])
    left = kept.sum(axis=0)
    if not np.all(left > 0.0):
        return None  # one part contains a point of every pair
    kept /= left
    near = likelihood.information(centre, likelihood.shares)
    rank = sample.largest_rank if keeps_rank else None
    found = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(minimise)(likelihood, centre, weights, n, near, rank=rank) for weights in kept.T
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


@dataclass(frozen=True)
class Evidence:
    """The number of uncertain labels and of parameters; dependent labels count for less.

    `n_units` is the number of groups or points that make pairs dependent.
    """

    kind: Kind
    uncertain: float
    n_parameters: int
    n_observations: float
    estimates_flips: bool = False
    n_units: float = math.inf

    @classmethod
    def of(cls, sample: Observed, facts: Sandwich, *, keeps_rank: bool) -> Evidence:
        uncertain = sample.count_uncertain() * facts.independence
        n_parameters = sample.count_parameters(keeps_rank=keeps_rank)
        n_units = math.inf if sample.dependence.n_units is None else float(sample.dependence.n_units)
        n, flips = float(sample.repeats.sum()), sample.fit.known.estimates_flips
        return cls(sample.fit.kind, uncertain, n_parameters, n, flips, n_units)

    @property
    def per_parameter(self) -> float:
        return self.uncertain / self.n_parameters

    @property
    def many(self) -> float:
        """The uncertain labels per parameter from which on the sandwich alone is enough."""
        return max(_MANY_UNCERTAIN, float(self.n_parameters)) * (_TIMES_WITH_FLIPS if self.estimates_flips else 1.0)

    @property
    def is_plenty(self) -> bool:
        return min(self.uncertain, self.n_units) >= self.many * self.n_parameters

    def flaw(self, method: str) -> str | None:
        """Why there are too few labels for the intervals of a method; None if there are enough."""
        if self.is_plenty or (method == "jackknife" and self.per_parameter >= _INTERVAL_UNCERTAIN):
            return None
        if self.per_parameter >= _INTERVAL_UNCERTAIN:
            return (
                f"The {method} needs at least {self.many:.0f} uncertain {self.kind.term}s (and groups or points, if "
                f"any) per parameter; got {min(self.uncertain, self.n_units) / self.n_parameters:.1f}. Use "
                'method="jackknife".'
            )
        needed = self.n_observations * _INTERVAL_UNCERTAIN / max(self.per_parameter, 1e-3)
        dependent = f", dependent {self.kind.term}s for less" if math.isfinite(self.n_units) else ""
        return (
            f"Intervals need at least {_INTERVAL_UNCERTAIN:g} uncertain {self.kind.term}s per parameter; got "
            f"{self.per_parameter:.1f} ({self.uncertain:,.0f}, the sum of 4 p (1 - p), for {self.n_parameters:,} "
            f"parameters; weights count as repeats{dependent}). {self.kind.verb.capitalize()} about "
            f"{_rounded_up(needed):,} {self.kind.noun}s in total, or leave columns out."
        )


def boundary_of(facts: Sandwich, largest_rank: int) -> str | None:
    """Why the optimum may lie on the boundary of the feasible set; None if it is interior."""
    if facts.rank < largest_rank:
        return f"M has rank {facts.rank} of {largest_rank}"
    if not facts.smallest > _INTERIOR_Z:
        return f"the smallest eigenvalue of M is only {facts.smallest:.1f} standard errors above zero"
    if not facts.threshold > _INTERIOR_Z:
        return f"the threshold is only {facts.threshold:.1f} standard errors above zero"
    return None


def find_flaws(
    sample: Observed, facts: Sandwich, evidence: Evidence, method: str, *, keeps_rank: bool
) -> tuple[str, ...]:
    """The reasons why a method can't be valid, one sentence each; no refit helps."""
    flaws = []
    fit, dependence = sample.fit, sample.dependence
    if not fit.certificate.converged:
        flaws.append("The fit did not converge; see certificate_.status.")
    elif not facts.distance <= (_AT_OPTIMUM_Z if keeps_rank else _NEAR_OPTIMUM_Z):
        flaws.append(
            f"The fit is {facts.distance:.2g} standard errors from the optimum. Pass the {fit.kind.noun}s, "
            f"{fit.kind.term}s and weights that it was fitted to, or fit with a smaller " + setting("tol") + "."
        )
    if annotator_rates(fit, sample.judgements) is not None:
        flaws.append(_KNOWN_RATES)
    elif fit.known.estimates_flips and not (np.min(fit.metric.flip_rate) > 0 and facts.flip_rate > _INTERIOR_Z):
        flaws.append(_flaw_of_rates(fit.metric.flip_rate, fit.kind))
    too_few = evidence.flaw(method)
    if too_few is not None:
        flaws.append(too_few)
    if dependence.n_units is not None and dependence.n_units < _FEWEST_UNITS:
        what = "points" if dependence.by_points else "groups"
        flaws.append(f"Intervals need at least {_FEWEST_UNITS} {what}; got {dependence.n_units}. Add more {what}.")
    return tuple(flaws)


def _flaw_of_rates(flip_rate: FlipRate, kind: Kind) -> str:
    """What to do about an estimated flip rate close to zero."""
    if isinstance(flip_rate, tuple):
        known = tuple(round(rate, 3) if rate > min(flip_rate) else 0.0 for rate in flip_rate)
        return (
            f"The smaller of both flip rates, {min(flip_rate):.2g}, is within {_INTERIOR_Z:g} standard errors "
            "of zero, its boundary. Label more pairs, or set both, such as "
            + setting(flip_rate=known)
            + "; they are then treated as known."
        )
    return (
        f"The estimated flip rate, {flip_rate:.2g}, is within {_INTERIOR_Z:g} standard errors of zero, its "
        f"boundary. {_more(kind)} or, if {kind.term}s are never flipped, fit with " + setting(flip_rate=0) + "."
    )


def undetermined_statement(sample: Observed, *, has_penalty: bool) -> str:
    """State what the labels do not determine; `has_penalty` is about the fit that was asked about."""
    remark = "" if has_penalty else (" A penalty (" + setting("alpha") + " > 0) gives a metric, but no intervals.")
    kind = sample.fit.kind
    if sample.fit.is_quasi_separable and has_penalty:
        return (
            f"Not valid, and every interval is unbounded: one direction explains some {kind.term}s without exception, "
            f"so that without the penalty M grows without bound along it. {_more(kind)}."
        )
    if sample.fit.is_quasi_separable:
        return "Not valid, and every interval is unbounded: " + sample.fit.certificate.advice + remark
    where, why, there = "", f"all {kind.term}s can be explained without error", ""
    if not sample.fit.is_separable:
        where = f" along {name_columns(sample.fit.metric.column_names, _least_informed(sample))}"
        why, there = (
            f"no {kind.term} is informative there, or all that are can be explained without error",
            " that differ there",
        )
    return (
        f"Not valid: the {kind.noun}s do not determine the metric{where} ({why}), so every interval is unbounded. "
        f"{_more(kind)}{there}, or leave columns out." + remark
    )


def _least_informed(sample: Observed) -> FloatArray:
    """The combination of columns, each divided by its root mean square, that the labels determine least."""
    likelihood, coordinates = sample.likelihood, sample.optimum.coordinates
    _, vectors, scale = scaled_eigh(likelihood.information(sample.parameters, likelihood.shares))
    move = packed.unpack((vectors[:, 0] / scale)[: likelihood.n_on_matrix], likelihood.rows.n_columns)
    values, axes = np.linalg.eigh(move)
    return np.asarray(coordinates.scales * (coordinates.transform @ axes[:, np.argmax(np.abs(values))]))


def state(sample: Observed, facts: Sandwich, evidence: Evidence, method: str, boundary: str | None) -> str:
    """State what valid intervals of the sandwich or the jackknife are based on."""
    grouped = math.isfinite(evidence.n_units)
    term = sample.fit.kind.term
    if method == "jackknife":
        found, enough = f"{evidence.per_parameter:.1f} uncertain {term}s per parameter", f"{evidence.many:.0f}"
        if grouped:
            units = "points" if sample.dependence.by_points else "groups"
            found = f"{evidence.n_units / evidence.n_parameters:.1f} {units} and {found} (dependent {term}s count less)"
            enough += " of each"
        statement = (
            f"Each interval contains that of the sandwich and that of a jackknife of {JACKKNIFE_PARTS} fits, which "
            f"corrects the bias with only {found}; from {enough} on the sandwich is enough."
        )
    else:
        threshold = f", the threshold {facts.threshold:.1f}" if math.isfinite(facts.threshold) else ""
        interior = (
            f": the optimum is interior (the smallest eigenvalue of M is {facts.smallest:.1f} standard errors above "
            f"zero{threshold})"
        )
        statement = f"Sandwich standard errors from the observed information{interior if boundary is None else ''}."
    chosen = sample.fit.chose_rank and sample.largest_rank < sample.optimum.size
    if boundary is not None or chosen:
        reason = boundary if boundary is not None else f"the rank was chosen from these {term}s"
        statement += (
            f" Since {reason}, intervals are centred at the optimum over all symmetric matrices, which has no "
            "boundary, and extended to contain the fit's own estimate."
        )
    elif sample.knows_rank:
        statement += f" Rank {sample.largest_rank} is treated as known."
    return statement


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
    interval also allows for the bias of the fit.  For more than 100,000 pairs, a sample that represents
    all gives the standard errors to within about one percent; it depends on the order of the pairs.

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
        boundary = boundary_of(facts, sample.largest_rank)
        keeps_rank = sample.knows_rank and boundary is None
        evidence = Evidence.of(sample, facts, keeps_rank=keeps_rank)
        wanted = method if method != "auto" else "sandwich" if evidence.is_plenty else "jackknife"
        flaws = find_flaws(sample, facts, evidence, wanted, keeps_rank=keeps_rank)
        around, remark, is_skipped = at_fit, "", bool(flaws) and wanted != "sandwich"
        if not flaws:
            around, flaws, remark = _centre(sample, facts, at_fit, boundary, keeps_rank=keeps_rank)
        reaches = (around,)
        if wanted == "jackknife" and not flaws:
            centre = sample.parameters + around.shift
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
            statement = state(sample, facts, evidence, method, boundary) + remark
    transform, likelihood = sample.optimum.coordinates.transform, sample.likelihood
    spread = Spread(reaches, transform, likelihood.outcomes.n_thresholds, likelihood.n_rates)
    metric = sample.fit.metric
    thresholds = spread.thresholds(metric)
    one = (getattr(thresholds, end)[0] for end in _ENDS)
    return Confidence(
        method=method,
        valid=not flaws,
        flaws=flaws,
        statement=statement + _remarks(fit, sample, is_determined=method != "none"),
        level=float(level),
        metric=metric,
        threshold=Interval(*one) if len(metric.thresholds) == 1 else None,
        thresholds=thresholds,
        directions=spread.directions(sample.optimum.matrix),
        matrix=spread.matrix(metric),
        eigenvalues=spread.eigenvalues(metric),
        relative_matrix=spread.relative_matrix(metric),
        flip_rate=spread.flip_rate(metric),
        _spread=spread,
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


def _centre(
    sample: Observed, facts: Sandwich, at_fit: ParameterEllipsoid, boundary: str | None, *, keeps_rank: bool
) -> tuple[ParameterEllipsoid, tuple[str, ...], str]:
    """The sandwich at the fit or, if that is not in the interior, at the free optimum; flaws, and a remark."""
    kind, has_all_ranks = sample.fit.kind, sample.largest_rank == sample.optimum.size
    if boundary is None and has_all_ranks and facts.distance <= _AT_OPTIMUM_Z:
        return at_fit, (), ""
    free, contradicts = find_free_optimum(sample, facts, at_fit.quantile)
    if keeps_rank:
        remark = (
            f" The {kind.term}s contradict it, so intervals are for the best metric of that rank, not for the M that "
            "generated them."
        )
        return at_fit, (), remark if contradicts else ""
    if free is None:
        flaw = (
            f"M is on the boundary of the positive semidefinite matrices, and without that constraint the {kind.term}s "
            f"do not determine it. {_more(kind)}, leave columns out, or set the rank."
        )
        return at_fit, (flaw,), ""
    if has_all_ranks and contradicts:
        flaw = (
            f"The {kind.term}s contradict the model: an M with negative eigenvalues, which is not a metric, explains "
            f"them far better. Check which {kind.term} means far, and see "
            + either("diagnose()", "the warnings of the report")
            + ". With "
            + either("rank=...", "--rank")
            + ", intervals are for the best metric of that rank."
        )
        return at_fit, (flaw,), ""
    return free, (), ""


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
    n = len(sample.fit.metric.factor) - sample.optimum.size
    plural = "s" if n > 1 else ""
    return remarks + (f" The {fit.kind.noun}s do not vary in {n} direction{plural}; M is zero there." if n > 0 else "")
