"""Levels of pairs scored by a metric: their probabilities, and measures of fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.model.scored import Scored
from closefar.model.thresholds import level_flips
from closefar.noise import Noise, interval_losses

if TYPE_CHECKING:  # metrics are loaded, applied and saved without scikit-learn, which takes a second to import
    from closefar.judgements import Judgements

__all__ = ["ScoredLevels"]


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
