"""Judgements with their rows in unit-free coordinates, and the solution of their problem there."""

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
from closefar.rows import Coordinates, LegRows, Rows, factor_in_rows, judged_rows, pair_rows, unit_free
from closefar.solve import Objective, Outcome, Passes, Solution, State, psd_factor, supervisor

__all__ = ["Prepared", "state_of", "with_comparison_noise"]

# The loss of a profile is exact up to this share of one judgement.
_PROFILE_SHARE = 0.02


@dataclass(frozen=True, eq=False)
class Prepared:
    """Judgements with their rows in the coordinates of a penalty, which do not depend on its weight."""

    judgements: Judgements
    source: Rows
    rows: Rows
    coordinates: Coordinates
    blend: float

    @classmethod
    def of(
        cls, judgements: Judgements, settings: Settings, *, finds_null: bool, blend: float | None = None
    ) -> Prepared:
        source = judged_rows(judgements, settings.known_comparison_noise)
        blend = settings.blend if blend is None else blend
        with display().stage("finding unit-free coordinates"):
            rows, coordinates = unit_free(
                source,
                judgements.shares_in(source),
                with_constant=settings.fit_origin,
                blend=blend,
                in_units=settings.in_units,
                signs=judgements.signs_in(source),
                finds_null=finds_null,
            )
        return cls(judgements, source, rows, coordinates, blend)

    def solve(self, settings: Settings, state: State | None) -> tuple[Solved, NoiseChoice | None]:
        """The solution for the given noise or, of several, for the one with the highest likelihood."""
        solved: dict[str, Solved] = {}
        for noise in settings.candidates:
            if solved and supervisor().has_ended_a_run:
                break
            solved[noise.name] = _solve(noise, self.rows, self.judgements, settings, state)
        if len(solved) == 1:
            return solved[settings.candidates[0].name], None
        choice = most_likely(solved)
        return solved[choice.name], choice

    def margin(self, solution: Solution, judgements: Judgements) -> FloatArray:
        """The margins of other judgements."""
        others = pair_rows(judgements.data)
        if self.coordinates.has_constant:
            squared = others.in_coordinates(self.coordinates).squared_distances(solution.factor)
        else:
            squared = others.squared_distances(self.coordinates.to_units(solution.factor))
        margin: FloatArray = others.gather(squared) - solution.thresholds[0]
        return margin

    def state_at(self, metric: Metric, settings: Settings) -> State | None:
        """A metric in these coordinates, for a solver to start from; None if an origin is learned."""
        if settings.fit_origin:
            return None
        factor = self.coordinates.from_units(metric.factor)
        if factor is None:
            factor = factor_in_rows(self.rows, self.source, self.judgements.shares_in(self.source), metric.factor)
        annotators = self.judgements.annotators
        strictness = [] if annotators is None else [0.0] * len(annotators.names)
        return state_of(factor, np.append(np.maximum(metric.thresholds, 0.0), strictness), settings)


def state_of(factor: FloatArray, thresholds: FloatArray, settings: Settings) -> State:
    """M = A A' and thresholds in the coordinates of the rows, for a solver to start from."""
    matrix = factor @ factor.T
    if not settings.is_centred:
        return State.at(matrix, *thresholds)
    k = len(matrix)
    centre = max(float(np.linalg.eigvalsh(matrix)[0]), 0.0)
    return State.at(matrix - centre * np.eye(k), *thresholds, k * centre)


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
        precise, latest = precise.but(strictness_width=first.annotated.width), first.solution.state

    def loss_at(noise: float) -> tuple[float, float]:
        nonlocal latest
        solved, _ = replace(prepared, rows=rows.with_scale(1.0 / noise)).solve(precise, latest)
        if solved.solution.certificate.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # what it has is no profile
        latest = solved.solution.state
        return solved.risk, solved.slope_in_comparison_noise

    with display().stage("estimating the noise of the comparisons"):
        found = profile_noise(loss_at, total)
    # The last fit begins afresh: from so near, it would end before it is as precise as others.
    return found, replace(prepared, rows=rows.with_scale(1.0 / found.value)), None


def _solve(noise: Noise, rows: Rows, judgements: Judgements, settings: Settings, start: State | None) -> Solved:
    """Return the solution with the flip rates; it includes the centre that a penalty shrinks to."""
    if judgements.annotators is not None:
        found, flipped, strictness = solve_annotated(noise, rows, judgements, settings, start)
        return Solved(rows, judgements, found, noise, flipped, strictness)
    lengths = None
    if settings.is_centred:
        # Their mean is one, as is that of the squared coordinates.
        k = rows.n_columns - int(settings.fit_origin)
        lengths = rows.squared_distances(np.eye(rows.n_columns, k) / np.sqrt(k))
    likelihood = likelihood_of(judgements, rows, noise, lengths=lengths)
    flipped = flipped_likelihood(likelihood, settings, judgements.total_weight)
    found, flipped = solve_likelihood(Objective(rows, likelihood, Passes()), flipped, settings, start)
    solution = found if lengths is None else _with_centre(found, lengths, k)
    return Solved(rows, judgements, solution, noise, flipped)


def _with_centre(solution: Solution, lengths: Array, k: int) -> Solution:
    """Add c times the identity of the first k coordinates to M."""
    threshold, centre = solution.thresholds
    matrix = solution.factor @ solution.factor.T
    matrix[np.diag_indices(k)] += centre / k
    squared = solution.squared + centre * lengths
    return replace(solution, factor=psd_factor(matrix), thresholds=np.array([threshold]), squared=squared)
