"""From files to pairs, comparisons and points in memory: ids joined exactly, or both points side by side in a row.

Ids are compared exactly. An id that several points have, or that none has, is refused with its row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import LEGS, FloatArray
from closefar.errors import either, joined, setting
from closefar.tables.encoding import Category, Encoding, Features
from closefar.tables.errors import EmptyTableError, Place, TableError, counted, listed, note_left_out, quote
from closefar.tables.files import RecordedFile
from closefar.tables.recorded import fingerprint_columns, is_recorded, point_differences
from closefar.tables.source import (
    ROW_NAMES,
    Roles,
    Source,
    find_comparison_roles,
    find_id,
    find_id_roles,
    find_row_roles,
)
from closefar.tables.values import (
    Ids,
    TableFile,
    are_missing,
    check_ids,
    codes_of_ids,
    distinct,
    id_texts,
    in_arrow,
    is_number,
    numbers_of_ids,
    pa,
    pc,
    release_memory,
    string_array,
    text_codes,
    to_text,
)

if TYPE_CHECKING:
    from closefar.judgements import Tuples

_ROWS_PER_BLOCK = 1 << 16  # of predictions: with 100 columns, both points take 100 MB
MOST_INT32 = np.iinfo(np.int32).max  # points that four bytes can number
_NO_ANNOTATORS = either("annotator=False", "--no-annotators")


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs, comparisons or single points, as the learner takes them.

    Parameters
    ----------
    points : array of shape (n_points, d)
        Each point once, where pairs refer to points by id.
    index : array of int, of shape (n, 2), (n, 3) or (n, 4) for comparisons, or (n,) for single points
        Which points each pair is of.
    labels : array of n texts, or None
        As in the file, without space around them; 1 is "1" also where a file of numbers has 1.0.  Those of
        comparisons are "1", as given, and "-1", reversed; None where the file has no answers.
    identity : Ids
        As for `ids`; its index numbers them.
    weights : array of n numbers, or None
    encoding : Encoding
        How the columns became numbers.
    notes : tuple of str
        Sentences about what was left out or ignored.
    id_names : tuple of str
        What the columns of `ids` are called.
    groups : array of n texts, or None
        Which pairs belong together.
    annotators : array of n texts, or None
        Who judged each pair.
    comparisons : PairTable, or None
        Comparisons of the same points, beside pairs.
    """

    points: FloatArray
    index: NDArray[np.int64]
    labels: NDArray[np.object_] | None
    identity: Ids
    weights: FloatArray | None
    encoding: Encoding
    notes: tuple[str, ...]
    id_names: tuple[str, ...]
    groups: NDArray[np.object_] | None = None
    annotators: NDArray[np.object_] | None = None
    comparisons: PairTable | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_single(self) -> bool:
        """Whether these are single points."""
        return self.index.ndim == 1

    @property
    def are_comparisons(self) -> bool:
        """Whether these are comparisons of three or four points each."""
        return self.index.ndim == 2 and self.index.shape[1] > 2

    @property
    def data(self) -> FloatArray | Tuples:
        """The single points, shape (n, d), the pairs, (n, 2, d), or the comparisons, (n, 3, d) or (n, 4, d).

        Pairs and comparisons are by index unless each point is in one of them.
        """
        if len(self.points) == self.index.size and np.array_equal(self.index.ravel(), np.arange(self.index.size)):
            return self.points.reshape(*self.index.shape, -1)
        from closefar.judgements import Tuples  # imports scikit-learn, which predictions do not need

        return Tuples(self.points, self.index)

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text: shape (n, 2) where both sides have an id, else (n,): ids, or row numbers as in the file."""
        return self.identity.texts

    @property
    def legs(self) -> tuple[PairTable, PairTable]:
        """The two pairs of each comparison."""
        near, far = (replace(self, index=self.index[:, leg]) for leg in LEGS[self.index.shape[1]])
        return near, far

    def projected(self, directions: FloatArray) -> FloatArray:
        """Return the coordinate of each single point along each direction, a column of `directions`."""
        return self.points[self.index] @ directions

    def with_labels(self, labels: NDArray[np.object_]) -> PairTable:
        """The same rows with other labels."""
        return replace(self, labels=labels)

    def point_blocks(self) -> Iterator[FloatArray]:
        """Give the single points, (m, d), or both points of each pair, (m, 2, d), some rows at a time."""
        for start in range(0, len(self), _ROWS_PER_BLOCK):
            yield self.points[self.index[start : start + _ROWS_PER_BLOCK]]


class TableRows:
    """The rows of the file with the labels: which of them are kept, with what is known of these.

    Parameters
    ----------
    file : TableFile
    roles : Roles
    columns : mapping of names to arrays
        What was read of it; labels as text or coded, ids as pyarrow has them.
    n_rows : int, optional
        How many rows there are, where no column may have been read.
    """

    def __init__(self, file: TableFile, roles: Roles, columns: Mapping[str, Any], n_rows: int | None = None) -> None:
        self.file, self.roles = file, roles
        self.n_read = len(next(iter(columns.values()))) if n_rows is None else n_rows
        self._ids = [columns[name] for name in roles.id_names if name in columns]
        self.kept: NDArray[np.int64] = np.arange(self.n_read)  # the rows of the file that are kept
        self.notes: tuple[str, ...] = ()  # sentences about what was left out
        labels = None if roles.label is None else columns[roles.label]
        weights = None if roles.weight is None else _checked_weights(columns[roles.weight], roles.weight, file.place)
        groups, annotators = self._without_gaps(columns, "group"), self._without_gaps(columns, "annotator")
        n_annotators = 0 if annotators is None else len(set(annotators.tolist()))
        if n_annotators > 1:
            found = f"{counted(n_annotators, 'annotator')} found in column {quote(roles.annotator)} of {file.path}"
            self.notes = (found + "; " + _NO_ANNOTATORS + " pools them.",)
        else:  # one is compared with nobody
            annotators = None
        self.known: dict[str, Any] = {"labels": labels, "weights": weights, "groups": groups, "annotators": annotators}
        if labels is not None:
            self._leave_out_unlabelled(labels.codes < 0 if hasattr(labels, "codes") else are_missing(labels))

    def _without_gaps(self, columns: Mapping[str, Any], role: str) -> Any:
        name = getattr(self.roles, role)
        if name is None:
            return None
        other = ", or leave annotators out with " + _NO_ANNOTATORS if role == "annotator" else ""
        remedy = ", or set " + setting(role) + " to another column" + other + "."
        self.file.place.refuse_missing(role, name, are_missing(columns[name]), remedy)
        return columns[name]

    def _leave_out_unlabelled(self, lacking: NDArray[np.bool_]) -> None:
        """Leave out rows without a label, or refuse them."""
        noun, role = self.roles.noun, "an answer" if self.roles.noun == "comparisons" else "a label"
        if not self.roles.features.drops_missing:
            remedy = f", or leave those {noun} out with " + setting(missing="drop") + "."
            self.file.place.refuse_missing(role.split()[1], str(self.roles.label), lacking, remedy)
        self.leave_out(lacking, role)

    @property
    def place(self) -> Place:
        """Where the kept rows are from."""
        return self.file.place.at(self.kept)

    @property
    def ids(self) -> list[Any]:
        """The columns of ids of the kept rows."""
        return list(map(self._of_kept, self._ids))

    def _of_kept(self, column: Any) -> Any:
        return column if len(self.kept) == self.n_read else column.take(self.kept)

    def leave_out(self, lacking: NDArray[np.bool_], what: str) -> None:
        """Leave out those of the kept rows that lack something."""
        if lacking.all():
            noun = self.roles.noun
            raise EmptyTableError(f"{self.file.path} has no {noun} left: each one lacks {what}. Fill some in.")
        self.leave_out_as(lacking, f"{'it lacks' if lacking.sum() == 1 else 'they lack'} {what}")

    def leave_out_as(self, which: NDArray[np.bool_], why: str) -> None:
        """Leave out some of the kept rows, and say why."""
        if which.any():
            self.notes += (note_left_out(int(which.sum()), len(which), self.roles.noun, why),)
            self.kept = self.kept[~which]
            self.known = {name: None if values is None else values[~which] for name, values in self.known.items()}

    def stacked(self, read: Callable[[str], Any]) -> tuple[Mapping[str, NDArray[Any]], Place]:
        """The columns of the points in the kept rows, and their place; `read` gives a column of the file."""
        return self.roles.stacked(lambda name: self._of_kept(read(name)), self.file.place, self.kept)

    def learn(self, read: Callable[[str], Any]) -> Encoding:
        """The encoding, learned unless it is known; rows that lack a value are left out if they are to be."""
        columns, place = self.stacked(read)
        encoding = self.roles.features.learned(columns, place)
        if encoding.missing == "drop":
            n_points = 1 if self.roles.sides is None else 2
            dropped = encoding.find_dropped(columns, place=place).reshape(-1, n_points)
            self.leave_out(np.logical_or.reduce(dropped, axis=1), "a value")
        return encoding

    def table(
        self, points: FloatArray, index: NDArray[np.int64], identity: Ids, encoding: Encoding, notes: Sequence[str]
    ) -> PairTable:
        """The pairs: `index` and `identity` of the kept rows."""
        return PairTable(
            points=points,
            index=index,
            identity=identity,
            encoding=encoding,
            notes=(*self.notes, *notes),
            id_names=self.roles.id_names or ("row",),
            **self.known,
        )


def _checked_weights(column: NDArray[Any], name: str, place: Place) -> FloatArray:
    """The weights, each a finite number >= 0."""
    weights = column
    if column.dtype.kind != "f":
        weights = np.array([float(text) if text and is_number(text) else np.nan for text in to_text(column)])
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        first = int(bad[0])
        raise TableError(
            f"{place.path}: weight column {quote(name)} must hold finite numbers >= 0; got {quote(column[first])} in "
            f"{place.row(first)}. Correct it, or set " + setting("weight") + " to another column."
        )
    return weights


def notes_of(encoding: Encoding) -> tuple[str, ...]:
    """A sentence on columns of one category, if there are any."""
    constant = [column.name for column in encoding.columns if isinstance(column, Category) and not column.shares]
    return (f"These columns have a single category, so they give no feature: {listed(constant)}.",) if constant else ()


# ---------------------------------------------------------------------------------------------------------------------
# Points as they are in their file, and where among them the ids of other rows are.


@dataclass(frozen=True, eq=False)
class RawPoints:
    """Points as they are in their file: ids, and columns of the kinds of `Table`.

    `are_judged` says that they are not points, but what judgements in a file of their own are about.
    """

    place: Place
    id_name: str | None
    identity: Ids
    columns: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    are_judged: bool = False

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text."""
        return self.identity.texts

    def positions(self, columns: list[Any], names: tuple[str, ...], place: Place, remedy: str) -> NDArray[Any]:
        """The rows among the points, (n, k), of the ids in k columns."""
        found = self._places_of_numbers(columns)
        if found is None:
            (codes, *places), _ = codes_of_ids(self.identity.values, *columns)
            self.refuse_repeated(codes)
            if place.first_row and self._are_ids(names):  # only text files may lack names
                raise TableError(
                    f"{place.path}: row {place.first_row - 1} must name the columns; it has the ids "
                    f"{' and '.join(map(quote, names))}. Add a row of column names at the top."
                )
            found = np.stack(places, axis=1)
        n_points = len(self.identity.index)
        unknown = np.flatnonzero(found.ravel() >= n_points)
        if not len(unknown):
            return found
        row, side = divmod(int(unknown[0]), len(names))
        name = id_texts(columns[side].take(np.array([row])))[0]
        what = f"the rows of {self.place.path}" if self.are_judged else "the points"
        called = "numbered from 0" if self.id_name is None else f"in column {quote(self.id_name)}"
        examples = self.identity.take(slice(3)).texts
        raise TableError(
            f"{place.path}: {len(unknown):,} of {found.size:,} ids are not among {what}; the first is "
            f"{quote(name)} in column {quote(names[side])}, {place.row(row)}. The ids of "
            f"{self.place.path} are {called}, such as {listed(examples)}. " + remedy
        )

    def _are_ids(self, names: tuple[str, ...]) -> bool:
        own = in_arrow(self.identity.values).cast(pa.string()).combine_chunks()
        return bool(pc.all(pc.is_in(string_array(names), value_set=own)).as_py())

    def _places_of_numbers(self, columns: list[Any]) -> NDArray[Any] | None:
        """The places among row numbers of ids that are integers, of which only the range is checked; else None."""
        n, numbers = len(self.identity.values), [numbers_of_ids(column) for column in columns]
        if self.id_name is not None or any(column is None for column in numbers):
            return None
        first = self.place.first_row
        places = np.empty((len(columns[0]), len(columns)), dtype=np.int32 if n <= MOST_INT32 else np.int64)
        for side, column in enumerate(numbers):
            np.subtract(column, first, out=places[:, side], dtype=np.int64, casting="unsafe")
            places[(column < first) | (column >= first + n), side] = n
        return places

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
            f"{self.place.path}: id column {quote(self.id_name)} has {quote(name)} {len(rows):,} times, in {where}"
            f"{' and so on' if len(rows) > 5 else ''}. Keep one row per id" + other
        )


def numbered_points(n: int) -> RawPoints:
    """Points in memory, whose ids are their row numbers."""
    place = Place("points", first_row=0)
    return RawPoints(place, None, Ids.of_rows(place, n), {})


def read_raw_points(
    path: str | os.PathLike[str],
    *,
    id: str | None = None,
    as_text: Collection[str] = (),
    na_values: Collection[str] = (),
    decimal: str | None = None,
) -> RawPoints:
    """Read a table of points and their ids, each once, or row numbers; columns `as_text` stay as written."""
    source = Source(points=path, id=id, na_values=tuple(na_values), decimal=decimal)
    points = _read_raw(source, Features(categorical=as_text))
    if points.id_name is not None:
        points.refuse_repeated(codes_of_ids(points.identity.values)[0][0])
    return points


def _read_raw(source: Source, features: Features) -> RawPoints:
    """Read the features of points and their ids, which are row numbers in arrays without any."""
    assert source.points is not None
    file = source.open(source.points)
    id_name, notes = find_id(file, source.id, features.needed)
    if id_name is None and file.first_column_may_be_ids:
        raise TableError(
            f"{file.path} has no column called 'id', and its first column, {quote(file.names[0])}, is a feature of "
            "the model. Set " + setting("id") + " to the column of ids."
        )
    names = features.names_among(file.names, {"id": id_name}, file.place)
    if id_name is None:
        columns = file.read(names, features.text_names)
        return RawPoints(file.place, None, Ids.of_rows(file.place, len(columns[names[0]])), columns)
    columns = file.read([*names, id_name], features.text_names, [id_name])
    ids = columns.pop(id_name)
    check_ids(ids, id_name, file.place, "id")
    return RawPoints(file.place, id_name, Ids(ids, np.arange(len(ids))), columns, notes)


# ---------------------------------------------------------------------------------------------------------------------
# Judgements in a file of their own, with any number of them for a pair, as crowdsourcing platforms give them.


class _JoinedFile(TableFile):
    """A file with a row for each judgement: what the judgement has, and what the pair has that it is about.

    Parameters
    ----------
    pairs, judgements : TableFile
        They have a column in common that names the pairs, such as "task".
    """

    def __init__(self, pairs: TableFile, judgements: TableFile) -> None:
        super().__init__(
            replace(judgements.place, path=f"{judgements.path} joined with {pairs.path}"), judgements.missing
        )
        shared = [name for name in judgements.names if name in pairs.names]
        usual = [name for name in shared if name.lower() in ROW_NAMES]
        if not usual and len(shared) != 1:
            raise TableError(
                f"{judgements.path} and {pairs.path} must have a column in common that names what was judged, such as "
                f"'task'; got {listed(judgements.names)} and {listed(pairs.names)}. Give it the same name in both."
            )
        self._pairs, self._judgements, self._key = pairs, judgements, (usual or shared)[0]
        self.first_column_may_be_ids = pairs.first_column_may_be_ids
        own = [name for name in judgements.names if name != self._key]
        self.names = [*(name for name in pairs.names if name not in own), *own]

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        own = [name for name in only if name in self._judgements.names and name != self._key]
        columns = self._pairs.read([name for name in only if name not in own], as_text, as_ids)
        found = self._judgements.read(own, as_text, as_ids)
        return found | {name: column.take(self._positions) for name, column in columns.items()}

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        """The row of the pair that each judgement is about."""
        own, named = (file.read([self._key], (), [self._key])[self._key] for file in (self._pairs, self._judgements))
        for file, column in ((self._pairs, own), (self._judgements, named)):
            check_ids(column, self._key, file.place, None)
        rows = RawPoints(self._pairs.place, self._key, Ids(own, np.arange(len(own))), {}, are_judged=True)
        remedy = "Add them there, or leave those judgements out."
        return rows.positions([named], (self._key,), self._judgements.place, remedy)[:, 0]


def _open_judged(source: Source, *, labelled: bool) -> TableFile:
    """Open a file of pairs, or of single points, with the judgements of another file where there is one."""
    file = source.open(source.judged)
    return _JoinedFile(file, source.open(source.judgements)) if source.judgements is not None and labelled else file


# ---------------------------------------------------------------------------------------------------------------------
# Single points, or pairs with both points side by side.


def read_rows(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a file whose rows hold single points, or both points of a pair, with one encoding for both sides."""
    file = _open_judged(source, labelled=labelled)
    roles = find_row_roles(file, source, features, labelled=labelled)
    columns = file.read(roles.used, [*roles.own_texts, *roles.texts], roles.id_names)
    if roles.sides is not None:
        left, right = roles.sides
        differ = [stem for stem in roles.names if columns[left[stem]].dtype != columns[right[stem]].dtype]
        if differ:  # as written on both sides: 1.10 stays that on the side that has only numbers
            mixed = [side[stem] for stem in differ for side in (left, right)]
            columns |= file.read(mixed, mixed)
    rows = TableRows(file, roles, columns)
    encoding = rows.learn(columns.__getitem__)
    points, place = rows.stacked(columns.__getitem__)
    data, _ = encoding.apply(points, name=place)
    index = np.arange(len(data)).reshape(-1 if roles.sides is None else (-1, 2))
    identity = Ids.of_columns(file.place, columns, roles.id_names, rows.n_read).take(rows.kept)
    return rows.table(data, index, identity, encoding, [*roles.notes, *notes_of(encoding)])


# ---------------------------------------------------------------------------------------------------------------------
# Rows of ids of points: pairs, triplets and quadruplets.


def read_id_pairs(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read a table of points, and pairs or comparisons of their ids, or both; each point is encoded once."""
    tables = []
    if source.pairs is not None:
        file = _open_judged(source, labelled=labelled)
        tables.append(read_ids(file, find_id_roles(file, source, features, labelled=labelled)))
    if source.comparisons is not None:
        file = source.open(source.comparisons)
        tables.append(read_ids(file, find_comparison_roles(file, source, features, labelled=labelled)))
    first, *others = _join(_read_raw(source, features), tables, features)
    return replace(first, comparisons=others[0]) if others else first


def read_ids(file: TableFile, roles: Roles) -> TableRows:
    """Read the id columns of pairs or comparisons, and what else is known of each row.

    The label of a comparison is "1" as given, where its first two points are nearer, and "-1" for the opposite answer.
    """
    columns = file.read(roles.used, roles.texts, roles.id_names)
    for name, option in zip(roles.id_names, roles.id_options, strict=True):
        check_ids(columns[name], name, file.place, option)
    if roles.label is not None and len(roles.id_names) > 2:
        ids = [columns[name] for name in roles.id_names]
        columns[roles.label] = _signs(columns[roles.label], roles.label, ids, file.place)
    return TableRows(file, roles, columns)


def find_positions(points: RawPoints, rows: TableRows) -> NDArray[np.int64]:
    """The rows among the points of the ids of rows that are kept."""
    options = [*([] if points.id_name is None else ["id"]), *dict.fromkeys(rows.roles.id_options)]
    *first, last = map(setting, options)
    settings = joined(first, ", ") + (" and " if first else "") + last
    remedy = "Add the points, or set " + settings + " to the id columns."
    return points.positions(rows.ids, rows.roles.id_names, rows.place, remedy)


def _join(points: RawPoints, tables: list[TableRows], features: Features) -> list[PairTable]:
    """Return each table with its points; those of all tables are encoded once."""
    positions = [find_positions(points, rows) for rows in tables]
    used = np.zeros(len(points.identity.index), dtype=bool)
    for rows, found in zip(tables, positions, strict=True):
        if len(rows.roles.id_names) > 2:
            _refuse_equal_sides(points, rows, found)
        used[found] = True
        if isinstance(rows.file, RecordedFile):  # encoded as on the page, which may ask about any of them
            used |= np.isin(points.ids.astype(str), rows.file.ids.astype(str))
    columns, place = points.columns, points.place
    if not used.all():
        numbers = np.flatnonzero(used)
        columns = {name: columns.pop(name).take(numbers) for name in list(columns)}  # one at a time, for memory's sake
        place = place.at(numbers)
    encoding = features.learned(columns, place)
    data, dropped = encoding.apply(columns, name=place)
    where = np.full(len(used), -1)  # the row of each point in the data
    where[np.flatnonzero(used)[~dropped]] = np.arange(len(data))
    found_tables = []
    for rows, places in zip(tables, positions, strict=True):
        found = where[places]
        if found.min() < 0:
            complete = np.all(found >= 0, axis=1)
            rows.leave_out(~complete, "a value")
            found, places = found[complete], places[complete]
        if isinstance(rows.file, RecordedFile) and found.shape[1] > 2:  # nobody could choose what to ask about
            differ = _leave_out_same(rows, data, found)
            found, places = found[differ], places[differ]
        notes = [*points.notes, *rows.roles.notes, *notes_of(encoding)]
        found_tables.append(rows.table(data, found, Ids(points.identity.values, places), encoding, notes))
    return found_tables


def _refuse_equal_sides(points: RawPoints, rows: TableRows, positions: NDArray[np.int64]) -> None:
    """Refuse a comparison of a pair with itself, which has no answer."""
    near, far = (np.sort(positions[:, leg], axis=1) for leg in LEGS[positions.shape[1]])
    wrong = np.flatnonzero(np.all(near == far, axis=1))
    if len(wrong):
        row, (are, it) = int(wrong[0]), ("row has", "it") if len(wrong) == 1 else ("rows have", "them")
        raise TableError(
            f"{rows.place.path}: the two sides of a comparison must be different pairs; {len(wrong):,} {are} the same "
            f"on both, the first is {rows.place.row(row)} with {listed(points.ids[positions[row]])} in "
            f"columns {listed(rows.roles.id_names)}. Correct or remove {it}."
        )


def _leave_out_same(rows: TableRows, points: FloatArray, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Leave out comparisons of two sides that do not differ, and return the others; all, if that is none."""
    from closefar.judgements import Tuples, rows_with_same_legs  # imports scikit-learn, which predictions do not need

    same = np.zeros(len(index), dtype=bool)
    same[rows_with_same_legs(Tuples(points, index))] = True
    same &= not same.all()  # a learner then refuses them
    why = "the two sides are the same in all columns, or differ by the same, so that no metric can tell which is nearer"
    rows.leave_out_as(same, why)
    return ~same


# What people write for "the first two points are nearer to each other", and for the opposite.
_WORDS = (("1", "-1"), ("left", "right"), ("first", "second"), ("true", "false"))


def _signs(answers: NDArray[np.object_], name: str, ids: list[Any], place: Place) -> NDArray[np.object_]:
    """The answers as "1" for the first two being nearer, and "-1" for the others; None where one is missing."""
    given = distinct(answers)
    plain = [f"{float(word):g}" if is_number(word) else word.lower() for word in given]
    codes = text_codes(answers, given)
    for words in _WORDS:
        if set(plain) <= set(words):
            return np.array([*("1" if word == words[0] else "-1" for word in plain), None], dtype=object)[codes]
    are_ids = len(ids) == 3
    near, far = (id_texts(column) == answers if are_ids else codes < 0 for column in ids[1:3])
    is_known = near | far | (codes < 0)
    if is_known.all():
        return np.array(["-1", "1", None], dtype=object)[np.where(codes < 0, 2, near)]
    one, other = "the first two points are nearer to each other", "the last two"
    if are_ids:
        one, other = "the first point is nearer to the second", "to the third"
    remedy = "Translate the answers, or set " + setting("answer") + " to another column."
    raise TableError(
        f"{place.path}: answers must be 1 ({one}) and -1 ({other}), left and right, first and second, true and false"
        f"{', or the id of the nearer point' if are_ids else ''}; got {listed(distinct(answers[~is_known]))} in column "
        f"{quote(name)}. " + remedy
    )


# ---------------------------------------------------------------------------------------------------------------------
# Judgements that `closefar label` recorded: of the points that were judged, by their columns that are features.


def _as_recorded(source: Source, features: Features) -> tuple[Source, Features]:
    """Take what is not given from a file of recorded judgements, if there is one, and check its points."""
    for path in (source.pairs, source.comparisons):
        if path is None or not is_recorded(path):
            continue
        file = source.open(path)
        assert isinstance(file, RecordedFile)
        if source.points is None:
            remedy = "Add " + setting("points") + ", the table that they are in."
            raise TableError(f"{file.path} has ids of points, not their columns. " + remedy)
        options = file.about["options"]
        na_values = source.na_values or tuple(options.get("na_values", ()))
        source = replace(source, id=source.id or file.about["id"], na_values=na_values)
        _check_points(file, source)
        features = _with_recorded(features, file.about["features"], options)
    return source, features


def _check_points(file: RecordedFile, source: Source) -> None:
    """Refuse points that differ from those that were judged; others, and in another order, do no harm."""
    assert source.points is not None
    points = read_raw_points(source.points, id=source.id, na_values=source.na_values, decimal=source.decimal)
    known, own_ids = dict(file.about["fingerprint"]), file.ids.tolist()
    for name in file.about["shown"]:
        if name not in points.columns:
            del known[name]  # what was only shown is not needed any more
    rows = {id: row for row, id in enumerate(points.ids.tolist())}
    found = [id for id in own_ids if id in rows]
    columns = {name: points.columns[name][[rows[id] for id in found]] for name in known if name in points.columns}
    differences = point_differences(own_ids, known, found, fingerprint_columns(columns))
    if differences:
        remedy = setting("pairs") + " or " + setting("comparisons") + " that `closefar export-judgements` writes."
        raise TableError(
            f"{points.place.path} is not the table that was judged in {file.path}: {'; '.join(differences)}. Give that "
            "table, or fit to " + remedy
        )


def _with_recorded(features: Features, names: list[str], options: Mapping[str, Any]) -> Features:
    """The features that were judged by, where no others are given."""
    if features.encoding is not None:
        return features
    columns = names if features.columns is None else features.columns
    free = set(columns).difference(features.drop, features.categorical, features.ordinal or ())
    ordinal = {name: order for name, order in options.get("ordinal", {}).items() if name in free}
    categorical = [name for name in options.get("categorical", ()) if name in free]
    missing, unseen = (None if given == "refuse" else given for given in (features.missing, features.unseen))
    return replace(
        features,
        columns=columns,
        categorical=[*features.categorical, *categorical],
        ordinal={**ordinal, **(features.ordinal or {})},
        missing=missing or options.get("missing"),
        unseen=unseen or options.get("unseen"),
    )


# ---------------------------------------------------------------------------------------------------------------------
# What the rooms above read.


def read_pairs(
    source: Source,
    *,
    encoding: Encoding | None = None,
    labelled: bool,
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    missing: str | None = None,
    unseen: str | None = None,
) -> PairTable:
    r"""Read pairs, comparisons or single points, in any of the forms of `Source`.

    Parameters
    ----------
    source : Source
    encoding : Encoding, optional
        That of the model, for new data.  By default one is learned; where pairs refer to points
        by id, from the points that are in a pair.
    labelled : bool
        Whether to read labels and weights.
    columns, drop, categorical, ordinal
        As for `Encoding.learn`, to learn one.  Columns of two sides are called by what their
        names have in common.
    missing, unseen : str, optional
        As for `Encoding.learn`; with an `encoding` they replace its own.

    Returns
    -------
    PairTable

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from closefar.tables import Source, read_pairs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     points, pairs = Path(folder, "points.csv"), Path(folder, "pairs.csv")
    ...     _ = points.write_text("id,height,colour\na,1.5,red\nb,2.5,blue\nc,3.5,red\n")
    ...     _ = pairs.write_text("first,second,label\na,b,far\nc,a,close\n")
    ...     table = read_pairs(Source(points=points, pairs=pairs), labelled=True)
    >>> table.encoding.feature_names
    ('height', 'colour=blue')
    >>> table.points.tolist(), table.index.tolist()
    ([[1.5, 0.0], [2.5, 1.0], [3.5, 0.0]], [[0, 1], [2, 0]])
    >>> table.labels.tolist(), table.ids.tolist()
    (['far', 'close'], [['a', 'b'], ['c', 'a']])
    """
    features = Features(encoding, columns, drop, categorical, ordinal, missing, unseen)
    source, features = _as_recorded(source, features)
    are_ids = source.points is not None and (source.pairs is not None or source.comparisons is not None)
    table = (read_id_pairs if are_ids else read_rows)(source, features, labelled=labelled)
    release_memory()  # that of the ids
    return table


def read_points(
    source_or_path: Source | str | os.PathLike[str], *, id: str | None = None, encoding: Encoding
) -> PairTable:
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
    PairTable
        Single points without labels.

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
    id_name, notes = find_id(source.open(source.points), id or source.id, encoding.column_names)
    source = replace(source, pairs=None, comparisons=None, judgements=None, id=id_name)
    table = read_rows(source, Features(encoding), labelled=False)
    return replace(table, notes=(*notes, *table.notes))
