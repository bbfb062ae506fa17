"""Progress of a run on the terminal: a bar an experiment, or a line each where nobody watches."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from closefar.experiments.runner import Watch

__all__ = ["Terminal"]


class Terminal(Watch):
    """Shows a run on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task: TaskID | None = None
        self.any_failed = False

    def __enter__(self) -> Terminal:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begun(self, title: str) -> None:
        self._task = self._progress.add_task(title, total=None)

    def trials(self, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def ended(self, entry: dict[str, Any]) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self.any_failed |= entry["status"] == "failed"
        reason = f": {entry['reason']}" if entry["reason"] else ""
        self._console.print(f"{entry['status']:<8} {entry['seconds']:6.1f} s  {entry['title']}{reason}", soft_wrap=True)

    def warn(self, sentence: str) -> None:
        self._console.print(sentence, soft_wrap=True)
