"""Judgements of pairs, and comparisons of them: one type, validated once, for every fit and every question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, is_on_gpu, is_source, take_rows, to_numpy
from closefar.judgements.annotators import Annotators, read_annotators
from closefar.judgements.comparisons import (
    check_comparisons,
    check_legs_differ,
    in_library_of,
    read_answers,
    split_comparisons,
)
from closefar.judgements.kinds import Kind
from closefar.judgements.labels import (
    Sides,
    are_far,
    check_class_weights,
    check_weights,
    column_of_labels,
    find_sides,
    own_labels,
)
from closefar.judgements.levels import find_levels, level_codes
from closefar.judgements.pairs import check_pairs
from closefar.judgements.tuples import Tuples

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


def _in_numpy(data: Any) -> Any:
    if isinstance(data, Tuples):
        return Tuples(to_numpy(data.points), to_numpy(data.index))
    return data if is_source(data) else to_numpy(data)


@dataclass(frozen=True, eq=False, repr=False)
class Judgements:
    """Pairs, or single points, with a close/far label or a level and a weight each; or comparisons.

    Attributes
    ----------
    data : array of shape (n, d) or (n, 2, d), or a row source
        Differences or points, or pairs of points; comparisons have three or four points, (n, 3, d) or (n, 4, d).
    labels : array of shape (n,)
        As they were given.
    is_far : array of shape (n,)
        Of levels: whether they are above the lowest.  Of comparisons: whether the second leg was judged farther.
    weights : array of shape (n,)
        How much each counts: a weight of 2 is a pair given twice.
    sides : Sides
        Which label means close, and which one far.
    taken : array of shape (n,), optional
        The row number of each among those that were given, where these are not all of them.
    levels : array of shape (n,), optional
        The number of each level, from 0, the closest; None for close/far labels and comparisons.
    annotators : Annotators, optional
        Who made each judgement.
    comparisons : Judgements, optional
        The comparisons that are fitted together with these pairs; they stay whole when some pairs are taken.
    """

    data: Array
    labels: NDArray[Any]
    is_far: BoolArray
    weights: FloatArray
    sides: Sides
    taken: IndexArray | None = None
    levels: IndexArray | None = None
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
        far_label: Any = None,
        levels: Any = None,
        is_graded: bool = False,
        annotators: Any = None,
        comparisons: Any = None,
        stacklevel: int = 3,
    ) -> Judgements:
        """Validate the training data of an estimator; opened pairs may have their labels and weights themselves.

        If they are graded, `levels` is the order of the labels.  `comparisons` may be (data, y) or
        (data, y, sample_weight).
        """
        y, sample_weight = own_labels(X, y, sample_weight)
        data = check_pairs(estimator, X, fitting=True)
        labels = column_of_labels(y, int(data.shape[0]), warn=True)
        if is_graded:
            sides = find_levels(y, labels, levels)
        else:
            sides = find_sides(labels, far_label, stacklevel=stacklevel + 1)
        read = cls._of(data, labels, sides, sample_weight)
        if annotators is not None:
            read = replace(read, annotators=read_annotators(annotators, len(read)))
        return read if comparisons is None else read.with_comparisons(estimator, comparisons)

    @classmethod
    def read_more(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sides: Sides,
        annotators: Any = None,
        known_annotators: tuple[Any, ...] | None = None,
    ) -> Judgements:
        """Validate judgements for a fitted estimator: they must have its columns, its labels and its annotators."""
        y, sample_weight = own_labels(X, y, sample_weight)
        data = check_pairs(estimator, X, fitting=False)
        read = cls._of(data, column_of_labels(y, int(data.shape[0])), sides, sample_weight)
        if annotators is None:
            return read
        return replace(read, annotators=read_annotators(annotators, len(read), known_annotators))

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
        """Validate comparisons: triplets or quadruplets, and +1 or -1 for each where some are turned round."""
        data = check_comparisons(estimator, X, fitting=fitting, beside_pairs=beside_pairs)
        check_legs_differ(data)
        labels, is_far, sides = read_answers(y, int(data.shape[0]))
        return cls(data, labels, is_far, check_weights(sample_weight, len(labels), "comparison"), sides)

    def with_comparisons(self, estimator: Any, comparisons: Any) -> Judgements:
        """The same pairs with comparisons, which an estimator that has learned the columns of the pairs validates."""
        data, answers, weights = split_comparisons(comparisons)
        read = Judgements.read_comparisons(estimator, data, answers, weights, fitting=False, beside_pairs=True)
        return replace(self, comparisons=read.with_data(in_library_of(self.data, read.data)))

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
        weights = check_weights(sample_weight, len(labels))
        if not sides.is_graded:
            return cls(data, labels, are_far(labels, sides), weights, sides)
        levels = level_codes(labels, sides)
        return cls(data, labels, levels >= 1, weights, sides, levels=levels)

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
        found = {Kind.CLOSE_FAR: f"{self.n_far} far", Kind.LEVELS: f"{self.n_levels} levels"}
        return f"Judgements({len(self)} of {self.n_columns} columns, {found.get(self.kind, self.kind)})"

    @property
    def kind(self) -> Kind:
        if self.levels is not None:
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
    def codes(self) -> IndexArray:
        """The number of each level, from 0; of close/far labels, 1 is far, and of comparisons, 1 is as given."""
        return self.is_far.astype(np.intp) if self.levels is None else self.levels

    def dichotomy(self, number: int) -> Judgements:
        """Whether each level is at least that of this number, from 1: judgements with two labels."""
        if not 1 <= number < self.n_levels:
            raise ValueError(
                f"dichotomies of {self.n_levels} levels have the numbers 1 to {self.n_levels - 1}; got {number}."
            )
        level, is_far = self.sides.classes.tolist()[number], self.codes >= number
        words = np.array([f"< {level}", f">= {level}"])
        return replace(self, labels=words[is_far.astype(np.intp)], is_far=is_far, sides=Sides(words), levels=None)

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
        return bool(self.data.ndim == 3) and self.kind is not Kind.COMPARISONS

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
            return rows.row_array(self._all_signs)
        place = str(rows.model.device)
        if place not in self._on_gpu:
            self._on_gpu[place] = rows.row_array(self._all_signs)
        return self._on_gpu[place]

    @property
    def _all_signs(self) -> NDArray[Any]:
        """The signs of the pairs, then those of their comparisons."""
        return self.signs if self.comparisons is None else np.concatenate([self.signs, self.comparisons.signs])

    @cached_property
    def _on_gpu(self) -> dict[str, Array]:
        return {}

    def shares_in(self, rows: Any) -> Array:
        """The weights of pairs and comparisons, summing to one, as a handle of a row source of these judgements."""
        return rows.row_array(self.all_shares)

    def codes_in(self, rows: Any) -> Array:
        """The codes as a handle; comparisons beside pairs of K levels have the codes K (as given) and K + 1."""
        if self.comparisons is None:
            return rows.row_array(self.codes)
        compared = np.where(self.comparisons.is_far, self.n_levels, self.n_levels + 1)
        return rows.row_array(np.concatenate([self.codes, compared]))

    def groups_in(self, rows: Any) -> Array:
        """The number of the annotator of each row as a handle; comparisons have that after the last, nobody's."""
        if self.annotators is None:
            raise ValueError("these judgements have no annotators.")
        n_compared = 0 if self.comparisons is None else len(self.comparisons)
        return rows.row_array(np.append(self.annotators.codes, np.full(n_compared, len(self.annotators.names))))

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
        is_count = self.is_uniform and len(self) > 0 and self.weights[0] == 1.0
        total = float(len(self) if is_count else self.weights.sum())
        return total if self.comparisons is None else total + self.comparisons.total_weight

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
        """How many have the rarer label, or the rarest level; of comparisons, either answer will do: all of them."""
        if self.kind is Kind.COMPARISONS:
            return len(self)
        if self.kind is Kind.LEVELS:
            return int(np.bincount(self.codes, minlength=self.n_levels).min())
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
            levels=None if self.levels is None else self.levels[where],
            annotators=None if self.annotators is None else self.annotators.take(where),
        )

    def _take_weights(self, where: IndexArray) -> FloatArray:
        return self.weights[: len(where)] if self.is_uniform else self.weights[where]

    def sample(self, n: int, seed: int) -> Judgements:
        """At most n of them, chosen at random, in their order."""
        return self.take(sample_rows(len(self), n, seed))

    def in_memory(self) -> Judgements:
        """The same judgements; those in partitions come to this process, very many as a sample."""
        return self

    def in_numpy(self) -> Judgements:
        """The same judgements with arrays of another library, or on a GPU, as NumPy arrays."""
        found = self.with_data(_in_numpy(self.data))
        compared = self.comparisons
        return found if compared is None else replace(found, comparisons=compared.with_data(_in_numpy(compared.data)))

    def counted(self) -> Judgements:
        """Those that count: of a weight above 0."""
        found = self
        if not self.is_uniform and not np.all(self.weights > 0):
            found = self.take(np.flatnonzero(self.weights > 0))
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
        """Refuse judgements in which a class, or a level, has no positive weight; of comparisons, one side may lack."""
        if self.kind is Kind.COMPARISONS:
            return
        counts = np.bincount(self.codes, minlength=self.n_levels)
        weights = counts if self.is_uniform else np.bincount(self.codes, self.weights, minlength=self.n_levels)
        graded = self.sides.is_graded
        for code, label in enumerate(self.sides.classes.tolist() if graded else (self.sides.close, self.sides.far)):
            if counts[code] == 0:
                rule = "pairs of each level" if graded else "both a close and a far class"
                raise ValueError(
                    f"labels must contain {rule}; got no pairs of {'level' if graded else 'class'} {label}. Add some."
                )
            if weights[code] == 0.0:
                rule = "each level (class) needs" if graded else "both classes need"
                raise ValueError(
                    f"{rule} a pair of positive weight; every pair of {'level' if graded else 'class'} {label} has "
                    "weight 0. Raise some of those weights or leave sample_weight out."
                )

    def with_labels(self, labels: NDArray[Any], sides: Sides) -> Judgements:
        """The same judgements with other labels for close and far."""
        return replace(self, labels=labels, sides=sides)

    def with_data(self, data: Array) -> Judgements:
        """The same judgements with their data on another device, or in other columns."""
        return self if data is self.data else replace(self, data=data)
