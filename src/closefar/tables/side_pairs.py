"""Pairs with the columns of both sides side by side in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.encoding import chosen_names
from closefar.tables.errors import Place, TableError, listed, refuse_unknown
from closefar.tables.features import Features, Roles
from closefar.tables.ids import Ids, check_ids, codes_of_ids, row_numbers
from closefar.tables.joined import open_judged
from closefar.tables.pair_table import PairTable, TableRows, note_ignored
from closefar.tables.sides import Sides, Stacked, find_sides
from closefar.tables.sources import (
    Source,
    find_annotator,
    find_annotator_like,
    find_group,
    find_label_and_weight,
    find_own_id,
)
from closefar.tables.table import TableFile


def find_side_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """Which columns of a file of pairs, with both points side by side, mean what."""
    label, weight = find_label_and_weight(file, source, labelled=labelled)
    group = find_group(file, source, labelled=labelled)
    others = (label, weight, group, source.weight, source.group, source.id, source.left, source.right)
    annotator = find_annotator(file, source, labelled=labelled, others=others)
    taken = {*others, find_annotator_like(file, source)}
    sides = find_sides([name for name in file.names if name not in taken], source.sides, features.needed, file.path)
    id_names = _id_names(file, source, sides, features.needed)
    features, stems = _side_features(file, sides, features, id_names)
    left, right = ({stem: side[stem] for stem in stems} for side in (sides.left, sides.right))
    roles = Roles(features, stems, (left, right), label if labelled else None, weight, group, id_names)
    roles = replace(roles, annotator=annotator if labelled else None)
    stems_of = sides.stems
    unwanted = [name for name in file.names if stems_of.get(name, name) in features.drop]
    return replace(roles, notes=tuple(note_ignored(file, [*roles.used, *taken, *unwanted])))


def read_side_pairs(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read pairs of points, one encoding for both sides."""
    assert source.pairs is not None
    file = open_judged(source, source.pairs, labelled=labelled)
    roles = find_side_roles(file, source, features, labelled=labelled)
    assert roles.sides is not None
    left, right = roles.sides
    columns = file.read(roles.used, [*roles.own_texts, *roles.texts], roles.id_names)
    differ = [stem for stem in roles.names if columns[left[stem]].dtype != columns[right[stem]].dtype]
    if differ:  # as written on both sides: 1.10 stays that on the side that has only numbers
        mixed = [side[stem] for stem in differ for side in (left, right)]
        columns |= file.read(mixed, mixed)
    rows = TableRows(file, columns, roles.label, roles.weight, roles.group, "pairs", annotator=roles.annotator)
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)

    stacked = Stacked(rows.kept_of({name: columns[name] for name in roles.own}), (left, right))
    data, dropped, encoding = roles.features.encode(stacked, place_of_sides(file.place, rows.kept, (left, right)))
    lacking = np.logical_or(dropped[::2], dropped[1::2])
    if lacking.any():
        data = data[np.repeat(~lacking, 2)[~dropped]]
    rows.leave_out(lacking, "a value")
    identity = ids_of_pairs(file.place, columns, roles.id_names, rows.n_read).take(rows.kept)
    index = np.arange(len(data)).reshape(-1, 2)
    return rows.table(data, index, identity, roles.id_names or ("row",), encoding, roles.notes)


def place_of_sides(place: Place, kept: NDArray[np.int64], sides: tuple[Mapping[str, str], Mapping[str, str]]) -> Place:
    """Where the values of these rows are from, a left one and its right one in turn."""
    return replace(place, rows=(2 * kept[:, None] + np.arange(2)).reshape(-1), sides=sides)


def _id_names(file: TableFile, source: Source, sides: Sides, needed: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of ids: of both sides, or of the pairs as such, or none."""
    if source.left is not None and source.right is not None:
        refuse_unknown(file.path, [source.left, source.right], file.names, "which was given as an id column")
        return source.left, source.right
    stem = next((stem for stem in sides.shared if stem.lower() == "id" and stem not in (needed or ())), None)
    if source.id is None and stem is not None:
        return sides.left[stem], sides.right[stem]
    own = find_own_id(file, source.id)
    return () if own is None else (own,)


def _side_features(
    file: TableFile, sides: Sides, features: Features, id_names: tuple[str, ...]
) -> tuple[Features, list[str]]:
    """What both sides have in common and is a feature; columns may be called by that, or by their own names."""
    refuse_unknown(file.path, features.drop, [*file.names, *sides.shared], "which --drop names")
    stems = sides.stems
    features = features.renamed(lambda name: stems.get(name, name))
    unused = {*features.drop, *(stems.get(name, name) for name in id_names)}
    found = [stem for stem in sides.shared if stem not in unused]
    if features.needed is not None:
        refuse_unknown(file.path, features.needed, found, "which the model was trained on, on both sides")
        return features, list(features.needed)
    alone = [name for name in sides.unmatched if stems[name] not in features.drop]
    if alone:
        raise TableError(
            f"{file.path}: both sides, {sides.marks[0]!r} and {sides.marks[1]!r}, must have the same columns; only one "
            f"side has {listed(alone)}. Leave them out with --drop, or give the prefixes or suffixes of the two sides "
            "with --sides."
        )
    return features, chosen_names(found, file.place, features.columns, (), features.text_names)


def ids_of_pairs(place: Place, columns: Mapping[str, Any], id_names: tuple[str, ...], n: int) -> Ids:
    """The ids of pairs: of both sides, or of the pairs as such, or row numbers."""
    for name, option in zip(id_names, ("left", "right") if len(id_names) == 2 else ("id",), strict=len(id_names) > 0):
        check_ids(columns[name], name, place, option)
    if not id_names:
        return row_numbers(place, n)
    codes, different = codes_of_ids(*(columns[name] for name in id_names))
    return Ids(different, codes[0] if len(codes) == 1 else np.stack(codes, axis=1))
