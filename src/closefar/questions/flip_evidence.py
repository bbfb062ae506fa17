"""Which labels are flipped, and how many: estimated from how contradictions become rarer as the margin grows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.fitting import Scores
from closefar.judgements import effective_number
from closefar.model import Scored
from closefar.questions.bins import weighted_bins
from closefar.questions.calibration import sides_of

__all__ = ["FlipCurve", "FlipEvidence", "probability_flipped"]

_RATES = np.linspace(0.0, 0.45, 91)
_SHAPES = np.array([0.5, 0.7, 1.0, 1.4, 2.0, 3.0])
_SCALES = np.geomspace(0.02, 8.0, 30)  # of the median margin
_BINS = 50


@dataclass(frozen=True)
class FlipCurve:
    """P(flipped) on one side of the threshold at margins of these sizes, of labels that contradict it and agree."""

    is_beyond: bool
    sizes: FloatArray
    contradicting: FloatArray
    agreeing: FloatArray

    def at(self, size: FloatArray, contradicts: BoolArray) -> FloatArray:
        curves = (np.interp(size, self.sizes, curve) for curve in (self.contradicting, self.agreeing))
        found: FloatArray = np.where(contradicts, *curves)
        return np.minimum(found, 1.0)


def probability_flipped(curves: tuple[FlipCurve, ...], margin: FloatArray, contradicts: BoolArray) -> FloatArray:
    """The probability that each label is flipped; zero on a side where nothing is known."""
    probability = np.zeros(len(margin))
    for curve in curves:
        where = (margin >= 0) == curve.is_beyond
        probability[where] = curve.at(np.abs(margin[where]), contradicts[where])
    return probability


@dataclass(frozen=True)
class FlipEvidence:
    """The evidence of flipped labels in the contradictions of a metric, without assuming a noise model.

    At margins of size a, a share r(a) = q + (1 - 2q) c(a) of the labels contradicts the metric: a share
    q is flipped, and of the others the metric gets c(a) wrong, which falls from one half as a grows.
    The flip rate is at most the share of contradictions at the largest margins.  Here
    c(a) = exp(-(a / s)^b) / 2, with separate s and b on each side of the threshold; b from 0.5 to
    3 has tails far heavier and far lighter than any of the noises.  (q, s, b) is averaged over its
    posterior distribution, with a uniform prior on a grid.

    Attributes
    ----------
    rate, low, high : float
        The mean of q, and its 95% interval.
    probability : array of shape (n,)
        The probability that each label is flipped.
    curves : tuple of FlipCurve
        Where it is from, for other labels: one for each side of the threshold; none for levels.
    """

    rate: float
    low: float
    high: float
    probability: FloatArray
    curves: tuple[FlipCurve, ...]

    @classmethod
    def of_scores(cls, scores: Scores, largest_rate: float = 1.0) -> Self:
        """Estimate flips of judgements of any kind.

        Comparisons are turned such that their margins are positive.  Of levels, each threshold gives an estimate, of
        which the largest is taken: an answer drawn from all levels alike is on the wrong side of some of them only.
        """
        sides = sides_of(scores)
        if len(sides) == 1:
            return cls.of(sides[0], largest_rate)
        found = [cls.of(each, largest_rate) for each in sides if each.judgements.n_rarer > 0]
        highest = max(found, key=lambda each: each.low)
        return replace(highest, probability=np.max([each.probability for each in found], axis=0), curves=())

    @classmethod
    def of(cls, scored: Scored, largest_rate: float = 1.0) -> Self:
        """Estimate flips from the contradictions of these margins, with a flip rate of at most `largest_rate`.

        Margins of fits that have seen the labels underestimate flips rather than overestimate them.
        """
        weights = scored.judgements.weights
        repeats = weights * (effective_number(weights) / weights.sum())
        beyond = scored.margin >= 0
        wheres = ((True, beyond), (False, ~beyond))
        sides = [_Side.of(scored, repeats, *each) for each in wheres if np.any(repeats[each[1]] > 0)]
        rates = np.exp(sum(side.log_rates for side in sides))
        rates /= rates.sum()
        curves = tuple(side.flipped(rates, largest_rate) for side in sides)
        low, high = np.interp([0.025, 0.975], np.cumsum(rates), _RATES)
        probability = probability_flipped(curves, scored.margin, ~scored.is_right)
        return cls(float(rates @ _RATES), float(low), float(high), probability, curves)


@dataclass(frozen=True)
class _Side:
    """The pairs on one side of the threshold; the axes of grid arrays are rate, scale, shape and bin of the margin."""

    is_beyond: bool
    centres: FloatArray
    missed: FloatArray
    likelihood: FloatArray
    log_rates: FloatArray

    @classmethod
    def of(cls, scored: Scored, repeats: FloatArray, is_beyond: bool, where: BoolArray) -> Self:
        size, contradicts, repeats = np.abs(scored.margin[where]), ~scored.is_right[where], repeats[where]
        counts = repeats > 0
        bins = weighted_bins(size[counts], repeats[counts], _BINS)
        total = np.bincount(bins, weights=repeats[counts])
        contradicting = np.bincount(bins, weights=(repeats * contradicts)[counts])
        centres = np.bincount(bins, weights=(repeats * size)[counts]) / total
        scales = _SCALES * max(float(centres[len(centres) // 2]), TINY)
        missed = 0.5 * np.exp(-((centres / scales[:, None, None]) ** _SHAPES[:, None]))
        rates = _contradicted(missed)
        log_likelihood = np.log(rates) @ contradicting + np.log1p(-rates) @ (total - contradicting)
        log_likelihood -= log_likelihood.max()
        likelihood = np.exp(log_likelihood)
        log_rates = np.log(np.maximum(likelihood.mean(axis=(1, 2)), TINY))
        return cls(is_beyond, centres, missed, likelihood, log_rates)

    def flipped(self, rates: FloatArray, largest_rate: float) -> FlipCurve:
        """P(flipped) at the centres of the bins, given the probabilities of the rates."""
        usual = np.maximum(self.likelihood.sum(axis=(1, 2), keepdims=True), TINY)
        weights = self.likelihood / usual * rates[:, None, None]
        contradicted = _contradicted(self.missed)
        weights_of_rate = weights * np.minimum(_RATES, largest_rate)[:, None, None]
        contradicting = np.einsum("qsb,qsbm->m", weights_of_rate, (1.0 - self.missed) / contradicted)
        agreeing = np.einsum("qsb,qsbm->m", weights_of_rate, self.missed / (1.0 - contradicted))
        return FlipCurve(self.is_beyond, self.centres, contradicting, agreeing)


def _contradicted(missed: FloatArray) -> FloatArray:
    rates = _RATES[:, None, None, None]
    contradicted: FloatArray = np.clip(rates + (1.0 - 2.0 * rates) * missed, 1e-12, 1.0 - 1e-12)
    return contradicted
