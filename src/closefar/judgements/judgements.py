"""Judgements of pairs, and comparisons of them: one type, validated once, for every fit and every question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from closefar import arrays
from closefar.arrays import Array, BoolArray, FloatArray, IndexArray
from closefar.errors import setting
from closefar.judgements.checks import (
    CHECKED_ROWS,
    Sides,
    check_class_weights,
    check_columns,
    check_pairs,
    check_rows,
    check_weights,
    codes_of,
    column_of_labels,
    find_levels,
    find_sides,
    is_missing,
    is_partitioned,
    name_of,
    own_labels,
    quoted,
    refuse_missing,
)
from closefar.judgements.tuples import Tuples

# ---------------------------------------------------------------------------------------------------------------------
# The kinds of judgement.


class Kind(StrEnum):
    """What was judged, and how: a pair as close or far, a pair by a level, or two pairs compared."""

    CLOSE_FAR = "close_far"
    LEVELS = "levels"
    COMPARISONS = "comparisons"

    @property
    def noun(self) -> str:
        """What a judgement is about."""
        return "comparison" if self is Kind.COMPARISONS else "pair"

    @property
    def term(self) -> str:
        """What a judgement says."""
        return "answer" if self is Kind.COMPARISONS else "label"

    @property
    def verb(self) -> str:
        """What is done to get more judgements."""
        return "make" if self is Kind.COMPARISONS else "label"


# ---------------------------------------------------------------------------------------------------------------------
# Annotators: who made each judgement.


_MOST_VALUES_NAMED = 5  # ids, or rows, in a message


@dataclass(frozen=True, eq=False)
class Annotators:
    """The annotator of each judgement.

    Attributes
    ----------
    names : tuple
        The different ids, as they were given, in their order.
    codes : array of n integers
        Which of them made each judgement.
    """

    names: tuple[Any, ...]
    codes: IndexArray

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def counts(self) -> IndexArray:
        """How many judgements each of them made."""
        return np.bincount(self.codes, minlength=len(self.names))

    def take(self, where: IndexArray) -> Annotators:
        """The annotators of some judgements, with the names of all."""
        return replace(self, codes=self.codes[where])


def read_annotators(ids: Any, n: int, known: tuple[Any, ...] | None = None) -> Annotators:
    """Validate one id per pair, of any hashable kind; each must be one of the `known` ones, if those are given."""
    values = _as_list(ids)
    if len(values) != n:
        raise ValueError(f"there must be one annotator id per pair; got {len(values)} ids for {n} pairs.")
    try:
        different = set(values)
    except TypeError as error:
        raise ValueError(
            f"annotator ids must be hashable, such as strings or whole numbers; got {error}. Convert them to strings."
        ) from error
    refuse_missing(values, different, "each pair must have the id of its annotator")
    if known is not None and (strange := different.difference(known)):
        row = next(row for row, value in enumerate(values) if value in strange)
        raise ValueError(
            setting("annotators")
            + f" must be those of the fit, {quoted(known, _MOST_VALUES_NAMED)}; got {values[row]!r} in row {row}. "
            "Leave those rows out, or predict without naming an annotator."
        )
    names = names_in_order(different) if known is None else known
    places = {name: place for place, name in enumerate(names)}
    return Annotators(names, np.fromiter(map(places.__getitem__, values), dtype=np.intp, count=n))


def _as_list(ids: Any) -> list[Any]:
    if isinstance(ids, str | bytes | dict | set | frozenset) or not hasattr(ids, "__iter__"):
        got = repr(ids) if isinstance(ids, str | int | float | None) else f"a {type(ids).__name__}"
        raise ValueError(setting("annotators") + f" must be one id per pair, in an array or a list; got {got}.")
    if not hasattr(ids, "shape"):
        return [value.item() if isinstance(value, np.generic) else value for value in ids]
    array = arrays.to_numpy(ids) if arrays.is_foreign(ids) else np.asarray(ids)
    if array.ndim != 1:
        raise ValueError(
            setting("annotators") + f" must be one id per pair, an array of one axis; got shape {array.shape}."
        )
    return list(array.tolist())


def names_in_order(different: set[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(different))
    except TypeError:  # ids of several kinds
        return tuple(sorted(different, key=lambda value: (type(value).__name__, str(value))))


# ---------------------------------------------------------------------------------------------------------------------
# Validation of comparisons: triplets and quadruplets, which leg was judged nearer, and that the legs differ.


_SHAPES = "comparisons must have shape (n, 3, d), triplets (a, b, c), or (n, 4, d), quadruplets (a, b, c, e)"


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
    if arrays.is_source(data) and not isinstance(data, Tuples):
        raise ValueError(f"{_SHAPES}; got {type(data).__name__}, a source of pairs. Pass an array or closefar.Tuples.")
    if not hasattr(data, "shape"):
        try:
            data = np.asarray(data)
        except ValueError:
            raise ValueError(
                f"{_SHAPES}; got a {type(data).__name__} of parts of different shapes. Give an array, or with its "
                "answers a tuple (comparisons, y)."
            ) from None
    found = check_rows(data, 2 if fitting else 1, check_shape_of_comparisons, name_of(estimator), "comparison")
    check_columns_compared(estimator, found, fitting=fitting, beside_pairs=beside_pairs)
    return found


def check_columns_compared(estimator: Any, data: Any, *, fitting: bool, beside_pairs: bool) -> None:
    """Tell an estimator the columns of comparisons, or refuse others than it has learned."""
    whose, names = "of the pairs" if beside_pairs else None, getattr(data, "feature_names", None)
    check_columns(estimator, int(data.shape[-1]), names, fitting=fitting, noun="comparisons", whose=whose)


def check_shape_of_comparisons(data: Any) -> None:
    shape = tuple(data.shape)
    if len(shape) != 3 or shape[1] not in (3, 4):
        what = " Pairs are judged by close/far labels or levels." if len(shape) == 3 and shape[1] == 2 else ""
        raise ValueError(f"{_SHAPES}; got {shape}.{what or ' Stack their points with numpy.stack([a, b, c], axis=1).'}")


def given_comparisons(comparisons: Any) -> tuple[Any, ...]:
    """Comparisons beside pairs as a tuple of data and, if they were given, answers and weights."""
    given = comparisons if isinstance(comparisons, tuple) else (comparisons, None)
    if len(given) not in (2, 3):
        raise ValueError(
            "comparisons must be an array, closefar.Tuples, (comparisons, y) or (comparisons, y, sample_weight); "
            f"got a tuple of {len(given)}."
        )
    return given


def check_legs_differ(data: Array) -> None:
    """Refuse comparisons of two legs that are the same."""
    found = rows_with_same_legs(data)
    if found:
        are, it = ("row", "that row") if len(found) == 1 else ("rows", "those rows")
        named = quoted(found, _MOST_VALUES_NAMED)
        raise ValueError(
            f"the two sides of a comparison must differ; those of {are} {named} are the same two points, or have "
            f"the same difference, so that no metric can tell which is nearer. Leave {it} out."
        )


def rows_with_same_legs(data: Array) -> list[int]:
    """The comparisons of two legs that are the same, in either direction: no metric tells which is nearer."""
    n, points = int(data.shape[0]), [point for leg in arrays.LEGS[int(data.shape[1])] for point in leg]
    found: list[int] = []
    for start in range(0, n, CHECKED_ROWS):
        rows = np.arange(start, min(start + CHECKED_ROWS, n))
        for columns in (slice(0, 1), slice(None)):  # most legs differ in the first column already
            if len(rows):
                numbers = arrays.to_numpy(arrays.take_rows(data, rows)[:, :, columns]).astype(np.float64, copy=False)
                a, b, c, e = (numbers[:, point] for point in points)
                near, far = a - b, c - e
                rows = rows[np.all(near == far, axis=1) | np.all(near == -far, axis=1)]
        found += rows.tolist()
    return found


def quadruplets_of(near: FloatArray, far: FloatArray) -> FloatArray:
    """Return comparisons with these differences as their legs, (n, 4, d): each leg is from a point to zero."""
    zero = np.zeros_like(near)
    return np.stack([near, zero, far, zero], axis=1)


def read_answers(answers: Any, n: int) -> tuple[NDArray[Any], BoolArray, Sides]:
    """Return the answers, which comparisons are as given (+1, 1 or True), and the two possible answers.

    The others (-1, 0 or False) are reversed: the second leg is the nearer one.
    """
    if answers is None:
        return np.broadcast_to(np.int64(1), n), np.broadcast_to(np.True_, n), Sides(np.array([-1, 1]))
    labels = column_or_1d(arrays.to_numpy(answers) if arrays.is_foreign(answers) else answers)
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


def _moved(data: Any, move: Callable[[Array], Array]) -> Any:
    """The data with its arrays moved; of pairs by index, both arrays."""
    if not isinstance(data, Tuples):
        return data if arrays.is_source(data) else move(data)
    points, index = move(data.points), move(data.index)
    return data if points is data.points and index is data.index else data.with_arrays(points, index)


def _like(model: Array, values: Array) -> Array:
    if not arrays.is_foreign(model):
        return arrays.to_numpy(values) if arrays.is_foreign(values) else values
    if type(values) is type(model) and getattr(values, "device", None) == getattr(model, "device", None):
        return values
    return arrays.like(model, arrays.to_numpy(values))


def effective_number(weights: FloatArray) -> float:
    """The number of equally weighted pairs with the same information: (sum w)^2 / sum w^2."""
    return float(weights.sum() ** 2 / np.vdot(weights, weights))


def sample_rows(n: int, most: int, seed: int = 0) -> IndexArray:
    """Return all row numbers, or a sorted random sample of `most` of them."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


@dataclass(frozen=True, eq=False, repr=False)
class Judgements:
    """Pairs, or single points, with a close/far label or a level and a weight each; or comparisons.

    Attributes
    ----------
    data : array of shape (n, d) or (n, 2, d), or a row source
        Differences or points, or pairs of points; comparisons have three or four points, (n, 3, d) or (n, 4, d).
    labels : array of shape (n,)
        As they were given.
    codes : array of n integers
        The number of the level of each, from 0, the closest.  Close is 0 and far is 1; a comparison is 1 if the second
        leg was judged farther.
    weights : array of shape (n,)
        How much each counts: a weight of 2 is a pair given twice.
    sides : Sides
        Which label means close, and which one far.
    taken : array of shape (n,), optional
        The row number of each among those that were given, where these are not all of them.
    annotators : Annotators, optional
        Who made each judgement.
    comparisons : Judgements, optional
        The comparisons that are fitted together with these pairs; they stay whole when some pairs are taken.
    """

    data: Array
    labels: NDArray[Any]
    codes: IndexArray
    weights: FloatArray
    sides: Sides
    taken: IndexArray | None = None
    annotators: Annotators | None = None
    comparisons: Judgements | None = None

    @classmethod
    def read(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sides: Sides | None = None,
        far_label: Any = None,
        levels: Any = None,
        is_graded: bool = False,
        annotators: Any = None,
        known_annotators: tuple[Any, ...] | None = None,
        comparisons: Any = None,
        stacklevel: int = 3,
    ) -> Judgements:
        """Validate judgements; opened pairs may have their labels and weights themselves.

        Without `sides` they are the training data of an estimator; if they are graded, `levels` is the order of the
        labels.  With `sides` they are for a fitted one, and must have its columns, its labels and its annotators.
        `comparisons` may be (data, y) or (data, y, sample_weight).
        """
        y, sample_weight = own_labels(X, y, sample_weight)
        data = check_pairs(estimator, X, fitting=sides is None)
        labels = column_of_labels(y, int(data.shape[0]), warn=sides is None)
        if sides is None and is_graded:
            sides = find_levels(y, labels, levels)
        elif sides is None:
            sides = find_sides(labels, far_label, stacklevel=stacklevel + 1)
        read = cls._of(data, labels, sides, sample_weight)
        if annotators is not None:
            read = replace(read, annotators=read_annotators(annotators, len(read), known_annotators))
        return read if comparisons is None else read.with_comparisons(estimator, comparisons)

    @classmethod
    def read_comparisons(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        fitting: bool,
        beside_pairs: bool = False,
    ) -> Judgements:
        """Validate comparisons: triplets or quadruplets, and +1 or -1 for each where some are reversed."""
        data = check_comparisons(estimator, X, fitting=fitting, beside_pairs=beside_pairs)
        check_legs_differ(data)
        labels, is_far, sides = read_answers(y, int(data.shape[0]))
        return cls(data, labels, is_far.view(np.int8), check_weights(sample_weight, len(labels), "comparison"), sides)

    def with_comparisons(self, estimator: Any, comparisons: Any) -> Judgements:
        """The same pairs with comparisons, which an estimator that has learned the columns of the pairs validates."""
        given = given_comparisons(comparisons)
        read = Judgements.read_comparisons(estimator, *given, fitting=False, beside_pairs=True)
        there = partial(_like, getattr(self.data, "points", self.data))  # the library and the device of the pairs
        return replace(self, comparisons=read.with_data(_moved(read.data, there)))

    @classmethod
    def of_signs(cls, data: Array, signs: Sequence[float] | FloatArray, weights: Any = None) -> Judgements:
        """Make judgements of labels +1 (far) and -1 (close)."""
        labels = np.asarray(signs, dtype=np.float64)
        n = int(data.shape[0])
        if labels.shape != (n,):
            raise ValueError(f"signs must be one per pair; got shape {labels.shape} for {n} pairs.")
        if not np.all(np.abs(labels) == 1):
            wrong = labels[np.abs(labels) != 1][0]
            raise ValueError(f"signs must be +1 (far) or -1 (close); got {wrong:g}.")
        return cls._of(data, labels, Sides(np.array([-1.0, 1.0])), weights)

    @classmethod
    def _of(cls, data: Array, labels: Any, sides: Sides, sample_weight: Any) -> Judgements:
        return cls(data, labels, codes_of(labels, sides), check_weights(sample_weight, len(labels)), sides)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "weights": None if self.is_uniform else self.weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore equal weights as one number, so that other processes compute with the same rounding."""
        vars(self).update(state)
        if state["weights"] is None:
            vars(self)["weights"] = check_weights(None, len(self))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        found = {Kind.CLOSE_FAR: f"{self.n_far} far", Kind.LEVELS: f"{self.n_levels} levels"}
        return f"Judgements({len(self)} of {self.n_columns} columns, {found.get(self.kind, self.kind)})"

    @property
    def kind(self) -> Kind:
        if self.sides.is_graded:
            return Kind.LEVELS
        has_legs = self.data.ndim == 3 and int(self.data.shape[1]) > 2
        return Kind.COMPARISONS if has_legs else Kind.CLOSE_FAR

    @property
    def n_levels(self) -> int:
        """The number of levels; close and far are two."""
        return len(self.sides.classes)

    @property
    def n_thresholds(self) -> int:
        """The number of thresholds between the levels; comparisons have none."""
        return 0 if self.kind is Kind.COMPARISONS else self.n_levels - 1

    @property
    def is_far(self) -> BoolArray:
        """Whether each is far, or above the lowest level; of comparisons, whether the second leg was judged farther."""
        return np.asarray(self.codes) > 0

    def dichotomy(self, number: int) -> Judgements:
        """Whether each level is at least that of this number, from 1: judgements with two labels."""
        level = self.sides.classes.tolist()[number]
        codes: IndexArray = (self.codes >= number).view(np.int8)
        words = np.array([f"< {level}", f">= {level}"])
        return replace(self, labels=words[codes], codes=codes, sides=Sides(words))

    @property
    def n_columns(self) -> int:
        return int(self.data.shape[-1])

    @property
    def n_in_memory(self) -> int:
        """How many rows this process computes with: none of those that are on a GPU."""
        return 0 if arrays.is_on_gpu(getattr(self.data, "points", self.data)) else len(self)

    @property
    def are_pairs(self) -> bool:
        """Whether both points of each pair are known, not their difference alone."""
        return bool(self.data.ndim == 3) and self.kind is not Kind.COMPARISONS

    @property
    def numbers(self) -> IndexArray:
        """The row number of each among those that were given."""
        return np.arange(len(self)) if self.taken is None else self.taken

    @property
    def shares(self) -> FloatArray:
        """The weights, summing to one."""
        if self.is_uniform:
            return np.broadcast_to(1.0 / max(len(self), 1), len(self))
        shares: FloatArray = self.weights / self.weights.sum()
        return shares

    @property
    def signs(self) -> FloatArray:
        """+1 for far, -1 for close."""
        return np.where(self.is_far, 1.0, -1.0)

    def signs_in(self, rows: Any, codes: Array = None) -> Array:
        """-1 for the closest level and reversed comparisons, +1 for others, as a handle of a row source."""
        return rows.map(partial(_signs, n_levels=self.n_levels), self.codes_in(rows) if codes is None else codes)

    def shares_in(self, rows: Any) -> Array:
        """The weights of pairs and comparisons, summing to one, as a handle of a row source of these judgements."""
        return rows.row_array(self.all_shares)

    @property
    def all_codes(self) -> IndexArray:
        """The codes of pairs, then those of their comparisons, which are K more beside K levels."""
        compared = self.comparisons
        return self.codes if compared is None else np.append(self.codes, self.n_levels + compared.codes)

    def codes_in(self, rows: Any) -> Array:
        """The same as a handle of a row source of these judgements."""
        return rows.row_array(self.all_codes.astype(np.int8, copy=False))

    def groups_in(self, rows: Any) -> Array:
        """The number of the annotator of each row as a handle; comparisons have that after the last, nobody's."""
        if self.annotators is None:
            raise ValueError("these judgements have no annotators.")
        n_compared = 0 if self.comparisons is None else len(self.comparisons)
        groups = np.append(self.annotators.codes, np.full(n_compared, len(self.annotators.names)))
        return rows.row_array(groups.astype(np.int32))

    @property
    def all_weights(self) -> FloatArray:
        """The weights of the pairs, then those of their comparisons."""
        return self.weights if self.comparisons is None else np.concatenate([self.weights, self.comparisons.weights])

    @property
    def all_shares(self) -> FloatArray:
        """The same weights, summing to one."""
        return self.shares if self.comparisons is None else self.all_weights / self.total_weight

    @property
    def total_weight(self) -> float:
        """The sum of all weights, those of comparisons included: the number of judgements, if there are none."""
        own = float(self.weights.sum())
        return own if self.comparisons is None else own + self.comparisons.total_weight

    def numbers_of(self, indices: IndexArray) -> IndexArray:
        """The row numbers of some of these judgements among those that were given."""
        return indices if self.taken is None else self.taken[indices]

    @property
    def is_uniform(self) -> bool:
        """Whether no weights were given: one number stands for all."""
        return self.weights.strides == (0,)

    @property
    def effective_number(self) -> float:
        """The number of equally weighted judgements with the same information: (sum w)^2 / sum w^2."""
        return float(len(self)) if self.is_uniform else effective_number(self.weights)

    @property
    def n_far(self) -> int:
        return int(self.totals[0][1:].sum())

    @property
    def n_rarer(self) -> int:
        """How many have the rarer label, or the rarest level; of comparisons, either answer will do: all of them."""
        return len(self) if self.kind is Kind.COMPARISONS else int(self.totals[0].min())

    @property
    def sample_weight(self) -> FloatArray | None:
        """The weights where there are any."""
        return None if self.is_uniform or np.all(self.weights == 1.0) else self.weights

    def mean(self, values: Any) -> float:
        """The weighted mean of one number per pair."""
        return float(np.mean(values) if self.is_uniform else np.average(values, weights=self.weights))

    def take(self, where: IndexArray) -> Judgements:
        """These judgements alone."""
        if len(where) == len(self) and np.array_equal(where, np.arange(len(self))):
            return self
        return replace(
            self,
            data=arrays.take_rows(self.data, where),
            labels=self.labels[where],
            codes=self.codes[where],
            weights=self.weights[: len(where)] if self.is_uniform else self.weights[where],
            taken=self.numbers_of(where),
            annotators=None if self.annotators is None else self.annotators.take(where),
        )

    def sample(self, n: int, seed: int) -> Judgements:
        """At most n of them, chosen at random, in their order."""
        return self.take(sample_rows(len(self), n, seed))

    def in_memory(self) -> Judgements:
        """The same judgements; those in partitions come to this process, very many as a sample."""
        return self

    def in_numpy(self) -> Judgements:
        """The same judgements with arrays of another library, or on a GPU, as NumPy arrays."""
        compared = None if self.comparisons is None else self.comparisons.in_numpy()
        return replace(self.with_data(_moved(self.data, arrays.to_numpy)), comparisons=compared)

    def counted(self) -> Judgements:
        """Those that count: of a weight above 0."""
        found = self if np.all(self.weights > 0) else self.take(np.flatnonzero(self.weights > 0))
        compared = None if self.comparisons is None else self.comparisons.counted()
        return found if compared is self.comparisons else replace(found, comparisons=compared)

    def weighted(self, class_weight: Any) -> Judgements:
        """The same with the weights of their classes, as in scikit-learn."""
        if class_weight is None:
            return self
        return self.with_weights(self.weights * check_class_weights(class_weight, self.labels))

    def with_weights(self, weights: FloatArray) -> Judgements:
        return replace(self, weights=weights)

    def check_both_count(self) -> None:
        """Refuse judgements of which a class, or a level, has no weight; for comparisons one side may be empty."""
        if self.kind is Kind.COMPARISONS:
            return
        is_graded, (counts, weights) = self.sides.is_graded, self.totals
        word, each = ("level", "each level (class) needs") if is_graded else ("class", "both classes need")
        for code, label in enumerate(self.sides.classes.tolist() if is_graded else (self.sides.close, self.sides.far)):
            if counts[code] == 0:
                rule = "pairs of each level" if is_graded else "both a close and a far class"
                raise ValueError(f"labels must contain {rule}; got no pairs of {word} {label}. Add some.")
            if weights[code] == 0.0:
                raise ValueError(
                    f"{each} a pair of positive weight; every pair of {word} {label} has weight 0. Raise some of those "
                    "weights or leave " + setting("sample_weight") + " out."
                )

    @property
    def totals(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The number, and the weight, of all pairs of each side, or level."""
        if self.n_levels == 2:  # counted without a copy of very many labels
            n_far = np.count_nonzero(self.codes)
            counts = np.array([len(self) - n_far, n_far])
        else:
            counts = np.bincount(self.codes, minlength=self.n_levels)
        return counts, counts if self.is_uniform else np.bincount(self.codes, self.weights, minlength=self.n_levels)

    def with_data(self, data: Array) -> Judgements:
        """The same judgements with their data on another device, or in other columns."""
        return self if data is self.data else replace(self, data=data)


def _signs(codes: Array, n_levels: int) -> Array:
    return 1.0 - 2.0 * arrays.as_float64((codes == 0) | (codes == n_levels))
