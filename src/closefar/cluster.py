"""Data in partitions, on a Dask cluster or in this process: loaded, computed with and summed through dask's own graph.

Nothing here knows of metrics.
"""

from __future__ import annotations

import asyncio
import ctypes
import operator
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from closefar.arrays import Array, IndexArray, threads_at_most

if TYPE_CHECKING:  # needed on clusters only
    from distributed import Client, Future

__all__ = ["FAN_IN", "Cluster", "Combine", "Movable", "PartitionError", "Ref", "TaskResult", "by_partition"]
__all__ += ["chained", "cluster_for", "stacked"]

# ---------------------------------------------------------------------------------------------------------------------
# Values that move between processes.
#
# Arrays that arrive over a network may begin at any address; NumPy then multiplies them without BLAS, which is slow.


class Movable:
    """A value whose arrays are in aligned memory wherever it arrives: it travels as bytes.

    Its size tells a scheduler not to move it, but what is smaller.
    """

    def __sizeof__(self) -> int:
        values = [each for value in vars(self).values() for each in (value if isinstance(value, tuple) else (value,))]
        return 64 + sum(int(getattr(each, "nbytes", 0)) for each in values)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        import cloudpickle  # of Dask, which moves values, and functions that are defined anywhere

        return _arrived, (type(self), cloudpickle.dumps(vars(self), protocol=5))


def _arrived(kind: type, state: bytes) -> Any:
    value: Any = object.__new__(kind)
    vars(value).update(pickle.loads(state))
    return value


# A task of dask (`dask.delayed.Delayed`) for a value of one partition.
Ref = Any

# Joins small results, in the order of their partitions, to one of the same kind.
Combine = Callable[[Sequence[Any]], Any]

FAN_IN = 16  # results that are joined at a time; the same number everywhere, so that sums have the same bits


class PartitionError(OSError):
    """A partition can't be loaded, or the cluster that holds it is gone."""


@dataclass(frozen=True, eq=False)
class TaskResult(Movable):
    """The result of a function for one partition: what is small travels, what is kept stays where it is."""

    small: Any
    kept: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class _Sent(Movable):
    """A function with what it needs, which is sent to each worker once for all of its partitions.

    It computes with one thread: sums have the same bits on any number of workers.
    """

    function: Callable[..., Any]
    is_elsewhere: bool = False

    def __call__(self, *items: Any) -> Any:
        if self.is_elsewhere:
            reuse_memory()
        with threads_at_most(1):
            return self.function(*items)


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


# ---------------------------------------------------------------------------------------------------------------------
# Where partitions are computed with.


# Partitions of up to this size together are held in this process once they are loaded; others are loaded in each pass.
HOLD_BYTES = 1 << 31


class Cluster:
    """Dask with a client, or with the scheduler of this process if there is none.

    Everything that stays on a worker is the result of a task whose arguments are known to the scheduler, so that Dask
    computes it again when the worker is lost; nothing is scattered.

    Attributes
    ----------
    holds : bool
        Whether rows stay in memory once they are loaded.
    round_trips : int
        How many times this process has waited for results so far.
    """

    def __init__(self, client: Client | None = None) -> None:
        if client is not None and client.asynchronous:
            raise ValueError("fit needs a synchronous Client; got an asynchronous one. Pass asynchronous=False.")
        self._client = client
        self.holds = client is not None
        self.round_trips = 0

    def __reduce__(self) -> Any:
        raise TypeError("a cluster stays in its process: a function that is run on partitions must not refer to it.")

    def hold_if_small(self, n_bytes: int, refs: list[Ref]) -> list[Ref]:
        """Hold loaded partitions, of this many bytes together, if they fit into the memory of this process."""
        if self.holds or n_bytes > HOLD_BYTES:
            return refs
        self.holds = True
        return self.persisted(refs)

    def load(self, load: Callable[[Any, Any], Any], tasks: Sequence[Any], shared: Any) -> list[Ref]:
        """Load each partition, ``load(task, shared)``, where it will be computed with, without waiting for it."""
        import dask

        n, loading = len(tasks), dask.delayed(loaded, pure=False)
        common = shared if shared is None or hasattr(shared, "dask") else dask.delayed(shared, traverse=False)
        # A task of arrays is not looked into, for tasks within it.
        each = [task if hasattr(task, "dask") else dask.delayed(task, traverse=False) for task in tasks]
        parts = [loading(load, task, common, number, n) for number, task in enumerate(each)]
        with warnings.catch_warnings():  # points that all partitions need are large, and sent once to each worker
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.persisted(parts) if self.holds else parts

    def keep(
        self, function: Callable[..., Any], *columns: Sequence[Any], name: str = "keep", stays: bool | None = None
    ) -> list[Ref]:
        """Call a function for each partition and keep its results there, without waiting for them.

        The columns of arguments have one entry for each partition: a `Ref`, or a small value.  Results stay in memory
        as rows do, or as `stays` says; `name` is that of the tasks in Dask's dashboard.
        """
        import dask

        sent, key = self._sent(function), uuid4().hex
        call = dask.delayed(operator.call, pure=False)
        refs = [
            call(sent, *items, dask_key_name=f"closefar-{name}-{key}-{number}")
            for number, items in enumerate(zip(*columns, strict=True))
        ]
        return self.persisted(refs) if (self.holds if stays is None else stays) else refs

    def persisted(self, refs: list[Ref]) -> list[Ref]:
        """Compute results where their partitions are, and keep them in memory."""
        import dask

        return list(dask.persist(*refs) if self._client is None else self._open().persist(refs))

    def run(self, function: Callable[..., Any], *columns: Sequence[Any], combine: Combine) -> Any:
        """Call a function for each partition and join its small results, in one round trip.

        They are joined by a tree in the order of the partitions.
        """
        return self._joined(self.keep(function, *columns, name="sum", stays=False), combine)

    def run_and_keep(
        self, function: Callable[..., TaskResult], *columns: Sequence[Any], combine: Combine
    ) -> tuple[Any, list[Ref]]:
        """Join the small results of a function as `run` does; beside them is a `Ref` to each `TaskResult`."""
        import dask

        outcomes = self.keep(function, *columns, name="pass", stays=True)
        small = dask.delayed(operator.attrgetter("small"), pure=False)
        return self._joined([small(outcome) for outcome in outcomes], combine), outcomes

    def _joined(self, results: list[Ref], combine: Combine) -> Any:
        import dask

        join, joining = dask.delayed(combined, pure=False), self._sent(combine)
        while True:
            results = [join(joining, results[at : at + FAN_IN]) for at in range(0, len(results), FAN_IN)]
            if len(results) == 1:
                return self.compute(results)[0]

    def compute(self, tasks: Sequence[Any]) -> list[Any]:
        """Return the results of tasks of dask, which are small."""
        self.round_trips += 1
        if self._client is None:
            import dask

            return list(dask.compute(*tasks))
        futures: list[Future] = self._open().compute(list(tasks))
        try:
            return self._gather(futures)
        finally:
            for future in futures:  # a traceback would hold errors, which the same tasks would then have again
                future.release()

    def describe(self, n_partitions: int) -> str:
        """Say what computes: a part of a sentence."""
        partitions = _counted(n_partitions, "partition")
        if self._client is None:
            return f"NumPy, {partitions} in this process"
        return f"Dask, {partitions} on {_counted(len(self._client.ncores()), 'worker')}"

    def _sent(self, function: Callable[..., Any]) -> Ref:
        import dask

        return dask.delayed(_Sent(function, self._client is not None), traverse=False, pure=False)

    def _open(self) -> Client:
        assert self._client is not None
        if self._client.status in ("closing", "closed"):
            raise PartitionError(
                "the pairs are on a cluster whose client is closed. Fit again with a new Client, or ask before you "
                "close it."
            )
        return self._client

    def _gather(self, futures: list[Future]) -> list[Any]:
        from distributed import KilledWorker

        client = self._open()
        gathering = client.gather(futures, asynchronous=True)
        found = asyncio.run_coroutine_threadsafe(gathering, client.loop.asyncio_loop)
        try:
            while not wait([found], timeout=1.0).done:  # without a limit Windows can't interrupt it
                pass
            results: list[Any] = found.result()
            return results
        except KeyboardInterrupt:
            client.cancel(futures, force=True)  # after which Dask's own wait ends without messages
            raise
        except KilledWorker as error:
            raise PartitionError(
                f"workers were lost several times while they computed with the same partition ({error.task}), most "
                "likely because their memory is too small. Use more or smaller partitions, or workers with more memory."
            ) from error
        except CancelledError as error:
            raise PartitionError(
                "the fit can't continue on the cluster: the connection to the scheduler is lost. Start a new Client, "
                "and fit again."
            ) from error


def cluster_for(client: Any = None) -> Cluster:
    """Return the cluster of this client or, if None is given, of the current one; without one it is this process."""
    if client is None and "distributed" in sys.modules:  # which without a client need not even be imported
        from distributed import get_client

        with suppress(ValueError):  # there is none
            client = get_client()
    return Cluster(client)


def loaded(load: Callable[[Any, Any], Any], task: Any, shared: Any, number: int, n_partitions: int) -> Any:
    """Load a partition; an error says which one it is."""
    try:
        return load(task, shared)
    except Exception as error:
        where = f" from {task}" if isinstance(task, str) else ""
        raise PartitionError(
            f"partition {number} of {n_partitions} (from 0) can't be loaded{where}: {error} ({type(error).__name__}). "
            "Check that its files are complete and can be read where it is loaded."
        ) from error


def combined(combine: Combine, results: Sequence[Any]) -> Any:
    """Join results that follow each other."""
    return results[0] if len(results) == 1 else combine(results)


def chained(results: Sequence[list[Any]]) -> list[Any]:
    """Join lists, one after another."""
    return [entry for result in results for entry in result]


def stacked(results: Sequence[list[Array]]) -> list[Array]:
    """Join lists of arrays: in each place those of all partitions, one after another."""
    return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' if n != 1 else ''}"


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
