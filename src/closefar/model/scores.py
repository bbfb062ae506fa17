"""Levels of pairs scored by a metric: their probabilities, and measures of fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.model.metric import Metric
from closefar.model.thresholds import level_flips
from closefar.noise import FlipRate, Noise, interval_losses, label_losses, turned_round, with_flips

if TYPE_CHECKING:
    from closefar.judgements import Judgements

# ---------------------------------------------------------------------------------------------------------------------
# Judgements scored by a metric: their margins, and measures of fit.


_PART = 1 << 16


@dataclass(frozen=True, eq=False)
class Scored:
    """Judgements of two sides with their margins, and the noise that converts a margin to a probability.

    The sides are close and far, the two of a dichotomy of levels, or, of comparisons, which leg is the
    shorter one.  Two flip rates may be arrays, with a number for each judgement.  All figures use the
    weights of the judgements.
    """

    judgements: Judgements
    margin: FloatArray
    noise: Noise
    flip_rate: FlipRate

    @classmethod
    def by(cls, metric: Metric, judgements: Judgements) -> Scored:
        """Compute the margins with a metric of one threshold, or of none for comparisons."""
        margin = metric.measure(judgements.data)
        margin -= metric.cut
        return cls(judgements, margin, metric.noise, metric.flip_rate)

    def __len__(self) -> int:
        return len(self.judgements)

    def take(self, where: IndexArray) -> Scored:
        return replace(
            self, judgements=self.judgements.take(where), margin=self.margin[where], flip_rate=self.flips_of(where)
        )

    def flips_of(self, where: IndexArray | slice) -> FlipRate:
        """The flip rates of some judgements."""
        if not isinstance(self.flip_rate, tuple):
            return self.flip_rate
        of_close, of_far = (rate[where] if np.ndim(rate) else rate for rate in self.flip_rate)
        return of_close, of_far

    @property
    def dichotomies(self) -> list[Scored]:
        """These judgements themselves: they have two sides already, unlike levels."""
        return [self]

    @property
    def is_right(self) -> BoolArray:
        """Whether the label agrees with the side of the threshold."""
        right: BoolArray = (self.margin >= 0) == self.judgements.is_far
        return right

    @property
    def probability_far(self) -> FloatArray:
        return self._mapped(lambda where: with_flips(self.noise.cdf(self.margin[where]), self.flips_of(where)))

    @property
    def probability_wrong(self) -> FloatArray:
        """The probability of a label on the wrong side of the threshold."""

        def wrong(where: slice) -> FloatArray:
            margin, flips = self.margin[where], self.flips_of(where)
            rarer = self.noise.cdf(-np.abs(margin))
            found: FloatArray = with_flips(rarer, flips)
            return np.where(margin >= 0, with_flips(rarer, turned_round(flips)), found)

        return self._mapped(wrong)

    @cached_property
    def in_doubt(self) -> FloatArray:
        """4 p (1 - p) of each label, without flips: one at even odds, zero far from the threshold."""

        def doubt(where: slice) -> FloatArray:
            rarer: FloatArray = self.noise.cdf(-np.abs(self.margin[where]))
            return 4.0 * rarer * (1.0 - rarer)

        return self._mapped(doubt)

    @property
    def losses(self) -> FloatArray:
        """-log P(label) of each judgement."""

        def loss(where: slice) -> FloatArray:
            margin, is_far = self.margin[where], self.judgements.is_far[where]
            agreement = np.where(is_far, margin, -margin)
            return label_losses(self.noise, agreement, self.flips_of(where), is_far)  # type: ignore[no-any-return]

        return self._mapped(loss)

    def _mapped(self, function: Callable[[slice], FloatArray]) -> FloatArray:
        """One number per judgement, computed part by part, in cache."""
        found = np.empty(len(self.margin))
        for start in range(0, len(self.margin), _PART):
            where = slice(start, start + _PART)
            found[where] = function(where)
        return found

    @property
    def loss(self) -> float:
        return self.judgements.mean(self.losses)

    @property
    def accuracy(self) -> float:
        return self.judgements.mean(self.is_right)

    @property
    def share_far(self) -> float:
        return self.judgements.mean(self.judgements.is_far)

    @property
    def majority(self) -> float:
        """The accuracy of always predicting the more frequent label; of comparisons, that of guesses."""
        return 0.5 if self._are_compared else max(self.share_far, 1.0 - self.share_far)

    @property
    def null_loss(self) -> float:
        """The loss of the best constant probability; of comparisons, that of even odds."""
        if self._are_compared:
            return math.log(2.0)
        return float(-sum(share * np.log(share) for share in (self.share_far, 1.0 - self.share_far) if share > 0))

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve; None if all labels are the same, and of comparisons, which have no sides."""
        if self._are_compared or self.judgements.n_rarer == 0:
            return None
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(self.judgements.is_far, self.margin, sample_weight=self.judgements.weights))

    @property
    def _are_compared(self) -> bool:
        """Whether these are comparisons: turned round, each is the same with the other answer."""
        return self.judgements.kind == "comparisons"

    def confusion(self, weights: FloatArray | None = None) -> FloatArray:
        """The confusion matrix, given by predicted labels, close first; by default weighted as the judgements."""
        cells = 2 * self.judgements.is_far + (self.margin >= 0)
        weights = self.judgements.weights if weights is None else weights
        counts: FloatArray = np.bincount(cells, weights=weights, minlength=4).astype(np.float64).reshape(2, 2)
        return counts


@dataclass(frozen=True, eq=False)
class ScoredLevels:
    """Judgements of K levels with their squared distances, and the noise that converts these to probabilities.

    All figures use the weights of the judgements.

    Attributes
    ----------
    judgements : Judgements
    squared : array of shape (n,)
        The squared distances or, for a known annotator, those minus the strictness.
    thresholds : array of shape (K - 1,) or (n, K - 1)
        Of the metric, or of the metric of each judgement.
    noise : Noise
    flip_rate : float or array of shape (n,)
        The share of answers that are wrong because they are drawn from all levels alike.
    """

    judgements: Judgements
    squared: FloatArray
    thresholds: FloatArray
    noise: Noise
    flip_rate: Any

    def __len__(self) -> int:
        return len(self.judgements)

    def take(self, where: IndexArray) -> ScoredLevels:
        return replace(
            self,
            judgements=self.judgements.take(where),
            squared=self.squared[where],
            thresholds=self.thresholds if self.thresholds.ndim == 1 else self.thresholds[where],
            flip_rate=self.flip_rate[where] if np.ndim(self.flip_rate) else self.flip_rate,
        )

    def dichotomy(self, k: int) -> Scored:
        """The same judgements asked only whether the level is at least k."""
        n_levels = self.judgements.n_levels
        each, _ = level_flips(np.asarray(self.flip_rate), n_levels)
        rates: Any = ((n_levels - k) * each, k * each) if np.any(each) else 0.0
        return Scored(self.judgements.dichotomy(k), self.squared - self.thresholds[..., k - 1], self.noise, rates)

    @property
    def dichotomies(self) -> list[Scored]:
        """One for each threshold."""
        return [self.dichotomy(k) for k in range(1, self.judgements.n_levels)]

    @cached_property
    def probabilities(self) -> FloatArray:
        """The probability of each level, (n, K)."""
        return np.exp(-np.column_stack([self._losses_of(code) for code in range(self.judgements.n_levels)]))

    @cached_property
    def predicted(self) -> IndexArray:
        """The most probable level; of two that are as probable, the higher one."""
        found = np.argmax(self.probabilities[:, ::-1], axis=1)
        return np.asarray(self.judgements.n_levels - 1 - found)

    @property
    def is_right(self) -> BoolArray:
        """Whether the level is the most probable one."""
        right: BoolArray = self.predicted == self.judgements.codes
        return right

    @property
    def probability_wrong(self) -> FloatArray:
        """The probability of another level than the most probable one."""
        wrong: FloatArray = 1.0 - self.probabilities.max(axis=1)
        return wrong

    @property
    def in_doubt(self) -> FloatArray:
        """4 p (1 - p) of each level, without flips, where p is for the threshold in most doubt."""
        doubt: FloatArray = np.max([each.in_doubt for each in self.dichotomies], axis=0)
        return doubt

    @property
    def losses(self) -> FloatArray:
        """-log P(level) of each judgement."""
        found, codes = np.empty(len(self)), self.judgements.codes
        for code in range(self.judgements.n_levels):
            here = codes == code
            found[here] = self._losses_of(code)[here]
        return found

    @property
    def loss(self) -> float:
        return self.judgements.mean(self.losses)

    @property
    def accuracy(self) -> float:
        return self.judgements.mean(self.is_right)

    @property
    def shares(self) -> FloatArray:
        """The share of each level."""
        counts = np.bincount(self.judgements.codes, self.judgements.weights, self.judgements.n_levels)
        shares: FloatArray = counts / counts.sum()
        return shares

    @property
    def majority(self) -> float:
        """The accuracy of the majority baseline: always predicting the most frequent level."""
        return float(self.shares.max())

    @property
    def null_loss(self) -> float:
        """The loss of the best constant probabilities."""
        return float(-sum(share * np.log(share) for share in self.shares if share > 0))

    @property
    def auc(self) -> float | None:
        """The mean area under the ROC curves of the thresholds; None if all levels are the same."""
        areas = [area for each in self.dichotomies if (area := each.auc) is not None]
        return float(np.mean(areas)) if areas else None

    def confusion(self, weights: FloatArray | None = None) -> FloatArray:
        """The confusion matrix, given by predicted levels, closest first; by default weighted as the judgements."""
        k = self.judgements.n_levels
        weights = self.judgements.weights if weights is None else weights
        counts = np.bincount(k * self.judgements.codes + self.predicted, weights=weights, minlength=k * k)
        return counts.astype(np.float64).reshape(k, k)

    def _losses_of(self, code: int) -> FloatArray:
        """-log of the probability of one level."""
        last = self.judgements.n_levels - 1
        low = self.thresholds[..., code - 1] if code > 0 else -np.inf
        up = self.thresholds[..., code] if code < last else np.inf
        with np.errstate(divide="ignore"):  # two thresholds of one value leave nothing between them
            losses: FloatArray = interval_losses(self.noise, self.squared - low, self.squared - up, 0).loss
        if not np.any(self.flip_rate):
            return losses
        each, rest = level_flips(np.broadcast_to(self.flip_rate, losses.shape), last + 1)
        flips = each > 0  # without flips, the probability may be too small for a number
        probability = each + rest * np.exp(-losses)
        return np.where(flips, -np.log(np.where(flips, probability, 1.0)), losses)
