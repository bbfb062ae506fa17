"""The interface of engines, which run functions where the partitions of data are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import IndexArray
from closefar.engines.movable import Movable, settled
from closefar.engines.threads import threads_at_most

__all__ = ["Combine", "Engine", "Load", "PartitionError", "Ref", "TaskResult", "by_partition", "combined", "loaded"]

# What stands for a value of one partition, wherever it is stored.
Ref = Any

# Joins small results, in the order of their partitions, to one of the same kind.
Combine = Callable[[Sequence[Any]], Any]

Load = Callable[[Any, Any], Any]

FAN_IN = 16  # results that are joined at a time; the same number everywhere, so that sums have the same bits


class PartitionError(OSError):
    """A partition can't be loaded, or the cluster that holds it is gone."""


@dataclass(frozen=True, eq=False)
class TaskResult(Movable):
    """The result of a function for one partition: what is small travels, what is kept stays where it is."""

    small: Any
    kept: tuple[Any, ...] = ()


class Engine(ABC):
    """Runs a function on every partition, where it is stored.

    Values of partitions are referred to by one `Ref` each.  The columns of arguments that functions are called with
    have one entry for each partition: a `Ref`, which the function gets the value of, or a small value.

    Attributes
    ----------
    round_trips : int
        How many times this process has waited for results so far.
    """

    def __init__(self) -> None:
        self.round_trips = 0

    def __reduce__(self) -> Any:
        raise TypeError("an engine stays in its process: a function that is run on partitions must not refer to it.")

    @abstractmethod
    def load(self, load: Load, tasks: Sequence[Any], shared: Any) -> list[Ref]:
        """Load each partition, ``load(task, shared)``, where it will be computed with, without waiting for it."""

    @abstractmethod
    def keep(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Ref]:
        """Call a function for each partition and keep its results there, without waiting for them."""

    @abstractmethod
    def run(
        self, function: Callable[..., TaskResult], *columns: Sequence[Any], combine: Combine, keeps: bool = False
    ) -> tuple[Any, list[Ref]]:
        """Call a function for each partition in one round trip.

        Returns the small results, joined in the order of the partitions, and, if the function `keeps` anything, for
        each partition a `Ref` to its `TaskResult`.
        """

    def compute(self, tasks: Sequence[Any]) -> list[Any]:
        """Return the results of tasks of dask (`dask.delayed.Delayed`), which are small."""
        import dask

        return list(dask.compute(*tasks))

    @abstractmethod
    def describe(self, n_partitions: int) -> str:
        """Say what computes: a part of a sentence."""


def by_partition(indices: IndexArray, starts: IndexArray) -> tuple[list[IndexArray], IndexArray | None]:
    """Return the row numbers within each partition of these rows, in their order.

    `starts` are the first rows of the partitions, and the number of all rows.  If the rows are not in order, the second
    result puts what was found for them, one partition after another, into the order of `indices`.
    """
    is_sorted = bool(np.all(indices[1:] >= indices[:-1]))
    order = None if is_sorted else np.argsort(indices, kind="stable")
    wanted = indices if order is None else indices[order]
    ends = np.searchsorted(wanted, starts)
    within = [wanted[first:last] - start for first, last, start in zip(ends, ends[1:], starts, strict=False)]
    return within, None if order is None else np.argsort(order)


def combined(combine: Combine, results: Sequence[Any]) -> Any:
    """Join results in a tree of fixed shape and with one thread, so that they have the same bits everywhere."""
    results = list(results)
    with threads_at_most(1):
        while len(results) > 1:
            results = [combine(results[start : start + FAN_IN]) for start in range(0, len(results), FAN_IN)]
    return results[0]


def loaded(load: Load, task: Any, shared: Any, number: int, n_partitions: int) -> Any:
    """Load a partition; an error says which one it is."""
    try:
        return settled(load(task, shared))
    except Exception as error:
        where = f" from {task}" if isinstance(task, str) else ""
        raise PartitionError(
            f"partition {number} of {n_partitions} (from 0) can't be loaded{where}: {error} ({type(error).__name__}). "
            "Check that its files are complete and can be read where it is loaded."
        ) from error
