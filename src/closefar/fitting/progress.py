"""Progress of a fit on the terminal: a line that updates where rich is installed, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from closefar.solve import Passes, State

__all__ = ["Progress"]


class Progress:
    """Shows iterations at `verbose` 1 (at most two lines per second) or 2 (every one)."""

    def __init__(self, verbose: int, passes: Passes) -> None:
        self.verbose = int(verbose)
        self.passes = passes
        self._status: Any = None
        self._last_shown = 0.0

    def __enter__(self) -> Progress:
        if self.verbose == 1:
            self._status = _rich_status()
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, iteration: int, state: State) -> None:
        if self.verbose <= 0:
            return
        now = time.monotonic()
        if self.verbose == 1 and iteration > 0 and now - self._last_shown < 0.5:
            return
        self._last_shown = now
        gap = f"{state.gap:.1e}" if state.bound > 0 else "not proven yet"
        line = f"step {iteration:4d}  objective {state.objective:.8f}  gap {gap}  passes {self.passes.count:.1f}"
        if self._status is not None:
            self._status.update(line)
        else:
            print(line, file=sys.stderr, flush=True)


def _rich_status() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console.status("reading the pairs") if console.is_terminal else None
