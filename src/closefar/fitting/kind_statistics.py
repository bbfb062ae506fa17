"""Statistics of fits to levels, comparisons, mixes of them, and judgements of annotators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.fitting.likelihoods import is_plain
from closefar.fitting.solved import Solved
from closefar.fitting.statistics import FitStatistics
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.thresholds import level_flips
from closefar.noise import FlipRate, with_flips

__all__ = ["measured_statistics", "statistics_of"]


def statistics_of(solved: Solved, metric: Metric, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
    """The statistics of the judgements of a fit, whatever their kind."""
    judgements = solved.judgements
    if is_plain(judgements) and not isinstance(solved.flip_rate, tuple):
        return solved.statistics(column_scales, n_parameters)
    squared = solved.rows.gather(solved.solution.squared)
    if judgements.annotators is not None and solved.strictness is not None:
        shift = solved.strictness[judgements.annotators.codes]
        squared = np.append(squared[: len(shift)] - shift, squared[len(shift) :])
    return measured_statistics(judgements, squared, metric, column_scales, n_parameters)


def measured_statistics(
    judgements: Judgements, squared: FloatArray, metric: Metric, column_scales: FloatArray, n_parameters: int
) -> FitStatistics:
    """The statistics of judgements of any kind.

    `squared` are the squared distances, less the strictness of the annotators, and then the margins of the
    comparisons that are fitted with the pairs.
    """
    n = len(judgements)
    if judgements.kind is Kind.COMPARISONS:
        parts = [_compared(squared, judgements.is_far, judgements.weights, metric)]
    else:
        parts = [_graded(judgements, squared[:n], metric)]
    compared = judgements.comparisons
    if compared is not None:
        parts.append(_compared(squared[n:], compared.is_far, compared.weights, metric))
    first, total = parts[0], sum(part.total for part in parts)
    doubt = sum(float(part.weights @ part.doubt) for part in parts)
    squares = sum(float(part.weights @ part.weights) for part in parts)
    return FitStatistics(
        n_pairs=n,
        share_far=judgements.mean(judgements.is_far),
        null_loss=sum(part.total * part.null_loss for part in parts) / total,
        accuracy=first.mean(first.is_right),
        wrong_share=first.mean(first.wrong),
        column_scales=tuple(column_scales.tolist()),
        n_parameters=n_parameters,
        uncertain_labels=total / squares * doubt,
        level_shares=first.shares if judgements.kind is Kind.LEVELS else (),
        n_comparisons=0 if compared is None else len(compared),
        comparison_accuracy=None if compared is None else parts[1].mean(parts[1].is_right),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """Judgements of one kind: whether each is the most probable one, the probability of others, and its doubt."""

    weights: FloatArray
    is_right: BoolArray
    wrong: FloatArray
    doubt: FloatArray
    shares: tuple[float, ...]

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    @property
    def null_loss(self) -> float:
        """The loss of the best constant probabilities."""
        return -sum(share * float(np.log(share)) for share in self.shares if share > 0.0)

    def mean(self, values: FloatArray | BoolArray) -> float:
        return float(self.weights @ values) / self.total


def _compared(margin: FloatArray, is_far: BoolArray, weights: FloatArray, metric: Metric) -> _Part:
    rarer = metric.noise.cdf(-np.abs(margin))
    wrong = rarer if metric.thresholds else with_flips(rarer, metric.flip_rate)
    return _Part(weights, (margin >= 0) == is_far, wrong, 4.0 * rarer * (1.0 - rarer), (0.5, 0.5))


def _graded(judgements: Judgements, squared: FloatArray, metric: Metric) -> _Part:
    beyond = np.stack([metric.noise.cdf(squared - threshold) for threshold in metric.thresholds])
    probabilities = -np.diff(beyond, axis=0, prepend=1.0, append=0.0)
    predicted = np.argmax(probabilities, axis=0)
    shares = np.bincount(judgements.codes, weights=judgements.weights, minlength=judgements.n_levels)
    return _Part(
        judgements.weights,
        predicted == judgements.codes,
        _wrong(probabilities, predicted, metric.flip_rate),
        np.max(4.0 * beyond * (1.0 - beyond), axis=0),
        tuple((shares / shares.sum()).tolist()),
    )


def _wrong(probabilities: FloatArray, predicted: IndexArray, flip_rate: FlipRate) -> FloatArray:
    """The probability of another level than the predicted one, given those of all levels without flips."""
    right: FloatArray = probabilities.max(axis=0)
    if isinstance(flip_rate, tuple):
        of_close, of_far = flip_rate
        wrong: FloatArray = np.where(predicted == 1, of_far, of_close) + (1.0 - of_close - of_far) * (1.0 - right)
        return wrong
    each, share = level_flips(flip_rate, len(probabilities))
    other: FloatArray = 1.0 - (each + share * right)
    return other
