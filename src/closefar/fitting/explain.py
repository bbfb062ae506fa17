"""How the answers of each annotator compare with the metric, and with those of others to the same pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from scipy.stats import chi2, norm

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, as_float64, sums_by, to_numpy
from closefar.errors import either, setting
from closefar.fitting.annotators import AnnotatorTable, AnnotatorVerdict
from closefar.fitting.prepared import Solved, is_plain, likelihood_of
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics, name_columns
from closefar.judgements import Judgements, Kind
from closefar.model.factors import root_of
from closefar.noise import Noise
from closefar.rows import Coordinates, LegRows, Rows, pair_rows
from closefar.solve import (
    Certificate,
    Objective,
    Outcome,
    Passes,
    find_free_directions,
    find_recession,
    solve,
    unwatched,
)

# ---------------------------------------------------------------------------------------------------------------------
# Quasi-separable fits: the optimum lies at infinity although the metric does not get every label right.


_ROUNDING = 1e-6
_MAY_BE_INFINITE = (Outcome.CONVERGED, Outcome.RESTRICTED, Outcome.STALLED, Outcome.UNFINISHED)


def named_if_infinite(
    certificate: Certificate, solved: Solved, coordinates: Coordinates, names: Sequence[str]
) -> Certificate:
    """Return the certificate, naming the columns along which M grows without bound, if any."""
    if certificate.outcome not in _MAY_BE_INFINITE:
        return certificate
    found = _found(solved)
    if found is None:
        return certificate
    named = name_columns(names, _involved(*found, coordinates))
    is_compared = solved.judgements.kind is Kind.COMPARISONS
    labels, collect = ("comparisons", "collect more comparisons") if is_compared else ("labels", "label more pairs")
    advice = (
        f"{named} explains some {labels} without exception, so the likelihood has no finite maximum: "
        "M grows without bound along it, and its size there (hence the probabilities of pairs that "
        "differ in it) is arbitrary. Set "
        + either("alpha > 0 (try 0.01)", "--alpha 0.01")
        + f", or {collect} that differ in it."
    )
    return replace(certificate, outcome=Outcome.QUASI_SEPARABLE, advice=advice)


def _found(solved: Solved) -> tuple[FloatArray, float] | None:
    """The direction in which M and tau can grow; of kinds other than close/far, only one in which M alone can."""
    rows, judgements = solved.rows, solved.judgements
    if is_plain(judgements) and not isinstance(rows, LegRows):
        return find_recession(rows, judgements.signs_in(rows), solved.in_doubt)
    if judgements.kind is Kind.COMPARISONS:
        signs = judgements.signs_in(rows)
    else:
        signs = rows.map(partial(_helped, n_levels=judgements.n_levels), judgements.codes_in(rows))
    legs, signs = (rows.legs, rows.leg_signs(signs)) if isinstance(rows, LegRows) else (rows, signs)
    free = find_free_directions(legs, signs)
    return None if free is None else (free, 0.0)


def _helped(codes: Array, n_levels: int) -> Array:
    """+1 for judgements that a larger margin makes likelier for ever, -1 for the others."""
    return 2.0 * as_float64((codes == n_levels - 1) | (codes == n_levels)) - 1.0


def _involved(matrix: FloatArray, threshold: float, coordinates: Coordinates) -> FloatArray:
    """The contribution of each column to the growth of M; only columns that explain those labels alone, if any do."""
    if threshold == 0.0:  # the matrix is a projection, and every direction in its range explains them
        columns = np.linalg.pinv(coordinates.scales[:, None] * coordinates.transform)
        lengths: FloatArray = np.linalg.norm(columns, axis=0)
        is_within = np.linalg.norm(columns - matrix @ columns, axis=0) <= _ROUNDING * lengths
        if np.any(is_within & (lengths > 0.0)):
            return np.asarray(is_within * lengths)
    factor = coordinates.to_units(root_of(matrix).T)
    involved: FloatArray = coordinates.scales * np.linalg.norm(factor, axis=1)
    return involved


# ---------------------------------------------------------------------------------------------------------------------
# Reversed judgements: a fit that explains next to nothing, although the opposite judgements would fit well.


# If a fit explains more than this share of the loss, its labels are not swapped.
_LITTLE = 0.05

_ENOUGH_ROWS = 10_000
_SIGNIFICANT = 1e-4  # the probability of such a gain by chance
_STANDARD_ERRORS = 4.0  # below one half: an agreement that is not chance


def find_reversal(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, statistics: FitStatistics, loss: float
) -> list[str]:
    """Return a sentence if the judgements, or those of one kind of a mix, fit far better the other way round.

    This is skipped for approximate fits, whose problems are never shown.
    """
    explains_little = loss >= (1.0 - _LITTLE) * statistics.null_loss
    if settings.approximate or not (explains_little or _contradicts(judgements, statistics)):
        return []
    chosen = np.arange(0, rows.n_rows, max(rows.n_rows // _ENOUGH_ROWS, 1))
    kinds = [judgements.kind] if judgements.comparisons is None else [judgements.kind, Kind.COMPARISONS]
    turns = [(kind,) for kind in kinds] if len(kinds) == 1 else [*((kind,) for kind in kinds), tuple(kinds)]
    losses = {turn: _turned_loss(rows, judgements, noise, settings, turn, chosen) for turn in turns}
    best = min(losses, key=losses.__getitem__)
    gain = loss - losses[best]
    if gain < _LITTLE * statistics.null_loss or 2.0 * len(chosen) * gain < chi2.isf(
        _SIGNIFICANT, statistics.n_parameters
    ):
        return []
    found = f"a loss of {losses[best]:.3g} instead of {loss:.3g}"
    return [_reversed(kind, found, judgements.sides.close) for kind in best]


def _reversed(kind: Kind, losses: str, close: Any) -> str:
    """Say that judgements of this kind fit the other way round, and how to turn them."""
    if kind is Kind.CLOSE_FAR:
        return (
            f"the labels fit far better with close and far swapped ({losses}). If {close!r} means far, set "
            + setting(far_label=close)
            + "."
        )
    if kind is Kind.LEVELS:
        return (
            f"the levels fit far better in the opposite order ({losses}). If {close!r} is the farthest one, as in "
            "ratings of similarity, give " + either("`levels`", "--levels") + " in the opposite order, closest first."
        )
    return (
        f"the comparisons fit far better turned round ({losses}). If the second leg of each is the nearer one, "
        + either(
            "negate y, or pass y=-1 for all of them if there is none.",
            "give their id columns in another order with --compared.",
        )
    )


def _contradicts(judgements: Judgements, statistics: FitStatistics) -> bool:
    """Whether the metric of a mixed fit contradicts most judgements of one kind, since those of the other prevailed."""
    if judgements.comparisons is None or statistics.comparison_accuracy is None:
        return False
    agreed = [(statistics.comparison_accuracy, statistics.n_comparisons)]
    if judgements.kind is Kind.CLOSE_FAR:
        agreed.append((statistics.accuracy, statistics.n_pairs))
    return any(share < 0.5 - _STANDARD_ERRORS * 0.5 / n**0.5 for share, n in agreed)


def _turned_loss(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, turn: tuple[Kind, ...], chosen: IndexArray
) -> float:
    """The least loss of some of the judgements if those of these kinds said the opposite."""
    turned = likelihood_of(judgements, rows, noise, width=settings.known_width or 1.0, turned=turn)
    part, arrays = rows.take(chosen, *turned.row_arrays)
    likelihood = turned.of_sample(part, arrays)
    if not likelihood.determines_thresholds(part):
        return math.inf
    options = replace(settings.options, rank=None, tol=1e-4, max_iter=100)
    solution = solve(Objective(part, likelihood, Passes()), options, rng=settings.rng(), watch=unwatched)
    return solution.certificate.loss


# ---------------------------------------------------------------------------------------------------------------------
# Whether the labels determine the two flip rates, of close and of far pairs.


# The largest standard error of a rate that is known well enough.
_LARGEST_ERROR = 0.05
_LEAST = 1e-12

# Rates are clearly not zero if this would be rarer by chance; how precisely the loss without flips must be known.
_SIDE_RATES_SIGNIFICANT = 0.01
_ROUGH = 1e-5


def find_undetermined_rates(solved: Solved, settings: Settings) -> list[str]:
    """Return a sentence if two flip rates were estimated that the labels hardly determine.

    This is skipped for approximate fits, whose problems are never shown.
    """
    rates = solved.flip_rate
    if not (isinstance(rates, tuple) and settings.estimates_flips) or settings.approximate:
        return []
    errors = _rate_errors(solved, rates)
    if max(errors) > _LARGEST_ERROR:
        found = [
            f"{rate:.2g} (standard error {error:.2g})" if error < 1.0 else f"{rate:.2g} (not determined)"
            for rate, error in zip(rates, errors, strict=True)
        ]
        return [
            (
                f"the labels hardly determine the two flip rates, estimated as {found[0]} of close pairs "
                f"called far and {found[1]} of far pairs called close. Label more pairs far from the "
                "threshold, on both sides, or use one rate for both, " + setting(flip_rate="estimate") + "."
            )
        ]
    if max(rates) > _LARGEST_ERROR and not _is_better(solved, settings):
        return [
            (
                f"the labels are hardly more likely with the two flip rates, {rates[0]:.2g} of close pairs "
                f"called far and {rates[1]:.2g} of far pairs called close, than without flips. Label more "
                "pairs far from the threshold, or, if labels are never flipped, use " + setting(flip_rate=0) + "."
            )
        ]
    return []


def _is_better(solved: Solved, settings: Settings) -> bool:
    """Whether the labels are clearly likelier with both rates than without flips."""
    judgements, width = solved.judgements, np.inf if solved.annotated is None else solved.annotated.width
    likelihood = likelihood_of(judgements, solved.rows, solved.noise, width=width)
    options = replace(settings.options, tol=max(settings.options.tol, _ROUGH))
    objective = Objective(solved.rows, likelihood, Passes())
    plain = solve(objective, options, rng=settings.rng(), watch=unwatched, start=solved.solution.state)
    gain = plain.certificate.loss - solved.solution.certificate.loss
    return 2.0 * judgements.total_weight * gain > float(chi2.isf(_SIDE_RATES_SIGNIFICANT, 2))


def _rate_errors(solved: Solved, flip_rates: tuple[float, float]) -> tuple[float, float]:
    """The standard errors of both rates if the scale of M, the threshold and the rates are unknown.

    They are enormous for what the labels do not determine.
    """
    judgements, rows = solved.judgements, solved.rows
    squared = solved.solution.squared
    if solved.strictness is not None and judgements.annotators is not None:
        own = np.append(solved.strictness, 0.0)
        squared = squared - rows.row_array(own[rows.gather(judgements.groups_in(rows)).astype(np.intp)])
    # At a rate of zero the information is not finite; one label in as many as there are is as little as can be told.
    least = 1.0 / judgements.total_weight
    rates = max(flip_rates[0], least), max(flip_rates[1], least)
    sums = partial(_information, solved.noise, solved.threshold, rates)
    parts = rows.parts(sums, squared, judgements.codes_in(rows), judgements.shares_in(rows))
    information = judgements.total_weight * np.sum(parts, axis=0)
    units = np.sqrt(np.maximum(np.diag(information), _LEAST))
    values, vectors = np.linalg.eigh(information / np.outer(units, units))
    variances = np.sum(vectors[-2:] ** 2 / np.maximum(values, _LEAST), axis=1)
    first, second = (np.sqrt(variances) / units[-2:]).tolist()
    return first, second


def _information(
    noise: Noise, threshold: float, rates: tuple[float, float], squared: Array, codes: Array, weights: Array
) -> FloatArray:
    """The Fisher information of some labels in the scale of M, the threshold, and both rates.

    Comparisons have no threshold, and are flipped at the mean of both rates.
    """
    xp = array_namespace(squared)
    of_close = xp.where(codes < 2, 1.0 + 0.0 * squared, 0.5 + 0.0 * squared)  # the part of the rate of close pairs
    from_threshold = 2.0 * of_close - 1.0
    margin, floor = squared - threshold * from_threshold, of_close * rates[0] + (1.0 - of_close) * rates[1]
    far = noise.cdf(margin)
    called_far = floor + (1.0 - sum(rates)) * far
    slope = (1.0 - sum(rates)) * noise.pdf(margin)
    variance = xp.maximum(called_far * (1.0 - called_far), _LEAST + 0.0 * far)
    moves = (slope * squared, -slope * from_threshold, of_close - far, 1.0 - of_close - far)
    return np.array([[float(xp.sum(weights * one * other / variance)) for one in moves] for other in moves])


# The chance that one of the annotators who answer at random is found to be informative, or to answer the other way.
_ERROR = 0.01

# How many times as probable answers at random must be as expected ones, per annotator of whom that might be by chance.
_ODDS = 20.0

# Nothing is said of annotators with fewer judgements: errors of a slope are not normal.
_FEWEST = 20

# Even an attentive annotator gives so many wrong answers.
_SLIPS = 0.02

# If less of the answers depends on the distance, the annotator often answers at random.
_INFORMATIVE = 0.7
_TURNED = -0.5  # and if less than this, the answers are turned round

# How many times smaller the noise may be than that of the metric.
_SHARPER = (1.5, 2.0, 3.0, 4.0)

_BISECTIONS = 40
_BEYOND = 50.0  # in units of the noise
_RARE = 1e-12  # a smaller probability


def annotator_table(solved: Solved, *, compares: bool) -> AnnotatorTable | None:
    """The table of the annotators of a solution; None without annotators.

    If it `compares`, answers to the same pairs are compared as well.
    """
    judgements, annotated = solved.judgements, solved.annotated
    if judgements.annotators is None or annotated is None:
        return None
    names, who, codes = judgements.annotators.names, judgements.annotators.codes, judgements.codes
    squared = solved.rows.gather(solved.solution.squared)[: len(judgements)]
    answers = _Answers(codes, judgements.weights, who, len(names))
    slopes = _sharp_slopes(answers, _Expected(solved.noise, squared, solved.thresholds))
    reach = norm.ppf(0.975) * annotated.errors
    is_unlike_most = np.abs(annotated.values) > np.maximum(reach, annotated.width)
    typical = np.searchsorted(solved.thresholds, squared, side="right")
    shares = annotated.random_shares
    return AnnotatorTable(
        names=names,
        judgements=judgements.annotators.counts,
        strictness=annotated.values,
        strictness_errors=annotated.errors,
        flip_rates=None if shares is None else shares * (1.0 - 1.0 / judgements.n_levels),
        agreement=answers.means((typical == codes).astype(np.float64)),
        kappa=kappas(same_pairs(judgements.data), codes, who, len(names)) if compares else np.full(len(names), np.nan),
        information=slopes.values,
        verdicts=tuple(_verdicts(slopes, np.where(is_unlike_most, np.sign(annotated.values), 0.0), answers.counts)),
        width=annotated.width,
    )


class _Answers(NamedTuple):
    """The answers of all annotators, as levels from 0."""

    codes: IndexArray
    weights: FloatArray
    who: IndexArray
    n_annotators: int

    def sums(self, values: FloatArray) -> FloatArray:
        """The weighted sum over the answers of each annotator."""
        found: FloatArray = sums_by(self.who, self.n_annotators, self.weights * values)[0]
        return found

    def means(self, values: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            found: FloatArray = self.sums(values) / self.sums(np.ones_like(values))
        return found

    @property
    def counts(self) -> FloatArray:
        """The weight of the answers of each annotator: their number, if there are no weights."""
        return self.sums(np.ones(len(self.codes)))

    @property
    def are_constant(self) -> BoolArray:
        """Whether all answers of an annotator are the same."""
        given = self.codes.astype(np.float64)
        found: BoolArray = ~(
            self.sums((given - self.means(given)[self.who]) ** 2) > 1e-12 * self.sums(np.ones_like(given))
        )
        return found


class _Expected(NamedTuple):
    """The answers that a metric expects of annotators of any strictness, if none are at random."""

    noise: Noise
    squared: FloatArray
    thresholds: FloatArray

    def beyond(self, strictness: FloatArray) -> FloatArray:
        """The probabilities of at least level 1, 2, and so on."""
        found: FloatArray = self.noise.cdf((self.squared - strictness)[:, None] - self.thresholds)
        return found

    def sharpened(self, times: float) -> _Expected:
        """The same with smaller noise."""
        return _Expected(self.noise, times * self.squared, times * self.thresholds)

    def matched(self, answers: _Answers) -> FloatArray:
        """The strictness of each annotator with which their mean answer is expected; zero if all are the same.

        That of the fit will not do, since it may explain answers at random.
        """
        given = answers.means(answers.codes.astype(np.float64))
        most = float(np.abs(self.squared).max()) + float(np.abs(self.thresholds).max()) + _BEYOND
        low, high = np.full(answers.n_annotators, -most), np.full(answers.n_annotators, most)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            is_too_low = answers.means(self.beyond(middle[answers.who]).sum(axis=1)) > given
            low, high = np.where(is_too_low, middle, low), np.where(is_too_low, high, middle)
        found: FloatArray = np.where(answers.are_constant, 0.0, 0.5 * (low + high))
        return found

    def log_likelihoods(self, answers: _Answers, strictness: FloatArray) -> FloatArray:
        """That of each annotator."""
        beyond = self.beyond(strictness[answers.who])
        least = np.column_stack([np.ones(len(beyond)), beyond, np.zeros(len(beyond))])
        at = np.arange(len(beyond))
        probability = least[at, answers.codes] - least[at, answers.codes + 1]
        return answers.sums(np.log(np.maximum(probability, _RARE)))


class _Slopes(NamedTuple):
    """The slope of each annotator's answers on the expected ones, which is the share that is not at random.

    `at_random` and `as_expected` are its standard errors if all answers are at random, and if none are; `is_constant`
    if all are the same.
    """

    values: FloatArray
    at_random: FloatArray
    as_expected: FloatArray
    is_constant: BoolArray

    @property
    def from_random(self) -> FloatArray:
        """How many standard errors the slope is above that of answers at random."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.nan_to_num(self.values / self.at_random)

    @property
    def from_expected(self) -> FloatArray:
        """How many standard errors the slope is above that of expected answers."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.nan_to_num((self.values - 1.0) / self.as_expected)

    @property
    def log_odds(self) -> FloatArray:
        """How much more probable the slope is if answers are at random than if they are as expected."""
        random, expected = (self.at_random, 0.0), (self.as_expected, 1.0)
        first, second = (-np.log(error) - 0.5 * ((self.values - at) / error) ** 2 for error, at in (random, expected))
        odds: FloatArray = first - second
        return odds


def _sharp_slopes(answers: _Answers, expected: _Expected) -> _Slopes:
    """The slopes on the answers that the metric expects or, if some may be at random, on sharper ones.

    Unless flips are estimated, answers at random make a metric smaller, so that it expects less of the others too.
    """
    strictness = expected.matched(answers)
    slopes = _slopes(answers, expected.beyond(strictness[answers.who]))
    informs = slopes.from_random > _limit(len(strictness))
    if informs.all() or not informs.any():
        return slopes
    best, highest = slopes, float(expected.log_likelihoods(answers, strictness)[informs].sum())
    for times in _SHARPER:
        sharper = expected.sharpened(times)
        strictness = sharper.matched(answers)
        likelihood = float(sharper.log_likelihoods(answers, strictness)[informs].sum())
        if likelihood <= highest:
            break
        best, highest = _slopes(answers, sharper.beyond(strictness[answers.who])), likelihood
    return best


def _slopes(answers: _Answers, beyond: FloatArray) -> _Slopes:
    """Regress answers on those expected, given by the probabilities of at least level 1, 2, and so on."""
    levels = np.arange(1, beyond.shape[1] + 1)
    expected = beyond.sum(axis=1)
    variance = np.maximum(beyond @ (2.0 * levels - 1.0) - expected**2, _SLIPS)
    given = answers.codes.astype(np.float64)
    x = expected - answers.means(expected)[answers.who]
    y = given - answers.means(given)[answers.who]
    spread, counts = answers.sums(x * x), answers.sums(np.ones_like(x))
    scatter = answers.sums(y * y) / np.maximum(counts - 1.0, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = answers.sums(x * y) / spread
        errors = np.sqrt(scatter / spread), np.sqrt(answers.sums(variance * x * x)) / spread
    return _Slopes(np.nan_to_num(values), *errors, answers.are_constant)


def _limit(n: int) -> float:
    """How many standard errors are not by chance, for any of n annotators."""
    return -float(norm.ppf(0.5 * _ERROR / n))


def _verdicts(slopes: _Slopes, unlike_most: FloatArray, counts: FloatArray) -> list[AnnotatorVerdict]:
    """A verdict on each; `unlike_most` is 1 for a strict, -1 for a lenient annotator, 0 for the others."""
    n = len(slopes.values)
    limit, from_random, from_expected = _limit(n), slopes.from_random, slopes.from_expected
    with np.errstate(invalid="ignore", divide="ignore"):
        are_random = slopes.log_odds > math.log(_ODDS * n)
    found = []
    for place in range(n):
        if counts[place] < _FEWEST:
            found.append(AnnotatorVerdict.TOO_FEW)
        elif slopes.is_constant[place]:
            is_odd = from_expected[place] < -limit
            found.append(AnnotatorVerdict.ALWAYS_THE_SAME if is_odd else AnnotatorVerdict.TOO_FEW)
        elif from_random[place] < -limit and slopes.values[place] < _TURNED:
            found.append(AnnotatorVerdict.THE_OTHER_WAY_ROUND)
        elif from_random[place] <= limit:
            found.append(AnnotatorVerdict.AT_RANDOM if are_random[place] else AnnotatorVerdict.TOO_FEW)
        elif from_expected[place] < -limit and slopes.values[place] < _INFORMATIVE:
            found.append(AnnotatorVerdict.OFTEN_AT_RANDOM)
        else:
            kinds = {1: AnnotatorVerdict.STRICTER, -1: AnnotatorVerdict.MORE_LENIENT, 0: AnnotatorVerdict.TYPICAL}
            found.append(kinds[int(unlike_most[place])])
    return found


def same_pairs(data: object) -> IndexArray:
    """A number for each pair, the same for equal pairs, in either order of their points."""
    rows = pair_rows(data)
    blocks = [np.ascontiguousarray(to_numpy(block).T) for _, block in rows.blocks()]
    differences = np.concatenate(blocks) + 0.0
    first = np.argmax(differences != 0.0, axis=1)
    signs = np.sign(differences[np.arange(len(differences)), first])
    turned = np.where(signs < 0.0, -1.0, 1.0)[:, None] * differences + 0.0  # without negative zeros
    lines = np.ascontiguousarray(turned).view(np.dtype((np.void, turned.itemsize * turned.shape[1])))
    numbers: IndexArray = np.unique(lines.ravel(), return_inverse=True)[1]
    return numbers


def kappas(pairs: IndexArray, codes: IndexArray, who: IndexArray, n_annotators: int) -> FloatArray:
    """Cohen's kappa, with quadratic weights, of each annotator's answers and those of others to the same pairs.

    An answer is compared with all those of others; NaN if there are none, or if all are the same.
    """
    answers = codes.astype(np.float64)
    powers = np.stack([np.ones_like(answers), answers, answers**2])
    _, own = np.unique(pairs * np.int64(n_annotators) + who, return_inverse=True)
    others = _totals(powers, pairs) - _totals(powers, own)
    is_shared = others[0] > 0.5
    count, mean, square = others[:, is_shared]
    means = np.stack([answers[is_shared], answers[is_shared] ** 2, mean / count, square / count])
    differs = means[1] - 2.0 * means[0] * means[2] + means[3]
    judged = np.bincount(who[is_shared], minlength=n_annotators)
    with np.errstate(invalid="ignore", divide="ignore"):
        found, *expected = (
            np.bincount(who[is_shared], weights=each, minlength=n_annotators) / judged for each in (differs, *means)
        )
        by_chance = expected[1] - 2.0 * expected[0] * expected[2] + expected[3]
        kappa: FloatArray = np.where(by_chance > 1e-12, 1.0 - found / by_chance, np.nan)
    return kappa


def _totals(values: FloatArray, groups: IndexArray) -> FloatArray:
    """The sum over the group of each column, in each line."""
    return np.stack([np.bincount(groups, weights=line)[groups] for line in values])
