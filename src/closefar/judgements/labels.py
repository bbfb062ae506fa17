"""Close/far labels: which of two values means far, and which weight each label has."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, column_or_1d

from closefar.arrays import Array, BoolArray, FloatArray, is_foreign, is_source, to_numpy
from closefar.judgements.coded import CodedLabels

__all__ = [
    "Sides",
    "are_far",
    "check_class_weights",
    "check_weights",
    "column_of_labels",
    "few_different",
    "find_sides",
    "own_labels",
]

_PART = 1 << 18  # labels that are compared at a time, in cache
_VERY_MANY = 1 << 20


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
        column = column_or_1d(_in_numpy(labels) if is_foreign(labels) else labels, warn=warn)
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
            raise ValueError(f"far_label must be one of the two labels {classes.tolist()}; got {far_label!r}.")
        return Sides(classes, far_is_last=classes.tolist()[1] == far_label)
    if classes.dtype.kind in "OU" and [str(value).lower() for value in classes] != ["close", "far"]:
        warnings.warn(
            f"labels are {' and '.join(map(repr, classes.tolist()))}: the last one is taken as far. "
            "Set far_label to say which one means far.",
            UserWarning,
            stacklevel=stacklevel,
        )
    return Sides(classes)


def _in_numpy(labels: Array) -> NDArray[Any]:
    """Labels of another library; very many whole numbers in a byte each, where they are, before they are copied."""
    xp = array_namespace(labels)
    if labels.shape and labels.shape[0] >= _VERY_MANY and xp.isdtype(labels.dtype, "integral"):
        lowest, highest = int(xp.min(labels)), int(xp.max(labels))
        if lowest >= -128 and highest <= 127:
            labels = xp.astype(labels, xp.int8, copy=False)
    return to_numpy(labels)


def few_different(labels: NDArray[Any]) -> NDArray[Any]:
    """Return one label of each kind if there are at most two, without sorting them; otherwise the labels."""
    second = None
    for start in range(0, len(labels), _PART):
        part = labels[start : start + _PART]
        differs = part != labels[0]
        if second is None and np.any(differs):
            second = start + int(np.argmax(differs))
        if second is not None and np.any(differs & (part != labels[second])):
            return labels
    return labels[:1] if second is None else labels[[0, second]]


def are_far(labels: NDArray[Any] | CodedLabels, sides: Sides) -> BoolArray:
    """Say which labels mean far; each must be one of the two that a learner was fitted with."""
    far, n_known = np.empty(len(labels), dtype=bool), 0
    for start in range(0, len(labels), _PART):
        part = labels[start : start + _PART]
        far[start : start + _PART] = part == sides.far
        n_known += int(np.count_nonzero(far[start : start + _PART]) + np.count_nonzero(part == sides.close))
    if n_known != len(labels):
        unknown = ~far & ~np.asarray(labels == sides.close, dtype=bool)
        close, far_label = sides.classes.tolist()
        raise ValueError(
            f"labels must be those of the fit, {close!r} and {far_label!r}; {int(np.sum(unknown)):,} of "
            f"{len(labels):,} are not, such as {labels[unknown].tolist()[0]!r}."
        )
    return far


def check_weights(sample_weight: Any, n: int, noun: str = "pair") -> FloatArray:
    """Return one weight >= 0 per pair, not all 0; without any, ones that take no memory."""
    if sample_weight is None:
        return np.broadcast_to(1.0, n)
    given = to_numpy(sample_weight) if is_foreign(sample_weight) else np.asarray(sample_weight)
    if given.shape not in ((), (n,)):
        raise ValueError(f"sample_weight must hold one number per {noun}; got shape {given.shape} for {n} {noun}s.")
    weights: FloatArray = check_array(
        np.broadcast_to(given, n), ensure_2d=False, dtype=np.float64, input_name="sample_weight", ensure_min_samples=0
    )
    if not np.all(weights >= 0):
        raise ValueError(
            f"sample_weight must be >= 0; got {weights.min():g}. Give a {noun} that should not count the weight 0."
        )
    if n and not np.any(weights > 0):
        raise ValueError(
            "Sample weights must contain at least one non-zero number; got only zeros. Raise some of them."
        )
    return weights


def check_class_weights(class_weight: Any, labels: NDArray[Any] | CodedLabels) -> FloatArray:
    """Return the weight that the label of each pair has."""
    if isinstance(labels, CodedLabels):
        if isinstance(class_weight, dict):
            class_weight = {code: class_weight[word] for code, word in enumerate(labels.words) if word in class_weight}
        labels = labels.codes
    weights: FloatArray = compute_sample_weight(class_weight, labels)
    if not np.all(weights >= 0):
        raise ValueError(f"class_weight must be >= 0 for each class; got {class_weight!r}.")
    return weights
