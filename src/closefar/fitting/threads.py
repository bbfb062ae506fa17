"""The number of BLAS threads: as many as the work can share, since threads that wait for each other take time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["threads_for"]

# Multiplications in a pass over the data for each thread.
_WORK_OF_THREAD = 1e8


class _Limit:
    """The limit in this process: the first of several computations sets it, and the last to end restores the numbers.

    Numbers are only lowered, so a limit that the user has set holds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._before: list[tuple[Any, int]] = []

    def enter(self, user: object, n_threads: int) -> None:
        with self._lock:
            self._users.add(user)
            if len(self._users) == 1:
                self._before = [(library, library.num_threads) for library in _libraries()]
                for library, before in self._before:
                    if before > n_threads:
                        library.set_num_threads(n_threads)

    def leave(self, user: object) -> None:
        """End a computation, even one that was interrupted while it entered."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                for library, before in self._before:
                    if library.num_threads != before:
                        library.set_num_threads(before)
                self._before = []


_LIMIT = _Limit()


@contextmanager
def threads_for(n_rows: int, n_columns: int) -> Iterator[None]:
    """Use no more BLAS threads than passes over data of this size can share; the numbers are restored in the end.

    Within another computation this changes nothing: the limit of the first one holds.
    """
    user = object()
    try:
        _LIMIT.enter(user, max(1, int(n_rows * n_columns**2 / _WORK_OF_THREAD)))
        yield
    finally:
        _LIMIT.leave(user)


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """The BLAS libraries of this process; looking for them takes as long as a small fit."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
