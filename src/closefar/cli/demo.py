"""``closefar demo``: something to look at, or files to try the other commands on."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from closefar.cli.outputs import Replacing, is_report
from closefar.cli.session import Output, Session

__all__ = ["demo"]

_N_NEW = 500
_REPORT = Path("report.html")
_ADVICE = "Use another folder"


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
) -> None:
    """Learn a metric from simulated noisy pairs and write report.html, or write example files."""
    with Session("demo", output) as session:
        session.check_standard_output()
        if files:
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
