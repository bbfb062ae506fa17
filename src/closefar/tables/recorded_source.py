"""Fitting to recorded judgements: to the points that were judged, and to their columns that are features."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from closefar.tables.encoding import Features
from closefar.tables.errors import TableError
from closefar.tables.files import open_table
from closefar.tables.inputs import Input
from closefar.tables.recorded_file import RecordedFile
from closefar.tables.recorded_format import is_recorded
from closefar.tables.recorded_points import fingerprint_columns, point_differences, read_raw_points
from closefar.tables.source import Source


def recorded_task(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What was asked in a file of judgements, its kind and answers; None if the file is another or can't be read."""
    if Input(path).is_stream or not is_recorded(path):
        return None
    try:
        file = open_table(path)
    except TableError:
        return None
    return dict(file.about["task"]) if isinstance(file, RecordedFile) else None


def as_recorded(source: Source, features: Features) -> tuple[Source, Features]:
    """Take what is not given from a file of recorded judgements, if there is one, and check its points."""
    for path in (source.pairs, source.comparisons):
        if path is None or Input(path).is_stream or not is_recorded(path):
            continue
        file = open_table(path)
        assert isinstance(file, RecordedFile)
        if source.points is None:
            raise TableError(
                f"{file.path} has ids of points, not their columns. Add --points, the table that they are in."
            )
        options = file.about["options"]
        source = replace(
            source, id=source.id or file.about["id"], na_values=source.na_values or tuple(options.get("na_values", ()))
        )
        _check_points(file, source)
        features = _with_recorded(features, file.about["features"], options)
    return source, features


def _check_points(file: RecordedFile, source: Source) -> None:
    """Refuse points that differ from those that were judged; others, and in another order, do no harm."""
    assert source.points is not None
    points = read_raw_points(source.points, id=source.id, na_values=source.na_values)
    known, own_ids = dict(file.about["fingerprint"]), file.ids.tolist()
    for name in file.about["shown"]:
        if name not in points.columns:
            del known[name]  # what was only shown is not needed any more
    rows = {id: row for row, id in enumerate(points.ids.tolist())}
    found = [id for id in own_ids if id in rows]
    columns = {name: points.columns[name][[rows[id] for id in found]] for name in known if name in points.columns}
    differences = point_differences(own_ids, known, found, fingerprint_columns(columns))
    if differences:
        raise TableError(
            f"{points.place.path} is not the table that was judged in {file.path}: {'; '.join(differences)}. Give that "
            "table, or fit to --pairs or --comparisons that `closefar export-judgements` writes."
        )


def _with_recorded(features: Features, names: list[str], options: Mapping[str, Any]) -> Features:
    """The features that were judged by, where no others are given."""
    if features.encoding is not None:
        return features
    columns = names if features.columns is None else features.columns
    used = {name for name in columns if name not in features.drop}
    described = {*features.categorical, *(features.ordinal or ())}
    missing = None if features.missing == "refuse" else features.missing
    unseen = None if features.unseen == "refuse" else features.unseen
    return replace(
        features,
        columns=columns,
        categorical=[
            *features.categorical,
            *(name for name in options.get("categorical", ()) if name in used - described),
        ],
        ordinal={
            **{name: order for name, order in options.get("ordinal", {}).items() if name in used - described},
            **(features.ordinal or {}),
        },
        missing=missing or options.get("missing"),
        unseen=unseen or options.get("unseen"),
    )
