"""Comparisons of ids: three or four a row, and the answer that each of them got."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import texts_of
from closefar.tables.errors import Place, TableError, counted, listed, quoted
from closefar.tables.id_tuples import IdTuples
from closefar.tables.ids import check_ids, codes_of_ids
from closefar.tables.pair_table import TableRows, note_ignored
from closefar.tables.sources import Source, find_annotator_like, find_answer, find_compared, find_group, find_weight
from closefar.tables.table import TableFile, open_table
from closefar.tables.values import codes_of, distinct, is_number

_AS_GIVEN, _TURNED = "1", "-1"
_WORDS = ((_AS_GIVEN, _TURNED), ("left", "right"), ("first", "second"), ("true", "false"))
_TRIPLET_ANSWERS = (
    "1 (the first point is nearer to the second) and -1 (to the third), left and right, first and second, true and "
    "false, or the id of the nearer point"
)
_QUADRUPLET_ANSWERS = (
    "1 (the first two points are nearer to each other) and -1 (the last two), left and right, first and second, or "
    "true and false"
)
_NO_ANNOTATORS = (
    "The annotators of comparisons, in column {name} of {path}, are not used: a comparison has no threshold that "
    "one of them could set higher than another."
)


def read_id_comparisons(source: Source, *, labelled: bool, drops_missing: bool) -> IdTuples:
    """Read comparisons; the label of each is "1" as given, where the first two are nearer, and "-1" turned round."""
    assert source.comparisons is not None
    file = open_table(source.comparisons, source.na_values)
    answer, annotator = find_answer(file, source, labelled=labelled), find_annotator_like(file, source)
    is_alone = labelled and source.pairs is None  # beside pairs, weights and groups may be theirs alone
    weight = find_weight(file, source, labelled=is_alone)
    group = find_group(file, replace(source, label=answer), labelled=is_alone)
    names = find_compared(file, source, (answer, weight, group, annotator))
    _check_roles(file, names, answer, weight, group)
    texts = [name for name in (answer if labelled else None, group) if name is not None]
    columns = file.read([*names, *texts, *filter(None, [weight])], texts, names)
    for name in names:
        check_ids(columns[name], name, file.place, "compared")
    ids = tuple(columns[name] for name in names)
    _refuse_equal_sides(ids, names, file.place)
    if labelled and answer is not None:
        columns[answer] = _signs(columns[answer], answer, ids, file.place)
    rows = TableRows(file, columns, answer if labelled else None, weight, group, "comparisons", role="answer")
    rows.leave_out_unlabelled(drops_missing=drops_missing)
    notes = note_ignored(file, [*names, answer, weight, group, annotator])
    if labelled and annotator is not None and source.annotator is not False:
        notes.append(_NO_ANNOTATORS.format(name=quoted(annotator), path=file.path))
    return IdTuples(names, ids, rows, notes, "--id and --compared, and that of the answers with --answer")


def _check_roles(file: TableFile, names: tuple[str, ...], *others: str | None) -> None:
    used = [*names, *(name for name in others if name is not None)]
    if len(set(used)) < len(used):
        raise TableError(
            f"{file.path}: the ids of a comparison, its answer, weight and group must be in different columns; got "
            f"{listed(used)}. Choose them with --compared, --answer, --weight and --group."
        )


def _refuse_equal_sides(ids: tuple[Any, ...], names: tuple[str, ...], place: Place) -> None:
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


def _signs(answers: NDArray[np.object_], name: str, ids: tuple[Any, ...], place: Place) -> NDArray[np.object_]:
    """The answers as "1" for the first two being nearer, and "-1" for the others; None where one is missing."""
    given = distinct(answers)
    plain = [_plainly(word) for word in given]
    codes = codes_of(answers, given)
    for as_given, turned in _WORDS:
        if {as_given, turned}.issuperset(plain):
            signs = [_AS_GIVEN if word == as_given else _TURNED for word in plain]
            return np.array([*signs, None], dtype=object)[codes]
    is_known = codes < 0
    if len(ids) == 3:
        near, far = (texts_of(column) == answers for column in ids[1:])
        is_known = is_known | near | far
        if is_known.all():
            return np.array([_TURNED, _AS_GIVEN, None], dtype=object)[np.where(codes < 0, 2, near)]
    is_word = np.array([word in set().union(*_WORDS) for word in plain])[codes]
    wrong = ~is_known & ~is_word
    first = int(np.argmax(wrong))
    where = f"column {quoted(name)}, {place.row(first)}" if wrong.any() else f"column {quoted(name)}"
    raise TableError(
        f"{place.path}: answers must be {_TRIPLET_ANSWERS if len(ids) == 3 else _QUADRUPLET_ANSWERS}; got "
        f"{quoted(answers[first]) if wrong.any() else listed(given)} in {where}. Translate the answers, or choose "
        "another column with --answer."
    )


def _plainly(word: str) -> str:
    """The answer in lower case; a number as 1, however it is written."""
    return f"{float(word):g}" if is_number(word) else word.lower()
