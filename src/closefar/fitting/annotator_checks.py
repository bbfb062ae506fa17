"""How the answers of each annotator compare with the metric, and with those of others to the same pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from closefar.arrays import BoolArray, FloatArray, IndexArray, sums_by, to_numpy
from closefar.fitting.annotators import AnnotatorTable, AnnotatorVerdict
from closefar.fitting.solved import Solved
from closefar.rows import pair_rows

__all__ = ["annotator_table", "kappas", "same_pairs"]

# The chance that one of the annotators who answer at random is found to be informative, or to answer the other way.
_ERROR = 0.01

# How many times as probable answers at random must be as expected ones, per annotator of whom that might be by chance.
_ODDS = 20.0

# If less of the answers depends on the distance, the annotator often answers at random.
_INFORMATIVE = 0.7
_TURNED = -0.5  # and if less than this, the answers are turned round


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
    beyond = solved.noise.cdf((squared - annotated.values[who])[:, None] - solved.thresholds)
    slopes = _slopes(answers, beyond)
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
        verdicts=tuple(_verdicts(slopes, np.where(is_unlike_most, np.sign(annotated.values), 0.0))),
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
    def log_odds(self) -> FloatArray:
        """How much more probable the slope is if answers are at random than if they are as expected."""
        random, expected = (self.at_random, 0.0), (self.as_expected, 1.0)
        first, second = (-np.log(error) - 0.5 * ((self.values - at) / error) ** 2 for error, at in (random, expected))
        odds: FloatArray = first - second
        return odds


def _slopes(answers: _Answers, beyond: FloatArray) -> _Slopes:
    """Regress answers on those expected; `beyond` are the probabilities of at least level 1, 2, and so on."""
    levels = np.arange(1, beyond.shape[1] + 1)
    expected = beyond.sum(axis=1)
    variance = np.maximum(beyond @ (2.0 * levels - 1.0) - expected**2, 0.0)
    given = answers.codes.astype(np.float64)
    x = expected - answers.means(expected)[answers.who]
    y = given - answers.means(given)[answers.who]
    spread, counts = answers.sums(x * x), answers.sums(np.ones_like(x))
    scatter = answers.sums(y * y) / np.maximum(counts - 1.0, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = answers.sums(x * y) / spread
        errors = np.sqrt(scatter / spread), np.sqrt(answers.sums(variance * x * x)) / spread
    return _Slopes(np.nan_to_num(values), *errors, answers.sums(y * y) <= 1e-12 * counts)


def _verdicts(slopes: _Slopes, unlike_most: FloatArray) -> list[AnnotatorVerdict]:
    """A verdict on each; `unlike_most` is 1 for a strict, -1 for a lenient annotator, 0 for the others."""
    n = len(slopes.values)
    limit = -float(norm.ppf(0.5 * _ERROR / n))
    with np.errstate(invalid="ignore", divide="ignore"):
        from_random = np.nan_to_num(slopes.values / slopes.at_random)
        from_expected = np.nan_to_num((slopes.values - 1.0) / slopes.as_expected)
        are_random = slopes.log_odds > math.log(_ODDS * n)
    found = []
    for place in range(n):
        if slopes.is_constant[place]:
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
