"""The pairs that a report shows, and the margin of each: by a fit that has not seen its label wherever there is one.

Where pairs share points, or belong to groups, by a fit that has not seen those either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.utils import check_random_state

from closefar.arrays import BoolArray, FloatArray, numbered
from closefar.fitting import Fit, Scorer, Scores, fit, join_scores, measured_statistics, refit_part, score
from closefar.judgements import Judgements, Kind, Split, most_folds, split_judgements, variance_of_sum
from closefar.model import ScoredLevels
from closefar.packed import packed_size
from closefar.questions import MOST_MOVES, LabelErrors, flip_aware, judge_labels, wilson
from closefar.report.wording import count

# ---------------------------------------------------------------------------------------------------------------------
# How much work the costly parts of a report are, counted and not timed, so that a report is the same each time.
#
# The unit is about a floating point operation; a slow core does some 1e9 of it per second.


_LIMIT = 2e10  # of one part
_FEWEST_PAIRS = 2000  # which know a share of one half to 2.2 percentage points
_MOST_PAIRS = 30_000  # which know an accuracy to 0.6 percentage points
_FEWEST_PASSES = 20.0  # where a fit began near its end
_FEW_FEATURES = 16  # up to which the proof of a fit takes no longer than the fit
_MOST_NUMBERS = 4e6  # in memory at once


@dataclass(frozen=True)
class Effort:
    """The work of one fit and of one pass of standard errors, for each pair."""

    n_features: int
    n_moves: int
    rank: int
    fit: float
    moves: float

    @classmethod
    def of(cls, fit: Fit) -> Effort:
        d, k = len(fit.metric.factor), fit.metric.rank
        passes = max(fit.certificate.n_passes, _FEWEST_PASSES)
        n_moves = d * k - k * (k - 1) // 2 + 1
        return cls(d, n_moves, k, passes * d * d, float(min(n_moves, MOST_MOVES) ** 2))

    @property
    def has_many_features(self) -> bool:
        """Whether a proven fit takes several times as long as an approximate one."""
        return self.n_features > _FEW_FEATURES

    def pairs_to_judge(self, n: int, n_rounds: int = 1) -> int:
        """How many of n pairs to judge out of fold, in this many rounds."""
        return self._affordable(n, 2.0 * _LIMIT, 5.0 * n_rounds * (self.fit + self.moves))

    def folds(self, n: int, usual: int) -> int:
        """Three instead of the usual where even the fewest pairs are much work."""
        return usual if usual * n * self.fit <= 2.0 * _LIMIT else 3

    def pairs_to_check(self, n: int) -> int:
        """How many of n pairs to check the noise with."""
        return self._affordable(n, 0.5 * _LIMIT, self.moves)

    def pairs_to_truncate(self, n: int) -> int:
        return self._affordable(n, _MOST_NUMBERS, self.rank + 1.0)

    def can_refit_truncated(self, n: int) -> bool:
        return n * self.fit * self.rank / 3.0 <= 2.0 * _LIMIT

    def repeats(self, n: int, usual: int) -> int:
        """Of a learning curve of fits that double in size up to n; small fits of many columns are slow."""
        return usual if not self.has_many_features and 2.0 * usual * n * self.fit <= _LIMIT else 1

    def pairs_to_learn_from(self, n: int) -> int:
        return self._affordable(n, _LIMIT, 2.0 * self.fit)

    @property
    def fewest_to_learn_from(self) -> int:
        """With fewer pairs than this most of the metric is a guess."""
        return self.n_moves // 4

    def can_refit(self, n: int, times: int) -> bool:
        return times * n * self.fit <= _LIMIT

    def can_sandwich(self, n: int) -> bool:
        return float(n) * packed_size(self.n_features) ** 2 <= 5.0 * _LIMIT

    def _affordable(self, n: int, limit: float, work_per_pair: float) -> int:
        return int(np.clip(limit / max(work_per_pair, 1.0), min(n, _FEWEST_PAIRS), min(n, _MOST_PAIRS)))


_FOLDS = 5  # as is usual: each fit sees four fifths of the pairs
_DIVISIONS = 3  # of points that are all linked by pairs: each tests about a fifth of these


@dataclass(frozen=True)
class Judged:
    """Pairs with the margins that they are judged by.

    Attributes
    ----------
    scored : Scored or ScoredLevels
    source : {"out-of-fold", "given", "in-sample"}
        Of which kind the margins are.
    words : str
        The same in a sentence.
    noun : str
        What one of them is called.
    thresholds : array of shape (n,)
        Of the fit that judged each: the mean of those of levels, and zero for comparisons.
    errors : LabelErrors or None
        Where the fits that judged also say how probably each label is wrong.
    doubt : str or None
        Why they do not.
    groups : array of shape (n,) or (n, 2), or None
        Which of them depend on each other.
    unseen : {"pair", "group", "point"}
        What is new to the fits that judged.
    known : Judged or None
        All of them as new pairs of known groups or points, where `unseen` are those.
    """

    scored: Scores
    source: str
    words: str
    noun: str
    thresholds: FloatArray
    errors: LabelErrors | None = None
    doubt: str | None = None
    groups: NDArray[Any] | None = None
    unseen: str = "pair"
    known: Judged | None = None

    @property
    def judgements(self) -> Judgements:
        return self.scored.judgements

    def squared_distances(self, threshold: float) -> FloatArray:
        """The squared distance of each on a scale on which every fit that judged has this threshold.

        A threshold of zero is on no other scale; distances are then shifted instead.
        """
        own = self.thresholds
        margin = self.scored.squared - own if isinstance(self.scored, ScoredLevels) else self.scored.margin
        has_scale = (own > 0) & (threshold > 0)
        scale = np.divide(threshold, own, out=np.ones(len(own)), where=has_scale)
        squared: FloatArray = np.where(has_scale, scale * (margin + own), np.maximum(margin + threshold, 0.0))
        return squared

    @property
    def label_by_label(self) -> Judged:
        """Every one of them, for what is asked of these labels and not of new points."""
        return self if self.known is None else self.known

    @property
    def n_units(self) -> int:
        """How many points or groups there are, or pairs where those are independent."""
        return len(self.scored) if self.groups is None else numbered(self.groups)[1]

    def interval(self, holds: BoolArray) -> tuple[float, float]:
        """The 95% interval of the share for which something holds, wider where pairs depend on each other."""
        share = self.judgements.mean(holds)
        return wilson(share, self.effective_number(holds))

    def effective_number(self, holds: BoolArray) -> float:
        """As many independent pairs would know this share as well."""
        most = self.judgements.effective_number
        if self.groups is None:
            return most
        share, shares = self.judgements.mean(holds), self.judgements.shares
        n_units, variance = self.n_units, variance_of_sum((holds - share) * shares, self.groups)
        if n_units > 1:  # few groups know their spread badly
            variance *= (student.ppf(0.975, n_units - 1) / 1.96) ** 2
        if variance <= 0:
            return min(most, n_units / np.ndim(self.groups))
        return min(most, share * (1.0 - share) / variance)


def noun_of(fitted: Fit) -> str:
    """What a judgement is about: two points, more of them or, with a learned origin, one."""
    return fitted.kind.noun if fitted.metric.origin is None else "point"


def has_sides(judgements: Judgements) -> bool:
    """Whether the judgements differ; a comparison can be given either way round."""
    return judgements.kind is Kind.COMPARISONS or len(np.unique(judgements.codes)) > 1


def judge(
    fitted: Fit, judgements: Judgements, *, has_seen: bool, seed: int, groups: NDArray[Any] | None = None
) -> Judged:
    """Judge each pair by the fit or, where it `has_seen` the labels, by fits to the others.

    `groups` are those of all pairs that were given, by their row numbers.
    """
    noun = noun_of(fitted)
    if not has_seen:
        words = (
            f"The model is evaluated as it is on the {count(len(judgements), noun)} given. The figures are optimistic "
            "if it was fitted to some of them."
        )
        own = None if groups is None else groups[judgements.numbers]
        if own is not None:
            unit = "points" if own.ndim == 2 else "groups"
            words += f" They share {unit}, which the intervals account for."
        return _by_metric(fitted, judgements, "given", words, groups=own)
    effort = Effort.of(fitted)
    n_rounds = 1 if groups is None else 2
    judged = judgements.sample(effort.pairs_to_judge(len(judgements), n_rounds), seed)
    n_folds, seed = effort.folds(len(judged), _FOLDS), check_random_state(seed).randint(2**31)
    own = None if groups is None else groups[judged.numbers]
    by_pair = replace(_by_pair(fitted, judged, n_folds, seed, own), groups=own)
    can_repeat = effort.pairs_to_judge(len(judged), 1 + _DIVISIONS) == len(judged)
    n_divisions = _DIVISIONS if can_repeat else 1
    found = by_pair if own is None else _by_group(fitted, by_pair, own, n_folds, n_divisions, seed)
    if len(judged) == len(judgements) or found.source == "in-sample":
        return found
    sampled = f" To save time, this is done for a random sample of {len(judged):,} of the {len(judgements):,} {noun}s."
    return replace(found, words=found.words + sampled)


def is_training(fitted: Fit, judgements: Judgements) -> bool:
    """Whether these are the pairs of the fit: as many, with the very statistics that it ended with."""
    known = fitted.statistics
    if fitted.is_metric_alone or len(judgements) != known.n_pairs or not has_sides(judgements):
        return False
    weighted, measure = judgements.weighted(fitted.settings.class_weight), fitted.metric.measure
    others = [] if weighted.comparisons is None else [measure(weighted.comparisons.data)]
    squared = np.concatenate([measure(weighted.data), *others])
    scales = np.array(known.column_scales)
    found = measured_statistics(weighted, squared, Scorer.of(fitted), scales, known.n_parameters)
    return all(
        math.isclose(getattr(found, name), getattr(known, name), rel_tol=1e-6, abs_tol=1e-7)
        for name in ("null_loss", "accuracy", "wrong_share", "uncertain_labels")
    )


def _by_pair(fitted: Fit, judged: Judgements, n_folds: int, seed: int, groups: NDArray[Any] | None) -> Judged:
    """Judge each by a fit that has not seen its label."""
    noun = noun_of(fitted)
    n_folds = min(n_folds, judged.n_rarer)
    if n_folds < 2:
        reason = f"only {count(judged.n_rarer, noun)} {'has' if judged.n_rarer == 1 else 'have'} the rarer label"
        return _by_the_fit_itself(fitted, judged, reason)
    splits = split_judgements(n_folds, judged, seed=seed)
    try:
        scored, thresholds = _out_of_fold(fitted, judged, splits)
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return _by_the_fit_itself(fitted, judged, f"fits to parts of them failed ({error})")
    errors, doubt = _label_errors(fitted, scored, groups)
    unseen = f"by a fit that has not seen its {fitted.kind.term} ({n_folds} folds)"
    words = f"Cross-validated: each {noun} is evaluated {unseen}."
    return Judged(scored, "out-of-fold", words, noun, thresholds, errors, doubt)


def _by_group(fitted: Fit, by_pair: Judged, groups: NDArray[Any], n_folds: int, n_divisions: int, seed: int) -> Judged:
    """Judge those that some split tests by fits that have not seen their points or groups; else by pair, and say so."""
    judged, noun = by_pair.judgements, by_pair.noun
    unit, its = ("point", "points") if groups.ndim == 2 else ("group", "group")
    share = f"{noun.capitalize()}s {f'share {unit}s' if unit == 'point' else 'belong to groups'}"
    splits = _group_splits(judged, groups, n_folds, n_divisions, seed) if by_pair.source == "out-of-fold" else []
    if splits:
        try:
            scored, thresholds = _out_of_fold(fitted, judged, splits)
        except ValueError:  # a part of few or odd pairs can't be fitted
            splits = []
    if not splits:
        words = (
            f" {share}, and too few {unit}s can be left out together to test on new {unit}s: the figures are for new "
            f"{noun}s of these {unit}s and may be worse for new {unit}s."
        )
        return replace(by_pair, words=by_pair.words + words)
    tested = np.flatnonzero(np.isfinite(thresholds))
    words = (
        f"Cross-validated: {share[0].lower()}{share[1:]}, so each {noun} is evaluated by a fit that has not seen its "
        f"{its}. The figures are for new {unit}s ({count(len(splits), 'fold')})."
    )
    if len(tested) < len(judged):
        words += (
            f" {len(judged) - len(tested):,} of {count(len(judged), noun)} are not counted, because their {unit}s were "
            "never left out together."
        )
    term = fitted.kind.term
    words += f" Suspicious {term}s are judged by fits that have not seen that {term} but may have seen its {its}."
    own = groups[tested]
    return Judged(
        scored.take(tested), "out-of-fold", words, noun, thresholds[tested], groups=own, unseen=unit, known=by_pair
    )


def _group_splits(judged: Judgements, groups: NDArray[Any], n_folds: int, n_divisions: int, seed: int) -> list[Split]:
    """Splits that keep groups or points apart, of which at most one tests each pair."""
    n_folds = most_folds(n_folds, judged, groups, seed=seed)
    is_tested, found = np.zeros(len(judged), dtype=bool), []
    for division in range(n_divisions if n_folds else 0):
        try:
            splits = split_judgements(n_folds, judged, groups=groups, seed=seed + division)
        except ValueError:  # a side of one class
            continue
        for train, test in splits:
            new = test[~is_tested[test]]
            is_tested[new] = True
            found += [(train, new)] if len(new) else []
        if 2 * is_tested.sum() > len(judged):
            break
    return found


def _label_errors(fitted: Fit, unseen: Scores, groups: NDArray[Any] | None) -> tuple[LabelErrors | None, str | None]:
    """How probably each label is wrong, or why that is not known.

    Class weights move the threshold, and then it can't be told.
    """
    if fitted.settings.class_weight is not None:
        return None, None
    judgements, changes = unseen.judgements, flip_aware(fitted.settings)
    is_whole = len(judgements) == fitted.statistics.n_pairs
    try:
        own = fitted if is_whole and not changes else fit(judgements, fitted.chosen.but(**changes))
        return judge_labels(own, judgements, unseen, groups=groups), None
    except ValueError as error:
        return None, str(error).rstrip(".")


def _out_of_fold(fitted: Fit, judgements: Judgements, splits: list[Split]) -> tuple[Scores, FloatArray]:
    """The judgements scored by fits to the train sides of the splits that test them, and the thresholds of those fits.

    Those that no split tests have the threshold NaN.
    """
    parts = [(refit_part(fitted, judgements.take(train)), test) for train, test in splits]
    thresholds = np.full(len(judgements), np.nan)
    for part, test in parts:
        thresholds[test] = _threshold(part)
    return join_scores(judgements, [(score(part, judgements.take(test)), test) for part, test in parts]), thresholds


def _threshold(fitted: Fit) -> float:
    """The threshold, the mean of those of levels, or zero for comparisons."""
    return float(np.mean(fitted.metric.thresholds)) if fitted.metric.thresholds else 0.0


def _by_the_fit_itself(fitted: Fit, judgements: Judgements, reason: str) -> Judged:
    noun = noun_of(fitted)
    seen = f"the fit has seen these {fitted.kind.term}s"
    words = f"Not cross-validated, because {reason}: {seen}, and new {noun}s will do worse."
    return _by_metric(fitted, judgements, "in-sample", words)


def _by_metric(
    fitted: Fit, judgements: Judgements, source: str, words: str, groups: NDArray[Any] | None = None
) -> Judged:
    """Judge by the fit as it is."""
    scored, thresholds = score(fitted, judgements), np.full(len(judgements), _threshold(fitted))
    return Judged(scored, source, words, noun_of(fitted), thresholds, groups=groups)
