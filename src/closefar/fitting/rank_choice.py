"""The choice of a rank by cross-validated loss."""

from __future__ import annotations

import numbers
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from closefar.fitting.fitting import refit
from closefar.fitting.progress import display, in_words
from closefar.fitting.rank_scores import RULES, RankChoice, choose_from, compare_ranks
from closefar.fitting.scoring import Scorer
from closefar.fitting.settings import Settings
from closefar.fitting.subspace import candidate_ranks, refit_leading
from closefar.judgements import Judgements, Kind, Split, resolve_folds, split_judgements
from closefar.solve import OutOfTime

__all__ = ["cross_validate_rank"]


def cross_validate_rank(
    judgements: Judgements,
    settings: Settings,
    *,
    cv: Any = 5,
    groups: Any = None,
    rule: str = "one_se",
    scale: str = "data",
    refits: bool = True,
    random_state: int | None = 0,
) -> RankChoice:
    """Choose the rank by cross-validated loss; see `closefar.questions.choose_rank`.

    The weights of `judgements` include class weights.  This emits no warnings.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {list(RULES)}; got {rule!r}.")
    if scale not in ("data", "units"):
        raise ValueError(f'scale must be "data" or "units"; got {scale!r}.')
    settings = settings.but(rank=None, verbose=0)
    ranks = candidate_ranks(judgements.n_columns)
    cv, groups = resolve_folds(cv, judgements, groups, seed=random_state, warns=False)
    losses, hits, tested, largest = [], np.zeros(len(ranks)), [], 1
    splits, begun = _splits(cv, judgements, groups, random_state), time.monotonic()
    for number, (train, test) in enumerate(splits):
        with display().stage(_stage(number, len(splits), time.monotonic() - begun)):
            path = _path(judgements.take(train), settings, ranks, scale, refits)
        held_out = [each.score(judgements.take(test)) for each in path]
        losses.append(np.array([scored.losses for scored in held_out]))
        hits += [float(scored.is_right @ scored.judgements.weights) for scored in held_out]
        tested.append(test)
        largest = max(largest, path[-1].metric.rank)
    n_ranks = 1 + next(index for index, k in enumerate(ranks) if k >= largest)
    held_out_rows = np.concatenate(tested)
    weights = judgements.weights[held_out_rows]
    table = compare_ranks(
        ranks[:n_ranks],
        np.hstack(losses)[:n_ranks],
        (hits / weights.sum())[:n_ranks],
        weights / weights.sum(),
        None if groups is None else np.asarray(groups)[held_out_rows],
    )
    return RankChoice(choose_from(table, rule), rule, table)


def _stage(number: int, total: int, elapsed: float) -> str:
    """What is going on after so many folds, and how long the others take if they take as long."""
    left = f" (at least {in_words(elapsed * (total - number) / number)} left)" if number else ""
    return f"choosing the rank, fold {number + 1} of {total}{left}"


def _path(judgements: Judgements, settings: Settings, ranks: Sequence[int], scale: str, refits: bool) -> list[Scorer]:
    """A metric of each rank, from one fit without a limit; beyond its rank, that fit itself."""
    whole = Scorer.of(refit(judgements, settings))
    if not refits:
        return [replace(whole, metric=whole.metric.truncate(k, scale)) for k in ranks]
    try:
        directions = whole.metric.directions(scale)
        return [refit_leading(judgements, settings, whole, directions, k) for k in ranks]
    except OutOfTime as end:
        raise OutOfTime(whole.metric) from end


def _splits(cv: Any, judgements: Judgements, groups: Any, random_state: int | None) -> list[Split]:
    """The row numbers of training and test sides, without rows of weight 0."""
    counts = judgements.weights > 0
    if not isinstance(cv, numbers.Integral) or groups is not None:
        splits = split_judgements(cv, judgements, groups=groups, seed=random_state)
        return [(train[counts[train]], test[counts[test]]) for train, test in splits]
    counted = judgements.counted()
    if cv < 2 or counted.n_rarer < 2:
        noun, of_each = ("comparisons", "") if counted.kind is Kind.COMPARISONS else ("pairs", " of each class")
        rarer = f"{counted.n_rarer} of the rarer class" if of_each else f"{len(counted)} of them"
        raise ValueError(
            f"choosing a rank needs at least 2 folds and 2 {noun}{of_each}; got cv={cv!r} and "
            f"{rarer}. Set the rank to a number instead."
        )
    numbers_of_counted = np.flatnonzero(counts)
    splits = split_judgements(min(int(cv), counted.n_rarer), counted, seed=random_state)
    return [(numbers_of_counted[train], numbers_of_counted[test]) for train, test in splits]
