"""The commands; they import what they need when they run, so that help is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from closefar import __version__
from closefar.cli.apply import predict, transform
from closefar.cli.classes import classes
from closefar.cli.demo import demo
from closefar.cli.evaluate import evaluate, report
from closefar.cli.export_judgements import export_judgements
from closefar.cli.fit import fit
from closefar.cli.groups import with_groups
from closefar.cli.label import label
from closefar.cli.models import export, inspect, truncate
from closefar.cli.questions import label_errors, sample_size
from closefar.cli.session import EXIT_CODES

__all__ = ["app"]

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
