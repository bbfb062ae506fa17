"""What is checked of partitions: each is inspected where it is loaded, and this process judges what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from closefar.arrays import is_foreign, to_numpy
from closefar.judgements.labels import Sides, few_different, find_sides
from closefar.judgements.pairs import check_columns, check_size
from closefar.judgements.partitions import Partition, Partitions
from closefar.judgements.tuples import Tuples

__all__ = ["Inspection", "check_inspections", "inspect"]

_MOST_LABELS = 1000  # that one partition reports; there should be two


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found in a partition: a few numbers, which travel in one round trip.

    Attributes
    ----------
    n_rows : int
    labels : array
        The different labels, sorted where they have an order; of very many the first.
    totals : tuple of float
        For each of at most two labels the sum of the weights.
    problem : str or None
        The message of an error.
    """

    n_rows: int
    labels: NDArray[Any]
    totals: tuple[float, ...] = ()
    problem: str | None = None


def inspect(partition: Partition, name: str = "LinearMetricLearner") -> Inspection:
    """Inspect the rows, labels and weights of a partition; errors are returned, so that the first one can be raised."""
    n = len(partition)
    labels = np.empty(0) if partition.labels is None else _different(partition.labels)
    try:
        _check_rows(partition.data, name)
        if partition.labels is not None and len(partition.labels) != n:
            raise ValueError(f"there must be one label per pair; got {len(partition.labels)} labels for {n} pairs.")
        weights = _checked_weights(partition.weights, n)
    except ValueError as error:
        return Inspection(n, labels, problem=str(error))
    are_few = 0 < len(labels) <= 2
    return Inspection(n, labels, tuple(_total(partition.labels == label, weights) for label in labels[: 2 * are_few]))


def check_inspections(
    estimator: Any,
    partitions: Partitions,
    inspections: Sequence[Inspection],
    far_label: Any = None,
    *,
    stacklevel: int = 3,
) -> Sides:
    """Raise what is wrong with the partitions; otherwise tell the estimator its columns, and return its labels."""
    for number, inspection in enumerate(inspections):
        if inspection.problem is not None:
            raise ValueError(f"{inspection.problem}\nThis is in partition {number} of {len(partitions)}, from 0.")
    n = sum(inspection.n_rows for inspection in inspections)
    check_size((n, partitions.n_columns), 2)
    sides = find_sides(_joined([inspection.labels for inspection in inspections]), far_label, stacklevel=stacklevel + 1)
    _check_totals(inspections, sides)
    check_columns(estimator, partitions.n_columns, partitions.feature_names)
    return sides


def _check_rows(data: Any, name: str) -> None:
    if len(data) == 0:
        return
    if isinstance(data, Tuples):
        Tuples(data.points, data.index)
    elif is_foreign(data):
        xp = array_namespace(data)
        if not bool(xp.all(xp.isfinite(data))):
            raise ValueError("X must hold finite numbers; got NaN or infinity. Leave those pairs out, or fill them in.")
    else:
        check_array(data, allow_nd=True, dtype=None, estimator=name, input_name="X")


def _different(labels: Any) -> NDArray[Any]:
    """The different labels; of text and missing values, which have no order, in the order in which they come."""
    if hasattr(labels, "counts"):
        return np.array(list(labels.counts()), dtype=object)
    few = few_different(labels)
    try:
        return np.unique(few)[:_MOST_LABELS]
    except TypeError:
        return np.array(list(dict.fromkeys(few.tolist()))[:_MOST_LABELS], dtype=object)


def _joined(labels: list[NDArray[Any]]) -> NDArray[Any]:
    """The different labels of all partitions."""
    some = [each for each in labels if len(each)]
    return np.concatenate(some) if some else np.empty(0)


def _checked_weights(weights: NDArray[Any] | None, n: int) -> NDArray[Any] | None:
    if weights is None or n == 0:
        return None
    given = to_numpy(weights) if is_foreign(weights) else np.asarray(weights)
    if given.shape != (n,):
        raise ValueError(f"sample_weight must hold one number per pair; got shape {given.shape} for {n} pairs.")
    checked: NDArray[Any] = check_array(given, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if not np.all(checked >= 0):
        raise ValueError(
            f"sample_weight must be >= 0; got {checked.min():g}. Give a pair that should not count the weight 0."
        )
    return checked


def _total(is_label: Any, weights: NDArray[Any] | None) -> float:
    chosen = np.asarray(is_label, dtype=bool)
    return float(chosen.sum() if weights is None else weights[chosen].sum())


def _check_totals(inspections: Sequence[Inspection], sides: Sides) -> None:
    """Refuse weights that are zero for all pairs, or for all pairs of a class."""
    totals = dict.fromkeys((sides.close, sides.far), 0.0)
    for inspection in inspections:
        for label, total in zip(inspection.labels.tolist(), inspection.totals, strict=True):
            totals[label] += total
    if not any(totals.values()):
        raise ValueError(
            "Sample weights must contain at least one non-zero number; got only zeros. Raise some of them."
        )
    for label, total in totals.items():
        if not total > 0:
            raise ValueError(
                f"both classes need a pair of positive weight; every pair of class {label} has weight 0. "
                "Raise some of those weights or leave sample_weight out."
            )
