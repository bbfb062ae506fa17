"""A solution with the judgements that it is for: what is computed for each of them stays with their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray
from closefar.fitting.likelihoods import is_plain, likelihood_of
from closefar.fitting.noise_choice import NoiseChoice, choice_from, sums_of_losses
from closefar.fitting.statistics import FitStatistics, sums_of_margins
from closefar.fitting.strictness import Strictness
from closefar.judgements import Judgements
from closefar.model.thresholds import one_rate
from closefar.noise import FlipRate, Noise, label_losses
from closefar.rows import Rows
from closefar.solve import Flipped, FlippedGraded, Solution

__all__ = ["Solved", "most_likely"]


@dataclass(frozen=True, eq=False)
class Solved:
    """A solution, the rows and the judgements that it minimises the loss of, the noise, flips and annotators."""

    rows: Rows
    judgements: Judgements
    solution: Solution
    noise: Noise
    flipped: Flipped | None = None
    annotated: Strictness | None = None

    @property
    def flip_rate(self) -> FlipRate:
        """The flip rate, or both, of the typical annotator."""
        return 0.0 if self.flipped is None else self.flipped.flip_rate

    @property
    def threshold(self) -> float:
        """The threshold of close/far labels."""
        return float(self.solution.thresholds[0])

    @property
    def thresholds(self) -> FloatArray:
        """The thresholds of a typical annotator: one fewer than levels, none for comparisons."""
        return self.solution.thresholds[: self.judgements.n_thresholds]

    @property
    def strictness(self) -> FloatArray | None:
        """The strictness of each annotator, if there are any."""
        return None if self.annotated is None else self.annotated.values

    @property
    def risk(self) -> float:
        """The mean of -log P of all judgements, flips included, with all penalties."""
        if self.flipped is None:
            return self.solution.certificate.objective
        penalty = self.flipped.flips.penalty() if isinstance(self.flipped, FlippedGraded) else 0.0
        return self.solution.history[-1].objective + penalty

    @property
    def slope_in_comparison_noise(self) -> float:
        """The derivative of the risk in the logarithm of the noise of comparisons, all else being optimal."""
        rows, n = self.rows, len(self.judgements)
        likelihood = likelihood_of(self.judgements, rows, self.noise) if self.flipped is None else self.flipped
        here = rows.evaluate(likelihood, self.solution.squared, self.solution.thresholds, order=1)
        return -float(rows.gather(here.margin_gradient)[n:] @ rows.gather(self.solution.squared)[n:])

    @property
    def in_doubt(self) -> Array:
        """4 p (1 - p) of each label, without flips, as a handle: one at even odds, zero far from the threshold."""
        return self.rows.map(partial(_doubt, noise=self.noise, threshold=self.threshold), self.solution.squared)

    @property
    def losses(self) -> Array:
        """-log P of each judgement of any kind, as a handle."""
        judgements, squared = self.judgements, self.solution.squared
        if self.flipped is None:
            probability = likelihood_of(judgements, self.rows, self.noise).right
        else:
            probability = self.flipped.probabilities
        return self.rows.map(_neg_log, probability(self.rows, squared, self.solution.thresholds))

    def statistics(self, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
        """The statistics of the judgements, in one sweep over their squared distances."""
        sums = partial(sums_of_margins, noise=self.noise, threshold=self.threshold)
        judgements, rows = self.judgements, self.rows
        weights = () if judgements.is_uniform else (judgements.shares_in(rows),)
        parts = rows.parts(sums, self.solution.squared, judgements.signs_in(rows), *weights)
        return FitStatistics.from_sums(
            np.sum(parts, axis=0), len(judgements), one_rate(self.flip_rate), column_scales, n_parameters
        )


def most_likely(solved: dict[str, Solved]) -> NoiseChoice:
    """Choose between solutions for the same judgements, by the names of their noises."""
    first, *_ = solved.values()
    rows, judgements = first.rows, first.judgements
    if not is_plain(judgements):
        losses = [each.losses for each in solved.values()]
        return choice_from(list(solved), np.sum(rows.parts(_sums_of, judgements.shares_in(rows), *losses), axis=0))
    models = [(each.noise, each.threshold, each.flip_rate) for each in solved.values()]
    squared = [each.solution.squared for each in solved.values()]
    parts = rows.parts(partial(_sums, models), judgements.signs_in(rows), judgements.shares_in(rows), *squared)
    return choice_from(list(solved), np.sum(parts, axis=0))


def _sums_of(shares: Array, *losses: Array) -> FloatArray:
    return sums_of_losses(losses, shares)


def _sums(models: list[tuple[Noise, float, FlipRate]], signs: Array, shares: Array, *squared: Array) -> FloatArray:
    """The sums of -log P(label) of each noise, threshold and flip rate, by its squared distances."""
    losses = [
        label_losses(noise, signs * (each - threshold), rate, signs > 0)
        for (noise, threshold, rate), each in zip(models, squared, strict=True)
    ]
    return sums_of_losses(losses, shares)


def _neg_log(probability: Array) -> Array:
    return -array_namespace(probability).log(probability)


def _doubt(squared: Array, noise: Noise, threshold: float) -> Array:
    rarer = noise.cdf(-array_namespace(squared).abs(squared - threshold))
    return 4.0 * rarer * (1.0 - rarer)
