"""One fit with a known limit on the rank, whose penalty may have to be chosen."""

from __future__ import annotations

import math
from dataclasses import replace

from closefar.engines import threads_for
from closefar.fitting.known_rank import fit_known_rank
from closefar.fitting.penalty_choice import choose_penalty
from closefar.fitting.placing import placed_on
from closefar.fitting.progress import display
from closefar.fitting.result import Fit
from closefar.fitting.settings import Settings
from closefar.fitting.wide import is_wide, number_of
from closefar.judgements import Columns, Judgements
from closefar.model import Metric
from closefar.solve import supervisor

__all__ = ["fit_penalised", "refit"]

# alpha="auto" with few columns, from simulations: 0.1 / sqrt(n), twice that with few uncertain labels per parameter,
# and zero with many.
_LIGHT = 0.1
_FEW, _MANY = 2.0, 10.0


def refit(judgements: Judgements, settings: Settings, *, start: Metric | None = None) -> Fit:
    """Fit as part of a longer computation, which an interrupt ends altogether; identifiability is not checked."""
    judgements.check_both_count()
    judgements = placed_on(judgements, settings.device)
    with threads_for(len(judgements), judgements.n_columns):
        return fit_penalised(judgements, settings, start=start, explains=False).unless_interrupted()


def fit_penalised(
    judgements: Judgements,
    settings: Settings,
    *,
    start: Metric | None = None,
    columns: Columns | None = None,
    explains: bool = True,
) -> Fit:
    """Choose the penalty if that is asked for, and fit; see `fit_known_rank`."""
    if not settings.chooses_alpha:
        return fit_known_rank(judgements, settings, start=start, columns=columns, explains=explains)
    if not is_wide(number_of(judgements), judgements.n_columns, settings.known_rank):
        return _fit_narrow(judgements, settings, start, columns, explains=explains)
    with display().stage("choosing the penalty"):
        choice, near = choose_penalty(judgements, settings)
    known = settings.but(alpha=choice.alpha, alpha_scale=choice.alpha_scale)
    found = fit_known_rank(judgements, known, start=near, columns=columns, explains=explains)
    return replace(found, settings=settings, chosen_alpha=choice.alpha, penalty_choice=choice)


def _fit_narrow(
    judgements: Judgements, settings: Settings, start: Metric | None, columns: Columns | None, *, explains: bool
) -> Fit:
    """Fit with a light penalty, and again if the labels require another one."""
    root_n = math.sqrt(number_of(judgements))
    light = settings.but(alpha=_LIGHT / root_n)
    found = fit_known_rank(judgements, light, start=start, columns=columns, explains=explains)
    per_parameter = found.statistics.uncertain_per_parameter
    if not (found.was_interrupted or supervisor().has_ended_a_run or _FEW <= per_parameter < _MANY):
        alpha = 2.0 * _LIGHT / root_n if per_parameter < _FEW else 0.0
        other = settings.but(alpha=alpha)
        found = fit_known_rank(judgements, other, start=found.metric, columns=columns, explains=explains)
    return replace(found, settings=settings, chosen_alpha=found.alpha)
