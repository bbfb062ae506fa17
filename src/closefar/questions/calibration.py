"""Calibration: the share labelled far against the predicted probability of far, in bins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closefar.arrays import TURNED, BoolArray, FloatArray, IndexArray, is_indexed, to_numpy
from closefar.fitting import Fit, Scorer, Scores
from closefar.judgements import Judgements, Kind, Tuples, effective_number
from closefar.model import Metric, Scored
from closefar.noise import has_flips

# ---------------------------------------------------------------------------------------------------------------------
# Bins of about equal weight.


_ROUNDING = 1e-12  # of sums of weights


def weighted_bins(values: FloatArray, weights: FloatArray, n_bins: int) -> IndexArray:
    """Return the bin of each value, numbered from 0 at the smallest, all of about the same weight.

    Equal values share a bin, so their order never matters; there may be fewer than `n_bins` bins.
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    wanted = np.arange(1, n_bins) / n_bins
    edges = np.unique(values[order][np.searchsorted(share, wanted - _ROUNDING)])
    bins = np.searchsorted(edges, values, side="right")
    return np.unique(bins, return_inverse=True)[1]


# ---------------------------------------------------------------------------------------------------------------------
# Judgements of every kind as answers to questions with two sides, which are tested like close/far labels.
#
# Levels are asked whether they are at least k, for each k: that is a close/far label with the threshold of level k.
# A comparison turned round is the same comparison, so each is turned such that its margin is positive.


COMPARED = "comparisons"


@dataclass(frozen=True, eq=False)
class TwoSided:
    """Judgements scored as answers to one question with two sides.

    Attributes
    ----------
    name : str
        What is asked; empty for close/far labels.
    metric : Metric
    scored : Scored
    comparison_noise : float
        What margins of comparisons are divided by.
    n_rates : int
        How many flip rates were estimated with the metric.
    annotators : array of shape (n,), optional
        The annotator of each judgement.
    n_annotators : int
        How many annotators have a strictness of their own.
    """

    name: str
    metric: Metric
    scored: Scored
    comparison_noise: float = 1.0
    n_rates: int = 0
    annotators: IndexArray | None = None
    n_annotators: int = 0

    @property
    def judgements(self) -> Judgements:
        return self.scored.judgements

    @property
    def are_compared(self) -> bool:
        return self.judgements.kind is Kind.COMPARISONS


def two_sided(fit: Fit, judgements: Judgements) -> tuple[TwoSided, ...]:
    """The questions that these judgements answer; of pairs with comparisons, those about comparisons last."""
    pairs, others = replace(judgements, comparisons=None), judgements.comparisons
    found = list(_of_one_kind(fit, pairs))
    return tuple(found if others is None else [*found, *_of_one_kind(fit, others)])


def _of_one_kind(fit: Fit, judgements: Judgements) -> list[TwoSided]:
    scores = Scorer.of(fit).score(judgements)
    is_estimated = fit.known.estimates_flips or (fit.settings.flip_rate == "auto" and has_flips(fit.flip_rate))
    n_rates = int(np.size(fit.metric.flip_rate)) if is_estimated else 0
    if judgements.kind is Kind.COMPARISONS:
        assert isinstance(scores, Scored)
        return [TwoSided(COMPARED, fit.metric, turned(scores), fit.relative_noise, min(n_rates, 1))]
    who = None if fit.annotators is None else judgements.annotators
    by: dict[str, Any] = {} if who is None else {"annotators": who.codes, "n_annotators": len(who.names)}
    if isinstance(scores, Scored):
        return [TwoSided("", fit.metric, scores, n_rates=n_rates, **by)]
    # The flip rate of levels gives both sides of a dichotomy rates of their own.
    n_rates = 2 * int(n_rates > 0) if judgements.n_levels > 2 else n_rates
    names = judgements.sides.classes.tolist()
    return [
        TwoSided(f"level >= {names[k]}", fit.metric, scored, n_rates=n_rates, **by)
        for k, scored in enumerate(scores.dichotomies, start=1)
    ]


def turned(scored: Scored) -> Scored:
    """The comparisons turned such that each margin is positive: is_far then says whether the answer agrees with it."""
    judgements, turn = scored.judgements, scored.margin < 0
    answers = judgements.is_far != turn
    given = replace(judgements, data=_turned(judgements.data, turn), is_far=answers)
    return replace(scored, judgements=given, margin=np.abs(scored.margin))


def _turned(data: Any, turn: BoolArray) -> Any:
    order = TURNED[int(data.shape[1])]
    if is_indexed(data):
        index = to_numpy(data.index)
        return Tuples(data.points, np.where(turn[:, None], index[:, order], index))
    values = to_numpy(data)
    return np.where(turn[:, None, None], values[:, order], values)


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs with about the same probability of far: its mean, the share labelled far with a 95% interval, and a count.

    If the interval does not contain `predicted`, the probabilities are miscalibrated beyond chance.
    """

    predicted: float
    observed: float
    low: float
    high: float
    count: int
    weight: float

    @property
    def is_within_chance(self) -> bool:
        return self.low <= self.predicted <= self.high


def calibrate(scored: Scored, n_bins: int) -> list[CalibrationBin]:
    """Compare probabilities with labels in bins of about equal weight."""
    probability, judgements = scored.probability_far, scored.judgements
    bins = weighted_bins(probability, judgements.weights, n_bins)
    found = []
    for index in range(int(bins.max()) + 1):
        inside = bins == index
        weights = judgements.weights[inside]
        observed = float(np.average(judgements.is_far[inside], weights=weights))
        low, high = wilson(observed, effective_number(weights))
        predicted = float(np.average(probability[inside], weights=weights))
        found.append(CalibrationBin(predicted, observed, low, high, int(inside.sum()), float(weights.sum())))
    return found


def sides_of(scored: Scores) -> list[Scored]:
    """Judgements of two sides: the dichotomies of levels, and comparisons turned so that the likelier answer is far."""
    return [turned(each) if each.judgements.kind is Kind.COMPARISONS else each for each in scored.dichotomies]


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95% interval for a share of n independent pairs."""
    z2 = 1.96**2
    centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n)
    reach = 1.96 / (1.0 + z2 / n) * float(np.sqrt(share * (1.0 - share) / n + z2 / (4.0 * n * n)))
    return min(max(centre - reach, 0.0), share), max(min(centre + reach, 1.0), share)
