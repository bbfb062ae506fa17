"""Judgements scored by a metric: their margins, and measures of fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.model.metric import Metric
from closefar.noise import FlipRate, Noise, label_losses, turned_round, with_flips

if TYPE_CHECKING:  # metrics are loaded, applied and saved without scikit-learn, which takes a second to import
    from closefar.judgements import Judgements

__all__ = ["Scored"]

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
