"""Judgements with their rows in the coordinates of a penalty, their likelihood, and the solution there."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2

from closefar import solve
from closefar.arrays import Array, FloatArray, to_numpy
from closefar.errors import setting
from closefar.fitting.progress import Checkpoint, ShownSteps, display
from closefar.fitting.result import ComparisonNoise, FitStatistics, NoiseChoice
from closefar.fitting.settings import Settings
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.thresholds import one_rate
from closefar.noise import FlipRate, Noise, label_losses, with_flips
from closefar.packed import packed_size
from closefar.rows import Coordinates, LegRows, Rows, factor_in_rows, judged_rows, second_moment, unit_free

# ---------------------------------------------------------------------------------------------------------------------
# The likelihood of judgements, by their kind.


def is_plain(judgements: Judgements) -> bool:
    """Whether these are close/far labels, or two levels, alone, without annotators or comparisons."""
    return judgements.n_thresholds == 1 and judgements.annotators is None and judgements.comparisons is None


def likelihood_of(
    judgements: Judgements,
    rows: Rows,
    noise: Noise,
    *,
    lengths: Array = None,
    price: float = 0.0,
    width: float = np.inf,
    turned: Collection[Kind] = (),
) -> solve.Likelihood:
    """Return the likelihood of judgements whose rows these are, in the order of `judged_rows`.

    `lengths` are those of a centre (`Centred`), `price` is that of its multiple, and `width` that of the prior on
    the strictness of annotators.
    Judgements of the kinds in `turned` say the opposite: close for far, the last level for the first, the other order
    of a comparison.
    """
    shares, is_compared = judgements.shares_in(rows), judgements.kind is Kind.COMPARISONS
    if is_plain(judgements) or (is_compared and judgements.annotators is None):
        signs = judgements.signs_in(rows)
        signs = -signs if judgements.kind in turned else signs
        found: solve.Likelihood = (solve.Compared if is_compared else solve.CloseFar)(noise, signs, shares)
    else:
        n_levels, codes, groups = judgements.n_levels, judgements.codes_in(rows), judgements.annotators
        if turned:
            codes = rows.map(partial(_turned, n_levels=n_levels, turned=turned), codes)
        precision = 1.0 / (width**2 * judgements.total_weight)
        of_groups = () if groups is None else (judgements.groups_in(rows), len(groups.names), precision)
        found = solve.Graded(noise, codes, shares, n_levels, *of_groups)
    return found if lengths is None else solve.Centred(found, lengths, price)


def _turned(codes: Array, n_levels: int, turned: Collection[Kind]) -> Array:
    """The opposite codes: K - 1 - k of levels, K + 1 for K of comparisons, and the reverse."""
    of_pairs = n_levels - 1 - codes if set(turned) - {Kind.COMPARISONS} else codes
    of_comparisons = 2 * n_levels + 1 - codes if Kind.COMPARISONS in turned else codes
    return array_namespace(codes).where(codes < n_levels, of_pairs, of_comparisons)


# ---------------------------------------------------------------------------------------------------------------------
# The same likelihood with the flips that settings ask for.


def flipped_likelihood(likelihood: solve.Likelihood, settings: Settings, total_weight: float) -> solve.Flipped | None:
    """The likelihood of the same judgements with flips, at the known rates or at zero; None without flips.

    `total_weight` is the sum of the weights of the judgements before they were divided by it.
    """
    rate = settings.known_flip_rate
    if rate == 0.0:
        return None
    if isinstance(likelihood, solve.Centred):
        inner = flipped_likelihood(likelihood.inner, settings, total_weight)
        return solve.CentredFlips(inner, likelihood.lengths, likelihood.price)
    one, two = (0.0, rate) if isinstance(rate, tuple) else (rate or 0.0, (0.0, 0.0))  # where the search begins
    if isinstance(likelihood, solve.Compared):  # comparisons beside no pairs at all, whose codes are 1 and 2
        graded = solve.Graded(likelihood.noise, (3.0 - likelihood.signs) * 0.5, likelihood.weights, n_levels=1)
        return solve.FlippedGraded(graded, solve.SharedRate.of(one, 1))
    if isinstance(likelihood, solve.CloseFar):
        start: FlipRate = two if settings.has_two_rates else one
        return solve.FlippedCloseFar(likelihood.noise, likelihood.signs, likelihood.weights, start)
    assert isinstance(likelihood, solve.Graded)
    if settings.has_two_rates:
        return solve.FlippedGraded(likelihood, solve.SideRates(np.array(two)))
    if rate is None and likelihood.n_groups > 0:
        return solve.FlippedGraded(likelihood, solve.RateOfEach.none(likelihood.n_groups, total_weight))
    return solve.FlippedGraded(likelihood, solve.SharedRate.of(one, likelihood.n_levels))


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


@dataclass(frozen=True, eq=False)
class _Found:
    """A solution for one width, with what it is a solution of."""

    objective: solve.Objective
    solution: solve.Solution
    flipped: solve.Flipped | None

    @property
    def thresholds(self) -> FloatArray:
        """The thresholds and the strictness of each annotator."""
        found = self.solution.thresholds
        return found[:-1] if isinstance(self.objective.likelihood, solve.Centred) else found

    @property
    def state(self) -> solve.State:
        """The state from which to go on, with flip rates if there are any."""
        return replace(self.solution.state, rates=None if self.flipped is None else self.flipped.rates)

    def information(self, total_weight: float) -> FloatArray:
        """The information on the thresholds and the strictness of each annotator, prior included, whatever M is.

        If M has many entries, only its scale counts as unknown.
        """
        here = self.objective if self.flipped is None else self.objective.with_likelihood(self.flipped)
        squared, thresholds = self.solution.squared, self.solution.thresholds
        if packed_size(here.n_directions) > _MOST_ENTRIES:
            _, second = here.scale_derivatives(squared, 1.0, thresholds)
        else:
            second = here.hessian(here.evaluate(squared, thresholds, order=2).curvature)
        if isinstance(here.likelihood, solve.Centred):  # its multiple is a part of M
            second = np.roll(second, 1, axis=(0, 1))
        return total_weight * _without_others(second, len(self.thresholds))


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
# The noise that describes the judgements best, and that of comparisons relative to that of pairs


_CLEAR_Z = 1.96  # a difference of likelihoods that is not chance, at 5%


def choose_noise(row_losses: Mapping[str, FloatArray], weights: FloatArray) -> NoiseChoice:
    """Choose by likelihood; the models have the same number of parameters, so no correction is needed.

    Vuong's test for non-nested models decides whether a model is clearly better: it compares the
    mean difference of row losses with its standard error.

    Parameters
    ----------
    row_losses : mapping from names to arrays of shape (n,)
        -log P(label) of each pair under each fitted model, for the same pairs.
    weights : array of shape (n,)
        The weights of the fit; for `z` they are importance weights, not repeated pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from closefar.fitting import choose_noise
    >>> losses = {"logistic": np.array([0.3, 0.1, 0.2, 0.4]), "normal": np.array([0.4, 0.2, 0.2, 0.5])}
    >>> choice = choose_noise(losses, np.ones(4))
    >>> choice.name, round(choice.comparison["normal"]["z"], 2), choice.warning
    ('logistic', 3.46, None)
    """
    if not row_losses:
        raise ValueError("row_losses must contain the losses of at least one noise model; got none.")
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    return choice_from(list(row_losses), sums_of_losses(shares, *row_losses.values()))


def sums_of_losses(shares: Array, *losses: Array) -> FloatArray:
    """Products of a line of ones and the losses of each model, weighted by the shares of pairs and by their squares."""
    lines = array_namespace(shares).stack([0.0 * shares + 1.0, *losses])
    return np.stack([to_numpy((weights * lines) @ lines.T) for weights in (shares, shares * shares)])


def choice_from(names: Sequence[str], sums: FloatArray) -> NoiseChoice:
    """Choose between models from the `sums_of_losses` of all pairs."""
    means, products = sums[0, 0, 1:], sums[1]
    best = int(np.argmin(means))
    comparison = {}
    for place, name in enumerate(names):
        difference = float(means[place] - means[best])
        contrast = np.append(-difference, np.eye(len(names))[place] - np.eye(len(names))[best])
        variance = float(contrast @ products @ contrast)  # the sum of w^2 (d - mean)^2, with d the difference of a pair
        z = difference / math.sqrt(variance) if variance > 0.0 else 0.0
        comparison[name] = {"loss": float(means[place]), "difference": difference, "z": z}
    alike = [name for name in names if name != names[best] and comparison[name]["z"] < _CLEAR_Z]
    return NoiseChoice(names[best], comparison, _warning(names[best], alike, comparison))


def _warning(best: str, alike: list[str], comparison: dict[str, dict[str, float]]) -> str | None:
    if not alike:
        return None
    names = " or ".join(f"{name} (z = {comparison[name]['z']:.1f})" for name in alike)
    return f"{best} noise describes the labels best, but not clearly better than {names}."


# The largest noise of comparisons relative to that of pairs that is tried, and one over the smallest.
_LARGEST_LOG_RATIO = math.log(1e3)
# How precisely its logarithm is known: after a search, at an end of the interval, and at the estimate.
_SEARCH_WIDTH, _END_WIDTH, _ESTIMATE_WIDTH = 0.1, 1e-3, 1e-10
INTERVAL_LEVEL = 0.95  # of intervals by the profile likelihood


def profile_noise(loss_at: Callable[[float], tuple[float, float]], n_judgements: float) -> ComparisonNoise:
    """Minimise the loss over the noise, given the least loss at each, and find where it is too large by chance.

    `loss_at` is the minimum over all other parameters of the mean loss of as many judgements as this, and its
    derivative in the logarithm of the noise.
    """
    found: dict[float, tuple[float, float]] = {}

    def profile(log_noise: float) -> tuple[float, float]:
        if log_noise not in found:
            found[log_noise] = loss_at(math.exp(log_noise))
        return found[log_noise]

    minimize_scalar(
        lambda place: profile(place)[0],
        bounds=(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO),
        method="bounded",
        options={"xatol": _SEARCH_WIDTH},
    )
    centre = min(found, key=lambda place: found[place][0])
    slope = found[centre][1]
    below = max((place for place in found if place < centre and found[place][1] < 0.0), default=centre)
    above = min((place for place in found if place > centre and found[place][1] > 0.0), default=centre)
    low, high = (below, centre) if slope > 0.0 else (centre, above)
    if slope != 0.0 and low < high:
        centre = brentq(lambda place: profile(place)[1], low, high, xtol=_ESTIMATE_WIDTH)
    limit = profile(centre)[0] + float(chi2.isf(1.0 - INTERVAL_LEVEL, 1)) / (2.0 * n_judgements)
    ends: list[float] = []
    for end, beyond in ((-_LARGEST_LOG_RATIO, 0.0), (_LARGEST_LOG_RATIO, math.inf)):
        # A fit at the end itself is slow, and needed only if nothing nearer is too large.
        known = [place for place in found if min(centre, end) < place < max(centre, end)]
        places = [centre, *sorted(known, reverse=end < centre), end]
        outside = next(place for place in places if place == end or found[place][0] > limit)
        inside = places[places.index(outside) - 1]
        is_bounded = profile(outside)[0] > limit
        root = brentq(lambda place: profile(place)[0] - limit, inside, outside, xtol=_END_WIDTH) if is_bounded else None
        ends.append(beyond if root is None else math.exp(root))
    return ComparisonNoise(math.exp(centre), (ends[0], ends[1]))


# ---------------------------------------------------------------------------------------------------------------------
# A solution with the judgements that it is for: what is computed for each of them stays with their rows.


@dataclass(frozen=True, eq=False)
class Solved:
    """A solution, the rows and the judgements that it minimises the loss of, the noise, flips and annotators."""

    rows: Rows
    judgements: Judgements
    solution: solve.Solution
    noise: Noise
    flipped: solve.Flipped | None = None
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
        return self.solution.history[-1].objective + self.flipped.flips.penalty()

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
        judgements, rows, squared = self.judgements, self.rows, self.solution.squared
        if is_plain(judgements):  # exact, where a probability would be too small for a number
            of_labels = partial(_label_losses, noise=self.noise, threshold=self.threshold, flip_rate=self.flip_rate)
            return rows.map(of_labels, squared, judgements.signs_in(rows))
        plain = likelihood_of(judgements, rows, self.noise).right
        probability = plain if self.flipped is None else self.flipped.probabilities
        return rows.map(_neg_log, probability(rows, squared, self.solution.thresholds))

    def statistics(self, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
        """The statistics of the judgements, in one sweep over their squared distances."""
        sums = partial(_sums_of_margins, noise=self.noise, threshold=self.threshold)
        judgements, rows = self.judgements, self.rows
        weights = () if judgements.is_uniform else (judgements.shares_in(rows),)
        parts = rows.parts(sums, self.solution.squared, judgements.signs_in(rows), *weights)
        total, squares, far, right, wrong, doubt = np.sum(parts, axis=0).tolist()
        shares = [share for share in (far / total, 1.0 - far / total) if share > 0.0]
        return FitStatistics(
            n_pairs=len(judgements),
            share_far=far / total,
            null_loss=-sum(share * math.log(share) for share in shares),
            accuracy=right / total,
            wrong_share=float(with_flips(wrong / total, one_rate(self.flip_rate))),
            column_scales=tuple(column_scales.tolist()),
            n_parameters=n_parameters,
            uncertain_labels=total / squares * doubt,
        )


def _sums_of_margins(
    squared: Array, signs: Array, weights: Array = None, *, noise: Noise, threshold: float
) -> FloatArray:
    """The weights of some judgements, their squares, and the weights times each statistic; by default they are one."""
    xp = array_namespace(squared)
    margin = squared - threshold
    rarer = noise.cdf(-xp.abs(margin))
    is_far = signs > 0
    indicators = [xp.astype(each, xp.float64) for each in (is_far, (margin >= 0) == is_far)]
    statistics = [*indicators, rarer, 4.0 * rarer * (1.0 - rarer)]
    if weights is None:
        n = float(margin.shape[0])
        return np.array([n, n, *(float(xp.sum(each)) for each in statistics)])
    return np.array([float(xp.vecdot(weights, each)) for each in (xp.ones_like(rarer), weights, *statistics)])


def most_likely(solved: dict[str, Solved]) -> NoiseChoice:
    """Choose between solutions for the same judgements, by the names of their noises."""
    first, *_ = solved.values()
    losses = [each.losses for each in solved.values()]
    parts = first.rows.parts(sums_of_losses, first.judgements.shares_in(first.rows), *losses)
    return choice_from(list(solved), np.sum(parts, axis=0))


def _label_losses(squared: Array, signs: Array, noise: Noise, threshold: float, flip_rate: FlipRate) -> Array:
    return label_losses(noise, signs * (squared - threshold), flip_rate, signs > 0)


def _neg_log(probability: Array) -> Array:
    return -array_namespace(probability).log(probability)


def _doubt(squared: Array, noise: Noise, threshold: float) -> Array:
    rarer = noise.cdf(-array_namespace(squared).abs(squared - threshold))
    return 4.0 * rarer * (1.0 - rarer)


# The loss of a profile is exact up to this share of one judgement.
_PROFILE_SHARE = 0.02


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
                signs=judgements.signs_in(source),
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

    def likelihood(self, noise: Noise, width: float = np.inf) -> solve.Likelihood:
        return likelihood_of(self.judgements, self.rows, noise, lengths=self.lengths, price=self.price, width=width)

    def minimise(self, settings: Settings, state: solve.State | None) -> tuple[Solved, NoiseChoice | None]:
        """The solution for the given noise or, of several, for the one with the highest likelihood."""
        solved: dict[str, Solved] = {}
        for noise in settings.candidates:
            if solved and solve.supervisor().timed_out:
                break
            solved[noise.name] = self._minimise(noise, settings, state)
        if len(solved) == 1:
            return solved[settings.candidates[0].name], None
        choice = most_likely(solved)
        return solved[choice.name], choice

    def _minimise(self, noise: Noise, settings: Settings, start: solve.State | None) -> Solved:
        """Return the solution with the flip rates; it includes the centre that a penalty shrinks to."""
        keep = None
        if self.checkpoint is not None:
            last = self.checkpoint.state(noise.name, self.rows.n_columns)
            # At known rates the search begins at the solution without flips, which a state before it is not.
            has_begun = last is not None and (last.rates is not None or settings.known_flip_rate in (None, 0.0))
            start = last if has_begun else start
            keep = partial(self.checkpoint.keep, noise.name)
        attempt, strictness = partial(self._attempt, noise, settings, ShownSteps(solve.Passes(), keep)), None
        if self.judgements.annotators is None:
            found = attempt(start)
        else:
            found, strictness = self._with_strictness(attempt, noise, settings, start)
        flipped = found.flipped.inner if isinstance(found.flipped, solve.CentredFlips) else found.flipped
        return Solved(self.rows, self.judgements, self.with_centre(found.solution), noise, flipped, strictness)

    def _attempt(
        self,
        noise: Noise,
        settings: Settings,
        watch: ShownSteps,
        start: solve.State | None,
        width: float = np.inf,
        options: solve.Options | None = None,
    ) -> _Found:
        """The solution, with the flips that the settings ask for; `start` may have flip rates to begin with."""
        options, likelihood, rng = options or settings.options, self.likelihood(noise, width), settings.rng()
        flipped = flipped_likelihood(likelihood, settings, self.judgements.total_weight)
        objective = solve.Objective(self.rows, likelihood, watch.passes)
        if flipped is None:
            return _Found(objective, solve.solve(objective, options, rng=rng, watch=watch, start=start), None)
        if start is not None and start.rates is not None:
            flipped = flipped.with_rates(start.rates)
        found = solve.solve_with_flips(
            objective, flipped, options, estimate=settings.estimates_flips, rng=rng, watch=watch, start=start
        )
        return _Found(objective, *found)

    def _with_strictness(
        self, attempt: Callable[..., _Found], noise: Noise, settings: Settings, start: solve.State | None
    ) -> tuple[_Found, Strictness]:
        """Solve for the strictness of each annotator as well, with the width of its prior set or estimated.

        The estimate maximises the marginal likelihood of the width, by Laplace's approximation around one solution
        after another.
        """
        n, total, width = self.judgements.n_thresholds, self.judgements.total_weight, settings.known_width
        is_over = False
        if width is None:
            options = replace(settings.options, tol=max(settings.options.tol, _WIDTH_TOL))
            width = noise.std
            for _ in range(_MOST_WIDTH_ROUNDS):
                found = attempt(start, width, options)
                start, is_over = found.state, found.solution.certificate.outcome is solve.Outcome.INTERRUPTED
                if is_over or solve.supervisor().timed_out:
                    break
                information = found.information(total)
                told = _without_others(information, len(information) - n)
                told[np.diag_indices_from(told)] -= width**-2
                before, width = width, _best_width(told, found.thresholds[n:], width, noise.std)
                if abs(np.log(width / before)) < _WIDTH_ACCURACY:
                    break
        found = found if is_over else attempt(start, width)
        flips = None if found.flipped is None else found.flipped.flips
        information = found.information(total)
        # Few judgements may not determine the thresholds at all; strictness has a prior.
        errors = np.sqrt(np.diag(np.linalg.inv(_without_others(information, len(information) - n))))
        shares = flips.shares[:-1] if isinstance(flips, solve.RateOfEach) else None
        return found, Strictness(width, found.thresholds[n:], errors, shares)

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


def with_comparison_noise(
    prepared: UnitFreeProblem, settings: Settings, state: solve.State | None
) -> tuple[ComparisonNoise | None, UnitFreeProblem, solve.State | None]:
    """The noise of comparisons among pairs, set or estimated, the rows with it, and a state close to the solution."""
    rows, latest = prepared.rows, state
    if prepared.judgements.comparisons is None or not isinstance(rows, LegRows):
        return None, prepared, state
    if not settings.estimates_comparison_noise:
        return ComparisonNoise(settings.known_comparison_noise), prepared, state
    known = {} if prepared.checkpoint is None else prepared.checkpoint.found
    if "comparison_noise" in known:
        value, interval = known["comparison_noise"]
        found = ComparisonNoise(value, None if interval is None else tuple(interval))
        return found, replace(prepared, rows=rows.with_scale(1.0 / value)), None
    total = prepared.judgements.total_weight
    precise = settings.but(tol=min(settings.tol, _PROFILE_SHARE / total), verbose=0)
    if prepared.judgements.annotators is not None and settings.known_width is None:
        # The prior stays the same, so that the values of the profile can be compared.
        first, _ = prepared.minimise(settings, state)
        assert first.annotated is not None
        precise = precise.but(strictness_width=first.annotated.width)
        latest = first.solution.state if prepared.centre is None else None

    def loss_at(noise: float) -> tuple[float, float]:
        nonlocal latest
        solved, _ = replace(prepared, rows=rows.with_scale(1.0 / noise)).minimise(precise, latest)
        if solved.solution.certificate.outcome is solve.Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # what it has is no profile
        latest = solved.solution.state if prepared.centre is None else None
        return solved.risk, solved.slope_in_comparison_noise

    with display().stage("estimating the noise of the comparisons"):
        found = profile_noise(loss_at, total)
    known["comparison_noise"] = found.value, found.interval
    # The last fit begins afresh: from so near, it would end before it is as precise as others.
    return found, replace(prepared, rows=rows.with_scale(1.0 / found.value)), None
