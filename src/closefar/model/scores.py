"""Judgements scored by a metric: their margins, and measures of fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.noise import Noise, flip_mixture
from closefar.solve import interval_terms, mixed_loss

if TYPE_CHECKING:
    from closefar.judgements import Judgements

_ROWS_PER_PART = 1 << 16  # rows at a time, in cache


def answer_losses(noise: Noise, margins: FloatArray, codes: Any, flip_rate: Any) -> FloatArray:
    """-log of the probability of these answers, numbered from 0, at these margins from each threshold, (n, K - 1).

    Answers to comparisons are two levels, on either side of zero.  Flip rates may be arrays, with a number for each.
    """
    last = margins.shape[1]
    if last == 1:
        losses: FloatArray = noise.neg_log_cdf(np.where(codes, margins[:, 0], -margins[:, 0]))
    else:
        ends = np.column_stack([np.full(len(margins), np.inf), margins, np.full(len(margins), -np.inf)])
        above, below = (np.take_along_axis(ends, each[:, None], axis=1)[:, 0] for each in (codes, codes + 1))
        with np.errstate(divide="ignore"):  # two thresholds of one value leave nothing between them
            losses = interval_terms(noise, above, below, 0).loss
    if not np.any(flip_rate):
        return losses
    floors, kept = flip_mixture(flip_rate, last + 1)
    floor = floors[0] if not isinstance(flip_rate, tuple) else np.where(codes, floors[1], floors[0])
    found: FloatArray = mixed_loss(losses, np.asarray(floor), np.asarray(kept))[0]
    return found


def answer_probabilities(noise: Noise, margins: FloatArray, flip_rate: Any) -> FloatArray:
    """The probability of each answer at these margins, (n, K), closest first."""
    parts = []
    for start in range(0, len(margins), _ROWS_PER_PART):  # in cache
        some = margins[start : start + _ROWS_PER_PART]
        rates = rates_at(flip_rate, slice(start, start + _ROWS_PER_PART))
        codes = (np.full(len(some), code) for code in range(margins.shape[1] + 1))
        parts.append(np.column_stack([answer_losses(noise, some, each, rates) for each in codes]))
    found: FloatArray = np.exp(-np.concatenate(parts or [np.empty((0, margins.shape[1] + 1))]))
    return found


def rates_at(flip_rate: Any, where: Any) -> Any:
    """The flip rates of some judgements."""
    if isinstance(flip_rate, tuple):
        return tuple(rates_at(rate, where) for rate in flip_rate)
    return flip_rate[where] if np.ndim(flip_rate) else flip_rate


@dataclass(frozen=True, eq=False)
class Scores:
    """Judgements with their margins, and the noise that converts these to probabilities.

    All figures use the weights of the judgements.

    Attributes
    ----------
    judgements : Judgements
        Of two sides, those of close and far, of a dichotomy of levels or of which leg of a comparison is the shorter
        one; or of levels.
    margins : array of shape (n, cuts)
        The squared distances less each threshold or, for a known annotator, those less the strictness.  Comparisons
        have their own margin.
    noise : Noise
    flip_rate : float, array of shape (n,), or two of either
        The share of answers that are wrong because they are drawn from all levels equally, or those of close and far.
    """

    judgements: Judgements
    margins: FloatArray
    noise: Noise
    flip_rate: Any

    def __len__(self) -> int:
        return len(self.judgements)

    @property
    def is_graded(self) -> bool:
        """Whether these are levels."""
        return self.judgements.sides.is_graded

    @property
    def margin(self) -> FloatArray:
        """The margins of judgements of two sides."""
        (margin,) = self.margins.T
        return np.asarray(margin)

    def take(self, where: IndexArray) -> Scores:
        flips = rates_at(self.flip_rate, where)
        return replace(self, judgements=self.judgements.take(where), margins=self.margins[where], flip_rate=flips)

    def dichotomy(self, k: int) -> Scores:
        """The same judgements asked only whether the level is at least k."""
        if not self.is_graded:
            return self
        (each, *_), _ = flip_mixture(np.asarray(self.flip_rate), self.judgements.n_levels)
        rates: Any = ((self.judgements.n_levels - k) * each, k * each) if np.any(each) else 0.0
        return Scores(self.judgements.dichotomy(k), self.margins[:, k - 1 : k], self.noise, rates)

    @property
    def dichotomies(self) -> list[Scores]:
        """One for each threshold; judgements of two sides are one already."""
        return [self.dichotomy(k) for k in range(1, self.margins.shape[1] + 1)]

    @cached_property
    def probabilities(self) -> FloatArray:
        """The probability of each answer, (n, K)."""
        return answer_probabilities(self.noise, self.margins, self.flip_rate)

    @property
    def probability_far(self) -> FloatArray:
        """That of the second of two sides."""
        far: FloatArray = self.probabilities[:, 1]
        return far

    @cached_property
    def predicted(self) -> IndexArray:
        """The most probable side or level, as a code; of two levels that are as probable, the higher one."""
        if not self.is_graded:
            return (self.margin >= 0).astype(np.intp)
        return np.asarray(self.margins.shape[1] - np.argmax(self.probabilities[:, ::-1], axis=1))

    @property
    def is_right(self) -> BoolArray:
        """Whether the judgement is the most probable one."""
        right: BoolArray = self.predicted == self.judgements.codes
        return right

    @property
    def probability_wrong(self) -> FloatArray:
        """The probability of another answer than the one that is predicted."""
        wrong: FloatArray = 1.0 - np.take_along_axis(self.probabilities, self.predicted[:, None], axis=1)[:, 0]
        return wrong

    @cached_property
    def in_doubt(self) -> FloatArray:
        """4 p (1 - p) of each judgement, without flips, where p is for the threshold in most doubt."""
        doubt = np.zeros(len(self))
        for margin in self.margins.T:
            rarer = self.noise.cdf(-np.abs(margin))
            doubt = np.maximum(doubt, 4.0 * rarer * (1.0 - rarer))
        return doubt

    @property
    def losses(self) -> FloatArray:
        """-log P of each judgement."""
        return answer_losses(self.noise, self.margins, self.judgements.codes, self.flip_rate)

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
    def shares(self) -> FloatArray:
        """The share of each side or level; of comparisons, which may be reversed, even ones."""
        if self.judgements.kind == "comparisons":
            return np.array([0.5, 0.5])
        counts = np.bincount(self.judgements.codes, self.judgements.weights, self.judgements.n_levels)
        shares: FloatArray = counts / counts.sum()
        return shares

    @property
    def majority(self) -> float:
        """The accuracy of always predicting the most frequent label or level; of comparisons, that of guesses."""
        return float(self.shares.max())

    @property
    def null_loss(self) -> float:
        """The loss of the best constant probabilities; of comparisons, that of even odds."""
        return float(-sum(share * np.log(share) for share in self.shares if share > 0))

    def confusion(self, weights: FloatArray | None = None) -> FloatArray:
        """The confusion matrix, given by predicted labels, closest first; by default weighted as the judgements."""
        k = self.judgements.n_levels
        weights = self.judgements.weights if weights is None else weights
        counts = np.bincount(k * self.judgements.codes + self.predicted, weights=weights, minlength=k * k)
        return counts.astype(np.float64).reshape(k, k)

    @property
    def auc(self) -> float | None:
        """The mean area under the ROC curves of all thresholds.

        None if all labels are the same, and of comparisons, which have no sides.
        """
        from sklearn.metrics import roc_auc_score

        kinds = [each for each in self.dichotomies if each.judgements.kind != "comparisons" and each.judgements.n_rarer]
        areas = [roc_auc_score(e.judgements.is_far, e.margin, sample_weight=e.judgements.weights) for e in kinds]
        return float(np.mean(areas)) if areas else None
