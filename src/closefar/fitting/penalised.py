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
from closefar.fitting.statistics import count_parameters
from closefar.fitting.wide import is_wide, number_of
from closefar.judgements import Columns, Judgements
from closefar.model import Metric
from closefar.solve import supervisor

__all__ = ["fit_penalised", "refit"]

# alpha="auto" with few columns, from simulations, times sqrt(n): usually light, twice that with few uncertain labels
# per parameter, and less with many.
_LIGHT, _SLIGHT = 0.1, 0.03
_FEW, _MANY = 2.0, 10.0

# With so many labels per parameter the penalty is slight, whatever the labels.  Where fewer than a tenth of them are
# uncertain, there is hardly any noise, and a slight penalty would do more harm than noise: it is faint.
_PLENTY = 100.0
_UNCERTAIN, _FAINT = 0.1, 0.001


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
    """Fit with a light penalty, or a slight one if there are plenty of labels, and again if they require another."""
    n = number_of(judgements)
    has_plenty = n >= _PLENTY * count_parameters(judgements.n_columns, settings.known_rank)
    found = _fit_with(
        (_SLIGHT if has_plenty else _LIGHT) / math.sqrt(n), judgements, settings, start, columns, explains=explains
    )
    if found.was_interrupted or supervisor().has_ended_a_run:
        return found
    per_parameter = found.statistics.uncertain_per_parameter
    if has_plenty:
        other = None if found.statistics.uncertain_labels >= _UNCERTAIN * n else _FAINT
    elif per_parameter < _FEW:
        other = 2.0 * _LIGHT
    else:
        other = None if per_parameter < _MANY else _SLIGHT
    if other is None:
        return found
    return _fit_with(other / math.sqrt(n), judgements, settings, found.metric, columns, explains=explains)


def _fit_with(
    alpha: float,
    judgements: Judgements,
    settings: Settings,
    start: Metric | None,
    columns: Columns | None,
    *,
    explains: bool,
) -> Fit:
    """Fit with a penalty that alpha="auto" has come to."""
    known = settings.but(alpha=alpha, alpha_scale=settings.known_scale)
    found = fit_known_rank(judgements, known, start=start, columns=columns, explains=explains)
    return replace(found, settings=settings, chosen_alpha=alpha)
