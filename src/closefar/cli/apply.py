"""``closefar predict`` and ``closefar transform``: a model applied to new data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.data import read_for_model, squared_distances, with_ids
from closefar.cli.options import Files, ModelFile, NaValues, NewData, OutFile, WeightedFiles
from closefar.cli.session import IsOwn, Output, Replacing, Session, columns_of, table_of, table_path
from closefar.plain import records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.learners import Model
    from closefar.tables import Pairs, PairTable

# ---------------------------------------------------------------------------------------------------------------------
# What a model says of new pairs and comparisons: the columns of a table of predictions.


_OF_PAIRS = ("distance", "margin", "probability_far", "predicted")
_OF_COMPARISONS = ("distance_left", "distance_right", "margin", "probability_left", "predicted")
_OF_A_LEVEL = "probability_"


def predictions(
    session: Session, model: Model, table: Pairs, annotator: str | None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Give the columns of a prediction, some rows at a time: the ids, distances, probabilities and the label."""
    from closefar.tables import PairTable

    if table.comparisons is not None:
        raise ValueError("predictions are of --pairs or of --comparisons; got both. Leave one of them out.")
    if table.are_comparisons:
        if annotator is not None:
            raise ValueError(
                "annotators differ in their thresholds, and comparisons have none. Leave --for-annotator out."
            )
        assert isinstance(table, PairTable)
        columns = _compared(model, table)
    elif not model.metric.thresholds:
        session.warn(
            "the model has no threshold, as it was fitted to comparisons, so distances are all that it says of pairs; "
            "calibrate_threshold fits one to labelled pairs in Python."
        )
        columns = {"distance": squared_distances(table, model) ** 0.5}
    else:
        columns = _judged(model, table, annotator)
    return with_ids(table, columns)


def _judged(model: Model, table: Pairs, annotator: str | None) -> dict[str, Any]:
    import numpy as np

    from closefar.judgements import CodedLabels

    metric, squared = model.metric, squared_distances(table, model)
    heard, rate = squared, None
    if annotator is not None:
        heard, rate = squared - model.strictness_of(annotator), model.flip_rate_of(annotator)
    if len(model.classes) == 2:
        margin = heard - metric.known_threshold
        labels = CodedLabels(model.classes, (margin >= 0).view(np.int8))
        probability = metric.probability_at(margin) if rate is None else metric.probabilities_at(heard, rate)[:, 1]
        return dict(zip(_OF_PAIRS, (np.sqrt(squared), margin, probability, labels), strict=True))
    labels = CodedLabels(model.classes, metric.levels_at(heard))
    probabilities = zip(model.classes, metric.probabilities_at(heard, rate).T, strict=True)
    each = {f"{_OF_A_LEVEL}{level}": probability for level, probability in probabilities}
    return {"distance": np.sqrt(squared), **each, "predicted": labels}


def _compared(model: Model, table: PairTable) -> dict[str, Any]:
    import numpy as np

    from closefar.noise import with_flips

    left, right = (squared_distances(leg, model) for leg in table.legs)
    margin, metric = right - left, model.metric
    probability = with_flips(metric.noise.cdf(margin / model.comparison_noise), metric.compared_flip_rate)
    predicted = np.where(margin >= 0, 1, -1)
    columns = (np.sqrt(left), np.sqrt(right), margin, probability, predicted)
    return dict(zip(_OF_COMPARISONS, columns, strict=True))


def is_prediction(path: Path) -> bool:
    """Whether a table is a prediction, of whatever kind."""
    names = columns_of(path)
    for known in (_OF_PAIRS, _OF_COMPARISONS, ("distance",)):
        if len(names) > len(known) and tuple(names[-len(known) :]) == known:
            return True
    if "distance" not in names[1:] or names[-1] != "predicted":
        return False
    levels = names[names.index("distance") + 1 : -1]
    return len(levels) > 2 and all(name.startswith(_OF_A_LEVEL) for name in levels)


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
