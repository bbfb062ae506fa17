"""The side of each threshold that a judgement is on: margins, standard errors, and probabilities of wrong labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from sklearn.utils.parallel import Parallel, delayed

from closefar.arrays import TINY, BoolArray, FloatArray, IndexArray
from closefar.fitting import Fit, Scorer, Scores, joined
from closefar.judgements import Judgements, Split
from closefar.model import ScoredLevels
from closefar.noise import FlipRate, Noise, label_losses
from closefar.questions.level_verdicts import LevelEvidence, nearest_cuts
from closefar.questions.margin_errors import SideErrors

__all__ = ["Asked", "Judge", "Verdicts", "judge_sides", "probability_of_other_side", "unseen_scores"]

# Margins are limited to this many standard errors: beyond that nothing changes, and squares do not overflow.
_LARGEST_Z = 1e6


@dataclass(frozen=True, eq=False)
class Asked:
    """The judgements that are judged, and those that fits are made to.

    These are the same, unless the comparisons that are attached to pairs are judged.
    """

    whole: Judgements
    are_attached: bool = False

    @property
    def judgements(self) -> Judgements:
        """Those that are judged."""
        if not self.are_attached:
            return self.whole
        assert self.whole.comparisons is not None
        return self.whole.comparisons

    def __len__(self) -> int:
        return len(self.judgements)

    def training(self, rows: IndexArray) -> Judgements:
        """What a fit is made to, if it sees these of the judgements that are judged."""
        if not self.are_attached:
            return self.whole.take(rows)
        return replace(self.whole, comparisons=self.judgements.take(rows))


@dataclass(frozen=True)
class Verdicts:
    """The margin of each pair, its standard error, and the probability that its label is that of the other side.

    Of levels, it is the margin from the end of its level that is nearest, or furthest on the wrong side.  `agreement`
    is the margin, positive if the label agrees with it, and `margins` are those from all thresholds, a column each.
    `is_new` is true for labels that the fit that judged them has not seen.
    """

    margin: FloatArray
    error: FloatArray
    agreement: FloatArray
    probability: FloatArray
    margins: FloatArray
    is_new: BoolArray

    @property
    def expected(self) -> IndexArray:
        """The level that each squared distance lies in; of two labels, 1 is far."""
        levels: IndexArray = np.sum(self.margins >= 0, axis=1)
        return levels

    def as_scores(self, scores: Scores) -> Scores:
        """The same judgements, with these margins."""
        if isinstance(scores, ScoredLevels):
            return replace(scores, squared=np.zeros(len(scores)), thresholds=-self.margins)
        return replace(scores, margin=self.margin)


@dataclass(frozen=True)
class Judge:
    """A fit to one side of a split: the margins of all pairs, and the standard errors of those on the other side.

    Both have a column for each threshold.  `is_new` is true if the fit has not seen the labels that it judges;
    `train_share` is the share that it has seen.
    """

    margin: FloatArray
    error: FloatArray
    noise: Noise
    flip_rate: FlipRate
    is_new: bool
    train_share: float

    def probability_wrong(
        self, agreement: FloatArray, error: FloatArray, is_far: BoolArray | None = None
    ) -> FloatArray:
        """P(the true margin contradicts the label), where `agreement` is label times estimated margin.

        A new label is further evidence: its likelihood is evaluated at the mean margin on either side.  `is_far` are
        the labels, which matter if there are two flip rates.
        """
        if not self.is_new:
            return probability_of_other_side(agreement, error)
        z = _standardised(agreement, error)
        log_wrong, log_right = norm.logcdf(-z), norm.logcdf(z)
        probability: FloatArray
        density = norm.logpdf(z)
        mean_wrong = np.minimum(agreement - error * np.exp(density - log_wrong), 0.0)
        mean_right = np.maximum(agreement + error * np.exp(density - log_right), 0.0)
        log_wrong = log_wrong - label_losses(self.noise, mean_wrong, self.flip_rate, is_far)
        log_right = log_right - label_losses(self.noise, mean_right, self.flip_rate, is_far)
        probability = expit(log_wrong - log_right)
        return probability


def probability_of_other_side(agreement: FloatArray, error: FloatArray) -> FloatArray:
    """P(the true margin contradicts a label that the fit has seen), where `agreement` is label times margin."""
    probability: FloatArray = np.exp(norm.logcdf(-_standardised(agreement, error)))
    return probability


def _standardised(agreement: FloatArray, error: FloatArray) -> FloatArray:
    return np.clip(agreement / np.maximum(error, TINY), -_LARGEST_Z, _LARGEST_Z)


def judge_sides(
    learn: Callable[[Judgements], Fit], asked: Asked, splits: list[Split], *, n_jobs: int | None = None
) -> Verdicts:
    """Judge each label by the fit to the training side of its test split, or by a fit to all if no split tests it."""
    judgements, n = asked.judgements, len(asked)
    tested = np.zeros(n, dtype=bool)
    for _, test in splits:
        tested[test] = True
    if not np.all(tested):
        splits = [*splits, (np.arange(n), np.flatnonzero(~tested))]
    judges = Parallel(n_jobs=n_jobs)(delayed(_judge)(learn, asked, train, test) for train, test in splits)
    margins, errors = np.empty((2, *judges[0].margin.shape))
    is_new = np.empty(n, dtype=bool)
    for (_, test), judge in zip(splits, judges, strict=True):
        margins[test], errors[test], is_new[test] = judge.margin[test], judge.error, judge.is_new
    folds = [judge for judge in judges if judge.is_new]
    if len(folds) > 1:
        train_share = sum(judge.train_share for judge in folds) / len(folds)
        errors *= _error_ratio([judge.margin.ravel() for judge in folds], errors.ravel(), train_share)
    probability = np.empty(n)
    if judgements.levels is None:
        margin, error, signs = margins[:, 0], errors[:, 0], judgements.signs
        for (_, test), judge in zip(splits, judges, strict=True):
            wrong = judge.probability_wrong(signs[test] * margin[test], error[test], judgements.is_far[test])
            probability[test] = wrong
        return Verdicts(margin, error, signs * margin, probability, margins, is_new)
    for (_, test), judge in zip(splits, judges, strict=True):
        evidence = LevelEvidence(judge.noise, judge.flip_rate, is_new=judge.is_new)
        probability[test] = evidence.probability_wrong(judgements.codes[test], margins[test], errors[test])
    margin, error, agreement = nearest_cuts(judgements.codes, margins, errors)
    return Verdicts(margin, error, agreement, probability, margins, is_new)


def unseen_scores(
    learn: Callable[[Judgements], Fit], asked: Asked, splits: list[Split], *, n_jobs: int | None = None
) -> Scores | None:
    """The judgements that splits test, scored by the fits to the other sides; None if there are none.

    Splits with a pair on both sides are ignored.
    """
    apart = [(train, test) for train, test in splits if not _overlap(train, test)]
    found = Parallel(n_jobs=n_jobs)(delayed(_scores)(learn, asked, train, test) for train, test in apart)
    if not found:
        return None
    parts = [(scores, test) for scores, (_, test) in zip(found, apart, strict=True)]
    tested = np.unique(np.concatenate([test for _, test in apart]))
    return joined(asked.judgements, parts).take(tested)


def _scores(learn: Callable[[Judgements], Fit], asked: Asked, train: IndexArray, test: IndexArray) -> Scores:
    fit = learn(asked.training(train)).unless_interrupted()
    return Scorer.of(fit).score(asked.judgements.take(test))


def _judge(learn: Callable[[Judgements], Fit], asked: Asked, train: IndexArray, test: IndexArray) -> Judge:
    judgements = asked.judgements
    fit = learn(asked.training(train)).unless_interrupted()
    scorer, others = Scorer.of(fit), judgements.take(test)
    margin = scorer.margins(judgements, fit.metric.measure(judgements.data)[:, None])
    errors = SideErrors.of(fit, replace(judgements.take(train).counted(), comparisons=None))
    who = None if others.annotators is None else others.annotators.codes
    return Judge(
        margin=margin,
        error=errors.at(others.data, margin[test], who),
        noise=fit.metric.noise,
        flip_rate=scorer.score(others).flip_rate,
        is_new=not _overlap(train, test),
        train_share=len(train) / len(judgements),
    )


def _overlap(train: IndexArray, test: IndexArray) -> bool:
    is_train = np.zeros(max(train.max(initial=0), test.max(initial=0)) + 1, dtype=bool)
    is_train[train] = True
    return bool(np.any(is_train[test]))


def _error_ratio(margins: list[FloatArray], error: FloatArray, train_share: float) -> float:
    """The ratio of standard errors from differences between the folds' fits to those from the curvature.

    This is a grouped jackknife over the half of the margins nearest to a threshold.  It matters if
    the model is wrong, if pairs are dependent, and if labels are wrong by flips alone: then a side
    is known better than the curvature implies.
    """
    lengths = [float(np.sqrt(np.mean(margin**2))) or 1.0 for margin in margins]
    scaled = np.array([margin / length for margin, length in zip(margins, lengths, strict=True)])
    centre = np.mean(scaled, axis=0)
    near = np.abs(centre) <= np.median(np.abs(centre))
    by_folds = np.var(scaled[:, near], axis=0) / (1.0 - min(train_share, 1.0 - 1e-9))
    by_model = (error[near] / np.mean(lengths)) ** 2
    usual = by_model + np.median(by_model)
    if not np.all(usual > 0):
        return 1.0
    return float(np.sqrt(np.sum(by_folds / usual) / np.sum(by_model / usual)))
