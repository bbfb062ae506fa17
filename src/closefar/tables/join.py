"""Rows joined with the points that they are about: by ids, or side by side in one file; and with their judgements.

Ids are compared exactly. An id that several points have, or that none has, is refused with its row.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.errors import setting
from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import Place, TableError, counted, listed, quoted
from closefar.tables.files import TableFile, open_table
from closefar.tables.ids import Ids, are_among, as_id_column, check_ids, codes_of_ids, ids_of_pairs, row_numbers
from closefar.tables.pair_table import PairTable, TableRows
from closefar.tables.source import (
    ROW_NAMES,
    Roles,
    Source,
    Stacked,
    find_comparison_roles,
    find_id,
    find_id_roles,
    find_side_roles,
    find_single_roles,
    place_of_sides,
)
from closefar.tables.values import codes_of, distinct, is_number, texts_of

# ---------------------------------------------------------------------------------------------------------------------
# Points with ids, and where among them the ids of other rows are.


@dataclass(frozen=True, eq=False)
class IdentifiedPoints:
    """Points and their ids, as read."""

    place: Place
    id_name: str | None
    identity: Ids
    columns: dict[str, NDArray[Any]]
    notes: tuple[str, ...]
    are_judged: bool = False  # what judgements in a file of their own are about

    def positions(
        self, columns: list[Any], names: tuple[str, ...], place: Place, kept: NDArray[np.int64], remedy: str
    ) -> NDArray[np.int64]:
        """The rows among the points, (n, k), of the ids in k columns, in the rows that are kept."""
        own = self.identity.values
        own = as_id_column(own) if isinstance(own, np.ndarray) else own
        (codes, *places), different = codes_of_ids(own, *columns)
        self.refuse_repeated(codes)
        if place.first and are_among(names, own):  # only text files may lack names
            raise TableError(
                f"{place.path}: row {place.first - 1} must name the columns; it has the ids "
                f"{' and '.join(map(quoted, names))}. Add a row of column names at the top."
            )
        found = np.stack(places, axis=1)
        found = found if len(kept) == len(found) else found[kept]
        unknown = np.flatnonzero(found.ravel() >= len(codes))
        if not len(unknown):
            return found
        row, side = divmod(int(unknown[0]), len(names))
        name = texts_of(different.slice(int(found[row, side]), 1))[0]
        what = f"the rows of {self.place.path}" if self.are_judged else "the points"
        called = "numbered from 0" if self.id_name is None else f"in column {quoted(self.id_name)}"
        examples = self.identity.take(np.arange(min(3, len(codes)))).texts
        raise TableError(
            f"{place.path}: {len(unknown):,} of {found.size:,} ids are not among {what}; the first is "
            f"{quoted(name)} in column {quoted(names[side])}, {place.row(int(kept[row]))}. The ids of "
            f"{self.place.path} are {called}, such as {listed(examples)}. " + remedy
        )

    def refuse_repeated(self, codes: NDArray[np.int64]) -> None:
        """Refuse an id that several points have; the codes number ids in the order in which they appear."""
        counts = np.bincount(codes)
        if len(counts) == len(codes):
            return
        repeated = int(np.argmax(counts > 1))
        rows = np.flatnonzero(codes == repeated)
        name = self.identity.take(rows[:1]).texts[0]
        where = ", ".join(map(self.place.row, rows[:5].tolist()))
        other = "." if self.are_judged else ", or set " + setting("id") + " to another column."
        raise TableError(
            f"{self.place.path}: id column {quoted(self.id_name)} has {quoted(name)} {len(rows):,} times, in {where}"
            f"{' and so on' if len(rows) > 5 else ''}. Keep one row per id" + other
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
            "the model. Set " + setting("id") + " to the column of ids."
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


# ---------------------------------------------------------------------------------------------------------------------
# Judgements in a file of their own, with any number of them for a pair, as crowdsourcing platforms give them.


class JoinedFile:
    """A file with a row for each judgement: what the judgement has, and what the pair has that it is about.

    Parameters
    ----------
    pairs, judgements : TableFile
        They have a column in common that names the pairs, such as "task".
    """

    def __init__(self, pairs: TableFile, judgements: TableFile) -> None:
        self._pairs, self._judgements, self._key = pairs, judgements, _common(pairs, judgements)
        self.path = f"{judgements.path} joined with {pairs.path}"
        self.place = replace(judgements.place, path=self.path, first_row=judgements.place.first)
        self.first_column_may_be_ids = pairs.first_column_may_be_ids
        own = [name for name in judgements.names if name != self._key]
        self.names = [*(name for name in pairs.names if name not in own), *own]

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        found: dict[str, Any] = {}
        own = {name for name in only if name in self._judgements.names and name != self._key}
        for file, names in ((self._judgements, own), (self._pairs, set(only) - own)):
            if not names:
                continue
            texts, ids = ([name for name in chosen if name in names] for chosen in (as_text, as_ids))
            columns = file.read([name for name in only if name in names], texts, ids)
            if file is self._pairs:
                columns = {name: column.take(self._positions) for name, column in columns.items()}
            found |= columns
        return found

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        """The row of the pair that each judgement is about."""
        own, named = (file.read([self._key], (), [self._key])[self._key] for file in (self._pairs, self._judgements))
        for file, column in ((self._pairs, own), (self._judgements, named)):
            check_ids(column, self._key, file.place, None)
        rows = IdentifiedPoints(self._pairs.place, self._key, Ids(own, np.arange(len(own))), {}, (), are_judged=True)
        remedy, kept = "Add them there, or leave those judgements out.", np.arange(len(named))
        return rows.positions([named], (self._key,), self._judgements.place, kept, remedy)[:, 0]


def _common(pairs: TableFile, judgements: TableFile) -> str:
    """The column by which both files are joined."""
    shared = [name for name in judgements.names if name in pairs.names]
    usual = [name for name in shared if name.lower() in ROW_NAMES]
    if usual or len(shared) == 1:
        return (usual or shared)[0]
    raise TableError(
        f"{judgements.path} and {pairs.path} must have a column in common that names what was judged, such as 'task'; "
        f"got {listed(judgements.names)} and {listed(pairs.names)}. Give it the same name in both."
    )


def _open_judged(source: Source, path: str | os.PathLike[str], *, labelled: bool) -> TableFile:
    """Open a file of pairs, or of single points, with the judgements of another file where there is one."""
    file = open_table(path, source.na_values)
    if source.judgements is None or not labelled:
        return file
    return JoinedFile(file, open_table(source.judgements, source.na_values))


# ---------------------------------------------------------------------------------------------------------------------
# Single points, or pairs with both points side by side.


def read_rows(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a file whose rows hold single points, or both points of a pair, with one encoding for both sides."""
    path = source.points if source.pairs is None else source.pairs
    assert path is not None
    file = _open_judged(source, path, labelled=labelled)
    find_roles = find_single_roles if source.pairs is None else find_side_roles
    roles = find_roles(file, source, features, labelled=labelled)
    columns = file.read(roles.used, [*roles.own_texts, *roles.texts], roles.id_names)
    if roles.sides is not None:
        left, right = roles.sides
        differ = [stem for stem in roles.names if columns[left[stem]].dtype != columns[right[stem]].dtype]
        if differ:  # as written on both sides: 1.10 stays that on the side that has only numbers
            mixed = [side[stem] for stem in differ for side in (left, right)]
            columns |= file.read(mixed, mixed)
    noun = "points" if roles.sides is None else "pairs"
    rows = TableRows(file, columns, roles.label, roles.weight, roles.group, noun, annotator=roles.annotator)
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)
    values = rows.kept_of({name: columns[name] for name in roles.own})
    if roles.sides is None:
        data, lacking, encoding = roles.features.encode(values, file.place.at(rows.kept))
        index: NDArray[np.int64] = np.arange(len(data))
    else:
        place = place_of_sides(file.place, rows.kept, roles.sides)
        data, dropped, encoding = roles.features.encode(Stacked(values, roles.sides), place)
        lacking = np.logical_or(dropped[::2], dropped[1::2])
        if lacking.any():
            data = data[np.repeat(~lacking, 2)[~dropped]]
        index = np.arange(len(data)).reshape(-1, 2)
    rows.leave_out(lacking, "a value")
    identity = ids_of_pairs(file.place, columns, roles.id_names, rows.n_read).take(rows.kept)
    return rows.table(data, index, identity, roles.id_names or ("row",), encoding, roles.notes)


# ---------------------------------------------------------------------------------------------------------------------
# Rows of ids of points: pairs, triplets and quadruplets.


def read_id_pairs(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a table of points, and pairs or comparisons of their ids, or both; each point is encoded once."""
    tables = []
    if source.pairs is not None:
        file = _open_judged(source, source.pairs, labelled=labelled)
        tables.append(_read_ids(file, find_id_roles(file, source, labelled=labelled), features))
    if source.comparisons is not None:
        file = open_table(source.comparisons, source.na_values)
        tables.append(_read_ids(file, find_comparison_roles(file, source, labelled=labelled), features))
    first, *others = _join(read_identified(source, source.id, features), tables, features)
    return replace(first, comparisons=others[0]) if others else first


def _read_ids(file: TableFile, roles: Roles, features: Features) -> tuple[Roles, list[Any], TableRows]:
    """Read the id columns of pairs or comparisons, and what else is known of each row.

    The label of a comparison is "1" as given, where its first two points are nearer, and "-1" for the opposite answer.
    """
    are_pairs = len(roles.id_names) == 2
    columns = file.read(roles.used, roles.texts, roles.id_names)
    for name, option in zip(roles.id_names, ("left", "right") if are_pairs else ("compared",) * 4, strict=False):
        check_ids(columns[name], name, file.place, option)
    ids = [columns[name] for name in roles.id_names]
    noun, role = "pairs", "label"
    if not are_pairs:
        noun, role = "comparisons", "answer"
        _refuse_equal_sides(ids, roles.id_names, file.place)
        if roles.label is not None:
            columns[roles.label] = _signs(columns[roles.label], roles.label, ids, file.place)
    rows = TableRows(file, columns, roles.label, roles.weight, roles.group, noun, annotator=roles.annotator, role=role)
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)
    return roles, ids, rows


def _join(
    points: IdentifiedPoints, tables: list[tuple[Roles, list[Any], TableRows]], features: Features
) -> list[PairTable]:
    """Return each table with its points; those of all tables are encoded once."""
    of_pairs = setting("id") + ", " + setting("left") + " and " + setting("right") + " to the id columns."
    of_comparisons = setting("id") + " and " + setting("compared") + " to the id columns and " + setting("answer")
    positions, used = [], np.zeros(len(points.identity.index), dtype=bool)
    for roles, ids, rows in tables:
        other = of_pairs if len(ids) == 2 else of_comparisons + " to that of the answers."
        found = points.positions(ids, roles.id_names, rows.place, rows.kept, "Add the points, or set " + other)
        positions.append(found)
        used[found] = True
        if rows.known_ids is not None:  # encoded as on the page, which may ask about any of them
            used |= np.isin(points.identity.texts.astype(str), rows.known_ids.astype(str))
    data, where, encoding = points.encode_rows(used, features)
    joined = []
    for (roles, _, rows), places in zip(tables, positions, strict=True):
        found = where[places]
        if found.min() < 0:
            complete = np.all(found >= 0, axis=1)
            rows.leave_out(~complete, "a value")
            found, places = found[complete], places[complete]
        if rows.known_ids is not None and found.shape[1] > 2:  # recorded: nobody could choose what to ask about
            differ = _differ(data, found)
            rows.leave_out_same(~differ)
            found, places = found[differ], places[differ]
        identity, notes = Ids(points.identity.values, places), [*points.notes, *roles.notes]
        joined.append(rows.table(data, found, identity, roles.id_names, encoding, notes))
    return joined


def _differ(points: FloatArray, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which comparisons have two sides that differ; all, which a learner then refuses, if there is none."""
    from closefar.judgements import Tuples, rows_with_same_legs  # imports scikit-learn, which predictions do not need

    differ = np.ones(len(index), dtype=bool)
    differ[rows_with_same_legs(Tuples(points, index))] = False
    return differ if differ.any() else ~differ


def _refuse_equal_sides(ids: list[Any], names: tuple[str, ...], place: Place) -> None:
    """Refuse a comparison of a pair with itself, which has no answer."""
    codes, _ = codes_of_ids(*ids)
    if len(codes) == 3:
        equal = codes[1] == codes[2]
    else:
        left, right, other_left, other_right = codes
        equal = (left == other_left) & (right == other_right) | (left == other_right) & (right == other_left)
    wrong = np.flatnonzero(equal)
    if len(wrong):
        first = int(wrong[0])
        got = ", ".join(quoted(texts_of(column.slice(first, 1))[0]) for column in ids)
        raise TableError(
            f"{place.path}: the two sides of a comparison must be different pairs; {counted(len(wrong), 'row')} "
            f"{'has' if len(wrong) == 1 else 'have'} the same on both, the first is {place.row(first)} with {got} in "
            f"columns {listed(names)}. Correct or remove {'it' if len(wrong) == 1 else 'them'}."
        )


# What people write for "the first two points are nearer to each other", and for the opposite.
_WORDS = (("1", "-1"), ("left", "right"), ("first", "second"), ("true", "false"))
_TRIPLET_ANSWERS = (
    "1 (the first point is nearer to the second) and -1 (to the third), left and right, first and second, true and "
    "false, or the id of the nearer point"
)
_QUADRUPLET_ANSWERS = (
    "1 (the first two points are nearer to each other) and -1 (the last two), left and right, first and second, or "
    "true and false"
)


def _signs(answers: NDArray[np.object_], name: str, ids: list[Any], place: Place) -> NDArray[np.object_]:
    """The answers as "1" for the first two being nearer, and "-1" for the others; None where one is missing."""
    given = distinct(answers)
    plain = [f"{float(word):g}" if is_number(word) else word.lower() for word in given]
    codes = codes_of(answers, given)
    for words in _WORDS:
        if set(plain) <= set(words):
            return np.array([*("1" if word == words[0] else "-1" for word in plain), None], dtype=object)[codes]
    is_known = codes < 0
    if len(ids) == 3:
        near, far = (texts_of(column) == answers for column in ids[1:])
        is_known = is_known | near | far
        if is_known.all():
            return np.array(["-1", "1", None], dtype=object)[np.where(codes < 0, 2, near)]
    is_word = np.array([word in set().union(*_WORDS) for word in plain])[codes]
    wrong = ~is_known & ~is_word
    first = int(np.argmax(wrong))
    where = f"column {quoted(name)}, {place.row(first)}" if wrong.any() else f"column {quoted(name)}"
    remedy = "Translate the answers, or set " + setting("answer") + " to another column."
    raise TableError(
        f"{place.path}: answers must be {_TRIPLET_ANSWERS if len(ids) == 3 else _QUADRUPLET_ANSWERS}; got "
        f"{quoted(answers[first]) if wrong.any() else listed(given)} in {where}. " + remedy
    )
