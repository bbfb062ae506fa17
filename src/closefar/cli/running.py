"""Run the commands; what is wrong with a command line is said in one line, as are the errors of commands."""

from __future__ import annotations

import re
import sys
from typing import Any

import rich  # noqa: F401  # commands show their progress with it: missing, it is named before anything is done
import typer

from closefar.cli.app import app
from closefar.cli.session import CODE_NO_FILE, CODE_WRONG_INPUT, PIPE_CLOSED, discard_output, tell
from closefar.messages import printable

__all__ = ["run"]

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
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            if error.message:  # else it has been printed
                print(error.message)
            return CODE_WRONG_INPUT
        command = error.ctx.command_path if error.ctx else "closefar"
        message = " ".join(error.format_message().split())
        message = message.replace("Value error, ", "").replace("Input should be", "it must be")
        message = re.sub(r", unable to parse .*| \(Possible options: .*\)", "", message)
        message = message[:1].lower() + message[1:].rstrip(".")
        tell(f"{command}: {printable(message)}. See {command} --help.")
        return CODE_WRONG_INPUT
