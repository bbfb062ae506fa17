"""Close/far labels: which of two values means far, and which weight each label has."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, column_or_1d

from closefar.arrays import BoolArray, FloatArray, IndexArray, is_foreign, is_source, to_numpy
from closefar.errors import InvalidValueError, setting

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

    @property
    def shape(self) -> tuple[int]:
        return (len(self.codes),)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.words.dtype

    @property
    def ndim(self) -> int:
        return 1

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
    if isinstance(labels, CodedLabels):
        labels = np.array(list(labels.counts()), dtype=object)
    labels = few_different(labels)
    if labels.dtype.kind not in "biu":
        check_classification_targets(labels)
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


def few_different(labels: NDArray[Any]) -> NDArray[Any]:
    """Return one label of each kind if there are at most two, without sorting them; otherwise the labels."""
    differs = labels != labels[:1]
    if not np.any(differs):
        return labels[:1]
    second = int(np.argmax(differs))
    return labels if np.any(differs & (labels != labels[second])) else labels[[0, second]]


def are_far(labels: NDArray[Any] | CodedLabels, sides: Sides) -> BoolArray:
    """Say which labels mean far; each must be one of the two that a learner was fitted with."""
    far = np.asarray(labels == sides.far, dtype=bool)
    unknown = ~(far | np.asarray(labels == sides.close, dtype=bool))
    if np.any(unknown):
        close, far_label = sides.classes.tolist()
        raise ValueError(
            f"labels must be those of the fit, {close!r} and {far_label!r}; {int(np.sum(unknown)):,} of "
            f"{len(labels):,} are not, such as {labels[unknown].tolist()[0]!r}."
        )
    return far


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


def find_levels(given: Any, labels: NDArray[Any] | CodedLabels, order: Any = None) -> Sides:
    """Find the levels in their order: that of `order`, of ordered categories, or of numbers.

    `labels` are the column that was `given`.  Each level must have been used.
    """
    used = _different(labels)
    levels = _checked_order(order) if order is not None else _ordered_categories(given)
    if levels is None:
        levels = _ordered_numbers(used)
    if len(levels) > min(_MOST_DIFFERENT_LEVELS, max(_FEW_LEVELS, len(labels) // _PAIRS_PER_LEVEL)):
        raise ValueError(
            setting("levels")
            + f" must be few, each of many pairs; got {len(levels)} levels for {len(labels)} pairs, such as "
            f"{quoted(levels[:3])}. Bin them first, for instance with numpy.digitize."
        )
    sides = Sides(_as_array(levels), is_graded=True)
    level_codes(labels, sides, whose="", remedy="Add it to levels, in its place" if order is not None else "Correct it")
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
    return sides


def level_codes(
    labels: NDArray[Any] | CodedLabels, sides: Sides, *, whose: str = "those of the fit, ", remedy: str = "Correct it"
) -> IndexArray:
    """Return which of the levels, in their order, each label is."""
    codes = np.full(len(labels), -1, dtype=np.intp)
    for code, level in enumerate(sides.classes.tolist()):
        codes[np.asarray(labels == level, dtype=bool)] = code
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        value = labels[row : row + 1].tolist()[0]
        raise ValueError(
            f"each level must be one of {whose}{quoted(sides.classes.tolist())}; got {value!r} in row {row}. "
            f"{remedy}, or leave that row out."
        )
    return codes


def _different(labels: NDArray[Any] | CodedLabels) -> set[Any]:
    """The different labels, none of which is missing."""
    if isinstance(labels, CodedLabels):
        different: set[Any] = set(labels.counts())
    else:
        different = set(labels.tolist() if labels.dtype.kind == "O" else np.unique(labels).tolist())
    if any(is_missing(value) for value in different):
        row = next(row for row, value in enumerate(labels.tolist()) if is_missing(value))
        raise ValueError(
            f"each pair must have a level; got {labels.tolist()[row]!r} in row {row}. Fill it in, or leave that row "
            "out."
        )
    return different


def _checked_order(order: Any) -> list[Any]:
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
    return categories.tolist() if hasattr(categories, "tolist") else list(categories)


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
