"""What all commands share: progress, notes, printed results, and errors as a sentence with an exit code."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, get_type_hints

import typer

from closefar.cli.options import option
from closefar.errors import command_words, printable
from closefar.files import Content, check_writable, is_device, staged_files
from closefar.plain import records, to_jsonable

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


@dataclass(frozen=True)
class WritingOutput(Output):
    """What happens to files that are there already, too."""

    force: bool = option("Replace files that exist.", default=False)


def _discard_output() -> None:
    """Let nothing complain at exit that the rest of standard output can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Session:
    """One run of a command, which it is given as its first argument; see `command`.

    Leaving it turns what a user can cause into one sentence on standard error and an exit code.
    """

    OPTIONS: ClassVar[type[Output]] = Output

    def __init__(self, command: str, output: Any) -> None:
        self.command = command
        self.output = output
        self.warnings: list[str] = []
        self.unfinished = False
        self.checkpoint: Path | None = None
        self._interrupted = False
        self._is_written = False
        self._stack = ExitStack()

    def __enter__(self) -> Session:
        self._stack.enter_context(warnings.catch_warnings(action="ignore"))
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._stack.callback(signal.signal, number, signal.signal(number, self._interrupt))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
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
    def stage(self, title: str, *, shows_itself: bool = False) -> Iterator[None]:
        """Show what is going on, collect its warnings, and end at an interrupt that a fit has caught."""
        with warnings.catch_warnings(record=True, action="always") as caught:
            if shows_itself or not self.is_watched:
                yield
            else:
                from rich.console import Console

                with Console(stderr=True).status(title):
                    yield
        self._end_if_interrupted()
        for warning in caught:
            # The others are meant for programmers; of points that pairs share a command speaks in its own words.
            if issubclass(warning.category, UserWarning) and warning.category.__name__ != "SharedPointsWarning":
                self.warn(command_words(warning.message))

    def read(self, read: Callable[..., Any], *source: Any, **options: Any) -> Any:
        """Read a table, and note what there is to note of it."""
        with self.stage("reading"):
            table = read(*source, **options)
        self.warn(*table.notes, *getattr(getattr(table, "comparisons", None), "notes", ()))
        return table

    @property
    def is_watched(self) -> bool:
        """Whether a person sees progress."""
        return sys.stderr.isatty() and not self.output.quiet

    def warn(self, *sentences: str) -> None:
        """Note something, once, that the result should be read with; an error needs no such notes."""
        self.warnings += [words for words in map(command_words, sentences) if words not in self.warnings]

    def write_files(self, contents: Mapping[Path, Content]) -> None:
        """Write files, all of them or none; an interrupt comes too late once the first is in its place."""
        with staged_files(contents) as put_in_place:
            self._end_if_interrupted()
            self._is_written = True
            put_in_place()

    def finish(self, contents: Mapping[Path, Content], text: str = "", **facts: Any) -> None:
        """Write files, and show a text that says so."""
        self.write_files(contents)
        written = [str(path) for path in contents]
        listed = " and ".join([*filter(None, [", ".join(written[:-1])]), written[-1]])
        self.show(f"{text}Wrote {listed}.", {"written": written, **facts})

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
            raise OSError(f"can't write to standard output: {error.strerror}.") from error

    def _print_notes(self) -> None:
        if not self.output.quiet:
            for sentence in self.warnings:
                print(printable(f"closefar {self.command}: note: {sentence}"), file=sys.stderr)

    def _interrupt(self, *_: Any) -> None:
        if not self._is_written:
            self._interrupted = True
            raise KeyboardInterrupt

    def _end_if_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _end(self, sentence: str, code: int) -> NoReturn:
        print(printable(f"closefar {self.command}: {sentence}".replace("\n", " ")), file=sys.stderr)
        raise typer.Exit(code) from None


def _sentence_of(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of an error."""
    text = str(error)
    if isinstance(error, (MemoryError, SystemError)):
        return _NO_MEMORY, _NO_FILE
    if isinstance(error, ImportError):
        if error.name is not None:  # from Python, not from closefar, which says what to install
            remedy = "run pip install closefar, or raise the limit on memory (ulimit -v) if there is one"
            text = f"can't load a package that closefar needs ({text}): {remedy}."
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
        sys.stdout.flush()
        return code
    except (BrokenPipeError, SystemExit):  # the latter is click's own, where nobody reads on
        _discard_output()
        return _PIPE_CLOSED
    except OSError as error:
        _discard_output()
        print(f"closefar: can't write to standard output: {error.strerror or error}.", file=sys.stderr)
        return _NO_FILE
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            if error.message:  # rich has shown it already
                print(error.message)
            return _WRONG_INPUT
        command = error.ctx.command_path if error.ctx else "closefar"
        message = printable(" ".join(error.format_message().split()).rstrip("."))
        print(f"{command}: {message[:1].lower()}{message[1:]}. See {command} --help.", file=sys.stderr)
        return _WRONG_INPUT
    except Exception as error:
        sentence, code = _sentence_of(error)
        print(f"closefar: {printable(sentence)}", file=sys.stderr)
        return code


# ---------------------------------------------------------------------------------------------------------------------
# Where results go: what could not be written is refused before any work is done, and so is a file that exists.


TABLE, REPORT = "table.csv", "report.html"  # what is written to a device or a pipe, which has no suffix to say it
_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1")


class WritingSession(Session):
    """A run of a command that writes files."""

    OPTIONS = WritingOutput

    def check(
        self, outputs: Iterable[Path], *, read: Iterable[Path | None] = (), continued: Path | None = None
    ) -> None:
        """Refuse what could not be written, what is read by the same command, and, without --force, what exists.

        Parameters
        ----------
        outputs : paths
        read : paths
            What the command reads.
        continued : path, optional
            The one of the outputs that the command goes on with if it exists.
        """
        taken = [path for path in read if path is not None]
        for path in outputs:
            if str(path) in _STANDARD_OUTPUT:  # which also takes the messages
                raise ValueError(
                    f"files can't be written to {path}. Name a file; without --out, tables go to standard output."
                )
            check_writable(path)
            if is_device(path):
                continue
            if any(_are_same(path, other) for other in taken):
                raise ValueError(
                    f"{path} must have a name of its own: the command reads or writes it already. Choose another."
                )
            if path.exists() and not self.output.force and path != continued:
                raise ValueError(f"{path} exists. Choose another name, or replace it with --force.")
            taken.append(path)

    def check_table(self, out: Path | None, *, read: Iterable[Path | None]) -> None:
        """Refuse a table that could not be written, or whose format is unknown or needs a package that is missing."""
        from closefar.tables import encode_table

        if out is not None:
            self.check([out], read=read)
            encode_table({}, named(out, TABLE))


def _are_same(left: Path, right: Path) -> bool:
    if left.exists() and right.exists():
        return os.path.samefile(left, right)
    return os.path.realpath(left) == os.path.realpath(right)


def named(out: Path, default: str) -> Path:
    """The name that says the format of a file: that of the default on devices and pipes."""
    return Path(default) if is_device(out) and not out.suffix else out


# ---------------------------------------------------------------------------------------------------------------------
# A command as typer takes it.


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Run a function in a session, with an option for each of its parameters and for each field of a group."""
    name, hints = function.__name__.replace("_", "-"), get_type_hints(function)
    groups: dict[str, Any] = {}
    options: dict[str, tuple[Any, Any, str | None]] = {}  # what each option becomes, how it is described, its panel
    for each, parameter in inspect.signature(function).parameters.items():
        kind = getattr(hints[each], "OPTIONS", hints[each])
        if dataclasses.is_dataclass(kind):
            groups[each], types, panel = kind, get_type_hints(kind), getattr(kind, "PANEL", None)
            options |= {field.name: (types[field.name], field, panel) for field in dataclasses.fields(kind)}
        else:
            options[each] = kind, parameter.default, None

    def run_in_session(**values: Any) -> None:
        def group(kind: Any) -> Any:
            return kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})

        with hints["session"](name, group(groups["session"])) as session:
            for option in values:
                rule = options[option][1].metadata["rule"]
                values[option] = values[option] if rule is None else rule(option, values[option])
            given = {each: group(kind) for each, kind in groups.items() if each != "session"}
            function(session=session, **given, **values)

    parameters = [_parameter(each, *described) for each, described in options.items()]
    run_in_session.__name__, run_in_session.__doc__ = function.__name__, function.__doc__
    run_in_session.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_in_session.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_in_session


def _parameter(name: str, kind: Any, field: Any, panel: str | None) -> inspect.Parameter:
    """An option in the panel of its group; a switch has no opposite, such as --no-quiet."""
    described = copy(field.metadata["described"])
    described.rich_help_panel = described.rich_help_panel or panel
    if kind is bool and described.default is ...:
        described.param_decls = (f"--{name.replace('_', '-')}",)
    typed = kind if field.metadata["rule"] is None else field.metadata["typed"]
    default = inspect.Parameter.empty if field.default is ... else field.default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, described]
    )
