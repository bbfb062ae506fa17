"""Tables of points: for pairs of their ids, to be mapped, or with a label each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.encoding import Encoding
from closefar.tables.errors import Place, TableError, quoted
from closefar.tables.features import Features, Roles
from closefar.tables.ids import Ids, check_ids, row_numbers
from closefar.tables.joined import open_judged
from closefar.tables.pair_table import PairTable, TableRows, note_left_out
from closefar.tables.sources import Source, find_annotator, find_group, find_id, find_label_and_weight, find_own_id
from closefar.tables.table import TableFile, open_table

_ROW = "row"  # what the column of row numbers is called where there are no ids


@dataclass(frozen=True, eq=False)
class PointTable:
    """Points to be mapped: numbers (n, d), ids (n,), the name of the id column, and notes on what was left out."""

    data: FloatArray
    identity: Ids
    id_name: str
    encoding: Encoding
    notes: tuple[str, ...]

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text."""
        return self.identity.texts

    def projected(self, directions: FloatArray) -> FloatArray:
        """Return the coordinate of each point along each direction, a column of `directions`."""
        return self.data @ directions


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
    source = source_or_path if isinstance(source_or_path, Source) else Source(points=source_or_path)
    if source.points is None:
        raise ValueError("a source of points to map must have a file of points; got none.")
    features = Features(encoding)
    points = read_identified(source, id or source.id, features, needs_ids=False)
    data, dropped, _ = features.encode(points.columns, points.place)
    notes = list(points.notes)
    if dropped.any():
        notes.append(note_left_out(dropped, "points", "a value"))
    return PointTable(data, points.identity.take(~dropped), points.id_name or _ROW, encoding, tuple(notes))


@dataclass(frozen=True, eq=False)
class IdentifiedPoints:
    """Points and their ids, as read."""

    place: Place
    id_name: str | None
    identity: Ids
    columns: dict[str, NDArray[Any]]
    notes: tuple[str, ...]

    def refuse_repeated(self, codes: NDArray[np.int64]) -> None:
        """Refuse an id that several points have; the codes number ids in the order in which they appear."""
        counts = np.bincount(codes)
        if len(counts) == len(codes):
            return
        repeated = int(np.argmax(counts > 1))
        rows = np.flatnonzero(codes == repeated)
        name = self.identity.take(rows[:1]).texts[0]
        where = ", ".join(map(self.place.row, rows[:5].tolist()))
        raise TableError(
            f"{self.place.path}: id column {quoted(self.id_name)} has {quoted(name)} {len(rows):,} times, in {where}"
            f"{' and so on' if len(rows) > 5 else ''}. Keep one row per id, or choose another column with --id."
        )

    def encode_rows(
        self, used: NDArray[np.bool_], features: Features
    ) -> tuple[FloatArray, NDArray[np.int64], Encoding]:
        """The numbers of the used points, and for each point its row among these: -1 where it lacks a value."""
        columns, place = self.columns, self.place
        if not used.all():
            kept = np.flatnonzero(used)
            columns = {name: columns.pop(name).take(kept) for name in list(columns)}  # one at a time, for memory's sake
            place = place.at(kept)
        data, dropped, encoding = features.encode(columns, place)
        where = np.full(len(used), -1)
        where[np.flatnonzero(used)[~dropped]] = np.arange(len(data))
        return data, where, encoding


def read_identified(source: Source, id: str | None, features: Features, *, needs_ids: bool = True) -> IdentifiedPoints:
    """Read points and their ids, which are row numbers where there are none and they are not needed."""
    assert source.points is not None
    file = open_table(source.points, source.na_values)
    id_name = find_id(file, id, features.needed)
    if id_name is None and file.first_column_may_be_ids and needs_ids:
        raise TableError(
            f"{file.path} has no column called 'id', and its first column, {quoted(file.names[0])}, is a feature of "
            "the model. Name the column of ids with --id."
        )
    names = features.names_among(file.names, {"id": id_name}, file.place)
    if id_name is None:
        columns = file.read(names, features.text_names)
        return IdentifiedPoints(file.place, None, row_numbers(file.place, len(columns[names[0]])), columns, ())
    columns = file.read([*names, id_name], features.text_names, [id_name])
    ids = columns.pop(id_name)
    check_ids(ids, id_name, file.place, "id")
    is_guess = id is None and id_name.lower() != "id"
    notes = (f"The ids of {file.path} are taken from its first column, {quoted(id_name)}.",) if is_guess else ()
    return IdentifiedPoints(file.place, id_name, Ids(ids, np.arange(len(ids))), columns, notes)


def find_single_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """Which columns of a file of single points mean what."""
    label, weight = find_label_and_weight(file, source, labelled=labelled)
    id_name = find_own_id(file, source.id)
    group = find_group(file, source, labelled=labelled)
    features_named = (*(features.columns or ()), *(features.needed or ()))  # are no annotators
    annotator = find_annotator(
        file, source, labelled=labelled, others=(label, weight, group, source.group, id_name, *features_named)
    )
    roles = {"label": label, "weight": weight, "group": source.group, "annotator": annotator, "id": id_name}
    if not labelled and features.needed is not None:
        roles = {"id": id_name}  # a feature of the model may be called "label"
    names = features.names_among(file.names, roles, file.place)
    own_ids = () if id_name is None else (id_name,)
    annotator = annotator if labelled else None
    return Roles(features, names, None, label if labelled else None, weight, group, own_ids, annotator=annotator)


def read_single(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read single points with a label each."""
    assert source.points is not None
    file = open_judged(source, source.points, labelled=labelled)
    roles = find_single_roles(file, source, features, labelled=labelled)
    columns = file.read(roles.used, [*roles.own_texts, *roles.texts], roles.id_names)
    rows = TableRows(file, columns, roles.label, roles.weight, roles.group, "points", annotator=roles.annotator)
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)
    values = rows.kept_of({name: columns[name] for name in roles.names})
    data, dropped, encoding = features.encode(values, file.place.at(rows.kept))
    rows.leave_out(dropped, "a value")
    identity = row_numbers(file.place, rows.n_read)
    for id_name in roles.id_names:
        check_ids(columns[id_name], id_name, file.place, "id")
        identity = Ids(columns[id_name], np.arange(rows.n_read))
    index = np.arange(len(data))
    return rows.table(data, index, identity.take(rows.kept), roles.id_names or (_ROW,), encoding, ())
