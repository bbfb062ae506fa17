"""The commands; they import what they need when they run, so that help is quick."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import rich  # noqa: F401  # commands show their progress with it: missing, it is named before anything is done
import typer

from closefar import __version__
from closefar.cli.apply import predict, transform
from closefar.cli.classes import classes
from closefar.cli.demo import demo
from closefar.cli.evaluate import evaluate, report
from closefar.cli.fit import fit
from closefar.cli.label import export_judgements, label
from closefar.cli.models import export, inspect, truncate
from closefar.cli.options import with_groups
from closefar.cli.questions import label_errors, sample_size
from closefar.cli.session import CODE_NO_FILE, CODE_WRONG_INPUT, EXIT_CODES, PIPE_CLOSED, discard_output, tell
from closefar.errors import printable

_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich", epilog=_EPILOG)


def _show_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)]


@app.callback()
def closefar(version: _Version = False) -> None:
    """Learn a distance from noisy close/far labels."""


for command in (
    fit,
    classes,
    predict,
    transform,
    inspect,
    evaluate,
    label,
    label_errors,
    sample_size,
    truncate,
    export,
    export_judgements,
    report,
    demo,
):
    app.command()(with_groups(command))


# ---------------------------------------------------------------------------------------------------------------------
# Run the commands; what is wrong with a command line is said in one line, as are the errors of commands.


# Typer brings a copy of click or uses the installed one, by its version.
_UsageError: Any = typer.BadParameter.__mro__[1]


def run() -> int:
    """Run the command line and return its exit code."""
    try:
        code = _run_app()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return PIPE_CLOSED
    except OSError as error:
        discard_output()
        tell(f"closefar: can't write to standard output: {error.strerror or error}.")
        return CODE_NO_FILE
    return code


def _run_app() -> int:
    try:
        return int(app(standalone_mode=False, prog_name="closefar") or 0)
    except SystemExit as error:  # click's own, where nobody reads on
        raise BrokenPipeError from error
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            if error.message:  # rich has shown it already
                print(error.message)
            return CODE_WRONG_INPUT
        command = error.ctx.command_path if error.ctx else "closefar"
        message = " ".join(error.format_message().split())
        message = message.replace("Value error, ", "").replace("Input should be", "it must be")
        message = re.sub(r", unable to parse .*| \(Possible options: .*\)", "", message)
        message = message[:1].lower() + message[1:].rstrip(".")
        tell(f"{command}: {printable(message)}. See {command} --help.")
        return CODE_WRONG_INPUT
