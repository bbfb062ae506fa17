"""The strictness of annotators: the width of its prior, estimated with the metric, and its standard errors.

A strictness is relative to that of the typical annotator, who has the thresholds tau: a shift of all
annotators together is one of tau, and only the prior tells them apart.  Its standard error includes
that, and what is not known of M.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.fitting.flipping import flipped_likelihood, solve_likelihood
from closefar.fitting.likelihoods import likelihood_of
from closefar.fitting.settings import Settings
from closefar.judgements import Judgements
from closefar.noise import Noise
from closefar.packed import packed_size
from closefar.rows import Rows
from closefar.solve import (
    Centred,
    Flipped,
    Objective,
    Options,
    Outcome,
    Passes,
    RateOfEach,
    Solution,
    State,
    supervisor,
)

__all__ = ["Strictness", "solve_annotated"]

# The widths that are tried, in standard deviations of the noise, and how precisely one is estimated.
_WIDTHS = np.geomspace(1e-2, 1e2, 801)
_SETTLED = 0.02
_MOST_ROUNDS = 8
_ROUGH = 1e-4

# An annotator about whom the judgements say less than this share of what the prior says does not tell the width.
_LEAST_TOLD = 1e-3

# With more entries of M, only its scale counts as uncertain.
_MOST_ENTRIES = 1500

_DETERMINED = 1e-12  # relative to the largest eigenvalue


@dataclass(frozen=True, eq=False)
class Strictness:
    """How strict each annotator is.

    Attributes
    ----------
    width : float
        The standard deviation of the prior.
    is_estimated : bool
        Whether it was estimated.
    values, errors : arrays of R numbers
        The strictness of each annotator, and its standard error.
    random_shares : array of R numbers, optional
        The share of answers at random of each, if each has their own.
    """

    width: float
    is_estimated: bool
    values: FloatArray
    errors: FloatArray
    random_shares: FloatArray | None

    def scaled(self, scale: float) -> Strictness:
        """The same with squared distances, and thus strictness, in another unit."""
        return replace(self, width=scale * self.width, values=scale * self.values, errors=scale * self.errors)


def solve_annotated(
    noise: Noise, rows: Rows, judgements: Judgements, settings: Settings, start: State | None, lengths: Array = None
) -> tuple[Solution, Flipped | None, Strictness]:
    """Solve for M, the thresholds and the strictness of each annotator, with the width set or estimated.

    With the `lengths` of a centre, its multiple is the last of the thresholds.
    """
    problem = _Problem(noise, rows, judgements, settings, lengths, Passes())
    width, is_estimated = settings.known_width, settings.known_width is None
    near = None
    if width is None:
        width, near = problem.estimate_width(start)
        start = near.solution.state
    if near is not None and near.was_interrupted:
        found = near
    else:
        found = problem.solve(width, start, None if near is None else near.flipped)
    n, flips = judgements.n_thresholds, getattr(found.flipped, "flips", None)
    information = found.information(judgements.total_weight)
    # Few judgements may not determine the thresholds at all; strictness has a prior.
    errors = np.sqrt(np.diag(np.linalg.inv(_without_others(information, len(information) - n))))
    shares = flips.shares[:-1] if isinstance(flips, RateOfEach) else None
    strictness = Strictness(width, is_estimated, found.thresholds[n:], errors, shares)
    return found.solution, found.flipped, strictness


@dataclass(frozen=True, eq=False)
class _Found:
    """A solution for one width, with what it is a solution of."""

    objective: Objective
    solution: Solution
    flipped: Flipped | None

    @property
    def thresholds(self) -> FloatArray:
        """The thresholds and the strictness of each annotator."""
        found = self.solution.thresholds
        return found[:-1] if isinstance(self.objective.likelihood, Centred) else found

    @property
    def was_interrupted(self) -> bool:
        return self.solution.certificate.outcome is Outcome.INTERRUPTED

    def information(self, total_weight: float) -> FloatArray:
        """The information on the thresholds and the strictness of each annotator, prior included, whatever M is.

        If M has many entries, only its scale counts as unknown.
        """
        here = self.objective if self.flipped is None else self.objective.with_likelihood(self.flipped)
        squared, thresholds = self.solution.squared, self.solution.thresholds
        if packed_size(here.n_directions) > _MOST_ENTRIES:
            _, second = here.along(squared, 1.0, thresholds)
        else:
            second = here.hessian(here.evaluate(squared, thresholds, order=2).curvature)
        if isinstance(here.likelihood, Centred):  # its multiple is a part of M
            second = np.roll(second, 1, axis=(0, 1))
        return total_weight * _without_others(second, len(self.thresholds))


@dataclass(frozen=True, eq=False)
class _Problem:
    """Judgements by annotators whose strictness has a prior of any width."""

    noise: Noise
    rows: Rows
    judgements: Judgements
    settings: Settings
    lengths: Array
    passes: Passes

    def solve(self, width: float, start: State | None, near: Flipped | None, options: Options | None = None) -> _Found:
        """The solution for one width; `near` has flip rates to begin with."""
        price = self.settings.price
        likelihood = likelihood_of(
            self.judgements, self.rows, self.noise, lengths=self.lengths, price=price, width=width
        )
        flipped = flipped_likelihood(likelihood, self.settings, self.judgements.total_weight)
        if flipped is not None and near is not None:
            flipped = flipped.with_rates(near.rates)
        objective = Objective(self.rows, likelihood, self.passes)
        return _Found(objective, *solve_likelihood(objective, flipped, self.settings, start, options))

    def estimate_width(self, start: State | None) -> tuple[float, _Found]:
        """Maximise the marginal likelihood of the width, by Laplace's approximation around one solution after another.

        Returns the width, and the last of the solutions.
        """
        options = replace(self.settings.options, tol=max(self.settings.options.tol, _ROUGH))
        width, flipped, n = self.noise.std, None, self.judgements.n_thresholds
        for _ in range(_MOST_ROUNDS):
            found = self.solve(width, start, flipped, options)
            start, flipped = found.solution.state, found.flipped
            if found.was_interrupted or supervisor().has_ended_a_run:
                break
            information = found.information(self.judgements.total_weight)
            told = _without_others(information, len(information) - n)
            told[np.diag_indices_from(told)] -= width**-2
            before, width = width, _best_width(told, found.thresholds[n:], width, self.noise.std)
            if abs(np.log(width / before)) < _SETTLED:
                break
        return width, found


def _without_others(information: FloatArray, n: int) -> FloatArray:
    """The information on the last n parameters if the others are unknown, as far as these are determined at all."""
    others, across = information[:-n, :-n], information[-n:, :-n]
    values, vectors = np.linalg.eigh(others)
    is_known = values > _DETERMINED * values[-1]
    along = (across @ vectors[:, is_known]) / np.sqrt(values[is_known])
    found: FloatArray = information[-n:, -n:] - along @ along.T
    return found


def _best_width(told: FloatArray, strictness: FloatArray, width: float, unit: float) -> float:
    """The likeliest width, given the information on strictness and its estimate under a prior of another width.

    The likelihood is that of a normal approximation.  A weak prior on the width, which vanishes at zero, keeps
    few annotators from being declared all alike.
    """
    values, vectors = np.linalg.eigh(0.5 * (told + told.T))
    values = np.maximum(values, 0.0)
    pull = (vectors.T @ (told @ strictness + strictness / width**2)) ** 2
    pull[values * width**2 < _LEAST_TOLD] = 0.0  # a shift of all together, up to rounding
    widths = unit * _WIDTHS
    squares = widths[:, None] ** 2
    likelihood = 0.5 * np.sum(pull * squares / (1.0 + squares * values) - np.log1p(squares * values), axis=1)
    prior = np.log(widths) - 2.0 * np.log1p(widths / unit)
    return float(widths[np.argmax(likelihood + prior)])
