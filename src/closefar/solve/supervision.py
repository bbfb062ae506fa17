"""The supervision of a fit: the time that it may take, and the journal that it can be continued from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# ---------------------------------------------------------------------------------------------------------------------
# The journal of a fit: what its runs have come to, as numbers that another process can continue from.


# Numbers, strings, lists, dicts and small arrays; never one number per row.
Entry = dict[str, Any]

_SAME = 1e-9


class Journal:
    """The runs that have ended, in order, and the one under way.

    A fit is a fixed sequence of runs of solvers.  When it is repeated, runs that have ended are not run again, and the
    one under way continues where it was.

    Parameters
    ----------
    ended : sequence of dict
        The entries of the runs that have ended.
    under_way : dict, optional
        That of the run that had begun.
    write : callable
        Called with the journal when there is something new to write; it decides whether it is time to.
    """

    def __init__(
        self, write: Callable[[Journal], None], ended: Sequence[Entry] = (), under_way: Entry | None = None
    ) -> None:
        self.ended = list(ended)
        self.under_way = under_way
        self._write = write
        self._position = 0
        self._is_sealed = False

    def begin(self, label: Entry) -> tuple[Entry | None, bool]:
        """The entry of the run that begins, if there is one, and whether that run has ended.

        A run with another label is a different one: another machine may round a choice between two equal penalties
        the other way.  What followed is then forgotten.
        """
        position = self._position
        self._position += 1
        if self._is_sealed or position > len(self.ended):
            return None, False
        has_ended = position < len(self.ended)
        entry = self.ended[position] if has_ended else self.under_way
        if entry is not None and not _are_alike(entry["label"], label):
            self.forget()
            return None, False
        return entry, has_ended

    def forget(self) -> None:
        """Forget the run that began last, and what followed."""
        self.ended, self.under_way = self.ended[: self._position - 1], None

    def keep(self, entry: Entry) -> None:
        """Note what the run under way has come to."""
        if not self._is_sealed:
            self.under_way = entry
            self._write(self)

    def end(self, entry: Entry) -> None:
        """Note the result of a run."""
        if not self._is_sealed:
            self.ended.append(entry)
            self.under_way = None
            self._write(self)

    def seal(self) -> None:
        """Note nothing more: what follows an interrupt only completes what has been computed."""
        self._is_sealed = True


def _are_alike(one: Entry, other: Entry) -> bool:
    """Whether labels are the same, up to the rounding of their numbers."""
    return one.keys() == other.keys() and all(
        math.isclose(value, other[name], rel_tol=_SAME) if isinstance(value, float) else value == other[name]
        for name, value in one.items()
    )


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
