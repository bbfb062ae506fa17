"""Levels, annotators and comparisons of which some answers are given whatever the distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray, like, whole_numbers
from closefar.noise import interval_losses
from closefar.rows import RowSource
from closefar.solve.centre import CentredFlips
from closefar.solve.flip_rates import Answers, FlipRates, RateOfEach
from closefar.solve.flips import LEAST_FLOOR, FlippedCloseFar, rates_in_words, undecided
from closefar.solve.graded import Graded
from closefar.solve.likelihood import Evaluation, Terms

__all__ = ["Flipped", "FlippedGraded"]


class FlippedGraded(Graded):
    """P = floor + kept P(level) of judgements of which some answers are at random.

    With two levels its curvature is the Fisher information; with more it is that of each judgement, times the square
    of its probability of not being at random.  Neither is ever negative.
    """

    is_convex = False

    def __init__(self, graded: Graded, flips: FlipRates) -> None:
        super().__init__(
            graded.noise,
            graded.codes,
            graded.weights,
            graded.n_levels,
            graded.groups,
            graded.n_groups,
            graded.precision,
        )
        self.flips = flips

    def _with(self, precision: float, codes: Array, weights: Array, groups: Array = None) -> FlippedGraded:
        return FlippedGraded(super()._with(precision, codes, weights, groups), self.flips)

    @property
    def plain(self) -> Graded:
        """The likelihood without flips."""
        return super()._with(self.precision, *self.row_arrays)

    @property
    def rates(self) -> FloatArray:
        return self.flips.rates

    @property
    def has_flips(self) -> bool:
        return self.flips.has_flips

    @property
    def has_several_starts(self) -> bool:
        return True

    @property
    def flip_rate(self) -> float | tuple[float, float]:
        return self.flips.flip_rate(self.n_levels)

    @property
    def described(self) -> str:
        words = rates_in_words(self.flip_rate)
        is_own = isinstance(self.flips, RateOfEach)
        return words.replace("flip rate is", "flip rate of the typical annotator is") if is_own else words

    def probabilities(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Array:
        """The probability of each judgement at these squared distances, answers at random included."""

        def flipped(right: Array, codes: Array, *groups: Array) -> Array:
            floor, kept = self._flips_of(right, codes, groups)
            return floor + kept * right

        rest = () if self.groups is None else (self.groups,)
        return source.map(flipped, self.right(source, squared, thresholds), self.codes, *rest)

    def with_rates(self, rates: FloatArray) -> FlippedGraded:
        return FlippedGraded(self.plain, self.flips.with_rates(rates))

    def with_best_rates(self, source: RowSource, squared: Array, thresholds: FloatArray) -> FlippedGraded:
        """The same with the likeliest flip rates at these squared distances."""
        right = self.right(source, squared, thresholds)
        answers = Answers(source, right, self.codes, self.weights, self.groups, self.n_levels, self.n_groups)
        return FlippedGraded(self.plain, self.flips.best(answers))

    def share_undecided(self, source: RowSource, squared: Array, thresholds: FloatArray) -> float:
        """The mean uncertainty of the judgements: one at even odds, zero where they are certain."""
        return source.total(source.map(undecided, self.right(source, squared, thresholds), self.weights))

    def softened(self, source: RowSource, squared: Array, thresholds: FloatArray) -> Graded:
        """The likelihood in which each judgement counts with its present probability of not being at random."""

        def sincere(right: Array, weights: Array, codes: Array, *groups: Array) -> Array:
            floor, kept = self._flips_of(right, codes, groups)
            return weights * kept * right / (floor + kept * right)

        rest = () if self.groups is None else (self.groups,)
        held = source.map(sincere, self.right(source, squared, thresholds), self.weights, self.codes, *rest)
        return super()._with(self.precision, self.codes, held, *rest)

    def terms(self, squared: Array, *arrays: Array, thresholds: FloatArray, order: int) -> Terms:
        if not self.is_feasible(thresholds):
            return self._infeasible(squared, order)
        xp = array_namespace(squared)
        codes, weights, *groups = arrays
        found = interval_losses(self.noise, *self.margins(squared, *arrays, thresholds=thresholds), order)
        right = xp.exp(-found.loss)
        floor, kept = self._flips_of(right, codes, tuple(groups))
        probability = floor + kept * right
        sincere = kept * right / probability
        low, up = sincere * found.low, sincere * found.up
        loss = -float(xp.vecdot(weights, xp.log(probability)))
        slopes = self.cells.sums(codes, groups, weights * low, weights * up)
        gradient = -weights * (low + up)
        if order < 2:
            return Terms(loss, slopes, -np.inf, gradient)
        # What is left to the other answer, of two, computed from the loss since its probability may be close to one.
        other = xp.maximum(1.0 - kept - floor, LEAST_FLOOR + 0.0 * floor) - kept * xp.expm1(-found.loss)
        odds, has_two = probability / other, whole_numbers(codes) >= (0 if self.n_levels == 2 else self.n_levels)
        pairs = ((found.low_low, low * low), (found.low_up, 0.0 * low), (found.up_up, up * up))
        ends = tuple(weights * xp.where(has_two, odds * own, sincere**2 * each) for each, own in pairs)
        curvature = ends[0] + 2.0 * ends[1] + ends[2]
        curvatures = self.cells.second_sums(codes, groups, *ends)
        return Terms(loss, slopes, -np.inf, gradient, curvature, ends, curvatures)

    def penalty(self, thresholds: FloatArray) -> float:
        return super().penalty(thresholds) + self.flips.penalty()

    def _join(self, source: RowSource, parts: Sequence[Terms], thresholds: FloatArray, order: int) -> Evaluation:
        found = super()._join(source, parts, thresholds, order)
        return found if self.precision > 0.0 else replace(found, loss=found.loss + self.flips.penalty())

    def _flips_of(self, right: Array, codes: Array, groups: tuple[Array, ...]) -> tuple[Array, Array]:
        """What answers at random add to the probability of each judgement, and the share of the others."""
        xp, index = array_namespace(right), whole_numbers(codes)
        who = whole_numbers(groups[0]) if groups else 0 * index + self.n_groups
        floors = self.flips.floors(self.n_levels, self.n_groups)
        floor = xp.take(like(right, floors.reshape(-1)), who * floors.shape[1] + index)
        return floor + LEAST_FLOOR, xp.take(like(right, self.flips.kept(self.n_groups)), who)


Flipped = FlippedCloseFar | FlippedGraded | CentredFlips
