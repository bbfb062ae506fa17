"""``closefar demo``: something to look at, or files to try the other commands on."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from closefar.cli.label import LabelTask, Serving, serve
from closefar.cli.session import Output, Replacing, Session, is_report

_N_NEW = 500
_REPORT = Path("report.html")
_ADVICE = "Use another folder"
_FOLDER = Path("closefar-label-demo")
_INSTRUCTIONS = (
    "Look at shape, size and colour, and answer by your first impression: close if the two leaves could be from the "
    "same tree, far if not. There is no right answer: the metric learns what you look at."
)


def demo(
    output: Output,
    replacing: Replacing,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Write points.csv, pairs.csv, new_pairs.csv, ratings.csv, triplets.csv and annotated.csv, to try the "
            "other commands on.",
        ),
    ] = False,
    label: Annotated[
        bool,
        typer.Option(
            "--label", help="Judge pictures of leaves in the browser, as with `closefar label`, in closefar-label-demo."
        ),
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="With --label: do not open a browser.")] = False,
) -> None:
    """Learn a metric from simulated noisy pairs and write report.html, or write example files, or judge pictures."""
    with Session("demo", output) as session:
        session.check_standard_output()
        if files and label:
            raise ValueError("--files and --label are two demonstrations. Leave one of them out.")
        if label:
            _judge_leaves(session, replacing, no_browser)
        elif files:
            contents = example_files(Path())
            replacing.check({path: _holds(content) for path, content in contents.items()}, read=(), advice=_ADVICE)
            session.write_files(contents)
            written = [str(path) for path in contents]
            session.show(f"Wrote {', '.join(written)}.", {"written": written})
        else:
            replacing.check({_REPORT: is_report}, read=(), advice=_ADVICE)
            from closefar.demo import main

            with contextlib.redirect_stdout(io.StringIO()) as text:
                main()
            session.show(text.getvalue().rstrip(), {"text": text.getvalue()})


def _judge_leaves(session: Session, replacing: Replacing, no_browser: bool) -> None:
    """Write a table of leaves with their pictures, where it is not there yet, and serve it."""
    from closefar.files import replace_files
    from closefar.label import make_leaves
    from closefar.tables import encode_table

    leaves = make_leaves()
    table = _FOLDER / "leaves.csv"
    contents = {table: encode_table(leaves.columns, table)}
    contents |= {_FOLDER / name: picture for name, picture in leaves.pictures.items()}
    new = {path: content for path, content in contents.items() if not path.exists() or path.read_bytes() != content}
    for folder in {path.parent for path in new}:
        folder.mkdir(parents=True, exist_ok=True)
    replacing.check({path: _holds(content) for path, content in new.items()}, read=(), advice=_ADVICE)
    replace_files(new)  # not by the session, which would then hear no interrupt before the server runs
    task = LabelTask(question="Could these two leaves be from the same tree?", instructions=_INSTRUCTIONS)
    serve(session, table, _FOLDER / "judgements.sqlite", task, Serving(no_browser=no_browser), show=("photo",))


def example_files(folder: Path) -> dict[Path, bytes]:
    """Return tables of simulated patients, and of judgements of every kind."""
    from closefar.datasets import judge_patients, make_patients
    from closefar.tables import encode_table

    points, pairs, _ = make_patients(random_state=0)
    others = judge_patients(points, random_state=0)
    tables = {
        folder / "points.csv": points,
        folder / "pairs.csv": {name: column[:-_N_NEW] for name, column in pairs.items()},
        folder / "new_pairs.csv": {name: column[-_N_NEW:] for name, column in pairs.items()},
        **{folder / f"{name}.csv": columns for name, columns in others._asdict().items()},
    }
    return {path: encode_table(columns, path) for path, columns in tables.items()}


def write_files(folder: Path) -> None:
    """Write the example files to a folder."""
    from closefar.files import replace_files

    replace_files(example_files(folder))


def _holds(content: bytes) -> Callable[[Path], bool]:
    return lambda path: path.read_bytes() == content
