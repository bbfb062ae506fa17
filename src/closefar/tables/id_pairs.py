"""Pairs of ids, which refer to the rows of a table of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import texts_of
from closefar.tables.errors import TableError, listed, quoted
from closefar.tables.features import Features
from closefar.tables.ids import Ids, are_among, as_id_column, check_ids, codes_of_ids
from closefar.tables.pair_table import PairTable, TableRows, note_ignored
from closefar.tables.points import IdentifiedPoints, read_identified
from closefar.tables.sources import (
    Source,
    find_group,
    find_label,
    find_pair_of_ids,
    find_weight,
    require_label,
)
from closefar.tables.table import TableFile, open_table

__all__ = ["find_id_roles", "read_id_pairs"]


def read_id_pairs(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a table of points and a table of pairs of their ids; each point is encoded once."""
    assert source.pairs is not None
    file = open_table(source.pairs, source.na_values)
    left, right, label, weight, group = find_id_roles(file, source, labelled=labelled)
    texts = [name for name in (label if labelled else None, group) if name is not None]
    columns = file.read([left, right, *texts, *filter(None, [weight])], texts, [left, right])
    for name, option in ((left, "left"), (right, "right")):
        check_ids(columns[name], name, file.place, option)
    rows = TableRows(file, columns, label if labelled else None, weight, group, "pairs")
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)

    points = read_identified(source, source.id, features)
    positions = _positions(points, (columns[left], columns[right]), rows, (left, right))
    used = np.zeros(len(points.identity.index), dtype=bool)
    used[positions] = True
    data, where, encoding = points.encode_rows(used, features)
    found = where[positions]
    if found.min() < 0:
        complete = np.all(found >= 0, axis=1)
        rows.leave_out(~complete, "a value")
        found, positions = found[complete], positions[complete]
    identity = Ids(points.identity.values, positions)
    notes = [*points.notes, *note_ignored(file, [left, right, label, weight, source.weight, source.group])]
    return rows.table(data, found, identity, (left, right), encoding, notes)


def find_id_roles(
    file: TableFile, source: Source, *, labelled: bool
) -> tuple[str, str, str | None, str | None, str | None]:
    """The columns of the two ids, of the label, of the weight and of the group."""
    label, weight = find_label(file, source, labelled=labelled), find_weight(file, source, labelled=labelled)
    left, right = find_pair_of_ids(file, source, label)
    if labelled and label is None:
        rest = [name for name in file.names if name not in (left, right, weight, source.group)]
        label = require_label(file, rest[0] if len(rest) == 1 else None)
    used = [name for name in (left, right, label if labelled else None, weight) if name is not None]
    if len(set(used)) < len(used):
        raise TableError(
            f"{file.path}: ids, label and weight must be in different columns; got {listed(used)}. "
            "Choose them with --left, --right, --label and --weight."
        )
    return left, right, label, weight, find_group(file, source, labelled=labelled)


def _positions(
    points: IdentifiedPoints, ids: tuple[Any, Any], rows: TableRows, names: tuple[str, str]
) -> NDArray[np.int64]:
    """The rows among the points of both ids of each kept pair."""
    own = points.identity.values
    own = as_id_column(own) if isinstance(own, np.ndarray) else own
    (codes, left, right), different = codes_of_ids(own, *ids)
    points.refuse_repeated(codes)
    if rows.place.first and are_among(names, own):  # only text files may lack names
        raise TableError(
            f"{rows.path}: row {rows.place.first - 1} must name the columns; it has the ids {quoted(names[0])} and "
            f"{quoted(names[1])}. Add a row of column names at the top."
        )
    found = np.stack([left, right], axis=1)
    found = found if len(rows.kept) == rows.n_read else found[rows.kept]
    unknown = np.flatnonzero(found.ravel() >= len(codes))
    if len(unknown):
        pair, side = divmod(int(unknown[0]), 2)
        name = texts_of(different.slice(int(found[pair, side]), 1))[0]
        called = "numbered from 0" if points.id_name is None else f"in column {quoted(points.id_name)}"
        examples = points.identity.take(np.arange(min(3, len(codes)))).texts
        raise TableError(
            f"{rows.path}: {len(unknown):,} of {found.size:,} ids are not among the points; the first is "
            f"{quoted(name)} in column {quoted(names[side])}, {rows.place.row(int(rows.kept[pair]))}. The ids of "
            f"{points.place.path} are {called}, such as {listed(examples)}. Add the points, "
            "or choose the id columns with --id, --left and --right."
        )
    return found
