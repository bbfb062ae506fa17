"""What a block of rows is, and every check that input passes before it becomes one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_array, column_or_1d, validate_data

from closefar.arrays import Array, FloatArray
from closefar.coordinates import Coordinates, find_coordinates

__all__ = ["Differences", "Rows", "are_far", "check_labels", "check_pairs", "check_weights", "unit_free_rows"]

# Up to this size the rows in unit-free coordinates are kept; beyond it each pass maps them anew.
_KEEP_BYTES = 1 << 28

BLOCK_BYTES = 1 << 22  # a block and its products stay in cache; the loop over blocks costs nothing
VECTOR_ROWS = 1 << 16

_NUMBER_KINDS = "biuf"


def _block_rows(d: int) -> int:
    return max(512, BLOCK_BYTES // (8 * d))


def _slices(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


class Differences:
    """The differences z = x - y, block by block: from an (n, d) array of z or an (n, 2, d) array of pairs."""

    def __init__(self, data: FloatArray) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    @property
    def n_features(self) -> int:
        return int(self.data.shape[-1])

    def read(self, where: slice) -> FloatArray:
        """These differences as float64, without touching the rest."""
        if self.data.ndim == 2:
            return self.data[where].astype(np.float64, copy=False)
        return np.subtract(self.data[where, 0], self.data[where, 1], dtype=np.float64)

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        for where in _slices(len(self), _block_rows(self.n_features)):
            yield where, self.read(where)

    def map(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Apply a function of a block that gives one number a row."""
        return np.concatenate([np.empty(0), *(function(block) for _, block in self.blocks())])


class Rows:
    """Rows in unit-free coordinates with a sign (far +1, close -1) and a weight each.

    Parameters
    ----------
    read : callable
        ``read(slice)`` returns those rows in unit-free coordinates, each as a column.
    signs, weights : arrays, one number a row
        The weights sum to one.
    n_directions : int
        Length of each column.
    """

    def __init__(self, read: Any, signs: Array, weights: Array, n_directions: int) -> None:
        self.read = read
        self.signs = signs
        self.weights = weights
        self.n_directions = n_directions

    def __len__(self) -> int:
        return int(self.signs.shape[0])

    def slices(self) -> Iterator[slice]:
        """Parts of the rows for work with one number a row."""
        return _slices(len(self), VECTOR_ROWS)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        for where in _slices(len(self), _block_rows(self.n_directions)):
            yield where, self.read(where)

    def second_moment(self) -> Array:
        """The weighted mean of zz'."""
        return sum((block * self.weights[where]) @ block.T for where, block in self.blocks())

    def factor_of(self, differences: Differences, factor: FloatArray) -> FloatArray:
        """Map a factor for the differences that these rows came from to the rows' coordinates.

        By least squares on the rows, which are well conditioned where the way there is not.
        """
        mapped: Any = sum(
            (self.read(where) * self.weights[where]) @ (block @ factor) for where, block in differences.blocks()
        )
        found: FloatArray = np.linalg.lstsq(self.second_moment(), mapped, rcond=None)[0]
        return found

    def subsample(self, indices: NDArray[np.int64]) -> Rows:
        """The rows at these sorted indices, held in memory, their weights rescaled to sum to one."""
        picked = []
        for where, block in self.blocks():
            first, last = np.searchsorted(indices, [where.start, where.stop])
            picked.append(block[:, indices[first:last] - where.start])
        columns = np.concatenate(picked, axis=1)
        weights = self.weights[indices]
        return Rows(lambda where: columns[:, where], self.signs[indices], weights / weights.sum(), self.n_directions)


def unit_free_rows(
    differences: Differences, signs: FloatArray, weights: FloatArray, *, with_constant: bool, mix_columns: bool = True
) -> tuple[Rows, Coordinates]:
    """Rows in unit-free coordinates, and the way back from those."""
    weights = weights / weights.sum()
    coordinates = find_coordinates(differences.blocks, weights, with_constant=with_constant, mix_columns=mix_columns)
    if coordinates.transform.shape[1] == 0:
        raise ValueError(
            "differences must not all be zero: no direction tells close from far; got only zero rows. "
            "Check that the two sides of the pairs are not the same objects."
        )

    def read(where: slice) -> FloatArray:
        return coordinates.apply(differences.read(where))

    if 8 * len(differences) * coordinates.n_directions <= _KEEP_BYTES:
        kept = np.empty((coordinates.n_directions, len(differences)))
        for where, block in differences.blocks():
            kept[:, where] = coordinates.apply(block)
        return Rows(lambda where: kept[:, where], signs, weights, coordinates.n_directions), coordinates
    return Rows(read, signs, weights, coordinates.n_directions), coordinates


def check_pairs(estimator: Any, pairs: Any, *, fitting: bool) -> Differences:
    """Check an (n, d) array or frame of differences or an (n, 2, d) array of pairs.

    Nothing is copied unless its type is not float32 or float64.
    """
    if _is_three_deep(pairs):
        return Differences(_check_two_sides(estimator, pairs, fitting=fitting))
    _check_columns(pairs)
    if getattr(pairs, "ndim", 2) > 3:
        raise ValueError(f"X must be differences (n, d) or pairs (n, 2, d); got {pairs.ndim} axes, {pairs.shape}.")
    data = validate_data(
        estimator, pairs, reset=fitting, dtype=(np.float64, np.float32), ensure_min_samples=2 if fitting else 1
    )
    return Differences(data)


def _is_three_deep(pairs: Any) -> bool:
    nested = isinstance(pairs, (list, tuple)) and len(pairs) > 0
    return getattr(pairs, "ndim", None) == 3 or (nested and getattr(np.asarray(pairs[0]), "ndim", 0) == 2)


def _check_two_sides(estimator: Any, pairs: Any, *, fitting: bool) -> FloatArray:
    data: FloatArray = check_array(
        pairs,
        allow_nd=True,
        dtype=(np.float64, np.float32),
        ensure_min_samples=2 if fitting else 1,
        estimator=estimator,
        input_name="pairs",
    )
    if data.shape[1] != 2 or data.shape[2] == 0:
        raise ValueError(
            f"pairs must have shape (n, 2, d): n pairs of two points with d columns; got {data.shape}. "
            "Stack the two sides with numpy.stack([left, right], axis=1)."
        )
    if fitting:
        estimator.n_features_in_ = data.shape[2]
        vars(estimator).pop("feature_names_in_", None)
    elif data.shape[2] != estimator.n_features_in_:
        raise ValueError(
            f"pairs must have the {estimator.n_features_in_} columns that {type(estimator).__name__} was fitted with; "
            f"got {data.shape[2]}."
        )
    return data


def _check_columns(frame: Any) -> None:
    """Name the first column of a frame that does not hold numbers."""
    if not (hasattr(frame, "columns") and hasattr(frame, "dtypes")):
        return
    for index, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        if getattr(dtype, "kind", "-") in _NUMBER_KINDS or str(dtype) in ("Boolean", "Null"):
            continue
        if hasattr(dtype, "is_numeric") and dtype.is_numeric():
            continue
        column = np.asarray(frame.iloc[:, index] if hasattr(frame, "iloc") else frame[name])
        if column.dtype.kind == "O" and all(isinstance(value, (int, float, np.number)) for value in column):
            continue
        example = f" (first value {column[0]!r})" if len(column) else ""
        raise ValueError(
            f"columns must hold numbers; column {name!r} has type {dtype}{example}. "
            "Encode it (for instance one-hot) or leave it out."
        )


def check_labels(labels: Any, far_label: Any, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the two classes, close first, and a sign for each label: far +1, close -1."""
    if labels is None:
        raise ValueError("requires y to be passed, but the target y is None: give one close/far label a pair.")
    labels = column_or_1d(labels, warn=True)
    if len(labels) != n:
        raise ValueError(f"there must be one label a pair; got {len(labels)} labels for {n} pairs.")
    if labels.dtype.kind not in "biu":
        check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}. "
            f"Labels must take two values, one for close and one for far; got {len(classes)}: {classes[:5].tolist()}."
        )
    if len(classes) < 2:
        raise ValueError(
            f"labels must contain both a close and a far class; got one class only: {classes.tolist()[0]!r}. "
            "A metric can't be learned from one class: add pairs of the other."
        )
    if far_label is not None:
        if far_label not in classes.tolist():
            raise ValueError(f"far_label must be one of the two labels {classes.tolist()}; got {far_label!r}.")
        classes = np.array([classes[classes != far_label][0], far_label], dtype=classes.dtype)
    elif classes.dtype.kind in "OU" and [str(value).lower() for value in classes] != ["close", "far"]:
        warnings.warn(
            f"labels are {' and '.join(map(repr, classes.tolist()))}: the last one is taken as far. "
            "Set far_label to say which one means far.",
            UserWarning,
            stacklevel=3,
        )
    return classes, np.where(labels == classes[1], 1.0, -1.0)


def are_far(labels: Any, classes: NDArray[Any], n: int) -> NDArray[np.bool_]:
    """Say which labels mean far; each must be one of the two that a learner was fitted with, close first."""
    labels = column_or_1d(labels)
    if len(labels) != n:
        raise ValueError(f"there must be one label a pair; got {len(labels)} labels for {n} pairs.")
    far = np.asarray(labels == classes[1], dtype=bool)
    unknown = ~far & ~np.asarray(labels == classes[0], dtype=bool)
    if np.any(unknown):
        raise ValueError(f"labels must be those of the fit, {classes.tolist()}; got {labels[unknown].tolist()[0]!r}.")
    return far


def check_weights(sample_weight: Any, class_weight: Any, labels: FloatArray, differences: Differences) -> FloatArray:
    """Return one weight >= 0 a pair, not all zero."""
    weights = np.ones(len(differences))
    if sample_weight is None and class_weight is None:
        return weights
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, differences.data, dtype=np.float64)
        if not np.all(weights >= 0):
            raise ValueError(
                f"sample_weight must be >= 0; got {weights.min():g}. Give a pair that should not count the weight 0."
            )
    if class_weight is not None:
        weights = weights * compute_sample_weight(class_weight, labels)
        if not np.all(weights >= 0):
            raise ValueError(f"class_weight must be >= 0 for both classes; got {class_weight!r}.")
    for label in np.unique(labels):
        if not np.any(weights[labels == label] > 0):
            raise ValueError(
                f"both classes need a pair of positive weight; every pair of class {label} has weight 0. "
                "Raise some of those weights or leave sample_weight out."
            )
    return weights
