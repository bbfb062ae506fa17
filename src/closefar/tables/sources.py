"""Which files to read, and which of their columns hold ids, labels and weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.errors import Place, TableError, listed, quoted, refuse_unknown
from closefar.tables.inputs import STANDARD_INPUT, Input
from closefar.tables.table import TableFile
from closefar.tables.values import is_number, to_text

_LABEL_NAMES = ("label", "labels")
_ANSWER_NAMES = ("answer", "answers", "response", "choice", *_LABEL_NAMES)
_ANNOTATOR_NAMES = ("annotator", "annotator_id", "worker", "worker_id", "workerid")
_COMPARED_NAMES = ("point", "left", "right")  # as `closefar export-judgements` has them, beside other columns
_ID_NAMES = ("id",)
TASK_NAMES = ("task", "task_id", "trial")
ROW_NAMES = (*_ID_NAMES, *TASK_NAMES)  # what names a row of judgements, and no point


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

    def __post_init__(self) -> None:
        if self.points is None and self.pairs is None:
            raise ValueError("a source must have a file of points, of pairs, or both; got neither.")
        if (self.left is None) != (self.right is None):
            raise ValueError(f"left and right must be given together; got {self.left!r} and {self.right!r}.")
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


def find_named(file: TableFile, given: str | None, defaults: Sequence[str], role: str) -> str | None:
    """The column with the given name, or else with one of the default names in any case."""
    if given is not None:
        refuse_unknown(file.path, [given], file.names, f"which was given as the {role}")
        return given
    by_lower_case = {name.lower(): name for name in reversed(file.names)}
    return next((by_lower_case[default] for default in defaults if default in by_lower_case), None)


def find_label(file: TableFile, source: Source, *, labelled: bool) -> str | None:
    """The label column by its name; without labels wanted, a column that must not be taken for anything else."""
    given = source.label if labelled or source.label in file.names else None
    return find_named(file, given, _LABEL_NAMES, "label")


def require_label(file: TableFile, label: str | None) -> str:
    """The label column, which must have been found."""
    if label is None:
        raise TableError(
            f"{file.path} has no column called 'label'. Its columns are {listed(file.names)}. "
            "Name the column of labels with --label."
        )
    return label


def find_weight(file: TableFile, source: Source, *, labelled: bool) -> str | None:
    """The weight column that was given; without labels wanted, it need not be there."""
    return find_named(file, source.weight, (), "weight") if labelled or source.weight in file.names else None


def find_label_and_weight(file: TableFile, source: Source, *, labelled: bool) -> tuple[str | None, str | None]:
    """The label column, which must be there where labels are wanted, and the weight column."""
    label = find_label(file, source, labelled=labelled)
    return require_label(file, label) if labelled else label, find_weight(file, source, labelled=labelled)


def find_group(file: TableFile, source: Source, *, labelled: bool) -> str | None:
    """The column of groups that was given, not that of labels; without labels wanted, it need not be there."""
    group = find_named(file, source.group, (), "group") if labelled or source.group in file.names else None
    if group is not None and group in (find_label(file, source, labelled=True), source.weight):
        raise TableError(
            f"{file.path}: the group column must be another than those of labels and weights; got {quoted(group)}. "
            "Choose another column with --group."
        )
    return group


def find_annotator(file: TableFile, source: Source, *, labelled: bool, others: Sequence[str | None] = ()) -> str | None:
    """The column of annotators, another than these; without labels wanted, it need not be there."""
    if source.annotator is False:
        return None
    given = source.annotator if labelled or source.annotator in file.names else None
    name = find_named(file, given, _ANNOTATOR_NAMES, "annotator")
    if name is not None and name in others:
        if given is None:
            return None
        raise TableError(
            f"{file.path}: the annotator column must be another than those of ids, labels, weights and groups; got "
            f"{quoted(name)}. Choose another column with --annotator."
        )
    return name


def find_annotator_like(file: TableFile, source: Source) -> str | None:
    """The column that holds annotators, whether they are wanted or not: it has no ids of points, and no features."""
    return find_annotator(file, replace(source, annotator=source.annotator or None), labelled=False)


def find_answer(file: TableFile, source: Source, *, labelled: bool) -> str | None:
    """The column with the answers of comparisons, if there is one."""
    given = source.answer if labelled or source.answer in file.names else None
    return find_named(file, given, _ANSWER_NAMES, "answer")


def find_compared(file: TableFile, source: Source, others: Sequence[str | None]) -> tuple[str, ...]:
    """The three or four id columns of a table of comparisons; `others` have another use."""
    if source.compared is not None:
        refuse_unknown(file.path, source.compared, file.names, "which was given as an id column")
        return source.compared
    candidates = [name for name in file.names if name not in others]
    by_name = {name.lower(): name for name in candidates}
    if len(candidates) > 4 and by_name.keys() >= set(_COMPARED_NAMES):
        return tuple(by_name[name] for name in _COMPARED_NAMES)
    if len(candidates) > 3:
        candidates = [name for name in candidates if name.lower() not in ROW_NAMES]
    if len(candidates) not in (3, 4):
        raise TableError(
            f"{file.path} must have three or four id columns beside the answer; got {len(candidates)}: "
            f"{listed(candidates)}. Name the id columns with --compared, and the answers with --answer."
        )
    return tuple(candidates)


def find_own_id(file: TableFile, given: str | None) -> str | None:
    """The id column of single points or of pairs as such: the given one, or one called "id"."""
    return find_named(file, given, _ID_NAMES, "id")


def find_id(file: TableFile, given: str | None, needed: Sequence[str] | None) -> str | None:
    """The id column of points: the given one, one called "id", or the first; None means row numbers."""
    found = find_own_id(file, given)
    if found is not None or not file.first_column_may_be_ids:
        return found
    return None if file.names[0] in (needed or ()) else file.names[0]


def find_pair_of_ids(file: TableFile, source: Source, label: str | None) -> tuple[str, str]:
    """The two id columns of a table of pairs."""
    if source.left is not None and source.right is not None:
        refuse_unknown(file.path, [source.left, source.right], file.names, "which was given as an id column")
        return source.left, source.right
    candidates = [name for name in file.names if name not in (label, source.weight, source.group)]
    annotator = find_annotator_like(file, source)
    if annotator is not None and (source.annotator or len(candidates) > 2):
        candidates = [name for name in candidates if name != annotator]
    by_name = {name.lower(): name for name in candidates}
    if "left" in by_name and "right" in by_name:
        return by_name["left"], by_name["right"]
    if len(candidates) > 2:  # its own row numbers are no points
        candidates = [name for name in candidates if name.lower() not in ROW_NAMES]
    left, right, *_ = *candidates, "", ""
    if not right:
        raise TableError(
            f"{file.path} must have two id columns beside the label; its columns are {listed(file.names)}. "
            "Name them with --left and --right."
        )
    return left, right


def check_weights(column: NDArray[Any], name: str, place: Place) -> FloatArray:
    """The weights, each a finite number >= 0."""
    weights = column
    if column.dtype.kind != "f":
        weights = np.array([float(text) if text and is_number(text) else np.nan for text in to_text(column)])
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        first = int(bad[0])
        raise TableError(
            f"{place.path}: weight column {quoted(name)} must hold finite numbers >= 0; "
            f"got {quoted(column[first])} in {place.row(first)}. Correct it, or choose another column with --weight."
        )
    return weights
