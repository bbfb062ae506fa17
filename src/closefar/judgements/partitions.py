"""Labelled rows in partitions, on a cluster or in many files, which are loaded again when they are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from closefar.arrays import is_dask
from closefar.engines import Movable
from closefar.judgements.tuples import DaskTuples


@dataclass(frozen=True, eq=False)
class Partition(Movable):
    """The rows of one partition, in the memory of the process that loaded it; nothing is checked yet.

    Attributes
    ----------
    data : array of shape (m, d) or (m, 2, d), or Tuples
        Differences or points, pairs of points, or pairs of shared points by index; m may be 0.
    labels : array of shape (m,), optional
        As they were given: strings, numbers, or `CodedLabels`.
    weights : array of shape (m,), optional
    """

    data: Any
    labels: Any = None
    weights: NDArray[Any] | None = None

    def __len__(self) -> int:
        return int(self.data.shape[0])

    @property
    def nbytes(self) -> int:
        """The memory that the rows, the labels and the weights take."""
        return sum(int(getattr(each, "nbytes", 0)) for each in (self.data, self.labels, self.weights))


@dataclass(frozen=True, eq=False, repr=False)
class Partitions:
    """Labelled rows in partitions, each of which is loaded where it is computed with, and loaded again if it is lost.

    Partition p is ``load(tasks[p], shared)``, called inside a task.  It gives the same bits each time, and all
    partitions have the same columns, in their order.

    Attributes
    ----------
    tasks : tuple
        What each partition is loaded from: a small value that can be pickled (a path and some row groups), or a
        `dask.delayed.Delayed`, which an engine replaces by its result.
    load : callable (task, shared) -> Partition
        Can be pickled.
    n_columns : int
    are_pairs : bool
        Whether rows are pairs of points, (m, 2, d) or `Tuples`, and not differences, (m, d).
    shared : optional
        What all partitions need, once per worker: a value, or a `dask.delayed.Delayed`.  The points of pairs by index.
    n_rows : tuple of int, optional
        The number of rows of each partition; None if that is known only once they are loaded.
    feature_names : tuple of str, optional
        The names of the columns.
    has_labels, has_weights : bool
        Whether partitions have labels, and weights.
    is_single : bool
        Whether rows of shape (m, d) are single points, or differences whose points nobody gave, and not the
        differences of pairs whose two points are in the files.
    client : distributed.Client or closefar.engines.Engine, optional
        What computes with the partitions: by default the current client of Dask, or this process without one.
    """

    tasks: tuple[Any, ...]
    load: Callable[[Any, Any], Partition]
    n_columns: int
    are_pairs: bool
    shared: Any = None
    n_rows: tuple[int, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    has_labels: bool = True
    has_weights: bool = False
    is_single: bool = True
    client: Any = None

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        rows = "rows" if self.n_rows is None else f"{sum(self.n_rows):,} rows"
        return f"Partitions({len(self.tasks):,} partitions, {rows} of {self.n_columns} columns)"


def is_partitioned(pairs: Any) -> bool:
    """Whether these pairs are in partitions, and not in the memory of this process: dask data, or `Partitions`."""
    return is_dask(pairs) or isinstance(pairs, DaskTuples | Partitions)


def refuse_partitions(pairs: Any) -> None:
    """Refuse pairs in partitions where all of them would have to be in the memory of this process."""
    if is_partitioned(pairs):
        raise ValueError(
            f"this needs pairs in memory; got {type(pairs).__name__}, whose rows are computed elsewhere. Pass a "
            f"sample: {words_for_sample(pairs)}."
        )


def words_for_sample(pairs: Any) -> str:
    """Return what to pass instead of these pairs and their labels: some of them, in memory."""
    sample = "X[:100_000].compute() and y[:100_000].compute()"
    if isinstance(pairs, DaskTuples):
        sample = "closefar.Tuples(points, index[:100_000].compute()) and y[:100_000].compute()"
    elif isinstance(pairs, Partitions):
        sample = "some of the files, opened without a client"
    elif hasattr(pairs, "divisions"):
        sample = "X.head(100_000, npartitions=-1) and y.head(100_000, npartitions=-1)"
    return sample
