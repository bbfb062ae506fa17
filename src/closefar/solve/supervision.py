"""The supervision of a fit: the time that it may take, and the journal that it can be continued from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from closefar.solve.journal import Journal

__all__ = ["OutOfTime", "Supervisor", "supervised", "supervisor"]


class OutOfTime(Exception):  # noqa: N818  # no error: the fit ends with what it has
    """The time of a fit is over; `near` is what it has by then, to start from."""

    def __init__(self, near: Any = None) -> None:
        super().__init__()
        self.near = near


class Supervisor:
    """What holds for all runs of a fit.

    Attributes
    ----------
    max_time : float, optional
        The time that the fit may take, in seconds from now.
    journal : Journal, optional
    on_pass : callable, optional
        Called with the number of passes over the data whenever one begins.
    has_ended_a_run : bool
        Whether a run ended since the time was over.
    """

    def __init__(
        self,
        max_time: float | None = None,
        journal: Journal | None = None,
        on_pass: Callable[[float], None] | None = None,
    ) -> None:
        self.max_time = max_time
        self.journal = journal
        self.on_pass = on_pass
        self.has_ended_a_run = False
        self._deadline = math.inf if max_time is None else time.monotonic() + max_time
        self._may_raise = False

    @property
    def is_over(self) -> bool:
        return self._deadline < math.inf and time.monotonic() >= self._deadline

    def note_pass(self, count: float) -> None:
        """End the step under way if the time is over."""
        if self.on_pass is not None:
            self.on_pass(count)
        if self._may_raise and self.is_over:
            raise OutOfTime

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Within this, a pass may end the computation: there is a state to keep."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False


_UNSUPERVISED = Supervisor()
_CURRENT: ContextVar[Supervisor] = ContextVar("supervisor", default=_UNSUPERVISED)


def supervisor() -> Supervisor:
    """The supervisor of the fit that this is part of."""
    return _CURRENT.get()


@contextmanager
def supervised(by: Supervisor) -> Iterator[None]:
    """Supervise the runs within this."""
    token = _CURRENT.set(by)
    try:
        yield
    finally:
        _CURRENT.reset(token)
