"""What judgements must be like: data and their columns, labels, levels and weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from closefar.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IndexArray,
    is_dask,
    is_foreign,
    is_mapped,
    is_source,
    is_tensor,
    release,
    to_numpy,
)
from closefar.cluster import Movable
from closefar.errors import InvalidValueError, setting
from closefar.judgements.tuples import DaskTuples, check_frame_columns, checked_tensor, names_of_frame

# ---------------------------------------------------------------------------------------------------------------------
# Labelled rows in partitions, on a cluster or in many files, which are loaded again when they are lost.


@dataclass(frozen=True, eq=False)
class Partition(Movable):
    """The rows of one partition, in the memory of the process that loaded it; nothing is checked yet.

    Attributes
    ----------
    data : array of shape (m, d) or (m, 2, d), or Tuples
        Differences or points, pairs of points, or pairs of shared points by index; m may be 0.
    labels : array of shape (m,), optional
        As they were given: strings, numbers, or `CodedLabels`.
    weights : array of shape (m,), optional
    annotators : array of shape (m,), optional
        Who made each judgement.
    """

    data: Any
    labels: Any = None
    weights: NDArray[Any] | None = None
    annotators: Any = None

    def __len__(self) -> int:
        return int(self.data.shape[0])

    @property
    def nbytes(self) -> int:
        """The memory that the rows, the labels and the weights take."""
        return sum(int(getattr(each, "nbytes", 0)) for each in (self.data, self.labels, self.weights))


@dataclass(frozen=True, eq=False, repr=False)
class Partitions:
    """Labelled rows in partitions, each of which is loaded where it is computed with, and loaded again if it is lost.

    Partition p is ``load(tasks[p], shared)``, called inside a task.  It gives the same bits each time, and all
    partitions have the same columns, in their order.

    Attributes
    ----------
    tasks : tuple
        What each partition is loaded from: a small value that can be pickled (a path and some row groups), or a
        `dask.delayed.Delayed`, which an engine replaces by its result.
    load : callable (task, shared) -> Partition
        Can be pickled.
    n_columns : int
    are_pairs : bool
        Whether rows are pairs of points, (m, 2, d) or `Tuples`, and not differences, (m, d).
    shared : optional
        What all partitions need, once per worker: a value, or a `dask.delayed.Delayed`.  The points of pairs by index.
    n_rows : tuple of int, optional
        The number of rows of each partition; None if that is known only once they are loaded.
    feature_names : tuple of str, optional
        The names of the columns.
    has_labels, has_weights : bool
        Whether partitions have labels, and weights.
    is_single : bool
        Whether rows of shape (m, d) are single points, or differences whose points nobody gave, and not the
        differences of pairs whose two points are in the files.
    client : distributed.Client, optional
        What computes with the partitions: by default the current client of Dask, or this process without one.
    n_points : int, optional
        The points of a row: three or four of comparisons.  By default two of pairs, and one otherwise.
    """

    tasks: tuple[Any, ...]
    load: Callable[[Any, Any], Partition]
    n_columns: int
    are_pairs: bool
    shared: Any = None
    n_rows: tuple[int, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    has_labels: bool = True
    has_weights: bool = False
    is_single: bool = True
    client: Any = None
    n_points: int = 0

    def __post_init__(self) -> None:
        if not self.n_points:
            object.__setattr__(self, "n_points", 2 if self.are_pairs else 1)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        rows = "rows" if self.n_rows is None else f"{sum(self.n_rows):,} rows"
        return f"Partitions({len(self.tasks):,} partitions, {rows} of {self.n_columns} columns)"


def is_partitioned(pairs: Any) -> bool:
    """Whether these pairs are in partitions, and not in the memory of this process: dask data, or `Partitions`."""
    return is_dask(pairs) or isinstance(pairs, DaskTuples | Partitions)


def refuse_partitions(pairs: Any) -> None:
    """Refuse pairs in partitions where all of them would have to be in the memory of this process."""
    if is_partitioned(pairs):
        raise ValueError(
            f"this needs pairs in memory; got {type(pairs).__name__}, whose rows are computed elsewhere. Pass a "
            f"sample: {words_for_sample(pairs)}."
        )


def words_for_sample(pairs: Any) -> str:
    """Return what to pass instead of these pairs and their labels: some of them, in memory."""
    if isinstance(pairs, DaskTuples):
        return "closefar.Tuples(points, index[:100_000].compute()) and y[:100_000].compute()"
    if isinstance(pairs, Partitions):
        return "some of the files, opened without a client"
    if hasattr(pairs, "divisions"):
        return "X.head(100_000, npartitions=-1) and y.head(100_000, npartitions=-1)"
    return "X[:100_000].compute() and y[:100_000].compute()"


# ---------------------------------------------------------------------------------------------------------------------
# The columns that a fit was made with: how many, and their names.


@dataclass(frozen=True)
class Columns:
    """The columns that new data must have to match those of a fit.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.
    names : tuple of str, optional
        The names used to present what is learned.
    names_in_data : tuple of str, optional
        The names in the training data itself.
    """

    n_features_in_: int
    names: tuple[str, ...] | None = None
    names_in_data: tuple[str, ...] | None = None

    @classmethod
    def of(cls, estimator: Any, names: Sequence[str] | None = None) -> Columns:
        """Take over the columns that an estimator has seen; `names` where the data had none."""
        n_columns = estimator.n_features_in_
        if names is not None and len(names) != n_columns:
            raise ValueError(f"there must be a feature name for each of the {n_columns} columns; got {len(names)}.")
        seen = getattr(estimator, "feature_names_in_", None)
        known = seen if names is None else names
        return cls(n_columns, None if known is None else tuple(known), None if seen is None else tuple(seen))

    def check_names(self, names: tuple[str, ...] | None) -> None:
        """Refuse columns that have other names, or another order, than those of the fit."""
        if names == self.names_in_data:
            return
        if names is None or self.names_in_data is None:
            has, had = ("no feature names", "with") if names is None else ("feature names", "without")
            warnings.warn(f"X has {has}, but the learner was fitted {had} feature names", UserWarning, stacklevel=2)
            return
        raise ValueError(
            f"columns must be those of the fit, in its order, {list(self.names_in_data)}; got {list(names)}. "
            "Select them by these names."
        )


CHECKED_ROWS = 1 << 16  # at a time


def check_pairs(estimator: Any, pairs: Any, *, fitting: bool) -> Array:
    """Check an (n, d) array or frame of differences, an (n, 2, d) array of pairs, or pairs by index.

    Nothing is copied unless its type is not float32 or float64; arrays of other libraries, and
    sources, stay what they are.  `estimator` learns the columns where it is fitting, and must have
    learned the same ones where it is not; it may then be the `Columns` of a fit.
    """
    refuse_partitions(pairs)
    least = 2 if fitting else 1
    if is_source(pairs) or is_foreign(pairs) or _is_three_deep(pairs):
        data = check_rows(pairs, least, check_shape, name_of(estimator))
    else:
        check_frame_columns(pairs)
        check_axes(pairs, (0, 1, 2))  # validation has more to say of few axes
        rules = _rules(pairs, least, name_of(estimator))
        if not isinstance(estimator, Columns):
            return validate_data(estimator, pairs, reset=fitting, **rules)
        estimator.check_names(names_of_frame(pairs))
        data = check_array(pairs, input_name="X", **rules)
    names = getattr(pairs, "feature_names", None) if is_source(pairs) else None
    check_columns(estimator, int(data.shape[-1]), names, fitting=fitting)
    return data


def check_rows(data: Any, least: int, check_shape: Callable[[Array], None], name: str, noun: str = "pair") -> Array:
    """Check a row source, an array of another library, or a NumPy array of tuples of points."""
    if is_source(data):
        check_shape(data)
        check_size(data.shape, least, noun)
        return data
    if is_foreign(data):
        return check_foreign(data, least, check_shape, noun)
    found = check_array(data, allow_nd=True, input_name=f"{noun}s", **_rules(data, 0, name))
    check_shape(found)
    check_size(found.shape, least, noun)
    return found


def _rules(data: Any, least: int, name: str) -> dict[str, Any]:
    """What scikit-learn checks; that the numbers of a memory map are finite is checked here, in parts."""
    types = (np.float64, np.float32)
    is_checked = is_mapped(data) and data.dtype in types
    for start in range(0, len(data) if is_checked else 0, CHECKED_ROWS):
        part = data[start : start + CHECKED_ROWS]
        check_array(part, allow_nd=True, dtype=None, ensure_min_features=0, estimator=name, input_name="X")
        release(data)
    return {"dtype": types, "ensure_min_samples": least, "ensure_all_finite": not is_checked, "estimator": name}


def name_of(estimator: Any) -> str:
    """Its name in messages."""
    return "the learner" if isinstance(estimator, Columns) else type(estimator).__name__


def check_axes(pairs: Any, allowed: tuple[int, ...]) -> None:
    """Refuse data that are neither differences nor pairs."""
    n_axes = getattr(pairs, "ndim", 2)
    if n_axes not in allowed:
        raise ValueError(f"X must be differences (n, d) or pairs (n, 2, d); got {n_axes} axes, {tuple(pairs.shape)}.")


def check_foreign(pairs: Array, least: int, check_shape: Callable[[Array], None], noun: str = "pair") -> Array:
    """Check an array of another library where it is."""
    if is_tensor(pairs):
        pairs = checked_tensor(pairs, "X")
    xp = array_namespace(pairs)
    check_shape(pairs)
    if not xp.isdtype(pairs.dtype, "real floating"):
        if not xp.isdtype(pairs.dtype, ("bool", "integral")):
            raise ValueError(f"columns must hold real numbers; got an array of {pairs.dtype}. Convert it to floats.")
        pairs = xp.astype(pairs, xp.float64)
    check_size(pairs.shape, least, noun)
    # NaN and infinity show in the extremes, which take no memory and only one transfer from another device.
    if not math.isfinite(float(xp.max(pairs) - xp.min(pairs))) and not bool(xp.all(xp.isfinite(pairs))):
        raise ValueError(f"X must hold finite numbers; got NaN or infinity. Leave those {noun}s out, or fill them in.")
    return pairs


def check_shape(pairs: Array) -> None:
    """Refuse an array that holds neither differences nor pairs of two points."""
    check_axes(pairs, (2, 3))
    shape = tuple(pairs.shape)
    if len(shape) == 3 and (shape[1] != 2 or shape[2] == 0):
        remedy = "Stack the two sides with numpy.stack([left, right], axis=1)."
        if shape[1] in (3, 4):
            remedy = "Fit triplets and quadruplets with ComparisonMetricLearner, or pass them as comparisons."
        raise ValueError(
            f"pairs must have shape (n, 2, d): n pairs of two points with d columns; got {shape}. {remedy}"
        )


def check_size(shape: tuple[int, ...], least: int, noun: str = "pair") -> None:
    """Refuse too few pairs, and pairs without columns."""
    if shape[0] < least:
        raise ValueError(
            f"there must be at least {least} {noun if least == 1 else noun + 's'}; got {shape[0]}. Give more."
        )
    if shape[-1] == 0:
        raise ValueError(f"there must be at least one column; got shape {tuple(shape)}. Give columns to compare.")


def _is_three_deep(pairs: Any) -> bool:
    nested = isinstance(pairs, (list, tuple)) and len(pairs) > 0
    return getattr(pairs, "ndim", None) == 3 or (nested and getattr(np.asarray(pairs[0]), "ndim", 0) == 2)


def check_columns(
    estimator: Any,
    n_columns: int,
    names: tuple[str, ...] | None,
    *,
    fitting: bool,
    noun: str = "pairs",
    whose: str | None = None,
) -> None:
    """Tell an estimator that is fitted its columns; refuse other ones where it is not, if both have names."""
    if fitting:
        estimator.n_features_in_ = n_columns
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return
    if n_columns != estimator.n_features_in_:
        raise ValueError(
            f"{noun} must have the {estimator.n_features_in_} columns "
            f"{whose or f'that {name_of(estimator)} was fitted with'}; got {n_columns}."
        )
    columns = estimator if isinstance(estimator, Columns) else Columns.of(estimator)
    if names is not None and columns.names_in_data is not None:
        columns.check_names(names)


# ---------------------------------------------------------------------------------------------------------------------
# Values that are missing: None, NaN, NaT, pandas' NA, an empty string.


def is_missing(value: Any) -> bool:
    """Whether there is no value."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # NA is neither equal to itself nor different
        return True


def refuse_missing(values: Any, different: Iterable[Any], rule: str) -> None:
    """Refuse values one of which is missing; `different` has each of them once."""
    if any(is_missing(value) for value in different):
        rows = enumerate(values if isinstance(values, list) else values.tolist())
        row, value = next((row, value) for row, value in rows if is_missing(value))
        raise ValueError(f"{rule}; got {value!r} in row {row}. Fill it in, or leave that row out.")


# ---------------------------------------------------------------------------------------------------------------------
# Labels of very many pairs: the different words once, and a small number per pair.


class CodedLabels:
    """A column of a few different words, which acts as an array of them, with one byte or two per row.

    Parameters
    ----------
    words : sequence of str
        The different labels.
    codes : array of n integers
        Which of them each row has.
    """

    def __init__(self, words: Any, codes: NDArray[Any]) -> None:
        self.words: NDArray[np.object_] = np.array(list(words), dtype=object)
        self.codes = codes

    ndim = 1

    @property
    def shape(self) -> tuple[int]:
        return (len(self.codes),)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.words.dtype

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        counts = ", ".join(f"{word!r}: {count:,}" for word, count in self.counts().items())
        return f"CodedLabels({counts})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("coded labels must be copied to become an array; got copy=False.")
        return np.asarray(self.words[self.codes], dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        codes = self.codes[key]
        return CodedLabels(self.words, codes) if np.ndim(codes) else self.words[codes]

    def __eq__(self, other: object) -> BoolArray:  # type: ignore[override]
        is_other = np.array([word == other for word in self.words], dtype=bool)
        found: BoolArray = is_other[self.codes]
        return found

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[str]:
        return list(self.words[self.codes])

    def counts(self) -> dict[str, int]:
        """How many rows have each of the labels that are there, in the order of the words."""
        counts = np.bincount(self.codes, minlength=len(self.words)).tolist()
        return {word: count for word, count in sorted(zip(self.words, counts, strict=True)) if count}


@dataclass(frozen=True, eq=False)
class Sides:
    """The two labels, sorted as scikit-learn has them, and which of them means far; or levels, in their order."""

    classes: NDArray[Any]
    far_is_last: bool = True
    is_graded: bool = False

    @classmethod
    def of(cls, close: Any, far: Any) -> Sides:
        classes = np.unique(np.array([close, far]))
        return cls(classes, bool(classes[1] == far))

    @classmethod
    def in_order(cls, labels: Sequence[Any]) -> Sides:
        """The sides of labels from closest to farthest: two, or levels; without any, those of comparisons."""
        if not labels:
            return cls(np.array([-1, 1]))
        return cls.of(*labels) if len(labels) == 2 else cls(np.array(labels), is_graded=True)

    @property
    def close(self) -> Any:
        return self.classes.tolist()[0 if self.far_is_last else -1]

    @property
    def far(self) -> Any:
        return self.classes.tolist()[-1 if self.far_is_last else 0]


def own_labels(pairs: Any, labels: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Return the labels and weights that are given or, without labels, those that opened pairs have themselves."""
    if labels is not None or not is_source(pairs):
        return labels, sample_weight
    return getattr(pairs, "labels", None), getattr(pairs, "weights", None) if sample_weight is None else sample_weight


def column_of_labels(labels: Any, n: int, *, warn: bool = False) -> Any:
    """Return the labels as an array of n; coded ones stay what they are."""
    if labels is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: give one close/far label or level per pair, or name "
            "the column of an opened file that holds them (label=)."
        )
    column = labels
    if not isinstance(labels, CodedLabels):
        column = column_or_1d(to_numpy(labels) if is_foreign(labels) else labels, warn=warn)
    if len(column) != n:
        raise ValueError(f"there must be one label per pair; got {len(column)} labels for {n} pairs.")
    return column


def find_sides(labels: NDArray[Any] | CodedLabels, far_label: Any, *, stacklevel: int = 3) -> Sides:
    """Find the two labels, and which of them means far: `far_label` or, where that is None, the one that sorts last."""
    labels = different_labels(labels)
    classes = np.unique(labels)
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}. "
            f"Labels must take two values, one for close and one for far; got {len(classes)}: {classes[:5].tolist()}. "
            "For ordered levels use OrdinalMetricLearner."
        )
    if len(classes) < 2:
        raise ValueError(
            f"labels must contain both a close and a far class; got one class only: {classes.tolist()[0]!r}. "
            "Nothing can be learned from one class: add pairs of the other."
        )
    if far_label is not None:
        if far_label not in classes.tolist():
            raise InvalidValueError("far_label", f"must be one of the two labels {classes.tolist()}", far_label)
        return Sides(classes, far_is_last=classes.tolist()[1] == far_label)
    if classes.dtype.kind in "OU" and [str(value).lower() for value in classes] != ["close", "far"]:
        warnings.warn(
            (
                f"labels are {' and '.join(map(repr, classes.tolist()))}: the last one is taken as far. Set "
                + setting("far_label")
                + " to say which one means far."
            ),
            UserWarning,
            stacklevel=stacklevel,
        )
    return Sides(classes)


def different_labels(labels: NDArray[Any] | CodedLabels) -> NDArray[Any]:
    """Return one label of each kind if there are at most two, without sorting them; otherwise the labels.

    They must be labels of classes, not measurements.
    """
    if isinstance(labels, CodedLabels):
        labels = np.array(list(labels.counts()), dtype=object)
    differs = labels != labels[:1]
    if np.any(differs):
        second = int(np.argmax(differs))
        labels = labels if np.any(differs & (labels != labels[second])) else labels[[0, second]]
    else:
        labels = labels[:1]
    if labels.dtype.kind not in "biu":
        check_classification_targets(labels)
    return labels


def codes_of(labels: NDArray[Any] | CodedLabels, sides: Sides) -> IndexArray:
    """Return the number of the level that each label is, from 0; for two labels, 1 is far.

    Each must be one of those that a learner was fitted with.
    """
    if sides.is_graded:
        return level_codes(labels, sides.classes.tolist())
    far = np.asarray(labels == sides.far, dtype=bool)
    unknown = ~(far | np.asarray(labels == sides.close, dtype=bool))
    if np.any(unknown):
        close, far_label = sides.classes.tolist()
        raise ValueError(
            f"labels must be those of the fit, {close!r} and {far_label!r}; {int(np.sum(unknown)):,} of "
            f"{len(labels):,} are not, such as {labels[unknown].tolist()[0]!r}."
        )
    return far.view(np.int8)


ALL_WEIGHTS_ARE_ZERO = "Sample weights must contain at least one non-zero number; got only zeros. Raise some of them."


def check_weights(sample_weight: Any, n: int, noun: str = "pair", *, may_be_zero: bool = False) -> FloatArray:
    """Return one weight >= 0 per pair, by default not all 0; without any, ones that take no memory."""
    if sample_weight is None:
        return np.broadcast_to(1.0, n)
    given = to_numpy(sample_weight) if is_foreign(sample_weight) else np.asarray(sample_weight)
    if given.shape not in ((), (n,)):
        raise ValueError(
            setting("sample_weight") + f" must hold one number per {noun}; got shape {given.shape} for {n} {noun}s."
        )
    weights: FloatArray = check_array(
        np.broadcast_to(given, n), ensure_2d=False, dtype=np.float64, input_name="sample_weight", ensure_min_samples=0
    )
    if not np.all(weights >= 0):
        raise ValueError(
            setting("sample_weight")
            + f" must be >= 0; got {weights.min():g}. Give a {noun} that should not count the weight 0."
        )
    if n and not may_be_zero and not np.any(weights > 0):
        raise ValueError(ALL_WEIGHTS_ARE_ZERO)
    return weights


def check_class_weights(class_weight: Any, labels: NDArray[Any] | CodedLabels) -> FloatArray:
    """Return the weight that the label of each pair has."""
    if isinstance(labels, CodedLabels):
        if isinstance(class_weight, dict):
            class_weight = {code: class_weight[word] for code, word in enumerate(labels.words) if word in class_weight}
        labels = labels.codes
    weights: FloatArray = compute_sample_weight(class_weight, labels)
    if not np.all(weights >= 0):
        raise InvalidValueError("class_weight", "must be >= 0 for each class", class_weight)
    return weights


# ---------------------------------------------------------------------------------------------------------------------
# Levels of pairs, from the closest to the farthest: ordered numbers, ordered categories, or words in a given order.


# Levels at most; beyond ten there must be four pairs per level: more are probably measurements.
_MOST_DIFFERENT_LEVELS, _FEW_LEVELS, _PAIRS_PER_LEVEL = 100, 10, 4


def find_levels(given: Any, labels: NDArray[Any] | CodedLabels, order: Any = None, n: int | None = None) -> Sides:
    """Find the levels in their order: that of `order`, of ordered categories, or of numbers.

    `labels` are the column that was `given`, or the different ones of n.  Each level must have been used.
    """
    order = None if order is None else checked_order(order)
    used, n = different_levels(labels), len(labels) if n is None else n
    levels = order or _ordered_categories(given) or _ordered_numbers(used)
    if len(levels) > min(_MOST_DIFFERENT_LEVELS, max(_FEW_LEVELS, n // _PAIRS_PER_LEVEL)):
        raise ValueError(
            setting("levels") + f" must be few, each of many pairs; got {len(levels)} levels for {n} pairs, such as "
            f"{quoted(levels[:3])}. Bin them first, for instance with numpy.digitize."
        )
    unused = [level for level in levels if level not in used]
    if unused:
        how = "levels" if order is not None else "the categories (with remove_unused_categories() of pandas)"
        it = "it" if len(unused) == 1 else "them"
        raise ValueError(
            f"each level must have been used; nobody used {quoted(unused)}. Leave {it} out of {how}, or add pairs "
            f"that were judged with {it}."
        )
    if len(levels) < 2:
        raise ValueError(
            f"there must be at least two levels (classes); got {quoted(levels)} alone. Add pairs of another level."
        )
    return Sides(_as_array(levels), is_graded=True)


def level_codes(labels: NDArray[Any] | CodedLabels, levels: list[Any]) -> IndexArray:
    """Return which of the levels, in their order, each label is."""
    codes = np.full(len(labels), -1, dtype=np.intp)
    for code, level in enumerate(levels):
        codes[np.asarray(labels == level, dtype=bool)] = code
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        value = labels[row : row + 1].tolist()[0]
        raise ValueError(
            f"each level must be one of {quoted(levels)}; got {value!r} in row {row}. Correct it, add it to the levels "
            "of the fit, in its place, or leave that row out."
        )
    return codes


def different_levels(labels: NDArray[Any] | CodedLabels) -> set[Any]:
    """The different labels, none of which is missing."""
    if isinstance(labels, CodedLabels):
        different: set[Any] = set(labels.counts())
    else:
        different = set(labels.tolist() if labels.dtype.kind == "O" else np.unique(labels).tolist())
    refuse_missing(labels, different, "each pair must have a level")
    return different


def checked_order(order: Any) -> list[Any]:
    """The levels that a user gave in their order."""
    if isinstance(order, str | set | frozenset) or not hasattr(order, "__iter__"):
        raise InvalidValueError("levels", "must be a list, from the closest to the farthest level", order)
    levels = [_plain(level) for level in order]
    if len(levels) < 2:
        raise ValueError(setting("levels") + f" must list at least two levels (classes); got {levels}.")
    repeated = [level for level in levels if levels.count(level) > 1]
    if repeated:
        raise ValueError(
            setting("levels") + f" must be different; got {repeated[0]!r} twice. List each level once, in their order."
        )
    return levels


def _ordered_categories(given: Any) -> list[Any] | None:
    """The categories of an ordered categorical of pandas, or of an Enum of polars."""
    dtype = getattr(given, "dtype", None)
    categories = getattr(dtype, "categories", None)
    is_ordered = getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum"
    if categories is None or not is_ordered:
        return None
    found = categories.tolist() if hasattr(categories, "tolist") else list(categories)
    if "__UNKNOWN_CATEGORIES__" in found:  # of dask
        raise ValueError("the categories of levels must be known; got unknown ones. Call y.cat.as_known().")
    return found


def _ordered_numbers(used: set[Any]) -> list[Any]:
    words = [value for value in used if not isinstance(value, int | float | np.number | np.bool_)]
    if words:
        raise ValueError(
            f"levels that are words need an order; got {quoted(sorted(map(str, used)))}. Set "
            + setting("levels")
            + " to a list of them, from the closest to the farthest, or give numbers or an ordered "
            "categorical."
        )
    infinite = [value for value in used if abs(value) == np.inf]
    if infinite:
        raise ValueError(
            setting("levels") + f" must be finite numbers; got {infinite[0]}. Correct it, or leave those pairs out."
        )
    return [_plain(level) for level in sorted(used)]


def _plain(level: Any) -> Any:
    """A number of NumPy as Python's."""
    return level.item() if isinstance(level, np.generic) else level


def _as_array(levels: list[Any]) -> NDArray[Any]:
    """The levels as an array: of numbers, of strings, or of objects of several kinds."""
    if any(all(isinstance(level, kind) for level in levels) for kind in (str, int | float)):
        return np.array(levels)
    found = np.empty(len(levels), dtype=object)
    found[:] = levels
    return found


def quoted(values: Sequence[Any], most: int = 8) -> str:
    """The first of these values, and how many more there are: in messages."""
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return ", ".join(map(repr, values[:most])) + more
