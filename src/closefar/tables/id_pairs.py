"""Pairs of ids, which refer to the rows of a table of points."""

from __future__ import annotations

from dataclasses import dataclass, replace

from closefar.tables.errors import TableError, listed
from closefar.tables.features import Features
from closefar.tables.id_comparisons import read_id_comparisons
from closefar.tables.id_tuples import IdTuples, join_points
from closefar.tables.ids import check_ids
from closefar.tables.joined import open_judged
from closefar.tables.pair_table import PairTable, TableRows, note_ignored
from closefar.tables.points import read_identified
from closefar.tables.sources import (
    Source,
    find_annotator,
    find_annotator_like,
    find_group,
    find_label,
    find_pair_of_ids,
    find_weight,
    require_label,
)
from closefar.tables.table import TableFile


@dataclass(frozen=True)
class IdRoles:
    """Which columns of a table of pairs of ids mean what; None where there is no such column, or none is wanted."""

    left: str
    right: str
    label: str | None
    weight: str | None
    group: str | None
    annotator: str | None

    @property
    def texts(self) -> list[str]:
        """The columns of labels, groups and annotators, which are read as they are written."""
        return [name for name in (self.label, self.group, self.annotator) if name is not None]


def read_id_pairs(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a table of points, and pairs or comparisons of their ids, or both; each point is encoded once."""
    tables = []
    if source.pairs is not None:
        tables.append(_read_pairs(source, labelled=labelled, drops_missing=features.drops_missing))
    if source.comparisons is not None:
        tables.append(read_id_comparisons(source, labelled=labelled, drops_missing=features.drops_missing))
    first, *others = join_points(read_identified(source, source.id, features), tables, features)
    return replace(first, comparisons=others[0]) if others else first


def _read_pairs(source: Source, *, labelled: bool, drops_missing: bool) -> IdTuples:
    assert source.pairs is not None
    file = open_judged(source, source.pairs, labelled=labelled)
    roles = find_id_roles(file, source, labelled=labelled)
    left, right = roles.left, roles.right
    columns = file.read([left, right, *roles.texts, *filter(None, [roles.weight])], roles.texts, [left, right])
    for name, option in ((left, "left"), (right, "right")):
        check_ids(columns[name], name, file.place, option)
    rows = TableRows(file, columns, roles.label, roles.weight, roles.group, "pairs", annotator=roles.annotator)
    rows.leave_out_unlabelled(drops_missing=drops_missing)
    known = find_label(file, source, labelled=labelled), find_annotator_like(file, source)
    notes = note_ignored(file, [left, right, roles.label, roles.weight, source.weight, source.group, *known])
    return IdTuples((left, right), (columns[left], columns[right]), rows, notes, "--id, --left and --right")


def find_id_roles(file: TableFile, source: Source, *, labelled: bool) -> IdRoles:
    """The columns of the two ids, and of what else is known of each pair."""
    label, weight = find_label(file, source, labelled=labelled), find_weight(file, source, labelled=labelled)
    left, right = find_pair_of_ids(file, source, label)
    group = find_group(file, source, labelled=labelled)
    if labelled and label is None:
        rest = [name for name in file.names if name not in (left, right, weight, source.group)]
        rest = [name for name in rest if name != find_annotator_like(file, source)]
        label = require_label(file, rest[0] if len(rest) == 1 else None)
    used = [name for name in (left, right, label if labelled else None, weight) if name is not None]
    if len(set(used)) < len(used):
        raise TableError(
            f"{file.path}: ids, label and weight must be in different columns; got {listed(used)}. "
            "Choose them with --left, --right, --label and --weight."
        )
    annotator = None
    if labelled:
        annotator = find_annotator(file, source, labelled=True, others=(left, right, label, weight, group))
    return IdRoles(left, right, label if labelled else None, weight, group, annotator)
