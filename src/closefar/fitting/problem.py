"""Judgements with their rows in the coordinates of a penalty, their likelihood, and the solution there."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar import solve
from closefar.arrays import Array, FloatArray
from closefar.errors import setting
from closefar.fitting.progress import Checkpoint, ShownSteps, display
from closefar.fitting.result import FitStatistics
from closefar.fitting.settings import Settings
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.metric import one_rate
from closefar.noise import FlipRate, Noise
from closefar.packed import packed_size
from closefar.rows import Coordinates, Rows, factor_in_rows, judged_rows, second_moment, unit_free

# ---------------------------------------------------------------------------------------------------------------------
# The likelihood of judgements, by their kind.


def is_plain(judgements: Judgements) -> bool:
    """Whether these are close/far labels, or two levels, alone, without annotators or comparisons."""
    return judgements.n_thresholds == 1 and judgements.annotators is None and judgements.comparisons is None


def answers_of(judgements: Judgements) -> solve.Answers:
    """The answers that judgements can give, with those to comparisons beside pairs last."""
    n_levels = judgements.n_levels if judgements.n_thresholds > 0 else 0
    return solve.Answers.of(n_levels, compares=n_levels == 0 or judgements.comparisons is not None)


def likelihood_of(
    judgements: Judgements,
    rows: Rows,
    noise: Noise,
    *,
    lengths: Array = None,
    price: float = 0.0,
    width: float = np.inf,
    flips: solve.FlipRates | None = None,
    turned: Collection[Kind] = (),
) -> solve.Likelihood:
    """Return the likelihood of judgements whose rows these are, in the order of `judged_rows`.

    `lengths` are those by a centre, `price` is that of its multiple, and `width` that of the prior on the strictness
    of annotators.
    Judgements of the kinds in `turned` say the opposite: close for far, the last level for the first, the other order
    of a comparison.
    """
    codes, groups = judgements.codes_in(rows), judgements.annotators
    if turned:
        n_levels = judgements.n_levels if judgements.n_thresholds > 0 else 0
        codes = rows.map(partial(_turned, n_levels=n_levels, turned=turned), codes)
    return solve.Likelihood(
        noise,
        answers_of(judgements),
        codes,
        judgements.shares_in(rows),
        groups=None if groups is None else judgements.groups_in(rows),
        n_groups=0 if groups is None else len(groups.names),
        precision=0.0 if groups is None else 1.0 / (width**2 * judgements.total_weight),
        lengths=lengths,
        price=price,
        flips=flips,
    )


def _turned(codes: Array, n_levels: int, turned: Collection[Kind]) -> Array:
    """The opposite codes: K - 1 - k of levels, K for K + 1 of comparisons, and the reverse."""
    of_pairs = n_levels - 1 - codes if set(turned) - {Kind.COMPARISONS} else codes
    of_comparisons = 2 * n_levels + 1 - codes if Kind.COMPARISONS in turned else codes
    return array_namespace(codes).where(codes < n_levels, of_pairs, of_comparisons)


def flips_of(settings: Settings, judgements: Judgements) -> solve.Rates | None:
    """The flip rates that the settings ask for, at the known rates or where the search begins; None without flips."""
    rate, n_levels = settings.known_flip_rate, judgements.n_levels if judgements.n_thresholds > 0 else 1
    if rate == 0.0:
        return None
    if settings.has_two_rates:
        return solve.SideRates(np.array(rate if isinstance(rate, tuple) else (0.0, 0.0)))
    if rate is None and judgements.annotators is not None:
        return solve.RateOfEach.none(len(judgements.annotators.names), judgements.total_weight)
    assert not isinstance(rate, tuple)
    return solve.SharedRate.of(rate or 0.0, n_levels)


# ---------------------------------------------------------------------------------------------------------------------
# The strictness of annotators: the width of its prior, estimated with the metric, and its standard errors.
#
# A strictness is relative to that of the typical annotator, who has the thresholds tau: a shift of all annotators
# together is one of tau, and only the prior tells them apart. Its standard error includes that, and what is not
# known of M.


# The widths that are tried, in standard deviations of the noise, and how precisely one is estimated.
_WIDTHS = np.geomspace(1e-2, 1e2, 801)
_WIDTH_ACCURACY = 0.02  # relative, far below the standard error that a few annotators leave
_MOST_WIDTH_ROUNDS = 8  # a bound: they end when the width no longer changes
_WIDTH_TOL = 1e-4  # of the fits on the way, in nats per judgement

# An annotator about whom the judgements say less than this share of what the prior says does not tell the width.
_LEAST_TOLD = 1e-3

# With more entries of M, only its scale counts as uncertain.
_MOST_ENTRIES = 1500

_DETERMINED_SHARE = 1e-12  # relative to the largest eigenvalue


@dataclass(frozen=True, eq=False)
class Strictness:
    """How strict each annotator is.

    Attributes
    ----------
    width : float
        The standard deviation of the prior.
    values, errors : arrays of R numbers
        The strictness of each annotator, and its standard error.
    random_shares : array of R numbers, optional
        The share of answers at random of each, if each has their own.
    """

    width: float
    values: FloatArray
    errors: FloatArray
    random_shares: FloatArray | None

    def scaled(self, scale: float) -> Strictness:
        """The same with squared distances, and thus strictness, in another unit."""
        return replace(self, width=scale * self.width, values=scale * self.values, errors=scale * self.errors)


def _told(problem: solve.Problem, solution: solve.Solution, n_annotators: int) -> FloatArray:
    """The information on the strictness of each annotator, prior included, whatever M and the thresholds are.

    If M has many entries, only its scale counts as unknown.
    """
    squared, thresholds = solution.squared, solution.thresholds
    if packed_size(problem.n_directions) > _MOST_ENTRIES:
        _, second = problem.scale_derivatives(squared, 1.0, thresholds)
    else:
        second = problem.hessian(problem.evaluate(squared, thresholds, order=2).curvature)
    if problem.likelihood.lengths is not None:  # its multiple is a part of M
        second = np.roll(second, 1, axis=(0, 1))
    return _without_others(second, n_annotators)


def _without_others(information: FloatArray, n: int) -> FloatArray:
    """The information on the last n parameters if the others are unknown, as far as these are determined at all."""
    others, across = information[:-n, :-n], information[-n:, :-n]
    values, vectors = np.linalg.eigh(others)
    is_known = values > _DETERMINED_SHARE * values[-1]
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


# ---------------------------------------------------------------------------------------------------------------------
# A solution with the judgements that it is for: what is computed for each of them stays with their rows.


@dataclass(frozen=True, eq=False)
class Solved:
    """A solution, the rows and the judgements that it minimises the loss of, the noise, flips and annotators."""

    rows: Rows
    judgements: Judgements
    solution: solve.Solution
    noise: Noise
    flips: solve.Rates | None = None
    annotated: Strictness | None = None

    @property
    def flip_rate(self) -> FlipRate:
        """The flip rate, or both, of the typical annotator."""
        return 0.0 if self.flips is None else self.flips.flip_rate(self.likelihood.answers)

    @cached_property
    def likelihood(self) -> solve.Likelihood:
        """That of the judgements, without the prior on strictness."""
        return likelihood_of(self.judgements, self.rows, self.noise, flips=self.flips)

    @property
    def thresholds(self) -> FloatArray:
        """The thresholds of a typical annotator: one fewer than levels, none for comparisons."""
        return self.solution.thresholds[: self.judgements.n_thresholds]

    @property
    def risk(self) -> float:
        """The mean of -log P of all judgements, flips included, with all penalties."""
        if self.flips is None:
            return self.solution.certificate.objective
        return self.solution.history[-1].objective + self.flips.penalty()

    @property
    def slope_in_comparison_noise(self) -> float:
        """The derivative of the risk in the logarithm of the noise of comparisons, all else being optimal."""
        rows, n = self.rows, len(self.judgements)
        here = solve.Problem.of(rows, self.likelihood).evaluate(self.solution.squared, self.solution.thresholds)
        return -float(rows.gather(here.margin_gradient)[n:] @ rows.gather(self.solution.squared)[n:])

    @property
    def in_doubt(self) -> Array:
        """4 p (1 - p) of each label, without flips, as a handle: one at even odds, zero far from the threshold."""
        doubt = partial(_doubt, noise=self.noise, threshold=float(self.thresholds[0]))
        return self.rows.map(doubt, self.solution.squared)

    @property
    def losses(self) -> Array:
        """-log P of each judgement of any kind, as a handle."""
        return self.likelihood.losses(self.rows, self.solution.squared, self.solution.thresholds)

    def statistics(self, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
        """The statistics of the judgements, in one sweep over their squared distances."""
        sums = partial(_sums_of_margins, noise=self.noise, threshold=float(self.thresholds[0]))
        judgements, rows = self.judgements, self.rows
        weights = () if judgements.is_uniform else (judgements.shares_in(rows),)
        parts = rows.parts(sums, self.solution.squared, self.likelihood.codes, *weights)
        total, squares, far, right, wrong, doubt = np.sum(parts, axis=0).tolist()
        shares = [share for share in (far / total, 1.0 - far / total) if share > 0.0]
        rate = one_rate(self.flip_rate)
        return FitStatistics(
            n_pairs=len(judgements),
            share_far=far / total,
            null_loss=-sum(share * math.log(share) for share in shares),
            accuracy=right / total,
            wrong_share=rate + (1.0 - 2.0 * rate) * wrong / total,
            column_scales=tuple(column_scales.tolist()),
            n_parameters=n_parameters,
            uncertain_labels=total / squares * doubt,
        )


def _sums_of_margins(
    squared: Array, codes: Array, weights: Array = None, *, noise: Noise, threshold: float
) -> FloatArray:
    """The weights of some judgements, their squares, and the weights times each statistic; by default they are one."""
    xp = array_namespace(squared)
    margin = squared - threshold
    rarer = noise.cdf(-xp.abs(margin))
    is_far = codes > 0
    indicators = [xp.astype(each, xp.float64) for each in (is_far, (margin >= 0) == is_far)]
    statistics = [*indicators, rarer, 4.0 * rarer * (1.0 - rarer)]
    if weights is None:
        n = float(margin.shape[0])
        return np.array([n, n, *(float(xp.sum(each)) for each in statistics)])
    return np.array([float(xp.vecdot(weights, each)) for each in (xp.ones_like(rarer), weights, *statistics)])


def _doubt(squared: Array, noise: Noise, threshold: float) -> Array:
    rarer = noise.cdf(-array_namespace(squared).abs(squared - threshold))
    return 4.0 * rarer * (1.0 - rarer)


@dataclass(frozen=True, eq=False)
class UnitFreeProblem:
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
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(
        cls,
        judgements: Judgements,
        settings: Settings,
        *,
        finds_null: bool,
        blend: float | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> UnitFreeProblem:
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
                signs=partial(judgements.signs_in, source),
                finds_null=finds_null,
            )
        prepared = cls(judgements, source, rows, coordinates, blend, price=settings.price, checkpoint=checkpoint)
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
                setting("prior")
                + " must be a metric in which the pairs have some distance; in this one each has none. Fit it "
                "to data of the same kind."
            )
        return np.asarray(factor / np.sqrt(mean), dtype=np.float64)

    @cached_property
    def lengths(self) -> Array:
        """The squared distance of each row by the centre, as a handle; None without one."""
        return None if self.centre is None else self.rows.squared_distances(self.centre)

    def factor_of(self, metric: Metric) -> FloatArray:
        """A factor of a metric in these coordinates."""
        factor = self.coordinates.from_units(metric.factor)
        if factor is None:
            factor = factor_in_rows(self.rows, self.source, self.judgements.shares_in(self.source), metric.factor)
        return factor

    def likelihood(self, noise: Noise, width: float = np.inf, flips: solve.FlipRates | None = None) -> solve.Likelihood:
        more: dict[str, Any] = {"lengths": self.lengths, "price": self.price, "width": width, "flips": flips}
        return likelihood_of(self.judgements, self.rows, noise, **more)

    def minimise(self, noise: Noise, settings: Settings, start: solve.State | None) -> Solved:
        """Return the solution for a noise, with the flip rates; it includes the centre that a penalty shrinks to.

        With annotators, the strictness of each is part of it, with the width of its prior set or estimated: by the
        marginal likelihood, in Laplace's approximation around one solution after another.
        """
        keep = None
        if self.checkpoint is not None:
            last = self.checkpoint.state(noise.name, self.rows.n_columns)
            # At known rates the search begins at the solution without flips, which a state before it is not.
            has_begun = last is not None and (last.rates is not None or settings.known_flip_rate in (None, 0.0))
            start = last if has_begun else start
            keep = partial(self.checkpoint.keep, noise.name)
        watch, who, n = ShownSteps(solve.Passes(), keep), self.judgements.annotators, self.judgements.n_thresholds
        those, total = slice(n, n + (0 if who is None else len(who.names))), self.judgements.total_weight
        width, is_over = settings.known_width or noise.std, False
        rough = settings.but(tol=max(settings.tol, _WIDTH_TOL))
        for _ in range(0 if who is None or settings.known_width else _MOST_WIDTH_ROUNDS):
            problem, solution = self._solve(noise, rough, start, watch, width)
            flips = problem.likelihood.flips
            start = replace(solution.state, rates=None if flips is None else flips.rates)
            is_over = solution.certificate.outcome is solve.Outcome.INTERRUPTED
            if is_over or solve.supervisor().timed_out:
                break
            told = total * _told(problem, solution, those.stop - n) - np.eye(those.stop - n) / width**2
            before, width = width, _best_width(told, solution.thresholds[those], width, noise.std)
            if abs(np.log(width / before)) < _WIDTH_ACCURACY:
                break
        if not is_over:
            problem, solution = self._solve(noise, settings, start, watch, width)
        flips, strictness = problem.likelihood.flips, None
        assert flips is None or isinstance(flips, solve.Rates)
        if who is not None:
            errors = np.sqrt(np.diag(np.linalg.inv(total * _told(problem, solution, len(who.names)))))
            shares = flips.shares[:-1] if isinstance(flips, solve.RateOfEach) else None
            strictness = Strictness(width, solution.thresholds[those], errors, shares)
        return Solved(self.rows, self.judgements, self.with_centre(solution), noise, flips, strictness)

    def _solve(
        self, noise: Noise, settings: Settings, start: solve.State | None, watch: ShownSteps, width: float
    ) -> tuple[solve.Problem, solve.Solution]:
        """The problem with the flips that the settings ask for, and its solution; `start` may have flip rates."""
        flips = flips_of(settings, self.judgements)
        if flips is not None and start is not None and start.rates is not None:
            flips = flips.with_rates(start.rates)
        problem = settings.problem(self.rows, self.likelihood(noise, width, flips), watch.passes)
        more: dict[str, Any] = {"rng": settings.rng(), "watch": watch, "start": start}
        if flips is None:
            return problem, solve.solve(problem, settings, **more)
        solution, likelihood = solve.solve_with_flips(problem, settings, estimate=settings.estimates_flips, **more)
        return problem.with_likelihood(likelihood), solution

    def with_centre(self, solution: solve.Solution) -> solve.Solution:
        """Add the multiple of the centre to M, and take it out of the thresholds."""
        if self.centre is None:
            return solution
        *thresholds, multiple = solution.thresholds
        squared = solution.squared + float(multiple) * self.lengths
        factor = self.whole_factor(solution.factor, float(multiple))
        return replace(solution, factor=factor, thresholds=np.array(thresholds), squared=squared)

    def whole_factor(self, factor: FloatArray, multiple: float) -> FloatArray:
        """A factor of R + c M0, given one of R."""
        if self.centre is None or multiple == 0.0:
            return factor
        return solve.psd_factor(factor @ factor.T + multiple * (self.centre @ self.centre.T))

    def state_at(self, metric: Metric, settings: Settings) -> solve.State | None:
        """A metric in these coordinates, for a solver to start from; None if an origin is learned."""
        if settings.fit_origin:
            return None
        factor = self.factor_of(metric)
        annotators = self.judgements.annotators
        strictness = [] if annotators is None else [0.0] * len(annotators.names)
        thresholds = np.append(np.maximum(metric.thresholds, 0.0), strictness)
        matrix = factor @ factor.T
        if self.centre is None:
            return solve.State.at(matrix, *thresholds)
        if isinstance(settings.prior, Metric):
            return solve.State.at(matrix, *thresholds, 0.0)
        k = len(matrix)
        least = max(float(np.linalg.eigvalsh(matrix)[0]), 0.0)
        return solve.State.at(matrix - least * np.eye(k), *thresholds, k * least)
