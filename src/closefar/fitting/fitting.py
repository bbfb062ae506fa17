"""Fitting: from judgements and settings to a fit."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

from closefar.engines import threads_for
from closefar.fitting.checkpoint import Checkpoint
from closefar.fitting.fingerprint import fingerprint
from closefar.fitting.penalised import fit_penalised
from closefar.fitting.placing import placed_on
from closefar.fitting.progress import display, showing
from closefar.fitting.rank_choice import cross_validate_rank
from closefar.fitting.result import Fit
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements
from closefar.model import Metric
from closefar.solve import Certificate, Journal, Outcome, OutOfTime, Supervisor, advise_in_time, supervised

__all__ = ["fit", "without_penalty"]

_NO_RANK = (
    'the time was over before rank="auto" had chosen a rank, so that the rank of M is not limited. Raise max_time, '
    "or set the rank to a number."
)


def fit(
    judgements: Judgements,
    settings: Settings,
    *,
    start: Metric | None = None,
    columns: Columns | None = None,
    checkpoint: Checkpoint | None = None,
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
    checkpoint : Checkpoint, optional
        The file from which the fit continues, and which it keeps up to date.
    """
    settings.check(judgements)
    weighted = judgements.weighted(settings.class_weight)
    weighted.check_both_count()
    weighted = placed_on(weighted, settings.device)
    with threads_for(weighted.n_in_memory, judgements.n_columns), showing(settings.verbose):
        journal = None if checkpoint is None else _open(checkpoint, weighted.counted(), settings, start, columns)
        shown = display()
        watch = Supervisor(settings.max_time, journal, shown.note_pass if shown.verbose > 0 else None)
        try:
            with supervised(watch):
                found = _fit(weighted, settings, start, columns)
        except BaseException:
            if checkpoint is not None:
                checkpoint.write()
            raise
    if watch.has_ended_a_run:
        found = replace(found, certificate=_unfinished(found.certificate, settings, watch))
    if checkpoint is not None:
        checkpoint.write(is_complete=not (watch.has_ended_a_run or found.was_interrupted))
    return replace(found, settings=settings, judgements=judgements)


def _fit(weighted: Judgements, settings: Settings, start: Metric | None, columns: Columns | None) -> Fit:
    """Choose the rank if that is asked for, and fit."""
    if not settings.chooses_rank:
        return fit_penalised(weighted.counted(), settings, start=start, columns=columns)
    try:
        choice = cross_validate_rank(weighted.in_memory(), settings)
    except OutOfTime as end:
        near = start if end.near is None else end.near
        found = fit_penalised(weighted.counted(), settings.but(rank=None), start=near, columns=columns)
        return replace(found, problems=(*found.problems, _NO_RANK))
    found = fit_penalised(weighted.counted(), settings.but(rank=choice.rank), start=start, columns=columns)
    return replace(found, rank_choice=choice)


def _open(
    checkpoint: Checkpoint, judgements: Judgements, settings: Settings, start: Metric | None, columns: Columns | None
) -> Journal:
    """The journal of a checkpoint, if that is one of the same fit."""
    if not (settings.random_state is None or isinstance(settings.random_state, numbers.Integral)):
        raise ValueError(
            "random_state must be None or a whole number with a checkpoint, so that the same random numbers are drawn "
            f"when the fit continues; got {settings.random_state!r}."
        )
    with display().stage("comparing the pairs with the checkpoint"):
        journal = checkpoint.journal_of(fingerprint(judgements, settings, start, columns))
    if checkpoint.sentence is not None:
        display().say(checkpoint.sentence)
    return journal


def _unfinished(certificate: Certificate, settings: Settings, watch: Supervisor) -> Certificate:
    """The certificate of a fit whose time was over, even if that was after its last proof."""
    advice = advise_in_time(
        watch.max_time,
        has_journal=watch.journal is not None,
        gap=certificate.gap,
        is_proven=certificate.lower_bound > 0.0,
        tol=settings.tol,
    )
    return replace(certificate, outcome=Outcome.UNFINISHED, converged=False, advice=advice)


def without_penalty(fitted: Fit, judgements: Judgements, *, class_weight: Any) -> Fit:
    """The same fit with alpha = 0 and these class weights, or the fit itself if it already has them.

    The chosen noise and rank are kept, and an estimated flip rate is estimated again.
    """
    if fitted.alpha == 0 and fitted.settings.class_weight is class_weight:
        return fitted
    settings = fitted.chosen.but(alpha=0.0, flip_rate=fitted.settings.flip_rate, class_weight=class_weight)
    plain = fit(judgements, settings, start=fitted.metric, columns=fitted.columns).unless_interrupted()
    return replace(plain, rank_choice=fitted.rank_choice)
