"""The commands; they import what they need when they run, so that help is quick."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import rich  # noqa: F401  # commands show their progress with it: missing, it is named before anything is done
import typer

from closefar import __version__
from closefar.cli.fit import classes, fit, label_errors, sample_size
from closefar.cli.label import LabelTask, Serving, export_judgements, label, serve
from closefar.cli.models import evaluate, export, inspect, predict, report, transform, truncate
from closefar.cli.options import option, with_groups
from closefar.cli.session import (
    CODE_NO_FILE,
    CODE_WRONG_INPUT,
    EXIT_CODES,
    PIPE_CLOSED,
    Output,
    Replacing,
    Session,
    discard_output,
    print_error,
    sentence_of,
)
from closefar.errors import printable

# ---------------------------------------------------------------------------------------------------------------------
# ``closefar demo``: something to look at, or files to try the other commands on.


_N_NEW = 500  # pairs of new_pairs.csv
_LEAVES = Path("closefar-label-demo")
_INSTRUCTIONS = (
    "Look at shape, size and colour, and answer by your first impression: close if the two leaves could be from the "
    "same tree, far if not. There is no right answer: the metric learns what you look at."
)


def demo(
    output: Output,
    replacing: Replacing,
    files: bool = option(
        "Write points.csv, pairs.csv, new_pairs.csv, ratings.csv, triplets.csv and annotated.csv, to try the other "
        "commands on.",
        default=False,
    ),
    label: bool = option(
        "Judge pictures of leaves in the browser, as with `closefar label`, in closefar-label-demo.", default=False
    ),
    no_browser: bool = option("With --label: do not open a browser.", default=False),
) -> None:
    """Learn a metric from simulated noisy pairs and write report.html, or write example files, or judge pictures.

    closefar demo --files
    """
    with Session("demo", output) as session:
        if files and label:
            raise ValueError("--files and --label are two demonstrations. Leave one of them out.")
        if label:
            _judge_leaves(session, no_browser)
        elif files:
            contents = _example_files()
            replacing.check(contents)
            session.write_files(contents)
            written = [str(path) for path in contents]
            session.show(f"Wrote {', '.join(written)}.", {"written": written})
        else:
            replacing.check([Path("report.html")])
            from closefar.demo import main

            with contextlib.redirect_stdout(io.StringIO()) as text:
                main()
            session.show(text.getvalue().rstrip(), {"text": text.getvalue()})


def _judge_leaves(session: Session, no_browser: bool) -> None:
    """Write a table of leaves with their pictures, where it is not there yet, and serve it."""
    from closefar.files import replace_files
    from closefar.label import make_leaves
    from closefar.tables import encode_table

    leaves, table = make_leaves(), _LEAVES / "leaves.csv"
    contents = {table: encode_table(leaves.columns, table)}
    contents |= {_LEAVES / name: picture for name, picture in leaves.pictures.items()}
    for folder in {path.parent for path in contents}:
        folder.mkdir(parents=True, exist_ok=True)
    # Not by the session, which would then hear no interrupt before the server runs.
    replace_files({path: content for path, content in contents.items() if not path.exists()})
    task = LabelTask(question="Could these two leaves be from the same tree?", instructions=_INSTRUCTIONS)
    serve(session, table, _LEAVES / "judgements.sqlite", task, Serving(no_browser=no_browser), show=("photo",))


def _example_files() -> dict[Path, bytes]:
    """Return tables of simulated patients, and of judgements of every kind."""
    from closefar.datasets import judge_patients, make_patients
    from closefar.tables import encode_table

    points, pairs, _ = make_patients(random_state=0)
    tables = {
        "points": points,
        "pairs": {name: column[:-_N_NEW] for name, column in pairs.items()},
        "new_pairs": {name: column[-_N_NEW:] for name, column in pairs.items()},
        **judge_patients(points, random_state=0)._asdict(),
    }
    paths = {Path(f"{name}.csv"): columns for name, columns in tables.items()}
    return {path: encode_table(columns, path) for path, columns in paths.items()}


# ---------------------------------------------------------------------------------------------------------------------
# All commands, and what runs them: mistakes in a command line are reported in one line, as are the errors of commands.


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


_COMMANDS = (fit, classes, predict, transform, inspect, evaluate, label, label_errors, sample_size, truncate, export)
for command in (*_COMMANDS, export_judgements, report, demo):
    app.command()(with_groups(command))

# Typer brings a copy of click or uses the installed one, by its version.
_UsageError: Any = typer.BadParameter.__mro__[1]


def run() -> int:
    """Run the command line and return its exit code."""
    try:
        code = int(app(standalone_mode=False, prog_name="closefar") or 0)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except (BrokenPipeError, SystemExit):  # the latter is click's own, where nobody reads on
        discard_output()
        return PIPE_CLOSED
    except OSError as error:
        discard_output()
        print_error(f"closefar: can't write to standard output: {error.strerror or error}.")
        return CODE_NO_FILE
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            if error.message:  # rich has shown it already
                print(error.message)
            return CODE_WRONG_INPUT
        command = error.ctx.command_path if error.ctx else "closefar"
        message = printable(" ".join(error.format_message().replace("Value error, ", "").split()).rstrip("."))
        print_error(f"{command}: {message[:1].lower()}{message[1:]}. See {command} --help.")
        return CODE_WRONG_INPUT
    except Exception as error:
        sentence, code = sentence_of(error)
        print_error(f"closefar: {printable(sentence)}")
        return code
