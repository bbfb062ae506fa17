"""The one thread that writes to a file of judgements: what waits together is committed together."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[sqlite3.Connection], Any], Future[Any]]

_MOST_TOGETHER = 256


class StoreError(OSError):
    """Nothing could be written, because the disk is full or the like; it may be tried again."""


class Writer:
    """Runs jobs one after the other in a thread of its own, and has a promise kept only after the commit.

    All jobs that wait are done in one transaction, which takes one write to the disk.  Each has a savepoint: one that
    fails is rolled back alone.

    Parameters
    ----------
    connection : sqlite3.Connection
        Used by nobody else from now on; with isolation_level=None.
    name : str
        What messages call the file.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # so that no job comes after the end
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="closefar-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Have a job done; its future has the result once that is on the disk."""
        future: Future[T] = Future()
        with self._gate:
            if self._is_closed:
                raise StoreError(f"{self._name} is closed, so nothing can be recorded. Start the server again.")
            self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Finish what waits, and close the connection."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            batch = [self._jobs.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < _MOST_TOGETHER:
                    batch.append(self._jobs.get_nowait())
            is_over = None in batch
            jobs = [each for each in batch if each is not None and each[1].set_running_or_notify_cancel()]
            if jobs:
                self._commit(jobs)
        self._connection.close()

    def _commit(self, jobs: list[_Job]) -> None:
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job, _ in jobs:
                outcomes.append(self._run_in_savepoint(job))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            outcomes = [(None, self._in_words(error))] * len(jobs)
        for (_, future), (result, trouble) in zip(jobs, outcomes, strict=True):
            if trouble is None:
                future.set_result(result)
            else:
                future.set_exception(trouble)

    def _run_in_savepoint(self, job: Callable[[sqlite3.Connection], T]) -> tuple[T | None, BaseException | None]:
        """The result of a job, or what went wrong; raises if that ended the whole transaction."""
        self._connection.execute("SAVEPOINT job")
        try:
            result = job(self._connection)
        except BaseException as error:
            if not self._connection.in_transaction:  # SQLite has rolled back everything, as on a full disk
                raise error if isinstance(error, sqlite3.Error) else sqlite3.OperationalError(str(error)) from error
            self._connection.execute("ROLLBACK TO job")
            self._connection.execute("RELEASE job")
            return None, self._in_words(error)
        self._connection.execute("RELEASE job")
        return result, None

    def _in_words(self, error: BaseException) -> BaseException:
        """What SQLite can't do, as a sentence; any other error as it is."""
        if not isinstance(error, sqlite3.OperationalError):
            return error
        trouble = StoreError(
            f"{self._name} can't be written: {error}. Check that the disk has room and that the file may be changed; "
            "nothing that was recorded before is lost."
        )
        trouble.__cause__ = error
        return trouble
