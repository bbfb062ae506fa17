"""Pairs of ids, which refer to the rows of a table of points."""

from __future__ import annotations

from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.encoding import Encoding
from closefar.tables.errors import Place, TableError, listed, quoted
from closefar.tables.features import Features
from closefar.tables.pair_table import PairTable, TableRows, note_ignored
from closefar.tables.points import IdentifiedPoints, read_identified
from closefar.tables.sources import (
    Source,
    check_ids,
    find_group,
    find_label,
    find_pair_of_ids,
    find_weight,
    require_label,
)
from closefar.tables.table import TableFile, open_table

__all__ = ["read_id_pairs"]


def read_id_pairs(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a table of points and a table of pairs of their ids; each point is encoded once."""
    assert source.pairs is not None
    file = open_table(source.pairs)
    left, right, label, weight = _roles(file, source, labelled=labelled)
    group = find_group(file, source, labelled=labelled)
    texts = [name for name in (left, right, label if labelled else None, group) if name is not None]
    columns = file.read([*texts, *filter(None, [weight])], texts)
    for name, option in ((left, "left"), (right, "right")):
        check_ids(columns[name], name, file.path, option)
    rows = TableRows(file, columns, label if labelled else None, weight, group, "pairs")
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)

    ids = np.stack([columns[left], columns[right]], axis=1)
    data, found, encoding, point_notes = _encoded(source, features, ids, rows, (left, right))
    complete = np.all(found >= 0, axis=1)
    rows.leave_out(~complete, "a value")
    notes = [*point_notes, *note_ignored(file, [left, right, label, weight, source.weight, source.group])]
    return rows.table(data[found[complete]], ids, (left, right), encoding, notes)


def _encoded(
    source: Source, features: Features, ids: NDArray[np.object_], rows: TableRows, names: tuple[str, str]
) -> tuple[FloatArray, NDArray[np.int64], Encoding, tuple[str, ...]]:
    """The numbers of the points in pairs, and the rows of both sides of each pair among these.

    A row is -1 where the point lacks a value.
    """
    assert source.points is not None
    points = read_identified(source.points, source.id, features)
    positions = _positions(points, ids, rows, names)
    used = np.zeros(len(points.ids), dtype=bool)
    used[positions] = True
    data, where, encoding = points.encode_rows(used, features)
    return data, where[positions], encoding, points.notes


def _roles(file: TableFile, source: Source, *, labelled: bool) -> tuple[str, str, str | None, str | None]:
    """The columns of the two ids, of the label and of the weight."""
    label, weight = find_label(file, source, labelled=labelled), find_weight(file, source, labelled=labelled)
    left, right = find_pair_of_ids(file, source, label)
    if labelled and label is None:
        rest = [name for name in file.names if name not in (left, right, weight, source.group)]
        label = require_label(file, rest[0] if len(rest) == 1 else None)
    used = [name for name in (left, right, label if labelled else None, weight) if name is not None]
    if len(set(used)) < len(used):
        raise TableError(
            f"{file.path}: the two ids, the label and the weight must be in different columns; got {listed(used)}. "
            "Choose them with --left, --right, --label and --weight."
        )
    return left, right, label, weight


def _positions(
    points: IdentifiedPoints, ids: NDArray[np.object_], rows: TableRows, names: tuple[str, str]
) -> NDArray[np.int64]:
    """The rows among the points of both ids of each kept pair."""
    row_of_id = points.row_of_id()
    if all(name in row_of_id for name in names):
        raise TableError(
            f"{rows.path}: row 1 must name the columns; it has the ids {quoted(names[0])} and {quoted(names[1])}. "
            "Add a row of column names at the top."
        )
    flat = ids[rows.kept].reshape(-1)
    found = np.fromiter(map(row_of_id.get, flat, repeat(-1)), dtype=np.int64, count=len(flat))
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        pair, side = divmod(int(unknown[0]), 2)
        row = Place(rows.path).row(int(rows.kept[pair]))
        called = "numbered from 0" if points.id_name is None else f"in column {quoted(points.id_name)}"
        raise TableError(
            f"{rows.path}: {len(unknown):,} of {len(flat):,} ids are not among the points; the first is "
            f"{quoted(flat[unknown[0]])} in column {quoted(names[side])}, {row}. The ids of "
            f"{points.path} are {called}, such as {listed(points.ids[:3])}. Add the points, or choose the columns "
            "of ids with --id, --left and --right."
        )
    return found.reshape(-1, 2)
