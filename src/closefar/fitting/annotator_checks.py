"""How the answers of each annotator compare with the metric, and with those of others to the same pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from closefar.arrays import BoolArray, FloatArray, IndexArray, sums_by, to_numpy
from closefar.fitting.annotators import AnnotatorTable, AnnotatorVerdict
from closefar.fitting.solved import Solved
from closefar.noise import Noise
from closefar.rows import pair_rows

__all__ = ["annotator_table", "kappas", "same_pairs"]

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
