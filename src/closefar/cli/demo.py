"""``closefar demo``: something to look at, or files to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closefar.cli.session import Output, Session

__all__ = ["demo"]

_N_NEW = 500


def demo(
    output: Output,
    files: Annotated[
        bool, typer.Option("--files", help="Write points.csv, pairs.csv and new_pairs.csv to try the commands on.")
    ] = False,
) -> None:
    """Learn a metric from made-up noisy pairs and write report.html, or write files to try."""
    with Session("demo", output) as session:
        if files:
            written = write_files(Path())
            session.show(f"Wrote {', '.join(written)}.", {"written": written})
        else:
            from closefar.demo import main

            main()


def write_files(folder: Path) -> list[str]:
    """Write made-up patients, and pairs of them that somebody called close or far."""
    from closefar.datasets import make_patients
    from closefar.files import replace_files
    from closefar.tables import encode_table

    points, pairs, _ = make_patients(random_state=0)
    tables = {
        folder / "points.csv": points,
        folder / "pairs.csv": {name: column[:-_N_NEW] for name, column in pairs.items()},
        folder / "new_pairs.csv": {name: column[-_N_NEW:] for name, column in pairs.items()},
    }
    there = [str(path) for path in tables if path.exists()]
    if there:
        raise ValueError(
            f"there must be no files of these names yet; got {', '.join(there)}. Run it in another folder."
        )
    replace_files({path: encode_table(columns, path) for path, columns in tables.items()})
    return [str(path) for path in tables]
