"""The likelihood of judgements near a fit: what tests, standard errors and choices need to know of it.

That is the probability of each judgement with its derivatives, the moves of M that keep its rank, and the errors of
margins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray, to_numpy
from closefar.fitting import AnnotatorTable, Fit, score
from closefar.judgements import Judgements, Kind, sample_rows
from closefar.model import Metric
from closefar.noise import FlipRate, Noise, turned_round, with_flips
from closefar.rows import BlockRows, Coordinates, Rows, factor_in_rows, judged_rows, rows_of, unit_free
from closefar.solve import interval_terms

# ---------------------------------------------------------------------------------------------------------------------
# What a fit knows of the annotators of judgements, and judgements that are read for a question.


def table_of(fit: Fit, judgements: Judgements) -> AnnotatorTable | None:
    """What the fit knows of the annotators of these judgements; None if they have none."""
    return None if judgements.annotators is None else fit.annotators


def annotator_rates(fit: Fit, judgements: Judgements) -> FloatArray | None:
    """The flip rate of each judgement, attached comparisons last; None if annotators have no rates of their own."""
    table = fit.annotators
    if table is None or judgements.annotators is None or table.flip_rates is None:
        return None
    rates = table.flip_rates[judgements.annotators.codes]
    others = judgements.comparisons
    return rates if others is None else np.append(rates, np.full(len(others), fit.metric.one_flip_rate))


def read_for(
    fit: Fit, X: Any, y: Any = None, sample_weight: Any = None, annotators: Any = None, comparisons: Any = None
) -> Judgements:
    """Validate judgements for a question, or return those of training; a fit with annotators needs theirs."""
    if X is None:
        if annotators is not None or comparisons is not None:
            raise ValueError("annotators and comparisons must be given with their pairs; got no pairs. Pass them, too.")
        return fit.training()
    if isinstance(X, Judgements):
        return X
    if fit.kind is Kind.COMPARISONS and (annotators is not None or comparisons is not None):
        raise ValueError("annotators and comparisons belong to pairs; got them with comparisons alone. Leave them out.")
    if fit.annotators is not None and annotators is None:
        raise ValueError(
            "this fit has annotators, so their ids must be given with pairs and labels; got none. Pass annotators=ids."
        )
    if fit.annotators is None and annotators is not None:
        raise ValueError("this fit has no annotators; got annotators. Leave them out, or fit with annotators=ids.")
    return fit.read(X, y, sample_weight, annotators=annotators, comparisons=comparisons)


# ---------------------------------------------------------------------------------------------------------------------
# Judgements as the legs that they compare: one of a pair, and two of a comparison.


def leg_blocks(rows: Rows) -> Iterator[tuple[slice, list[tuple[float, Array]]]]:
    """Blocks of judgements, and the legs of each with their factors: q is the sum of factor times z'Mz.

    The legs of a block are columns.
    """
    if isinstance(rows, BlockRows):
        for where, block in rows.blocks():
            yield where, [(1.0, block)]
        return
    step = max(512, (1 << 18) // max(rows.n_columns, 1))
    for start in range(0, rows.n_pairs, step):
        where = slice(start, min(start + step, rows.n_pairs))
        yield where, [(1.0, rows.legs.read(where))]
    for start in range(rows.n_pairs, rows.n_rows, step):
        where = slice(start, min(start + step, rows.n_rows))
        first, last = (2 * place - rows.n_pairs for place in (where.start, where.stop))
        legs = rows.legs.read(slice(first, last))
        yield where, [(rows.scale, legs[:, 1::2]), (-rows.scale, legs[:, 0::2])]


def differences(rows: Rows) -> Iterator[Array]:
    """The differences of all legs, in their order, as columns of blocks."""
    legs = rows if isinstance(rows, BlockRows) else rows.legs
    for _, block in legs.blocks():
        yield block


def by_legs(rows: Rows, function: Callable[[FloatArray], FloatArray]) -> Iterator[tuple[slice, FloatArray]]:
    """A function of each difference, with one row of numbers for each, added up over the legs of each judgement."""
    for where, legs in leg_blocks(rows):
        total: Any = None
        for factor, block in legs:
            found = function(to_numpy(block))
            if factor != 1.0:
                found = factor * found
            total = found if total is None else total + found
        yield where, total


def combined_legs(values: FloatArray, rows: Rows) -> FloatArray:
    """Add up one row of numbers for each leg, in the order of the legs, over the legs of each judgement."""
    if isinstance(rows, BlockRows):
        return values
    pairs, compared = values[: rows.n_pairs], values[rows.n_pairs :]
    return np.concatenate([pairs, rows.scale * (compared[1::2] - compared[0::2])])


# ---------------------------------------------------------------------------------------------------------------------
# Some rows that stand for all of them, where there are many.


# Rows that stand for all of them, and per parameter of M: sums of squares are then within about one percent.
_MOST_ROWS = 100_000
_ROWS_PER_PARAMETER = 200  # of M

_LARGE_RATIO = 20.0  # of a row that stands for itself, times the usual weight or the usual squared length


def representatives(weights: FloatArray, lengths: FloatArray, most: int | None = None) -> tuple[IndexArray, FloatArray]:
    """About `most` of the rows, 100,000 by default, and how many rows each stands for; all where there are no more.

    `lengths` are the squared lengths of the rows, one on average.  A row that is long or heavy stands
    for itself: a sample would lose, or misjudge, a direction in which few rows vary.
    """
    n, most = len(weights), _MOST_ROWS if most is None else most
    if n <= most:
        return np.arange(n), np.ones(n)
    is_large = weights * np.maximum(lengths, 1.0) > _LARGE_RATIO * weights.mean()
    others = np.flatnonzero(~is_large)
    some = others[sample_rows(len(others), most)]
    chosen = np.union1d(np.flatnonzero(is_large), some)
    each = weights[others].sum() / weights[some].sum()
    return chosen, np.where(is_large[chosen], 1.0, each)


def mean_squares(rows: Rows, coordinates: Callable[[Array], FloatArray]) -> FloatArray:
    """The mean square of the coordinates of the legs of each row: one on average."""
    parts = [[np.mean(coordinates(block) ** 2, axis=1) for _, block in legs] for _, legs in leg_blocks(rows)]
    return np.concatenate([np.mean(legs, axis=0) for legs in parts])


# ---------------------------------------------------------------------------------------------------------------------
# A fitted metric in unit-free coordinates.


@dataclass(frozen=True)
class Optimum:
    """A fitted metric in unit-free coordinates: z'Mz = |factor' w|^2 for `rows` w = transform' z.

    The second moment of w is the identity.  For a metric with an origin, w = transform' (x - origin).  `thresholds` are
    those of levels and the strictness of each annotator.
    """

    rows: Rows
    coordinates: Coordinates
    factor: FloatArray
    thresholds: FloatArray

    @classmethod
    def of(
        cls,
        metric: Metric,
        judgements: Judgements,
        *,
        comparison_noise: float = 1.0,
        strictness: FloatArray | None = None,
    ) -> Optimum:
        if metric.origin is None:
            source = judged_rows(judgements, comparison_noise)
        else:
            source = rows_of(judgements.data, metric.origin)
        signs, shares = judgements.signs_in(source), judgements.shares_in(source)
        rows, coordinates = unit_free(source, shares, signs=signs, finds_null=False)
        factor = factor_in_rows(rows, source, shares, metric.factor)
        thresholds = np.append(metric.thresholds, () if strictness is None else strictness)
        return cls(rows, coordinates, factor, thresholds)

    @property
    def threshold(self) -> float:
        return float(self.thresholds[0])

    @property
    def size(self) -> int:
        """The number of coordinates: the columns of M."""
        return self.rows.n_columns

    @property
    def matrix(self) -> FloatArray:
        return self.factor @ self.factor.T

    @property
    def parameters(self) -> FloatArray:
        """(packed M, thresholds)."""
        return packed.join(self.matrix, self.thresholds)


# ---------------------------------------------------------------------------------------------------------------------
# What each judgement says of the thresholds, and how flips change its probability.


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The interval of thresholds that each judgement says its squared distance is in; attached comparisons come last.

    The lowest level has no lower, and the highest no upper end.  Comparisons depend on no threshold: their only end
    is zero.

    Attributes
    ----------
    codes : array of shape (n,)
        The level of each judgement, from 0.  A comparison has the code K if the answer is as given, and K + 1 if
        it is reversed.
    n_levels : int
        K; comparisons alone have one level, and no threshold.
    annotators : array of shape (n,), optional
        The annotator of each judgement; R for a comparison, which has none.
    n_annotators : int
        R.
    """

    codes: IndexArray
    n_levels: int
    annotators: IndexArray | None = None
    n_annotators: int = 0

    @classmethod
    def of(cls, judgements: Judgements) -> Outcomes:
        if judgements.kind is Kind.COMPARISONS:
            return cls(np.where(judgements.is_far, 1, 2), 1)
        codes, n_levels = np.asarray(judgements.codes, dtype=np.intp), judgements.n_levels
        given, others = judgements.annotators, judgements.comparisons
        annotators, n_annotators = (None, 0) if given is None else (given.codes, len(given.names))
        if others is not None:
            codes = np.concatenate([codes, np.where(others.is_far, n_levels, n_levels + 1)])
            if annotators is not None:
                annotators = np.concatenate([annotators, np.full(len(others), n_annotators)])
        return cls(codes, n_levels, annotators, n_annotators)

    def take(self, rows: IndexArray) -> Outcomes:
        annotators = None if self.annotators is None else self.annotators[rows]
        return replace(self, codes=self.codes[rows], annotators=annotators)

    @property
    def n_cuts(self) -> int:
        return self.n_levels - 1

    @property
    def n_thresholds(self) -> int:
        return self.n_cuts + self.n_annotators

    @cached_property
    def are_compared(self) -> BoolArray:
        return np.asarray(self.codes >= self.n_levels)

    @cached_property
    def lower(self) -> FloatArray:
        """1 for the threshold at the lower end of each, otherwise 0: an array of shape (n, K - 1)."""
        return np.asarray(self.codes[:, None] == np.arange(1, self.n_levels), dtype=np.float64)

    @cached_property
    def upper(self) -> FloatArray:
        """The same for the upper end."""
        return np.asarray(self.codes[:, None] == np.arange(self.n_cuts), dtype=np.float64)

    def margins(self, squared: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far squared distances are above the lower and above the upper end, which may be infinite."""
        has_lower = (self.codes >= 1) & (self.codes <= self.n_levels)
        has_upper = (self.codes < self.n_cuts) | (self.codes > self.n_levels)
        return (
            np.where(has_lower, squared - self.lower @ thresholds, np.inf),
            np.where(has_upper, squared - self.upper @ thresholds, -np.inf),
        )

    def slopes(self, where: slice) -> FloatArray:
        """The derivative of minus the strictness of the annotator of each in all thresholds."""
        slopes = np.zeros((len(self.codes[where]), self.n_thresholds))
        if self.annotators is not None:
            rows, annotators = np.arange(len(slopes)), self.annotators[where]
            judged = annotators < self.n_annotators
            slopes[rows[judged], self.n_cuts + annotators[judged]] = -1.0
        return slopes

    def alternatives(self) -> Iterator[tuple[Outcomes, BoolArray]]:
        """All outcomes that each judgement could have had, one at a time, and which of them there are."""
        for code in range(max(self.n_levels, 2)):
            compared = self.n_levels + min(code, 1)
            yield (
                replace(self, codes=np.where(self.are_compared, compared, code)),
                np.where(self.are_compared, code < 2, code < self.n_levels),
            )


@dataclass(frozen=True, eq=False)
class Flips:
    """P~ = e + s P, with e and s linear in the flip rates that are parameters, and known otherwise.

    `base` and `kept` are e and s at rates of zero (or as known), `on_base` and `on_kept` minus their derivatives
    in each rate, where that of e has its own sign: e = base + rates @ on_base, s = kept - rates @ on_kept.
    """

    base: Any
    kept: Any
    on_base: tuple[Any, ...] = ()
    on_kept: tuple[Any, ...] = ()

    @classmethod
    def known(cls, outcomes: Outcomes, flip_rate: FlipRate | FloatArray) -> Flips:
        """Those of known rates, which may be arrays with a number per row."""
        n_free = 2 if isinstance(flip_rate, tuple) else 1
        free = cls.free(outcomes, n_free)
        rates = flip_rate if isinstance(flip_rate, tuple) else (flip_rate,)
        return cls(*free.at(rates))

    @classmethod
    def free(cls, outcomes: Outcomes, n_rates: int) -> Flips:
        """Those of one rate, or of the rates of close and of far, as parameters.

        One rate of K levels is the share of wrong answers among those drawn from all levels alike.  As many answers
        to comparisons are at random, half of them wrong.
        """
        compared = outcomes.are_compared
        if n_rates == 2:
            called_far = np.where(compared, 0.5, outcomes.codes > 0)
            return cls(0.0, 1.0, (called_far, 1.0 - called_far), (1.0, 1.0))
        k = float(max(outcomes.n_levels, 2))
        kept = k / (k - 1.0)
        on_base = np.where(compared, 0.5 * kept, 1.0 / (k - 1.0)) if k > 2 else 1.0
        return cls(0.0, 1.0, (on_base,), (kept,))

    @property
    def are_none(self) -> bool:
        """Whether nothing is flipped, and no rate is a parameter."""
        return not self.on_base and np.ndim(self.kept) == 0 and self.kept == 1.0

    def at(self, rates: Any) -> tuple[Any, Any]:
        """E and s at these rates."""
        base, kept = self.base, self.kept
        for rate, on_base, on_kept in zip(rates, self.on_base, self.on_kept, strict=True):
            base, kept = base + rate * on_base, kept - on_kept * rate
        return base, kept


# ---------------------------------------------------------------------------------------------------------------------
# The likelihood of judgements over all symmetric M, without constraints: the basis of standard errors.
#
# Parameters are one vector: M in unit-free coordinates, packed, then the thresholds of levels, the strictness of
# each annotator and, where they were estimated, the flip rates. Neither M >= 0 nor tau >= 0 is required: without
# these constraints the likelihood has an interior optimum, even if that of the fit lies on the boundary.


# Products of columns are kept up to this many numbers, 80 MB, and beyond that recomputed in each pass.
_MOST_KEPT = 10_000_000


@dataclass(frozen=True)
class LabelTerms:
    """-log P(judgement) of each row and its derivatives, one number per row each, and one column per flip rate.

    Derivatives are those in the margins from the lower and the upper end, and `on_rates` in the flip rates; `low_rates`
    and `up_rates` are in both.  The second ones in two flip rates are products of `on_rates`.
    """

    loss: FloatArray
    low: FloatArray
    up: FloatArray
    low_low: FloatArray
    low_up: FloatArray
    up_up: FloatArray
    on_rates: FloatArray
    low_rates: FloatArray
    up_rates: FloatArray

    @property
    def squares(self) -> LabelTerms:
        """The terms with products of first derivatives in place of second ones."""
        low, up, rates = self.low, self.up, self.on_rates
        crosses = {"low_rates": low[:, None] * rates, "up_rates": up[:, None] * rates}
        return replace(self, low_low=low**2, low_up=low * up, up_up=up**2, **crosses)


def _packed_gradients(block: FloatArray) -> FloatArray:
    return packed.form_gradients(block.T)


@dataclass(frozen=True, eq=False)
class LabelLikelihood:
    """The mean of -log P(judgement) over rows of these shares, as a function of the parameters.

    `flip_rate` is the rate (or those of close and of far) if it is known, with one number per row if there are several;
    None if `n_rates` of them are parameters.  `precision` is that of the normal prior of each strictness, divided by
    the number of observations.  `gradients` are those of z'Mz in the parameters of M, for the columns z of a block, and
    `beyond` is added to it.
    """

    rows: Rows
    outcomes: Outcomes
    shares: FloatArray
    noise: Noise
    flip_rate: FlipRate | FloatArray | None
    n_rates: int = 0
    precision: float = 0.0
    beyond: FloatArray | float = 0.0
    gradients: Callable[[FloatArray], FloatArray] = _packed_gradients
    n_on_matrix: int = 0

    @classmethod
    def of(
        cls,
        optimum: Optimum,
        judgements: Judgements,
        noise: Noise,
        flip_rate: FlipRate | FloatArray | None,
        n_rates: int = 0,
        precision: float = 0.0,
    ) -> LabelLikelihood:
        """The likelihood of the judgements that the optimum was fitted to."""
        outcomes, shares, size = Outcomes.of(judgements), judgements.all_shares, packed.packed_size(optimum.size)
        return cls(optimum.rows, outcomes, shares, noise, flip_rate, n_rates, precision, n_on_matrix=size)

    def thinned(self, repeats: FloatArray) -> tuple[LabelLikelihood, FloatArray]:
        """The likelihood of about 100,000 rows that represent all, and the observations that each represents.

        This gives second derivatives and sums of squared scores to within about one percent.
        """
        most = max(_MOST_ROWS, _ROWS_PER_PARAMETER * self.n_on_matrix)
        if self.rows.n_rows <= most:
            return self, repeats
        squares = mean_squares(self.rows, lambda block: to_numpy(block).T)
        chosen, number = representatives(self.shares, squares, most)
        shares = number * self.shares[chosen]
        return replace(self.take(chosen), shares=shares), number * repeats[chosen]

    def take(self, rows: IndexArray) -> LabelLikelihood:
        """The part of the mean that these rows are."""
        rate = self.flip_rate
        if isinstance(rate, tuple):
            rate = (_some(rate[0], rows), _some(rate[1], rows))
        return replace(
            self,
            rows=self.rows.take_rows(rows),
            outcomes=self.outcomes.take(rows),
            shares=self.shares[rows],
            flip_rate=_some(rate, rows),
            beyond=_some(self.beyond, rows),
        )

    @property
    def n_on_margin(self) -> int:
        """The number of parameters of M and of thresholds."""
        return self.n_on_matrix + self.outcomes.n_thresholds

    @cached_property
    def flips(self) -> Flips:
        if self.flip_rate is None:
            return Flips.free(self.outcomes, self.n_rates)
        return Flips.known(self.outcomes, self.flip_rate)

    def ends(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far each squared distance is above the lower and above the upper end of its interval."""
        on_margin = parameters[: self.n_on_margin]
        squared = np.concatenate([slopes @ on_margin for _, slopes in self.slopes()])
        return self.outcomes.margins(self.beyond + squared, parameters[self._cuts])

    def margins(self, parameters: FloatArray) -> FloatArray:
        """How far each squared distance is above the lower or, at the lowest level, above the upper end."""
        lower, upper = self.ends(parameters)
        return np.where(np.isfinite(lower), lower, upper)

    def slopes(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each squared distance less strictness in (packed M, thresholds), block by block."""
        return iter(self._kept) if self._kept is not None else self._computed()

    @cached_property
    def _kept(self) -> list[tuple[slice, FloatArray]] | None:
        is_small = self.rows.n_rows * self.n_on_margin <= _MOST_KEPT
        return list(self._computed()) if is_small else None

    def _computed(self) -> Iterator[tuple[slice, FloatArray]]:
        for where, along in by_legs(self.rows, self.gradients):
            yield where, np.hstack([along, self.outcomes.slopes(where)])

    def loss(self, terms: LabelTerms, parameters: FloatArray, weights: FloatArray) -> float:
        """The mean loss, with the penalty of strictness."""
        strictness = self._strictness(parameters)
        return float(weights @ terms.loss) + 0.5 * self.precision * float(strictness @ strictness)

    def _strictness(self, parameters: FloatArray) -> FloatArray:
        return parameters[self._cuts.stop : self.n_on_margin]

    def terms(self, parameters: FloatArray) -> LabelTerms:
        lower, upper = self.ends(parameters)
        is_open = lower > upper  # thresholds that are out of order leave nothing between them
        found = interval_terms(self.noise, lower, np.where(is_open, upper, lower - 1.0), 2)
        # Those of an interval are derivatives in its ends, and these in the margins from them.
        found = found._replace(loss=np.where(is_open, found.loss, np.inf), low=-found.low, up=-found.up)
        rates = parameters[self.n_on_margin :]
        nothing = np.zeros((len(lower), len(rates)))
        if self.flips.are_none:
            return LabelTerms(*found, nothing, nothing, nothing)
        # P~ = e + s P and its derivatives over P~, from those of -log P.
        base, kept = self.flips.at(rates)
        right = np.exp(-found.loss)
        flipped = base + kept * right
        share = kept * right / flipped
        low, up = share * found.low, share * found.up
        of_right = _columns(self.flips.on_kept, len(share)) * (right / flipped)[:, None]
        on_rates = of_right - _columns(self.flips.on_base, len(share)) / flipped[:, None]
        return LabelTerms(
            -np.log(flipped),
            low,
            up,
            low**2 - share * (found.low**2 - found.low_low),
            low * up - share * (found.low * found.up - found.low_up),
            up**2 - share * (found.up**2 - found.up_up),
            on_rates,
            low[:, None] * on_rates - of_right * found.low[:, None],
            up[:, None] * on_rates - of_right * found.up[:, None],
        )

    @property
    def _cuts(self) -> slice:
        """The parameters that are thresholds of levels."""
        return slice(self.n_on_matrix, self.n_on_matrix + self.outcomes.n_cuts)

    def _by_end(self, low: FloatArray, up: FloatArray) -> FloatArray:
        """For each row and threshold, the part of a change of the margins from both ends that the threshold has."""
        return -(self.outcomes.lower * low[:, None] + self.outcomes.upper * up[:, None])

    def gradient(self, terms: LabelTerms, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        first = weights * (terms.low + terms.up)
        found = np.asarray(sum(slopes.T @ first[where] for where, slopes in self.slopes()))
        found[self._cuts] += weights @ self._by_end(terms.low, terms.up)
        found[self._cuts.stop :] += self.precision * self._strictness(parameters)
        return np.append(found, weights @ terms.on_rates)

    def information(self, parameters: FloatArray, weights: FloatArray, terms: LabelTerms | None = None) -> FloatArray:
        """The second derivative or, if that is not positive definite, as flips can make it, the Fisher information."""
        terms = self.terms(parameters) if terms is None else terms
        observed: FloatArray = self._sums(terms, weights) + self.of_prior
        if self.flips.are_none or scaled_eigh(observed)[0][0] > 0.0:
            return observed
        return self.fisher(parameters, weights)

    def fisher(self, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        """The Fisher information, with that of the prior."""
        expected: Any = 0.0
        for outcomes, exist in self.outcomes.alternatives():
            other = replace(self, outcomes=outcomes)
            terms = other.terms(parameters)
            expected = expected + other._sums(terms.squares, np.where(exist, weights * np.exp(-terms.loss), 0.0))
        return np.asarray(expected + self.of_prior)

    @property
    def of_prior(self) -> Any:
        """The second derivative of the prior."""
        if not self.outcomes.n_annotators:
            return 0.0
        prior = np.zeros(self.n_on_margin + self.n_rates)
        prior[self._cuts.stop : self.n_on_margin] = self.precision
        return np.diag(prior)

    def _sums(self, terms: LabelTerms, weights: FloatArray) -> FloatArray:
        """The sums of second derivatives in all parameters."""
        second, size = weights * (terms.low_low + 2.0 * terms.low_up + terms.up_up), self.n_on_margin
        on_cuts = self._by_end(terms.low_low + terms.low_up, terms.low_up + terms.up_up)
        more = weights[:, None] * np.hstack([on_cuts, terms.low_rates + terms.up_rates])
        sums, border = np.zeros((size, size)), np.zeros((size, more.shape[1]))
        for where, slopes in self.slopes():
            sums += slopes.T @ (slopes * second[where, None])
            border += slopes.T @ more[where]
        lower, upper = self.outcomes.lower, self.outcomes.upper
        both = lower.T @ (upper * (weights * terms.low_up)[:, None])
        of_cuts = lower.T @ (lower * (weights * terms.low_low)[:, None]) + both + both.T
        of_cuts += upper.T @ (upper * (weights * terms.up_up)[:, None])
        crossed = -(lower.T @ (weights[:, None] * terms.low_rates) + upper.T @ (weights[:, None] * terms.up_rates))
        of_rates = terms.on_rates.T @ (terms.on_rates * weights[:, None])
        found = np.zeros((size + self.n_rates,) * 2)
        found[:size, :size] = sums
        places = np.append(np.arange(size)[self._cuts], size + np.arange(self.n_rates))
        found[:size, places] += border
        found[places, :size] += border.T
        found[np.ix_(places, places)] += np.block([[of_cuts, crossed], [crossed.T, of_rates]])
        return found

    def scores(self, terms: LabelTerms) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each row's part of the mean loss in the parameters, block by block."""
        first, on_cuts = terms.low + terms.up, self._by_end(terms.low, terms.up)
        for where, slopes in self.slopes():
            scores = np.hstack([slopes * first[where, None], terms.on_rates[where]])
            scores[:, self._cuts] += on_cuts[where]
            scores *= self.shares[where, None]
            yield where, scores


def _columns(values: Sequence[Any], n: int) -> FloatArray:
    """A column of n numbers for each of the values, which may be one number."""
    return np.reshape([np.broadcast_to(each, n) for each in values], (len(values), n)).T


def _some(values: Any, rows: IndexArray) -> Any:
    """The values of these rows, or the one of all."""
    return values[rows] if isinstance(values, np.ndarray) else values


# At enormous margins: the information and its square stay finite.
_LEAST_LABEL_VARIANCE = 1e-50


@dataclass(frozen=True)
class LabelModel:
    """P(far) = a + (1 - a - b) Phi(margin), with the flip rates a of close and b of far; both are q if there is one.

    `slope` and `curvature` are the first and the second derivative of P(far) in the margin and `flip_slope`
    the derivative in q.
    """

    far: FloatArray
    close: FloatArray
    slope: FloatArray
    flip_slope: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, margin: FloatArray, noise: Noise, flip_rate: FlipRate) -> LabelModel:
        upper, lower, kept = noise.cdf(margin), noise.cdf(-margin), kept_share(flip_rate)
        slope = kept * noise.pdf(margin)
        loss, first, second = noise.derivatives(np.abs(margin))  # where nothing cancels
        curvature = kept * np.sign(margin) * (first**2 - second) * np.exp(-loss)
        far, close = with_flips(upper, flip_rate), with_flips(lower, turned_round(flip_rate))
        return cls(far, close, slope, lower - upper, curvature)

    def flip_slopes(self, n_rates: int) -> FloatArray:
        """The derivative of P(far) in the flip rates that are parameters: none, q, or a and b; one column each."""
        if n_rates < 2:
            return self.flip_slope[:, None][:, :n_rates]
        close = 0.5 * (1.0 + self.flip_slope)
        return np.column_stack([close, close - 1.0])

    @property
    def variance(self) -> FloatArray:
        """The variance of the label (far 1, close 0)."""
        return np.maximum(self.far * self.close, _LEAST_LABEL_VARIANCE)

    @property
    def information(self) -> FloatArray:
        """The Fisher information about the margin in one label."""
        return self.slope**2 / self.variance

    def residual(self, is_far: BoolArray) -> FloatArray:
        """The label (far 1, close 0) minus its expectation."""
        return np.where(is_far, self.close, -self.far)


def level_information(slopes: FloatArray, probabilities: FloatArray) -> FloatArray:
    """The Fisher information of a level about its K - 1 margins, (..., K - 1, K - 1).

    `slopes` are the derivatives of P(level >= k) in the margin from threshold k, `probabilities` those of the K levels.
    """
    rarest = np.maximum(probabilities, TINY)
    found = np.zeros((*slopes.shape, slopes.shape[-1]))
    for k in range(slopes.shape[-1]):
        found[..., k, k] = slopes[..., k] ** 2 * (1.0 / rarest[..., k] + 1.0 / rarest[..., k + 1])
        if k:
            found[..., k, k - 1] = found[..., k - 1, k] = -slopes[..., k] * slopes[..., k - 1] / rarest[..., k]
    return found


def kept_share(flip_rate: FlipRate) -> Any:
    """The share of labels that depend on the distance: 1 - 2q, or 1 - a - b."""
    return 1.0 - flip_rate[0] - flip_rate[1] if isinstance(flip_rate, tuple) else 1.0 - 2.0 * flip_rate


# ---------------------------------------------------------------------------------------------------------------------
# How M and thresholds can move while M keeps its rank: the geometry behind standard errors, tests and sample sizes.
#
# A fitted M of rank r can move in the tangent space of the matrices of that rank; the optimum is stationary there even
# where M has zero eigenvalues. In coordinates y in which M is diagonal, range first, those moves are the products
# y_i y_j with i <= r.


# With more moves than this, only the eigenvalues of M and the threshold move: the inverse of a matrix of this size
# takes about a second.
MOST_MOVES = 1500


@dataclass(frozen=True)
class Moves:
    """The entries of M, packed, that may move in coordinates in which M is diagonal, range first; thresholds last.

    `n_more` is the number of thresholds and, in standard errors, of all other parameters besides M.
    """

    size: int
    kept: BoolArray
    n_more: int = 1

    @classmethod
    def keeping_rank(cls, rank: int, size: int, n_more: int = 1) -> Moves:
        left, _ = np.triu_indices(size)
        return cls(size, left < rank, n_more)

    def __len__(self) -> int:
        return self.n_on_matrix + self.n_more

    @property
    def n_on_matrix(self) -> int:
        return int(self.kept.sum())

    def diagonal(self) -> Moves:
        """The moves of the eigenvalues alone."""
        left, right = np.triu_indices(self.size)
        return Moves(self.size, self.kept & (left == right), self.n_more)

    def gradients(self, coordinates: FloatArray) -> FloatArray:
        """The derivative of each margin along each move, of length one, for rows y in those coordinates."""
        columns, left = np.ascontiguousarray(coordinates.T), np.triu_indices(self.size)[0]
        along = np.empty((len(self), len(coordinates)))  # contiguous for each move
        line = 0
        for index in range(self.size):
            others = index + np.flatnonzero(self.kept[left == index])
            np.multiply(columns[others], columns[index], out=along[line : line + len(others)])
            line += len(others)
        along[:line] *= packed.weights(self.size)[self.kept][:, None]
        along[line:] = -1.0
        return along.T

    def basis(self, vectors: FloatArray) -> FloatArray:
        """The moves as orthonormal columns of (packed M, thresholds), for the eigenvectors of M."""
        size, n = len(self.kept), self.n_on_matrix
        basis = np.zeros((size + self.n_more, len(self)))
        basis[:size, :n] = packed.packed_rotation(vectors)[:, self.kept]
        basis[size:, n:] = np.eye(self.n_more)
        return basis


@dataclass(frozen=True)
class RankMoves:
    """The moves that keep the rank of M, as columns of all parameters, and the curvature term of the information.

    To second order, a move U between range and null space also moves M along U' M^+ U, which raises
    the loss by the gradient on the null space or, if the rank is fixed, may lower it.
    """

    basis: FloatArray
    curvature: FloatArray

    @classmethod
    def at(
        cls, values: FloatArray, vectors: FloatArray, rank: int, gradient: FloatArray, *, n_more: int = 1
    ) -> RankMoves:
        """The moves at a matrix with these eigenvalues, largest first, and eigenvectors; `gradient` is dR/dM there.

        `n_more` is the number of parameters besides M.
        """
        moves = Moves.keeping_rank(rank, len(values), n_more)
        null = vectors[:, rank:]
        multipliers, rotation = np.linalg.eigh(null.T @ gradient @ null)
        costs = np.append(np.zeros(rank), multipliers)
        left, right = (index[moves.kept] for index in np.triu_indices(len(values)))
        curvature = np.append(costs[right] / values[left], np.zeros(n_more))
        return cls(moves.basis(np.hstack([vectors[:, :rank], null @ rotation])), curvature)

    def information(self, hessian: FloatArray) -> FloatArray:
        """The second derivative along the moves."""
        return self.basis.T @ hessian @ self.basis + np.diag(self.curvature)


class MarginMoves:
    """How margins move with a fitted metric.

    Parameters
    ----------
    metric : Metric
    judgements : Judgements
        Those whose second moment defines the coordinates: of two sides, or comparisons, which have no threshold.
    keep_rank : bool
        Whether M keeps its rank; otherwise it may move within all quadratic forms.
    comparison_noise : float
        The noise of comparisons, by which their margins are divided.
    """

    def __init__(
        self, metric: Metric, judgements: Judgements, *, keep_rank: bool = True, comparison_noise: float = 1.0
    ) -> None:
        here = Optimum.of(metric, judgements)
        vectors, lengths, _ = np.linalg.svd(here.factor, full_matrices=True)
        self._metric = metric
        self._basis = here.coordinates.transform @ vectors
        self._noise = comparison_noise
        size = self._basis.shape[1] + (metric.origin is not None)
        n_more = int(judgements.kind is not Kind.COMPARISONS)
        self.moves = Moves.keeping_rank(metric.rank if keep_rank else size, size, n_more)
        self.is_partial = self.moves.n_on_matrix > MOST_MOVES
        if self.is_partial:
            self.moves = self.moves.diagonal()
        values = np.append(lengths**2, np.zeros(size - len(lengths)))
        self.matrix = packed.pack(np.diag(values))[self.moves.kept]  # M, by its moves

    def rows(self, data: Array) -> Rows:
        """The rows that margins are of, but for thresholds."""
        rows = rows_of(data, self._metric.origin)
        return rows if isinstance(rows, BlockRows) else rows.with_scale(1.0 / self._noise)

    def blocks(self, data: Array) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin along each move, one row per judgement."""
        return by_legs(self.rows(data), lambda block: self.moves.gradients(self.in_coordinates(block)))

    def on_matrix(self, block: FloatArray) -> FloatArray:
        """The derivative of z'Mz along each move of M, for the columns z of a block."""
        return self.moves.gradients(self.in_coordinates(block))[:, : self.moves.n_on_matrix]

    def null_coordinates(self, data: Array) -> FloatArray:
        """The coordinates of each leg in the null space of M."""
        rank = self._metric.rank
        return np.vstack(
            [self.in_coordinates(block)[:, rank:] for block in differences(rows_of(data, self._metric.origin))]
        )

    def in_coordinates(self, block: Array) -> FloatArray:
        y: FloatArray = to_numpy(block).T @ self._basis
        return y if self._metric.origin is None else np.column_stack([y, np.ones(len(y))])


def scaled_eigh(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The eigenvalues and eigenvectors of a symmetric matrix with its diagonal scaled to one, and the scale."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return values, vectors, scale


def pseudo_inverse(matrix: FloatArray, tol: float = 1e-10) -> FloatArray:
    """The inverse of a positive semidefinite matrix on its range, determined with its diagonal scaled to one."""
    values, vectors, scale = scaled_eigh(matrix)
    keep = values > tol * values[-1]
    return np.asarray((vectors[:, keep] / values[keep]) @ vectors[:, keep].T / np.outer(scale, scale))


# ---------------------------------------------------------------------------------------------------------------------
# The standard errors of margins, from each threshold of a metric.


@dataclass(frozen=True)
class SideErrors:
    """The standard errors of margins, without the common scale of all margins, which changes no side.

    Margins are linear in M, the thresholds and the strictness of annotators, so the scale has the information
    of a step along all of these, and is independent, to first order, of the rest.
    """

    moves: MarginMoves
    n_cuts: int
    n_annotators: int
    covariance: FloatArray
    of_scale: float

    @classmethod
    def of(cls, fit: Fit, seen: Judgements) -> SideErrors:
        """The errors of the margins of a fit to these judgements; attached comparisons are left out."""
        moves = MarginMoves(fit.metric, seen, comparison_noise=fit.relative_noise)
        chosen, number = representatives(seen.weights, mean_squares(moves.rows(seen.data), moves.in_coordinates))
        if len(chosen) < len(seen):
            seen = seen.take(chosen)
            seen = seen.with_weights(number * seen.weights)
        table, taus = table_of(fit, seen), fit.metric.thresholds if seen.n_thresholds else ()
        likelihood = LabelLikelihood(
            moves.rows(seen.data),
            Outcomes.of(seen),
            seen.weights,
            fit.metric.noise,
            score(fit, seen).flip_rate,
            precision=0.0 if table is None else table.width**-2.0,
            gradients=moves.on_matrix,
            n_on_matrix=len(moves.matrix),
        )
        parameters = np.concatenate([moves.matrix, taus, () if table is None else table.strictness])
        information = likelihood.fisher(parameters, likelihood.shares)
        of_scale = float(parameters @ (information - likelihood.of_prior) @ parameters)
        n_annotators = 0 if table is None else len(table)
        return cls(moves, len(taus), n_annotators, pseudo_inverse(information), 1.0 / max(of_scale, TINY))

    def at(self, data: Array, margins: FloatArray, annotators: IndexArray | None = None) -> FloatArray:
        """The error of each of these margins, (n, cuts)."""
        variances, n = np.empty(margins.shape), len(self.moves.matrix)
        covariance, cuts = self.covariance, slice(n, n + self.n_cuts)
        for where, along in by_legs(self.moves.rows(data), self.moves.on_matrix):
            slopes = np.hstack([along, np.zeros((len(along), self.n_cuts + self.n_annotators))])
            if annotators is not None and self.n_annotators:
                slopes[np.arange(len(along)), cuts.stop + annotators[where]] = -1.0
            spread = slopes @ covariance
            variances[where] = np.einsum("ij,ij->i", spread, slopes)[:, None]
            if self.n_cuts:
                variances[where] += np.diag(covariance)[cuts] - 2.0 * spread[:, cuts]
        return np.sqrt(np.maximum(np.maximum(variances, 0.0) - self.of_scale * margins**2, 0.0))
