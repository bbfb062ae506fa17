"""Tables of points: for pairs of their ids, to be mapped, or with a label each."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.encoding import Encoding
from closefar.tables.errors import Place, TableError, quoted
from closefar.tables.features import Features
from closefar.tables.pair_table import PairTable, TableRows, note_left_out
from closefar.tables.sources import (
    Source,
    check_ids,
    find_group,
    find_id,
    find_label_and_weight,
    find_own_id,
    row_numbers,
)
from closefar.tables.table import open_table

__all__ = ["IdentifiedPoints", "PointTable", "read_identified", "read_points", "read_single"]

_ROW = "row"  # what the column of row numbers is called where there are no ids


@dataclass(frozen=True, eq=False)
class PointTable:
    """Points to be mapped: numbers (n, d), ids (n,), what the ids are called, and notes on what was left out."""

    data: FloatArray
    ids: NDArray[np.object_]
    id_name: str
    encoding: Encoding
    notes: tuple[str, ...]


def read_points(
    source_or_path: Source | str | os.PathLike[str], *, id: str | None = None, encoding: Encoding
) -> PointTable:
    r"""Read points to be mapped by a model.

    Parameters
    ----------
    source_or_path : Source or path
    id : str, optional
        The column with the ids: by default as in `Source`, else the row number as in the file.
    encoding : Encoding
        That of the model.

    Returns
    -------
    PointTable

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from closefar.tables import Encoding, read_points
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("id,age,mass\n007,31,80\n008,44,60\n")
    ...     table = read_points(path, encoding=Encoding.of_numbers(["mass", "age"]))
    >>> table.ids.tolist(), table.data.tolist()
    (['007', '008'], [[80.0, 31.0], [60.0, 44.0]])
    """
    source = source_or_path if isinstance(source_or_path, Source) else Source(points=Path(source_or_path))
    if source.points is None:
        raise ValueError("a source of points to map must have a file of points; got none.")
    features = Features(encoding)
    points = read_identified(source.points, id or source.id, features, needs_ids=False)
    data, dropped, _ = features.encode(points.columns, Place(points.path))
    notes = list(points.notes)
    if dropped.any():
        notes.append(note_left_out(dropped, "points", "a value"))
    return PointTable(data, points.ids[~dropped], points.id_name or _ROW, encoding, tuple(notes))


@dataclass(frozen=True, eq=False)
class IdentifiedPoints:
    """Points and their ids, as read."""

    path: str
    id_name: str | None
    ids: NDArray[np.object_]
    columns: dict[str, NDArray[Any]]
    notes: tuple[str, ...]

    def row_of_id(self) -> dict[str, int]:
        """The row of each id, which must all be different."""
        rows = dict(zip(self.ids, range(len(self.ids)), strict=True))
        if len(rows) < len(self.ids):
            counts = Counter(self.ids)
            name = next(name for name in self.ids if counts[name] > 1)
            where = ", ".join(map(Place(self.path).row, np.flatnonzero(self.ids == name)[:5].tolist()))
            raise TableError(
                f"{self.path}: id column {quoted(self.id_name)} has {quoted(name)} {counts[name]:,} times, in {where}"
                f"{' and so on' if counts[name] > 5 else ''}. Keep one row an id, or choose another column with --id."
            )
        return rows

    def encode_rows(
        self, used: NDArray[np.bool_], features: Features
    ) -> tuple[FloatArray, NDArray[np.int64], Encoding]:
        """The numbers of the used points, and for each point its row among these: -1 where it lacks a value."""
        columns, place = self.columns, Place(self.path)
        if not used.all():
            columns = {name: column[used] for name, column in columns.items()}
            place = place.at(used)
        data, dropped, encoding = features.encode(columns, place)
        where = np.full(len(used), -1)
        where[np.flatnonzero(used)[~dropped]] = np.arange(len(data))
        return data, where, encoding


def read_identified(
    path: str | os.PathLike[str], id: str | None, features: Features, *, needs_ids: bool = True
) -> IdentifiedPoints:
    """Read points and their ids, which are row numbers where there are none and they are not needed."""
    file = open_table(path)
    id_name = find_id(file, id, features.needed)
    if id_name is None and file.first_column_may_be_ids and needs_ids:
        raise TableError(
            f"{file.path} has no column called 'id', and its first one, {quoted(file.names[0])}, is a feature of the "
            "model. Say which column holds the ids with --id."
        )
    names = features.names_among(file.names, {"id": id_name}, Place(file.path))
    if id_name is None:
        columns = file.read(names, features.text_names)
        return IdentifiedPoints(file.path, None, row_numbers(file.path, len(columns[names[0]])), columns, ())
    columns = file.read([*names, id_name], [*features.text_names, id_name])
    ids = columns.pop(id_name)
    check_ids(ids, id_name, file.path, "id")
    is_guess = id is None and id_name.lower() != "id"
    notes = (f"The ids of {file.path} are taken from its first column, {quoted(id_name)}.",) if is_guess else ()
    return IdentifiedPoints(file.path, id_name, ids, columns, notes)


def read_single(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read single points with a label each."""
    assert source.points is not None
    file = open_table(source.points)
    label, weight = find_label_and_weight(file, source, labelled=labelled)
    id_name = find_own_id(file, source.id)
    group = find_group(file, source, labelled=labelled)
    roles = {"label": label, "weight": weight, "group": source.group, "id": id_name}
    if not labelled and features.needed is not None:
        roles = {"id": id_name}  # a feature of the model may be called "label"
    names = features.names_among(file.names, roles, Place(file.path))
    texts = [name for name in (label if labelled else None, group, id_name) if name is not None]
    columns = file.read([*names, *texts, *filter(None, [weight])], [*features.text_names, *texts])
    rows = TableRows(file, columns, label if labelled else None, weight, group, "points")
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)
    values = rows.kept_of({name: columns[name] for name in names})
    data, dropped, encoding = features.encode(values, Place(file.path).at(rows.kept))
    rows.leave_out(dropped, "a value")
    ids = row_numbers(file.path, rows.n_read) if id_name is None else columns[id_name]
    check_ids(ids, id_name or _ROW, file.path, "id")
    return rows.table(data, ids, (id_name or _ROW,), encoding, ())
