"""Second derivatives of the risk of levels: each row depends on two thresholds and one strictness at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray, IndexArray, like, sums_by, whole_numbers
from closefar.rows import RowSource
from closefar.solve.curvature import Curvature

__all__ = ["Cells", "GradedCurvature"]


class _Change(NamedTuple):
    margin_gradient: Array
    slopes: FloatArray


class Cells(NamedTuple):
    """Which thresholds a row depends on, by its level and its annotator: tau_k, tau_(k+1) and delta_r.

    Sums over rows by threshold; rows of comparisons have the codes K and K + 1, and depend on no threshold.
    """

    n_levels: int
    n_groups: int

    @property
    def n_taus(self) -> int:
        return self.n_levels - 1

    @property
    def n_codes(self) -> int:
        return self.n_levels + 2

    def sums(self, codes: Array, groups: Sequence[Array], low: Array, up: Array) -> FloatArray:
        """The sum for each threshold, given the value of each row for its lower and its upper end."""
        on_low, on_up = sums_by(codes, self.n_codes, low, up)
        on_taus: FloatArray = on_low[1 : self.n_levels] + on_up[: self.n_taus]
        if not groups:
            return on_taus
        return np.append(on_taus, sums_by(groups[0], self.n_groups + 1, low + up)[0, : self.n_groups])

    def second_sums(
        self, codes: Array, groups: Sequence[Array], low_low: Array, low_up: Array, up_up: Array
    ) -> FloatArray:
        """The matrix of sums for two thresholds."""
        n = self.n_taus
        matrix = np.zeros((n + self.n_groups, n + self.n_groups))
        lower, both, upper = sums_by(codes, self.n_codes, low_low, low_up, up_up)
        at = np.arange(n)
        matrix[at, at] = lower[1 : self.n_levels] + upper[:n]
        matrix[at[:-1], at[1:]] = matrix[at[1:], at[:-1]] = both[1:n]
        if not groups:
            return matrix
        joint = whole_numbers(groups[0]) * self.n_codes + whole_numbers(codes)
        shape = self.n_groups + 1, self.n_codes
        sums = sums_by(joint, shape[0] * shape[1], low_low + low_up, up_up + low_up)
        on_low, on_up = sums.reshape(2, *shape)[:, : self.n_groups]
        border = on_low[:, 1 : self.n_levels] + on_up[:, :n]
        matrix[n:, :n], matrix[:n, n:] = border, border.T
        each = n + np.arange(self.n_groups)
        matrix[each, each] = (on_low + on_up).sum(axis=1)
        return matrix

    def spread(self, thresholds: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A change of the thresholds as that of the lower and the upper end of each code, and of each annotator."""
        taus = thresholds[: self.n_taus]
        low, up = np.array([0.0, *taus, 0.0, 0.0]), np.array([*taus, 0.0, 0.0, 0.0])
        return low, up, np.append(thresholds[self.n_taus :], 0.0)


class GradedCurvature(Curvature):
    """The second derivatives in the lower and the upper end of each row's interval, from which all others follow.

    `ends` are those in the lower end twice, in both, and in the upper end twice.
    """

    can_be_sampled = True

    def __init__(
        self,
        distance: Array,
        ends: tuple[Array, ...],
        codes: Array,
        groups: Array | None,
        cells: Cells,
        precision: float,
        thresholds: FloatArray,
    ) -> None:
        super().__init__(distance, thresholds)
        self._ends = ends
        self._codes = codes
        self._groups = groups
        self._cells = cells
        self._precision = precision

    @property
    def crosses(self) -> tuple[Array, ...]:
        """One array per threshold: zero for the rows that do not depend on it."""
        low, up = self._mixed
        xp, codes, nothing = array_namespace(low), whole_numbers(self._codes), 0.0 * low
        taus = tuple(
            xp.where(codes == k, low, xp.where(codes == k - 1, up, nothing)) for k in range(1, self._cells.n_levels)
        )
        if self._groups is None:
            return taus
        groups = whole_numbers(self._groups)
        return (*taus, *(xp.where(groups == r, -self.distance, nothing) for r in range(self._cells.n_groups)))

    def mapped(self, function: Callable[[Array], Array]) -> GradedCurvature:
        arrays = tuple(map(function, self._ends))
        return self._with(function(self.distance), arrays, self._codes, self._groups, self.thresholds)

    def with_thresholds(self, thresholds: FloatArray) -> GradedCurvature:
        return self._with(self.distance, self._ends, self._codes, self._groups, thresholds)

    def _with(
        self,
        distance: Array,
        ends: tuple[Array, ...],
        codes: Array,
        groups: Array | None,
        thresholds: FloatArray,
        precision: float | None = None,
    ) -> GradedCurvature:
        precision = self._precision if precision is None else precision
        return GradedCurvature(distance, ends, codes, groups, self._cells, precision, thresholds)

    @property
    def border_passes(self) -> float:
        return 0.0 if self._groups is None else 1.0

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        """One sum of squares, with the mixed derivatives divided by the root as its border."""
        root = source.map(_root, self.distance)
        low, up = self._mixed
        n, cells = self._cells.n_taus, self._cells
        border = tuple(source.map(_border_of(k), low, up, root, self._codes) for k in range(1, cells.n_levels))
        hessian = source.sum_of_squares(root, border, rough=rough)
        size = len(hessian) - n
        found = np.empty((size + self.thresholds.shape[0],) * 2)
        found[: size + n, : size + n] = hessian
        if self._groups is not None:
            on = -source.grouped_outers(self.distance, self._groups, cells.n_groups + 1)[: cells.n_groups]
            found[size + n :, :size], found[:size, size + n :] = on, on.T
        found[size:, size:] = self.thresholds
        return found

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> GradedCurvature:
        times = part.row_array(factors)
        distance, *ends = (part.product(source.pick(each, indices), times) for each in (self.distance, *self._ends))
        codes = source.pick(self._codes, indices)
        groups = None if self._groups is None else source.pick(self._groups, indices)

        def second(codes: Array, *arrays: Array) -> FloatArray:
            ends, groups = arrays[:3], arrays[3:]
            return self._cells.second_sums(codes, groups, *ends)

        rest = () if groups is None else (groups,)
        thresholds = np.sum(part.parts(second, codes, *ends, *rest), axis=0)
        n = self._cells.n_taus
        thresholds[np.diag_indices(len(thresholds))] += np.append(
            np.zeros(n), np.full(len(thresholds) - n, self._precision)
        )
        return self._with(distance, tuple(ends), codes, groups, thresholds)

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        cells, (on_low, on_up, on_groups) = self._cells, self._cells.spread(thresholds)
        (low, up), has_shift = self._mixed, bool(np.any(thresholds))

        def change(squared: Array, distance: Array, low: Array, up: Array, codes: Array, *groups: Array) -> _Change:
            xp, index, moved = array_namespace(squared), whole_numbers(codes), distance * squared
            if has_shift:
                moved = moved + low * xp.take(like(low, on_low), index) + up * xp.take(like(up, on_up), index)
            if has_shift and groups:
                moved = moved - distance * xp.take(like(low, on_groups), whole_numbers(groups[0]))
            return _Change(moved, cells.sums(codes, groups, low * squared, up * squared))

        arrays = self.distance, low, up, self._codes, *(() if self._groups is None else (self._groups,))
        parts, image = source.sweep(matrix, change, *arrays)
        return image, np.sum([part.slopes for part in parts], axis=0) + self.thresholds @ thresholds

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        fourth, sums = source.rotated_moments(self.distance, self.crosses, basis)
        return fourth, sums[:, 1:]

    @cached_property
    def _mixed(self) -> tuple[Array, Array]:
        """The mixed derivatives in the squared distance and the lower and the upper end."""
        low_low, low_up, up_up = self._ends
        return -1.0 * (low_low + low_up), -1.0 * (up_up + low_up)


def _root(values: Array) -> Array:
    xp = array_namespace(values)
    return xp.sqrt(xp.maximum(values, xp.zeros_like(values)))


def _border_of(k: int) -> Callable[..., Array]:
    """The mixed derivative in the squared distance and tau_k, divided by the root of that in the distance twice."""

    def border(low: Array, up: Array, root: Array, codes: Array) -> Array:
        xp, index = array_namespace(low), whole_numbers(codes)
        mixed = xp.where(index == k, low, xp.where(index == k - 1, up, 0.0 * low))
        return mixed / xp.maximum(root, TINY + 0.0 * root)

    return border
