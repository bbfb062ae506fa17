"""Fitting: from judgements and settings to a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from closefar.engines import threads_for
from closefar.fitting.penalised import fit_penalised
from closefar.fitting.rank_choice import cross_validate_rank
from closefar.fitting.result import Fit
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements
from closefar.model import Metric

__all__ = ["fit", "without_penalty"]


def fit(
    judgements: Judgements, settings: Settings, *, start: Metric | None = None, columns: Columns | None = None
) -> Fit:
    """Learn a metric.

    This emits no warnings; `Fit.warn` emits those of the result.

    Parameters
    ----------
    judgements : Judgements
        Judgements of weight zero are ignored.
    settings : Settings
    start : Metric, optional
        A metric close to the solution.
    columns : Columns, optional
        The names of the columns, which new data must match.
    """
    settings.check(judgements)
    weighted = judgements.weighted(settings.class_weight)
    weighted.check_both_count()
    with threads_for(len(judgements), judgements.n_columns):
        choice = cross_validate_rank(weighted.in_memory(), settings) if settings.chooses_rank else None
        known = settings if choice is None else settings.but(rank=choice.rank)
        found = fit_penalised(weighted.counted(), known, start=start, columns=columns)
    return replace(found, settings=settings, judgements=judgements, rank_choice=choice)


def without_penalty(fitted: Fit, judgements: Judgements, *, class_weight: Any) -> Fit:
    """The same fit with alpha = 0 and these class weights, or the fit itself if it already has them.

    The chosen noise and rank are kept, and an estimated flip rate is estimated again.
    """
    if fitted.alpha == 0 and fitted.settings.class_weight is class_weight:
        return fitted
    settings = fitted.chosen.but(alpha=0.0, flip_rate=fitted.settings.flip_rate, class_weight=class_weight)
    plain = fit(judgements, settings, start=fitted.metric, columns=fitted.columns).unless_interrupted()
    return replace(plain, rank_choice=fitted.rank_choice)
