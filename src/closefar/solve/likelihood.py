"""The likelihood: how probable each judgement is at a distance, and the sums over judgements that solvers minimise.

Noise is added to a signed sum of squared distances q, and a judgement says which interval of thresholds the sum was in:

    P = floor + kept (CDF(u - low) - CDF(u - up)),    u = q + c s - delta

Close/far has the intervals below and above tau, level k of K the one from tau_k to tau_(k+1), and a comparison, whose
q is one squared distance less another, those below and above zero.  An annotator is stricter than others by delta, the
squared distance by a centre is s, with a multiple c that is free, and `floor` and `kept` are what flips add and leave.

Roads not taken.  A class for each kind of judgement, with the noise inside: there were six, and each analysis had its
own seventh.  A class for each engine: a `RowLoss` is a function of arrays of any library, travels to where rows are,
and leaves only sums to be joined.  Automatic differentiation: three closed forms are shorter than its dependencies, and
exact in both tails.  SciPy's distributions: they know no derivatives of log CDF, no array API, and underflow where
labels are certain.  Logits in place of intervals: true for one of four noises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from closefar import packed
from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray, like, sums_by, whole_numbers
from closefar.noise import FlipRate, Noise
from closefar.rows import Joined, KernelCall, RowSource, Terms, Trait, slices

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


def interval_terms(
    noise: Noise, above: Array, below: Array, order: int, widths: Sequence[Array] | None = None
) -> IntervalTerms:
    """Return -log(CDF(above) - CDF(below)), with derivatives up to this order; `order` 2 has all of them.

    `above` and `below` are u less the lower and the upper end, either of which may be infinite.  None stands for an end
    that is infinite for every judgement, which saves half of the work.  `widths` are the noise's `width_terms` of each
    interval, if it has some.
    """
    if below is None or above is None:
        loss, *rest = noise.derivatives(-below if above is None else above, order)
        nothing = 0.0 * loss
        if order == 0:
            return IntervalTerms(loss)
        found = (nothing, rest[0]) if above is None else (-rest[0], nothing)
        bend = (nothing, nothing, rest[-1]) if above is None else (rest[-1], nothing, nothing)
        return IntervalTerms(loss, *found, *(bend if order > 1 else ()))
    if widths is not None:
        (loss_a, *a), (loss_b, *b) = noise.derivatives(above, order), noise.derivatives(-below, order)
        loss, slope, bend = widths
        if order == 0:
            return IntervalTerms(loss_a + loss_b + loss)
        ends = (a[-1] + bend, -bend, b[-1] + bend) if order > 1 else ()
        return IntervalTerms(loss_a + loss_b + loss, -a[0] - slope, b[0] + slope, *ends)
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


def mixed_loss(loss: Array, floor: Array, kept: Array) -> tuple[Array, Array]:
    """Return -log(floor + kept P) from -log P, and which share of that probability depends on the distance."""
    xp = array_namespace(loss)
    right, nothing, one = kept * xp.exp(-loss), xp.zeros_like(loss), xp.ones_like(loss)
    has_floor = floor > nothing  # without, the probability may be too small for a number
    probability = xp.where(has_floor, floor + right, one)
    found = xp.where(has_floor, -xp.log(probability), loss - xp.log(kept + nothing))
    return found, xp.where(has_floor, right / probability, one)


def mixed_terms(found: IntervalTerms, floor: Array, kept: Array) -> IntervalTerms:
    """Return the terms of -log(floor + kept P) from those of -log P; its second derivatives may be negative."""
    loss, share = mixed_loss(found.loss, floor, kept)
    if found.low is None:
        return IntervalTerms(loss)
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


# ---------------------------------------------------------------------------------------------------------------------
# The answers that a judgement can give: a kind of judgement is an instance of this class, or of one derived from it.


# Thresholds that a search starts from are at least so far apart, relative to their size.
_APART = 0.05


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers that judgements can give, numbered by codes, each an interval whose ends are linear in thresholds.

    Attributes
    ----------
    lower, upper : arrays
        The thresholds times these coefficients, a row for each answer, are the ends of its interval.
    opens_below, opens_above : arrays
        Whether the interval of each answer has no lower, or no upper end.
    chances : array
        The probability of each in an answer at random.
    trend : array
        From -1, an answer that a smaller distance explains better, to 1.
    """

    lower: FloatArray
    upper: FloatArray
    opens_below: BoolArray
    opens_above: BoolArray
    chances: FloatArray
    trend: FloatArray

    @classmethod
    def of(cls, n_levels: int, *, compares: bool = False) -> Answers:
        """Those of so many levels, of which close/far has two, and of comparisons after them.

        The code of a comparison is one more if the signed sum was said to be positive.
        """
        ordered, beside = np.arange(n_levels), 2 * compares
        n_thresholds = max(n_levels - 1, 0)
        nothing = np.zeros((beside, n_thresholds))
        signs = np.array([-1.0, 1.0])[:beside]
        return cls(
            lower=np.vstack([np.eye(n_levels, n_thresholds, k=-1), nothing]),
            upper=np.vstack([np.eye(n_levels, n_thresholds), nothing]),
            opens_below=np.append(ordered == 0, signs < 0.0),
            opens_above=np.append(ordered == n_levels - 1, signs > 0.0),
            chances=np.append(np.full(n_levels, 1.0 / max(n_levels, 1)), np.full(beside, 0.5)),
            trend=np.append(2.0 * ordered / max(n_levels - 1, 1) - 1.0, signs),
        )

    @property
    def n_answers(self) -> int:
        return len(self.lower)

    @property
    def n_thresholds(self) -> int:
        return int(self.lower.shape[1])

    @cached_property
    def are_one_sided(self) -> bool:
        """Whether each interval has one end."""
        return bool(np.all(self.opens_below != self.opens_above))

    @cached_property
    def are_even(self) -> bool:
        """Whether there are two answers, code 0 below and code 1 above the same end: the fast path of close/far."""
        if len(self.lower) != 2 or np.any(self.opens_below == self.opens_above) or not self.opens_below[0]:
            return False
        return bool(self.opens_above[1]) and np.array_equal(self.upper[0], self.lower[1])

    @cached_property
    def signs(self) -> FloatArray:
        """For answers with one end: +1 above it, -1 below it."""
        return np.where(self.opens_above, 1.0, -1.0)

    @cached_property
    def edges(self) -> FloatArray:
        """For answers with one end: its coefficients."""
        return np.where(self.opens_below[:, None], self.upper, self.lower)

    @cached_property
    def questions(self) -> IndexArray:
        """Which question each answers: the chances of the answers to one sum to one, and follow each other."""
        found: IndexArray = (np.cumsum(self.chances) - 0.5 * self.chances).astype(np.intp)
        return found

    def flips(self, n_rates: int) -> tuple[FloatArray, FloatArray]:
        """The derivatives in flip rates of what these add to the probability of each answer, and take of it.

        One rate is the share of wrong answers about pairs among those drawn from all levels equally; as many answers to
        comparisons are at random.  Two are P(called far | close) and P(called close | far).
        """
        if n_rates == 2:
            of_each = np.full((2, self.n_answers - 2), 0.5)  # answer to a comparison, which has no sides
            return np.hstack([[[0.0, 1.0], [1.0, 0.0]], of_each]), np.ones(2)
        at_random = 1.0 / (1.0 - self.chances[:1])  # share of answers for each wrong one
        return at_random * self.chances[None, :], at_random

    def ends(self, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The lower and the upper end of the interval of each answer."""
        return (
            np.where(self.opens_below, -np.inf, self.lower @ thresholds),
            np.where(self.opens_above, np.inf, self.upper @ thresholds),
        )

    def are_feasible(self, thresholds: FloatArray) -> bool:
        """Whether each interval has a width."""
        low, up = self.ends(thresholds)
        return bool(np.all(low < up))

    def made_feasible(self, thresholds: FloatArray) -> FloatArray:
        """Thresholds near these, and at least as large, at which each interval has a width."""
        if self.are_feasible(thresholds):
            return thresholds
        ordered = np.sort(thresholds)
        return ordered + _APART * (1.0 + float(np.ptp(ordered))) * np.arange(len(ordered))


@dataclass(frozen=True, eq=False)
class FlipRates(ABC):
    """How often answers are given regardless of the distance: by everyone, by side, or by each annotator.

    An answer is drawn from all K levels equally with probability rho; the flip rate rho (K - 1) / K is the share of
    answers that are wrong for this reason.  For close/far labels and comparisons it is rho / 2.  `rates` are these
    probabilities, the last of them that of the typical answer.
    """

    rates: FloatArray

    def with_rates(self, rates: FloatArray) -> Self:
        return replace(self, rates=rates)

    @abstractmethod
    def kept(self, n_groups: int) -> FloatArray:
        """The share of answers of each annotator, and of none, that are not at random."""

    def floors(self, answers: Answers, n_groups: int) -> FloatArray:
        """What answers at random add to the probability of each code, by annotator."""
        return np.outer(1.0 - self.kept(n_groups), answers.chances)

    @abstractmethod
    def flip_rate(self, answers: Answers) -> FlipRate:
        """The share of answers that are wrong because they are at random, or those of close and of far pairs."""

    def penalty(self) -> float:
        """The penalty on the rates that the risk includes."""
        return 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Rows of judgements: functions that are called where rows are, with the form of each and its numbers.


_IN_CACHE = 4096  # rows


@dataclass(frozen=True, eq=False)
class _Located:
    """Where the intervals of answers are: what rows need to know besides their own numbers.

    Row arrays are the codes, the weights, the annotators if there are any (`strictness` is theirs, and zero for nobody)
    and the lengths by a centre if there is one (`multiple` is its multiple).
    """

    answers: Answers
    thresholds: FloatArray
    strictness: FloatArray | None = None
    multiple: float | None = None

    def beyond(self, forms: Array, rest: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        """The squared distances with those by the centre, these less strictness, and the annotators as numbers."""
        if self.multiple is not None:
            forms = forms + self.multiple * rest[-1]
        if self.strictness is None:
            return forms, forms, None
        groups = whole_numbers(rest[0])
        return forms, forms - self.looked_up(forms, self.strictness, groups), groups

    @staticmethod
    def looked_up(model: Array, table: FloatArray, numbers: Array) -> Array:
        """The entries of a table at these whole numbers."""
        return array_namespace(model).take(like(model, table), numbers)

    @property
    def cells(self) -> tuple[int, int]:
        """What sums are by: the annotators, nobody included, and the codes of answers.

        It is one without annotators, and one for answers to either side of one end.
        """
        n_groups = 1 if self.strictness is None else len(self.strictness)
        return n_groups, 1 if self.answers.are_even else self.answers.n_answers

    def sums(self, codes: Array, groups: Array, *values: Array) -> FloatArray:
        """The sum of each array by annotator and code."""
        if self.strictness is None and self.answers.are_even:
            xp = array_namespace(codes)
            return np.array(list(map(float, map(xp.sum, values)))).reshape(-1, 1, 1)
        n_groups, n_codes = self.cells
        cells: Array = None
        if n_codes > 1:
            cells = whole_numbers(codes)
        if groups is not None:
            cells = groups if cells is None else groups * n_codes + cells
        found = sums_by(cells, n_groups * n_codes, *values)
        return found.reshape(len(values), n_groups, n_codes)


@dataclass(frozen=True, eq=False)
class RowLoss(_Located):
    """-log P of each row times its weight, with its derivatives up to this order: what sources sweep over their rows.

    Sums are those of the loss and, by annotator and code, of first and of second derivatives in the ends of intervals;
    with a centre, further ones times the lengths by it.  What is kept of each row are its second derivatives in u, if
    intervals have one end, or else those in the lower end twice, in both, and in the upper end twice.
    `floors` and `kept` are those of flips, by annotator and code.
    """

    noise: Noise = field(kw_only=True)
    floors: FloatArray | None = None
    kept: FloatArray | None = None
    order: int = 2

    @property
    def kernel(self) -> KernelCall | None:
        """The same for kernels, which know of ends alone."""
        if self.strictness is not None or self.multiple is not None or self.floors is not None:
            return None
        return KernelCall(self.noise, *self.answers.ends(self.thresholds), order=self.order)

    def __call__(self, forms: Array, codes: Array, weights: Array, *rest: Array) -> Terms:
        if not self.answers.are_one_sided:
            return self._between(forms, codes, weights, *rest)
        signs, margins, typical, groups = self._margins(forms, codes, rest)
        xp, (loss, slope, *bend) = array_namespace(forms), self.noise.derivatives(margins, self.order)
        least = float(xp.min(typical)) if self.floors is None else -np.inf
        if self.floors is not None:
            before, (floor, kept) = loss, self._flips(forms, codes, groups)
            loss, share = mixed_loss(before, floor, kept)
            slope = share * slope
            if bend:
                # The Fisher information: the other answer's probability, from the loss as it may be close to zero.
                other = xp.maximum(1.0 - kept - floor + 0.0 * loss, 0.0 * loss) - kept * xp.expm1(-before)
                bend = [xp.exp(-loss) / xp.maximum(other, TINY + 0.0 * other) * slope * slope]
        pull, seconds = weights * (signs * slope), tuple(weights * each for each in bend)
        return self._terms(rest, codes, groups, (loss, weights), pull, (-pull,), seconds, least)

    def losses(self, forms: Array, codes: Array, weights: Array, *rest: Array) -> Array:
        """-log P of each row."""
        if self.answers.are_one_sided:
            _, margins, _, groups = self._margins(forms, codes, rest)
            loss = self.noise.neg_log_cdf(margins)
        else:
            _, above, below, _, groups = self._ends(forms, codes, rest)
            loss = interval_terms(self.noise, above, below, 0).loss
        return loss if self.floors is None else mixed_loss(loss, *self._flips(forms, codes, groups))[0]

    def sincere(self, forms: Array, codes: Array, rest: tuple[Array, ...]) -> Array:
        """The probability that each answer depends on the distance, given that there are flips."""
        without = replace(self, floors=None, kept=None).losses(forms, codes, forms, *rest)
        _, _, groups = self.beyond(forms, rest)
        return mixed_loss(without, *self._flips(forms, codes, groups))[1]

    def margins(self, forms: Array, codes: Array, rest: tuple[Array, ...]) -> Array:
        """For answers with one end: the margin that each loss is a function of."""
        return self._margins(forms, codes, rest)[1]

    def _margins(self, forms: Array, codes: Array, rest: tuple[Array, ...]) -> tuple[Array, Array, Array, Array]:
        """For answers with one end: signs, margins, those for the typical annotator, and annotators."""
        whole, beyond, groups = self.beyond(forms, rest)
        if self.answers.are_even:
            signs: Array = 2.0 * codes - 1.0
            edges: Any = float(self.answers.edges[0] @ self.thresholds)
        else:
            numbers = whole_numbers(codes)
            signs = self.looked_up(forms, self.answers.signs, numbers)
            edges = self.looked_up(forms, self.answers.edges @ self.thresholds, numbers)
        margins = signs * (beyond - edges)
        return signs, margins, margins if groups is None else signs * (whole - edges), groups

    def _ends(self, forms: Array, codes: Array, rest: tuple[Array, ...]) -> tuple[Any, Array, Array, Array, Array]:
        """The intervals of answers, u less both ends of that of each row, the margin of the typical annotator, and who.

        The last two are the least distance from both ends, and annotators as numbers.
        """
        xp, (whole, beyond, groups) = array_namespace(forms), self.beyond(forms, rest)
        numbers, ends = whole_numbers(codes), self.answers.ends(self.thresholds)
        # An infinite end is one so far beyond all others, and all sums, that it leaves no probability: exponentials of
        # infinite numbers take several times as long.
        finite = max(float(np.abs(end[np.isfinite(end)]).max(initial=0.0)) for end in ends)
        most = FAR_BEYOND + 2.0 * (float(xp.max(xp.abs(beyond))) + finite)
        low, up = (self.looked_up(forms, np.clip(end, -most, most), numbers) for end in ends)
        return ends, beyond - low, beyond - up, xp.minimum(whole - low, up - whole), groups

    def _between(self, forms: Array, codes: Array, weights: Array, *rest: Array) -> Terms:
        """The terms of answers of which some have two ends."""
        if is_numpy_array(forms) and len(forms) > _IN_CACHE:
            # Some twenty arrays are computed on the way, which is several times as fast if all of them stay in cache.
            joined = Joined(len(forms))
            for where in slices(len(forms), _IN_CACHE):
                joined.add(where, self._between(*(each[where] for each in (forms, codes, weights, *rest))))
            return joined.terms()
        ends, above, below, typical, groups = self._ends(forms, codes, rest)
        on_width = None if self.floors is not None else self.noise.width_terms(ends[1] - ends[0])
        numbers = whole_numbers(codes)
        widths = None if on_width is None else [self.looked_up(forms, each, numbers) for each in on_width]
        found = interval_terms(self.noise, above, below, self.order, widths)
        loss, slopes, seconds = found.loss, (found.low, found.up), tuple(found[3:6]) if self.order > 1 else ()
        least = float(array_namespace(forms).min(typical)) if self.floors is None else -np.inf
        if self.floors is not None:
            loss, share = mixed_loss(found.loss, *self._flips(forms, codes, groups))
            slopes = share * found.low, share * found.up
            seconds = tuple(share * share * each for each in seconds)  # never negative
        slopes, seconds = (tuple(weights * each for each in given) for given in (slopes, seconds))
        return self._terms(rest, codes, groups, (loss, weights), -(slopes[0] + slopes[1]), slopes, seconds, least)

    def _terms(
        self,
        rest: tuple[Array, ...],
        codes: Array,
        groups: Array,
        losses: tuple[Array, Array],
        pull: Array,
        slopes: tuple[Array, ...],
        seconds: tuple[Array, ...],
        least: float,
    ) -> Terms:
        """Sum what was found, already times weights, for the losses apart."""
        xp = array_namespace(pull)
        scalars, parts = [float(xp.vecdot(*losses))], [self.sums(codes, groups, *slopes, *seconds).ravel()]
        if self.multiple is not None:
            lengths = rest[-1]
            scalars.append(float(xp.vecdot(pull, lengths)))
            if seconds:
                mixed = tuple(each * lengths for each in mixed_in_ends(seconds))
                scalars.append(-sum(float(xp.vecdot(each, lengths)) for each in mixed))
                parts.append(self.sums(codes, groups, *mixed).ravel())
        return Terms(np.concatenate([scalars, *parts]), least, pull, seconds)

    def _flips(self, forms: Array, codes: Array, groups: Array) -> tuple[Any, Any]:
        """What flips add to the probability of each answer, and the share that they leave."""
        assert self.floors is not None
        assert self.kept is not None
        if len(self.floors) == 1 and np.all(self.floors == self.floors[0, 0]):
            return float(self.floors[0, 0]), float(self.kept[0])
        numbers = whole_numbers(codes)
        if len(self.floors) == 1:
            return self.looked_up(forms, self.floors[0], numbers), float(self.kept[0])
        cells = groups * self.answers.n_answers + numbers
        return self.looked_up(forms, self.floors.ravel(), cells), self.looked_up(forms, self.kept, groups)


def mixed_in_ends(seconds: Sequence[Array]) -> tuple[Array, ...]:
    """The mixed derivatives in u and the end, or the lower and the upper end, of each interval."""
    if len(seconds) == 1:
        return (-1.0 * seconds[0],)
    low_low, low_up, up_up = seconds
    return -1.0 * (low_low + low_up), -1.0 * (up_up + low_up)


@dataclass(frozen=True, eq=False)
class RowChange(_Located):
    """The change of the first derivatives along a step: in the form of each row and, summed, in the ends of intervals.

    The thresholds, the strictness and the multiple are those of the step.  Row arrays are the kept ones of `RowLoss`,
    then its own but weights.
    """

    @property
    def kernel(self) -> KernelCall | None:
        """The same for kernels, which know of close/far labels alone."""
        if self.strictness is not None or self.multiple is not None or not self.answers.are_even:
            return None
        return KernelCall(None, *self.answers.ends(self.thresholds))

    def __call__(self, forms: Array, *arrays: Array) -> Terms:
        n_seconds = 1 if self.answers.are_one_sided else 3
        seconds, beside = arrays[:n_seconds], arrays[n_seconds:]
        if not beside:  # close/far labels, whose codes do not matter here
            pull = seconds[0] * (forms - float(self.answers.edges[0] @ self.thresholds))
            return Terms(np.array([-float(array_namespace(forms).sum(pull))]), pull=pull)
        codes, *rest = beside
        xp, (_, beyond, groups) = array_namespace(forms), self.beyond(forms, tuple(rest))
        numbers = None if self.answers.are_even else whole_numbers(codes)
        if self.answers.are_one_sided:
            edges = self.answers.edges @ self.thresholds
            pull = seconds[0] * (
                beyond - (float(edges[0]) if numbers is None else self.looked_up(forms, edges, numbers))
            )
            changes: tuple[Array, ...] = (-pull,)
        else:
            low_low, low_up, up_up = seconds
            low, up = (self.looked_up(forms, each @ self.thresholds, numbers) for each in self._coefficients)
            below, above = low - beyond, up - beyond
            changes = low_low * below + low_up * above, low_up * below + up_up * above
            pull = -(changes[0] + changes[1])
        sums = self.sums(codes, groups, *changes).ravel()
        if self.multiple is not None:
            sums = np.append(float(xp.vecdot(pull, rest[-1])), sums)
        return Terms(sums, pull=pull)

    @property
    def _coefficients(self) -> tuple[FloatArray, FloatArray]:
        return self.answers.lower, self.answers.upper


@dataclass(frozen=True, eq=False)
class LineLoss:
    """The loss along a line of forms f + t (g + t h), with what a Newton step in t and the thresholds needs.

    Row arrays are f, g and h, then those of the loss.  Its sums follow those of the loss.
    """

    loss: RowLoss
    length: float

    kernel = None

    def __call__(self, forms: Array, linear: Array, square: Array, *arrays: Array) -> Terms:
        xp, length = array_namespace(forms), self.length
        found = self.loss(forms + length * (linear + length * square), *arrays)
        ahead = linear + (2.0 * length) * square
        codes, _, *rest = arrays
        # The change of first derivatives along the line, with thresholds that stay.
        still = RowChange(
            self.loss.answers,
            np.zeros(self.loss.answers.n_thresholds),
            None if self.loss.strictness is None else np.zeros_like(self.loss.strictness),
            None if self.loss.multiple is None else 0.0,
        )
        change = still(ahead, *found.arrays, codes, *rest)
        dots = [float(xp.vecdot(*each)) for each in ((found.pull, ahead), (found.pull, square), (change.pull, ahead))]
        return Terms(np.concatenate([found.sums, dots, change.sums]), found.least)

    def split(self, sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The sums of the loss, those of first and second derivatives along the line, and those of the change."""
        n_groups, n_codes = self.loss.cells
        n_ends = 1 if self.loss.answers.are_one_sided else 2
        start = len(sums) - n_ends * n_groups * n_codes - int(self.loss.multiple is not None)
        return sums[: start - 3], sums[start - 3 : start], sums[start:]


# ---------------------------------------------------------------------------------------------------------------------
# What a likelihood is evaluated to: the risk with its derivatives, and second derivatives as solvers use them.


@dataclass(frozen=True)
class Evaluation:
    """The risk at given squared distances and thresholds, with its derivatives.

    Attributes
    ----------
    loss : float
    slopes : array
        The derivatives of the loss in the thresholds.
    least_margin : float
        The least distance of a judgement from the ends of its interval for the typical annotator.  If it is positive,
        M and the thresholds can grow for ever.
    margin_gradient : handle
        The derivative in the form of each row, so that dR/dM is the sum of these times F_i.
    second : Curvature, optional
        None if only first derivatives were requested.
    """

    loss: float
    slopes: FloatArray
    least_margin: float
    margin_gradient: Array
    second: Curvature | None = None

    @property
    def curvature(self) -> Curvature:
        if self.second is None:
            raise ValueError("curvature needs second derivatives; got an evaluation of order 1. Use order=2.")
        return self.second


class Curvature:
    """The second derivatives of the risk: the Hessian, its products, and a diagonal model.

    Parameters
    ----------
    likelihood : Likelihood
    evaluate : function, optional
        Returns the evaluation with second derivatives, for what is not given below: most
        iterates of a solver never need them.
    thresholds : array, optional
        The sums of those in two thresholds.
    arrays : tuple of handles, optional
        What `RowLoss` keeps of each row.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        evaluate: Callable[[], Evaluation] | None = None,
        *,
        thresholds: FloatArray | None = None,
        arrays: tuple[Array, ...] = (),
    ) -> None:
        self._likelihood, self._evaluate = likelihood, evaluate
        self._thresholds, self._arrays = thresholds, arrays

    @cached_property
    def _later(self) -> Curvature:
        assert self._evaluate is not None
        return self._evaluate().curvature

    @property
    def thresholds(self) -> FloatArray:
        return self._later.thresholds if self._thresholds is None else self._thresholds

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self._arrays or self._later.arrays

    @property
    def distance(self) -> Array:
        """The second derivative in the form of each row, as a handle."""
        if len(self.arrays) == 1:
            return self.arrays[0]
        low_low, low_up, up_up = self.arrays
        return low_low + 2.0 * low_up + up_up

    @property
    def border_passes(self) -> float:
        """The cost of the threshold part of the Hessian, in addition to the sum of squares."""
        return 0.0 if self._likelihood.groups is None else 1.0

    def crosses(self, rows: RowSource) -> tuple[Array, ...]:
        """The mixed derivatives in the form of each row and each threshold, one handle each."""
        likelihood, mixed = self._likelihood, mixed_in_ends(self.arrays)
        found = [self._on_threshold(rows, mixed, k) for k in range(likelihood.answers.n_thresholds)]
        if likelihood.groups is not None:
            of_group = [partial(_of_group, group=r) for r in range(likelihood.n_groups)]
            found += [rows.map(each, self.distance, likelihood.groups) for each in of_group]
        if likelihood.lengths is not None:
            found.append(rows.product(self.distance, likelihood.lengths))
        return tuple(found)

    def _on_threshold(self, rows: RowSource, mixed: tuple[Array, ...], k: int) -> Array:
        answers = self._likelihood.answers
        if answers.are_even:
            coefficient = float(answers.edges[0, k])
            return mixed[0] if coefficient == 1.0 else coefficient * mixed[0]
        tables = (answers.edges,) if len(mixed) == 1 else (answers.lower, answers.upper)
        on = partial(_on_threshold, tables=tuple(np.ascontiguousarray(each[:, k]) for each in tables))
        return rows.map(on, self._likelihood.codes, *mixed)

    def hessian(self, rows: RowSource, *, rough: bool = False) -> FloatArray:
        """The second derivative of the risk in (packed M, thresholds) as a matrix, `rough` in single precision.

        It is one sum of squares, with the mixed derivatives divided by the root as its border.
        """
        likelihood, answers, mixed = self._likelihood, self._likelihood.answers, mixed_in_ends(self.arrays)
        root, n_taus = rows.map(_root, self.distance), answers.n_thresholds
        if answers.are_even:
            border = [-float(coefficient) * root for coefficient in answers.edges[0]]
        else:
            border = [rows.map(_divided, self._on_threshold(rows, mixed, k), root) for k in range(n_taus)]
        if likelihood.lengths is not None:
            border.append(rows.product(root, likelihood.lengths))
        found = rows.sum_of_squares(root, tuple(border), rough=rough)
        size, n_groups = packed.packed_size(rows.n_columns), likelihood.n_groups
        hessian = np.empty((size + len(self.thresholds),) * 2)
        places = np.delete(np.arange(len(hessian)), np.arange(size + n_taus, size + n_taus + n_groups))
        hessian[np.ix_(places, places)] = found
        if likelihood.groups is not None:
            on = -rows.grouped_outers(self.distance, likelihood.groups, n_groups + 1)[:n_groups]
            of_groups = slice(size + n_taus, size + n_taus + n_groups)
            hessian[of_groups, :size], hessian[:size, of_groups] = on, on.T
        hessian[size:, size:] = self.thresholds
        return hessian

    def product(self, rows: RowSource, matrix: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivative of the risk along (S, t), matrix part and threshold part: one sweep over the rows."""
        change, arrays = self._change(thresholds)
        found, image = rows.sweep(change, matrix, *arrays)
        return image, self._likelihood.slopes_of_change(found.sums) + self._likelihood.precisions * thresholds

    def across(self, rows: RowSource, forms: Array) -> FloatArray:
        """The change of the slopes of thresholds with a change of forms: no pass."""
        nothing = np.zeros(len(self.thresholds))
        change, arrays = self._change(nothing)
        return self._likelihood.slopes_of_change(rows.each(change, forms, *arrays).sums)

    def _change(self, thresholds: FloatArray) -> tuple[RowChange, tuple[Array, ...]]:
        likelihood = self._likelihood
        codes, _, *rest = likelihood.row_arrays
        arrays = (*self.arrays, codes, *rest) if rest or not likelihood.answers.are_even else self.arrays
        return RowChange(likelihood.answers, *likelihood.located(thresholds)), arrays

    def rotated(self, rows: RowSource, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The second derivatives in the diagonal of V'MV, V the basis, and in it and each threshold."""
        fourth, sums = rows.rotated_moments(self.distance, self.crosses(rows), basis)
        return fourth, sums[:, 1:]


def _root(values: Array) -> Array:
    xp = array_namespace(values)
    return xp.sqrt(xp.maximum(values, xp.zeros_like(values)))


def _divided(values: Array, root: Array) -> Array:
    return values / array_namespace(root).maximum(root, TINY + 0.0 * root)


def _of_group(distance: Array, groups: Array, group: int) -> Array:
    return array_namespace(distance).where(groups == group, -distance, 0.0 * distance)


def _on_threshold(codes: Array, *mixed: Array, tables: tuple[FloatArray, ...]) -> Array:
    """The mixed derivatives in forms and a threshold, which has these coefficients in the ends of each answer."""
    numbers, xp = whole_numbers(codes), array_namespace(mixed[0])
    on_ends = [each * xp.take(like(each, table), numbers) for each, table in zip(mixed, tables, strict=True)]
    return on_ends[0] if len(on_ends) == 1 else on_ends[0] + on_ends[1]


# ---------------------------------------------------------------------------------------------------------------------
# The likelihood of the judgements of a row source.


@dataclass(frozen=True, eq=False)
class Likelihood:
    """-log P of each judgement: convex in its form and the thresholds together, unless some are flipped.

    Its thresholds are those of the answers, the strictness of each annotator, with a normal prior, and the multiple of
    a centre.

    Attributes
    ----------
    noise : Noise
    answers : Answers
    codes : handle
        The answer that each judgement gives.
    weights : handle
        The weight of each judgement; they sum to one.
    groups : handle, optional
        The annotator of each row; R if there is none.
    n_groups : int
        R.
    precision : float
        1 / (width^2 W) for the width of the prior on strictness, where W is the sum of the weights before they were
        divided by it.
    lengths : handle, optional
        The squared distance of each row by the centre.
    price : float
        The risk includes this times the multiple of the centre, so that it is finite where the centre alone separates
        the judgements.
    flips : FlipRates, optional
    """

    noise: Noise
    answers: Answers
    codes: Array
    weights: Array
    groups: Array = None
    n_groups: int = 0
    precision: float = 0.0
    lengths: Array = None
    price: float = 0.0
    flips: FlipRates | None = None

    @property
    def traits(self) -> frozenset[Trait]:
        """Convex without flips; then a function of one margin where intervals have one end, and annotators no prior."""
        if self.flips is not None:
            return frozenset()
        has_tangents = self.answers.are_one_sided and self.groups is None
        return frozenset([Trait.CONVEX, Trait.TANGENTS] if has_tangents else [Trait.CONVEX])

    @property
    def row_arrays(self) -> tuple[Array, ...]:
        """The arrays that a `RowLoss` needs in addition to forms."""
        return self.codes, self.weights, *(each for each in (self.groups, self.lengths) if each is not None)

    @cached_property
    def least(self) -> FloatArray:
        """The smallest value that each threshold may have."""
        found = [np.zeros(self.answers.n_thresholds), np.full(self.n_groups, -np.inf)]
        return np.concatenate([*found, np.zeros(int(self.lengths is not None))])

    @property
    def n_thresholds(self) -> int:
        return len(self.least)

    @property
    def _on_groups(self) -> slice:
        n = self.answers.n_thresholds
        return slice(n, n + self.n_groups)

    @cached_property
    def precisions(self) -> FloatArray:
        """The second derivative of the penalty in each threshold: half of it times the squared threshold."""
        found = np.zeros(self.n_thresholds)
        found[self._on_groups] = self.precision
        return found

    def penalty(self, thresholds: FloatArray) -> float:
        """The penalty on thresholds, the multiple and flip rates that the risk includes."""
        found = 0.5 * float(self.precisions @ thresholds**2) + (0.0 if self.flips is None else self.flips.penalty())
        return found if self.lengths is None else found + self.price * float(thresholds[-1])

    def located(self, thresholds: FloatArray) -> tuple[FloatArray, FloatArray | None, float | None]:
        """The thresholds of answers, the strictness of each annotator and of nobody, and the multiple of the centre."""
        strictness = None if self.groups is None else np.append(thresholds[self._on_groups], 0.0)
        return (
            thresholds[: self.answers.n_thresholds],
            strictness,
            None if self.lengths is None else float(thresholds[-1]),
        )

    def loss(self, thresholds: FloatArray, order: int = 2) -> RowLoss:
        """The loss of rows at these thresholds; each interval must have a width."""
        floors, kept = None, None
        if self.flips is not None:
            floors, kept = self.flips.floors(self.answers, self.n_groups), self.flips.kept(self.n_groups)
            if self.groups is None:
                floors, kept = floors[-1:], kept[-1:]
        located = self.located(thresholds)
        return RowLoss(self.answers, *located, noise=self.noise, floors=floors, kept=kept, order=order)

    def evaluation(
        self, found: Terms, thresholds: FloatArray, evaluate: Callable[[], Evaluation] | None = None
    ) -> Evaluation:
        """What the terms of all rows say; `evaluate` computes second derivatives that a sweep did not keep."""
        sums, n_ends = found.sums, 1 if self.answers.are_one_sided else 2
        n_codes = 1 if self.answers.are_even else self.answers.n_answers
        shape = (1 if self.groups is None else self.n_groups + 1), n_codes
        size, n_more = shape[0] * shape[1], int(self.lengths is not None)
        n_second = 1 if n_ends == 1 else 3
        has_second = len(sums) > 1 + n_more + n_ends * size
        start = 1 + n_more * (1 + has_second)
        by_cell = sums[start : start + (n_ends + has_second * n_second) * size].reshape(-1, *shape)
        slopes = self._spread(by_cell[:n_ends], sums[1] if n_more else None) + self.precisions * thresholds
        if n_more:
            slopes[-1] += self.price
        second = None if evaluate is None else Curvature(self, evaluate)
        if has_second:
            crossed = sums[start + by_cell.size :].reshape(-1, *shape) if n_more else None
            matrix = self._second(by_cell[n_ends:], crossed, sums[2] if n_more else 0.0)
            second = Curvature(self, evaluate, thresholds=matrix, arrays=found.arrays)
        return Evaluation(float(sums[0]) + self.penalty(thresholds), slopes, found.least, found.pull, second)

    def infeasible(self, squared: Array) -> Evaluation:
        """The risk where some interval has no width."""
        return Evaluation(np.inf, np.zeros(self.n_thresholds), -np.inf, None if squared is None else 0.0 * squared)

    def slopes_of_change(self, sums: FloatArray) -> FloatArray:
        """The change of the slopes that the sums of a `RowChange` say, without the penalty."""
        n_more = int(self.lengths is not None)
        n_ends, n_groups = 1 if self.answers.are_one_sided else 2, 1 if self.groups is None else self.n_groups + 1
        return self._spread(sums[n_more:].reshape(n_ends, n_groups, -1), sums[0] if n_more else None)

    @cached_property
    def _incidence(self) -> tuple[FloatArray, ...]:
        """The coefficients of thresholds in the ends that sums are of, by column of the sums."""
        answers = self.answers
        if answers.are_even:
            return (answers.edges[:1],)
        return (answers.edges,) if answers.are_one_sided else (answers.lower, answers.upper)

    def _spread(self, by_cell: FloatArray, on_multiple: float | None) -> FloatArray:
        """Sums by end, annotator and code as those for each threshold."""
        on_taus = sum(each.sum(axis=0) @ on for each, on in zip(by_cell, self._incidence, strict=True))
        parts = [np.asarray(on_taus), by_cell.sum(axis=(0, 2))[: self.n_groups] if self.groups is not None else []]
        return np.concatenate([*parts, [] if on_multiple is None else [on_multiple]])

    def _second(self, by_cell: FloatArray, crossed: FloatArray | None, on_multiple: float) -> FloatArray:
        """The second derivatives in two thresholds, from sums by ends, annotator and code."""
        found, n, on = np.zeros((self.n_thresholds,) * 2), self.answers.n_thresholds, self._incidence
        pairs = [(0, 0)] if len(on) == 1 else [(0, 0), (0, 1), (1, 1)]
        border: Any = 0.0
        for (i, j), cells in zip(pairs, by_cell, strict=True):
            part = on[i].T @ (cells.sum(axis=0)[:, None] * on[j])
            found[:n, :n] += part if i == j else part + part.T
            border = border + cells @ (on[i] if i == j else on[i] + on[j])
        if self.groups is not None:
            found[self._on_groups, :n], found[:n, self._on_groups] = border[:-1], border[:-1].T
            # Twice those in both ends: a strictness moves these together.
            whole = by_cell[0] if len(pairs) == 1 else by_cell[0] + 2.0 * by_cell[1] + by_cell[2]
            found[self._on_groups, self._on_groups] = np.diag(whole.sum(axis=1)[:-1])
        if crossed is not None:
            found[-1, :-1] = found[:-1, -1] = self._spread(crossed, None)
            found[-1, -1] = on_multiple
        found[np.diag_indices(len(found))] += self.precisions
        return found

    # Other likelihoods of the same judgements, or of some of them.

    def of_rows(self, arrays: Sequence[Array], total: float = 1.0, **changes: Any) -> Likelihood:
        """The same of other rows, whose numbers these are in the order of `row_arrays`; weights are divided by a total.

        Those before the division are those of a part of the judgements, and the prior counts as much more for them.
        """
        codes, weights, *rest = arrays
        groups = rest.pop(0) if self.groups is not None else None
        weights = weights if total == 1.0 else weights * (1.0 / total)
        lengths = rest.pop(0) if self.lengths is not None else None
        precision = self.precision / total
        return replace(
            self, codes=codes, weights=weights, groups=groups, lengths=lengths, precision=precision, **changes
        )

    def with_flips(self, flips: FlipRates | None) -> Likelihood:
        """The same with other flip rates, or without."""
        return replace(self, flips=flips)

    # What is asked of judgements as a whole.

    def follow(self, thresholds: FloatArray, change: float) -> FloatArray:
        """A guess of the thresholds after a change of M that makes squared distances larger by this much on average."""
        found = thresholds.copy()
        found[: self.answers.n_thresholds] += change
        return found

    def is_feasible(self, thresholds: FloatArray) -> bool:
        """Whether the loss is finite."""
        return self.answers.are_feasible(thresholds[: self.answers.n_thresholds])

    def made_feasible(self, thresholds: FloatArray) -> FloatArray:
        """Thresholds near these, which are at least `least`, at which the loss is finite."""
        if self.is_feasible(thresholds):
            return thresholds
        n = self.answers.n_thresholds
        return np.append(self.answers.made_feasible(thresholds[:n]), thresholds[n:])

    def trend(self, rows: RowSource) -> Array:
        """The weights, with a negative sign if a smaller distance explains the judgement better."""
        return rows.map(partial(_weighted, table=self.answers.trend), self.codes, self.weights)

    def determines_thresholds(self, rows: RowSource) -> bool:
        """Whether each answer that depends on a threshold was given."""
        if self.answers.n_thresholds == 0:
            return True
        used = np.any((self.answers.lower != 0.0) | (self.answers.upper != 0.0), axis=1)
        shares = [
            rows.total(rows.map(partial(_weighted, table=each), self.codes, self.weights))
            for each in np.diag(used)[used]
        ]
        return min(shares) > _LEAST_SHARE

    def right(self, rows: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each judgement at these squared distances, if it is not flipped."""
        return rows.map(partial(_probability, self.with_flips(None).loss(thresholds)), squared, *self.row_arrays)

    def losses(self, rows: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """-log P of each judgement at these squared distances, flips included."""
        return rows.map(self.loss(thresholds).losses, squared, *self.row_arrays)


# An answer with less of the weight, which sums to one, was hardly given.
_LEAST_SHARE = 1e-10


def _weighted(codes: Array, weights: Array, table: FloatArray) -> Array:
    """The weights times the entry of a table for each code."""
    return weights * _Located.looked_up(weights, np.asarray(table, dtype=np.float64), whole_numbers(codes))


def _probability(loss: RowLoss, forms: Array, *arrays: Array) -> Array:
    return array_namespace(forms).exp(-loss.losses(forms, *arrays))


# ---------------------------------------------------------------------------------------------------------------------
# The best thresholds at known squared distances.


_MOST_SEARCH_STEPS = 200  # for a threshold; bisection alone needs about 60 to the last digit
_SEARCH_RANGE = 1e3  # beyond the squared distances, where labels of one kind leave a flat tail
_MOST_HALVINGS = 30  # of a step, to a billionth of it
_LONGEST_STEP = 10.0  # of a first step, beyond which one asks for the range of squared distances


def best_one(
    evaluate: Callable[[FloatArray], Evaluation],
    extremes: Callable[[], tuple[float, float]],
    start: float,
    floor: float,
    tol: float,
) -> tuple[FloatArray, Evaluation]:
    """Minimise over one threshold until the slope is at most `tol`, or >= 0 at the floor.

    Newton steps, of one evaluation each, as long as they shrink; otherwise they are kept within a bracket.
    """
    low, high, longest, is_bracketed = floor, np.inf, _LONGEST_STEP, False
    threshold = max(start, floor)
    tried = set()  # the ends of the bracket, to which a step from a flat tail may return
    for _ in range(_MOST_SEARCH_STEPS):
        here = evaluate(np.array([threshold]))
        slope, second = float(here.slopes[0]), float(here.curvature.thresholds[0, 0])
        if abs(slope) <= tol or (threshold == floor and slope >= 0.0):
            break
        low, high = (low, threshold) if slope > 0.0 else (threshold, high)
        proposal = max(threshold - slope / second, floor) if second > 0.0 else np.inf
        step = abs(proposal - threshold)
        if not (is_bracketed or step <= longest):
            smallest, largest = extremes()
            low = max(low, min(smallest - _SEARCH_RANGE, threshold))
            high = min(high, max(largest + _SEARCH_RANGE, threshold))
            is_bracketed = True
        longest = 0.5 * step
        if not low <= proposal <= high or proposal in tried:
            proposal = 0.5 * (low + high)
        if abs(proposal - threshold) <= 4e-16 * abs(threshold):
            break
        tried.add(threshold)
        threshold = proposal
        del here  # its arrays are those of all rows
    else:
        here = evaluate(np.array([threshold]))
    return np.array([threshold]), here


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
            # A step from a flat tail may be enormous.
            length = 10.0 * (1.0 + float(np.abs(thresholds).max())) / max(float(np.abs(step).max()), TINY)
            lengths, found = min(1.0, length) * 0.5 ** np.arange(_MOST_HALVINGS), None
            for length in lengths:
                moved = np.maximum(thresholds + length * step, least)
                there = evaluate(moved)
                if _is_better(there, moved, here, thresholds, least):
                    found = moved, there
                    break
            cut = free & (thresholds + step < least)
            if found is not None or not cut.any():
                break
            # A step that is cut off at a bound need not lower the loss: what gets there first is held, the rest adapts.
            share = np.where(cut, (least - thresholds) / np.where(cut, step, 1.0), np.inf)
            free = free & (share > share.min())
            step[~free & cut] = (least - thresholds)[~free & cut]
        if found is None:
            break
        moved, there = found
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


def _is_better(
    there: Evaluation, moved: FloatArray, here: Evaluation, thresholds: FloatArray, least: FloatArray
) -> bool:
    """Whether a step lowers the loss or, within its rounding error, the slopes."""
    rounding = 1e-15 * (1.0 + abs(here.loss))
    if there.loss < here.loss - rounding:
        return True
    return there.loss <= here.loss + rounding and _size(there, moved, least) < 0.9 * _size(here, thresholds, least)


def _size(evaluation: Evaluation, thresholds: FloatArray, least: FloatArray) -> float:
    """The largest relevant slope."""
    held = (thresholds <= least) & (evaluation.slopes >= 0.0)
    return float(np.abs(evaluation.slopes[~held]).max(initial=0.0))
