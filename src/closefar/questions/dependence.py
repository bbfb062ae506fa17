"""Which judgements depend on each other, and sums over those that do."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from closefar.arrays import LEGS, FloatArray, as_float64, is_indexed, numbered, to_numpy
from closefar.judgements import Judgements, find_points, resolve_groups
from closefar.judgements.folds import warn_of_points
from closefar.questions.likelihood import LabelLikelihood, LabelTerms

# ---------------------------------------------------------------------------------------------------------------------
# The groups or points of judgements, attached comparisons included.


def units_of_all(groups: Any, judgements: Judgements, *, stacklevel: int = 2) -> NDArray[Any] | None:
    """Validate the groups of dependent judgements, or find the points that they share.

    Where comparisons are attached to pairs, groups are one id for each pair and then each comparison; points are
    found in both, and an id that a row has twice fills its columns up to those of the longest.
    """
    others = judgements.comparisons
    if others is None:
        return resolve_groups(groups, judgements.data, stacklevel=stacklevel + 1)
    n = len(judgements) + len(others)
    if groups is not None:
        ids = np.asarray(groups)
        if ids.ndim not in (1, 2) or len(ids) != n:
            raise ValueError(
                f"groups of pairs with comparisons must hold one id for each of the {len(judgements)} pairs and then "
                f"each of the {len(others)} comparisons; got shape {ids.shape}."
            )
        return ids
    if not judgements.are_pairs or (find_points(judgements.data) is None and find_points(others.data) is None):
        return None
    sizes = {each.kind: int(each.data.shape[1]) for each in (judgements, others)}
    widest = max(sizes.values())
    points = [
        np.stack([_column(each, min(place, sizes[each.kind] - 1)) for place in range(widest)], axis=1)
        for each in (judgements, others)
    ]
    stacked = np.concatenate(points).reshape(-1, judgements.n_columns)
    found = np.unique(stacked, axis=0, return_inverse=True)[1].reshape(-1, widest)
    if not is_indexed(judgements.data):
        warn_of_points(found, "standard errors are by point", stacklevel=stacklevel + 1)
    return found


def units_with_comparisons(groups: NDArray[Any] | None, judgements: Judgements) -> NDArray[Any] | None:
    """Groups of pairs and comparisons, where those of the pairs alone may be given.

    Comparisons then depend on each other by their points, if the pairs do, and otherwise not at all.
    """
    others = judgements.comparisons
    if groups is None or others is None or len(groups) > len(judgements):
        return groups
    if groups.ndim == 2:
        return units_of_all(None, judgements)
    return np.append(groups.astype(str), [f"comparison {number}" for number in range(len(others))])


def _column(judgements: Judgements, place: int) -> FloatArray:
    return to_numpy(as_float64(judgements.data[:, place, :])) + 0.0


def points_of_legs(judgements: Judgements) -> tuple[FloatArray, FloatArray]:
    """Both points of each pair or, of comparisons, of each leg: near, far, near, far and so on."""
    sides = zip(*LEGS.get(int(judgements.data.shape[1]), ((0, 1),)), strict=True)
    starts, ends = (np.stack([_column(judgements, place) for place in side], axis=1) for side in sides)
    return starts.reshape(-1, judgements.n_columns), ends.reshape(-1, judgements.n_columns)


class Dependence:
    """Which judgements depend on each other: none, those of a group, or those that share a point.

    `groups` is None, n group ids, or the ids of the points of each, shape (n, 2) for pairs and (n, 3) or
    (n, 4) for comparisons; `n_units` the number of groups or points.
    """

    def __init__(self, groups: NDArray[Any] | None) -> None:
        self.ids: NDArray[np.intp] | None = None
        self.n_units: int | None = None
        if groups is not None:
            self.ids, self.n_units = numbered(groups)

    @property
    def by_points(self) -> bool:
        return self.ids is not None and self.ids.ndim == 2

    def parts(self, repeats: FloatArray, order: FloatArray, n_parts: int, rng: np.random.Generator) -> FloatArray:
        """The number of observations of each row in each of `n_parts` random parts, shape (n, n_parts).

        Groups are not divided.  With points, a part contains every pair of its points, so each pair is
        in two parts.  Units are first sorted by `order`, one number per row, so that the parts do not
        depend on the order of the rows.
        """
        if self.ids is None or self.n_units is None:
            return _dealt(repeats, order, n_parts, rng)
        members = self.ids.reshape(len(repeats), -1)
        by_unit = np.bincount(members.ravel(), weights=np.repeat(order, members.shape[1]), minlength=self.n_units)
        part = np.empty(self.n_units, dtype=np.intp)
        part[np.argsort(by_unit, kind="stable")] = rng.permutation(self.n_units) % n_parts
        is_in = (part[members][:, :, None] == np.arange(n_parts)).any(axis=1)
        return np.asarray(repeats[:, None] * is_in)

    def spread(self, likelihood: LabelLikelihood, terms: LabelTerms, repeats: FloatArray) -> FloatArray:
        """V, the covariance of the sum of the scores of the rows, each of which represents `repeats` observations."""
        if self.ids is None or self.n_units is None:
            # Each of r observations has 1 / r of the score of its row.
            n, blocks = float(repeats.sum()), likelihood.scores(terms)
            total = sum(scores.T @ (scores / repeats[where, None]) for where, scores in blocks)
            return np.asarray(total) * (n / max(n - 1.0, 1e-9))
        values, vectors = np.linalg.eigh(_dependent_sums(likelihood, terms, self._shared))
        correction = self.n_units / max(self.n_units - 1.0, 1e-9)
        return np.asarray(correction * (vectors * np.maximum(values, 0.0)) @ vectors.T)

    def cross_sums(self, terms: FloatArray) -> list[FloatArray]:
        """The sum of u v' over all rows u != v that depend on each other, with one row per judgement.

        One sum for groups; several for points: over rows that share one point, two points, and so on.
        """
        if self.ids is None:
            return []
        # Rows that share s points share s over j of the sets of j points.
        by_size = [_cross(terms, units) for units in self._shared]
        sizes = range(1, len(by_size) + 1)
        return [
            np.asarray(sum((-1) ** (size - s) * math.comb(size, s) * by_size[size - 1] for size in sizes if size >= s))
            for s in sizes
        ]

    @cached_property
    def _shared(self) -> list[NDArray[np.intp]]:
        """The group, or the sets of one, two, ... points, of each row (-1: none); those of one row alone are left out.

        In sums over points, two rows that share two points count twice, but should count once (Aronow, Samii
        and Assenova 2015); three count three times in sums over points and over two points, and so on.
        """
        assert self.ids is not None
        ids, found = np.sort(self.ids.reshape(len(self.ids), -1), axis=1), []
        is_new = np.column_stack([np.ones(len(ids), dtype=bool), ids[:, 1:] != ids[:, :-1]])
        members = np.where(is_new, ids, -1)
        for size in range(1, members.shape[1] + 1):
            parts = [members[:, list(columns)] for columns in combinations(range(members.shape[1]), size)]
            stacked = np.concatenate(parts)
            exist, numbers = np.all(stacked >= 0, axis=1), stacked[:, 0] + 1
            for column in stacked.T[1:]:
                numbers = np.unique(numbers * (int(stacked.max()) + 2) + column + 1, return_inverse=True)[1]
            counts = np.bincount(numbers[exist], minlength=int(numbers.max()) + 1)
            shared = np.where(counts > 1, np.cumsum(counts > 1) - 1, -1)
            found.append(np.where(exist, shared[numbers], -1).reshape(len(parts), -1).T)
        return found


def _dealt(repeats: FloatArray, order: FloatArray, n_parts: int, rng: np.random.Generator) -> FloatArray:
    """Divide the observations of each row among the parts as equally as possible; a fraction goes to one part."""
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


def _dependent_sums(likelihood: LabelLikelihood, terms: LabelTerms, shared: list[NDArray[np.intp]]) -> FloatArray:
    """The sum of u v' over the scores of all rows that are the same or depend on each other."""
    signs, sums = [(-1.0) ** size for size in range(len(shared))], [np.zeros((1, 1)) for _ in shared]
    total: Any = 0.0
    for where, scores in likelihood.scores(terms):
        alone = np.ones(len(scores))
        for place, (sign, units) in enumerate(zip(signs, shared, strict=True)):
            sums[place] = sums[place] + _by_unit(scores, units[where], int(units.max(initial=0)) + 1)
            alone -= sign * np.sum(units[where] >= 0, axis=1)
        total = total + scores.T @ (scores * alone[:, None])
    return np.asarray(total + sum(sign * each.T @ each for sign, each in zip(signs, sums, strict=True)))


def _cross(terms: FloatArray, members: NDArray[np.intp]) -> FloatArray:
    is_in = np.any(members >= 0, axis=1)
    if not is_in.all():
        terms, members = terms[is_in], members[is_in]
    sums = _by_unit(terms, members, int(members.max(initial=0)) + 1)
    n_units = np.sum(members >= 0, axis=1)
    return np.asarray(sums.T @ sums - terms.T @ (terms * n_units[:, None]))


def _by_unit(terms: FloatArray, members: NDArray[np.intp], n_units: int) -> FloatArray:
    row, column = np.nonzero(members >= 0)
    belongs: Any = csr_array((np.ones(len(row)), (members[row, column], row)), shape=(n_units, len(terms)))
    return np.asarray(belongs @ terms)
