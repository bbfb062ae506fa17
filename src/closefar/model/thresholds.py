"""The thresholds of a metric on squared distances, the probabilities of the levels between them, and their scores."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.errors import InvalidValueError, setting
from closefar.noise import FlipRate, Noise, label_losses, turned_round, with_flips
from closefar.solve import interval_terms

if TYPE_CHECKING:
    from closefar.judgements import Judgements

_ROWS_PER_PART = 1 << 16  # rows at a time, in cache


def check_thresholds(threshold: Any) -> tuple[float, ...]:
    """Return all thresholds, lowest first, of one number, a sequence of them, or None."""
    if threshold is None:
        return ()
    if not isinstance(threshold, Sequence | np.ndarray) or np.ndim(threshold) == 0:
        if not np.isfinite(threshold):
            raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
        return (float(threshold),)
    values = tuple(float(value) for value in threshold)
    if not (np.all(np.isfinite(values)) and np.all(np.diff(values) >= 0)):
        raise ValueError(f"thresholds must be finite numbers, lowest first; got {list(values)}. Sort them.")
    return values


def check_flip_rate(flip_rate: Any, n_levels: int) -> FlipRate:
    """Return one rate, or the rates of close and of far pairs, as floats."""
    if not isinstance(flip_rate, tuple | list | np.ndarray):
        most = (n_levels - 1) / n_levels  # of answers that are all drawn at random
        if not (isinstance(flip_rate, numbers.Real) and 0 <= float(flip_rate) < most):
            raise InvalidValueError("flip_rate", f"must be at least 0 and below {most:.3g}", flip_rate)
        return float(flip_rate)
    is_pair = len(flip_rate) == 2 and all(isinstance(rate, numbers.Real) and 0 <= float(rate) < 1 for rate in flip_rate)
    if n_levels != 2 or not is_pair or not sum(flip_rate) < 1:
        raise ValueError(
            "two flip rates, P(called far | close) and P(called close | far), must be numbers from 0 to below 1 that "
            f"sum to less than 1, and are for close and far only; got {flip_rate!r} for {n_levels} levels."
        )
    return float(flip_rate[0]), float(flip_rate[1])


def one_rate(flip_rate: FlipRate) -> float:
    """The flip rate of both sides; an error if they differ."""
    if isinstance(flip_rate, tuple):
        raise ValueError(
            "this needs one flip rate for both sides; got two. Fit with " + setting(flip_rate="estimate") + "."
        )
    return flip_rate


def level_flips(flip_rate: Any, n_levels: int) -> tuple[Any, Any]:
    """The probability of a level regardless of the distance, and the share of answers that depend on it.

    A share of the answers is drawn from all levels equally; `flip_rate` is the share of answers that are
    wrong for this reason.  Two levels have q and 1 - 2q.
    """
    each = flip_rate / (n_levels - 1)
    return each, 1.0 - n_levels * each


def level_probabilities(noise: Noise, squared: FloatArray, thresholds: FloatArray, flip_rate: Any) -> FloatArray:
    """The probability of each level at each squared distance, shape (n, K): closest first.

    Thresholds may be those of each, (n, K - 1), and a flip rate an array with a number for each.
    """
    levels = range(thresholds.shape[-1] + 1)
    return np.exp(-np.column_stack([_level_losses(noise, squared, thresholds, flip_rate, level) for level in levels]))


def _level_losses(noise: Noise, squared: FloatArray, thresholds: FloatArray, flip_rate: Any, level: int) -> FloatArray:
    """-log of the probability of one level at each squared distance."""
    last = thresholds.shape[-1]
    low = thresholds[..., level - 1] if level > 0 else -np.inf
    up = thresholds[..., level] if level < last else np.inf
    with np.errstate(divide="ignore"):  # two thresholds of one value leave nothing between them
        losses: FloatArray = interval_terms(noise, squared - low, squared - up, 0).loss
    if not np.any(flip_rate):
        return losses
    each, rest = level_flips(np.broadcast_to(flip_rate, losses.shape), last + 1)
    flips = each > 0  # without flips, the probability may be too small for a number
    probability = each + rest * np.exp(-losses)
    return np.where(flips, -np.log(np.where(flips, probability, 1.0)), losses)


# ---------------------------------------------------------------------------------------------------------------------
# Judgements scored by a metric: their margins, and measures of fit.


@dataclass(frozen=True, eq=False)
class _Scores(ABC):
    """What judgements of two sides and of levels have in common; all figures use the weights of the judgements."""

    judgements: Judgements

    @property
    @abstractmethod
    def predicted(self) -> IndexArray:
        """The most probable side or level, as a code."""

    @property
    @abstractmethod
    def losses(self) -> FloatArray:
        """-log P of each judgement."""

    def __len__(self) -> int:
        return len(self.judgements)

    @property
    def is_right(self) -> BoolArray:
        """Whether the judgement is the most probable one."""
        right: BoolArray = self.predicted == self.judgements.codes
        return right

    @property
    def loss(self) -> float:
        return self.judgements.mean(self.losses)

    @property
    def accuracy(self) -> float:
        return self.judgements.mean(self.is_right)

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


@dataclass(frozen=True, eq=False)
class Scored(_Scores):
    """Judgements of two sides with their margins, and the noise that converts a margin to a probability.

    The sides are close and far, the two of a dichotomy of levels, or, of comparisons, which leg is the
    shorter one.  Two flip rates may be arrays, with a number for each judgement.
    """

    margin: FloatArray
    noise: Noise
    flip_rate: FlipRate

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
    def predicted(self) -> IndexArray:
        return (self.margin >= 0).astype(np.intp)

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
        for start in range(0, len(self.margin), _ROWS_PER_PART):
            where = slice(start, start + _ROWS_PER_PART)
            found[where] = function(where)
        return found

    @property
    def share_far(self) -> float:
        return self.judgements.mean(self.judgements.is_far)

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve; None if all labels are the same, and of comparisons, which have no sides."""
        if self.judgements.kind == "comparisons" or self.judgements.n_rarer == 0:
            return None
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(self.judgements.is_far, self.margin, sample_weight=self.judgements.weights))


@dataclass(frozen=True, eq=False)
class ScoredLevels(_Scores):
    """Judgements of K levels with their squared distances, and the noise that converts these to probabilities.

    Attributes
    ----------
    judgements : Judgements
    squared : array of shape (n,)
        The squared distances or, for a known annotator, those minus the strictness.
    thresholds : array of shape (K - 1,) or (n, K - 1)
        Of the metric, or of the metric of each judgement.
    noise : Noise
    flip_rate : float or array of shape (n,)
        The share of answers that are wrong because they are drawn from all levels equally.
    """

    squared: FloatArray
    thresholds: FloatArray
    noise: Noise
    flip_rate: Any

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
        return level_probabilities(self.noise, self.squared, self.thresholds, self.flip_rate)

    @cached_property
    def predicted(self) -> IndexArray:
        """The most probable level; of two that are as probable, the higher one."""
        found = np.argmax(self.probabilities[:, ::-1], axis=1)
        return np.asarray(self.judgements.n_levels - 1 - found)

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
            found[here] = _level_losses(self.noise, self.squared, self.thresholds, self.flip_rate, code)[here]
        return found

    @property
    def auc(self) -> float | None:
        """The mean area under the ROC curves of the thresholds; None if all levels are the same."""
        areas = [area for each in self.dichotomies if (area := each.auc) is not None]
        return float(np.mean(areas)) if areas else None
