"""``closefar export-judgements``: what was recorded by `closefar label`, as a table for any program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closefar.cli.apply import check_table, write_results
from closefar.cli.outputs import Replacing, table_of
from closefar.cli.session import Output, Session

__all__ = ["export_judgements"]

_COLUMNS = ("annotator", "time", "chosen", "purpose", "seconds", "original")


def export_judgements(
    output: Output,
    replacing: Replacing,
    judgements: Annotated[Path, typer.Argument(metavar="JUDGEMENTS", help="A file that `closefar label` wrote.")],
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE",
            help="The table to write: .csv, .csv.gz, .tsv or .parquet. By default, CSV on standard output.",
            show_default=False,
        ),
    ] = None,
    unsure: Annotated[bool, typer.Option("--unsure", help="Keep answers of can't say, with an empty label.")] = False,
) -> None:
    """Write recorded judgements as a table: the ids, the answer, who gave it and when, and how the pair was chosen.

    closefar export-judgements judgements.sqlite pairs.csv
    """
    with Session("export-judgements", output) as session:
        if out is not None and out.suffix.lower() == ".npz":
            raise ValueError(
                f"judgements are written as .csv, .csv.gz, .tsv or .parquet, which can leave a label empty; got "
                f"{out.name!r}."
            )
        check_table(session, out, table_of(*_COLUMNS), replacing, read=[judgements])
        from closefar.tables import note_unsure, read_recorded, recorded_columns

        with session.stage("reading"):
            answers = read_recorded(judgements)
            columns = recorded_columns(answers, keeps_unsure=unsure)
        n_rows = len(columns["time"])
        if n_rows == 0:
            advice = "Keep answers of can't say with --unsure" if len(answers) else "Judge something first"
            raise ValueError(f"{judgements} has no judgements to export. {advice}.")
        session.warn(*note_unsure(len(answers) - n_rows, len(answers)))
        write_results(session, iter([columns]), n_rows, out)
