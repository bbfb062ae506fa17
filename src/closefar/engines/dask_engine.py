"""Partitions on the workers of a Dask cluster, which are loaded there, and again when a worker is lost."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import dask
from distributed import Client, Future, KilledWorker

from closefar.engines.engine import (
    FAN_IN,
    Combine,
    Engine,
    Load,
    Movable,
    PartitionError,
    Ref,
    TaskResult,
    combined,
    loaded,
)
from closefar.engines.threads import threads_at_most

# ---------------------------------------------------------------------------------------------------------------------
# Memory of workers: blocks of rows are computed with in temporary arrays, whose memory should be used again.


# Parameters of glibc's mallopt, and bytes: arrays up to this size are taken from memory that was used before, and so
# much of it is kept.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_REUSED = 1 << 25


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


# How long a cluster without workers may take to get some, and how often it is looked at, in seconds.
PATIENCE, _INTERVAL = 30.0, 2.0


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
            results = self._map("small", _small, kept)
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
        n_workers = len(self._client.ncores())
        partitions = f"{n_partitions:,} partition{'s' if n_partitions != 1 else ''}"
        return f"Dask, {partitions} on {n_workers:,} worker{'s' if n_workers != 1 else ''}"

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
        with self._watched(futures) as watch:
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
            while not wait([found], timeout=_INTERVAL).done:
                pass  # a wait without a limit can't be interrupted on Windows
            results: list[Any] = found.result()
            return results
        except KeyboardInterrupt:
            self._client.cancel(futures, force=True)
            raise

    @contextmanager
    def _watched(self, futures: list[Future]) -> Iterator[_Watch]:
        watch = _Watch(self._client, futures)
        watch.start()
        try:
            yield watch
        finally:
            watch.finish()


class _Watch(threading.Thread):
    """Cancels what is waited for if the cluster has no workers for a while, which would otherwise wait for ever."""

    def __init__(self, client: Client, futures: list[Future]) -> None:
        super().__init__(name="closefar-watch", daemon=True)
        self._client = client
        self._futures = futures
        self._is_over = threading.Event()
        self.has_given_up = False

    def run(self) -> None:
        since = time.monotonic()
        while not self._is_over.wait(_INTERVAL):
            if self._has_workers():
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                self.has_given_up = True
                self._client.cancel(self._futures, force=True)
                return

    def finish(self) -> None:
        self._is_over.set()

    def _has_workers(self) -> bool:
        try:
            return bool(self._client.ncores())
        except (OSError, RuntimeError, ValueError):  # no connection: the client itself gives up after a while
            return True


class _Alone(Movable):
    """A function that computes with one thread, so that its sums have the same bits everywhere."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *items: Any) -> Any:
        reuse_memory()
        with threads_at_most(1):
            return self._function(*items)


def _small(result: TaskResult) -> TaskResult:
    return TaskResult(result.small)


def _joined(combine: Combine, results: Sequence[TaskResult]) -> TaskResult:
    return TaskResult(combine([result.small for result in results]))
