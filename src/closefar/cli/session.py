"""What every command does alike: it shows progress, prints a result, and ends with a sentence and an exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from closefar.errors import command_words, printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from closefar.files import Content

EXIT_CODES = {
    0: "success",
    1: "success, but the fit did not reach its tolerance",
    2: "invalid option, data or model",
    3: "a file can't be read or written, or memory is too small",
    4: "a required package is not installed",
    70: "a bug in closefar",
    130: "interrupted; nothing was written",
}
_UNFINISHED, CODE_WRONG_INPUT, CODE_NO_FILE, _NO_PACKAGE, _BUG, CODE_INTERRUPTED = (code for code in EXIT_CODES if code)
PIPE_CLOSED = 141

_PANEL = "Output"
# The libraries alone take most of this; with less, some of them never return from being loaded.
_LEAST_MEMORY = 1_100_000_000
_NO_MEMORY = "not enough memory. Use fewer rows or columns, or a machine with more memory."


@dataclass(frozen=True)
class Output:
    """How much is printed, and in which form."""

    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, for programs.", rich_help_panel=_PANEL)
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.", rich_help_panel=_PANEL)] = False


def tell(line: str) -> None:
    """Print a line on standard error, if there is one."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def discard_output() -> None:
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
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        self._handlers = {
            number: signal.signal(number, self._interrupt)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._hook, sys.unraisablehook = sys.unraisablehook, self._hear
        _check_memory(self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(None, None, None)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook
        if error is None:
            if self.unfinished:
                raise typer.Exit(_UNFINISHED)
            return
        # What an interrupt breaks, such as an import, may end in any error.
        if self._interrupted or isinstance(error, KeyboardInterrupt):
            self._end(self._interruption, CODE_INTERRUPTED)
        if isinstance(error, BrokenPipeError):
            discard_output()  # nobody reads on, as with `| head`
            raise typer.Exit(PIPE_CLOSED) from None
        if isinstance(error, Exception) and not isinstance(error, typer.Exit):
            self._end(*in_words(error))

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

    def check_standard_output(self, *, takes_table: bool = False) -> None:
        """Refuse, before any work is done, to write a result to a standard output that is closed."""
        if sys.stdout is None and (takes_table or self.output.json):
            raise OSError(f"standard output is closed. {'Name a file with --out.' if takes_table else 'Open it.'}")

    def write_files(self, contents: Mapping[Path, Content]) -> None:
        """Write files, all of them or none; an interrupt comes too late once the first is in its place."""
        from closefar.files import staged_files

        with staged_files(contents) as put_in_place:
            self._end_if_interrupted()
            self._is_written = True
            put_in_place()

    def show(self, text: str, facts: dict[str, Any]) -> None:
        """Print a result: a text for a person, or the facts with all notes as JSON."""
        self._print_notes()
        if self.output.json:
            from closefar.plain import plain

            self._print(json.dumps(plain({**facts, "notes": self.warnings}, finite=True), indent=1))
        elif not self.output.quiet:
            self._print(printable(text))

    def show_table(self, parts: Iterable[bytes]) -> None:
        """Write a table to standard output part by part; it is asked for and so is never quiet.

        It is UTF-8 whatever the terminal is said to know, so that ids stay the ids of other files; only what would
        control a terminal is escaped there.
        """
        self._print_notes()
        for content in parts:
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
            discard_output()
            written = " The files are written." if self._is_written else ""
            raise OSError(f"can't write to standard output: {error.strerror}.{written}") from error

    @property
    def _interruption(self) -> str:
        if self.checkpoint is None or not self.checkpoint.exists():
            return "interrupted; nothing was written."
        return f"interrupted; the same command continues from {self.checkpoint}."

    def _print_notes(self) -> None:
        if not self.output.quiet:
            for sentence in self.warnings:
                tell(printable(f"closefar {self.command}: note: {sentence}"))

    def _interrupt(self, *_: Any) -> None:
        if not self._is_written:
            self._interrupted = True
            raise KeyboardInterrupt

    def _hear(self, unraisable: Any) -> None:
        """An interrupt in a place that can't raise it is noticed at the end of the stage."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)

    def _end_if_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _end(self, sentence: str, code: int) -> NoReturn:
        tell(printable(f"closefar {self.command}: {sentence}".replace("\n", " ")))
        raise typer.Exit(code) from None


def _check_memory(end: Callable[[str, int], NoReturn]) -> None:
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY:
        end(
            f"there must be {_LEAST_MEMORY // 10**6} MB of address space at least; got a limit of {limit // 10**6} MB. "
            "Raise it with ulimit -v.",
            CODE_NO_FILE,
        )


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def in_words(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of an error."""
    text = str(error)
    if isinstance(error, ImportError) and "pip install" in text:
        return text, _NO_PACKAGE
    if isinstance(error, (MemoryError, SystemError)) or "map segment" in text or "allocate memory" in text:
        return _NO_MEMORY, CODE_NO_FILE
    if isinstance(error, ImportError):
        return f"can't load a package that closefar needs ({text}): run pip install closefar.", _NO_PACKAGE
    if isinstance(error, OSError):
        return _file_error(error), CODE_NO_FILE
    if isinstance(error, ArithmeticError) or type(error).__name__ == "LinAlgError":  # of NumPy, which may not be loaded
        return (
            "the columns can't be computed with: some values are too large or too small. Change their units, or leave "
            "columns out with --drop.",
            CODE_WRONG_INPUT,
        )
    if isinstance(error, ValueError):
        return command_words(error), CODE_WRONG_INPUT
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}, line {frame.lineno}"
    return f"unexpected {type(error).__name__} in {place}: {text}. Please report this bug with the command.", _BUG


def _file_error(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    if error.filename is None:
        return f"{error.strerror}. Check that the current folder is still there."
    return f"can't use {error.filename}: {error.strerror}. Check its name and its permissions."


# ---------------------------------------------------------------------------------------------------------------------
# Where results go: what may be overwritten, and what could not be written is refused before any work is done.
#
# A file that closefar wrote is replaced, so that a command can be run again; any other needs --force.


_HEAD = 65536
_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1")

IsOwn = Callable[[Path], bool]


@dataclass(frozen=True)
class Replacing:
    """What happens to files that are there already."""

    force: Annotated[
        bool, typer.Option("--force", help="Also replace a file that closefar did not write.", rich_help_panel=_PANEL)
    ] = False
    no_overwrite: Annotated[
        bool, typer.Option("--no-overwrite", help="Replace no file at all.", rich_help_panel=_PANEL)
    ] = False

    def check(
        self, outputs: Mapping[Path, IsOwn], *, read: Iterable[Path | None], advice: str = "Choose another name"
    ) -> None:
        """Refuse what could not be written, or would overwrite what is read or what somebody else wrote.

        Parameters
        ----------
        outputs : dict of paths to functions
            The files to write; a function says of one that exists whether this command may have written it.
        read : paths
            The files that the command reads.
        advice : str
            What to do instead of overwriting a file.
        """
        from closefar.files import check_writable, is_device

        if self.force and self.no_overwrite:
            raise ValueError("--force and --no-overwrite contradict each other. Leave one of them out.")
        for path in outputs:
            if str(path) in _STANDARD_OUTPUT:  # which also takes the messages
                raise ValueError(
                    f"files can't be written to {path}. Name a file; without --out, tables go to standard output."
                )
        inputs, seen = [path for path in read if path is not None], list[Path]()
        for path, is_own in outputs.items():
            check_writable(path)
            if is_device(path):
                continue
            if any(_are_same(path, other) for other in inputs):
                raise ValueError(f"{path} is read by this command, so it can't be written. Choose another name.")
            if any(_are_same(path, other) for other in seen):
                raise ValueError(f"each file must have its own name; {path} is named twice.")
            seen.append(path)
            if path.exists():
                self._check_replacing(path, is_own, advice)

    def _check_replacing(self, path: Path, is_own: IsOwn, advice: str) -> None:
        if self.no_overwrite:
            raise ValueError(f"{path} exists, and --no-overwrite was given. {advice}.")
        if not (self.force or path.stat().st_size == 0 or is_own(path)):
            raise ValueError(
                f"{path} exists and is not a result of this command. {advice}, or replace it with --force."
            )


def is_model(path: Path) -> bool:
    """Whether a file is a closefar model, of whatever version."""
    return b'"__metadata__":{"closefar"' in _head(path)


def is_report(path: Path) -> bool:
    """Whether a file is a report of closefar."""
    head, suffix = _head(path), path.suffix.lower()
    if suffix == ".json":
        return head.startswith(b'{\n "title"') and b'"n_fitted"' in head
    if suffix in (".txt", ".md"):
        return head.startswith(b"# ") and b"\n## Calibration\n" in head
    return b'name="generator" content="closefar' in head


def is_export(names: Sequence[str]) -> IsOwn:
    """Return what tells whether a file is a metric of columns of these names that `closefar export` wrote."""

    def is_own(path: Path) -> bool:
        head, suffix = _head(path), path.suffix.lower()
        if suffix == ".csv":
            return [name for name, *_ in csv.reader(io.StringIO(head.decode("utf-8", "replace")))] == ["", *names]
        if suffix == ".json":
            return head.startswith(b'{\n "feature_names"') and b'"single_points"' in head
        if suffix == ".npz":
            return _holds(path, "matrix.npy", "factor.npy", "threshold.npy", "feature_names.npy")
        return b"closefar" in head[:32] if suffix == ".onnx" else _is_empty_index(path)

    return is_own


def table_of(*columns: str) -> IsOwn:
    """Return what tells whether a table ends with these columns, numbers in their names aside."""

    def is_own(path: Path) -> bool:
        names = [name.rstrip("0123456789") for name in columns_of(path)]
        return names[len(names) - len(columns) :] == list(columns) and len(names) > len(columns)

    return is_own


def table_path(out: Path | None) -> Path:
    """The name that says the format of a table: CSV on standard output and on devices."""
    from closefar.files import is_device

    return Path("table.csv") if out is None or (is_device(out) and not out.suffix) else out


def report_path(out: Path) -> Path:
    """The name that says the format of a report: a page on devices."""
    from closefar.files import is_device

    return Path("report.html") if is_device(out) and not out.suffix else out


def _holds(path: Path, *members: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return set(members) <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _is_empty_index(path: Path) -> bool:
    try:
        import faiss

        return bool(faiss.read_index(str(path)).ntotal == 0)
    except (ImportError, RuntimeError):
        return False


def columns_of(path: Path) -> list[str]:
    """The names of the columns of a table; none where it is no table."""
    from closefar.tables import open_table

    try:
        return list(open_table(path).names)
    except (ImportError, OSError, ValueError):
        return []


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _are_same(left: Path, right: Path) -> bool:
    if left.exists() and right.exists():
        return os.path.samefile(left, right)
    return os.path.realpath(left) == os.path.realpath(right)
