"""``closefar predict`` and ``closefar transform``: a model applied to new data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import check_outputs, read_for_model, squared_distances, with_ids
from closefar.cli.options import Files, ModelFile, NaValues, NewData, OutFile
from closefar.cli.session import Output, Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.learners import Model
    from closefar.tables import PairTable

__all__ = ["predict", "transform"]


def predict(model: ModelFile, files: Files, new_data: NewData, output: Output, out: OutFile = None) -> None:
    """Say of new pairs how far they are, and how probably far.

    closefar predict --model model.closefar --points points.csv --pairs new_pairs.csv --out predicted.csv
    """
    with Session("predict", output) as session:
        check_outputs(out, read=[*files.paths, model])
        from closefar.learners import Model

        loaded = Model.load(model)
        table = read_for_model(session, loaded, files, new_data, labelled=False)
        write_table(session, predictions(loaded, table), out)


def transform(
    model: ModelFile,
    points: Annotated[Path, typer.Option(help="A row for each point; - is standard input.")],
    new_data: NewData,
    output: Output,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="The id of a point.")] = None,
    na_values: NaValues = None,
    out: OutFile = None,
) -> None:
    """Map points to where the learned distance is the Euclidean one.

    Directions are in order of the mean squared distance that each explains on the training pairs.

    closefar transform --model model.closefar --points points.csv --out mapped.csv
    """
    with Session("transform", output) as session:
        files = Files(points=points, id=id, na_values=na_values)
        check_outputs(out, read=[*files.paths, model])
        from closefar.learners import Model
        from closefar.tables import read_points

        loaded = Model.load(model)
        with session.stage("reading"):
            table = read_points(loaded.source(files.source()), encoding=new_data.encoding_of(loaded))
        session.warn(*table.notes)
        mapped = table.data @ loaded.metric.components.T
        columns = {f"direction{index}": column for index, column in enumerate(mapped.T, start=1)}
        write_table(session, with_ids(table, columns), out)


def predictions(model: Model, table: PairTable) -> dict[str, NDArray[Any]]:
    """Return the columns of a prediction: the ids, distance, margin, probability and label."""
    import numpy as np

    metric, squared = model.metric, squared_distances(table, model)
    margin = squared - metric.threshold
    columns = {
        "distance": np.sqrt(squared),
        "margin": margin,
        "probability_far": metric.probability_at(margin),
        "predicted": np.array(model.classes)[(margin >= 0).astype(int)],
    }
    return with_ids(table, columns)


def write_table(session: Session, columns: dict[str, NDArray[Any]], out: Path | None) -> None:
    """Write a table to a file, or to the screen as CSV."""
    from closefar.files import replace_file
    from closefar.tables import encode_table

    content = encode_table(columns, out or Path("screen.csv"))
    n_rows = len(next(iter(columns.values())))
    if out is not None:
        replace_file(out, content)
        session.show(f"Wrote {n_rows:,} rows to {out}.", {"written": [str(out)], "n_rows": n_rows})
    elif session.output.json:
        session.show("", {"columns": columns})
    else:
        session.write(content.decode("utf-8", "replace"))
