"""``closefar predict`` and ``closefar transform``: a model applied to new data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import read_for_model, with_ids
from closefar.cli.options import ModelFile, NaValues, NewData, OutFile
from closefar.cli.outputs import IsOwn, Replacing, table_of, table_path
from closefar.cli.predicted import is_prediction, predictions
from closefar.cli.session import Output, Session
from closefar.cli.sources import Files, WeightedFiles
from closefar.plain import records

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_table", "predict", "transform", "write_results"]

_DIRECTION = "direction"


def predict(
    model: ModelFile,
    files: WeightedFiles,
    new_data: NewData,
    output: Output,
    replacing: Replacing,
    out: OutFile = None,
    for_annotator: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Predict the labels of this annotator, instead of those of a typical one."),
    ] = None,
) -> None:
    """Predict distances and probabilities of labels for new pairs, or of answers for new comparisons.

    closefar predict --model model.closefar --points points.csv --pairs new_pairs.csv --out predicted.csv
    """
    with Session("predict", output) as session:
        check_table(session, out, is_prediction, replacing, read=[*files.paths, model])
        from closefar.learners import Model

        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=False)
        write_results(session, predictions(session, loaded, table, for_annotator), len(table), out)


def transform(
    model: ModelFile,
    points: Annotated[Path, typer.Option(metavar="FILE", help="Table with one row per point; - is standard input.")],
    new_data: NewData,
    output: Output,
    replacing: Replacing,
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of point ids. Default: 'id', else the first column.")
    ] = None,
    na_values: NaValues = None,
    out: OutFile = None,
) -> None:
    """Map points to coordinates in which the learned distance is Euclidean.

    Directions are in order of the mean squared distance that each explains on the training pairs.

    closefar transform --model model.closefar --points points.csv --out mapped.csv
    """
    with Session("transform", output) as session:
        files = Files(points=points, id=id, na_values=na_values)
        check_table(session, out, table_of(_DIRECTION), replacing, read=[*files.paths, model])
        from closefar.learners import Model
        from closefar.tables import read_or_open_points

        loaded = Model.load(model)
        with session.stage("reading"):
            table = read_or_open_points(loaded.source(files.source()), encoding=new_data.encoding_of(loaded))
        session.warn(*table.notes)
        mapped = table.projected(loaded.metric.components.T)
        columns = {f"{_DIRECTION}{index}": column for index, column in enumerate(mapped.T, start=1)}
        write_results(session, with_ids(table, columns), len(mapped), out)


def check_table(
    session: Session, out: Path | None, is_own: IsOwn, replacing: Replacing, *, read: Sequence[Path | None]
) -> None:
    """Refuse, before any work is done, a table that could not be written."""
    from closefar.tables import encode_table

    if out is None:
        session.check_standard_output(takes_table=True)
        return
    session.check_standard_output()
    replacing.check({out: is_own}, read=read)
    encode_table({}, table_path(out))  # says if its format is unknown, or a package is missing


def write_results(session: Session, blocks: Iterator[dict[str, NDArray[Any]]], n_rows: int, out: Path | None) -> None:
    """Write a table, given some rows at a time, to a file, or to standard output as CSV or JSON."""
    if out is None and session.output.json:
        session.show("", {"records": [record for columns in blocks for record in records(columns)]})
        return
    from closefar.tables import csv_parts, write_table

    if out is None:
        session.show_table(csv_parts(blocks))
    else:
        session.write_files({out: lambda file: write_table(blocks, table_path(out), file)})
        session.show(f"Wrote {n_rows:,} rows to {out}.", {"written": [str(out)], "n_rows": n_rows})
