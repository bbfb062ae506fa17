"""The side of the threshold that each pair is on: margins, standard errors, and probabilities of wrong labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from sklearn.utils.parallel import Parallel, delayed

from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray
from closefar.fitting import Fit
from closefar.judgements import Judgements, Split
from closefar.model import Metric, Scored
from closefar.noise import Noise, label_losses
from closefar.questions.label_model import LabelModel
from closefar.questions.moves import MarginMoves
from closefar.questions.thinning import representatives

__all__ = ["Judge", "SideErrors", "Verdicts", "judge_sides", "probability_of_other_side", "unseen_margins"]

# Margins are limited to this many standard errors: beyond that nothing changes, and squares do not overflow.
_LARGEST_Z = 1e6

_MOST_SEEN = 100_000


@dataclass(frozen=True)
class Verdicts:
    """The margin of each pair, its standard error, and the probability that its label is that of the other side.

    `is_new` is true for labels that the fit that judged them has not seen.
    """

    margin: FloatArray
    error: FloatArray
    probability: FloatArray
    is_new: BoolArray


@dataclass(frozen=True)
class Judge:
    """A fit to one side of a split: the margins of all pairs, and the standard errors of those on the other side.

    `is_new` is true if the fit has not seen the labels that it judges; `train_share` is the share that it has seen.
    """

    margin: FloatArray
    error: FloatArray
    noise: Noise
    flip_rate: float
    is_new: bool
    train_share: float

    def probability_wrong(self, agreement: FloatArray, error: FloatArray) -> FloatArray:
        """P(the true margin contradicts the label), where `agreement` is label times estimated margin.

        A new label is further evidence: its likelihood is evaluated at the mean margin on either side.
        """
        if not self.is_new:
            return probability_of_other_side(agreement, error)
        z = _standardised(agreement, error)
        log_wrong, log_right = norm.logcdf(-z), norm.logcdf(z)
        probability: FloatArray
        density = norm.logpdf(z)
        mean_wrong = np.minimum(agreement - error * np.exp(density - log_wrong), 0.0)
        mean_right = np.maximum(agreement + error * np.exp(density - log_right), 0.0)
        log_wrong = log_wrong - label_losses(self.noise, mean_wrong, self.flip_rate)
        log_right = log_right - label_losses(self.noise, mean_right, self.flip_rate)
        probability = expit(log_wrong - log_right)
        return probability


def probability_of_other_side(agreement: FloatArray, error: FloatArray) -> FloatArray:
    """P(the true margin contradicts a label that the fit has seen), where `agreement` is label times margin."""
    probability: FloatArray = np.exp(norm.logcdf(-_standardised(agreement, error)))
    return probability


def _standardised(agreement: FloatArray, error: FloatArray) -> FloatArray:
    return np.clip(agreement / np.maximum(error, TINY), -_LARGEST_Z, _LARGEST_Z)


def judge_sides(
    learn: Callable[[Judgements], Fit], judgements: Judgements, splits: list[Split], *, n_jobs: int | None = None
) -> Verdicts:
    """Judge each label by the fit to the training side of its test split, or by a fit to all if no split tests it."""
    n = len(judgements)
    tested = np.zeros(n, dtype=bool)
    for _, test in splits:
        tested[test] = True
    if not np.all(tested):
        splits = [*splits, (np.arange(n), np.flatnonzero(~tested))]
    judges = Parallel(n_jobs=n_jobs)(delayed(_judge)(learn, judgements, train, test) for train, test in splits)
    margin, error, probability = np.empty((3, n))
    is_new = np.empty(n, dtype=bool)
    for (_, test), judge in zip(splits, judges, strict=True):
        margin[test], error[test], is_new[test] = judge.margin[test], judge.error, judge.is_new
    folds = [judge for judge in judges if judge.is_new]
    if len(folds) > 1:
        train_share = sum(judge.train_share for judge in folds) / len(folds)
        error *= _error_ratio([judge.margin for judge in folds], error, train_share)
    signs = judgements.signs
    for (_, test), judge in zip(splits, judges, strict=True):
        probability[test] = judge.probability_wrong(signs[test] * margin[test], error[test])
    return Verdicts(margin, error, probability, is_new)


def unseen_margins(
    learn: Callable[[Judgements], Fit], judgements: Judgements, splits: list[Split], *, n_jobs: int | None = None
) -> FloatArray:
    """The out-of-fold margin of each pair; NaN if no split tests it.

    Splits with a pair on both sides are ignored.
    """
    apart = [(train, test) for train, test in splits if not _overlap(train, test)]
    found = Parallel(n_jobs=n_jobs)(delayed(_margins)(learn, judgements, train, test) for train, test in apart)
    margin = np.full(len(judgements), np.nan)
    for (_, test), margins in zip(apart, found, strict=True):
        margin[test] = margins
    return margin


def _margins(
    learn: Callable[[Judgements], Fit], judgements: Judgements, train: IndexArray, test: IndexArray
) -> FloatArray:
    fit = learn(judgements.take(train)).unless_interrupted()
    return Scored.by(fit.metric, judgements.take(test)).margin


def _judge(learn: Callable[[Judgements], Fit], judgements: Judgements, train: IndexArray, test: IndexArray) -> Judge:
    seen, asked = judgements.take(train), judgements.take(test)
    fit = learn(seen).unless_interrupted()
    return Judge(
        margin=Scored.by(fit.metric, judgements).margin,
        error=_errors_of_sides(fit.metric, seen.counted(), asked),
        noise=fit.metric.noise,
        flip_rate=fit.flip_rate,
        is_new=not _overlap(train, test),
        train_share=len(train) / len(judgements),
    )


def _overlap(train: IndexArray, test: IndexArray) -> bool:
    is_train = np.zeros(max(train.max(initial=0), test.max(initial=0)) + 1, dtype=bool)
    is_train[train] = True
    return bool(np.any(is_train[test]))


@dataclass(frozen=True)
class SideErrors:
    """The standard errors of margins, without the common scale of all margins, which changes no side.

    Margins are linear in (M, tau), so the scale has the information sum_i I_i m_i^2 and is
    independent, to first order, of the rest.
    """

    moves: MarginMoves
    covariance: FloatArray
    of_scale: float

    @classmethod
    def of(cls, metric: Metric, seen: Judgements) -> SideErrors:
        """The errors of the margins of a metric that was fitted to these judgements."""
        moves = MarginMoves(metric, seen)
        seen = _thinned(seen, moves)
        margin = Scored.by(metric, seen).margin
        model = LabelModel.at(margin, metric.noise, metric.one_flip_rate)
        of_scale = 1.0 / max(float(np.sum(seen.weights * model.information * margin**2)), TINY)
        return cls(moves, moves.covariance(seen.data, model, seen.weights), of_scale)

    def at(self, data: Array, margin: FloatArray) -> FloatArray:
        """The error of each of these margins."""
        variance = self.moves.variances(data, self.covariance)
        return np.sqrt(np.maximum(variance - self.of_scale * margin**2, 0.0))


def _errors_of_sides(metric: Metric, seen: Judgements, asked: Judgements) -> FloatArray:
    return SideErrors.of(metric, seen).at(asked.data, Scored.by(metric, asked).margin)


def _thinned(judgements: Judgements, moves: MarginMoves) -> Judgements:
    """A sample of many judgements, weighted to represent all: standard errors are within about one percent."""
    if len(judgements) <= _MOST_SEEN:
        return judgements
    chosen, number = representatives(judgements.weights, moves.mean_squares(judgements.data), _MOST_SEEN)
    some = judgements.take(chosen)
    return some.with_weights(number * some.weights)


def _error_ratio(margins: list[FloatArray], error: FloatArray, train_share: float) -> float:
    """The ratio of standard errors from differences between the folds' fits to those from the curvature.

    This is a grouped jackknife over the half of the pairs nearest to the threshold.  It matters if
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
