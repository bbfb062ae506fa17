"""Judgements of every kind as answers to questions with two sides, which are tested like close/far labels.

Levels are asked whether they are at least k, for each k: that is a close/far label with the threshold of level k.
A comparison turned round is the same comparison, so each is turned such that its margin is positive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closefar.arrays import TURNED, BoolArray, IndexArray, is_indexed, to_numpy
from closefar.fitting import Fit, Scorer
from closefar.judgements import Judgements, Kind, Tuples
from closefar.model import Metric, Scored
from closefar.noise import has_flips

__all__ = ["COMPARED", "TwoSided", "turned", "two_sided"]


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
