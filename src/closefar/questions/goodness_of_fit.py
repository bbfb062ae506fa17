"""Does the model fit?  Calibration, the check of the noise model, and tests of what else labels may depend on.

A test is about sums of residuals, one per question.  They are adjusted for what a step of the
parameters explains (Neyman's C(alpha); at the maximum of the likelihood the chi-square of Rao and
Robson), and for their bias: with few uncertain labels per parameter, a fit overfits its labels,
which would look like misfit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.stats import cauchy, chi2, norm

from closefar.arrays import TINY, TURNED, BoolArray, FloatArray, IndexArray, as_float64, is_indexed, is_source, to_numpy
from closefar.errors import either, setting, words_of
from closefar.fitting import Fit, Fitted, choose_noise, count_uncertain, fit, score, without_penalty
from closefar.judgements import Judgements, Kind, Tuples, effective_number, find_points, sample_rows
from closefar.model import ZERO, Metric, Scores
from closefar.noise import NOISES, Noise, flip_mixture, has_flips
from closefar.packed import form_gradients
from closefar.plot_style import COLOURS, REFERENCE, add_legend, axes_or_new
from closefar.questions.dependence import Dependence, points_of_legs, units_of_all, units_with_comparisons
from closefar.questions.likelihood import (
    MOST_MOVES,
    LabelModel,
    Moves,
    combined_legs,
    pseudo_inverse,
    read_for,
    scaled_eigh,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---------------------------------------------------------------------------------------------------------------------
# Bins of about equal weight.


# Cumulative shares of weights are sums of up to millions of numbers: they are off by about this much.
_SHARE_ROUNDING = 1e-12


def weighted_bins(values: FloatArray, weights: FloatArray, n_bins: int) -> IndexArray:
    """Return the bin of each value, numbered from 0 at the smallest, all of about the same weight.

    Equal values share a bin, so their order never matters; there may be fewer than `n_bins` bins.
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    wanted = np.arange(1, n_bins) / n_bins
    edges = np.unique(values[order][np.searchsorted(share, wanted - _SHARE_ROUNDING)])
    bins = np.searchsorted(edges, values, side="right")
    return np.unique(bins, return_inverse=True)[1]


# ---------------------------------------------------------------------------------------------------------------------
# Judgements of every kind as answers to questions with two sides, which are tested like close/far labels.
#
# Levels are asked whether they are at least k, for each k: that is a close/far label with the threshold of level k.
# A comparison turned round is the same comparison, so each is turned such that its margin is positive.


COMPARED = "comparisons"


def turned(scored: Scores) -> Scores:
    """The comparisons turned such that each margin is positive: is_far then says whether the answer agrees with it."""
    judgements, turn = scored.judgements, scored.margin < 0
    data: Any = judgements.data
    order = TURNED[int(data.shape[1])]
    if is_indexed(data):
        index = to_numpy(data.index)
        data = Tuples(data.points, np.where(turn[:, None], index[:, order], index))
    else:
        values = to_numpy(data)
        data = np.where(turn[:, None, None], values[:, order], values)
    given = replace(judgements, data=data, codes=(judgements.is_far != turn).view(np.int8))
    return replace(scored, judgements=given, margins=np.abs(scored.margins))


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs with about the same probability of far: its mean, the share labelled far with a 95% interval, and a count.

    If the interval does not contain `predicted`, the probabilities are miscalibrated beyond chance.
    """

    predicted: float
    observed: float
    low: float
    high: float
    count: int
    weight: float

    @property
    def is_within_chance(self) -> bool:
        return self.low <= self.predicted <= self.high


def calibrate(scored: Scores, n_bins: int) -> list[CalibrationBin]:
    """Compare probabilities with labels in bins of about equal weight."""
    probability, judgements = scored.probability_far, scored.judgements
    bins = weighted_bins(probability, judgements.weights, n_bins)
    found = []
    for index in range(int(bins.max()) + 1):
        inside = bins == index
        weights = judgements.weights[inside]
        observed = float(np.average(judgements.is_far[inside], weights=weights))
        low, high = wilson(observed, effective_number(weights))
        predicted = float(np.average(probability[inside], weights=weights))
        found.append(CalibrationBin(predicted, observed, low, high, int(inside.sum()), float(weights.sum())))
    return found


def sides_of(scored: Scores) -> list[Scores]:
    """Judgements of two sides: the dichotomies of levels, and comparisons turned so that the likelier answer is far."""
    return [turned(each) if each.judgements.kind is Kind.COMPARISONS else each for each in scored.dichotomies]


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95% interval for a share of n independent pairs."""
    z2 = 1.96**2
    centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n)
    reach = 1.96 / (1.0 + z2 / n) * float(np.sqrt(share * (1.0 - share) / n + z2 / (4.0 * n * n)))
    return min(max(centre - reach, 0.0), share), max(min(centre + reach, 1.0), share)


# ---------------------------------------------------------------------------------------------------------------------
# The quantile of a weighted sum of labels, accurate in the tails and if a few labels dominate.


# At this tilt, the sum of labels, whose standard deviation is one, is at the end of its support.
_LARGEST_TILT = 120.0

# Closer to the mean than this, the normal distribution is as good, and the formula is 0 / 0.
_NEAR_MEAN = 0.05


def as_standard_normal(total: float, weights: FloatArray, model: LabelModel) -> float:
    """Return the quantile of the normal distribution that corresponds to a sum of weighted residuals of labels.

    `total` is in standard deviations.  This is r* = r + log(u / r) / r of the saddlepoint
    approximation (Barndorff-Nielsen), from the cumulants of independent labels, if that is closer to
    zero: on the side where the support ends early, a small error in `total` would have a large effect.
    """
    weights = weights / np.sqrt(np.sum(weights**2 * model.variance))
    tilt = float(np.copysign(_LARGEST_TILT, total))
    if total and abs(_tilted(tilt, weights, model)[1]) > abs(total):
        tilt = brentq(lambda tilt: _tilted(tilt, weights, model)[1] - total, 0.0, tilt)
    log_moment, _, variance = _tilted(tilt, weights, model)
    r = np.sign(tilt) * np.sqrt(max(2.0 * (tilt * total - log_moment), 0.0))
    if not total or abs(r) < _NEAR_MEAN:
        return total
    quantile = r + np.log(max(tilt * np.sqrt(variance) / r, TINY)) / r
    return float(np.sign(total) * min(abs(total), max(np.sign(total) * quantile, 0.0)))


def _tilted(tilt: float, weights: FloatArray, model: LabelModel) -> tuple[float, float, float]:
    """The log of the moment generating function of the sum, and its first two derivatives."""
    up, down = tilt * weights * model.close, -tilt * weights * model.far
    larger = np.maximum(up, down)
    far, close = model.far * np.exp(up - larger), model.close * np.exp(down - larger)
    share = far / (far + close)
    log_moment = float(np.sum(larger + np.log(far + close)))
    return log_moment, float(weights @ (share - model.far)), float(weights**2 @ (share * (1.0 - share)))


# A direction of the questions is omitted if the fit explains all but this share of it.
_LEAST_UNEXPLAINED_SHARE = 1e-3

# A question is already part of the model if less than this share of its variance remains: rounding leaves up to 1e-8.
_LEAST_VARIANCE_SHARE = 1e-6

# Fisher scoring towards the maximum likelihood ends once the next step would raise the log-likelihood by less than
# this: 1e-3 is 4% of a standard error.  It starts near, at a penalised fit: a few steps and halvings suffice.
_SCORING_GAIN = 1e-3
_SCORING_STEPS = 15  # a few are usual
_SCORING_HALVINGS = 8  # the step is then below 1% of what was asked
_LARGEST_SCORED_RATE = 0.49  # of flips: at one half, labels say nothing

# Questions weight a pair as if this share of labels were flipped, so that no single margin can decide a test.
_VARIANCE_FLOOR = 0.02


def _damped(questions: FloatArray, model: LabelModel) -> FloatArray:
    """Questions, a column each, divided by the variance of each label plus the floor."""
    return np.asarray((questions.T / (model.variance + _VARIANCE_FLOOR)).T)


class ScoreTest(NamedTuple):
    """A chi-square statistic, its degrees of freedom and its p-value."""

    statistic: float
    dof: int
    p_value: float


@dataclass(frozen=True, eq=False)
class LabelScores:
    """Answers to one question with two sides, scored, and the derivatives of P(far) in the parameters.

    These are `moves`, a threshold, which comparisons have not, the strictness of each annotator, without its prior, and
    the flip rates that were estimated: none, one, or those of close and of far.  Only ratios of weights matter.

    Attributes
    ----------
    name : str
        What is asked; empty for close/far labels.
    fit : Fit
    scored : Scores
    dependence : Dependence
    n_rates : int
        How many flip rates were estimated with the metric.
    moves : Moves
    """

    name: str
    fit: Fit
    scored: Scores
    dependence: Dependence
    n_rates: int
    moves: Moves

    @property
    def judgements(self) -> Judgements:
        return self.scored.judgements

    @property
    def n_thresholds(self) -> int:
        return int(self.judgements.kind is not Kind.COMPARISONS)

    @cached_property
    def model(self) -> LabelModel:
        return LabelModel.at(self.scored.margin, self.scored.noise, self.scored.flip_rate)

    @cached_property
    def residual(self) -> FloatArray:
        return self.model.residual(self.judgements.is_far)

    @cached_property
    def weights(self) -> FloatArray:
        return np.asarray(self.judgements.weights / self.judgements.weights.mean())

    @property
    def n_on_margin(self) -> int:
        """The number of parameters that margins depend on."""
        who = self.judgements.annotators
        return len(self.moves) + self.n_thresholds + (0 if who is None else len(who.names))

    @property
    def n_parameters(self) -> int:
        return self.n_on_margin + self.n_rates

    @property
    def uncertain_per_parameter(self) -> float:
        return count_uncertain(self.scored) / self.n_parameters

    def margin_blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin in each parameter that it depends on, one row per judgement."""
        rows, who, n = self.moves.rows(self.judgements.data), self.judgements.annotators, len(self.moves)
        annotators = (None, 0) if who is None else (who.codes, len(who.names))
        for where, slopes in self.moves.slopes(rows, self.n_thresholds, *annotators):
            slopes[:, n : n + self.n_thresholds] = -1.0
            yield where, slopes

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of P(far) in each parameter, one row per judgement."""
        in_rates = self.model.flip_slopes(self.n_rates)
        for where, along in self.margin_blocks():
            yield where, np.hstack([along * self.model.slope[where, None], in_rates[where]])

    def curvature(self, covariance: FloatArray) -> FloatArray:
        """For each row the trace of the second derivatives of P(far) in the parameters times their covariance."""
        n, found = self.n_on_margin, np.empty(len(self.weights))
        # A flip rate lowers the share of labels that depend on the margin, two rates by one half of that each.
        mixed = -2.0 / max(self.n_rates, 1) * self.model.slope / flip_mixture(self.scored.flip_rate, 2)[1]
        for where, along in self.margin_blocks():
            found[where] = self.model.curvature[where] * np.einsum("ij,ij->i", along @ covariance[:n, :n], along)
            found[where] += 2.0 * mixed[where] * np.sum(along @ covariance[:n, n:], axis=1)
        return found

    @cached_property
    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The information, the covariance of the scores, and their sum."""
        n, variance = self.n_parameters, self.model.variance
        information, spread, score = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)
        for where, slopes in self.blocks():
            scaled = slopes * (self.weights / variance)[where, None]
            information += slopes.T @ scaled
            spread += scaled.T @ (scaled * variance[where, None])
            score += self.residual[where] @ scaled
        return information, spread, score

    @cached_property
    def fitted(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What every question needs: the inverse information and, per row, tr(P'' S) and the variance of the label.

        S is the covariance of the parameters; the variance is corrected for overfitting by a fit to these labels.
        """
        model, (information, spread, _) = self.model, self.sums
        inverse = pseudo_inverse(information)
        covariance = inverse @ spread @ inverse
        curvature, bias = self.curvature(covariance), np.zeros(self.n_parameters)
        for where, slopes in self.blocks():
            bias += slopes.T @ (self.weights / model.variance * curvature)[where]
        far, widened = np.empty(len(curvature)), np.empty(len(curvature))
        for where, slopes in self.blocks():
            far[where] = model.far[where] + 0.5 * (slopes @ (inverse @ bias) - curvature[where])
            widened[where] = np.einsum("ij,ij->i", slopes @ covariance, slopes)
        far = np.clip(far, 0.0, 1.0)
        return inverse, curvature, np.maximum(far * (1.0 - far) + widened, model.variance)

    def at_optimum(self) -> LabelScores:
        """The same at the maximum likelihood for these labels, where a fit without a penalty already is.

        Steps of Fisher scoring are halved until the loss is lower.
        """
        here, n = self, self.n_on_margin
        for _ in range(_SCORING_STEPS):
            scored, (information, _, score) = here.scored, here.sums
            step = pseudo_inverse(information) @ score
            if 0.5 * step @ score < _SCORING_GAIN:
                break
            change = np.concatenate([block @ step[:n] for _, block in here.margin_blocks()])[:, None]
            for size in 0.5 ** np.arange(_SCORING_HALVINGS):
                rates = scored.flip_rate
                if self.n_rates:
                    moved = np.clip(np.ravel(rates) + size * step[n:], 0.0, _LARGEST_SCORED_RATE).tolist()
                    rates = tuple(moved) if self.n_rates > 1 else moved[0]
                changed = replace(scored, margins=scored.margins + size * change, flip_rate=rates)
                if changed.loss < scored.loss:
                    break
            else:
                break
            here = replace(here, scored=changed)
        return here


def questions_of(
    fit: Fit, judgements: Judgements, ids: NDArray[Any] | None, *, keeps_rank: bool = True
) -> Iterator[LabelScores]:
    """The questions that these judgements answer.

    `ids` are the groups or points of all judgements; attached comparisons come last.
    """
    is_estimated = fit.known.estimates_flips or (fit.settings.flip_rate == "auto" and has_flips(fit.flip_rate))
    n, parts = len(judgements), [replace(judgements, comparisons=None)]
    parts += [] if judgements.comparisons is None else [judgements.comparisons]
    for part, where in zip(parts, (slice(n), slice(n, None)), strict=False):
        names, n_rates = [""], int(np.size(fit.metric.flip_rate)) if is_estimated else 0
        if part.kind is Kind.COMPARISONS:
            names, n_rates = [COMPARED], min(n_rates, 1)
        elif part.kind is Kind.LEVELS:
            names = [f"level >= {name}" for name in part.sides.classes.tolist()[1:]]
            # The flip rate of levels gives both sides of a dichotomy rates of their own.
            n_rates = 2 * int(n_rates > 0) if part.n_levels > 2 else n_rates
        dependence = Dependence(None if ids is None else ids[where])
        moves = Moves.of(fit, part, keeps_rank=keeps_rank)
        for name, scored in zip(names, sides_of(score(fit, part)), strict=True):
            yield LabelScores(name, fit, scored, dependence, n_rates, moves)


@dataclass(frozen=True, eq=False)
class AdjustedSums:
    """Sums of residuals, one per question, minus what the parameters explain.

    Attributes
    ----------
    sums : array of shape (k,)
        They have expectation zero if the model is correct.
    covariance : array of shape (k, k)
    left : array of shape (n, k)
        The remainder of each question for each pair, times its weight.
    model : LabelModel
    """

    sums: FloatArray
    covariance: FloatArray
    left: FloatArray
    model: LabelModel

    @classmethod
    def of(cls, questions: FloatArray, scores: LabelScores) -> AdjustedSums:
        """Sum c e over the pairs for each column c of `questions`, where e is the residual of the label, of variance v.

        With p the derivative of P(far) in the parameters and H = sum p p' / v, the sum of
        (c - (sum c p') H^-1 p / v) e does not change, to first order, with the parameters.  To
        second order its expectation is that of -1/2 (c - ...) tr(P'' S), with S their covariance.
        """
        model, weights, variance = scores.model, scores.weights, scores.model.variance
        cross = np.zeros((scores.n_parameters, questions.shape[1]))
        for where, slopes in scores.blocks():
            cross += slopes.T @ (weights[where, None] * questions[where])
        (inverse, curvature, unbiased), left = scores.fitted, np.empty(questions.shape)
        explained = inverse @ cross
        for where, slopes in scores.blocks():
            left[where] = weights[where, None] * (questions[where] - slopes @ explained / variance[where, None])
        asked = (weights**2 * variance) @ questions**2
        left[:, variance @ left**2 <= _LEAST_VARIANCE_SHARE * asked] = 0.0
        sums = left.T @ (scores.residual + 0.5 * curvature)
        return cls(sums, _covariance(left * np.sqrt(unbiased)[:, None], scores), left, model)

    def chi_square(self, columns: BoolArray, *, more_dof: int = 0) -> ScoreTest:
        """Test these questions jointly, with `more_dof` additional degrees of freedom.

        If a few pairs dominate, large statistics are more frequent.  The variance of the statistic
        follows from the kurtosis of labels, and its distribution is approximated by a chi-square with
        that variance.
        """
        values, vectors, scale = scaled_eigh(self.covariance[np.ix_(columns, columns)])
        keep = values > _LEAST_UNEXPLAINED_SHARE * max(values[-1], 0.0)
        if not np.any(keep):
            return ScoreTest(0.0, 0, 1.0)
        root = vectors[:, keep] / np.sqrt(values[keep]) / scale[:, None]
        statistic, dof = float(np.sum((self.sums[columns] @ root) ** 2)), int(np.sum(keep))
        influence, variance = np.sum((self.left[:, columns] @ root) ** 2, axis=1), self.model.variance
        ratio = 1.0 + max(float(np.sum(influence**2 * variance * (1.0 - 6.0 * variance))) / (2.0 * dof), 0.0)
        return ScoreTest(statistic, dof, float(chi2.sf(statistic / ratio, (dof + more_dof) / ratio)))

    def z(self, along: FloatArray) -> float:
        """A combination of the sums as a z score."""
        deviation = float(np.sqrt(max(float(along @ self.covariance @ along), 0.0)))
        if deviation == 0.0:
            return 0.0
        return as_standard_normal(float(along @ self.sums) / deviation, self.left @ along, self.model)


def combine(*p_values: float) -> float:
    """Combine p-values that may depend on each other, by the Cauchy combination test (Liu and Xie 2020).

    A p-value near 1 must not outweigh small ones, so each counts as one half at most.
    """
    bounded = np.clip(p_values, TINY, min(max(0.5, min(p_values)), 1.0 - 1e-9))
    return float(cauchy.sf(np.mean(1.0 / np.tan(np.pi * bounded))))


def _covariance(spread: FloatArray, scores: LabelScores) -> FloatArray:
    """The covariance of the sums, from the standard deviation of each term.

    Labels that depend on each other are assumed to be equally correlated, as much as their residuals
    are.  Sums of residuals over units would be larger if labels do not fit, and hide the misfit.
    """
    covariance: FloatArray = spread.T @ spread
    residual, deviation = scores.residual[:, None], np.sqrt(scores.model.variance)[:, None]
    cross_sums = scores.dependence.cross_sums
    for product, largest, cross in zip(*map(cross_sums, (residual, deviation, spread)), strict=True):
        correlation = float(np.clip(product[0, 0] / max(largest[0, 0], TINY), 0.0, 1.0))
        covariance += correlation * cross
    return covariance


# ---------------------------------------------------------------------------------------------------------------------
# Whether the labels of a fit are enough to test it.


# Uncertain labels per parameter: down to this number, correct models were rejected at the nominal rate in simulations.
_TESTABLE_UNCERTAIN = 3.0

# The correlation within groups has an error of about one third of itself with this many groups.
_TESTABLE_UNITS = 20

# What this many pairs do not show is too small to matter, and more would take long.
_MOST_TESTED = 30_000


def check_testable(fit: Fit) -> None:
    """Raise an error for fits whose probabilities do not estimate those of the labels."""
    if fit.is_metric_alone:
        raise ValueError(
            "the noise model can be checked only for a fit; got a metric that was truncated, or stored without its "
            "fit. Fit a learner to check it."
        )
    if fit.settings.class_weight is not None:
        raise ValueError(
            either("class_weight must be None", "--balanced must be left out")
            + " to check the noise model, since it changes the probabilities; got "
            f"{fit.settings.class_weight!r}. Fit without it to check."
        )
    if fit.annotators is not None and fit.annotators.flip_rates is not None:
        raise ValueError(
            "the noise model can't be checked if each annotator has a flip rate, since these are shrunk, "
            "and what is left of them looks like noise of another kind. Leave out annotators who answer "
            "at random, and fit with " + setting(flip_rate=0) + "."
        )
    if fit.is_separable:
        raise ValueError(
            f"the noise model can't be checked if the metric gets every {fit.kind.term} right, since the scale of the "
            f"margins is then arbitrary. {fit.kind.verb.capitalize()} more {fit.kind.noun}s."
        )


def check_certain_enough(scores: LabelScores, what: str) -> None:
    """Raise an error if the fit adapts so closely to its labels that no correction is enough."""
    found = scores.uncertain_per_parameter
    if scores.moves.is_partial:
        raise ValueError(
            f"{what} can't be checked with more than {MOST_MOVES} free parameters. "
            "Limit the rank, or leave columns out."
        )
    if found < _TESTABLE_UNCERTAIN:
        kind = scores.scored.judgements.kind
        raise ValueError(
            f"{what} can't be checked with these {len(scores.scored):,} {kind.noun}s: there must be at least "
            f"{_TESTABLE_UNCERTAIN:g} uncertain {kind.term}s per parameter; got {found:.1f} ({scores.n_parameters} "
            f"parameters). {kind.verb.capitalize()} more {kind.noun}s, limit the rank, or leave columns out."
        )


def check_units(dependence: Dependence) -> None:
    """Raise an error if there are too few groups to estimate dependence."""
    if dependence.n_units is not None and dependence.n_units < _TESTABLE_UNITS:
        raise ValueError(
            either("groups must be", "--group must name")
            + f" at least {_TESTABLE_UNITS} groups or points, to estimate how much labels depend on them; got "
            f"{dependence.n_units}."
        )


# ---------------------------------------------------------------------------------------------------------------------
# What to do if the labels do not fit the noise model.


DOUBT = 0.05  # a p-value below this is evidence against the model
_TAIL_Z = 2.0  # 5% of correct models have a larger one, to either side
_SMALLEST_P_SHOWN = 0.0001  # a limit of the display

# Another noise is recommended if its loss is lower by this many standard errors (Vuong's test at 5%), and flips or
# logarithms if they raise the log-likelihood by this much (the likelihood ratio test of one parameter at 5%).
_VUONG_Z = 1.96
_LIKELIHOOD_GAIN = 2.0  # half of 1.96 squared

_METRIC_MAY_MISFIT = "The metric itself may not fit: " + either("diagnose()", "the report") + " tests what else "


def advise_noise(asked: LabelScores, p_value: float, tail_z: float) -> str:
    """Recommend the noise that describes the labels clearly better, if there is one and it is not set already."""
    noise, kind = asked.scored.noise, asked.judgements.kind
    may_misfit = _METRIC_MAY_MISFIT + f"the {kind.term}s depend on."
    if p_value >= DOUBT:
        return f"No evidence against {noise.name} noise ({show_p_value(p_value)})."
    found = f"The {kind.term}s do not fit {noise.name} noise ({show_p_value(p_value)}): "
    better = better_noise(asked.scored)
    many = "more" if tail_z > 0 else "fewer"
    if better is not None and better.noise == noise and not asked.n_rates:
        return found + "some are wrong even at the largest margins. Try " + setting(flip_rate="estimate") + "."
    if better is not None and better.noise != noise and asked.fit.settings.noise != "auto":
        return found + f"{many} than expected are wrong at large margins. Try " + setting(noise=better.noise.name) + "."
    if abs(tail_z) > _TAIL_Z:
        return found + (
            f"{many} than expected are wrong at large margins, but no other noise fits clearly better. " + may_misfit
        )
    which = "answers agree with the metric" if kind is Kind.COMPARISONS else "are far"
    return found + f"at some margins too many or too few {which}. " + may_misfit


def better_noise(scored: Scores) -> Scores | None:
    """The same judgements under noise that fits clearly better (flips, or another kind), or None."""
    noise, weights = scored.noise, scored.judgements.weights
    others = {name: refitted(scored, other) for name, other in {**NOISES, noise.name: noise}.items()}
    choice = choose_noise({name: other.losses for name, other in others.items()}, weights)
    own, best = choice.comparison[noise.name], choice.comparison[choice.name]
    flipped = refitted(scored, noise, estimate_flips=True)
    gains = effective_number(weights) * (np.array([own["loss"], best["loss"]]) - flipped.loss)
    if gains[0] > _LIKELIHOOD_GAIN and gains[1] > 0.5 * _LIKELIHOOD_GAIN:
        return flipped
    return others[choice.name] if own["z"] > _VUONG_Z else None


def refitted(scored: Scores, noise: Noise, *, estimate_flips: bool = False) -> Scores:
    """The same judgements under another noise; only a scale and a shift of the margins are fitted again.

    Comparisons have no threshold that could shift.  Flips that are estimated replace those of the fit.
    """
    known = scored.flip_rate

    def at(parameters: FloatArray) -> Scores:
        scale, shift, rate = parameters
        rates = float(rate) if estimate_flips else known
        return replace(scored, margins=np.exp(scale) * scored.margins - shift, noise=noise, flip_rate=rates)

    near = float(np.mean(known))
    start = [0.0, 0.0, max(near, 0.02) if estimate_flips else 0.0]
    rates = (0.0, 0.49) if estimate_flips else (0.0, 0.0)
    shifts = (0.0, 0.0) if scored.judgements.kind is Kind.COMPARISONS else (None, None)
    bounds = ((-4.0, 4.0), shifts, rates)
    return at(minimize(lambda parameters: at(parameters).loss, start, method="L-BFGS-B", bounds=bounds).x)


def show_p_value(value: float) -> str:
    return f"p = {value:.2g}" if value >= _SMALLEST_P_SHOWN else f"p < {_SMALLEST_P_SHOWN:g}"


_NOISE_BINS = 10  # of about equal weight: a limit of the display

# Neighbouring bins are merged until the variance of their number of far labels is this large: from about five expected
# on, the chi-square distribution is accurate (Cochran 1954).
_LEAST_BIN_VARIANCE = 5.0


@dataclass(frozen=True)
class NoiseBin:
    """The pairs in one range of margins: mean margin, total weight, observed and expected share far.

    `z` is (observed - expected) / `error`, approximately standard normal if the model is correct.
    """

    margin: float
    count: float
    observed: float
    expected: float
    error: float
    z: float


@dataclass(frozen=True)
class NoiseCheck:
    """Whether the share of far labels at each margin agrees with the noise model.

    For levels there is a check of each threshold, and with attached comparisons also one of these, in `parts`.  The
    p-value is that of all of them combined, and everything else is that of the part with the smallest.

    Attributes
    ----------
    p_value : float
        The p-value of both tests combined.
    statistic, dof : float, int
        The chi-square statistic of all bins, and its degrees of freedom.
    tail_z : float
        The test of the tails, standard normal if the model is correct: positive if labels that
        contradict a large margin are more frequent than expected.
    bins : tuple of NoiseBin
        Ordered from the smallest margin to the largest.
    advice : str
        The result, and what to do.
    question : str
        What far means in it: empty for close/far labels, otherwise such as "level >= 2", or "comparisons", where it
        means that the answer agrees with the margin.
    parts : tuple of NoiseCheck
        The checks that were combined, if there are several.
    """

    p_value: float
    statistic: float
    dof: int
    tail_z: float
    bins: tuple[NoiseBin, ...]
    advice: str
    question: str = ""
    parts: tuple[NoiseCheck, ...] = ()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot observed minus expected share far by margin, with a 95% band for a correct model.

        Of several parts, this is the one with the smallest p-value; each can be plotted by itself.
        """
        ax = axes_or_new(ax)
        margin = np.array([row.margin for row in self.bins])
        band = 1.96 * np.array([row.error for row in self.bins])
        ax.fill_between(margin, -band, band, color=COLOURS[0], alpha=0.2, linewidth=0, label="95% band if correct")
        ax.axhline(0.0, color=REFERENCE, linewidth=0.8, linestyle="--")
        difference = [row.observed - row.expected for row in self.bins]
        ax.plot(margin, difference, "o-", color=COLOURS[0], label="these labels")
        question = f" ({self.question})" if self.question else ""
        title = f"Noise model{question}, {show_p_value(self.p_value)}"
        share = {"": "share far", COMPARED: "share agreeing"}.get(self.question, f"share of {self.question}")
        ax.set(xlabel="margin", ylabel=f"{share}: observed - expected", title=title)
        add_legend(ax)
        return ax


def check_noise_model(
    learner: Fit | Fitted,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    annotators: Any = None,
    comparisons: Any = None,
    groups: Any = None,
    n_bins: int = _NOISE_BINS,
) -> NoiseCheck:
    """Test whether the share of far labels at each margin agrees with the fitted model.

    This combines two tests: a chi-square test of the share far in bins of the margin, and a test of
    labels that contradict large margins, which distinguishes light-tailed from heavy-tailed noise.
    Both are score tests, corrected for the bias with few labels.  They account for the fit of
    (M, tau), so they are valid for the training pairs, for other pairs, and for any `alpha`.

    Levels are tested at each threshold: whether a level is at least k is a close/far label with the threshold of
    level k.  Comparisons have no threshold, and are tested by whether their answers agree with the metric.  The
    p-values of several tests are combined by the Cauchy combination test, which is valid although they share their
    rows.  The margins of annotators are from their own thresholds, and their strictness is part of what is fitted.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A fitted learner without `class_weight`.
    X, y, annotators, comparisons : optional
        In any form that `learner.fit` accepts; by default those of training.
    sample_weight : array of n numbers >= 0, optional
        The weight of each pair; only ratios matter.  A weight of 2 is one label that counts
        twice, not two labels.
    groups : array of shape (n,) or (n, 2), optional
        Which pairs are not independent: a group id per pair, or the ids of its two points.  By
        default, pairs that share a point are dependent, if `X` holds both points of each pair.
    n_bins : int, default=10
        The number of bins of about equal weight; neighbours with too little variance are merged.

    Returns
    -------
    NoiseCheck

    Raises
    ------
    ValueError
        If the labels are not enough: the metric gets every label right, there are fewer than 3
        uncertain labels per parameter, or fewer than 20 groups or points.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(5000, 4, noise="flips", random_state=0)
    >>> learner = cf.LinearMetricLearner(flip_rate=0).fit(pairs, labels)
    >>> cf.check_noise_model(learner).p_value < 0.001
    True
    """
    fit = Fit.of(learner)
    check_testable(fit)
    if n_bins < 2:
        raise ValueError(f"n_bins must be a whole number >= 2; got {n_bins!r}.")
    judgements = read_for(fit, X, y, sample_weight, annotators, comparisons)
    judgements.check_both_count()
    ids, counted = units_of_all(groups, judgements, stacklevel=3), judgements.counted()
    found, refused = [], []
    ids = ids if ids is None else ids[judgements.all_weights > 0]
    # A penalty moves M away from the optimum, and can remove directions that the labels support.
    for asked in questions_of(fit, counted, ids, keeps_rank=fit.alpha == 0):
        try:
            check_units(asked.dependence)
            scores = asked.at_optimum()
            check_certain_enough(scores, "the noise model")
            found.append(_check(scores, n_bins))
        except ValueError as error:
            refused.append((asked.name, words_of(error)))
    if not found:
        raise ValueError(refused[0][1])
    check = min(found, key=lambda part: part.p_value)
    p_value, advice = combine(*(part.p_value for part in found)), check.advice
    if len(found) > 1:
        advice += (
            f" That is the smallest p-value of {len(found)} checks, the one of "
            f"{check.question or 'close/far labels'}; together, {show_p_value(p_value)}."
        )
    if refused:
        advice += f" Not checked: {', '.join(name for name, _ in refused)}, because {refused[0][1]}"
    return replace(check, p_value=p_value, advice=advice, parts=tuple(found) if len(found) > 1 else ())


def check_noise_if_possible(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> NoiseCheck | None:
    """Check the noise model with at most 30,000 of these pairs; None if the labels are not enough.

    Without groups, pairs are taken to be independent.  Groups of attached comparisons come after those of pairs; where
    those of pairs alone are given, comparisons depend on each other by their points, or not at all.
    """
    some, ids = _sampled(judgements, units_with_comparisons(groups, judgements), _MOST_TESTED)
    if ids is None:
        ids = np.arange(len(some) + (0 if some.comparisons is None else len(some.comparisons)))
    try:
        return check_noise_model(fit, some, groups=ids)
    except ValueError:  # the labels are not enough
        return None


def _sampled(judgements: Judgements, ids: NDArray[Any] | None, most: int) -> tuple[Judgements, NDArray[Any] | None]:
    """At most so many of the pairs and of the attached comparisons, and their groups or points."""
    n, others = len(judgements), judgements.comparisons
    rows = sample_rows(n, most)
    some, chosen = judgements.take(rows), rows
    if others is not None:
        compared = sample_rows(len(others), most)
        some, chosen = replace(some, comparisons=others.take(compared)), np.append(rows, n + compared)
    return some, None if ids is None else ids[chosen]


def _check(scores: LabelScores, n_bins: int) -> NoiseCheck:
    """The check of one question."""
    scored, model = scores.scored, scores.model
    bins = _bins(scored, model, n_bins)
    n = int(bins.max()) + 1
    # One column for each question: is the share far right in this bin, and in the tails?
    questions = np.column_stack([bins[:, None] == np.arange(n), _damped(model.flip_slope, model)])
    found = AdjustedSums.of(questions, scores)
    # Answers to comparisons of nearly equal legs are at even odds under every noise, and which is the longer one by the
    # metric depends on them.
    first = int(scored.judgements.kind is Kind.COMPARISONS)
    asked = np.arange(n + 1)
    test, tail_z = found.chi_square((asked >= first) & (asked < n)), found.z(1.0 * (asked == n))
    p_value = combine(test.p_value, 2.0 * float(norm.sf(abs(tail_z))))
    if not np.isfinite(p_value):
        raise ValueError(
            "the noise model can't be checked: the margins are so large that the test overflows; the largest is "
            f"{np.abs(scored.margin).max():.2g}. Look for outliers in the differences."
        )
    table = _table(scored, bins, found.sums[:n], np.sqrt(np.diag(found.covariance)[:n]))
    advice = advise_noise(scores, p_value, tail_z)
    return NoiseCheck(p_value, test.statistic, test.dof, tail_z, table, advice, scores.name)


def _bins(scored: Scores, model: LabelModel, n_bins: int) -> IndexArray:
    """Bins of about equal weight; neighbours are merged until each has the least variance."""
    weights = scored.judgements.weights
    weights = weights * (effective_number(weights) / weights.sum())
    fine = weighted_bins(scored.margin, weights, n_bins)
    joined = np.zeros(int(fine.max()) + 1, dtype=np.intp)
    number, held = 0, 0.0
    for index, amount in enumerate(np.bincount(fine, weights=weights * model.variance)):
        joined[index] = number
        held += amount
        if held >= (1.0 - 1e-9) * _LEAST_BIN_VARIANCE:  # whatever the rounding of a sum
            number, held = number + 1, 0.0
    if number < 2:
        kind = scored.judgements.kind
        raise ValueError(
            f"the noise model can't be checked with these {len(scored):,} {kind.noun}s: there are too few uncertain "
            f"{kind.term}s. {kind.verb.capitalize()} more {kind.noun}s."
        )
    joined[joined == number] = number - 1  # the remainder joins its neighbour
    return np.asarray(joined[fine])


def _table(scored: Scores, bins: IndexArray, sums: FloatArray, errors: FloatArray) -> tuple[NoiseBin, ...]:
    weights = scored.judgements.weights
    total = np.bincount(bins, weights=weights)
    number = total / weights.mean()  # sums are of weights that are one on average
    centre = np.bincount(bins, weights=weights * scored.margin) / total
    observed = np.bincount(bins, weights=weights * scored.judgements.is_far) / total
    z = sums / np.where(errors > 0, errors, np.inf)
    columns = (centre, total, observed, observed - sums / number, errors / number, z)
    return tuple(NoiseBin(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# What labels might depend on besides a quadratic form of the differences, as columns of numbers.
#
# All are unit-free and bounded, so that no test is decided by a few pairs.


# Values are clipped at this many times their mean absolute value, which is 3.2 standard deviations of normal ones.
_CLIPPED_AT = 4.0


def bounded(values: FloatArray) -> FloatArray:
    """Columns divided by their mean absolute value, and clipped."""
    size = np.mean(np.abs(values), axis=0)
    return np.clip(values / np.where(size > 0, size, 1.0), -_CLIPPED_AT, _CLIPPED_AT)


def by_place(x: FloatArray, y: FloatArray, z: FloatArray, metric: Metric) -> list[FloatArray]:
    """Three ways in which a metric can depend on where the midpoint of a pair lies, for its points x and y.

    First, place itself may matter, and each column may have another unit where its values are large, as
    under a logarithm.  Second, the scale of the whole metric may depend on place.  Third, the weights of
    columns may depend on the place of other columns.
    """
    middle = 0.5 * x + 0.5 * y
    place = bounded(middle - np.median(middle, axis=0))
    squares, distance = bounded(z) ** 2, bounded(metric.measure(z)[:, None])
    return [
        np.hstack([place, place**2, place * squares]),
        np.hstack([place * distance, place**2 * distance]),
        np.hstack([column[:, None] * squares for column in place.T]),
    ]


def place_columns(d: int) -> FloatArray:
    """The column whose place is part of each term of `by_place`, for d columns."""
    every = np.arange(d)
    return np.concatenate([np.tile(every, 5), np.repeat(every, d)])


class Misfit(StrEnum):
    """What labels may depend on that is not in the model."""

    LINEAR = "linear"
    INDEFINITE = "indefinite"
    RANK = "rank"
    SHAPE = "shape"
    PLACE = "place"
    ASYMMETRIC_FLIPS = "asymmetric flips"
    NOISE = "noise"


class MisfitTest(NamedTuple):
    """The p-value of a test, and the z score of each tested term."""

    p_value: float
    z: FloatArray


def misfit_tests(kept: LabelScores) -> dict[Misfit, MisfitTest]:
    """Test whether the answers to a question depend on anything besides their margins under the metric.

    Tests for which there are too few uncertain labels are omitted, and of comparisons those that need two sides.
    """
    metric, judgements = kept.fit.metric, kept.judgements
    check_certain_enough(kept, "the metric")
    found = {}
    # A comparison turned round is the same comparison, and two flip rates allow for asymmetric flips.
    if kept.n_thresholds and kept.n_rates < 2:
        likeliest = kept.at_optimum()
        if likeliest.uncertain_per_parameter >= _TESTABLE_UNCERTAIN:
            # Are labels that contradict a large margin far as often as close?  That is the first sum, minus what the
            # share of flips on both sides explains of it; it is positive if more are far.
            model = likeliest.model
            sides = np.column_stack([np.ones(len(model.far)), model.flip_slope])
            asked = AdjustedSums.of(_damped(sides, model), likeliest)
            tail_z = asked.z(np.array([1.0, -asked.covariance[0, 1] / max(asked.covariance[1, 1], TINY)]))
            found[Misfit.ASYMMETRIC_FLIPS] = MisfitTest(2.0 * float(norm.sf(abs(tail_z))), np.array([tail_z]))
    if 0 < metric.rank < kept.moves.size:
        # Would M be nonzero on its null space without the constraint?  The labels decide where on the boundary of the
        # cone M lies, which makes the statistic larger: at most as if the moves between range and null space counted.
        rows = kept.moves.rows(judgements.data)
        y = np.vstack([kept.moves.coordinates(block)[:, metric.rank :] for _, block in rows.legs.blocks()])
        squares = combined_legs(form_gradients(bounded(y)), rows)
        test, (left, right) = (
            _test_terms(kept, [squares], more_dof=metric.rank * y.shape[1]),
            np.triu_indices(y.shape[1]),
        )
        found[Misfit.INDEFINITE] = MisfitTest(test.p_value, test.z[left == right])  # one z for each direction
    # The other tests adjust for all quadratic forms, so that they detect what no such form explains.
    free = replace(kept, moves=Moves.of(kept.fit, judgements, keeps_rank=False)).at_optimum()
    if free.uncertain_per_parameter < _TESTABLE_UNCERTAIN:
        return found
    rows = free.moves.rows(judgements.data)
    # The differences of pairs, of points and the origin, or of legs.
    z = np.vstack([to_numpy(block).T for _, block in rows.legs.blocks()])
    # The city-block distance with the weights of the metric's diagonal, and its square; and each difference.
    city = bounded(np.sum(np.abs(z) * np.sqrt(np.maximum(np.diag(metric.matrix), 0.0)), axis=1)[:, None])
    sizes = [np.hstack([city, city**2]), bounded(np.abs(z))]
    found[Misfit.SHAPE] = _test_terms(free, [combined_legs(size, rows) for size in sizes])
    if metric.origin is None:
        found[Misfit.LINEAR] = _test_terms(free, [combined_legs(bounded(z), rows)])
        if judgements.data.ndim == 3:
            terms = by_place(*points_of_legs(judgements), z, metric)
            found[Misfit.PLACE] = _test_terms(free, [combined_legs(each, rows) for each in terms])
    return found


def _test_terms(scores: LabelScores, terms: list[FloatArray], *, more_dof: int = 0) -> MisfitTest:
    """Test terms of the margin, each array of terms separately, and combine the p-values."""
    model = scores.model
    part = np.repeat(np.arange(len(terms)), [columns.shape[1] for columns in terms])
    questions = _damped(np.hstack(terms) * model.slope[:, None], model)
    asked = AdjustedSums.of(questions, scores)
    p_values = [asked.chi_square(part == index, more_dof=more_dof).p_value for index in range(len(terms))]
    deviation = np.sqrt(np.maximum(np.diag(asked.covariance), 0.0))
    return MisfitTest(combine(*p_values), asked.sums / np.where(deviation > 0, deviation, np.inf))


# ---------------------------------------------------------------------------------------------------------------------
# Evidence against a fit, in words: which tests reject it, and what to do.


# The cost of the tests is about pairs times squared parameters; beyond this, some 10 s, they use a sample of the pairs.
_MOST_WORK = 4e9
_FEWEST_SAMPLED = 2000  # pairs, whatever they cost

# A metric that does not fit is detected by these tests as well.
_NOISE_LAST = (Misfit.NOISE, Misfit.ASYMMETRIC_FLIPS)


@dataclass(frozen=True)
class Finding:
    """Evidence against the model.

    Attributes
    ----------
    kind : Misfit
    p_value : float
        The p-value of its test alone.
    sentence : str
        What was found, and what to do.
    """

    kind: Misfit
    p_value: float
    sentence: str


def find_misfit(fitted: Fit, groups: Any = None) -> tuple[Finding, ...]:
    """Test whether labels depend on more than a distance and its noise; clearest finding first.

    All tests together reject a correct model in at most 5% of cases (Holm's procedure).
    They test the fit without penalty and class weights.

    Parameters
    ----------
    fitted : Fit
        A fit that still holds its training pairs.
    groups : array of shape (n,) or (n, 2), optional
        Which of those pairs are not independent: a group id per pair, or the ids of its two
        points.  By default pairs that share a point are dependent.

    Raises
    ------
    ValueError
        If the labels are not enough for the tests.
    """
    plain = without_penalty(fitted, fitted.training(), class_weight=None)
    check_testable(plain)
    training = plain.training()
    finds_points = groups is None and training.comparisons is None  # without a warning that they are shared
    ids = find_points(training.data) if finds_points else units_of_all(groups, training)
    counts = training.all_weights > 0
    most = int(np.clip(_MOST_WORK / plain.statistics.n_parameters**2, _FEWEST_SAMPLED, _MOST_TESTED))
    judgements, ids = _sampled(training.counted(), None if ids is None else ids[counts], most)
    check_units(Dependence(ids if ids is None else ids[: len(judgements)]))
    check = check_noise_if_possible(plain, judgements, ids)
    tests: dict[Misfit, list[MisfitTest]] = {}
    refused = []
    for asked in questions_of(plain, judgements, ids):
        # Wrong noise can look like a wrong metric, so the metric is tested under noise that fits.
        better = None if check is None or check.p_value >= DOUBT else better_noise(asked.scored)
        if better is not None:
            is_flipped = isinstance(better.flip_rate, float) and better.flip_rate != asked.scored.flip_rate
            asked = replace(asked, scored=better, n_rates=1 if is_flipped else asked.n_rates)
        try:
            found = misfit_tests(asked)
        except ValueError as error:
            refused.append(error)
            continue
        for kind, test in found.items():
            tests.setdefault(kind, []).append(test)
    if refused and not tests and check is None:
        raise refused[0]
    # Of several questions about the same judgements, the z scores are those of the clearest.
    clearest = {kind: min(found, key=lambda test: test.p_value) for kind, found in tests.items()}
    p_values = {kind: combine(*(test.p_value for test in found)) for kind, found in tests.items()}
    if check is not None:
        p_values[Misfit.NOISE] = check.p_value
    return tuple(
        Finding(kind, check.p_value, check.advice)
        if check is not None and kind is Misfit.NOISE
        else _finding(kind, p_values[kind], clearest[kind].z, plain, judgements)
        for kind in sorted(_rejected(p_values), key=_NOISE_LAST.__contains__)
    )


def _rejected(p_values: Mapping[Misfit, float]) -> list[Misfit]:
    """The kinds that Holm's procedure rejects, smallest p-value first."""
    ordered = sorted(p_values, key=lambda kind: p_values[kind])
    for index, kind in enumerate(ordered):
        if p_values[kind] > DOUBT / (len(ordered) - index):
            return ordered[:index]
    return ordered


def _finding(kind: Misfit, p_value: float, z: FloatArray, fitted: Fit, judgements: Judgements) -> Finding:
    shown, names = show_p_value(p_value), fitted.metric.column_names
    noun, terms = fitted.kind.noun, f"{fitted.kind.term}s"
    largest = int(np.argmax(np.abs(z)))
    if kind is Misfit.LINEAR and fitted.kind is Kind.COMPARISONS:
        sentence = (
            f"Answers depend on which of the compared points has the larger value ({shown}), mostly in column "
            f"{names[largest]!r}. No distance can represent this. Check how the comparisons were made, or use a linear "
            "classifier of the differences."
        )
    elif kind is Misfit.LINEAR:
        sentence = (
            f"Labels depend on the sign of the difference ({shown}), mostly in column {names[largest]!r}: it matters "
            "which side has the larger value. No distance can represent this. Use a linear classifier of the "
            "differences, or check the order of the two sides of each pair."
        )
    elif kind is Misfit.INDEFINITE and fitted.rank == fitted.metric.rank and z[largest] > 0:
        kind = Misfit.RANK
        sentence = (
            f"{terms.capitalize()} depend on more directions than "
            + setting(rank=fitted.rank)
            + f" allows ({shown}). Raise "
            + setting("rank")
            + ", or leave it out."
        )
    elif kind is Misfit.INDEFINITE:
        sentence = (
            f"In some directions a larger difference makes {noun}s closer ({shown}), which no distance can represent. "
            f"{terms.capitalize()} may depend on a product or a ratio of columns, or on one difference exceeding "
            "another. Transform the columns (logarithms turn ratios into differences), or use a classifier of the "
            "products of differences."
        )
    elif kind is Misfit.SHAPE:
        like = "the sum of absolute differences (city block)" if z[1] > 0 else "the largest difference alone"
        sentence = (
            f"Differences do not add up as squares ({shown}): the {terms} follow {like} more closely. Take roots or "
            "logarithms of the columns, or use a classifier of the absolute differences."
        )
    elif kind is Misfit.PLACE:
        column, logged = names[place_columns(len(names))[largest]], _log_columns(fitted, judgements)
        sentence = f"What counts as far depends on where a {noun} lies ({shown}), mostly in column {column!r}: " + (
            f"logarithms describe the {terms} better. Take the logarithm of {', '.join(map(repr, logged))}."
            if logged
            else "no single metric fits everywhere. Transform the columns so that equal differences mean the same "
            "everywhere, or fit one metric per region."
        )
    else:
        wrong, right = ("close", "far") if z[0] > 0 else ("far", "close")
        sentence = (
            f"{wrong.capitalize()} pairs are labelled {right} more often than {right} pairs are labelled "
            f"{wrong} ({shown}) at large margins. The model assumes the same flip rate on both sides, so "
            "probabilities are biased at one end. Find out how such labels arise, or list them with "
            + either("find_label_errors", "closefar label-errors")
            + "."
        )
    return Finding(kind, p_value, sentence)


def _log_columns(fitted: Fit, judgements: Judgements) -> list[str]:
    """The columns of positive numbers, if differences of their logarithms describe the labels better."""
    pairs = judgements.data
    data: FloatArray = np.asarray(pairs, np.float64) if is_source(pairs) else to_numpy(as_float64(pairs))
    positive = np.all(data > 0, axis=(0, 1))
    if not np.any(positive):
        return []
    other = fit(judgements.with_data(np.where(positive, np.log(np.where(positive, data, 1.0)), data)), fitted.settings)
    is_better = judgements.effective_number * (fitted.certificate.loss - other.certificate.loss) > _LIKELIHOOD_GAIN
    return np.array(fitted.metric.column_names)[positive].tolist() if is_better else []


# ---------------------------------------------------------------------------------------------------------------------
# Problems of a fit and its data, with advice.


# Uncertain labels per parameter below which intervals and tests are rough, and below which they are unreliable.
ENOUGH_UNCERTAIN = 10.0
_TOO_FEW_UNCERTAIN = 4.0  # near the 3 below which nothing is tested


@dataclass(frozen=True)
class Diagnosis:
    """The problems of a fit, most urgent first, each with advice.

    Attributes
    ----------
    facts : tuple of str
        Key figures of the fit.
    problems : tuple of str
        One or more sentences with advice per problem, those of `findings` last.
    findings : tuple of Finding
        The kinds of misfit that the tests found, with their p-values.
    """

    facts: tuple[str, ...]
    problems: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, fit: Fit, problems: Sequence[str], findings: Sequence[Finding] = (), untested: str = "") -> Diagnosis:
        """Collect the problems, the certificate's status unless it is good, and the reason if nothing was tested."""
        certificate = fit.certificate
        is_good = certificate.converged and not (fit.is_separable or fit.is_quasi_separable)
        every = [*([] if is_good else [certificate.status]), *problems, *(finding.sentence for finding in findings)]
        return cls(_facts(fit) + ((untested,) if untested else ()), tuple(every), tuple(findings))

    def __str__(self) -> str:
        found = [f"* {problem}" for problem in self.problems] or ["No problems found."]
        return "\n".join([*self.facts, "", *found])

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.problems)} problems)"


def diagnose(fit: Fit, groups: Any = None) -> Diagnosis:
    """Report the problems of a fit, its data and its noise, and whether labels depend on more than a distance.

    `groups` is as for `find_misfit`.
    """
    problems, noun = list(fit.problems), fit.kind.noun
    if fit.metric.rank == 0 and fit.alpha > 0 and not fit.settings.chooses_alpha:
        problems.append(ZERO + " Lower " + setting("alpha") + ".")
    elif fit.metric.rank == 0 and not problems:  # a problem may be that the labels are reversed
        problems.append(f"{ZERO} Check the {fit.kind.term}s, and which {fit.kind.term} means far.")
    if fit.judgements is None:
        problems.append(
            f"This copy has no training {noun}s: check its noise model with "
            f"check_noise_model({noun}s, {fit.kind.term}s)."
        )
        return Diagnosis.of(fit, problems)
    try:
        return Diagnosis.of(fit, problems, find_misfit(fit, groups))
    except ValueError as error:
        return Diagnosis.of(fit, problems, untested="Not tested: " + words_of(error))


def _facts(fit: Fit) -> tuple[str, ...]:
    statistics = fit.statistics
    agreed, share = statistics.comparison_accuracy, statistics.share_far
    compared = [] if agreed is None else [f"It agrees with {agreed:.1%} of {statistics.n_comparisons} comparisons."]
    # A comparison can be given either way round.
    baseline = 0.5 if fit.kind is Kind.COMPARISONS else max(statistics.level_shares or (share, 1.0 - share))
    annotators = "" if fit.annotators is None else f", by {len(fit.annotators)} annotators"
    data = f"{statistics.n_pairs} {fit.kind.noun}s with {len(fit.metric.factor)} columns"
    data += {
        Kind.COMPARISONS: ".",
        Kind.LEVELS: f", rated on {len(fit.sides.classes)} levels{annotators}.",
        Kind.CLOSE_FAR: f", {share:.1%} labelled far{annotators}.",
    }[fit.kind]
    return (
        data,
        f"The metric has rank {fit.metric.rank} and a training accuracy of {statistics.accuracy:.1%} "
        f"(majority baseline {baseline:.1%}).",
        *compared,
        f"The model estimates that {statistics.wrong_share:.1%} of the {fit.kind.term}s are wrong.",
        describe_evidence(fit),
    )


def describe_evidence(fit: Fit) -> str:
    """State the number of uncertain labels per parameter, and whether it is enough for intervals and tests."""
    if fit.is_metric_alone:
        return "Intervals and tests need a fit; this metric was truncated, or stored without its fit."
    found = fit.statistics.uncertain_per_parameter
    if found >= ENOUGH_UNCERTAIN:
        meaning = "enough for intervals and tests."
    elif found >= _TOO_FEW_UNCERTAIN:
        meaning = "so intervals and tests are approximate."
    else:
        meaning = (
            f"too few for intervals and tests. {fit.kind.verb.capitalize()} more {fit.kind.noun}s, or limit the rank."
        )
    return (
        f"{found:.1f} uncertain {fit.kind.term}s per parameter ({fit.statistics.uncertain_labels:,.0f} for "
        f"{fit.statistics.n_parameters:,} parameters), {meaning}"
    )
