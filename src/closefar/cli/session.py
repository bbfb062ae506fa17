"""What every command does alike: it shows progress, prints a result, and ends with a sentence and an exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["EXIT_CODES", "Output", "Session"]

EXIT_CODES = {
    0: "done",
    1: "done, but the fit did not reach its tolerance",
    2: "an option, a file's content or a model is not as it must be",
    3: "a file can't be read or written, or memory is too small",
    4: "a package is missing that the command needs",
    130: "interrupted; nothing was written",
}
_UNFINISHED, _WRONG_INPUT, _NO_FILE, _NO_PACKAGE, _INTERRUPTED = (code for code in EXIT_CODES if code)
_PIPE_CLOSED = 141

_PANEL = "Output"


@dataclass(frozen=True)
class Output:
    """How much is said, and to whom."""

    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, for programs.", rich_help_panel=_PANEL)
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.", rich_help_panel=_PANEL)] = False


class Session:
    """One run of a command: ``with Session("fit", output) as session``.

    Leaving it turns what a user can cause into one sentence on standard error and an exit code.
    """

    def __init__(self, command: str, output: Output) -> None:
        from rich.console import Console

        self.command = command
        self.output = output
        self.warnings: list[str] = []
        self.unfinished = False
        self._interrupted = False
        self._errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def __enter__(self) -> Session:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        self._handlers = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(None, None, None)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            if self.unfinished:
                raise typer.Exit(_UNFINISHED)
            return
        if isinstance(error, BrokenPipeError):
            # Nobody reads on, as with `| head`: closing standard output at exit must not complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(_PIPE_CLOSED) from None
        if isinstance(error, KeyboardInterrupt):
            self._end("interrupted; nothing was written.", _INTERRUPTED)
        if isinstance(error, ImportError) and "pip install" in str(error):
            self._end(str(error), _NO_PACKAGE)
        if isinstance(error, MemoryError):
            self._end("not enough memory. Give fewer rows or columns.", _NO_FILE)
        if isinstance(error, OSError):
            self._end(_words(error), _NO_FILE)
        if type(error).__name__ == "LinAlgError":  # of NumPy, which may not be loaded
            self._end(f"the numbers can't be computed with ({error}). Look for enormous ones.", _WRONG_INPUT)
        if isinstance(error, ValueError):
            self._end(str(error), _WRONG_INPUT)

    @contextmanager
    def stage(
        self, title: str, *, n_parts: int | None = None, shows_itself: bool = False
    ) -> Iterator[Callable[[str], None]]:
        """Show what is going on, collect its warnings, and end at an interrupt that a fit has caught.

        Gives a function to call with the name of each part before it is begun.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if shows_itself or not self.is_watched:
                yield lambda part: None
            else:
                with _bar(self._errors) as bar:
                    task = bar.add_task(title, total=n_parts, completed=-1)
                    yield lambda part: bar.update(task, description=f"{title}: {part}", advance=1)
        if self._interrupted:
            raise KeyboardInterrupt
        for warning in caught:
            # The others are meant for programmers; of points that pairs share a command speaks in its own words.
            if issubclass(warning.category, UserWarning) and warning.category.__name__ != "SharedPointsWarning":
                self.warn(str(warning.message))

    @property
    def is_watched(self) -> bool:
        """Whether a person sees progress."""
        return sys.stderr is not None and sys.stderr.isatty() and not self.output.quiet

    def warn(self, *sentences: str) -> None:
        """Note something, once, that the result should be read with; an error needs no such notes."""
        self.warnings += [sentence for sentence in sentences if sentence not in self.warnings]

    def show(self, text: str, facts: dict[str, Any]) -> None:
        """Print a result: a text for a person, or the facts with all notes as JSON."""
        self._print_notes()
        if self.output.json:
            from closefar.plain import plain

            print(json.dumps(plain({**facts, "notes": self.warnings}, finite=True), indent=1))
        elif not self.output.quiet:
            print(text)

    def write(self, text: str) -> None:
        """Write a table to standard output, which is asked for and so is never quiet."""
        if sys.stdout is None:
            raise OSError("standard output is closed. Name a file with --out.")
        self._print_notes()
        sys.stdout.write(text)

    def _print_notes(self) -> None:
        if not self.output.quiet:
            for sentence in self.warnings:
                self._errors.print(f"closefar {self.command}: note: {sentence}")

    def _interrupt(self, *_: Any) -> NoReturn:
        self._interrupted = True
        raise KeyboardInterrupt

    def _end(self, sentence: str, code: int) -> NoReturn:
        self._errors.print(f"closefar {self.command}: {sentence}")
        raise typer.Exit(code) from None


def _bar(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _words(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    if error.filename is None:
        return f"{error.strerror}. Check that the current folder is still there."
    return f"can't use {error.filename}: {error.strerror}. Check its name and its permissions."
