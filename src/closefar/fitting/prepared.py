"""Judgements with their rows in the coordinates of a penalty, and the solution of their problem there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.fitting.comparison_noise import ComparisonNoise, profile_noise
from closefar.fitting.flipping import flipped_likelihood, solve_likelihood
from closefar.fitting.likelihoods import likelihood_of
from closefar.fitting.noise_choice import NoiseChoice
from closefar.fitting.progress import display
from closefar.fitting.settings import Settings
from closefar.fitting.solved import Solved, most_likely
from closefar.fitting.strictness import solve_annotated
from closefar.judgements import Judgements
from closefar.model import Metric
from closefar.noise import Noise
from closefar.rows import Coordinates, LegRows, Rows, factor_in_rows, judged_rows, second_moment, unit_free
from closefar.solve import (
    CentredFlips,
    Likelihood,
    Objective,
    Outcome,
    Passes,
    Solution,
    State,
    psd_factor,
    supervisor,
)

__all__ = ["Prepared", "with_comparison_noise"]

# The loss of a profile is exact up to this share of one judgement.
_PROFILE_SHARE = 0.02


@dataclass(frozen=True, eq=False)
class Prepared:
    """Judgements with their rows in the coordinates of a penalty, which do not depend on its weight.

    `centre` is a factor of what the penalty shrinks M to a multiple of, in these coordinates, or None; `price` is that
    of the multiple.
    """

    judgements: Judgements
    source: Rows
    rows: Rows
    coordinates: Coordinates
    blend: float
    centre: FloatArray | None = None
    price: float = 0.0

    @classmethod
    def of(
        cls, judgements: Judgements, settings: Settings, *, finds_null: bool, blend: float | None = None
    ) -> Prepared:
        source = judged_rows(judgements, settings.known_comparison_noise)
        if blend is None:
            blend = 0.0 if settings.alpha == 0 or settings.whitens else 1.0
        with display().stage("finding unit-free coordinates"):
            rows, coordinates = unit_free(
                source,
                judgements.shares_in(source),
                with_constant=settings.fit_origin,
                blend=blend,
                in_units=settings.prior_is("euclidean"),
                signs=judgements.signs_in(source),
                finds_null=finds_null,
            )
        prepared = cls(judgements, source, rows, coordinates, blend, price=settings.price)
        return replace(prepared, centre=prepared._centre(settings)) if settings.is_centred else prepared

    def _centre(self, settings: Settings) -> FloatArray:
        """The centre, scaled so that the mean squared distance by it is one."""
        if not isinstance(settings.prior, Metric):
            k, n_varying = self.rows.n_columns - int(settings.fit_origin), int(np.sum(self.coordinates.scales > 0.0))
            identity: FloatArray = np.eye(self.rows.n_columns, k) / np.sqrt(n_varying)
            return identity
        factor = self.factor_of(settings.prior)
        mean = np.sum(factor * (second_moment(self.rows, self.judgements.shares_in(self.rows)) @ factor))
        if not mean > 0.0:
            raise ValueError(
                "prior must be a metric in which the pairs have some distance; in this one each has none. Fit it to "
                "data of the same kind."
            )
        return np.asarray(factor / np.sqrt(mean), dtype=np.float64)

    @property
    def lengths(self) -> Array:
        """The squared distance of each row by the centre, as a handle; None without one."""
        return None if self.centre is None else self.rows.squared_distances(self.centre)

    def factor_of(self, metric: Metric) -> FloatArray:
        """A factor of a metric in these coordinates."""
        factor = self.coordinates.from_units(metric.factor)
        if factor is None:
            factor = factor_in_rows(self.rows, self.source, self.judgements.shares_in(self.source), metric.factor)
        return factor

    def likelihood(self, noise: Noise) -> Likelihood:
        return likelihood_of(self.judgements, self.rows, noise, lengths=self.lengths, price=self.price)

    def solve(self, settings: Settings, state: State | None) -> tuple[Solved, NoiseChoice | None]:
        """The solution for the given noise or, of several, for the one with the highest likelihood."""
        solved: dict[str, Solved] = {}
        for noise in settings.candidates:
            if solved and supervisor().has_ended_a_run:
                break
            solved[noise.name] = self._solve(noise, settings, state)
        if len(solved) == 1:
            return solved[settings.candidates[0].name], None
        choice = most_likely(solved)
        return solved[choice.name], choice

    def _solve(self, noise: Noise, settings: Settings, start: State | None) -> Solved:
        """Return the solution with the flip rates; it includes the centre that a penalty shrinks to."""
        rows, judgements, lengths = self.rows, self.judgements, self.lengths
        strictness = None
        if judgements.annotators is not None:
            found, flipped, strictness = solve_annotated(noise, rows, judgements, settings, start, lengths)
        else:
            likelihood = likelihood_of(judgements, rows, noise, lengths=lengths, price=self.price)
            flipped = flipped_likelihood(likelihood, settings, judgements.total_weight)
            found, flipped = solve_likelihood(Objective(rows, likelihood, Passes()), flipped, settings, start)
        if isinstance(flipped, CentredFlips):
            flipped = flipped.inner
        return Solved(rows, judgements, self.with_centre(found, lengths), noise, flipped, strictness)

    def with_centre(self, solution: Solution, lengths: Array) -> Solution:
        """Add the multiple of the centre to M, and take it out of the thresholds."""
        if self.centre is None:
            return solution
        *thresholds, multiple = solution.thresholds
        squared = solution.squared + float(multiple) * lengths
        factor = self.whole_factor(solution.factor, float(multiple))
        return replace(solution, factor=factor, thresholds=np.array(thresholds), squared=squared)

    def whole_factor(self, factor: FloatArray, multiple: float) -> FloatArray:
        """A factor of R + c M0, given one of R."""
        if self.centre is None or multiple == 0.0:
            return factor
        return psd_factor(factor @ factor.T + multiple * (self.centre @ self.centre.T))

    def state_at(self, metric: Metric, settings: Settings) -> State | None:
        """A metric in these coordinates, for a solver to start from; None if an origin is learned."""
        if settings.fit_origin:
            return None
        factor = self.factor_of(metric)
        annotators = self.judgements.annotators
        strictness = [] if annotators is None else [0.0] * len(annotators.names)
        thresholds = np.append(np.maximum(metric.thresholds, 0.0), strictness)
        matrix = factor @ factor.T
        if self.centre is None:
            return State.at(matrix, *thresholds)
        if isinstance(settings.prior, Metric):
            return State.at(matrix, *thresholds, 0.0)
        k = len(matrix)
        least = max(float(np.linalg.eigvalsh(matrix)[0]), 0.0)
        return State.at(matrix - least * np.eye(k), *thresholds, k * least)


def with_comparison_noise(
    prepared: Prepared, settings: Settings, state: State | None
) -> tuple[ComparisonNoise | None, Prepared, State | None]:
    """The noise of comparisons among pairs, set or estimated, the rows with it, and a state close to the solution."""
    rows, latest = prepared.rows, state
    if prepared.judgements.comparisons is None or not isinstance(rows, LegRows):
        return None, prepared, state
    if not settings.estimates_comparison_noise:
        return ComparisonNoise(settings.known_comparison_noise), prepared, state
    total = prepared.judgements.total_weight
    precise = settings.but(tol=min(settings.tol, _PROFILE_SHARE / total), verbose=0)
    if prepared.judgements.annotators is not None and settings.known_width is None:
        # The prior stays the same, so that the values of the profile can be compared.
        first, _ = prepared.solve(settings, state)
        assert first.annotated is not None
        precise = precise.but(strictness_width=first.annotated.width)
        latest = first.solution.state if prepared.centre is None else None

    def loss_at(noise: float) -> tuple[float, float]:
        nonlocal latest
        solved, _ = replace(prepared, rows=rows.with_scale(1.0 / noise)).solve(precise, latest)
        if solved.solution.certificate.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # what it has is no profile
        latest = solved.solution.state if prepared.centre is None else None
        return solved.risk, solved.slope_in_comparison_noise

    with display().stage("estimating the noise of the comparisons"):
        found = profile_noise(loss_at, total)
    # The last fit begins afresh: from so near, it would end before it is as precise as others.
    return found, replace(prepared, rows=rows.with_scale(1.0 / found.value)), None
