"""The likelihood of judgements over all symmetric M, without constraints: the basis of standard errors.

Parameters are one vector: M in unit-free coordinates, packed, then the thresholds of levels, the strictness of each
annotator and, where they were estimated, the flip rates.  Neither M >= 0 nor tau >= 0 is required: without these
constraints the likelihood has an interior optimum, even if that of the fit lies on the boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray, IndexArray, to_numpy
from closefar.judgements import Judgements
from closefar.noise import FlipRate, Noise, interval_losses
from closefar.questions.legs import by_legs, leg_blocks
from closefar.questions.optimum import Optimum
from closefar.questions.outcomes import Flips, Outcomes
from closefar.questions.thinning import representatives
from closefar.rows import Rows

__all__ = ["LabelLikelihood", "LabelTerms"]

# Products of columns are kept up to this many numbers, and beyond that recomputed in each pass.
_MOST_KEPT = 10_000_000

_MOST_ROWS = 100_000
_ROWS_PER_PARAMETER = 200


@dataclass(frozen=True)
class LabelTerms:
    """-log P(judgement) of each row and its derivatives, one number per row each, and one column per flip rate.

    `margin_gradient` and `curvature` are those in the margin, with both ends of a level at the same distance.  The
    derivatives in the upper end alone are `upper_gradient`, `upper_cross` (in the margin as well) and
    `upper_curvature`; they are of the rows between two thresholds.  `flip_gradient`, `flip_cross` and `flip_upper` are
    those in the flip rates; the second ones in these are products of `flip_gradient`.
    """

    loss: FloatArray
    margin_gradient: FloatArray
    curvature: FloatArray
    upper_gradient: FloatArray
    upper_cross: FloatArray
    upper_curvature: FloatArray
    flip_gradient: FloatArray
    flip_cross: FloatArray
    flip_upper: FloatArray

    def take(self, rows: IndexArray) -> LabelTerms:
        """Those of these rows."""
        return LabelTerms(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class LabelLikelihood:
    """The mean of -log P(judgement) over rows of these shares, as a function of the parameters.

    `flip_rate` is the rate (or those of close and of far) if it is known, with one number per row if there are several;
    None if `n_rates` of them are parameters.  `precision` is that of the normal prior of each strictness, divided by
    the number of observations.
    """

    rows: Rows
    outcomes: Outcomes
    shares: FloatArray
    noise: Noise
    flip_rate: FlipRate | FloatArray | None
    n_rates: int = 0
    precision: float = 0.0

    @classmethod
    def of(
        cls,
        optimum: Optimum,
        judgements: Judgements,
        noise: Noise,
        flip_rate: FlipRate | FloatArray | None,
        *,
        n_rates: int = 1,
        precision: float = 0.0,
    ) -> LabelLikelihood:
        """The likelihood of the judgements that the optimum was fitted to."""
        outcomes = Outcomes.of(judgements)
        free = n_rates if flip_rate is None else 0
        return cls(optimum.rows, outcomes, judgements.all_shares, noise, flip_rate, free, precision)

    def thinned(self, repeats: FloatArray) -> tuple[LabelLikelihood, FloatArray]:
        """The likelihood of about 100,000 rows that represent all, and the observations that each represents.

        This gives second derivatives and sums of squared scores to within about one percent.
        """
        most = max(_MOST_ROWS, _ROWS_PER_PARAMETER * self.n_on_matrix)
        if self.rows.n_rows <= most:
            return self, repeats
        squares = [
            sum(np.mean(to_numpy(block) ** 2, axis=0) for _, block in legs) / len(legs)
            for _, legs in leg_blocks(self.rows)
        ]
        chosen, number = representatives(self.shares, np.concatenate(squares), most)
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
        )

    @property
    def n_on_matrix(self) -> int:
        """The number of parameters of M."""
        return packed.packed_size(self.rows.n_columns)

    @property
    def n_on_margin(self) -> int:
        """The number of parameters of M and of thresholds."""
        return self.n_on_matrix + self.outcomes.n_thresholds

    @property
    def has_flip_parameter(self) -> bool:
        return self.n_rates > 0

    @cached_property
    def _flips(self) -> Flips:
        if self.flip_rate is None:
            return Flips.free(self.outcomes, self.n_rates)
        return Flips.known(self.outcomes, self.flip_rate)

    def margins(self, parameters: FloatArray) -> FloatArray:
        on_margin = parameters[: self.n_on_margin]
        return np.concatenate([slopes @ on_margin for _, slopes in self.slopes()])

    def slopes(self) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each margin in (packed M, thresholds), block by block."""
        return iter(self._kept) if self._kept is not None else self._computed()

    @cached_property
    def _kept(self) -> list[tuple[slice, FloatArray]] | None:
        is_small = self.rows.n_rows * self.n_on_margin <= _MOST_KEPT
        return list(self._computed()) if is_small else None

    def _computed(self) -> Iterator[tuple[slice, FloatArray]]:
        n_more, size = self.outcomes.n_thresholds, self.n_on_matrix
        for where, slopes in by_legs(self.rows, lambda block: packed.margin_gradients(block, n_more)):
            self.outcomes.fill_slopes(where, slopes[:, size:])
            yield where, slopes

    def loss(self, terms: LabelTerms, parameters: FloatArray, weights: FloatArray) -> float:
        """The mean loss, with the penalty of strictness."""
        strictness = self._strictness(parameters)
        return float(weights @ terms.loss) + 0.5 * self.precision * float(strictness @ strictness)

    def _strictness(self, parameters: FloatArray) -> FloatArray:
        return parameters[self.n_on_matrix + self.outcomes.n_cuts : self.n_on_margin]

    def terms(self, parameters: FloatArray) -> LabelTerms:
        margin, rates = self.margins(parameters), parameters[self.n_on_margin :]
        loss, on_margin, on_upper, seconds = self._without_flips(margin, parameters)
        nothing = np.zeros((len(loss), len(rates)))
        if self._flips.are_none:
            return LabelTerms(loss, on_margin, seconds[0], on_upper, *seconds[1:], nothing, nothing, nothing)
        # P~ = e + s P and its derivatives over P~, from those of -log P.
        base, kept = self._flips.at(rates)
        right = np.exp(-loss)
        flipped = base + kept * right
        share = right / flipped
        firsts = [-kept * each * share for each in (on_margin, on_upper)]
        products = (on_margin**2, on_margin * on_upper, on_upper**2)
        bends = [kept * (product - second) * share for product, second in zip(products, seconds, strict=True)]
        squares = (firsts[0] ** 2, firsts[0] * firsts[1], firsts[1] ** 2)
        in_rates = [
            (on_base - on_kept * right) / flipped
            for on_base, on_kept in zip(self._flips.on_base, self._flips.on_kept, strict=True)
        ]

        def mixed(first: FloatArray, slope: FloatArray) -> FloatArray:
            found = [
                first * in_rate - on_kept * slope * share
                for in_rate, on_kept in zip(in_rates, self._flips.on_kept, strict=True)
            ]
            return np.column_stack(found) if found else nothing

        return LabelTerms(
            -np.log(flipped),
            -firsts[0],
            squares[0] - bends[0],
            -firsts[1],
            squares[1] - bends[1],
            squares[2] - bends[2],
            flip_gradient=-np.column_stack(in_rates) if in_rates else nothing,
            flip_cross=mixed(firsts[0], on_margin),
            flip_upper=mixed(firsts[1], on_upper),
        )

    def _without_flips(
        self, margin: FloatArray, parameters: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, tuple[FloatArray, FloatArray, FloatArray]]:
        """-log P of each row, its slopes in the margin and in the upper end, and its second derivatives in both."""
        signs, between = self.outcomes.signs, self.outcomes.between
        loss, slope, curvature = self.noise.derivatives(signs * margin, 2)
        on_margin, on_upper, cross, on_both = signs * slope, *np.zeros((3, len(loss)))
        if len(between):
            size = self.n_on_matrix
            gap = np.diff(parameters[size : size + self.outcomes.n_cuts])[self.outcomes.cuts[between]]
            is_open = gap > 0.0
            lower = margin[between]
            found = interval_losses(self.noise, lower, lower - np.where(is_open, gap, 1.0), 2)
            loss[between] = np.where(is_open, found.loss, np.inf)
            on_margin[between], on_upper[between] = -(found.low + found.up), found.up
            curvature[between] = found.low_low + 2.0 * found.low_up + found.up_up
            cross[between], on_both[between] = -(found.low_up + found.up_up), found.up_up
        return loss, on_margin, on_upper, (curvature, cross, on_both)

    def gradient(self, terms: LabelTerms, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        on_margin = np.asarray(
            sum(slopes.T @ (weights * terms.margin_gradient)[where] for where, slopes in self.slopes())
        )
        between = self.outcomes.between
        if len(between):
            on_margin[self.n_on_matrix : self._end_of_cuts] += self._of_ends((weights * terms.upper_gradient)[between])
        if self.outcomes.n_annotators:
            on_margin[self._end_of_cuts :] += self.precision * self._strictness(parameters)
        return np.append(on_margin, weights @ terms.flip_gradient) if self.has_flip_parameter else on_margin

    @property
    def _end_of_cuts(self) -> int:
        return self.n_on_matrix + self.outcomes.n_cuts

    def _of_ends(self, values: FloatArray) -> FloatArray:
        """Sums for the thresholds of values that rise with the upper, and fall with the lower end of their level."""
        cuts, n = self.outcomes.cuts[self.outcomes.between], self.outcomes.n_cuts
        return np.asarray(np.bincount(cuts + 1, values, n) - np.bincount(cuts, values, n), dtype=np.float64)

    def information(self, parameters: FloatArray, weights: FloatArray, terms: LabelTerms | None = None) -> FloatArray:
        """The second derivative or, if that is not positive definite, as flips can make it, the Fisher information."""
        terms = self.terms(parameters) if terms is None else terms
        observed: FloatArray = self._sums(terms, weights) + self._prior
        if self._flips.are_none or np.linalg.eigvalsh(_scaled(observed))[0] > 0.0:
            return observed
        expected: Any = 0.0
        for outcomes, exist in self.outcomes.alternatives():
            other = replace(self, outcomes=outcomes)
            terms = other.terms(parameters)
            squares = _squared_scores(terms)
            expected = expected + other._sums(squares, np.where(exist, weights * np.exp(-terms.loss), 0.0))
        return np.asarray(expected + self._prior)

    @property
    def _prior(self) -> Any:
        """The second derivative of the prior."""
        if not self.outcomes.n_annotators:
            return 0.0
        prior = np.zeros(self.n_on_margin + self.n_rates)
        prior[self._end_of_cuts : self.n_on_margin] = self.precision
        return np.diag(prior)

    def spread_of_prior(self, n_observations: float) -> Any:
        """The covariance of the scores of the prior: strictness is drawn anew from it as judgements are."""
        return self._prior / n_observations

    def _sums(self, terms: LabelTerms, weights: FloatArray) -> FloatArray:
        """The sums of second derivatives in all parameters."""
        p = self.n_on_margin
        sums, on_rates = np.zeros((p, p)), np.zeros((p, self.n_rates))
        on_margin = weights * terms.curvature
        crosses = weights[:, None] * terms.flip_cross
        for where, slopes in self.slopes():
            sums += slopes.T @ (slopes * on_margin[where, None])
            if self.has_flip_parameter:
                on_rates += slopes.T @ crosses[where]
        if len(self.outcomes.between):
            self._add_upper_ends(sums, on_rates, terms, weights)
        if self.has_flip_parameter:
            corner = terms.flip_gradient.T @ (terms.flip_gradient * weights[:, None])
            sums = np.block([[sums, on_rates], [on_rates.T, corner]])
        return sums

    def _add_upper_ends(self, sums: FloatArray, on_rates: FloatArray, terms: LabelTerms, weights: FloatArray) -> None:
        between, n, size = self.outcomes.between, self.outcomes.n_cuts, self.n_on_matrix
        cuts = self.outcomes.cuts[between]
        ends = np.zeros((len(self.shares), n))
        ends[between, cuts], ends[between, cuts + 1] = -1.0, 1.0
        crosses = ends * (weights * terms.upper_cross)[:, None]
        border = np.zeros((len(sums), n))
        for where, slopes in self.slopes():
            border += slopes.T @ crosses[where]
        taus = slice(size, size + n)
        sums[:, taus] += border
        sums[taus] += border.T
        sums[taus, taus] += ends.T @ (ends * (weights * terms.upper_curvature)[:, None])
        on_rates[taus] += ends.T @ (weights[:, None] * terms.flip_upper)

    def scores(self, terms: LabelTerms) -> Iterator[tuple[slice, FloatArray]]:
        """The derivative of each row's part of the mean loss in the parameters, block by block."""
        margin_gradient, flip_gradient = self.shares * terms.margin_gradient, self.shares[:, None] * terms.flip_gradient
        upper, between = self.shares * terms.upper_gradient, self.outcomes.between
        for where, slopes in self.slopes():
            scores = slopes * margin_gradient[where, None]
            if len(between):
                here = between[np.searchsorted(between, where.start) : np.searchsorted(between, where.stop)]
                cuts, rows = self.n_on_matrix + self.outcomes.cuts[here], here - where.start
                scores[rows, cuts] -= upper[here]
                scores[rows, cuts + 1] += upper[here]
            yield where, np.column_stack([scores, flip_gradient[where]]) if self.has_flip_parameter else scores


def _some(values: Any, rows: IndexArray) -> Any:
    """The values of these rows, or the one of all."""
    return values[rows] if isinstance(values, np.ndarray) else values


def _squared_scores(terms: LabelTerms) -> LabelTerms:
    """The terms with products of first derivatives in place of second ones."""
    margin, upper, rates = terms.margin_gradient, terms.upper_gradient, terms.flip_gradient
    return replace(
        terms,
        curvature=margin**2,
        upper_cross=margin * upper,
        upper_curvature=upper**2,
        flip_cross=margin[:, None] * rates,
        flip_upper=upper[:, None] * rates,
    )


def _scaled(matrix: FloatArray) -> FloatArray:
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    scaled: FloatArray = matrix / np.outer(scale, scale)
    return scaled
