"""Which files to read, and which of their columns hold ids, labels, weights and features."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from closefar.errors import setting
from closefar.tables.encoding import Features
from closefar.tables.errors import Place, TableError, listed, quote, refuse_unknown
from closefar.tables.files import RecordedFile, open_table
from closefar.tables.inputs import STANDARD_INPUT, Input
from closefar.tables.values import TableFile, to_text

_LABEL_NAMES = ("label", "labels")
_ANSWER_NAMES = ("answer", "answers", "response", "choice", *_LABEL_NAMES)
_ANNOTATOR_NAMES = ("annotator", "annotator_id", "worker", "worker_id", "workerid")
_COMPARED_NAMES = ("point", "left", "right")  # as `closefar export-judgements` has them, beside other columns
_ID_NAMES = ("id",)
_TASK_NAMES = ("task", "task_id", "trial")
ROW_NAMES = (*_ID_NAMES, *_TASK_NAMES)  # what names a row of judgements, and not a point

_PREFIXES = (("left_", "right_"), ("a_", "b_"), ("x_", "y_"), ("1_", "2_"))
_SUFFIXES = (("_left", "_right"), ("_a", "_b"), ("_x", "_y"), ("_1", "_2"), (".x", ".y"), ("1", "2"))

_FILES = ("points", "pairs", "comparisons", "judgements")


@dataclass(frozen=True)
class Source:
    """Which files hold the data, and which of their columns mean what; None means to find out.

    Three forms: `points` and `pairs`, a table of points with ids and a table of pairs of these
    ids; `pairs` alone, with the columns of both sides side by side; `points` alone, single
    points with a label each.  Beside or instead of `pairs`, `points` may have `comparisons`, a table of
    three or four ids a row.

    Parameters
    ----------
    points, pairs, comparisons : path, optional
        "-" is standard input, for one of them.
    judgements : path, optional
        The labels of `pairs`, or of single points, in a file of their own, with any number of rows for a pair:
        both files have a column in common, such as "task".
    id : str, optional
        The column of the points that holds their ids: by default the one called "id", else the
        first; the row number from 0 for arrays without ids.  Single points need none.
    left, right : str, optional
        The columns of the pairs that hold the ids of the two sides: by default the first two
        that are neither label nor weight.
    label : str, optional
        By default the column called "label" or "labels", else the only one left beside two ids.
    weight : str, optional
        By default none.
    group : str, optional
        The column that says which pairs belong together; by default none.
    annotator : str or False, optional
        The column that says who judged: by default the one called "annotator" or "worker" (also with
        "_id"), if there is one; False means none.
    compared : tuple of three or four str, optional
        The id columns of the comparisons: by default all that are neither answer, weight nor annotator.
    answer : str, optional
        The column of the comparisons with their answers: by default the one called "answer", "response",
        "choice" or "label".  Without answers, each row is in the order that was found.
    sides : tuple of two str, optional
        How the names of the columns of the two sides begin or end: by default ``left_`` and
        ``right_``, ``a_`` and ``b_``, ``_1`` and ``_2`` and the like.
    na_values : tuple of str
        What stands for a missing value beside the usual words, such as "?" or "-999".
    decimal : {".", ","}, optional
        The decimal mark of numbers in text files; by default a point, or that of the model.
    """

    points: str | os.PathLike[str] | None = None
    pairs: str | os.PathLike[str] | None = None
    comparisons: str | os.PathLike[str] | None = None
    judgements: str | os.PathLike[str] | None = None
    id: str | None = None
    left: str | None = None
    right: str | None = None
    label: str | None = None
    weight: str | None = None
    group: str | None = None
    annotator: str | Literal[False] | None = None
    compared: tuple[str, ...] | None = None
    answer: str | None = None
    sides: tuple[str, str] | None = None
    na_values: tuple[str, ...] = ()
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.points is None and self.pairs is None:
            raise ValueError("a source must have a file of points, of pairs, or both; got neither.")
        if (self.left is None) != (self.right is None):
            raise ValueError(f"left and right must be given together; got {self.left!r} and {self.right!r}.")
        sides = self.sides
        if sides is not None and (len(sides) != 2 or sides[0] == sides[1] or not all(sides)):
            rule = " must be two different prefixes or suffixes of column names, such as left_ and right_; got "
            raise TableError(setting("sides") + rule + f"{sides!r}.")
        if self.comparisons is not None and self.points is None:
            raise ValueError(
                f"comparisons are of points by their ids; got comparisons={os.fspath(self.comparisons)!r} without "
                "points. Give the file of points as well."
            )
        given = {name: getattr(self, name) for name in _FILES if getattr(self, name) is not None}
        streams = [name for name, path in given.items() if os.fspath(path) == STANDARD_INPUT]
        if len(streams) > 1:
            raise ValueError(
                f"{' and '.join(streams)} can't both be read from standard input. Give a file for one of them."
            )
        for name, path in given.items():
            if Input(path).is_stream and not isinstance(path, Input):
                object.__setattr__(self, name, Input(path))  # so that what is read once is kept

    def open(self, path: str | os.PathLike[str]) -> TableFile:
        """Open one of the files."""
        return open_table(path, self.na_values, "." if self.decimal is None else self.decimal)

    @property
    def judged(self) -> str | os.PathLike[str]:
        """The file of pairs, or of single points."""
        path = self.points if self.pairs is None else self.pairs
        assert path is not None
        return path


class LazyColumns(dict[str, Any]):
    """Columns by name, each of which is read, or made, when it is asked for: what is stored are functions."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)()


@dataclass(frozen=True)
class Roles:
    """Which use the columns of a file have: of single points, of pairs side by side, or of rows of ids.

    Parameters
    ----------
    features : Features
        What the features are called is what the two sides have in common.
    names : list of str
        The features, as they are called; none in rows of ids.
    sides : tuple of two dicts, or None
        For pairs, the name in the file of each feature of the left and of the right side.
    label, weight, group, annotator : str or None
        None where there is no such column, or none is wanted.
    id_names : tuple of str
        The columns of ids: none, one, those of both sides, or the three or four of a comparison.
    notes : tuple of str
        Sentences about what is ignored.
    """

    features: Features
    names: list[str]
    sides: tuple[dict[str, str], dict[str, str]] | None
    label: str | None
    weight: str | None
    group: str | None
    id_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    annotator: str | None = None

    @property
    def noun(self) -> str:
        """What a row is, in the plural."""
        if self.sides is None and self.names:
            return "points"
        return "comparisons" if len(self.id_names) > 2 else "pairs"

    @property
    def id_options(self) -> tuple[str, ...]:
        """The settings that choose the columns of ids."""
        return {1: ("id",), 2: ("left", "right")}.get(len(self.id_names), ("compared",) * len(self.id_names))

    @property
    def texts(self) -> list[str]:
        """The columns of labels, groups and annotators, which are read as they are written."""
        return [name for name in (self.label, self.group, self.annotator) if name is not None]

    @property
    def own(self) -> list[str]:
        """The columns of features, by their names in the file."""
        return self.names if self.sides is None else [side[name] for side in self.sides for name in self.names]

    @property
    def own_texts(self) -> list[str]:
        """Those of them that are read as they are written."""
        names = self.features.text_names
        return list(names) if self.sides is None else [side[name] for side in self.sides for name in names]

    @property
    def used(self) -> list[str]:
        """All columns that are read."""
        return [*self.own, *self.texts, *self.id_names, *([] if self.weight is None else [self.weight])]

    def stacked(
        self, read: Callable[[str], NDArray[Any]], place: Place, kept: NDArray[np.int64]
    ) -> tuple[Mapping[str, NDArray[Any]], Place]:
        """The columns of points in these rows of the file, and their place: for pairs, both sides in turn.

        `read` gives the values that a column of the file has in these rows.
        """
        sides = self.sides
        if sides is None:
            return LazyColumns({name: partial(read, name) for name in self.names}), place.at(kept)

        def both(stem: str) -> NDArray[Any]:
            left, right = (read(side[stem]) for side in sides)
            if left.dtype != right.dtype:
                left, right = to_text(left), to_text(right)
            return np.stack([left, right], axis=1).reshape(-1)

        rows = (2 * kept[:, None] + np.arange(2)).reshape(-1)
        return LazyColumns({stem: partial(both, stem) for stem in self.names}), replace(place, rows=rows, sides=sides)


# ---------------------------------------------------------------------------------------------------------------------
# One column by its use. Where no labels are wanted, as for new data, columns that only they need may be absent.


def _find_named(
    file: TableFile, given: str | None, defaults: Sequence[str], role: str, *, labelled: bool = True
) -> str | None:
    """The column with the given name, or else with one of the default names in any case."""
    if given is not None and (labelled or given in file.names):
        refuse_unknown(file.path, [given], file.names, f"which was given as the {role}")
        return given
    by_lower_case = {name.lower(): name for name in reversed(file.names)}
    return next((by_lower_case[default] for default in defaults if default in by_lower_case), None)


def find_label(file: TableFile, source: Source, *, labelled: bool) -> str | None:
    """The label column by its name; without labels wanted, a column that must not be taken for anything else."""
    return _find_named(file, source.label, _LABEL_NAMES, "label", labelled=labelled)


def _require_label(file: TableFile, label: str | None) -> str:
    """The label column, which must have been found."""
    if label is None:
        remedy = "Set " + setting("label") + " to the column of labels."
        raise TableError(f"{file.path} has no column called 'label'. Its columns are {listed(file.names)}. " + remedy)
    return label


def _find_judged(
    file: TableFile, source: Source, *, labelled: bool, needs_label: bool = False
) -> tuple[str | None, str | None, str | None, str | None]:
    """The columns of labels, weights, groups and annotators, of which the last may be wanted or not."""
    label = find_label(file, source, labelled=labelled)
    label = _require_label(file, label) if needs_label else label
    weight, group = (
        _find_named(file, getattr(source, role), (), role, labelled=labelled) for role in ("weight", "group")
    )
    annotator = _find_named(file, source.annotator or None, _ANNOTATOR_NAMES, "annotator", labelled=labelled)
    return label, weight, group, annotator


def _wanted(file: TableFile, source: Source, annotator: str | None, *others: str | None) -> str | None:
    """The column of annotators if they are wanted, another than these."""
    if annotator is not None and annotator == source.annotator and annotator in others:
        _refuse_two_uses(file, ("another role", annotator), ("annotator", annotator))
    return None if source.annotator is False or annotator in others else annotator


def _checked(file: TableFile, roles: Roles, *, labelled: bool) -> Roles:
    """These roles, which different columns must have, without those of labels and annotators if they are not wanted."""
    if not labelled:
        roles = replace(roles, label=None, annotator=None)
    judged = ("answer" if roles.noun == "comparisons" else "label", roles.label), ("weight", roles.weight)
    _refuse_two_uses(file, *zip(roles.id_options, roles.id_names, strict=True), *judged)
    _refuse_two_uses(file, *judged, ("group", roles.group))
    return roles


def _find_own_id(file: TableFile, given: str | None) -> str | None:
    """The id column of single points or of pairs as such: the given one, or one called "id"."""
    return _find_named(file, given, _ID_NAMES, "id")


def find_id(file: TableFile, given: str | None, needed: Sequence[str] | None) -> tuple[str | None, tuple[str, ...]]:
    """The id column of points: the given one, one called "id", or the first, with a note; None means row numbers."""
    found, first = _find_own_id(file, given), file.names[0]
    if found is not None or not file.first_column_may_be_ids or first in (needed or ()):
        return found, ()
    return first, (f"The ids of {file.path} are taken from its first column, {quote(first)}.",)


def _refuse_two_uses(file: TableFile, *uses: tuple[str, str | None]) -> None:
    """Refuse a column that is to have two of these uses."""
    roles: dict[str, str] = {}
    for role, name in uses:
        if name is not None and name in roles:
            first = f"{roles[name]} and {role}" if roles[name] != role else f"those of {role}"
            remedy = "Set " + setting(role) + " to another column."
            raise TableError(f"{file.path}: {first} must be different columns; got {quote(name)} twice. " + remedy)
        if name is not None:
            roles[name] = role


def note_ignored(file: TableFile, used: Collection[str | None]) -> tuple[str, ...]:
    """A sentence that names the columns that have no use, if there are any; or what else is said of a file."""
    if isinstance(file, RecordedFile):
        return tuple(file.notes)
    ignored = [name for name in file.names if name not in used and name.lower() not in _TASK_NAMES]
    return (f"These columns of {file.path} are not used: {listed(ignored)}.",) if ignored else ()


# ---------------------------------------------------------------------------------------------------------------------
# Single points.


def _find_single_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """Which columns of a file of single points mean what."""
    label, weight, group, annotator = _find_judged(file, source, labelled=labelled, needs_label=labelled)
    own_id = _find_own_id(file, source.id)
    others = (label, weight, group, own_id, *(features.columns or ()), *(features.needed or ()))
    annotator = _wanted(file, source, annotator, *others)
    taken = {"label": label, "weight": weight, "group": group, "annotator": annotator, "id": own_id}
    if not labelled and features.needed is not None:
        taken = {"id": own_id}  # a feature of the model may be called "label"
    names, id_names = features.names_among(file.names, taken, file.place), () if own_id is None else (own_id,)
    roles = Roles(features, names, None, label, weight, group, id_names, annotator=annotator)
    return _checked(file, roles, labelled=labelled)


# ---------------------------------------------------------------------------------------------------------------------
# Rows of ids: pairs have two id columns, comparisons three or four.


def find_id_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """The columns of the two ids of each pair, and of what else is known of it."""
    label, weight, group, annotator = _find_judged(file, source, labelled=labelled)
    id_names = _find_ids(file, source, label, weight, group, annotator)
    if labelled and label is None:
        rest = [name for name in file.names if name not in (*id_names, weight, group, annotator)]
        label = _require_label(file, rest[0] if len(rest) == 1 else None)
    notes = note_ignored(file, {*id_names, label, weight, group, annotator})
    annotator = _wanted(file, source, annotator, *id_names, label, weight, group)
    roles = Roles(features, [], None, label, weight, group, id_names, notes, annotator)
    return _checked(file, roles, labelled=labelled)


def _find_ids(file: TableFile, source: Source, *others: str | None) -> tuple[str, ...]:
    """The two id columns of a table of pairs; the last of the others may be that of annotators."""
    candidates = [name for name in file.names if name not in others[:-1]]
    if source.annotator or len(candidates) > 2:
        candidates = [name for name in candidates if name != others[-1]]
    given = None if source.left is None or source.right is None else (source.left, source.right)
    found = _given_or_likely(file, given, candidates, ("left", "right"), 2)
    if len(found) < 2:
        words = f"{file.path} must have two id columns beside the label; its columns are {listed(file.names)}. Set "
        raise TableError(words + setting("left") + " and " + setting("right") + " to them.")
    return found[:2]


def _given_or_likely(
    file: TableFile, given: tuple[str, ...] | None, candidates: list[str], usual: Sequence[str], n: int
) -> tuple[str, ...]:
    """The given id columns, or those with the usual names, or the candidates: of more than n those that may be ids."""
    if given is not None:
        refuse_unknown(file.path, given, file.names, "which was given as an id column")
        return given
    by_name = {name.lower(): name for name in candidates}
    if usual and by_name.keys() >= set(usual):
        return tuple(by_name[name] for name in usual)
    return tuple(name for name in candidates if len(candidates) <= n or name.lower() not in ROW_NAMES)


def find_comparison_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """The columns of the three or four ids of each comparison, and of its answer; its annotator has no use."""
    answer = _find_named(file, source.answer, _ANSWER_NAMES, "answer", labelled=labelled)
    is_alone = labelled and source.pairs is None  # beside pairs, weights and groups may be theirs alone
    _, weight, group, annotator = _find_judged(file, replace(source, label=answer), labelled=is_alone)
    others = (answer, weight, group, annotator)
    candidates = [name for name in file.names if name not in others]
    usual = _COMPARED_NAMES if len(candidates) > 4 else ()
    id_names = _given_or_likely(file, source.compared, candidates, usual, 3)
    if len(id_names) not in (3, 4):
        remedy = setting("compared") + " to the id columns, and " + setting("answer") + " to that of the answers."
        raise TableError(
            f"{file.path} must have three or four id columns beside the answer; got {len(id_names)}: "
            f"{listed(id_names)}. Set " + remedy
        )
    notes = note_ignored(file, {*id_names, answer, weight, group})
    return _checked(file, Roles(features, [], None, answer, weight, group, id_names, notes), labelled=labelled)


# ---------------------------------------------------------------------------------------------------------------------
# Pairs whose columns stand side by side in one table.


@dataclass(frozen=True)
class _Sides:
    """The columns of each side: their names in the file by what the two have in common."""

    left: dict[str, str]
    right: dict[str, str]
    marks: tuple[str, str]

    @property
    def shared(self) -> list[str]:
        return [stem for stem in self.left if stem in self.right]

    @property
    def stems(self) -> dict[str, str]:
        """What each column of a side is called on both, by its name in the file."""
        return {name: stem for side in (self.left, self.right) for stem, name in side.items()}


def has_two_sides(file: TableFile, source: Source, features: Features) -> bool:
    """Whether a file has the columns of two sides; names that end with 1 and 2 are features unless all columns pair."""
    if source.sides is not None or source.left is not None:
        return True
    taken = {*_find_judged(file, source, labelled=False), source.id}
    names = [name for name in file.names if name not in taken and name not in features.drop and name.lower() != "id"]
    found = _find_sides(names, None, features.needed)
    is_counted = any(mark.strip("_.") in ("1", "2") for mark in found.marks)
    return 2 * len(found.shared) == len(names) if is_counted else bool(found.shared)


def _find_sides(names: Sequence[str], given: tuple[str, str] | None, needed: Collection[str] | None) -> _Sides:
    """The two sides: as given, or of the usual prefixes and suffixes the one that fits the most columns."""
    return max(
        _candidate_sides(names, given),
        key=lambda sides: len(sides.shared) if needed is None else len(set(needed).intersection(sides.shared)),
    )


def _candidate_sides(names: Sequence[str], given: tuple[str, str] | None) -> Iterator[_Sides]:
    ways = [(marks, True) for marks in ((given,) if given else _PREFIXES)]
    ways += [(marks, False) for marks in ((given,) if given else _SUFFIXES)]
    for marks, is_prefix in ways:
        left, right = (_stems(names, mark, is_prefix, exact=given is not None) for mark in marks)
        # a_1, a_2 and a_3 are three features, not two sides.
        if "1" in marks[0] and not given and _stems(names, marks[0].replace("1", "3"), is_prefix, exact=False):
            left, right = {}, {}
        yield _Sides(left, right, marks)


def _stems(names: Sequence[str], mark: str, is_prefix: bool, *, exact: bool) -> dict[str, str]:
    stems = {}
    for name in names:
        compared = name if exact else name.lower()
        if len(name) > len(mark) and (compared.startswith(mark) if is_prefix else compared.endswith(mark)):
            stems[name[len(mark) :] if is_prefix else name[: -len(mark)]] = name
    return stems


def _find_side_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """Which columns of a file of pairs, with both points side by side, mean what."""
    label, weight, group, annotator = _find_judged(file, source, labelled=labelled, needs_label=labelled)
    others = (label, weight, group, source.id, source.left, source.right)
    taken, annotator = {*others, annotator}, _wanted(file, source, annotator, *others)
    names = [name for name in file.names if name not in taken]
    sides = _find_sides(names, source.sides, features.needed)
    if not sides.shared:
        sought = "such as left_age and right_age"
        sought = sought if source.sides is None else f"with the prefixes or suffixes {listed(source.sides)}"
        remedy = setting("sides") + " to the prefixes or suffixes, or " + setting("points") + " to the table of points."
        raise TableError(
            f"{file.path} has no columns of two sides, {sought}. Its columns are {listed(names)}. Set " + remedy
        )
    id_names = _ids_of_sides(file, source, sides, features.needed)
    names = _features_of_sides(file, sides, features, id_names)
    left, right = ({name: side[name] for name in names} for side in (sides.left, sides.right))
    roles = Roles(features, names, (left, right), label, weight, group, id_names, annotator=annotator)
    unwanted = [name for name in file.names if not {name, sides.stems.get(name)}.isdisjoint(features.drop)]
    notes = note_ignored(file, {*roles.used, *taken, *unwanted})
    return _checked(file, replace(roles, notes=notes), labelled=labelled)


def _ids_of_sides(file: TableFile, source: Source, sides: _Sides, needed: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of ids: of both sides, or of the pairs as such, or none."""
    if source.left is not None and source.right is not None:
        return _given_or_likely(file, (source.left, source.right), [], (), 2)
    stem = next((stem for stem in sides.shared if stem.lower() == "id" and stem not in (needed or ())), None)
    if source.id is None and stem is not None:
        return sides.left[stem], sides.right[stem]
    own = _find_own_id(file, source.id)
    return () if own is None else (own,)


def _features_of_sides(file: TableFile, sides: _Sides, features: Features, id_names: tuple[str, ...]) -> list[str]:
    """What both sides have in common and is a feature; columns of one side are left out by their own names."""
    stems, shared = sides.stems, sides.shared
    single = [name for name in file.names if stems.get(name) not in shared]
    refuse_unknown(file.path, features.drop, [*shared, *single], "which was to be left out")
    unused = {*features.drop, *(stems.get(name, name) for name in id_names)}
    found = [stem for stem in shared if stem not in unused]
    alone = [name for name, stem in stems.items() if stem not in shared and name not in features.drop]
    if alone and features.needed is None:
        remedy = setting("drop") + ", or set " + setting("sides") + " to the prefixes or suffixes of the two sides."
        raise TableError(
            f"{file.path}: both sides, {sides.marks[0]!r} and {sides.marks[1]!r}, must have the same columns; only one "
            f"side has {listed(alone)}. Add them to " + remedy
        )
    return replace(features, drop=()).names_among(found, {}, file.place, ", on both sides")


def find_row_roles(file: TableFile, source: Source, features: Features, *, labelled: bool) -> Roles:
    """Which columns of a file mean what whose rows hold single points, or both points of a pair."""
    find = _find_single_roles if source.pairs is None else _find_side_roles
    return find(file, source, features, labelled=labelled)
