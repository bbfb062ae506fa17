"""Progress of a fit on the terminal: a line that updates where rich is installed, plain lines otherwise."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from closefar.solve import Passes, State

_BETWEEN_LINES = 0.5  # seconds, at verbose 1
_QUIET = 2.0  # seconds after which something is shown of a stage, or of a step


class Display:
    """Shows stages and steps at `verbose` 1 (at most two lines per second) or 2 (every step)."""

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = int(verbose)
        self._status: Any = None
        self._stage = ""
        self._last_shown = -math.inf
        self._begun = time.monotonic()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Show a line that updates while this is open, where there is a terminal for it."""
        self._status = _rich_status() if self.verbose == 1 else None
        if self._status is None:
            yield
            return
        with self._status:
            yield

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Name what is going on: at once in the line that updates, otherwise if it takes long."""
        if self.verbose <= 0:
            yield
            return
        before, self._stage = self._stage, name
        timer = threading.Timer(_QUIET, self.say, [f"{name} ..."])
        timer.daemon = True
        if self._status is not None:
            self._status.update(name)
        else:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._stage = before

    def say(self, line: str) -> None:
        """Show a line that stays."""
        if self._status is not None:
            self._status.console.print(line, markup=False, highlight=False)
        elif self.verbose > 0:
            print(line, file=sys.stderr, flush=True)

    def step(self, line: str) -> None:
        """Show a step, unless another one was shown just before."""
        now = time.monotonic()
        if self.verbose <= 0 or (self.verbose == 1 and now - self._last_shown < _BETWEEN_LINES):
            return
        self._show(line, now)

    def note_pass(self, count: float) -> None:
        """Show that a step, such as a proof, is still under way if it takes long."""
        now = time.monotonic()
        if now - max(self._last_shown, self._begun) >= _QUIET:
            self._show(f"the next step is under way  passes {count:.1f}", now)

    def _show(self, line: str, now: float) -> None:
        self._last_shown = now
        line = f"{self._stage}: {line}" if self._stage else line
        if self._status is not None:
            self._status.update(line)
        else:
            print(line, file=sys.stderr, flush=True)


_SILENT = Display()
_CURRENT: ContextVar[Display] = ContextVar("display", default=_SILENT)


def display() -> Display:
    """The display of the fit that this is part of."""
    return _CURRENT.get()


@contextmanager
def showing(verbose: int) -> Iterator[Display]:
    """Show the progress of what is done within this, unless it is part of something that shows its own."""
    if verbose <= 0 or display().verbose > 0:
        yield display()
        return
    shown = Display(verbose)
    token = _CURRENT.set(shown)
    try:
        with shown.open():
            yield shown
    finally:
        _CURRENT.reset(token)


class Progress:
    """The steps of a solver as lines, with the time that is left until the proven gap is `tol`, if that is known.

    `keep` is called with each state.
    """

    def __init__(self, passes: Passes, tol: float, keep: Callable[[State], None] | None = None) -> None:
        self.passes = passes
        self.keep = keep
        self.display = display()
        self._forecast = _Forecast(tol)

    def __call__(self, iteration: int, state: State) -> None:
        if self.keep is not None:
            self.keep(state)
        if self.display.verbose <= 0:
            return
        self._forecast.add(state)
        gap = f"{state.gap:.1e}" if state.bound > 0 else "not proven yet"
        line = f"step {iteration:4d}  objective {state.objective:.8f}  gap {gap}  passes {self.passes.count:.1f}"
        self.display.step(line + self._forecast.words)


class _Forecast:
    """The time until the gap reaches the tolerance, if it goes on shrinking by the same factor per second."""

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self._proven: deque[tuple[float, float]] = deque(maxlen=6)

    def add(self, state: State) -> None:
        if state.bound > 0 and (not self._proven or 0.0 < state.gap < self._proven[-1][1]):
            self._proven.append((time.monotonic(), state.gap))

    @property
    def words(self) -> str:
        """Nothing before the gap has shrunk a few times: one proof says nothing about the next."""
        if len(self._proven) < 3 or self.tol <= 0.0:
            return ""
        (first, wide), (last, narrow) = self._proven[0], self._proven[-1]
        if narrow <= self.tol or last <= first:
            return ""
        left = (last - first) * math.log(narrow / self.tol) / math.log(wide / narrow) - (time.monotonic() - last)
        return f"  about {in_words(left)} left" if left > 0.0 else ""


def in_words(seconds: float) -> str:
    """A duration, rounded to two digits.

    Examples
    --------
    >>> from closefar.fitting.progress import in_words
    >>> in_words(8.2), in_words(200.0), in_words(8000.0)
    ('8 s', '3 min', '2.2 h')
    """
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"


def _rich_status() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console.status("reading the pairs") if console.is_terminal else None
