"""The learning curve: what fits to fewer pairs would have reached, and so what more pairs may bring."""

from __future__ import annotations

from typing import Any

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.fitting import Fit, refit_part, score
from closefar.judgements import Judgements, Kind
from closefar.report.effort import Effort
from closefar.report.evidence import has_sides, noun_of
from closefar.report.wording import count, number, points

__all__ = ["learning_curve"]

_REPEATS = 3
_TEST_SHARE = 0.2
_HALVINGS = 4
_SURE_HALVINGS = 2
_FEWEST = 8

# A fall of the loss by less than this share of it is none.
_NEGLIGIBLE = 0.01
# A fall by more than this share is not yet on the way on which each doubling gains half of the one before.
_FORESEEABLE = 0.2


def learning_curve(fitted: Fit, judgements: Judgements, seed: int) -> dict[str, Any]:
    """Loss and accuracy on a fifth of the pairs of fits to 1/16, 1/8, ... and all of the others."""
    if fitted.is_metric_alone:
        return {"reason": "A learning curve needs a fit; this metric was truncated, or stored without its fit."}
    effort, noun = Effort.of(fitted), noun_of(fitted)
    pool = judgements.sample(effort.pairs_to_learn_from(len(judgements)), seed)
    sides = np.zeros(len(pool), dtype=np.intp) if pool.kind is Kind.COMPARISONS else pool.codes
    splits = [_split(sides, seed + repeat) for repeat in range(effort.repeats(len(pool), _REPEATS))]
    sizes = _sizes(sides, [train for _, train in splits], effort.fewest_to_learn_from) if has_sides(pool) else []
    if len(sizes) < 2:
        return {"reason": f"There are too few {noun}s for a learning curve: {len(judgements):,}."}
    try:
        scores = np.array([[_score(fitted, pool, train[:size], test) for size in sizes] for test, train in splits])
    except ValueError as error:  # a part of few or odd pairs can't be fitted
        return {"reason": f"There is no learning curve, because a fit to some of the {noun}s failed: {error}"}
    rows = [
        {
            "n_pairs": size,
            **_spread("loss", scores[:, index, 0]),
            **_spread("accuracy", scores[:, index, 1]),
        }
        for index, size in enumerate(sizes)
    ]
    return {
        "reason": None,
        "rows": rows,
        "noun": noun,
        "term": fitted.kind.term,
        "n_repeats": len(splits),
        "n_pool": len(pool),
        "reading": _reading(sizes, scores, noun, fitted.kind.term),
    }


def _split(sides: IndexArray, seed: int) -> tuple[IndexArray, IndexArray]:
    """Test and train rows; each first part of either has the sides in about their shares."""
    rng = np.random.default_rng(seed)
    place = np.empty(len(sides))
    for side in range(int(sides.max()), -1, -1):
        chosen = sides == side
        n = int(chosen.sum())
        place[chosen] = (rng.permutation(n) + 0.5) / max(n, 1)
    order = np.argsort(place, kind="stable")
    n_test = round(_TEST_SHARE * len(sides))
    tested = np.round(np.linspace(0, len(order) - 1, n_test)).astype(np.intp)
    return order[tested], np.delete(order, tested)


def _sizes(sides: IndexArray, trains: list[IndexArray], fewest: int) -> list[int]:
    """Halves of the training pairs, as long as they hold all labels and are not hopelessly few; three at the least."""
    most = min(len(train) for train in trains)
    halves = {most // 2**halving: halving for halving in range(_HALVINGS + 1)}
    sizes = sorted(size for size, halving in halves.items() if halving <= _SURE_HALVINGS or size >= fewest)
    n_sides = len(np.unique(sides))
    return [
        size
        for size in sizes
        if size >= _FEWEST and all(len(np.unique(sides[train[:size]])) == n_sides for train in trains)
    ]


def _score(fitted: Fit, judgements: Judgements, train: IndexArray, test: IndexArray) -> tuple[float, float]:
    unseen = score(refit_part(fitted, judgements.take(np.sort(train))), judgements.take(np.sort(test)))
    return unseen.loss, unseen.accuracy


def _spread(name: str, values: FloatArray) -> dict[str, float]:
    return {name: float(values.mean()), f"{name}_low": float(values.min()), f"{name}_high": float(values.max())}


def _reading(sizes: list[int], scores: FloatArray, noun: str, term: str = "label") -> str:
    """The excess loss of a fit falls about as 1/N, so each doubling gains half of what the one before did."""
    before, last = sizes[-2:]
    gain = float(np.mean(scores[:, -2, 0] - scores[:, -1, 0]))
    change = points(float(np.mean(scores[:, -1, 1] - scores[:, -2, 1])))
    said = f"From {before:,} to {count(last, noun)}, the loss on unseen {term}s"
    loss = float(np.mean(scores[:, -1, 0]))
    if gain < -_NEGLIGIBLE * loss:
        return f"{said} rises by {number(-gain)} (accuracy {change}): too few {noun}s to say what more would bring."
    if gain < _NEGLIGIBLE * loss:
        return f"{said} hardly changes (accuracy {change}): more {noun}s are likely to gain little."
    falls = f"{said} falls by {number(gain)} (accuracy {change})."
    steady = np.all(scores[:, -2, 0] > scores[:, -1, 0]) and np.all(np.diff(np.mean(scores[:, :, 0], axis=0)) < 0)
    if not steady or gain > _FORESEEABLE * loss:
        return f"{falls} More {noun}s should help; these are too few to say how much."
    return f"{falls} Twice as many {noun}s should lower it by about half as much again, {number(0.5 * gain)}."
