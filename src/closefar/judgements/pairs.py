"""Pairs as they are given, in memory or in partitions, and their validation before anything is computed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

from closefar.arrays import Array, is_dask, is_foreign, is_mapped, is_source, is_tensor, release
from closefar.engines import Movable
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
    """

    data: Any
    labels: Any = None
    weights: NDArray[Any] | None = None

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
    client : distributed.Client or closefar.engines.Engine, optional
        What computes with the partitions: by default the current client of Dask, or this process without one.
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
    sample = "X[:100_000].compute() and y[:100_000].compute()"
    if isinstance(pairs, DaskTuples):
        sample = "closefar.Tuples(points, index[:100_000].compute()) and y[:100_000].compute()"
    elif isinstance(pairs, Partitions):
        sample = "some of the files, opened without a client"
    elif hasattr(pairs, "divisions"):
        sample = "X.head(100_000, npartitions=-1) and y.head(100_000, npartitions=-1)"
    return sample


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
    rules: dict[str, Any] = {
        "dtype": (np.float64, np.float32),
        "ensure_min_samples": 2 if fitting else 1,
        "estimator": name_of(estimator),
    }
    if is_mapped(pairs) and pairs.dtype in rules["dtype"]:
        _check_mapped(pairs, rules["estimator"])
        rules["ensure_all_finite"] = False
    if is_source(pairs):
        data = pairs
        if len(data.shape) == 3:
            check_two_points(data.shape)
        check_size(data.shape, rules["ensure_min_samples"])
    elif is_foreign(pairs):
        data = check_foreign(pairs, rules["ensure_min_samples"], check_shape)
    elif _is_three_deep(pairs):
        data = check_array(pairs, allow_nd=True, input_name="pairs", **rules)
        check_two_points(data.shape)
    else:
        check_frame_columns(pairs)
        check_axes(pairs, (0, 1, 2))  # validation has more to say of few axes
        if not isinstance(estimator, Columns):
            return validate_data(estimator, pairs, reset=fitting, **rules)
        estimator.check_names(names_of_frame(pairs))
        data = check_array(pairs, input_name="X", **rules)
    check_number_of_columns(estimator, int(data.shape[-1]), fitting=fitting)
    if is_source(pairs):
        check_names_of_source(estimator, getattr(pairs, "feature_names", None), fitting=fitting)
    return data


def _check_mapped(pairs: NDArray[Any], name: str) -> None:
    """Check that the numbers of a memory map are finite, in parts that are released."""
    for start in range(0, len(pairs), CHECKED_ROWS):
        part = pairs[start : start + CHECKED_ROWS]
        check_array(part, allow_nd=True, dtype=None, ensure_min_features=0, estimator=name, input_name="X")
        release(pairs)


def name_of(estimator: Any) -> str:
    """Its name in messages."""
    return "the learner" if isinstance(estimator, Columns) else type(estimator).__name__


def check_axes(pairs: Any, allowed: tuple[int, ...]) -> None:
    """Refuse data that are neither differences nor pairs."""
    n_axes = getattr(pairs, "ndim", 2)
    if n_axes not in allowed:
        raise ValueError(f"X must be differences (n, d) or pairs (n, 2, d); got {n_axes} axes, {tuple(pairs.shape)}.")


def check_names_of_source(estimator: Any, names: tuple[str, ...] | None, *, fitting: bool) -> None:
    """Check the columns of pairs by index, or in a file: those of the fit where both have names."""
    if names is None:
        return
    if fitting:
        estimator.feature_names_in_ = np.array(names, dtype=object)
        return
    columns = estimator if isinstance(estimator, Columns) else Columns.of(estimator)
    if columns.names_in_data is not None:
        columns.check_names(names)


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
    if pairs.ndim == 3:
        check_two_points(pairs.shape)


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


def check_two_points(shape: tuple[int, ...]) -> None:
    """Refuse pairs of other than two points."""
    if shape[1] != 2 or shape[2] == 0:
        remedy = "Stack the two sides with numpy.stack([left, right], axis=1)."
        if shape[1] in (3, 4):
            remedy = "Fit triplets and quadruplets with ComparisonMetricLearner, or pass them as comparisons."
        raise ValueError(
            f"pairs must have shape (n, 2, d): n pairs of two points with d columns; got {tuple(shape)}. {remedy}"
        )


def check_number_of_columns(
    estimator: Any, n_columns: int, *, fitting: bool, noun: str = "pairs", whose: str | None = None
) -> None:
    """Tell an estimator that is fitted how many columns there are; refuse another number where it is not."""
    if fitting:
        estimator.n_features_in_ = n_columns
        vars(estimator).pop("feature_names_in_", None)
    elif n_columns != estimator.n_features_in_:
        raise ValueError(
            f"{noun} must have the {estimator.n_features_in_} columns "
            f"{whose or f'that {name_of(estimator)} was fitted with'}; got {n_columns}."
        )
