"""Fitting: from judgements and settings to a fit."""

from __future__ import annotations

from dataclasses import replace

from closefar.fitting.known_rank import fit_known_rank
from closefar.fitting.rank_choice import cross_validate_rank
from closefar.fitting.result import Fit
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements
from closefar.model import Metric

__all__ = ["fit"]


def fit(
    judgements: Judgements, settings: Settings, *, start: Metric | None = None, columns: Columns | None = None
) -> Fit:
    """Learn a metric.

    Nothing is warned of: the result says what to warn of (`Fit.warn`).

    Parameters
    ----------
    judgements : Judgements
        Those of weight zero do not count.
    settings : Settings
    start : Metric, optional
        One near the solution.
    columns : Columns, optional
        What the columns are called, and how new data is compared with them.
    """
    settings.check(judgements)
    weighted = judgements.weighted(settings.class_weight)
    weighted.check_both_count()
    choice = cross_validate_rank(weighted, settings) if settings.chooses_rank else None
    known = settings if choice is None else settings.but(rank=choice.rank)
    found = fit_known_rank(weighted.counted(), known, start=start, columns=columns)
    return replace(found, settings=settings, judgements=judgements, rank_choice=choice)
