"""Metrics around a centre: the squared distance is q + c s, with c >= 0 free and s the squared length by the centre.

M = c M0 + R, where only R has a penalty, so that a large one leaves the distance by M0.  c is optimised like one more
threshold, for every likelihood; the problem stays convex, and is proven in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar import packed
from closefar.arrays import Array, FloatArray
from closefar.rows import RowSource
from closefar.solve.likelihood import Curvature, Evaluation, Likelihood, Terms


class Centred(Likelihood):
    """A likelihood of squared distances q + c s; its thresholds are those of the inner one, and then c.

    Parameters
    ----------
    inner : Likelihood
    lengths : handle
        s, for each row.
    price : float
        The risk includes this multiple of c, so that c is finite where M0 alone separates the labels.
    """

    def __init__(self, inner: Any, lengths: Array, price: float = 0.0) -> None:
        self.inner = inner
        self.lengths = lengths
        self.price = price
        self.has_tangents, self.is_convex = inner.has_tangents, inner.is_convex
        self.weights = inner.weights
        self.least = np.append(inner.least, 0.0)
        self.row_arrays = (*inner.row_arrays, lengths)

    def terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        xp, lengths, arrays = array_namespace(squared), arrays[-1], arrays[:-1]
        whole = squared + float(thresholds[-1]) * lengths
        found: Terms = self.inner.terms(whole, *arrays, thresholds=thresholds[:-1], order=order)
        slopes = np.append(found.slopes, float(xp.vecdot(found.margin_gradient, lengths)))
        if order < 2:
            return found._replace(slopes=slopes)
        mixed = found.curvature * lengths
        border = np.append(self.inner.crossed(found, lengths, *arrays), float(xp.vecdot(mixed, lengths)))
        # Only the border, as the inner likelihood sums its own second derivatives.
        curvatures = (
            np.array([border])
            if found.curvatures is None
            else np.vstack([np.pad(found.curvatures, ((0, 0), (0, 1))), border])
        )
        return found._replace(slopes=slopes, crosses=(*found.crosses, mixed), curvatures=curvatures)

    def _evaluation(self, source: RowSource, found: Terms, thresholds: FloatArray) -> Evaluation:
        own: Evaluation = self.inner._evaluation(source, _of_inner(found), thresholds[:-1])
        slopes = np.append(own.slopes, self.price + float(found.slopes[-1]))
        loss, second = own.loss + self.price * float(thresholds[-1]), own.second
        if second is not None and found.curvatures is not None:
            second = CentredCurvature(second, found.crosses[-1], found.curvatures[-1])
        return replace(own, loss=loss, slopes=slopes, second=second)

    def made_feasible(self, thresholds: FloatArray) -> FloatArray:
        return np.append(self.inner.made_feasible(thresholds[:-1]), thresholds[-1])

    def trend(self, source: RowSource) -> Array:
        return self.inner.trend(source)

    def with_arrays(self, *arrays: Array) -> Centred:
        return type(self)(self.inner.with_arrays(*arrays[:-1]), arrays[-1], self.price)

    def of_sample(self, part: RowSource, arrays: Sequence[Array]) -> Centred:
        return type(self)(self.inner.of_sample(part, arrays[:-1]), arrays[-1], self.price)

    def right(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        return self.inner.right(source, self._whole(squared, thresholds), thresholds[:-1])

    def penalty(self, thresholds: FloatArray) -> float:
        return float(self.inner.penalty(thresholds[:-1])) + self.price * float(thresholds[-1])

    @property
    def precisions(self) -> FloatArray:
        return np.append(self.inner.precisions, 0.0)

    def follow(self, thresholds: FloatArray, change: float) -> FloatArray:
        return np.append(self.inner.follow(thresholds[:-1], change), thresholds[-1])

    def determines_thresholds(self, source: RowSource) -> bool:
        return bool(self.inner.determines_thresholds(source))

    def margins(self, squared: Array, *arrays: Array, thresholds: FloatArray) -> tuple[Array, Any]:
        whole = squared + float(thresholds[-1]) * arrays[-1]
        found: tuple[Array, Any] = self.inner.margins(whole, *arrays[:-1], thresholds=thresholds[:-1])
        return found

    def pointwise(self, margin: Array, *rest: Array, order: int) -> tuple[Array, ...]:
        found: tuple[Array, ...] = self.inner.pointwise(margin, *rest, order=order)
        return found

    def _whole(self, squared: Array, thresholds: FloatArray) -> Array:
        """The squared distances by the whole metric, as a handle."""
        return squared + float(thresholds[-1]) * self.lengths


class CentredCurvature(Curvature):
    """The second derivatives of the inner likelihood, and those in c.

    `mixed` are those in the squared distance of each row and c; `border` are the sums of those in c and each
    threshold, c itself last.
    """

    def __init__(self, inner: Curvature, mixed: Array, border: FloatArray) -> None:
        self.inner = inner
        self.mixed = mixed
        self.border = border
        self.distance = inner.distance
        self.thresholds = np.block([[inner.thresholds, border[:-1, None]], [border[None, :]]])

    @property
    def crosses(self) -> tuple[Array, ...]:
        return (*self.inner.crosses, self.mixed)

    def mapped(self, function: Callable[[Array], Array]) -> CentredCurvature:
        return CentredCurvature(self.inner.mapped(function), function(self.mixed), self.border)

    def with_thresholds(self, thresholds: FloatArray) -> CentredCurvature:
        return CentredCurvature(self.inner.with_thresholds(thresholds[:-1, :-1]), self.mixed, thresholds[-1])

    @property
    def border_passes(self) -> float:
        return self.inner.border_passes + 0.5

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        own = self.inner.hessian(source, rough=rough)
        last = np.concatenate([packed.pack(self._outer(source)), self.border])
        return np.block([[own, last[:-1, None]], [last[None, :]]])

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        image, slopes = self.inner.product(source, matrix, thresholds[:-1])
        step, outer = float(thresholds[-1]), self._outer(source)
        last = float(np.sum(outer * matrix)) + float(self.border @ thresholds)
        return image + step * outer, np.append(slopes + step * self.border[:-1], last)

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        fourth, sums = self.inner.rotated(source, basis)
        return fourth, np.column_stack([sums, np.einsum("ij,ij->j", basis, self._outer(source) @ basis)])

    def _outer(self, source: RowSource) -> FloatArray:
        """The second derivative in M and c: half a pass, once."""
        if self._computed is None or self._computed[0] is not source:
            self._computed = (source, source.outer(self.mixed))
        return self._computed[1]

    _computed: tuple[RowSource, FloatArray] | None = None


def _of_inner(found: Terms) -> Terms:
    """The terms without those of c."""
    own = found._replace(slopes=found.slopes[:-1])
    if found.curvatures is None:
        return own
    curvatures = found.curvatures[:-1, :-1]
    has_own = curvatures.shape[0] == curvatures.shape[1]  # otherwise there is only the border
    return own._replace(crosses=found.crosses[:-1], curvatures=curvatures if has_own else None)
