"""Levels and annotators: the probability that the felt distance of a pair is in an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from closefar.arrays import TINY, Array, FloatArray, IndexArray, like, sums_by, whole_numbers
from closefar.noise import Noise
from closefar.rows import RowSource, slices
from closefar.solve.likelihood import (
    FAR_BEYOND,
    Change,
    Curvature,
    Evaluation,
    IntervalTerms,
    Likelihood,
    Terms,
    interval_terms,
)

# ---------------------------------------------------------------------------------------------------------------------
# Second derivatives of the risk of levels: each row depends on two thresholds and one strictness at most.


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


@dataclass(frozen=True, eq=False)
class GradedCurvature(Curvature):
    """The second derivatives in the lower and the upper end of each row's interval, from which all others follow.

    `ends` are those in the lower end twice, in both, and in the upper end twice.
    """

    can_be_sampled = True

    distance: Array
    ends: tuple[Array, ...]
    codes: Array
    groups: Array | None
    cells: Cells
    precisions: FloatArray
    thresholds: FloatArray

    @property
    def crosses(self) -> tuple[Array, ...]:
        """One array per threshold: zero for the rows that do not depend on it."""
        low, up = self._mixed
        xp, codes, nothing = array_namespace(low), whole_numbers(self.codes), 0.0 * low
        taus = tuple(
            xp.where(codes == k, low, xp.where(codes == k - 1, up, nothing)) for k in range(1, self.cells.n_levels)
        )
        if self.groups is None:
            return taus
        groups = whole_numbers(self.groups)
        return (*taus, *(xp.where(groups == r, -self.distance, nothing) for r in range(self.cells.n_groups)))

    @property
    def border_passes(self) -> float:
        return 0.0 if self.groups is None else 1.0

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        """One sum of squares, with the mixed derivatives divided by the root as its border."""
        root = source.map(_root, self.distance)
        low, up = self._mixed
        n, cells = self.cells.n_taus, self.cells
        border = tuple(source.map(_border_of(k), low, up, root, self.codes) for k in range(1, cells.n_levels))
        hessian = source.sum_of_squares(root, border, rough=rough)
        size = len(hessian) - n
        found = np.empty((size + self.thresholds.shape[0],) * 2)
        found[: size + n, : size + n] = hessian
        if self.groups is not None:
            on = -source.grouped_outers(self.distance, self.groups, cells.n_groups + 1)[: cells.n_groups]
            found[size + n :, :size], found[:size, size + n :] = on, on.T
        found[size:, size:] = self.thresholds
        return found

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> GradedCurvature:
        times = part.row_array(factors)
        distance, *ends = (part.product(source.pick(each, indices), times) for each in (self.distance, *self.ends))
        codes = source.pick(self.codes, indices)
        groups = None if self.groups is None else source.pick(self.groups, indices)

        def second(codes: Array, *arrays: Array) -> FloatArray:
            ends, groups = arrays[:3], arrays[3:]
            return self.cells.second_sums(codes, groups, *ends)

        rest = () if groups is None else (groups,)
        thresholds = np.sum(part.parts(second, codes, *ends, *rest), axis=0)
        thresholds[np.diag_indices(len(thresholds))] += self.precisions
        return GradedCurvature(distance, tuple(ends), codes, groups, self.cells, self.precisions, thresholds)

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        cells, (on_low, on_up, on_groups) = self.cells, self.cells.spread(thresholds)
        (low, up), has_shift = self._mixed, bool(np.any(thresholds))

        def change(squared: Array, distance: Array, low: Array, up: Array, codes: Array, *groups: Array) -> Change:
            xp, index, moved = array_namespace(squared), whole_numbers(codes), distance * squared
            if has_shift:
                moved = moved + low * xp.take(like(low, on_low), index) + up * xp.take(like(up, on_up), index)
            if has_shift and groups:
                moved = moved - distance * xp.take(like(low, on_groups), whole_numbers(groups[0]))
            return Change(moved, cells.sums(codes, groups, low * squared, up * squared))

        arrays = self.distance, low, up, self.codes, *(() if self.groups is None else (self.groups,))
        parts, image = source.sweep(matrix, change, *arrays)
        return image, np.sum([part.slopes for part in parts], axis=0) + self.thresholds @ thresholds

    @cached_property
    def _mixed(self) -> tuple[Array, Array]:
        """The mixed derivatives in the squared distance and the lower and the upper end."""
        low_low, low_up, up_up = self.ends
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


_IN_CACHE = 4096  # rows

# Thresholds that a search starts from are at least so far apart, relative to their size.
_APART = 0.05


def _split_losses(noise: Noise, a: Array, b: Array, on_width: Sequence[Array], order: int) -> IntervalTerms:
    """As `interval_terms`, for a noise with `width_terms`: a term for each end, and one for the width."""
    loss_a, slope_a, *bend_a = noise.derivatives(a, order)
    loss_b, slope_b, *bend_b = noise.derivatives(-b, order)
    loss, slope, bend = on_width
    first = loss_a + loss_b + loss, -slope_a - slope, slope_b + slope
    return IntervalTerms(*first) if order < 2 else IntervalTerms(*first, bend_a[0] + bend, -bend, bend_b[0] + bend)


class Graded(Likelihood):
    """P(level k) = Phi(q - tau_k) - Phi(q - tau_(k+1)) of pairs with squared distance q, tau_0 = -inf, tau_K = inf.

    An annotator r has the thresholds tau + delta_r, with a normal prior on delta_r.  The thresholds of the
    likelihood are tau_1, ..., tau_(K-1), delta_1, ..., delta_R.

    Parameters
    ----------
    noise : Noise
    codes : handle
        The level of each row, from 0, the closest.  Comparisons among them have the codes K (their q is a
        difference of two squared distances, said to be positive) and K + 1 (negative).
    weights : handle
        The weight of each row; they sum to one.
    n_levels : int
    groups : handle, optional
        The annotator of each row; R if there is none.
    n_groups : int
        R.
    precision : float
        1 / (width^2 W), where W is the sum of the weights before they were divided by it.
    """

    def __init__(
        self,
        noise: Noise,
        codes: Array,
        weights: Array,
        n_levels: int,
        groups: Array = None,
        n_groups: int = 0,
        precision: float = 0.0,
    ) -> None:
        self.noise, self.precision = noise, precision
        self.codes, self.weights, self.groups = codes, weights, groups
        self.n_levels, self.n_groups = n_levels, n_groups
        self.least = np.append(np.zeros(n_levels - 1), np.full(n_groups, -np.inf))
        self.row_arrays = (codes, weights) if groups is None else (codes, weights, groups)

    def with_arrays(self, codes: Array, weights: Array, groups: Array = None) -> Graded:
        return Graded(self.noise, codes, weights, self.n_levels, groups, self.n_groups, self.precision)

    def of_sample(self, part: RowSource, arrays: Sequence[Array]) -> Graded:
        found = super().of_sample(part, arrays)
        assert isinstance(found, Graded)
        found.precision = self.precision / part.total(arrays[1])
        return found

    @property
    def cells(self) -> Cells:
        return Cells(self.n_levels, self.n_groups)

    def is_feasible(self, thresholds: FloatArray) -> bool:
        """Whether the thresholds of levels are in order."""
        return bool(np.all(np.diff(thresholds[: self.n_levels - 1]) > 0.0))

    def ends(self, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The lower and the upper end of the interval of each code."""
        taus = thresholds[: self.n_levels - 1]
        return np.array([-np.inf, *taus, 0.0, -np.inf]), np.array([*taus, np.inf, np.inf, 0.0])

    def margins(self, squared: Array, *arrays: Array, thresholds: FloatArray) -> tuple[Array, Array]:
        """The squared distances of some of the rows less the lower and the upper ends of their intervals."""
        codes, _, *groups = arrays
        xp = array_namespace(squared)
        index = whole_numbers(codes)
        beyond = squared
        if groups:
            strictness = like(squared, np.append(thresholds[self.n_levels - 1 :], 0.0))
            beyond = squared - xp.take(strictness, whole_numbers(groups[0]))
        # Beyond all of these by so much there is no probability left, and exponentials take several times as long.
        most = FAR_BEYOND + float(xp.max(xp.abs(beyond)))
        low, up = (xp.take(like(squared, np.clip(end, -most, most)), index) for end in self.ends(thresholds))
        return beyond - low, beyond - up

    def terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        if not self.is_feasible(thresholds):
            return self._infeasible(squared, order)
        if not is_numpy_array(squared) or len(squared) <= _IN_CACHE:
            return self._terms(squared, *arrays, thresholds=thresholds, order=order)
        # Some twenty arrays are computed on the way, which is several times as fast if all of them stay in cache.
        stored, parts = np.empty((5 if order > 1 else 1, len(squared))), []
        for where in slices(len(squared), _IN_CACHE):
            part = self._terms(squared[where], *(each[where] for each in arrays), thresholds=thresholds, order=order)
            for line, values in zip(stored, (part.margin_gradient, part.curvature, *part.crosses), strict=False):
                line[where] = values
            parts.append(part)
        curvature = stored[1] if order > 1 else None
        return Terms.summed(parts)._replace(margin_gradient=stored[0], curvature=curvature, crosses=tuple(stored[2:]))

    def _terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        codes, *_ = arrays
        a, b = self.margins(squared, *arrays, thresholds=thresholds)
        found = self._losses(a, b, codes, thresholds, order)
        ends = (found.low_low, found.low_up, found.up_up) if order > 1 else ()
        least_margin = self._least_margin(squared, a, b, *arrays, thresholds=thresholds)
        return self._summed(arrays, found.loss, found.low, found.up, ends, least_margin)

    def _summed(
        self, arrays: Sequence[Array], losses: Array, low: Array, up: Array, ends: Sequence[Array], least_margin: float
    ) -> Terms:
        """The terms of rows with these losses and derivatives in the ends of their intervals, times their weights."""
        codes, weights, *groups = arrays
        low, up = weights * low, weights * up
        loss, slopes = float(array_namespace(weights).vecdot(weights, losses)), self.cells.sums(codes, groups, low, up)
        if not ends:
            return Terms(loss, slopes, least_margin, -(low + up))
        low_low, low_up, up_up = ends = tuple(weights * each for each in ends)
        curvatures = self.cells.second_sums(codes, groups, *ends)
        return Terms(loss, slopes, least_margin, -(low + up), low_low + 2.0 * low_up + up_up, ends, curvatures)

    def _losses(self, a: Array, b: Array, codes: Array, thresholds: FloatArray, order: int) -> IntervalTerms:
        low, up = self.ends(thresholds)
        on_width = self.noise.width_terms(up - low)
        if on_width is None:
            return interval_terms(self.noise, a, b, order)
        xp, index = array_namespace(a), whole_numbers(codes)
        return _split_losses(self.noise, a, b, [xp.take(like(a, each), index) for each in on_width], order)

    def _least_margin(self, squared: Array, a: Array, b: Array, *arrays: Array, thresholds: FloatArray) -> float:
        """The least distance of a row from the ends of its interval for the typical annotator.

        If it is positive, M and tau can grow for ever, which costs nothing if all have the strictness zero.
        """
        if len(arrays) > 2:
            a, b = self.margins(squared, *arrays[:2], thresholds=thresholds)
        xp = array_namespace(squared)
        return float(xp.min(xp.minimum(a, -b)))

    def _infeasible(self, squared: Array, order: int) -> Terms:
        nothing, n = 0.0 * squared, self.n_thresholds
        if order < 2:
            return Terms(np.inf, np.zeros(n), -np.inf, nothing)
        return Terms(np.inf, np.zeros(n), -np.inf, nothing, nothing, (nothing,) * 3, np.eye(n))

    def penalty(self, thresholds: FloatArray) -> float:
        strictness = thresholds[self.n_levels - 1 :]
        return 0.5 * self.precision * float(strictness @ strictness)

    @property
    def precisions(self) -> FloatArray:
        return np.append(np.zeros(self.n_levels - 1), np.full(self.n_groups, self.precision))

    def curvature(self, source: RowSource, found: Terms) -> GradedCurvature:
        assert found.curvatures is not None
        thresholds = found.curvatures + np.diag(self.precisions)
        return GradedCurvature(
            found.curvature, found.crosses, self.codes, self.groups, self.cells, self.precisions, thresholds
        )

    def _evaluation(self, source: RowSource, found: Terms, thresholds: FloatArray) -> Evaluation:
        slopes = found.slopes + self.precisions * thresholds
        own = found._replace(loss=found.loss + self.penalty(thresholds), slopes=slopes)
        return super()._evaluation(source, own, thresholds)

    def made_feasible(self, thresholds: FloatArray) -> FloatArray:
        if self.is_feasible(thresholds):
            return thresholds
        n = self.n_levels - 1
        return np.append(_spread(thresholds[:n]), thresholds[n:])

    def crossed(self, found: Terms, values: Array, *arrays: Array) -> FloatArray:
        (low_low, low_up, up_up), (codes, _, *groups) = found.crosses, arrays
        low, up = -values * (low_low + low_up), -values * (up_up + low_up)
        return self.cells.sums(codes, groups, low, up)

    def follow(self, thresholds: FloatArray, change: float) -> FloatArray:
        return np.append(thresholds[: self.n_levels - 1] + change, thresholds[self.n_levels - 1 :])

    def trend(self, source: RowSource) -> Array:
        size = max(self.n_levels - 1, 1)
        trends = np.append(2.0 * np.arange(self.n_levels) / size - 1.0, [1.0, -1.0])

        def trend(codes: Array, weights: Array) -> Array:
            return weights * array_namespace(weights).take(like(weights, trends), whole_numbers(codes))

        return source.map(trend, self.codes, self.weights)

    def determines_thresholds(self, source: RowSource) -> bool:
        def counts(codes: Array, weights: Array) -> FloatArray:
            found: FloatArray = sums_by(codes, self.n_levels + 2, weights)[0]
            return found

        totals = np.sum(source.parts(counts, self.codes, self.weights), axis=0)
        return bool(np.all(totals[: self.n_levels] > 0.0))

    def right(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each judgement at these squared distances, if it is not flipped."""
        noise = self.noise

        def probability(squared: Array, *arrays: Array) -> Array:
            a, b = self.margins(squared, *arrays, thresholds=thresholds)
            return array_namespace(squared).exp(-interval_terms(noise, a, b, 1).loss)

        return source.map(probability, squared, *self.row_arrays)


def _spread(taus: FloatArray) -> FloatArray:
    """Thresholds in order, at least a small distance apart."""
    ordered = np.sort(taus)
    apart = _APART * (1.0 + float(np.ptp(ordered))) * np.arange(len(taus))
    return ordered + apart
