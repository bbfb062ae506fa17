"""Commands of closefar, run in this process as a shell would run them."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from closefar.cli.app import app

WRITING = (
    "classes",
    "demo",
    "export",
    "export-judgements",
    "fit",
    "label-errors",
    "predict",
    "report",
    "transform",
    "truncate",
)


def invoke(*command: Any, input: bytes | None = None) -> Result:
    """Run a command as it is, and return how it ended."""
    return CliRunner().invoke(app, [str(part) for part in command], input=input, env={"COLUMNS": "200"})


def run(*command: Any, input: bytes | None = None) -> Result:
    """Run a command that must succeed; one that writes may replace files of the tests before."""
    done = invoke(*command, *(["--force"] if command[0] in WRITING else []), input=input)
    assert done.exit_code == 0, (command, done.output, done.exception)
    return done


def facts(*command: Any) -> dict[str, Any]:
    """Run a command that must succeed, and return what it prints as JSON."""
    printed: dict[str, Any] = json.loads(run(*command, "--json").stdout)
    return printed


def refusal(*command: Any, code: int = 2) -> str:
    """Run a command that must fail, and return its only sentence."""
    done = invoke(*command)
    assert done.exit_code == code, (command, done.output, done.exception)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.stderr.startswith(f"closefar {command[0]}: ")
    return done.stderr
