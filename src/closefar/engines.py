"""Engines: where the partitions of data are stored and computed with: this process, or a Dask cluster.

Nothing here knows of metrics.
"""

from __future__ import annotations

import asyncio
import ctypes
import pickle
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import ThreadpoolController

from closefar.arrays import IndexArray

if TYPE_CHECKING:  # needed on clusters only
    from distributed import Client, Future

__all__ = ["Combine", "DaskEngine", "Engine", "LocalEngine", "Movable", "PartitionError", "Ref", "TaskResult"]
__all__ += ["by_partition", "combined", "engine_for", "threads_at_most", "threads_for"]

# ---------------------------------------------------------------------------------------------------------------------
# The number of BLAS threads: as many as the work can share, since threads that wait for each other take time.


# Multiplications in a pass over the data for each thread.
_WORK_OF_THREAD = 1e8


class _Limit:
    """The limit in this process: the lowest of those of all computations, the last of which restores the numbers.

    Numbers are only lowered, so a limit that the user has set holds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[object, int] = {}
        self._before: list[tuple[Any, int]] = []

    @contextmanager
    def at_most(self, number: int) -> Iterator[None]:
        """Use no more BLAS threads than this; the numbers are restored in the end."""
        user = object()
        try:
            with self._lock:
                self._users[user] = number
                if len(self._users) == 1:
                    self._before = [(library, library.num_threads) for library in _libraries()]
                self._apply()
            yield
        finally:  # even of a computation that was interrupted while it entered
            with self._lock:
                self._users.pop(user, None)
                self._apply()
                if not self._users:
                    self._before = []

    def _apply(self) -> None:
        for library, before in self._before:
            wanted = min([before, *self._users.values()])
            if library.num_threads != wanted:
                library.set_num_threads(wanted)


threads_at_most = _Limit().at_most


def threads_for(n_rows: int, n_columns: int) -> AbstractContextManager[None]:
    """Use no more BLAS threads than passes over data of this size can share.

    Within another computation this never raises the number: the lower limit holds.
    """
    return threads_at_most(max(1, int(n_rows * n_columns**2 / _WORK_OF_THREAD)))


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """The BLAS libraries of this process; looking for them takes as long as a small fit."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


# ---------------------------------------------------------------------------------------------------------------------
# Values that move between processes.
#
# Arrays that arrive over a network may begin at any address; NumPy then multiplies them without BLAS, which is slow.


class Movable:
    """A value whose arrays are in aligned memory wherever it arrives: it travels as bytes."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        import cloudpickle  # of Dask, which moves values, and functions that are defined anywhere

        return _arrived, (type(self), cloudpickle.dumps(vars(self), protocol=5))


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
        return load(_computed(task), shared)
    except Exception as error:
        where = f" from {task}" if isinstance(task, str) else ""
        raise PartitionError(
            f"partition {number} of {n_partitions} (from 0) can't be loaded{where}: {error} ({type(error).__name__}). "
            "Check that its files are complete and can be read where it is loaded."
        ) from error


# ---------------------------------------------------------------------------------------------------------------------
# Partitions in this process, one after another.


# Partitions of up to this size together are held once they are loaded; others are loaded in each pass.
HOLD_BYTES = 1 << 31


class LocalEngine(Engine):
    """Computes with one partition after another; partitions that fit `HOLD_BYTES` are held in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.room = HOLD_BYTES  # left, in bytes

    def load(self, load: Load, tasks: Sequence[Any], shared: Any) -> list[Ref]:
        n, shared = len(tasks), _computed(shared)
        return [_Here(self, partial(loaded, load, task, shared, at, n), ()) for at, task in enumerate(tasks)]

    def keep(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Ref]:
        return [_Here(self, function, items) for items in zip(*columns, strict=True)]

    def run(
        self, function: Callable[..., TaskResult], *columns: Sequence[Any], combine: Combine, keeps: bool = False
    ) -> tuple[Any, list[Ref]]:
        self.round_trips += 1
        results = []
        with threads_at_most(1):  # as on a cluster
            for items in zip(*columns, strict=True):
                found: dict[_Here, Any] = {}
                result = function(*(_value(item, found) for item in items))
                results.append(result if keeps else TaskResult(result.small))
        return combined(combine, [result.small for result in results]), results if keeps else []

    def describe(self, n_partitions: int) -> str:
        return f"NumPy, {_counted(n_partitions, 'partition')} in this process"


class _Here:
    """A value of one partition, computed when it is needed, and held as long as there is room."""

    def __init__(self, engine: LocalEngine, function: Callable[..., Any], items: tuple[Any, ...]) -> None:
        self._engine = engine
        self._function = function
        self._items = items
        self._held: Any = None

    def value(self, found: dict[_Here, Any]) -> Any:
        if self._held is not None:
            return self._held
        if self not in found:
            found[self] = self._function(*(_value(item, found) for item in self._items))
            are_held = all(item._held is not None for item in self._items if isinstance(item, _Here))
            if are_held and _size(found[self]) <= self._engine.room:
                self._engine.room -= _size(found[self])
                self._held = found[self]
        return found[self]

    def __del__(self) -> None:
        if self._held is not None:
            self._engine.room += _size(self._held)


def _size(value: Any) -> int:
    return int(getattr(value, "nbytes", 0))


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' if n != 1 else ''}"


def _value(item: Any, found: dict[_Here, Any]) -> Any:
    """What an item refers to, computed at most once for the values that were `found` already."""
    return item.value(found) if isinstance(item, _Here) else item


def _computed(value: Any) -> Any:
    """What a `dask.delayed.Delayed` stands for; other values stay what they are."""
    return value.compute(scheduler="synchronous") if hasattr(value, "__dask_graph__") else value


# ---------------------------------------------------------------------------------------------------------------------
# Partitions on the workers of a Dask cluster, which are loaded there, and again when a worker is lost.


# Parameters of glibc's mallopt, and bytes: arrays up to this size are taken from memory that was used before, and so
# much of it is kept.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_REUSED = 1 << 25  # 32 MiB: blocks of rows and their products


@lru_cache(maxsize=1)
def reuse_memory() -> None:
    """Undo what Dask sets for its workers, which gives memory back at once: each temporary array would be mapped anew.

    Passes over the rows would take up to three times as long.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _REUSED)
        mallopt(_M_TRIM_THRESHOLD, _REUSED)


# How long a cluster without workers may take to get some, and how often it is looked at: a restart takes seconds.
NO_WORKERS_TIMEOUT_S, _INTERVAL_S = 30.0, 2.0


class DaskEngine(Engine):
    """Computes on the cluster of a client.

    Everything on a worker is the result of a task whose arguments are known to the scheduler, so that Dask computes it
    again when the worker is lost; nothing is scattered.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        if client.asynchronous:
            raise ValueError("fit needs a synchronous Client; got an asynchronous one. Pass asynchronous=False.")
        self._client = client

    def load(self, load: Load, tasks: Sequence[Any], shared: Any) -> list[Ref]:
        import dask

        n, loading = len(tasks), dask.delayed(loaded, pure=False)
        common = shared if shared is None or hasattr(shared, "dask") else dask.delayed(shared, traverse=False)
        parts = [loading(load, task, common, number, n) for number, task in enumerate(tasks)]
        with warnings.catch_warnings():  # points that all partitions need are large, and sent once to each worker
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures: list[Ref] = self._client.compute(parts)
        return futures

    def keep(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Ref]:
        return self._map("keep", function, *columns)

    def run(
        self, function: Callable[..., TaskResult], *columns: Sequence[Any], combine: Combine, keeps: bool = False
    ) -> tuple[Any, list[Ref]]:
        self.round_trips += 1
        kept: list[Future] = []
        if keeps:
            kept = self._map("pass", function, *columns)
            results = self._map("small", partial(replace, kept=()), kept)
        else:
            results = self._map("sum", function, *columns)
        while len(results) > FAN_IN:
            groups = [results[start : start + FAN_IN] for start in range(0, len(results), FAN_IN)]
            results = self._map("join", partial(_joined, combine), groups)
        return combined(combine, [result.small for result in self._gather(results)]), kept

    def compute(self, tasks: Sequence[Any]) -> list[Any]:
        self.round_trips += 1
        futures: list[Future] = self._client.compute(list(tasks))
        try:
            return self._gather(futures)
        finally:
            for future in futures:  # a traceback would hold errors, which the same tasks would then have again
                future.release()

    def describe(self, n_partitions: int) -> str:
        return f"Dask, {_counted(n_partitions, 'partition')} on {_counted(len(self._client.ncores()), 'worker')}"

    def _map(self, name: str, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Future]:
        """Call a function for each partition; `name` is that of the tasks in Dask's dashboard."""
        if self._client.status in ("closing", "closed"):
            raise PartitionError(
                "the pairs are on a cluster whose client is closed. Fit again with a new Client, or ask before you "
                "close it."
            )
        futures: list[Future] = self._client.map(_Alone(function), *columns, pure=False, key=f"closefar-{name}")
        return futures

    def _gather(self, futures: list[Future]) -> list[Any]:
        from distributed import KilledWorker

        with _Watch(self._client, futures) as watch:
            try:
                return self._waited(futures)
            except KilledWorker as error:
                raise PartitionError(
                    f"workers were lost several times while they computed with the same partition ({error.task}), most "
                    "likely because their memory is too small. Use more or smaller partitions, or workers with more "
                    "memory."
                ) from error
            except CancelledError as error:
                reason = "all workers are gone" if watch.has_given_up else "the connection to the scheduler is lost"
                raise PartitionError(
                    f"the fit can't continue on the cluster: {reason}. Start workers, or a new Client, and fit again."
                ) from error

    def _waited(self, futures: list[Future]) -> list[Any]:
        """The results; an interrupt cancels their tasks, after which Dask's own wait ends without messages."""
        gathering = self._client.gather(futures, asynchronous=True)
        found = asyncio.run_coroutine_threadsafe(gathering, self._client.loop.asyncio_loop)
        try:
            while not wait([found], timeout=_INTERVAL_S).done:
                pass  # a wait without a limit can't be interrupted on Windows
            results: list[Any] = found.result()
            return results
        except KeyboardInterrupt:
            self._client.cancel(futures, force=True)
            raise


class _Watch(threading.Thread):
    """Cancels what is waited for if the cluster has no workers for a while, which would otherwise wait for ever."""

    def __init__(self, client: Client, futures: list[Future]) -> None:
        super().__init__(name="closefar-watch", daemon=True)
        self._client = client
        self._futures = futures
        self._is_over = threading.Event()
        self.has_given_up = False

    def __enter__(self) -> _Watch:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()

    def run(self) -> None:
        since = time.monotonic()
        while not self._is_over.wait(_INTERVAL_S):
            if self._has_workers():
                since = time.monotonic()
            elif time.monotonic() - since > NO_WORKERS_TIMEOUT_S:
                self.has_given_up = True
                self._client.cancel(self._futures, force=True)
                return

    def _has_workers(self) -> bool:
        try:
            return bool(self._client.ncores())
        except (OSError, RuntimeError, ValueError):  # no connection: the client itself gives up after a while
            return True


class _Alone(Movable):
    """A function that computes with one thread: its sums have the same bits on any number of workers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *items: Any) -> Any:
        reuse_memory()
        with threads_at_most(1):
            return self._function(*items)


def _joined(combine: Combine, results: Sequence[TaskResult]) -> TaskResult:
    return TaskResult(combine([result.small for result in results]))


def engine_for(client: Any = None) -> Engine:
    """Return the engine of this client or, if None is given, of the current one; without one it is this process.

    An engine is returned as it is.
    """
    if isinstance(client, Engine):
        return client
    if client is None and "distributed" in sys.modules:  # which without a client need not even be imported
        from distributed import get_client

        with suppress(ValueError):  # there is none
            client = get_client()
    return LocalEngine() if client is None else DaskEngine(client)
