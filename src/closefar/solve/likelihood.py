"""The likelihood: how probable each judgement is at a distance, and the sums over judgements that solvers minimise.

A judgement is an interval of thresholds seen from a signed sum of squared distances q.  Noise is added to q, and the
judgement says which interval the sum was in:

    P = floor + kept (CDF(q - low) - CDF(q - up))

Close/far has the intervals below and above tau, level k of K the one from tau_k to tau_(k+1), and a comparison, whose
q is one squared distance less another, those below and above zero.  An annotator moves both ends.  `floor` and `kept`
are what flips add and leave.

Roads not taken.  A class for each kind of judgement, with the noise inside: there were six, and each analysis had its
own seventh.  Automatic differentiation: three closed forms are shorter than its dependencies, and exact in both tails.
SciPy's distributions: they know no derivatives of log CDF, no array API, and underflow where labels are certain.
Logits in place of intervals: true for one of four noises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from closefar import packed
from closefar.arrays import TINY, Array, FloatArray, IndexArray
from closefar.noise import FlipRate, Noise
from closefar.rows import RowSource

# ---------------------------------------------------------------------------------------------------------------------
# One judgement: pure functions of arrays, with one number per judgement each.


# Beyond an end of an interval by this much, all four noises have no probability left.
FAR_BEYOND = 300.0


class IntervalTerms(NamedTuple):
    """-log P of each judgement, with its derivatives in the lower and the upper end of its interval."""

    loss: Array
    low: Array = None
    up: Array = None
    low_low: Array = None
    low_up: Array = None
    up_up: Array = None


def interval_terms(noise: Noise, above: Array, below: Array, order: int) -> IntervalTerms:
    """Return -log(CDF(above) - CDF(below)), with derivatives up to this order; `order` 2 has all of them.

    `above` and `below` are q less the lower and the upper end, either of which may be infinite.  None stands for an end
    that is infinite for every judgement, which saves half of the work.
    """
    if below is None:
        loss, *rest = noise.derivatives(above, order)
        nothing = 0.0 * loss
        terms = (loss, -rest[0], nothing, rest[-1], nothing, nothing) if rest else (loss,)
        return IntervalTerms(*terms[: (1, 3, 6)[order]])
    if above is None:
        loss, *rest = noise.derivatives(-below, order)
        nothing = 0.0 * loss
        terms = (loss, nothing, rest[0], nothing, nothing, rest[-1]) if rest else (loss,)
        return IntervalTerms(*terms[: (1, 3, 6)[order]])
    # CDF(a) - CDF(b) = CDF(-b) - CDF(-a): the form whose larger term is below one half is exact in both tails.
    xp = array_namespace(above)
    turned = above + below > 0.0
    u = xp.where(turned, -below, above)
    v = xp.maximum(xp.where(turned, -above, below), xp.minimum(u, xp.zeros_like(u)) - FAR_BEYOND)
    (loss, *of_u), (loss_v, *of_v) = noise.derivatives(u, order), noise.derivatives(v, order)
    # Two ends that are equal up to rounding leave nothing; the least is such that derivatives are finite.
    least = float(xp.finfo(loss.dtype).smallest_normal) ** 0.25
    kept = xp.maximum(-xp.expm1(loss - loss_v), xp.zeros_like(loss) + least)
    value = loss - xp.log(kept)
    if order == 0:
        return IntervalTerms(value)
    share = xp.exp(loss - loss_v) / kept
    on_u, on_v = -of_u[0] / kept, -of_v[0] * share  # densities divided by the probability
    low, up = xp.where(turned, on_v, on_u), -xp.where(turned, on_u, on_v)
    if order == 1:
        return IntervalTerms(value, low, up)
    on_uu = (of_u[0] ** 2 * share + of_u[1]) / kept
    on_vv = share * (of_v[0] ** 2 / kept - of_v[1])
    seconds = xp.where(turned, on_vv, on_uu), -on_u * on_v, xp.where(turned, on_uu, on_vv)
    return IntervalTerms(value, low, up, *seconds)


def mixed_terms(found: IntervalTerms, floor: Array, kept: Array) -> IntervalTerms:
    """Return the terms of -log(floor + kept P) from those of -log P; its second derivatives may be negative."""
    xp = array_namespace(found.loss)
    right = kept * xp.exp(-found.loss)
    probability = floor + right
    has_floor = floor > 0.0 * found.loss  # without, the probability may be too small for a number
    one = xp.ones_like(found.loss)
    loss = xp.where(
        has_floor, -xp.log(xp.where(has_floor, probability, one)), found.loss - xp.log(kept + 0.0 * found.loss)
    )
    if found.low is None:
        return IntervalTerms(loss)
    share = xp.where(has_floor, right / xp.where(has_floor, probability, one), one)
    low, up = share * found.low, share * found.up
    if found.low_low is None:
        return IntervalTerms(loss, low, up)
    doubt = 1.0 - share  # of what depends on the distance
    return IntervalTerms(
        loss,
        low,
        up,
        share * found.low_low - doubt * low * found.low,
        share * found.low_up - doubt * low * found.up,
        share * found.up_up - doubt * up * found.up,
    )


def flip_mixture(flip_rate: FlipRate, n_levels: int) -> tuple[Any, Any]:
    """Return the `floor` of each code, along the first axis, and what is `kept`; rates may be arrays.

    The codes are those of K levels, and then K and K + 1 for both answers to a comparison; comparisons alone have
    K = 1.  One rate is the share of wrong answers among those drawn from all levels equally, of which rate / (K - 1)
    falls on each.  Two rates are P(called far | close) and P(called close | far).
    """
    if isinstance(flip_rate, tuple):
        of_close, of_far = (np.asarray(rate, dtype=np.float64) for rate in flip_rate)
        either_side = 0.5 * (of_close + of_far)
        return np.stack([of_far + 0.0 * of_close, of_close + 0.0 * of_far, either_side, either_side]), (
            1.0 - of_close - of_far
        )
    rate = np.asarray(flip_rate, dtype=np.float64)
    k = max(n_levels, 2)
    each, kept = rate / (k - 1), 1.0 - k * (rate / (k - 1))
    return np.stack([*(each,) * n_levels, 0.5 * (1.0 - kept), 0.5 * (1.0 - kept)]), kept


# ---------------------------------------------------------------------------------------------------------------------
# Second derivatives of the risk as solvers use them: the Hessian, its products, and a diagonal model.


class Change(NamedTuple):
    """The change of first derivatives along a step: in the squared distance of some rows and, summed, in thresholds."""

    margin_gradient: Array
    slopes: FloatArray


class Curvature:
    """The second derivatives of any loss of a squared distance and thresholds.

    `distance` is a handle with the second derivative in the squared distance of each row;
    `thresholds` is the matrix of the sums of those in two thresholds.  If it `can_be_sampled`, those of some rows
    can stand for all.
    """

    can_be_sampled: ClassVar[bool] = False

    def __init__(self, distance: Array, crosses: tuple[Array, ...], thresholds: FloatArray) -> None:
        self.distance, self._crosses, self.thresholds = distance, crosses, thresholds

    @property
    def crosses(self) -> tuple[Array, ...]:
        """The mixed derivatives in the squared distance of each row and each threshold, one handle each."""
        return self._crosses

    def mapped(self, function: Callable[[Array], Array]) -> Curvature:
        """The same with a function of each array of one number per row, for rows in partitions."""
        raise NotImplementedError(f"{type(self).__name__} is not for rows in partitions.")

    def with_thresholds(self, thresholds: FloatArray) -> Curvature:
        """The same with other second derivatives in the thresholds, which are sums over partitions."""
        raise NotImplementedError(f"{type(self).__name__} is not for rows in partitions.")

    @property
    def border_passes(self) -> float:
        """The cost of the threshold part of the Hessian, in addition to the sum of squares."""
        return 0.5 * len(self.crosses)

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        """The second derivative of the risk in (packed M, thresholds) as a matrix, `rough` in single precision."""
        on_matrix = source.sum_of_squares(source.map(_root, self.distance), (), rough=rough)
        border = np.reshape([packed.pack(source.outer(cross)) for cross in self.crosses], (-1, len(on_matrix)))
        return np.block([[on_matrix, border.T], [border, self.thresholds]])

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> Curvature:
        """The second derivatives of some rows, which are `part`, each times its factor."""
        raise NotImplementedError(f"{type(self).__name__} needs the second derivatives of all rows.")

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivative of the risk along (S, t), matrix part and threshold part: one sweep over the rows."""
        steps = thresholds.tolist()

        def change(squared: Array, distance: Array, *crosses: Array) -> Change:
            moved = distance * squared
            for step, cross in zip(steps, crosses, strict=True):
                moved = moved + step * cross
            return Change(moved, np.array([_total(cross * squared) for cross in crosses]))

        parts, image = source.sweep(matrix, change, self.distance, *self.crosses)
        return image, np.sum([part.slopes for part in parts], axis=0) + self.thresholds @ thresholds

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivatives in the diagonal of V'MV, V the basis, and in it and each threshold."""
        fourth, sums = source.rotated_moments(self.distance, self.crosses, basis)
        return fourth, sums[:, 1:]


class MarginCurvature(Curvature):
    """The second derivatives of a loss that depends only on the margins q - tau, with one threshold or none."""

    can_be_sampled = True

    def __init__(self, distance: Array, thresholds: FloatArray) -> None:
        self.distance, self.thresholds = distance, thresholds

    @property
    def crosses(self) -> tuple[Array, ...]:
        return (-self.distance,) * len(self.thresholds)

    def mapped(self, function: Callable[[Array], Array]) -> MarginCurvature:
        return MarginCurvature(function(self.distance), self.thresholds)

    def with_thresholds(self, thresholds: FloatArray) -> MarginCurvature:
        return MarginCurvature(self.distance, thresholds)

    @property
    def border_passes(self) -> float:
        return 0.0

    def hessian(self, source: RowSource, *, rough: bool = False) -> FloatArray:
        """The sum of f f' for f = sqrt(c) (F, -1): one sum of squares, with the signs changed at the end."""
        root, n = source.map(_root, self.distance), len(self.thresholds)
        hessian = source.sum_of_squares(root, (root,) * n, rough=rough)
        size = len(hessian) - n
        hessian[size:, :size] *= -1.0
        hessian[:size, size:] *= -1.0
        return hessian

    def sampled(self, source: RowSource, part: RowSource, indices: IndexArray, factors: FloatArray) -> MarginCurvature:
        distance = part.product(source.pick(self.distance, indices), part.row_array(factors))
        return MarginCurvature(distance, np.full_like(self.thresholds, part.total(distance)))

    def product(self, source: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        shift = float(np.sum(thresholds))
        fused = source.curvature_pass(self.distance, matrix, shift)
        if fused is not None:
            return fused[0], np.full_like(thresholds, fused[1])

        def change(squared: Array, distance: Array) -> Change:
            moved = distance * (squared - shift)
            return Change(moved, np.full_like(thresholds, -_total(moved)))

        parts, image = source.sweep(matrix, change, self.distance)
        return image, np.sum([part.slopes for part in parts], axis=0)

    def rotated(self, source: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        fourth, sums = source.rotated_moments(self.distance, (), basis)
        return fourth, -sums[:, : len(self.thresholds)]


class UnknownCurvature(MarginCurvature):
    """The second derivatives of which only the sum is known; those of each row are computed when they are asked for."""

    def __init__(self, compute: Callable[[], Array], thresholds: FloatArray) -> None:
        self._compute = compute
        self.thresholds = thresholds

    @cached_property
    def distance(self) -> Array:
        return self._compute()


def _root(values: Array) -> Array:
    return array_namespace(values).sqrt(values)


def _total(values: Array) -> float:
    return float(array_namespace(values).sum(values))


# ---------------------------------------------------------------------------------------------------------------------
# What likelihoods are evaluated to: sums over rows, and arrays of one number per row.


class Terms(NamedTuple):
    """The likelihood of some of the rows: sums over them, and arrays of one number per row.

    `slopes` are the derivatives of the loss in the thresholds.  `margin_gradient` is the derivative in the
    squared distance of each row, so that dR/dM is the sum of these times F_i.  Second derivatives are
    included on request: `curvature` in the squared distance of each row, `crosses` in it and each
    threshold, and `curvatures`, the sums of those in two thresholds; a loss that depends only on q - tau
    needs only the first.
    """

    loss: float
    slopes: FloatArray
    least_margin: float
    margin_gradient: Array
    curvature: Array = None
    crosses: tuple[Array, ...] = ()
    curvatures: FloatArray | None = None

    @classmethod
    def summed(cls, parts: Sequence[Terms]) -> Terms:
        """The sums over all parts, without their arrays."""
        curvatures = [part.curvatures for part in parts if part.curvatures is not None]
        return cls(
            loss=sum(part.loss for part in parts),
            slopes=np.sum([part.slopes for part in parts], axis=0),
            least_margin=min(part.least_margin for part in parts),
            margin_gradient=None,
            curvatures=np.sum(curvatures, axis=0) if curvatures else None,
        )


@dataclass(frozen=True)
class Evaluation:
    """The risk at given squared distances and thresholds, with its derivatives; see `Terms`.

    `second` is None if only first derivatives were requested.
    """

    loss: float
    slopes: FloatArray
    least_margin: float
    margin_gradient: Array
    second: Curvature | None

    @property
    def curvature(self) -> Curvature:
        if self.second is None:
            raise ValueError("curvature needs second derivatives; got an evaluation of order 1. Use order=2.")
        return self.second

    def mapped(self, function: Callable[[Array], Array]) -> Evaluation:
        """The same with a function of each array of one number per row, always in the same order."""
        margin_gradient = function(self.margin_gradient)
        second = None if self.second is None else self.second.mapped(function)
        return replace(self, margin_gradient=margin_gradient, second=second)

    @classmethod
    def joined(cls, parts: Sequence[Evaluation]) -> Evaluation:
        """The sums of those of several sets of rows; the arrays are the first one's."""
        seconds = [part.second for part in parts if part.second is not None]
        thresholds = np.sum([each.thresholds for each in seconds], axis=0)
        return cls(
            loss=sum(part.loss for part in parts),
            slopes=np.sum([part.slopes for part in parts], axis=0),
            least_margin=min(part.least_margin for part in parts),
            margin_gradient=parts[0].margin_gradient,
            second=seconds[0].with_thresholds(thresholds) if seconds else None,
        )


_MOST_SEARCH_STEPS = 200  # for a threshold; bisection alone needs about 60 to the last digit
_SEARCH_RANGE = 1e3  # beyond the squared distances, where labels of one kind leave a flat tail


class Likelihood(ABC):
    """-log P(judgement) of each row: convex in its squared distance and the thresholds together.

    Attributes
    ----------
    least : array
        The smallest value that each threshold may have.
    weights : handle
        The weight of each row; they sum to one.
    row_arrays : tuple of handles
        The arrays that `terms` needs in addition to squared distances.
    is_convex : bool
        Whether the loss is convex, so that bounds can be proven.
    has_tangents : bool
        Whether it is a function of one margin, of which `pointwise` has the derivatives.
    is_plain : bool
        Whether it is the noise alone, at margins less one threshold, for which sources may have fused passes.
    """

    is_convex: bool = True
    has_tangents: bool = False
    is_plain: ClassVar[bool] = False

    least: FloatArray
    weights: Array
    row_arrays: tuple[Array, ...]

    @abstractmethod
    def terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        """Evaluate some of the rows, with derivatives up to this order."""

    def best_thresholds(
        self, source: RowSource, squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Evaluation]:
        """Minimise over the thresholds, each at least `least`, until no slope is larger than `tol`.

        `start` is a guess, which need not be feasible.  Returns the thresholds and the risk there,
        including its curvature.
        """
        begin = self.made_feasible(np.maximum(start, least))
        return best_several(
            partial(source.evaluate, self, squared, order=2), begin, least, tol, is_convex=self.is_convex
        )

    @abstractmethod
    def trend(self, source: RowSource) -> Array:
        """The weights, with a negative sign if a smaller distance explains the judgement better."""

    @abstractmethod
    def with_arrays(self, *arrays: Array) -> Likelihood:
        """The same likelihood of other rows, given their numbers in the order of `row_arrays`."""

    def right(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each judgement at these squared distances, if it is not flipped."""
        raise NotImplementedError(f"{type(self).__name__} has no probabilities of single judgements.")

    def without_rows(self) -> Any:
        """The same likelihood without its numbers of all rows, as it travels to them."""
        return self.with_arrays(*(0.0 for _ in self.row_arrays))

    def of_sample(self, part: RowSource, arrays: Sequence[Array]) -> Likelihood:
        """The likelihood of some rows alone, whose numbers these are; their weights sum to one again."""
        place = next(place for place, array in enumerate(self.row_arrays) if array is self.weights)
        weights = arrays[place] * (1.0 / part.total(arrays[place]))
        return self.with_arrays(*arrays[:place], weights, *arrays[place + 1 :])

    @property
    def n_thresholds(self) -> int:
        return len(self.least)

    def penalty(self, thresholds: FloatArray) -> float:
        """The penalty on thresholds that the risk includes."""
        return 0.0

    @property
    def precisions(self) -> FloatArray:
        """The second derivative of that penalty in each threshold: half of it times the squared threshold."""
        return np.zeros(self.n_thresholds)

    def follow(self, thresholds: FloatArray, change: float) -> FloatArray:
        """A guess of the thresholds after a change of M that makes squared distances larger by this much on average."""
        return thresholds + change

    def made_feasible(self, thresholds: FloatArray) -> FloatArray:
        """Thresholds near these, which are at least `least`, at which the loss is finite."""
        return thresholds

    def crossed(self, found: Terms, values: Array, *arrays: Array) -> FloatArray:
        """The sums over some rows of the second derivatives in the squared distance and each threshold, times values.

        `found` are the terms of these rows, and `arrays` their numbers in the order of `row_arrays`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no centre.")

    def determines_thresholds(self, source: RowSource) -> bool:
        """Whether there are judgements on both sides of each threshold."""
        return self.n_thresholds == 0 or abs(source.total(self.trend(source))) <= 1.0 - 1e-9

    def evaluate(self, source: RowSource, squared: Array, thresholds: FloatArray, order: int) -> Evaluation:
        """Return the risk at these squared distances."""
        terms = partial(self.terms, thresholds=thresholds, order=order)
        store = _Store(source, self.weights, order)
        parts = source.parts(store.filling(terms), squared, *self.row_arrays, *store.arrays)
        return self._evaluation(source, store.joined(parts), thresholds)

    def loss_and_gradient(
        self, source: RowSource, matrix: FloatArray, thresholds: FloatArray
    ) -> tuple[Evaluation, FloatArray]:
        """Return the risk of a metric, with its curvature, and dR/dM."""
        if source.has_kernels:
            evaluation = self.evaluate(source, source.quadratic_forms(matrix), thresholds, order=2)
            return evaluation, source.outer(evaluation.margin_gradient)
        terms = partial(self.terms, thresholds=thresholds, order=2)
        store = _Store(source, self.weights, order=2)
        parts, gradient = source.sweep(matrix, store.filling(terms), *self.row_arrays, *store.arrays)
        return self._evaluation(source, store.joined(parts), thresholds), gradient

    def curvature(self, source: RowSource, found: Terms) -> Curvature:
        """The second derivatives of all rows."""
        assert found.curvatures is not None
        return Curvature(found.curvature, found.crosses, found.curvatures)

    def _evaluation(self, source: RowSource, found: Terms, thresholds: FloatArray) -> Evaluation:
        second = None if found.curvature is None else self.curvature(source, found)
        return Evaluation(found.loss, found.slopes, found.least_margin, found.margin_gradient, second)


class _Store:
    """The arrays of all rows, which each part of NumPy's arrays is written into; other parts are joined at the end.

    Joining holds all numbers twice, which would be most of the memory of a fit to very many judgements.
    """

    def __init__(self, source: RowSource, weights: Array, order: int) -> None:
        self._source = source
        is_written = isinstance(weights, np.ndarray)
        self.arrays = tuple(np.empty(source.n_rows) for _ in range(order)) if is_written else ()

    def filling(self, terms: Callable[..., Terms]) -> Callable[..., Terms]:
        """The function that also takes parts of the arrays, and writes into them."""
        if not self.arrays:
            return terms

        def fill(squared: Array, *arrays: Array) -> Terms:
            given, outputs = arrays[: -len(self.arrays)], arrays[-len(self.arrays) :]
            found = terms(squared, *given)
            for output, values in zip(outputs, (found.margin_gradient, found.curvature), strict=False):
                output[...] = values
            return found._replace(margin_gradient=outputs[0], curvature=outputs[1] if len(outputs) > 1 else None)

        return fill

    def joined(self, parts: Sequence[Terms]) -> Terms:
        """The terms of all rows."""
        arrays, join = self.arrays, self._source.join
        if not arrays or any(part.margin_gradient.base is not arrays[0] for part in parts):
            has_second = parts[0].curvature is not None
            arrays = (join([part.margin_gradient for part in parts]),)
            arrays += (join([part.curvature for part in parts]),) if has_second else ()
        crosses = tuple(join(list(each)) for each in zip(*(part.crosses for part in parts), strict=True))
        curvature = arrays[1] if len(arrays) > 1 else None
        return Terms.summed(parts)._replace(margin_gradient=arrays[0], curvature=curvature, crosses=crosses)


class CloseFar(Likelihood):
    """P(far) = Phi(q - tau) and P(close) = Phi(tau - q) of pairs with squared distance q; tau is at least 0.

    `signs` are +1 for far and -1 for close; all arrays are handles of the source.  Comparisons have no threshold.

    Attributes
    ----------
    separates : bool
        Whether the loss has no finite minimum if every label is on the right side.
    """

    is_plain = True
    has_tangents = True
    separates: ClassVar[bool] = True
    has_threshold: ClassVar[bool] = True

    def __init__(self, noise: Noise, signs: Array, weights: Array) -> None:
        self.noise, self.signs, self.weights = noise, signs, weights
        self.least = np.zeros(int(self.has_threshold))
        self.row_arrays = (signs, weights)

    def pointwise(self, margin: Array, *rest: Array, order: int) -> tuple[Array, ...]:
        """The loss of each row as a function of its margin l (q - tau), and its first `order` derivatives."""
        return self.noise.derivatives(margin, order)

    def margins(self, squared: Array, *arrays: Array, thresholds: FloatArray) -> tuple[Array, tuple[Array, ...]]:
        """The margins l (q - tau) of some of the rows, and their arrays: after the weights, those of `pointwise`."""
        return arrays[0] * (squared - float(np.sum(thresholds))), arrays

    def terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        margin, (signs, weights, *rest) = self.margins(squared, *arrays, thresholds=thresholds)
        xp, derivatives = array_namespace(margin), self.pointwise(margin, *rest, order=order)
        margin_gradient = weights * signs * derivatives[1]
        return Terms(
            loss=float(xp.vecdot(weights, derivatives[0])),
            slopes=np.full(self.n_thresholds, -_total(margin_gradient)),
            least_margin=float(xp.min(margin)) if self.separates else -np.inf,
            margin_gradient=margin_gradient,
            curvature=weights * derivatives[2] if order == 2 else None,
        )

    def crossed(self, found: Terms, values: Array, *arrays: Array) -> FloatArray:
        return np.full(self.n_thresholds, -float(array_namespace(values).vecdot(found.curvature, values)))

    def loss_and_gradient(
        self, source: RowSource, matrix: FloatArray, thresholds: FloatArray
    ) -> tuple[Evaluation, FloatArray]:
        fused = None
        if self.is_plain:
            fused = source.margin_pass(self.noise, self.signs, self.weights, matrix, float(thresholds[0]))
        if fused is None:
            return super().loss_and_gradient(source, matrix, thresholds)

        def curvature() -> Array:
            squared = source.quadratic_forms(matrix)
            return self.evaluate(source, squared, thresholds, order=2).curvature.distance

        second = UnknownCurvature(curvature, np.array([[fused.curvature]]))
        return Evaluation(fused.loss, np.array([fused.slope]), fused.least_margin, None, second), fused.gradient

    def evaluate(self, source: RowSource, squared: Array, thresholds: FloatArray, order: int) -> Evaluation:
        fused = None
        if self.is_plain:
            threshold = float(thresholds[0])
            fused = source.margin_terms(self.noise, squared, self.signs, self.weights, threshold, order)
        if fused is None:
            return super().evaluate(source, squared, thresholds, order)
        second = MarginCurvature(fused.second, np.array([[fused.curvature]])) if order > 1 else None
        return Evaluation(fused.loss, np.array([fused.slope]), fused.least_margin, fused.margin_gradient, second)

    def curvature(self, source: RowSource, found: Terms) -> Curvature:
        return MarginCurvature(found.curvature, np.full((self.n_thresholds,) * 2, source.total(found.curvature)))

    def best_thresholds(
        self, source: RowSource, squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Evaluation]:
        """Use safeguarded Newton steps until the slopes are at most `tol`, or >= 0 for a threshold at `least`."""
        if self.n_thresholds == 0:
            return np.empty(0), source.evaluate(self, squared, np.empty(0), order=2)
        floor = float(least[0])
        smallest, largest = source.extremes(squared)
        low, high = max(smallest - _SEARCH_RANGE, floor), max(largest + _SEARCH_RANGE, floor)
        threshold = min(max(float(start[0]), low), high)
        tried = set()  # the ends of the bracket, to which a step from a flat tail may return
        for _ in range(_MOST_SEARCH_STEPS):
            here = source.evaluate(self, squared, np.array([threshold]), order=2)
            slope = float(here.slopes[0])
            if abs(slope) <= tol or (threshold == floor and slope >= 0.0):
                break
            low, high = (low, threshold) if slope > 0 else (threshold, high)
            second = float(here.curvature.thresholds[0, 0])
            proposal = max(threshold - slope / second, floor) if second > 0.0 else np.nan
            if not low <= proposal <= high or proposal in tried:
                proposal = 0.5 * (low + high)
            if abs(proposal - threshold) <= 4e-16 * abs(threshold):
                break
            tried.add(threshold)
            threshold = proposal
            del here  # its arrays are those of all rows
        else:
            here = source.evaluate(self, squared, np.array([threshold]), order=2)
        return np.array([threshold]), here

    def trend(self, source: RowSource) -> Array:
        return source.product(self.signs, self.weights)

    def right(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each label at these squared distances, if it is not flipped."""
        noise, threshold = self.noise, float(np.sum(thresholds))
        return source.map(lambda squared, signs: noise.cdf(signs * (squared - threshold)), squared, self.signs)

    def with_arrays(self, *arrays: Array) -> CloseFar:
        return type(self)(self.noise, *arrays)


def best_several(
    evaluate: Callable[[FloatArray], Evaluation],
    start: FloatArray,
    least: FloatArray,
    tol: float,
    *,
    is_convex: bool = True,
) -> tuple[FloatArray, Evaluation]:
    """Minimise a loss over thresholds >= `least` until no relevant slope is larger than `tol`.

    This takes Newton steps in the free thresholds; a step that does not lower the loss is halved, and
    the search ends when only rounding is left.  Where the loss is not convex, the curvature is the Fisher information,
    which may be several times the Hessian: it is corrected by what each step shows (BFGS).
    """
    thresholds = np.maximum(start, least)
    here = evaluate(thresholds)
    second = here.curvature.thresholds
    for _ in range(_MOST_SEARCH_STEPS):
        free = ~((thresholds <= least) & (here.slopes >= 0.0))
        if np.abs(here.slopes[free]).max(initial=0.0) <= tol:
            break
        step = np.zeros_like(thresholds)
        while True:
            step[free] = -np.linalg.solve(damped(second[np.ix_(free, free)]), here.slopes[free])
            moved, there = _descend(evaluate, thresholds, here, step, least)
            cut = free & (thresholds + step < least)
            if moved is not None or not cut.any():
                break
            # A step that is cut off at a bound need not lower the loss: what gets there first is held, the rest adapts.
            share = np.where(cut, (least - thresholds) / np.where(cut, step, 1.0), np.inf)
            free = free & (share > share.min())
            step[~free & cut] = (least - thresholds)[~free & cut]
        if moved is None or there is None:
            break
        second = there.curvature.thresholds if is_convex else _corrected(second, thresholds, here, moved, there)
        thresholds, here = moved, there
    return thresholds, here


def _corrected(
    second: FloatArray, thresholds: FloatArray, here: Evaluation, moved: FloatArray, there: Evaluation
) -> FloatArray:
    """Second derivatives that agree with the change of the slopes along a step, where these grow."""
    taken, change = moved - thresholds, there.slopes - here.slopes
    bend, ahead = float(taken @ change), second @ taken
    if bend <= 1e-3 * float(taken @ ahead):
        return there.curvature.thresholds
    return second + np.outer(change, change) / bend - np.outer(ahead, ahead) / float(taken @ ahead)


def damped(second: FloatArray) -> FloatArray:
    """Second derivatives in thresholds that can be solved with, also where the judgements do not tell them apart.

    Each is damped by its own curvature: that of a narrow prior may be larger than all others by many orders of
    magnitude.
    """
    return second + np.diag(1e-12 * np.diag(second) + TINY)


def _descend(
    evaluate: Callable[[FloatArray], Evaluation],
    thresholds: FloatArray,
    here: Evaluation,
    step: FloatArray,
    least: FloatArray,
) -> tuple[FloatArray | None, Evaluation | None]:
    """The first of successively shorter steps that lowers the loss or, within its rounding error, the slopes."""
    # A step from a flat tail may be enormous.
    length = min(1.0, 10.0 * (1.0 + float(np.abs(thresholds).max())) / max(float(np.abs(step).max()), TINY))
    while length > 1e-9:
        moved = np.maximum(thresholds + length * step, least)
        there = evaluate(moved)
        rounding = 1e-15 * (1.0 + abs(here.loss))
        if there.loss < here.loss - rounding:
            return moved, there
        if there.loss <= here.loss + rounding and _size(there, moved, least) < 0.9 * _size(here, thresholds, least):
            return moved, there
        length *= 0.5
    return None, None


def _size(evaluation: Evaluation, thresholds: FloatArray, least: FloatArray) -> float:
    """The largest relevant slope."""
    held = (thresholds <= least) & (evaluation.slopes >= 0.0)
    return float(np.abs(evaluation.slopes[~held]).max(initial=0.0))


# ---------------------------------------------------------------------------------------------------------------------
# Comparisons: which of two distances is the larger.


class Compared(CloseFar):
    """P = Phi(l q) of comparisons, where q is one squared distance less another; there is no threshold.

    `signs` are +1 if q was said to be positive, and -1 otherwise.
    """

    is_plain = False
    has_threshold = False
