"""The number of BLAS threads: as many as the work can share, since threads that wait for each other take time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

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

    def enter(self, user: object, n_threads: int) -> None:
        with self._lock:
            self._users[user] = n_threads
            if len(self._users) == 1:
                self._before = [(library, library.num_threads) for library in _libraries()]
            self._apply()

    def leave(self, user: object) -> None:
        """End a computation, even one that was interrupted while it entered."""
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


_LIMIT = _Limit()


@contextmanager
def threads_at_most(number: int) -> Iterator[None]:
    """Use no more BLAS threads than this; the numbers are restored in the end."""
    user = object()
    try:
        _LIMIT.enter(user, number)
        yield
    finally:
        _LIMIT.leave(user)


def threads_for(n_rows: int, n_columns: int) -> AbstractContextManager[None]:
    """Use no more BLAS threads than passes over data of this size can share.

    Within another computation this never raises the number: the lower limit holds.
    """
    return threads_at_most(max(1, int(n_rows * n_columns**2 / _WORK_OF_THREAD)))


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """The BLAS libraries of this process; looking for them takes as long as a small fit."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
