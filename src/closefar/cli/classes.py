"""``closefar classes``: from points with class labels to metrics, and to the labels that are probably wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from closefar.cli.apply import check_table
from closefar.cli.data import with_ids
from closefar.cli.options import Columns, Files, NaValues, number
from closefar.cli.session import Output, Replacing, Session, is_model, table_of, table_path
from closefar.errors import command_words
from closefar.plain import records

if TYPE_CHECKING:
    from closefar.learners import ClassMetricLearner
    from closefar.tables import Pairs

_COLUMNS = ("class", "probability_wrong", "probable_class")
_N_SHOWN = 10
_SHOWN = 0.5  # the smallest probability of being wrong that is shown


class Units(StrEnum):
    auto = "auto"
    columns = "columns"
    shared = "shared"


def classes(
    points: Annotated[Path, typer.Option(metavar="FILE", help="Table with one row per point; - is standard input.")],
    columns: Columns,
    output: Output,
    replacing: Replacing,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of class labels. Default: 'label' or 'labels'.")
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of point ids. Default: 'id', else row numbers.")
    ] = None,
    na_values: NaValues = None,
    wrong_share: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of wrong labels, or estimate; 0 trusts all labels.")
    ] = "estimate",
    units: Annotated[
        Units,
        typer.Option(help="Plain distance of neighbours: each column in its own unit, or all in one; auto tries both."),
    ] = Units.auto,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The model of pairs to write, for `closefar predict`.")
    ] = Path("model.closefar"),
    neighbours: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the metric of nearest neighbours, for `closefar transform`."),
    ] = None,
    suspicious: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write all labels, most suspicious first: .csv, .tsv, .parquet, .npz."),
    ] = None,
) -> None:
    """Learn from points with class labels, and find labels that are probably wrong.

    The model of pairs predicts whether two points are of one class (-1) or not (1).

    closefar classes --points points.csv --label species --neighbours neighbours.closefar
    """
    with Session("classes", output) as session:
        session.check_standard_output()
        files = Files(points=points, id=id, label=label, na_values=na_values, no_annotators=True)
        columns.check()
        share = number(wrong_share, float, "--wrong-share", "estimate")
        _check_outputs(session, out, neighbours, suspicious, replacing, files)
        table = _read(session, files, columns)
        learner = _fitted(session, table, share, units)
        from closefar.tables import write_table

        contents: dict[Path, Any] = {out: _pair_model(learner, table, files)}
        if neighbours is not None:
            contents[neighbours] = _neighbour_model(learner, table, files)
        if suspicious is not None:
            contents[suspicious] = lambda file: write_table(_rows(learner, table), table_path(suspicious), file)
        session.write_files(contents)
        session.unfinished = not learner.pair_learner_.certificate_.converged
        written = [str(path) for path in contents]
        session.show(_text(learner, table, written), {"written": written, **_facts(learner, table)})


def _check_outputs(
    session: Session, out: Path, neighbours: Path | None, suspicious: Path | None, replacing: Replacing, files: Files
) -> None:
    models = [out] if neighbours is None else [out, neighbours]
    if len({*models, suspicious}) < len(models) + 1:
        raise ValueError("--out, --neighbours and --suspicious must name different files.")
    replacing.check(dict.fromkeys(models, is_model), read=files.paths)
    if suspicious is not None:
        check_table(session, suspicious, table_of(*_COLUMNS), replacing, read=files.paths)


def _read(session: Session, files: Files, columns: Columns) -> Pairs:
    from closefar.tables import labels_of, read_pairs

    with session.stage("reading"):
        table = read_pairs(files.source(), labelled=True, **columns.encoding_options())
    session.warn(*table.notes)
    return table.with_labels(labels_of(table).astype(str))


def _fitted(session: Session, table: Pairs, share: Any, units: Units) -> ClassMetricLearner:
    from closefar.learners import ClassMetricLearner

    learner = ClassMetricLearner(wrong_share=share, units=units.value, verbose=int(session.is_watched))
    with session.stage("fitting", shows_itself=True):
        return learner.fit(table.data, table.labels, feature_names=table.encoding.feature_names)


def _pair_model(learner: ClassMetricLearner, table: Pairs, files: Files) -> bytes:
    from closefar.learners import Model

    return replace(Model.of(learner.pair_learner_, table, files.source()), is_single=False).to_bytes()


def _neighbour_model(learner: ClassMetricLearner, table: Pairs, files: Files) -> bytes:
    from closefar.learners import Model

    names = {"id": files.id, "na_values": [*files.source().na_values]}
    return Model(learner.neighbour_metric_, (), table.encoding, names, False, None).to_bytes()


def _rows(learner: ClassMetricLearner, table: Pairs, n_rows: int | None = None) -> Iterator[dict[str, Any]]:
    import numpy as np

    order = (-learner.wrong_probability_).argsort(kind="stable")[:n_rows]
    columns = (np.asarray(table.labels), learner.wrong_probability_, learner.corrected_classes_)
    return with_ids(table, dict(zip(_COLUMNS, columns, strict=True)), order)


def _text(learner: ClassMetricLearner, table: Pairs, written: list[str]) -> str:
    rows = records(next(_rows(learner, table, _N_SHOWN)))
    rows = [row for row in rows if row["probability_wrong"] > _SHOWN]
    shown = [" ".join(f"{name} {_cell(value)}" for name, value in row.items()) for row in rows]
    low, high = learner.wrong_share_interval_
    found = f"Wrong class labels: {learner.wrong_share_:.1%} of {len(table):,} (90 % interval {low:.1%} to {high:.1%})."
    if shown:
        found += " The most suspicious:"
    summary = command_words(learner.pair_learner_.summary())
    return "\n".join([summary, found, *shown, f"Wrote {' and '.join(written)}."])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _facts(learner: ClassMetricLearner, table: Pairs) -> dict[str, Any]:
    return {
        "n_points": len(table),
        "classes": learner.classes_,
        "feature_names": table.encoding.feature_names,
        "wrong_share": learner.wrong_share_,
        "wrong_share_interval": learner.wrong_share_interval_,
        "most_suspicious": records(next(_rows(learner, table, _N_SHOWN))),
        "threshold": learner.metric_.threshold,
        "rank": learner.metric_.rank,
        "neighbour_rank": learner.neighbour_metric_.rank,
    }
