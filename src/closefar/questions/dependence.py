"""Which pairs depend on each other, and what that does to the spread of a fit."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from closefar.arrays import FloatArray, numbered
from closefar.questions.label_likelihood import LabelLikelihood, LabelTerms

__all__ = ["Dependence"]

# Sums over units are over at most so many of them, and known to about a percent.
_MOST_UNITS = 30_000


class Dependence:
    """Which pairs depend on each other: none, those of a group, or those that share a point.

    `groups` is None, n group ids, or an array of shape (n, 2) of point ids; `n_units` the
    number of groups or points.
    """

    def __init__(self, groups: NDArray[Any] | None) -> None:
        self.ids: NDArray[np.intp] | None = None
        self.n_units: int | None = None
        if groups is not None:
            self.ids, self.n_units = numbered(groups)

    @property
    def by_points(self) -> bool:
        return self.ids is not None and self.ids.ndim == 2

    def draw(self, repeats: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The weight of each row in one bootstrap sample."""
        if self.ids is None or self.n_units is None:
            return rng.multinomial(max(round(repeats.sum()), 1), repeats / repeats.sum()).astype(float)
        counts = rng.multinomial(self.n_units, np.full(self.n_units, 1.0 / self.n_units)).astype(float)
        if not self.by_points:
            counted: FloatArray = repeats * counts[self.ids]
            return counted
        left, right = self.ids.T
        by_both: FloatArray = repeats * counts[left] * np.where(left == right, 1.0, counts[right])
        return by_both

    def parts(self, repeats: FloatArray, order: FloatArray, n_parts: int, rng: np.random.Generator) -> FloatArray:
        """How many observations of each row each of so many random parts holds, shape (n, n_parts).

        Groups stay whole; with points a part holds every pair of its points, so that pairs are in
        two parts.  `order` has a number for each row, by which units are sorted first: the parts
        then do not depend on the order of the rows.
        """
        if self.ids is None or self.n_units is None:
            return _dealt(repeats, order, n_parts, rng)
        members = self.ids.reshape(len(repeats), -1)
        by_unit = np.bincount(members.ravel(), weights=np.repeat(order, members.shape[1]), minlength=self.n_units)
        part = np.empty(self.n_units, dtype=np.intp)
        part[np.argsort(by_unit, kind="stable")] = rng.permutation(self.n_units) % n_parts
        is_in = (part[members][:, :, None] == np.arange(n_parts)).any(axis=1)
        held: FloatArray = repeats[:, None] * is_in
        return held

    def spread(self, likelihood: LabelLikelihood, terms: LabelTerms, repeats: FloatArray) -> FloatArray:
        """V, the covariance of the sum of the scores of the rows, of which each stands for so many observations."""
        if self.ids is None or self.n_units is None:
            n = float(repeats.sum())
            return _sum_of_squares(likelihood, terms, repeats) * (n / max(n - 1.0, 1e-9))
        correction = self.n_units / max(self.n_units - 1.0, 1e-9)
        if not self.by_points:
            return correction * _outer_sums(likelihood, terms, self.ids[:, None])
        total = _sums_by_points(likelihood, terms, *self._points_and_pairs)
        values, vectors = np.linalg.eigh(total)
        spread: FloatArray = correction * (vectors * np.maximum(values, 0.0)) @ vectors.T
        return spread

    def cross_sums(self, terms: FloatArray) -> list[FloatArray]:
        """The sum of u v' over all u != v of these rows, one for each pair, that depend on each other.

        For groups one sum; for points that of pairs that share one point, and that of pairs that share both.
        """
        if self.ids is None:
            return []
        if not self.by_points:
            return [_cross(terms, self.ids[:, None])]
        members, pairs = self._points_and_pairs
        both = _cross(terms, pairs)
        return [_cross(terms, members) - 2.0 * both, both]

    @cached_property
    def _points_and_pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The units of each row (-1: none) whose products are added, and those whose products are taken away again.

        Summed over points, two pairs that share both count twice; once is right (Aronow, Samii
        and Assenova 2015).  Units of a single row are left out: they have no products of two rows.
        """
        assert self.ids is not None
        assert self.n_units is not None
        low, high = np.sort(self.ids, axis=1).T
        apart = low != high
        members = np.where(np.column_stack([np.ones_like(apart), apart]), np.column_stack([low, high]), -1)
        pairs = np.where(apart, np.unique(low * self.n_units + high, return_inverse=True)[1], -1)
        return _of_several(members), _of_several(pairs[:, None])


def _dealt(repeats: FloatArray, order: FloatArray, n_parts: int, rng: np.random.Generator) -> FloatArray:
    """Deal the observations of each row to the parts, as equal in number as can be; a fraction goes to one of them."""
    held = np.repeat(np.floor(repeats / n_parts)[:, None], n_parts, axis=1)
    left = repeats - n_parts * held[:, 0]
    rows = np.argsort(order, kind="stable")
    cards = np.repeat(rows, np.ceil(left[rows]).astype(np.intp))
    sizes = np.ones(len(cards))
    last = np.append(cards[1:] != cards[:-1], True) if len(cards) else np.zeros(0, dtype=bool)
    whole = np.floor(left)
    sizes[last] = np.where(left > whole, left - whole, 1.0)[cards[last]]
    np.add.at(held, (cards, rng.permutation(len(cards)) % n_parts), sizes)
    return held


def _sum_of_squares(likelihood: LabelLikelihood, terms: LabelTerms, repeats: FloatArray) -> FloatArray:
    """The sum of u u' over the rows, u the score of one of the observations that each stands for, times their root."""
    total: Any = 0.0
    for where, scores in likelihood.scores(terms):
        total = total + scores.T @ (scores / repeats[where, None])
    return np.asarray(total)


def _outer_sums(likelihood: LabelLikelihood, terms: LabelTerms, members: NDArray[np.intp]) -> FloatArray:
    """The sum of u u' over the units, u the summed scores of the rows with that unit in `members` (-1: none)."""
    n_units, (scale, some) = np.sum(members >= 0, axis=1), _some_units(members)
    is_in, parts, alone = np.any(some >= 0, axis=1), [], 0.0
    for where, scores in likelihood.scores(terms):
        parts.append(scores[is_in[where]])
        alone = alone + (scores.T @ (scores * n_units[where, None]) if scale > 1.0 else 0.0)
    of_some, some = np.concatenate(parts), some[is_in]
    sums = _by_unit(of_some, some, int(some.max(initial=0)) + 1)
    total = sums.T @ sums
    if scale > 1.0:  # of products of two rows; what each row adds by itself is known from all
        total = alone + scale * (total - of_some.T @ (of_some * np.sum(some >= 0, axis=1)[:, None]))
    return np.asarray(total)


def _sums_by_points(
    likelihood: LabelLikelihood, terms: LabelTerms, members: NDArray[np.intp], pairs: NDArray[np.intp]
) -> FloatArray:
    """The sum of u v' over the scores of all rows that are the same or share a point."""
    few, n = likelihood.few_rows(), likelihood.rows.n_rows
    part, of_few = (likelihood, terms) if len(few) == n else (likelihood.take(few), terms.take(few))
    total: Any = n / len(few) * sum(scores.T @ scores for _, scores in part.scores(of_few))
    for sign, units in ((1.0, members), (-1.0, pairs)):
        scale, some = _some_units(units)
        rows = np.flatnonzero(np.any(some >= 0, axis=1))
        if len(rows):
            scores = np.concatenate([scores for _, scores in likelihood.take(rows).scores(terms.take(rows))])
            total = total + sign * scale * _cross(scores, some[rows])
    return np.asarray(total)


def _of_several(members: NDArray[np.intp]) -> NDArray[np.intp]:
    """The units of each row, numbered without those that only one row has, which become -1 like none."""
    counts = np.bincount(members[members >= 0], minlength=1)
    numbers = np.where(counts > 1, np.cumsum(counts > 1) - 1, -1)
    return np.where(members >= 0, numbers[members], -1)


def _some_units(members: NDArray[np.intp]) -> tuple[float, NDArray[np.intp]]:
    """How many units each of a random 30,000 of them stands for, and those of each row; -1 for the others."""
    n_units = int(members.max(initial=0)) + 1
    if n_units <= _MOST_UNITS:
        return 1.0, members
    number = np.full(n_units + 1, -1)
    number[np.random.default_rng(0).choice(n_units, _MOST_UNITS, replace=False)] = np.arange(_MOST_UNITS)
    return n_units / _MOST_UNITS, number[members]  # the last is that of -1


def _cross(terms: FloatArray, members: NDArray[np.intp]) -> FloatArray:
    is_in = np.any(members >= 0, axis=1)
    if not is_in.all():
        terms, members = terms[is_in], members[is_in]
    sums = _by_unit(terms, members, int(members.max(initial=0)) + 1)
    n_units = np.sum(members >= 0, axis=1)
    cross: FloatArray = sums.T @ sums - terms.T @ (terms * n_units[:, None])
    return cross


def _by_unit(terms: FloatArray, members: NDArray[np.intp], n_units: int) -> FloatArray:
    row, column = np.nonzero(members >= 0)
    belongs: Any = csr_array((np.ones(len(row)), (members[row, column], row)), shape=(n_units, len(terms)))
    sums: FloatArray = belongs @ terms
    return sums
