"""Judgements of every kind, scored by what was fitted: a metric, annotators, and the noise of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.fitting.result import Fit
from closefar.judgements import Judgements, Kind
from closefar.model import Metric, Scores


@dataclass(frozen=True, eq=False)
class Scorer:
    """A metric with what else is needed to predict judgements.

    Attributes
    ----------
    metric : Metric
    strictness : array of shape (R,), optional
        What each annotator adds to the thresholds.
    flip_rates : array of shape (R,), optional
        The rate of each annotator, where they have flip rates of their own.
    comparison_noise : float
        The noise of comparisons relative to that of pairs, in a fit to both.
    """

    metric: Metric
    strictness: FloatArray | None = None
    flip_rates: FloatArray | None = None
    comparison_noise: float = 1.0

    @classmethod
    def of(cls, fit: Fit) -> Scorer:
        """What a fit has learned."""
        annotators = fit.annotators
        if annotators is None:
            return cls(fit.metric, comparison_noise=fit.relative_noise)
        return cls(fit.metric, annotators.strictness, annotators.flip_rates, fit.relative_noise)

    def score(self, judgements: Judgements, squared: FloatArray | None = None) -> Scores:
        """Score pairs, by the strictness of their annotators where these are known, or comparisons.

        `squared` are the squared distances, of comparisons those of the second leg less those of the first, where
        they are known.
        """
        squared = self.metric.measure(judgements.data) if squared is None else squared
        margins = self.margins(judgements, squared[:, None])
        return Scores(judgements, margins, self.metric.noise, self._rates(judgements))

    def margins(self, judgements: Judgements, squared: FloatArray) -> FloatArray:
        """The margins at squared distances (n, m); of levels, from each threshold."""
        if judgements.kind is Kind.COMPARISONS:
            return squared / self.comparison_noise if self.comparison_noise != 1.0 else squared
        shift = self._shift(judgements)
        shifted = squared if np.ndim(shift) == 0 else squared - shift[:, None]
        return np.hstack([shifted - threshold for threshold in self.metric.thresholds])

    def _shift(self, judgements: Judgements) -> Any:
        """What the annotator of each judgement adds to thresholds; zero for one who is not known."""
        who = judgements.annotators
        return 0.0 if who is None or self.strictness is None else self.strictness[who.codes]

    def _rates(self, judgements: Judgements) -> Any:
        """The flip rate, or that of each judgement, if annotators have their own."""
        if judgements.kind is Kind.COMPARISONS:
            return self.metric.compared_flip_rate
        who = judgements.annotators
        if who is None or self.flip_rates is None:
            return self.metric.flip_rate
        return self.flip_rates[who.codes]


def score(fit: Fit, judgements: Judgements) -> Scores:
    """Score judgements by a fit."""
    return Scorer.of(fit).score(judgements)


def join_scores(judgements: Judgements, parts: Sequence[tuple[Scores, IndexArray]]) -> Scores:
    """Parts of the judgements, each scored by a fit of its own, as one; NaN where no part has a judgement."""
    first = parts[0][0]
    margins = np.full((len(judgements), first.margins.shape[1]), np.nan)
    for each, where in parts:
        margins[where] = each.margins
    rates = [(each.flip_rate, where) for each, where in parts]
    return Scores(judgements, margins, first.noise, _join_rates(len(judgements), rates))


def _join_rates(n: int, parts: Sequence[tuple[Any, IndexArray]]) -> Any:
    """One flip rate, or two, if all parts have the same numbers; otherwise as many numbers as judgements."""
    first, _ = parts[0]
    if np.ndim(first) <= 1 and all(np.array_equal(rate, first) for rate, _ in parts):
        return first
    if isinstance(first, tuple):
        return tuple(_join_rates(n, [(rate[side], where) for rate, where in parts]) for side in (0, 1))
    found = np.full(n, np.nan)
    for rate, where in parts:
        found[where] = rate
    return found
