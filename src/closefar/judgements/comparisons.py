"""Validation of comparisons: triplets and quadruplets, which leg was judged nearer, and that the legs differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from closefar.arrays import (
    LEGS,
    Array,
    BoolArray,
    FloatArray,
    IndexArray,
    is_foreign,
    is_mapped,
    is_source,
    like,
    release,
    take_rows,
    to_numpy,
)
from closefar.judgements.labels import Sides
from closefar.judgements.missing import is_missing
from closefar.judgements.pairs import (
    check_foreign,
    check_names_of_source,
    check_number_of_columns,
    check_size,
    name_of,
)
from closefar.judgements.partitions import is_partitioned
from closefar.judgements.tuples import Tuples

__all__ = [
    "check_comparisons",
    "check_legs_differ",
    "in_library_of",
    "quadruplets_of",
    "read_answers",
    "rows_with_same_legs",
    "split_comparisons",
]

_SHAPES = "comparisons must have shape (n, 3, d), triplets (a, b, c), or (n, 4, d), quadruplets (a, b, c, e)"
_CHECKED_ROWS = 1 << 16  # at a time
_MOST_NAMED = 5


def check_comparisons(estimator: Any, data: Any, *, fitting: bool, beside_pairs: bool = False) -> Array:
    """Check an array of shape (n, 3, d) or (n, 4, d), or such tuples by index; nothing is copied that need not be.

    `estimator` learns the columns where it is fitting, and must have learned the same ones where it is not, for
    instance because they are those of the pairs that the comparisons are fitted with.
    """
    if is_partitioned(data):
        raise ValueError(
            f"comparisons must be in memory; got {type(data).__name__}, whose rows are computed elsewhere. Pass "
            "comparisons.compute()."
        )
    least = 2 if fitting else 1
    if isinstance(data, Tuples):
        _check_shape(data)
        check_size(data.shape, least, "comparison")
        found: Array = data
    elif is_source(data):
        raise ValueError(f"{_SHAPES}; got {type(data).__name__}, a source of pairs. Pass an array or closefar.Tuples.")
    elif is_foreign(data):
        found = check_foreign(data, least, _check_shape, "comparison")
    else:
        found = _checked_array(estimator, data, least)
    whose = "of the pairs" if beside_pairs else None
    check_number_of_columns(estimator, int(found.shape[-1]), fitting=fitting, noun="comparisons", whose=whose)
    check_names_of_source(estimator, getattr(data, "feature_names", None), fitting=fitting)
    return found


def _checked_array(estimator: Any, data: Any, least: int) -> NDArray[Any]:
    if not hasattr(data, "shape"):
        data = _as_array(data)
    _check_shape(data)
    if getattr(data.dtype, "kind", "O") not in "biufO":
        raise ValueError(f"comparisons must hold real numbers; got an array of {data.dtype}. Convert it to floats.")
    found: NDArray[Any] = check_array(
        data,
        allow_nd=True,
        dtype=(np.float64, np.float32),
        ensure_all_finite=False,
        ensure_min_samples=0,
        ensure_min_features=0,
        estimator=name_of(estimator),
        input_name="comparisons",
    )
    check_size(found.shape, least, "comparison")
    for start in range(0, len(found), _CHECKED_ROWS):
        is_finite = np.isfinite(found[start : start + _CHECKED_ROWS]).all(axis=(1, 2))
        if not is_finite.all():
            row = start + int(np.argmin(is_finite))
            value = found[row][~np.isfinite(found[row])][0]
            raise ValueError(
                f"comparisons must hold finite numbers; got {value} in row {row}. Fill it in, or leave that row out."
            )
        if is_mapped(found):
            release(found)
    return found


def _as_array(data: Any) -> NDArray[Any]:
    try:
        return np.asarray(data)
    except ValueError:
        raise ValueError(
            f"{_SHAPES}; got a {type(data).__name__} of parts of different shapes. Give an array, or with its answers "
            "a tuple (comparisons, y)."
        ) from None


def _check_shape(data: Any) -> None:
    shape = tuple(data.shape)
    if len(shape) != 3 or shape[1] not in (3, 4):
        what = " Pairs are judged by close/far labels or levels." if len(shape) == 3 and shape[1] == 2 else ""
        raise ValueError(f"{_SHAPES}; got {shape}.{what or ' Stack their points with numpy.stack([a, b, c], axis=1).'}")


def check_legs_differ(data: Array) -> None:
    """Refuse comparisons of two legs that are the same."""
    found = rows_with_same_legs(data)
    if found:
        more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
        are, it = ("row", "that row") if len(found) == 1 else ("rows", "those rows")
        named = ", ".join(map(str, found[:_MOST_NAMED])) + more
        raise ValueError(
            f"the two sides of a comparison must differ; those of {are} {named} are the same two points, or have "
            f"the same difference, so that no metric can tell which is nearer. Leave {it} out."
        )


def rows_with_same_legs(data: Array) -> list[int]:
    """The comparisons of two legs that are the same, in either direction: no metric tells which is nearer."""
    n, points = int(data.shape[0]), [point for leg in LEGS[int(data.shape[1])] for point in leg]
    found: list[int] = []
    for start in range(0, n, _CHECKED_ROWS):
        rows = np.arange(start, min(start + _CHECKED_ROWS, n))
        for column in (slice(0, 1), slice(None)):  # most legs differ in the first column already
            rows = rows[_are_same(data, rows, points, column)] if len(rows) else rows
        found += rows.tolist()
    return found


def _are_same(data: Array, rows: IndexArray, points: list[int], columns: slice) -> BoolArray:
    if isinstance(data, Tuples):
        index = data.index[like(data.index, rows)]
        a, b, c, e = (to_numpy(data.points[:, columns][index[:, point]]).astype(np.float64) for point in points)
    else:
        some = data[int(rows[0]) : int(rows[-1]) + 1, :, columns] if columns != slice(None) else take_rows(data, rows)
        numbers = to_numpy(some).astype(np.float64, copy=False)
        if len(numbers) != len(rows):
            numbers = numbers[rows - rows[0]]
        a, b, c, e = (numbers[:, point] for point in points)
    near, far = a - b, c - e
    same: BoolArray = np.all(near == far, axis=1) | np.all(near == -far, axis=1)
    return same


def quadruplets_of(near: FloatArray, far: FloatArray) -> FloatArray:
    """Return comparisons with these differences as their legs, (n, 4, d): each leg is from a point to zero."""
    zero = np.zeros_like(near)
    return np.stack([near, zero, far, zero], axis=1)


def read_answers(answers: Any, n: int) -> tuple[NDArray[Any], BoolArray, Sides]:
    """Return the answers, which comparisons are as given (+1, 1 or True), and the two possible answers.

    The others (-1, 0 or False) are turned round: the second leg is the nearer one.
    """
    if answers is None:
        return np.broadcast_to(np.int64(1), n), np.broadcast_to(np.True_, n), Sides(np.array([-1, 1]))
    labels = column_or_1d(to_numpy(answers) if is_foreign(answers) else answers)
    if len(labels) != n:
        raise ValueError(f"there must be one answer per comparison; got {len(labels)} answers for {n} comparisons.")
    for close, far in ((-1, 1), (0, 1)):
        is_far = np.asarray(labels == far, dtype=bool)
        is_known = is_far | np.asarray(labels == close, dtype=bool)
        if np.all(is_known):
            classes = [False, True] if labels.dtype.kind == "b" else [close, far]
            return labels, is_far, Sides(np.array(classes))
    row = int(np.argmin((labels == 1) | (labels == -1) | ((labels == 0) & ~np.any(labels == -1))))
    value = labels[row : row + 1].tolist()[0]
    what = "Code them so, or as True and False, or as 1 and 0."
    if is_missing(value) or value == 0:
        what = "Leave that row out: a comparison without an answer says nothing."
    raise ValueError(
        "answers must be +1 (the first leg is the nearer one, as the order of the points says) or -1 (the second one "
        f"is); got {value!r} in row {row}. {what}"
    )


def split_comparisons(given: Any) -> tuple[Any, Any, Any]:
    """Return the data, the answers and the weights of comparisons that are given as one argument."""
    if not isinstance(given, tuple):
        return given, None, None
    if len(given) not in (2, 3):
        raise ValueError(
            "comparisons must be an array, closefar.Tuples, (comparisons, y) or (comparisons, y, sample_weight); got a "
            f"tuple of {len(given)}."
        )
    return given[0], given[1], given[2] if len(given) == 3 else None


def in_library_of(pairs: Array, comparisons: Array) -> Array:
    """Return comparisons in the array library, and on the device, of the pairs that they are fitted with."""
    model = getattr(pairs, "points", pairs)
    if isinstance(comparisons, Tuples):
        points, index = (_like(model, each) for each in (comparisons.points, comparisons.index))
        is_there = points is comparisons.points and index is comparisons.index
        return comparisons if is_there else comparisons.with_arrays(points, index)
    return _like(model, comparisons)


def _like(model: Array, values: Array) -> Array:
    if not is_foreign(model):
        return to_numpy(values) if is_foreign(values) else values
    if type(values) is type(model) and getattr(values, "device", None) == getattr(model, "device", None):
        return values
    return like(model, to_numpy(values))
