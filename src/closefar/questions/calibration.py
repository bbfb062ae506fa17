"""Calibration: the share labelled far against the predicted probability of far, in bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.fitting import Scores
from closefar.judgements import Kind, effective_number
from closefar.model import Scored
from closefar.questions.bins import weighted_bins
from closefar.questions.two_sided import turned

__all__ = ["CalibrationBin", "calibrate", "sides_of", "wilson"]


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
