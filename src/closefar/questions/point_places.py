"""Places of points: where all labels of a point say that it lies, beside what its columns say.

What a metric misses about a point shows in all pairs of that point.  So each point may lie off the place that a linear
map of its columns gives it, at a price.  Both prices are chosen by held-out labels; if places of their own predict
these no better than the columns alone, points have none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from closefar.arrays import TINY, FloatArray, IndexArray, numbered, take_rows, to_numpy
from closefar.fitting import Fit
from closefar.judgements import Judgements, Kind, Tuples
from closefar.noise import Noise

__all__ = ["margins_of_places"]

_MOST_PAIRS = 50_000  # of more pairs, the search for the two prices takes too long
_MOST_DIMENSIONS = 6
_FOLDS = 5  # that choose the prices
_MANY_FOLDS = 20  # that judge: a label must not move the points that it is judged by
_STEPS = 100
_START_SCALES = np.geomspace(1e-4, 1.0, 17)

# Of the squares of the map, with columns in units of their standard deviations, and of the squares of the offsets.
_MAP_PRICES = (3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0)
_OFFSET_PRICES = (128.0, 64.0, 32.0, 16.0, 8.0)
_FIRST_OFFSET_PRICE = 32.0


@dataclass(frozen=True, eq=False)
class _Places:
    """A linear map of the columns, the offset of each point from it, and the threshold."""

    linear: FloatArray  # (d, k)
    threshold: float
    offsets: FloatArray  # (m, k)

    @property
    def parameters(self) -> FloatArray:
        return np.concatenate([self.linear.ravel(), [self.threshold], self.offsets.ravel()])

    def like(self, parameters: FloatArray) -> _Places:
        """Other places of the same shape."""
        n_linear = self.linear.size
        linear = parameters[:n_linear].reshape(self.linear.shape)
        return _Places(linear, float(parameters[n_linear]), parameters[n_linear + 1 :].reshape(self.offsets.shape))


@dataclass(frozen=True, eq=False)
class _Labelled:
    """Labelled pairs of points: `differences` @ places are the differences of the pairs."""

    points: FloatArray  # (m, d), standardised
    differences: csr_array  # (n, m), with 1 and -1 in each row
    signs: FloatArray
    weights: FloatArray
    noise: Noise

    @classmethod
    def read(cls, points: FloatArray, index: IndexArray, judgements: Judgements, noise: Noise) -> _Labelled:
        n, m = len(index), len(points)
        rows = np.repeat(np.arange(n), 2)
        differences = csr_array((np.tile([1.0, -1.0], n), (rows, index.ravel())), shape=(n, m))
        weights = judgements.shares * judgements.effective_number
        return cls(points, differences, judgements.signs, weights, noise)

    def take(self, rows: IndexArray) -> _Labelled:
        return replace(self, differences=self.differences[rows], signs=self.signs[rows], weights=self.weights[rows])

    def margins(self, places: _Places) -> FloatArray:
        apart = self.differences @ (self.points @ places.linear + places.offsets)
        return np.asarray(np.sum(apart**2, axis=1) - places.threshold)

    def loss(self, places: _Places) -> float:
        return float(self.weights @ self.noise.neg_log_cdf(self.signs * self.margins(places)))

    def solve(self, start: _Places, map_price: float, offset_price: float) -> _Places:
        """Minimise the loss and half the prices times the squares; without offsets if these have no finite price."""
        has_offsets = not isinf(offset_price)
        begin = start if has_offsets else replace(start, offsets=np.zeros_like(start.offsets))

        def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
            places = begin.like(parameters)
            apart = self.differences @ (self.points @ places.linear + places.offsets)
            margins = np.sum(apart**2, axis=1) - places.threshold
            losses, slopes = self.noise.derivatives(self.signs * margins, order=1)
            pulls = self.weights * self.signs * slopes
            by_place = self.differences.T @ (2.0 * pulls[:, None] * apart)
            value = float(self.weights @ losses) + 0.5 * map_price * float(np.sum(places.linear**2))
            linear = self.points.T @ by_place + map_price * places.linear
            offsets = np.zeros_like(by_place)
            if has_offsets:
                value += 0.5 * offset_price * float(np.sum(places.offsets**2))
                offsets = by_place + offset_price * places.offsets
            return value, np.concatenate([linear.ravel(), [-np.sum(pulls)], offsets.ravel()])

        found = minimize(objective, begin.parameters, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        return begin.like(found.x)


def margins_of_places(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> FloatArray | None:
    """Return out-of-fold margins of pairs whose points have places of their own; `groups` are the ids of the points.

    None if pairs share no points, or if these need no places; and for other judgements than close/far labels without
    annotators.
    """
    is_asked = judgements.kind is Kind.CLOSE_FAR and judgements.annotators is None and fit.metric.rank > 0
    if groups is None or groups.ndim == 1 or judgements.data.ndim != 3 or not is_asked or len(groups) > _MOST_PAIRS:
        return None
    index = numbered(groups)[0].reshape(-1, 2)
    points = _points(judgements, index)
    scales = np.maximum(points.std(axis=0), TINY)
    labelled = _Labelled.read((points - points.mean(axis=0)) / scales, index, judgements, fit.metric.noise)
    start = _start(labelled, fit.metric.factor * scales[:, None], fit.metric.known_threshold)
    which = np.unique(np.sort(index, axis=1), axis=0, return_inverse=True)[1].ravel()
    prices = _best_prices(labelled, start, which)
    if isinf(prices[1]):
        return None
    margins = np.empty(len(index))
    for train, test in _folds(which, _MANY_FOLDS):
        margins[test] = labelled.take(test).margins(labelled.take(train).solve(start, *prices))
    return margins


def _folds(which: IndexArray, count: int) -> list[tuple[IndexArray, IndexArray]]:
    """Folds that keep all labels of one pair together."""
    fold = (np.random.default_rng(0).permutation(int(which.max()) + 1) % count)[which]
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(count)]


def _points(judgements: Judgements, index: IndexArray) -> FloatArray:
    """The points by their numbers."""
    _, first = np.unique(index, return_index=True)
    rows, places = np.divmod(first, index.shape[1])
    data = judgements.data
    if isinstance(data, Tuples):
        return np.asarray(to_numpy(data.points)[to_numpy(data.index)[rows, places]], dtype=np.float64)
    return np.asarray(to_numpy(take_rows(data, rows))[np.arange(len(rows)), places], dtype=np.float64)


def _start(labelled: _Labelled, linear: FloatArray, threshold: float) -> _Places:
    """The map of the fit, in the directions in which points are furthest apart.

    Its scale is that of labels without flips: what contradicts a fit with flips is often far beyond its threshold.
    """
    leading = np.linalg.svd(labelled.points @ linear, full_matrices=False)[2][:_MOST_DIMENSIONS]
    linear = linear @ leading.T
    offsets = np.zeros((len(labelled.points), linear.shape[1]))
    starts = [_Places(np.sqrt(scale) * linear, scale * threshold, offsets) for scale in _START_SCALES]
    return min(starts, key=labelled.loss)


def _best_prices(labelled: _Labelled, start: _Places, which: IndexArray) -> tuple[float, float]:
    """The prices with the smallest loss of held-out labels: first that of the map, then that of offsets."""
    parts = [(labelled.take(train), labelled.take(test)) for train, test in _folds(which, _FOLDS)]

    def losses(prices: list[tuple[float, float]]) -> dict[tuple[float, float], float]:
        """Of all folds, along a path from high prices to low ones."""
        total = dict.fromkeys(prices, 0.0)
        for train, test in parts:
            places = start
            for each in prices:
                places = train.solve(places, *each)
                total[each] += test.loss(places)
        return total

    by_map = losses([(price, _FIRST_OFFSET_PRICE) for price in _MAP_PRICES])
    best_map = min(by_map, key=by_map.__getitem__)[0]
    by_offset = losses([(best_map, price) for price in _OFFSET_PRICES])
    without = losses([(price, inf) for price in _MAP_PRICES])
    found = {**without, **by_map, **by_offset}
    return min(found, key=found.__getitem__)
