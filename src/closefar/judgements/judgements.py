"""Labelled pairs: one type, validated once, for every fit and every question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, is_on_gpu, take_rows
from closefar.judgements.labels import (
    Sides,
    are_far,
    check_class_weights,
    check_weights,
    column_of_labels,
    find_sides,
    own_labels,
)
from closefar.judgements.pairs import check_pairs

__all__ = ["Judgements", "effective_number", "sample_rows"]

_VERY_MANY = 1 << 20


def effective_number(weights: FloatArray) -> float:
    """The number of equally weighted pairs with the same information: (sum w)^2 / sum w^2."""
    return float(weights.sum() ** 2 / np.vdot(weights, weights))


def sample_rows(n: int, most: int, seed: int = 0) -> IndexArray:
    """Which of n rows a question is answered with: all or, of more than `most`, so many at random, in their order."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


@dataclass(frozen=True, eq=False, repr=False)
class Judgements:
    """Pairs, or single points, with a close/far label and a weight each.

    Attributes
    ----------
    data : array of shape (n, d) or (n, 2, d), or a row source
        Differences or points, or pairs of points.
    labels : array of shape (n,)
        As they were given.
    is_far : array of shape (n,)
    weights : array of shape (n,)
        How much each counts: a weight of 2 is a pair given twice.
    sides : Sides
        Which label means close, and which one far.
    taken : array of shape (n,), optional
        The row number of each among those that were given, where these are not all of them.
    """

    data: Array
    labels: NDArray[Any]
    is_far: BoolArray
    weights: FloatArray
    sides: Sides
    taken: IndexArray | None = None

    @classmethod
    def read(
        cls, estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, far_label: Any = None, stacklevel: int = 3
    ) -> Judgements:
        """Validate the training data of an estimator; opened pairs may have their labels and weights themselves."""
        y, sample_weight = own_labels(X, y, sample_weight)
        data = check_pairs(estimator, X, fitting=True)
        labels = column_of_labels(y, int(data.shape[0]), warn=True)
        return cls._of(data, labels, find_sides(labels, far_label, stacklevel=stacklevel + 1), sample_weight)

    @classmethod
    def read_more(cls, estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, sides: Sides) -> Judgements:
        """Validate judgements for a fitted estimator: they must have its columns and its labels."""
        y, sample_weight = own_labels(X, y, sample_weight)
        data = check_pairs(estimator, X, fitting=False)
        return cls._of(data, column_of_labels(y, int(data.shape[0])), sides, sample_weight)

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
        is_far = are_far(labels, sides)
        return cls(data, labels, is_far, check_weights(sample_weight, len(labels)), sides)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "_on_gpu"}
        return {**state, "weights": None if self.is_uniform else self.weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore equal weights as one number, so that other processes compute with the same rounding."""
        vars(self).update(state)
        if state["weights"] is None:
            vars(self)["weights"] = check_weights(None, len(self))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Judgements({len(self)} of {self.n_columns} columns, {np.count_nonzero(self.is_far)} far)"

    @property
    def n_columns(self) -> int:
        return int(self.data.shape[-1])

    @property
    def n_in_memory(self) -> int:
        """How many rows this process computes with: none of those that are on a GPU."""
        return 0 if is_on_gpu(getattr(self.data, "points", self.data)) else len(self)

    @property
    def are_pairs(self) -> bool:
        """Whether both points of each pair are known, not their difference alone."""
        return bool(self.data.ndim == 3)

    @property
    def numbers(self) -> IndexArray:
        """The row number of each among those that were given."""
        return np.arange(len(self)) if self.taken is None else self.taken

    @property
    def signs(self) -> NDArray[Any]:
        """+1 for far, -1 for close: floats or, of very many, single bytes, which take longer to compute with."""
        if len(self) < _VERY_MANY:
            return np.where(self.is_far, 1.0, -1.0)
        signs = self.is_far.astype(np.int8)
        signs += signs
        signs -= np.int8(1)
        return signs

    @property
    def shares(self) -> FloatArray:
        """The weights, summing to one."""
        if self.is_uniform:
            return np.broadcast_to(1.0 / max(len(self), 1), len(self))
        shares: FloatArray = self.weights / self.weights.sum()
        return shares

    def signs_in(self, rows: Any) -> Array:
        """The signs as a handle of a row source of these judgements; copied once to each GPU."""
        if not is_on_gpu(rows.model):
            return rows.row_array(self.signs)
        place = str(rows.model.device)
        if place not in self._on_gpu:
            self._on_gpu[place] = rows.row_array(self.signs)
        return self._on_gpu[place]

    @cached_property
    def _on_gpu(self) -> dict[str, Array]:
        return {}

    def shares_in(self, rows: Any) -> Array:
        """The shares as a handle of a row source of these judgements."""
        return rows.row_array(self.shares)

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
        return int(np.count_nonzero(self.is_far))

    @property
    def n_rarer(self) -> int:
        """How many have the rarer label."""
        return min(self.n_far, len(self) - self.n_far)

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
            data=take_rows(self.data, where),
            labels=self.labels[where],
            is_far=self.is_far[where],
            weights=self._take_weights(where),
            taken=self.numbers[where],
        )

    def _take_weights(self, where: IndexArray) -> FloatArray:
        return self.weights[: len(where)] if self.is_uniform else self.weights[where]

    def sample(self, n: int, seed: int) -> Judgements:
        """At most n of them, chosen at random, in their order."""
        return self.take(sample_rows(len(self), n, seed))

    def in_memory(self) -> Judgements:
        """The same judgements; those in partitions come to this process, very many as a sample."""
        return self

    def counted(self) -> Judgements:
        """Those that count: of a weight above 0."""
        if self.is_uniform:
            return self
        counts = self.weights > 0
        return self if np.all(counts) else self.take(np.flatnonzero(counts))

    def weighted(self, class_weight: Any) -> Judgements:
        """The same with the weights of their classes, as in scikit-learn."""
        if class_weight is None:
            return self
        return self.with_weights(self.weights * check_class_weights(class_weight, self.labels))

    def with_weights(self, weights: FloatArray) -> Judgements:
        return replace(self, weights=weights)

    def check_both_count(self) -> None:
        """Refuse judgements in which only one class has positive weight: nothing can be learned from those."""
        n_far = np.count_nonzero(self.is_far)
        for is_far, n, label in ((False, len(self) - n_far, self.sides.close), (True, n_far, self.sides.far)):
            if n == 0:
                raise ValueError(
                    f"labels must contain both a close and a far class; got no pairs of class {label}. Add some."
                )
            if not self.is_uniform and not np.any((self.weights > 0) & (self.is_far == is_far)):
                raise ValueError(
                    f"both classes need a pair of positive weight; every pair of class {label} has weight 0. "
                    "Raise some of those weights or leave sample_weight out."
                )

    def with_labels(self, labels: NDArray[Any], sides: Sides) -> Judgements:
        """The same judgements with other labels for close and far."""
        return replace(self, labels=labels, sides=sides)

    def with_data(self, data: Array) -> Judgements:
        """The same judgements with their data on another device, or in other columns."""
        return self if data is self.data else replace(self, data=data)
