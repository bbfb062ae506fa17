"""What all commands share: progress, notes, printed results, and errors as a sentence with an exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import typer

from closefar.cli.options import option
from closefar.errors import command_words, printable
from closefar.files import Content, check_writable, is_device, staged_files
from closefar.plain import records, to_jsonable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.progress import Progress

EXIT_CODES = {
    0: "success",
    1: "success, but the fit did not reach its tolerance",
    2: "invalid option, data or model",
    3: "a file can't be read or written, or memory is too small",
    4: "a required package is not installed",
    70: "a bug in closefar",
    130: "interrupted; nothing was written",
}
_UNFINISHED, _WRONG_INPUT, _NO_FILE, _NO_PACKAGE, _BUG, _INTERRUPTED = (code for code in EXIT_CODES if code)
_PIPE_CLOSED = 141  # 128 and SIGPIPE, as of a shell

_NO_MEMORY = "not enough memory. Use fewer rows or columns, raise the limit (ulimit -v), or use a machine with more."


@dataclass(frozen=True)
class Output:
    """How much is printed, and in which form."""

    PANEL: ClassVar = "Output"

    json: bool = option("Print the result as JSON, for programs.", default=False)
    quiet: bool = option("Print errors only.", None, "--quiet", "-q", default=False)


def _print_error(line: str) -> None:
    """Print a line on standard error, if there is one."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def _discard_output() -> None:
    """Let nothing complain at exit that the rest of standard output can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Session:
    """One run of a command: ``with Session("fit", output) as session``.

    Leaving it turns what a user can cause into one sentence on standard error and an exit code.
    """

    def __init__(self, command: str, output: Output) -> None:
        self.command = command
        self.output = output
        self.warnings: list[str] = []
        self.unfinished = False
        self.checkpoint: Path | None = None
        self._interrupted = False
        self._is_written = False

    def __enter__(self) -> Session:
        if sys.stdout is None and self.output.json:
            self._end("standard output is closed. Open it.", _NO_FILE)
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        self._handlers = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
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
        # What an interrupt breaks, such as an import, may end in any error.
        if self._interrupted or isinstance(error, KeyboardInterrupt):
            kept = self.checkpoint is not None and self.checkpoint.exists()
            rest = f"the same command continues from {self.checkpoint}" if kept else "nothing was written"
            self._end(f"interrupted; {rest}.", _INTERRUPTED)
        if isinstance(error, BrokenPipeError):
            _discard_output()  # nobody reads on, as with `| head`
            raise typer.Exit(_PIPE_CLOSED) from None
        if isinstance(error, Exception) and not isinstance(error, typer.Exit):
            self._end(*_sentence_of(error))

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
                with _bar() as bar:
                    task = bar.add_task(title, total=n_parts, completed=-1)
                    yield lambda part: bar.update(task, description=f"{title}: {part}", advance=1)
        self._end_if_interrupted()
        for warning in caught:
            # The others are meant for programmers; of points that pairs share a command speaks in its own words.
            if issubclass(warning.category, UserWarning) and warning.category.__name__ != "SharedPointsWarning":
                self.warn(command_words(warning.message))

    @property
    def is_watched(self) -> bool:
        """Whether a person sees progress."""
        return sys.stderr is not None and sys.stderr.isatty() and not self.output.quiet

    def warn(self, *sentences: str) -> None:
        """Note something, once, that the result should be read with; an error needs no such notes."""
        self.warnings += [words for words in map(command_words, sentences) if words not in self.warnings]

    def write_files(self, contents: Mapping[Path, Content]) -> None:
        """Write files, all of them or none; an interrupt comes too late once the first is in its place."""
        with staged_files(contents) as put_in_place:
            self._end_if_interrupted()
            self._is_written = True
            put_in_place()

    def show(self, text: str, facts: dict[str, Any]) -> None:
        """Print a result: a text for a person, or the facts with all notes as JSON."""
        self._print_notes()
        if self.output.json:
            self._print(json.dumps(to_jsonable({**facts, "notes": self.warnings}, finite=True), indent=1))
        elif not self.output.quiet:
            self._print(printable(text))

    def write_table(self, blocks: Iterator[dict[str, NDArray[Any]]], n_rows: int, out: Path | None) -> None:
        """Write a table, given some rows at a time, to a file, or to standard output as CSV or JSON.

        CSV is asked for and so is never quiet.  It is UTF-8 whatever the terminal is said to know, so that ids stay the
        ids of other files; only what would control a terminal is escaped there.
        """
        from closefar.tables import csv_parts, write_table

        if out is not None:
            self.write_files({out: lambda file: write_table(blocks, named(out, TABLE), file)})
            self.show(f"Wrote {n_rows:,} rows to {out}.", {"written": [str(out)], "n_rows": n_rows})
        elif self.output.json:
            self.show("", {"records": [record for columns in blocks for record in records(columns)]})
        else:
            self._print_notes()
            for content in csv_parts(blocks):
                self._print(printable(content.decode("utf-8", "replace")).encode() if sys.stdout.isatty() else content)

    def _print(self, content: str | bytes) -> None:
        if sys.stdout is None:  # of a text for a person, who closed it
            return
        try:
            if isinstance(content, str):
                print(content, flush=True)
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write(content)
                sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard_output()
            written = " The files are written." if self._is_written else ""
            raise OSError(f"can't write to standard output: {error.strerror}.{written}") from error

    def _print_notes(self) -> None:
        if not self.output.quiet:
            for sentence in self.warnings:
                _print_error(printable(f"closefar {self.command}: note: {sentence}"))

    def _interrupt(self, *_: Any) -> None:
        if not self._is_written:
            self._interrupted = True
            raise KeyboardInterrupt

    def _end_if_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _end(self, sentence: str, code: int) -> NoReturn:
        _print_error(printable(f"closefar {self.command}: {sentence}".replace("\n", " ")))
        raise typer.Exit(code) from None


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _sentence_of(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of an error."""
    text = str(error)
    if isinstance(error, (MemoryError, SystemError)):
        return _NO_MEMORY, _NO_FILE
    if isinstance(error, ImportError) and str(error.path).endswith(tuple(EXTENSION_SUFFIXES)):  # it is there
        return f"{text}. Raise the limit on memory (ulimit -v) if there is one, or install it again.", _NO_FILE
    if isinstance(error, ImportError):
        if error.name is not None:  # from Python, not from closefar, which says what to install
            text = f"can't load a package that closefar needs ({text}): run pip install closefar."
        return text, _NO_PACKAGE
    if isinstance(error, OSError):
        if error.strerror is None:
            return text, _NO_FILE
        if error.filename is None:
            return f"{error.strerror}. Check that the current folder is still there.", _NO_FILE
        return f"can't use {error.filename}: {error.strerror}. Check its name and its permissions.", _NO_FILE
    if isinstance(error, ArithmeticError) or type(error).__name__ == "LinAlgError":  # of NumPy, which may not be loaded
        return (
            "the columns can't be computed with: some values are too large or too small. Change their units, or leave "
            "columns out with --drop.",
            _WRONG_INPUT,
        )
    if isinstance(error, ValueError):
        return command_words(error), _WRONG_INPUT
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    return f"unexpected {type(error).__name__} in {place}: {text}. Please report this bug with the command.", _BUG


# Typer brings a copy of click or uses the installed one, by its version.
_UsageError: Any = typer.BadParameter.__mro__[1]


def run(app: typer.Typer) -> int:
    """Run the command line and return its exit code; mistakes in it are reported in one line, as errors are."""
    try:
        code = int(app(standalone_mode=False, prog_name="closefar") or 0)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except (BrokenPipeError, SystemExit):  # the latter is click's own, where nobody reads on
        _discard_output()
        return _PIPE_CLOSED
    except OSError as error:
        _discard_output()
        _print_error(f"closefar: can't write to standard output: {error.strerror or error}.")
        return _NO_FILE
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            if error.message:  # rich has shown it already
                print(error.message)
            return _WRONG_INPUT
        command = error.ctx.command_path if error.ctx else "closefar"
        message = printable(" ".join(error.format_message().split()).rstrip("."))
        _print_error(f"{command}: {message[:1].lower()}{message[1:]}. See {command} --help.")
        return _WRONG_INPUT
    except Exception as error:
        sentence, code = _sentence_of(error)
        _print_error(f"closefar: {printable(sentence)}")
        return code


# ---------------------------------------------------------------------------------------------------------------------
# Where results go: what could not be written is refused before any work is done, and so is a file that exists.


TABLE, REPORT = "table.csv", "report.html"  # what is written to a device or a pipe, which has no suffix to say it
_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1")


@dataclass(frozen=True)
class Replacing:
    """What happens to files that are there already."""

    PANEL: ClassVar = Output.PANEL

    force: bool = option("Replace files that exist.", default=False)

    def check(self, outputs: Iterable[Path], *, read: Iterable[Path | None] = ()) -> None:
        """Refuse what could not be written, what is read by the same command, and, without --force, what exists."""
        inputs, seen = [path for path in read if path is not None], list[Path]()
        for path in outputs:
            if str(path) in _STANDARD_OUTPUT:  # which also takes the messages
                raise ValueError(
                    f"files can't be written to {path}. Name a file; without --out, tables go to standard output."
                )
            check_writable(path)
            if is_device(path):
                continue
            if any(_are_same(path, other) for other in inputs):
                raise ValueError(f"{path} is read by this command, so it can't be written. Choose another name.")
            if any(_are_same(path, other) for other in seen):
                raise ValueError(f"each file must have its own name; {path} is named twice.")
            seen.append(path)
        for path in seen:
            if path.exists() and not self.force:
                raise ValueError(f"{path} exists. Choose another name, or replace it with --force.")

    def check_table(self, out: Path | None, *, read: Iterable[Path | None]) -> None:
        """Refuse a table that could not be written, or whose format is unknown or needs a package that is missing."""
        from closefar.tables import encode_table

        if out is not None:
            self.check([out], read=read)
            encode_table({}, named(out, TABLE))
        elif sys.stdout is None:
            raise OSError("standard output is closed. Name a file with --out.")


def _are_same(left: Path, right: Path) -> bool:
    if left.exists() and right.exists():
        return os.path.samefile(left, right)
    return os.path.realpath(left) == os.path.realpath(right)


def named(out: Path, default: str) -> Path:
    """The name that says the format of a file: that of the default on devices and pipes."""
    return Path(default) if is_device(out) and not out.suffix else out
