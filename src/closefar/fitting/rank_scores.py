"""The table from which a rank is chosen, and the rules that choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.judgements import variance_of_sum
from closefar.plain import format_table

__all__ = ["RULES", "RankChoice", "RankScore", "choose_from", "compare_ranks"]

RULES = ("one_se", "best")


class RankScore(NamedTuple):
    """The held-out loss of rank `k`, its excess over the lowest with its standard error, and the held-out accuracy."""

    k: int
    loss: float
    excess: float
    standard_error: float
    accuracy: float


@dataclass(frozen=True)
class RankChoice:
    """The rank chosen by cross-validation, and the table of all ranks."""

    rank: int
    rule: str
    table: tuple[RankScore, ...]

    def __str__(self) -> str:
        columns = [("k", "d"), ("held-out loss", ".5f"), ("excess", ".5f"), ("std. error", ".5f"), ("accuracy", ".4f")]
        lines = format_table(columns, [list(score) for score in self.table]).split("\n")
        marked = [
            line + (" *" if score.k == self.rank else "") for line, score in zip(lines[1:], self.table, strict=True)
        ]
        return "\n".join([lines[0], *marked])


def compare_ranks(
    ranks: Sequence[int],
    losses: FloatArray,
    accuracies: FloatArray,
    shares: FloatArray,
    groups: NDArray[Any] | None = None,
) -> tuple[RankScore, ...]:
    """Compare each rank with the best, pair by pair, so that the common difficulty of a pair cancels.

    `losses` has one row per rank and one column per held-out pair; the `shares` of pairs sum to one,
    and their `groups` are dependent.
    """
    means = losses @ shares
    best = int(means[1:].argmin()) + 1
    scores = []
    for index, k in enumerate(ranks):
        excess = float(means[index] - means[best])
        deviations = (losses[index] - losses[best] - excess) * shares
        error = float(np.sqrt(variance_of_sum(deviations, groups)))
        scores.append(RankScore(k, float(means[index]), excess, error, float(accuracies[index])))
    return tuple(scores)


def choose_from(table: Sequence[RankScore], rule: str) -> int:
    """Return the rank that a rule chooses: at least 1, since rank 0 is only for comparison."""
    best = min(table[1:], key=lambda score: score.loss)
    near = [score.k for score in table[1:] if score.excess <= score.standard_error]
    return min([*near, best.k]) if rule == "one_se" else best.k
