"""The pairs that a report shows, and the margin of each: by a fit that has not seen its label wherever there is one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import column_or_1d

from closefar.arrays import FloatArray
from closefar.label_errors import LabelErrors, find_label_errors
from closefar.learner import LinearMetricLearner
from closefar.noise import label_losses, with_flips
from closefar.pairs import Differences, are_far, check_pairs, check_weights
from closefar.report.effort import Effort
from closefar.report.wording import count

__all__ = ["Judgement", "Pairs", "fresh_copy", "is_training", "judge", "quiet_fits", "without_names"]

_FOLDS = 5


@dataclass(frozen=True)
class Pairs:
    """Labelled pairs that count, as arrays; `numbers` are their row numbers among those given.

    With a learned origin they are single points, and `noun` says so.
    """

    data: FloatArray
    labels: NDArray[Any]
    is_far: NDArray[np.bool_]
    weights: FloatArray
    numbers: NDArray[np.intp]
    noun: str

    @classmethod
    def read(cls, learner: LinearMetricLearner, X: Any, y: Any, sample_weight: Any) -> Pairs:
        """Check pairs and labels; those of weight zero are left out."""
        if y is None:
            raise ValueError("y must hold a close/far label for each pair of X; got None. Give the labels too.")
        data = check_pairs(learner, X, fitting=False).data
        labels = column_or_1d(y)
        is_far = are_far(labels, learner.classes_, len(data))
        weights = check_weights(sample_weight, None, is_far.astype(np.float64), Differences(data))
        kept = np.flatnonzero(weights > 0)
        noun = "pair" if learner.metric_.origin is None else "point"
        return cls(data, labels, is_far, weights, np.arange(len(data)), noun).take(kept)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def signs(self) -> FloatArray:
        return np.where(self.is_far, 1.0, -1.0)

    @property
    def rarer(self) -> int:
        """How many pairs have the rarer label."""
        return int(min(self.is_far.sum(), len(self) - self.is_far.sum()))

    @property
    def sample_weight(self) -> FloatArray | None:
        """The weights where there are any."""
        return None if np.all(self.weights == 1.0) else self.weights

    def take(self, where: NDArray[np.intp]) -> Pairs:
        if len(where) == len(self):
            return self
        return replace(
            self,
            data=self.data[where],
            labels=self.labels[where],
            is_far=self.is_far[where],
            weights=self.weights[where],
            numbers=self.numbers[where],
        )

    def sample(self, n: int, seed: int) -> Pairs:
        """At most n of them, chosen at random, in their order."""
        if n >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False)))

    def margins(self, learner: LinearMetricLearner) -> FloatArray:
        return learner.metric_.forms(Differences(self.data)) - learner.metric_.threshold


@dataclass(frozen=True)
class Judgement:
    """Pairs with the margins that they are judged by.

    Attributes
    ----------
    pairs : Pairs
    margin, probability_far : arrays of shape (n,)
    source : {"out-of-fold", "given", "in-sample"}
        Of which kind they are.
    words : str
        The same in a sentence.
    errors : LabelErrors or None
        Where the fits that judged also say how probably each label is wrong.
    """

    pairs: Pairs
    margin: FloatArray
    probability_far: FloatArray
    source: str
    words: str
    errors: LabelErrors | None = None

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """Whether the side of the threshold is that of the label."""
        right: NDArray[np.bool_] = (self.margin >= 0) == self.pairs.is_far
        return right


def without_names(learner: LinearMetricLearner) -> LinearMetricLearner:
    """A copy that takes arrays without names of columns, as checked pairs are."""
    bare = copy.copy(learner)
    bare.__dict__.pop("feature_names_in_", None)
    return bare


def fresh_copy(learner: LinearMetricLearner) -> LinearMetricLearner:
    """An unfitted copy that keeps what the fit chose: the noise, the rank and the share of flips."""
    fresh: LinearMetricLearner = clone(learner).set_params(
        noise=learner.metric_.noise,
        rank=learner.rank_,
        flip_rate=learner.flip_rate_,
        far_label=learner.classes_[1],
        warm_start=False,
        verbose=0,
    )
    return fresh


@contextmanager
def quiet_fits() -> Iterator[None]:
    """Hide what a fit to part of the pairs warns of: the report is about the fit to all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def judge(learner: LinearMetricLearner, pairs: Pairs, *, has_seen: bool, seed: int) -> Judgement:
    """Judge each pair by the learner or, where it `has_seen` the labels, by fits to the others."""
    noun = pairs.noun
    if not has_seen:
        words = (
            f"Judged by the model as it is on the {count(len(pairs), noun)} given: too well if it was fitted to some."
        )
        return _judgement(learner, pairs, pairs.margins(learner), "given", words)
    effort = Effort.of(learner)
    judged = pairs.sample(effort.pairs_to_judge(len(pairs)), seed)
    n_folds = min(effort.folds(len(judged), _FOLDS), judged.rarer)
    if n_folds < 2:
        reason = f"only {count(judged.rarer, noun)} {'has' if judged.rarer == 1 else 'have'} the rarer label"
        return _by_the_fit_itself(learner, judged, reason)
    try:
        with quiet_fits():
            errors, margin = _out_of_fold(fresh_copy(learner), judged, n_folds, seed)
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return _by_the_fit_itself(learner, judged, f"fits to parts of them failed ({error})")
    words = f"Every {noun} is judged by a fit that has not seen its label ({n_folds} fits, each without its own part)."
    if len(judged) < len(pairs):
        words += f" To save time this is done for {len(judged):,} of the {len(pairs):,} {noun}s, chosen at random."
    return _judgement(learner, judged, margin, "out-of-fold", words, errors)


def is_training(learner: LinearMetricLearner, pairs: Pairs) -> bool:
    """Whether these are the pairs of the fit: as many, with the very loss that it ended with."""
    if len(pairs) != learner.fit_statistics_.n_pairs or pairs.rarer == 0:
        return False
    weights = check_weights(pairs.weights, learner.class_weight, pairs.labels, Differences(pairs.data))
    losses = label_losses(learner.metric_.noise, pairs.signs * pairs.margins(learner), learner.flip_rate_)
    fitted = learner.certificate_.loss
    return bool(abs(np.average(losses, weights=weights) - fitted) <= 1e-7 * (1.0 + fitted))


def _out_of_fold(
    fresh: LinearMetricLearner, pairs: Pairs, n_folds: int, seed: int
) -> tuple[LabelErrors | None, FloatArray]:
    if fresh.class_weight is None:
        weights = pairs.sample_weight
        errors = find_label_errors(
            fresh, pairs.data, pairs.labels, sample_weight=weights, cv=n_folds, random_state=seed
        )
        return errors, errors.margin
    margin = np.empty(len(pairs))
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    for train, test in folds.split(np.zeros(len(pairs)), pairs.is_far):
        seen = pairs.take(train)
        fitted = clone(fresh).fit(seen.data, seen.labels, seen.sample_weight)
        margin[test] = pairs.take(test).margins(fitted)
    return None, margin


def _by_the_fit_itself(learner: LinearMetricLearner, pairs: Pairs, reason: str) -> Judgement:
    words = f"Judged by the fit itself, which has seen these labels, since {reason}: new {pairs.noun}s will do worse."
    return _judgement(learner, pairs, pairs.margins(learner), "in-sample", words)


def _judgement(
    learner: LinearMetricLearner,
    pairs: Pairs,
    margin: FloatArray,
    source: str,
    words: str,
    errors: LabelErrors | None = None,
) -> Judgement:
    probability = with_flips(learner.metric_.noise.cdf(margin), learner.flip_rate_)
    return Judgement(pairs, margin, probability, source, words, errors)
