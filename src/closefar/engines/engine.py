"""The interface of engines, which run functions where the partitions of data are stored."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar.arrays import IndexArray
from closefar.engines.threads import threads_at_most

# ---------------------------------------------------------------------------------------------------------------------
# Values that move between processes, and have the same layout in memory afterwards.
#
# Arrays that arrive over a network may begin at any address; NumPy then multiplies them without BLAS, and rounds
# differently.


_DEPTH = 3  # of attributes in which arrays are looked for


class Movable:
    """A value whose arrays are in aligned memory wherever it arrives: it travels as bytes."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _arrived, (type(self), _packed(vars(self)))


def moved(value: Any) -> Any:
    """Return the value as it arrives in another process: a copy whose arrays are contiguous."""
    return pickle.loads(_packed(value))


def settled(value: Any) -> Any:
    """Return the value itself or, if its arrays are not laid out as those that arrive elsewhere, as it arrives."""
    return value if _is_plain(value, _DEPTH) else moved(value)


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.aligned and (value.flags.c_contiguous or value.flags.f_contiguous))
    within = vars(value).values() if depth and hasattr(value, "__dict__") else ()
    return all(_is_plain(each, depth - 1) for each in within)


def _packed(value: Any) -> bytes:
    import cloudpickle  # of Dask, which moves values, and functions that are defined anywhere

    packed: bytes = cloudpickle.dumps(value, protocol=5)
    return packed


def _arrived(kind: type, state: bytes) -> Any:
    value: Any = object.__new__(kind)
    vars(value).update(pickle.loads(state))
    return value


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


# ---------------------------------------------------------------------------------------------------------------------
# Partitions in this process, one after another; the reference for all other engines.


# Partitions of up to this size together are held once they are loaded; others are loaded in each pass.
HOLD_BYTES = 1 << 31


class LocalEngine(Engine):
    """Computes with one partition after another, with one thread each as on a cluster, so that sums have the same bits.

    Partitions that fit `HOLD_BYTES` are held in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = HOLD_BYTES

    def load(self, load: Load, tasks: Sequence[Any], shared: Any) -> list[Ref]:
        n, shared = len(tasks), _computed(shared)
        return [_Here(self, _loaded_here, (load, task, shared, number, n)) for number, task in enumerate(tasks)]

    def keep(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Ref]:
        function = moved(function)
        return [_Here(self, function, items) for items in zip(*columns, strict=True)]

    def run(
        self, function: Callable[..., TaskResult], *columns: Sequence[Any], combine: Combine, keeps: bool = False
    ) -> tuple[Any, list[Ref]]:
        self.round_trips += 1
        function = moved(function)  # as on a cluster: the layout of its arrays decides how sums are rounded
        small, kept = [], []
        with threads_at_most(1):
            for items in zip(*columns, strict=True):
                result = function(*map(_value, items))
                small.append(moved(result.small))
                if keeps:
                    kept.append(result)
        return combined(combine, small), kept

    def describe(self, n_partitions: int) -> str:
        return f"NumPy, {n_partitions:,} partition{'s' if n_partitions != 1 else ''} in this process"

    def has_room(self, value: Any) -> bool:
        """Whether a value of this size can be held; if so, there is less room from now on."""
        size = int(getattr(value, "nbytes", 0))
        if size > self._room:
            return False
        self._room -= size
        return True

    def make_room(self, value: Any) -> None:
        self._room += int(getattr(value, "nbytes", 0))


class _Here:
    """A value of one partition, computed when it is needed, and held as long as there is room."""

    def __init__(self, engine: LocalEngine, function: Callable[..., Any], items: tuple[Any, ...]) -> None:
        self._engine = engine
        self._function = function
        self._items = items
        self._held: Any = None

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def value(self) -> Any:
        if self._held is not None:
            return self._held
        found = self._function(*map(_value, self._items))
        if all(item.is_held for item in self._items if isinstance(item, _Here)) and self._engine.has_room(found):
            self._held = found
        return found

    def __del__(self) -> None:
        if self._held is not None:
            self._engine.make_room(self._held)


def _value(item: Any) -> Any:
    return item.value() if isinstance(item, _Here) else item


def _computed(value: Any) -> Any:
    """What a `dask.delayed.Delayed` stands for; other values stay what they are."""
    return value.compute(scheduler="synchronous") if hasattr(value, "__dask_graph__") else value


def _loaded_here(load: Load, task: Any, shared: Any, number: int, n_partitions: int) -> Any:
    def load_computed(task: Any, shared: Any) -> Any:
        return load(_computed(task), shared)

    return loaded(load_computed, task, shared, number, n_partitions)
