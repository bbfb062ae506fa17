"""The choice of a penalty, its weight and its scale, along one path of fits that are judged on held-out pairs.

With many columns, a penalty in the scale of the data hardly shrinks the directions in which the data vary little, and
those are most of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.fitting.likelihoods import is_plain
from closefar.fitting.penalty_scores import PenaltyChoice, PenaltyScore
from closefar.fitting.prepared import Prepared, state_of
from closefar.fitting.scoring import Scorer, Scores
from closefar.fitting.settings import Settings
from closefar.fitting.solved import Solved
from closefar.fitting.wide import usual_penalty
from closefar.judgements import Judgements, resolve_folds, split_judgements, variance_of_sum
from closefar.model import Metric, Scored
from closefar.solve import Outcome, OutOfTime, Solution, supervisor

__all__ = ["choose_penalty"]

# Multiples of the usual alpha: scales are compared at the first, where M still has a low rank and a fit takes little
# time; then the path goes down or, if that is worse, up.
_FIRST = 2.0
_DOWN = (1.0, 0.5, 0.25, 0.125, 0.0625)
_UP = (4.0, 8.0, 16.0)

_PROVEN = 1e-2  # the proven gap of each fit on the path, relative to the objective

_FOLDS, _FEWER_FOLDS = 5, 3
_FEWEST_HELD_OUT = 100
_CLEARLY = 2.0  # standard errors


def choose_penalty(judgements: Judgements, settings: Settings) -> tuple[PenaltyChoice, Metric | None]:
    """Choose on held-out pairs; also return the metric of the chosen penalty, fitted to the others, to start from.

    Fits follow one path from a large alpha down, each starting from the last one.  At its beginning scales are
    compared: one that is usually worse must be clearly better.  The path ends after the alpha with the lowest loss.
    If several alphas are equally good within a standard error, the usual one is the best guess.
    """
    usual, scales = usual_penalty(judgements, has_origin=settings.fit_origin)
    scales = scales if settings.chooses_scale else [settings.known_scale]
    search = _Search.of(judgements, settings)
    if search is None:
        return PenaltyChoice(usual, scales[0], 0, False, ()), None
    try:
        return _chosen(search, usual, scales)
    except OutOfTime:
        if not search.tried:
            return PenaltyChoice(usual, scales[0], 0, False, ()), None
        best = min(search.tried, key=_loss)
        return search.choice(best, best), search.metric(best)


def _chosen(search: _Search, usual: float, scales: Sequence[float | str]) -> tuple[PenaltyChoice, Metric | None]:
    best = search.follow(scales[0], [_FIRST * usual])
    for scale in scales[1:]:
        other = search.follow(scale, [_FIRST * usual])
        excess, error = search.compare(best[0], other[0])
        best = other if excess > _CLEARLY * error else best
    path = search.follow(best[0].scale, [multiple * usual for multiple in _DOWN], best)
    if path[-1].loss > path[0].loss and len(path) == 2:
        path = search.follow(best[0].scale, [multiple * usual for multiple in _UP], path[::-1])
    lowest = min(path, key=_loss)
    near = [tried for tried in path if _is_near(*search.compare(tried, lowest))]
    chosen = min(near, key=lambda tried: abs(math.log(tried.alpha / usual)))
    return search.choice(chosen, lowest), search.metric(chosen)


def _is_near(excess: float, error: float) -> bool:
    return excess <= error


@dataclass(frozen=True, eq=False)
class _Tried:
    """A penalty with the loss of each held-out pair, and the fit to the others."""

    alpha: float
    scale: float | str
    losses: FloatArray
    loss: float
    accuracy: float
    solved: Solved

    @property
    def solution(self) -> Solution:
        return self.solved.solution


def _loss(tried: _Tried) -> float:
    return tried.loss


class _Search:
    """Fits to some of the pairs with one penalty after another, judged on the others."""

    def __init__(self, train: Judgements, test: Judgements, points: NDArray[Any] | None, settings: Settings) -> None:
        self.train = train
        self.test = test
        self.points = points
        self.settings = settings
        self.tried: list[_Tried] = []
        self._prepared: dict[float | str, Prepared] = {}

    @classmethod
    def of(cls, judgements: Judgements, settings: Settings) -> _Search | None:
        """Hold out a fifth of the pairs, or of the points where pairs share them; None if these are too few."""
        n_folds, points = resolve_folds(_FOLDS, judgements, None, seed=0, warns=False)
        for number in dict.fromkeys((min(n_folds, judgements.n_rarer), min(n_folds, _FEWER_FOLDS))):
            if judgements.n_rarer < max(number, 2):
                continue
            train, test = split_judgements(number, judgements, groups=points, seed=0)[0]
            if len(test) >= _FEWEST_HELD_OUT and judgements.take(train).n_rarer > 0:
                held_out = None if points is None else np.asarray(points)[test]
                return cls(judgements.take(train), judgements.take(test), held_out, settings.but(verbose=0))
        return None

    def follow(self, scale: float | str, alphas: Sequence[float], path: Sequence[_Tried] = ()) -> list[_Tried]:
        """Continue a path by these alphas in turn, until one is no better than the best so far by a standard error."""
        path = list(path)
        for alpha in alphas:
            path.append(self._try(scale, alpha, path[-1].solution if path else None))
            if len(path) > 1 and _is_near(*self.compare(min(path[:-1], key=_loss), path[-1])):
                break
        return path

    def compare(self, one: _Tried, other: _Tried) -> tuple[float, float]:
        """The difference of two held-out losses, pair by pair, and its standard error."""
        shares = self.test.shares
        excess = one.loss - other.loss
        error = math.sqrt(variance_of_sum((one.losses - other.losses - excess) * shares, self.points))
        return excess, error

    def choice(self, chosen: _Tried, lowest: _Tried) -> PenaltyChoice:
        table = tuple(self.score(tried, lowest) for tried in self.tried)
        return PenaltyChoice(chosen.alpha, chosen.scale, len(self.test), self.points is not None, table)

    def score(self, tried: _Tried, lowest: _Tried) -> PenaltyScore:
        excess, error = self.compare(tried, lowest)
        rank, gap = tried.solution.factor.shape[1], tried.solution.certificate.gap
        return PenaltyScore(tried.alpha, tried.scale, tried.loss, excess, error, tried.accuracy, rank, gap)

    def metric(self, tried: _Tried) -> Metric | None:
        """The metric of a fit to start from; None if an origin is learned."""
        coordinates, solution = self._prepared[tried.scale].coordinates, tried.solution
        if coordinates.has_constant:
            return None
        return Metric.from_factor(coordinates.to_units(solution.factor), tried.solved.thresholds)

    def _try(self, scale: float | str, alpha: float, last: Solution | None) -> _Tried:
        objective = math.log(2.0) if last is None else last.certificate.objective
        settings = self.settings.but(alpha=alpha, alpha_scale=scale, tol=max(self.settings.tol, _PROVEN * objective))
        if scale not in self._prepared:
            self._prepared[scale] = Prepared.of(self.train, settings, finds_null=False)
        prepared = self._prepared[scale]
        start = None if last is None else state_of(last.factor, last.thresholds, settings)
        solved, _ = prepared.solve(settings, None if settings.fit_origin else start)
        solution = solved.solution
        if solution.certificate.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        if supervisor().has_ended_a_run:
            raise OutOfTime
        held_out = self._held_out(prepared, solved)
        found = _Tried(alpha, scale, held_out.losses, held_out.loss, held_out.accuracy, solved)
        self.tried.append(found)
        return found

    def _held_out(self, prepared: Prepared, solved: Solved) -> Scores:
        if is_plain(self.test):
            margin = prepared.margin(solved.solution, self.test)
            return Scored(self.test, margin, solved.noise, solved.flip_rate)
        metric = Metric.from_factor(
            prepared.coordinates.to_units(solved.solution.factor),
            solved.thresholds,
            solved.noise,
            flip_rate=solved.flip_rate,
        )
        return Scorer(metric, solved.strictness).score(self.test)
