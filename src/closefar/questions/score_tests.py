"""Score tests of whether labels depend on something that is not in the model.

A test is about sums of residuals, one per question.  They are adjusted for what a step of the
parameters explains (Neyman's C(alpha); at the maximum of the likelihood the chi-square of Rao and
Robson), and for their bias: with few uncertain labels per parameter, a fit overfits its labels,
which would look like misfit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import cauchy, chi2

from closefar.arrays import TINY, BoolArray, FloatArray, IndexArray
from closefar.errors import either, setting
from closefar.fitting import Fit, count_uncertain
from closefar.model import Scored
from closefar.noise import FlipRate
from closefar.questions.calibration import TwoSided
from closefar.questions.dependence import Dependence
from closefar.questions.likelihood import LabelModel, kept_share
from closefar.questions.moves import MOST_MOVES, MarginMoves, pseudo_inverse, scaled_eigh

# ---------------------------------------------------------------------------------------------------------------------
# The quantile of a weighted sum of labels, accurate in the tails and if a few labels dominate.


_MOST_STEPS = 60
_LARGEST_STEP = 2.0
_ACCURACY = 1e-8

# Closer to the mean than this, the normal distribution is as good, and the formula is 0 / 0.
_NEAR_MEAN = 0.05


def as_standard_normal(total: float, weights: FloatArray, model: LabelModel) -> float:
    """Return the quantile of the normal distribution that corresponds to a sum of weighted residuals of labels.

    `total` is in standard deviations.  This is r* = r + log(u / r) / r of the saddlepoint
    approximation (Barndorff-Nielsen), from the cumulants of independent labels, if that is closer to
    zero: on the side where the support ends early, a small error in `total` would have a large effect.
    """
    weights = weights / np.sqrt(np.sum(weights**2 * model.variance))
    tilt, lowest, highest = total, -np.inf, np.inf
    for _ in range(_MOST_STEPS):
        log_moment, mean, variance = _tilted(tilt, weights, model)
        if abs(mean - total) < _ACCURACY:
            break
        lowest, highest = (tilt, highest) if mean < total else (lowest, tilt)
        step = (total - mean) / max(variance, _ACCURACY)
        tilt += float(np.clip(step, -_LARGEST_STEP, _LARGEST_STEP))
        if not lowest < tilt < highest:
            tilt = 0.5 * (lowest + highest)
    r = np.sign(tilt) * np.sqrt(max(2.0 * (tilt * total - log_moment), 0.0))
    if abs(r) < _NEAR_MEAN:
        return total
    quantile = r + np.log(max(tilt * np.sqrt(variance) / r, _ACCURACY)) / r
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
_NEARLY_EXPLAINED = 1e-3

# A question is already part of the model if less than this share of its variance remains.
_ANSWERED = 1e-6

# Steps towards the maximum likelihood end once the next one would raise the log-likelihood by less than this.
_GAIN = 1e-3
_SCORE_TESTS_MOST_STEPS = 15
_MOST_HALVINGS = 8
_LARGEST_FLIP_RATE = 0.49

# Questions weight a pair as if this share of labels were flipped, so that no single margin can decide a test.
FLOOR = 0.02


@dataclass(frozen=True)
class ScoreTest:
    """A chi-square statistic, its degrees of freedom and its p-value."""

    statistic: float
    dof: int
    p_value: float


@dataclass(frozen=True, eq=False)
class LabelScores:
    """Labels and margins, and the derivatives of P(far) in the parameters.

    These are `moves`, the strictness of each of `n_annotators`, without its prior, and the flip rates that were
    estimated: none, one, or those of close and of far.  Only ratios of weights matter.
    """

    moves: MarginMoves
    scored: Scored
    n_rates: int
    annotators: IndexArray | None = None
    n_annotators: int = 0

    @classmethod
    def of(cls, asked: TwoSided, *, keep_rank: bool = True) -> LabelScores:
        """Those of a question with two sides."""
        noise = asked.comparison_noise
        moves = MarginMoves(asked.metric, asked.judgements, keep_rank=keep_rank, comparison_noise=noise)
        return cls(moves, asked.scored, asked.n_rates, asked.annotators, asked.n_annotators)

    @cached_property
    def model(self) -> LabelModel:
        return LabelModel.at(self.scored.margin, self.scored.noise, self.scored.flip_rate)

    @cached_property
    def residual(self) -> FloatArray:
        return self.model.residual(self.scored.judgements.is_far)

    @cached_property
    def weights(self) -> FloatArray:
        weights = self.scored.judgements.weights
        scaled: FloatArray = weights / weights.mean()
        return scaled

    @property
    def n_on_margin(self) -> int:
        """The number of parameters that margins depend on."""
        return len(self.moves.moves) + self.n_annotators

    @property
    def n_parameters(self) -> int:
        return self.n_on_margin + self.n_rates

    @property
    def uncertain_per_parameter(self) -> float:
        return count_uncertain(self.scored) / self.n_parameters

    def margin_blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin in each parameter that it depends on, one row per judgement."""
        for where, along in self.moves.blocks(self.scored.judgements.data):
            if self.annotators is None:
                yield where, along
            else:
                is_by = self.annotators[where, None] == np.arange(self.n_annotators)
                yield where, np.column_stack([along, -1.0 * is_by])

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of P(far) in each parameter, one row per judgement."""
        in_rates = self.model.flip_slopes(self.n_rates)
        for where, along in self.margin_blocks():
            slopes = along * self.model.slope[where, None]
            yield where, np.column_stack([slopes, in_rates[where]]) if self.n_rates else slopes

    def curvature(self, covariance: FloatArray) -> FloatArray:
        """For each row the trace of the second derivatives of P(far) in the parameters times their covariance."""
        n, parts = self.n_on_margin, []
        # A flip rate lowers the share of labels that depend on the margin, two rates by one half of that each.
        mixed = -2.0 / max(self.n_rates, 1) * self.model.slope / kept_share(self.scored.flip_rate)
        for where, along in self.margin_blocks():
            part = self.model.curvature[where] * np.einsum("ij,ij->i", along @ covariance[:n, :n], along)
            for column in range(n, n + self.n_rates):
                part += 2.0 * mixed[where] * (along @ covariance[:n, column])
            parts.append(part)
        curvature: FloatArray = np.concatenate(parts)
        return curvature

    @cached_property
    def fitted(self) -> FittedScores:
        return FittedScores.of(self)

    def at_optimum(self) -> LabelScores:
        """The same at the maximum likelihood for these labels, where a fit without a penalty already is."""
        here = self
        for _ in range(_SCORE_TESTS_MOST_STEPS):
            moved = here._moved()
            if moved is here:
                break
            here = moved
        return here

    def _moved(self) -> LabelScores:
        """The result of one step of Fisher scoring, halved until the loss is lower."""
        variance = self.model.variance
        information, score = np.zeros((self.n_parameters, self.n_parameters)), np.zeros(self.n_parameters)
        for where, slopes in self.blocks():
            information += slopes.T @ (slopes * (self.weights / variance)[where, None])
            score += slopes.T @ (self.weights * self.residual / variance)[where]
        step = pseudo_inverse(information) @ score
        if 0.5 * step @ score < _GAIN:
            return self
        along = step[: self.n_on_margin]
        change = np.concatenate([block @ along for _, block in self.margin_blocks()])
        for size in 0.5 ** np.arange(_MOST_HALVINGS):
            rates = self._rates_after(size * step[self.n_on_margin :])
            scored = replace(self.scored, margin=self.scored.margin + size * change, flip_rate=rates)
            if scored.loss < self.scored.loss:
                return replace(self, scored=scored)
        return self

    def _rates_after(self, change: FloatArray) -> FlipRate:
        """The flip rates after a change of those that are parameters, within their range."""
        rates = self.scored.flip_rate
        if not self.n_rates:
            return rates if isinstance(rates, tuple) else float(np.clip(rates, 0.0, _LARGEST_FLIP_RATE))
        moved = np.clip(np.ravel(rates) + change, 0.0, _LARGEST_FLIP_RATE)
        return float(moved[0]) if self.n_rates == 1 else (float(moved[0]), float(moved[1]))


@dataclass(frozen=True, eq=False)
class FittedScores:
    """The quantities that every question needs: the inverse information and, per pair, two numbers.

    `curvature` is tr(P'' S), with S the covariance of the parameters, and `variance` is that of the label.
    """

    inverse: FloatArray
    curvature: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, scores: LabelScores) -> FittedScores:
        weights, variance, n = scores.weights, scores.model.variance, scores.n_parameters
        information, spread = np.zeros((n, n)), np.zeros((n, n))
        for where, slopes in scores.blocks():
            scaled = slopes * (weights / variance)[where, None]
            information += slopes.T @ scaled
            spread += scaled.T @ (scaled * variance[where, None])
        inverse = pseudo_inverse(information)
        covariance = inverse @ spread @ inverse
        curvature, margin_gradient = scores.curvature(covariance), np.zeros(n)
        for where, slopes in scores.blocks():
            margin_gradient += slopes.T @ (weights / variance * curvature)[where]
        unbiased = _unbiased_variance(scores, covariance, curvature, inverse @ margin_gradient)
        return cls(inverse, curvature, unbiased)


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
    def of(cls, questions: FloatArray, scores: LabelScores, dependence: Dependence) -> AdjustedSums:
        """Sum c e over the pairs for each column c of `questions`, where e is the residual of the label, of variance v.

        With p the derivative of P(far) in the parameters and H = sum p p' / v, the sum of
        (c - (sum c p') H^-1 p / v) e does not change, to first order, with the parameters.  To
        second order its expectation is that of -1/2 (c - ...) tr(P'' S), with S their covariance.
        """
        model, weights, variance = scores.model, scores.weights, scores.model.variance
        cross = np.zeros((scores.n_parameters, questions.shape[1]))
        for where, slopes in scores.blocks():
            cross += slopes.T @ (weights[where, None] * questions[where])
        fitted, left = scores.fitted, np.empty(questions.shape)
        explained = fitted.inverse @ cross
        for where, slopes in scores.blocks():
            left[where] = weights[where, None] * (questions[where] - slopes @ explained / variance[where, None])
        asked = (weights**2 * variance) @ questions**2
        left[:, variance @ left**2 <= _ANSWERED * asked] = 0.0
        sums = left.T @ (scores.residual + 0.5 * fitted.curvature)
        return cls(sums, _covariance(left * np.sqrt(fitted.variance)[:, None], scores, dependence), left, model)

    def beside(self, column: int, other: int) -> AdjustedSums:
        """One question, minus what another explains of it."""
        share = self.covariance[column, other] / max(self.covariance[other, other], TINY)
        along = np.zeros(len(self.sums))
        along[column], along[other] = 1.0, -share
        sums, covariance = np.array([along @ self.sums]), np.array([[along @ self.covariance @ along]])
        return AdjustedSums(sums, covariance, (self.left @ along)[:, None], self.model)

    def chi_square(self, columns: BoolArray, *, more_dof: int = 0) -> ScoreTest:
        """Test these questions jointly, with `more_dof` additional degrees of freedom.

        If a few pairs dominate, large statistics are more frequent.  The variance of the statistic
        follows from the kurtosis of labels, and its distribution is approximated by a chi-square with
        that variance.
        """
        if not np.any(columns):
            return ScoreTest(0.0, 0, 1.0)
        values, vectors, scale = scaled_eigh(self.covariance[np.ix_(columns, columns)])
        keep = values > _NEARLY_EXPLAINED * max(values[-1], 0.0)
        if not np.any(keep):
            return ScoreTest(0.0, 0, 1.0)
        root = vectors[:, keep] / np.sqrt(values[keep]) / scale[:, None]
        statistic, dof = float(np.sum((self.sums[columns] @ root) ** 2)), int(np.sum(keep))
        influence, variance = np.sum((self.left[:, columns] @ root) ** 2, axis=1), self.model.variance
        ratio = 1.0 + max(float(np.sum(influence**2 * variance * (1.0 - 6.0 * variance))) / (2.0 * dof), 0.0)
        return ScoreTest(statistic, dof, float(chi2.sf(statistic / ratio, (dof + more_dof) / ratio)))

    def z(self, column: int) -> float:
        """One sum as a z score."""
        deviation = float(np.sqrt(max(self.covariance[column, column], 0.0)))
        if deviation == 0.0:
            return 0.0
        return as_standard_normal(float(self.sums[column]) / deviation, self.left[:, column], self.model)


def combine(*p_values: float) -> float:
    """Combine p-values that may depend on each other, by the Cauchy combination test (Liu and Xie 2020).

    A p-value near 1 must not outweigh small ones, so each counts as one half at most.
    """
    bounded = np.clip(p_values, TINY, min(max(0.5, min(p_values)), 1.0 - 1e-9))
    return float(cauchy.sf(np.mean(1.0 / np.tan(np.pi * bounded))))


def _unbiased_variance(
    scores: LabelScores, covariance: FloatArray, curvature: FloatArray, margin_gradient: FloatArray
) -> FloatArray:
    """The variance of each label, corrected for overfitting by a fit to these labels."""
    far, spread = np.empty(len(curvature)), np.empty(len(curvature))
    for where, slopes in scores.blocks():
        far[where] = scores.model.far[where] + 0.5 * (slopes @ margin_gradient - curvature[where])
        spread[where] = np.einsum("ij,ij->i", slopes @ covariance, slopes)
    far = np.clip(far, 0.0, 1.0)
    variance: FloatArray = np.maximum(far * (1.0 - far) + spread, scores.model.variance)
    return variance


def _covariance(spread: FloatArray, scores: LabelScores, dependence: Dependence) -> FloatArray:
    """The covariance of the sums, from the standard deviation of each term.

    Labels that depend on each other are assumed to be equally correlated, as much as their residuals
    are.  Sums of residuals over units would be larger if labels do not fit, and hide the misfit.
    """
    covariance: FloatArray = spread.T @ spread
    residual, deviation = scores.residual[:, None], np.sqrt(scores.model.variance)[:, None]
    for product, largest, cross in zip(*map(dependence.cross_sums, (residual, deviation, spread)), strict=True):
        correlation = float(np.clip(product[0, 0] / max(largest[0, 0], TINY), 0.0, 1.0))
        covariance += correlation * cross
    return covariance


# ---------------------------------------------------------------------------------------------------------------------
# Whether the labels of a fit are enough to test it.


# Uncertain labels per parameter: down to this number, correct models were rejected at the nominal rate in simulations.
FEWEST_UNCERTAIN = 3.0
FEWEST_UNITS = 20

# What this many pairs do not show is too small to matter, and more would take long.
MOST_TESTED = 30_000


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
    if found < FEWEST_UNCERTAIN:
        kind = scores.scored.judgements.kind
        raise ValueError(
            f"{what} can't be checked with these {len(scores.scored):,} {kind.noun}s: there must be at least "
            f"{FEWEST_UNCERTAIN:g} uncertain {kind.term}s per parameter; got {found:.1f} ({scores.n_parameters} "
            f"parameters). {kind.verb.capitalize()} more {kind.noun}s, limit the rank, or leave columns out."
        )


def check_units(dependence: Dependence) -> None:
    """Raise an error if there are too few groups to estimate dependence."""
    if dependence.n_units is not None and dependence.n_units < FEWEST_UNITS:
        raise ValueError(
            either("groups must be", "--group must name")
            + f" at least {FEWEST_UNITS} groups or points, to estimate how much labels depend on them; got "
            f"{dependence.n_units}."
        )
