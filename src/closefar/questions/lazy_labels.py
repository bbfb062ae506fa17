"""Judging the labels of partitions: what a fit says of each label, as dask arrays that are computed when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import TINY, FloatArray, IndexArray
from closefar.judgements import Partition, Partitions, Sides, mapped_partitions
from closefar.model import Metric
from closefar.questions.flip_evidence import FlipCurve, probability_flipped
from closefar.questions.label_judge import probability_of_other_side
from closefar.questions.margin_errors import SideErrors

__all__ = ["LazyJudge", "lazy_verdicts", "most_suspicious"]

_COLUMNS = ("probability", "margin", "error", "contradicts")


@dataclass(frozen=True)
class LazyJudge:
    """What is needed to judge the labels of a partition where it is; P(flipped) if there are curves of it.

    `factor` is how much of P(flipped) is claimed.
    """

    metric: Metric
    sides: Sides
    errors: SideErrors
    curves: tuple[FlipCurve, ...] | None
    factor: float

    def __call__(self, partition: Partition) -> FloatArray:
        """Return probability, margin, error and whether the label contradicts the margin, one row per pair."""
        if len(partition) == 0:
            return np.empty((0, len(_COLUMNS)))
        margin = self.metric.measure(partition.data) - self.metric.known_threshold
        error = self.errors.at(partition.data, margin[:, None])[:, 0]
        is_far = np.asarray(partition.labels == self.sides.far, dtype=bool)
        contradicts = (margin >= 0) != is_far
        if self.curves is None:
            probability = probability_of_other_side(np.where(is_far, margin, -margin), error)
        else:
            probability = probability_flipped(self.curves, margin, contradicts) * self.factor
        return np.column_stack([probability, margin, error, contradicts])


def lazy_verdicts(judge: LazyJudge, partitions: Partitions) -> dict[str, Any]:
    """Return the columns of the judge, the labels and the order of suspicion as dask arrays; nothing is computed."""
    import dask
    import dask.array as da

    counts = partitions.n_rows
    assert counts is not None
    judged = mapped_partitions(partitions, judge)
    parts = [da.from_delayed(part, (n, len(_COLUMNS)), dtype=float) for part, n in zip(judged, counts, strict=True)]
    table = da.concatenate(parts)
    columns = {name: table[:, at] for at, name in enumerate(_COLUMNS)}
    columns["contradicts"] = columns["contradicts"].astype(bool)
    labels = zip(mapped_partitions(partitions, _labels), counts, strict=True)
    kind = judge.sides.classes.dtype
    columns["labels"] = da.concatenate([da.from_delayed(part, (n,), dtype=kind) for part, n in labels])
    columns["order"] = da.from_delayed(dask.delayed(_order)(table), (sum(counts),), dtype=np.intp)
    return columns


def most_suspicious(errors: Any, k: int) -> list[tuple[Any, ...]]:
    """Return row number, label, probability, margin and error of the k most suspicious labels, in one computation.

    Workers find those of their partitions, and send no others.
    """
    import dask

    names = ("probability", "margin", "error", "contradicts", "labels")
    chunks = zip(*(getattr(errors, name).to_delayed(optimize_graph=False).ravel() for name in names), strict=True)
    starts = np.cumsum([0, *errors.probability.chunks[0]])[:-1].tolist()
    found = dask.compute(*(dask.delayed(_top)(*some, start, k) for some, start in zip(chunks, starts, strict=True)))
    tables, rows, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chosen = _order(tables)[:k]
    return [(rows[at], labels[at], *tables[at, :3]) for at in chosen.tolist()]


def _labels(partition: Partition) -> NDArray[Any]:
    return np.asarray(partition.labels)


def _order(table: FloatArray) -> IndexArray:
    """The rows by falling probability, and those of the same one by rising agreement of label and margin."""
    probability, margin, error, contradicts = table.T
    agreement = np.where(contradicts > 0, -np.abs(margin), np.abs(margin))
    return np.lexsort((agreement / np.maximum(error, TINY), -probability))


def _top(
    probability: FloatArray,
    margin: FloatArray,
    error: FloatArray,
    contradicts: Any,
    labels: NDArray[Any],
    start: int,
    k: int,
) -> tuple[FloatArray, IndexArray, NDArray[Any]]:
    table = np.column_stack([probability, margin, error, contradicts])
    rows = _order(table)[:k]
    return table[rows], rows + start, labels[rows]
