"""Partitions as tasks of dask: what is asked of each, and a sample of their rows in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, IndexArray
from closefar.engines import engine_for
from closefar.judgements.judgements import sample_rows
from closefar.judgements.partitions import Partition, Partitions
from closefar.judgements.tuples import Tuples

__all__ = ["PartitionSample", "counted_partitions", "mapped_partitions", "sample_partitions"]


@dataclass(frozen=True, eq=False)
class PartitionSample:
    """Some rows of partitions, or all of them, in memory.

    Attributes
    ----------
    data, labels, weights
        As in `Partition`.
    n_rows : int
        The number of rows of all partitions.
    """

    data: Any
    labels: NDArray[Any]
    weights: FloatArray | None
    n_rows: int


def mapped_partitions(partitions: Partitions, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return a task of dask for each partition, which loads it and calls the function; nothing is computed.

    The columns are further arguments, one for each partition.
    """
    try:
        import dask
    except ImportError as error:
        raise ImportError("Answers for partitions need dask: run pip install 'closefar[dask]'.") from error

    shared = None if partitions.shared is None else dask.delayed(partitions.shared, pure=True)
    load, ask = dask.delayed(partitions.load, pure=True), dask.delayed(function, pure=True)
    return [ask(load(task, shared), *given) for task, *given in zip(partitions.tasks, *columns, strict=True)]


def counted_partitions(partitions: Partitions) -> Partitions:
    """Return the partitions with their row counts, which are computed if they are not known."""
    if partitions.n_rows is not None:
        return partitions
    counts = engine_for(partitions.client).compute(mapped_partitions(partitions, len))
    return replace(partitions, n_rows=tuple(counts))


def sample_partitions(partitions: Partitions, most: int, seed: int = 0) -> PartitionSample:
    """Return all rows or, of more than `most`, so many at random, in their order: those of arrays with all rows."""
    counts, shared = np.array(counted_partitions(partitions).n_rows), partitions.shared
    ends = np.cumsum(counts)
    rows = sample_rows(int(ends[-1]), most, seed)
    of_each = np.split(rows, np.searchsorted(rows, ends[:-1]))
    within = [some - start for some, start in zip(of_each, ends - counts, strict=True)]
    elsewhere = [shared] if hasattr(shared, "dask") else []
    tasks = mapped_partitions(partitions, _taken, within)
    found = engine_for(partitions.client).compute([*tasks, *elsewhere])
    found, points = found[: len(tasks)], found[-1] if elsewhere else shared
    parts: list[Partition] = [part for part in found if len(part)]
    data = np.concatenate([part.data for part in parts])
    weights = [part.weights for part in parts if part.weights is not None]
    return PartitionSample(
        data if points is None else Tuples(points, data),
        np.concatenate([np.asarray(part.labels) for part in parts]),
        np.concatenate(weights) if weights else None,
        int(ends[-1]),
    )


def _taken(partition: Partition, rows: IndexArray) -> Partition:
    """Some rows of a partition; of pairs by index the index."""
    data = partition.data.index if isinstance(partition.data, Tuples) else partition.data
    labels = None if partition.labels is None else np.asarray(partition.labels)[rows]
    weights = None if partition.weights is None else partition.weights[rows]
    return Partition(data[rows], labels, weights)
