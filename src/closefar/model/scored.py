"""Judgements scored by a metric: their margins, and measures of fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.model.metric import Metric
from closefar.noise import Noise, label_losses, with_flips

if TYPE_CHECKING:  # metrics are loaded, applied and saved without scikit-learn, which takes a second to import
    from closefar.judgements import Judgements

__all__ = ["Scored"]

_PART = 1 << 16


@dataclass(frozen=True, eq=False)
class Scored:
    """Judgements with their margins, and the noise that converts a margin to a probability.

    All figures use the weights of the judgements.
    """

    judgements: Judgements
    margin: FloatArray
    noise: Noise
    flip_rate: float

    @classmethod
    def by(cls, metric: Metric, judgements: Judgements) -> Scored:
        """Compute the margins with a metric."""
        margin = metric.measure(judgements.data)
        margin -= metric.threshold
        return cls(judgements, margin, metric.noise, metric.flip_rate)

    def __len__(self) -> int:
        return len(self.judgements)

    def take(self, where: IndexArray) -> Scored:
        return replace(self, judgements=self.judgements.take(where), margin=self.margin[where])

    @property
    def is_right(self) -> BoolArray:
        """Whether the label agrees with the side of the threshold."""
        right: BoolArray = (self.margin >= 0) == self.judgements.is_far
        return right

    def mapped(self, function: Callable[[FloatArray], FloatArray], *, of_labels: bool = False) -> FloatArray:
        """Return a function of each margin, or of each margin times the sign of its label: part by part, in cache."""
        found = np.empty(len(self.margin))
        for start in range(0, len(self.margin), _PART):
            where = slice(start, start + _PART)
            margin = self.margin[where]
            found[where] = function(np.where(self.judgements.is_far[where], margin, -margin) if of_labels else margin)
        return found

    @property
    def probability_far(self) -> FloatArray:
        return self.mapped(lambda margin: with_flips(self.noise.cdf(margin), self.flip_rate))

    @property
    def probability_wrong(self) -> FloatArray:
        """The probability of a label on the wrong side of the threshold."""
        return self.mapped(lambda margin: with_flips(self.noise.cdf(-np.abs(margin)), self.flip_rate))

    @cached_property
    def in_doubt(self) -> FloatArray:
        """4 p (1 - p) of each label, without flips: one at even odds, zero far from the threshold."""

        def doubt(margin: FloatArray) -> FloatArray:
            rarer: FloatArray = self.noise.cdf(-np.abs(margin))
            return 4.0 * rarer * (1.0 - rarer)

        return self.mapped(doubt)

    @property
    def losses(self) -> FloatArray:
        """-log P(label) of each judgement."""
        return self.mapped(lambda margin: label_losses(self.noise, margin, self.flip_rate), of_labels=True)

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
        """The accuracy of the majority baseline: always predicting the more frequent label."""
        return max(self.share_far, 1.0 - self.share_far)

    @property
    def null_loss(self) -> float:
        """The loss of the best constant probability."""
        return float(-sum(share * np.log(share) for share in (self.share_far, 1.0 - self.share_far) if share > 0))

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve; None if all labels are the same."""
        if self.judgements.n_rarer == 0:
            return None
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(self.judgements.is_far, self.margin, sample_weight=self.judgements.weights))

    def confusion(self, weights: FloatArray | None = None) -> FloatArray:
        """The confusion matrix, given by predicted labels, close first; by default weighted as the judgements."""
        cells = 2 * self.judgements.is_far + (self.margin >= 0)
        weights = self.judgements.weights if weights is None else weights
        counts: FloatArray = np.bincount(cells, weights=weights, minlength=4).astype(np.float64).reshape(2, 2)
        return counts
