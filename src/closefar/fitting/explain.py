"""What a fit tells beside its metric: statistics, annotators, and what the judgements do not determine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2, norm

from closefar.arrays import Array, BoolArray, FloatArray, IndexArray, as_float64, sums_by, to_numpy
from closefar.errors import either, setting
from closefar.fitting.problem import Solved, UnitFreeProblem, is_plain, likelihood_of
from closefar.fitting.result import AnnotatorTable, AnnotatorVerdict, FitStatistics, count_parameters
from closefar.fitting.scoring import Scorer
from closefar.fitting.settings import Settings
from closefar.judgements import Judgements, Kind
from closefar.model import Metric
from closefar.model.metric import root_of
from closefar.noise import Noise, has_flips
from closefar.rows import ENORMOUS, BlockRows, Coordinates, Rows, pair_rows
from closefar.solve import Certificate, Outcome, find_free_directions, find_recession, solve


def explain(
    prepared: UnitFreeProblem,
    solved: Solved,
    settings: Settings,
    metric: Metric,
    statistics: FitStatistics,
    certificate: Certificate,
) -> list[str]:
    """Sentences on what the judgements do not determine."""
    judgements, coordinates, source = prepared.judgements, prepared.coordinates, prepared.source
    found = [] if source.compares else find_enormous(source.legs, judgements, coordinates.enormous)
    found += find_undetermined_rates(solved, settings)
    found += find_reversal(prepared.rows, judgements, solved.noise, settings, statistics, certificate.loss)
    # With flips, or an optimum at infinity, few uncertain labels need not mean overfitting.
    is_infinite = certificate.outcome in (Outcome.SEPARABLE, Outcome.QUASI_SEPARABLE)
    ignores_uncertain = is_infinite or has_flips(solved.flip_rate)
    n = len(judgements)
    return found + find_problems(
        metric.column_names,
        coordinates.null_directions,
        (n - judgements.n_far, judgements.n_far) if judgements.kind is Kind.CLOSE_FAR else (n,),
        coordinates.transform.shape[1],
        rank=settings.known_rank,
        has_origin=settings.fit_origin,
        penalised=settings.known_alpha > 0,
        n_thresholds=judgements.n_thresholds,
        uncertain_per_parameter=math.inf if ignores_uncertain else statistics.uncertain_per_parameter,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Statistics of fits to levels, comparisons, mixes of them, and judgements of annotators.


def statistics_of(solved: Solved, metric: Metric, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
    """The statistics of the judgements of a fit, whatever their kind."""
    judgements = solved.judgements
    if is_plain(judgements) and not isinstance(solved.flip_rate, tuple):
        return solved.statistics(column_scales, n_parameters)
    squared = solved.rows.gather(solved.solution.squared)
    scorer = Scorer(metric, None if solved.annotated is None else solved.annotated.values)
    return measured_statistics(judgements, squared, scorer, column_scales, n_parameters)


def measured_statistics(
    judgements: Judgements, squared: FloatArray, scorer: Scorer, column_scales: FloatArray, n_parameters: int
) -> FitStatistics:
    """The statistics of judgements of any kind.

    `squared` are the squared distances, and then the margins of the comparisons that are fitted with the pairs.
    """
    n, compared, total = len(judgements), judgements.comparisons, judgements.total_weight
    first = scorer.score(judgements, squared[:n])
    parts = [first] if compared is None else [first, scorer.score(compared, squared[n:])]
    weights = judgements.all_weights
    doubt = sum(float(part.judgements.weights @ part.in_doubt) for part in parts)
    return FitStatistics(
        n_pairs=n,
        share_far=judgements.mean(judgements.is_far),
        null_loss=sum(part.judgements.weights.sum() * part.null_loss for part in parts) / total,
        accuracy=first.accuracy,
        wrong_share=judgements.mean(first.probability_wrong),
        column_scales=tuple(column_scales.tolist()),
        n_parameters=n_parameters,
        uncertain_labels=total / float(weights @ weights) * doubt,
        level_shares=tuple(first.shares.tolist()) if first.is_graded else (),
        n_comparisons=0 if compared is None else len(compared),
        comparison_accuracy=None if compared is None else parts[1].accuracy,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Identifiability: the parts of the metric that the data do not determine, however well a fit converged.


# A column is part of a combination if its share, in standard deviations, is at least this.
_INVOLVED = 0.05
_MOST_COLUMNS_NAMED = 6  # columns, or rows, in one sentence
_MOST_COMBINATIONS = 3  # of columns, in a sentence each

# A difference this many times as large as usual in its column is probably in another unit.
_LONG_IN_COLUMN = 1000.0
_ENOUGH_ROWS = 10_000  # for what is typical, or far from chance, in any number of rows

# Below this, a light penalty at least halved the excess loss on new labels in simulations.
_FEW_UNCERTAIN = 1.0


def find_problems(
    names: Sequence[str],
    null_directions: FloatArray,
    counts: tuple[int, ...],
    n_directions: int,
    *,
    rank: int | None = None,
    has_origin: bool = False,
    penalised: bool = False,
    n_thresholds: int = 1,
    uncertain_per_parameter: float = math.inf,
) -> list[str]:
    """Return a sentence, with advice, for each reason why the data do not determine the metric.

    Parameters
    ----------
    names : sequence of str
        The names of the columns.
    null_directions : array of shape (d, m)
        Combinations of the columns, in standard deviations, that do not vary.
    counts : tuple of int
        The numbers of pairs that are labelled close and far, or that of levels or comparisons.
    n_directions : int
        The number of directions that vary.
    rank : int, optional
        The largest rank of M.
    has_origin, penalised : bool
        Whether an origin is learned, and whether there is a penalty.
    n_thresholds : int
        One for close/far labels, more for levels, none for comparisons.
    uncertain_per_parameter : float
        As in `FitStatistics`; infinite if it is meaningless, as for separable labels.
    """
    # With a penalty, a direction that does not vary has no weight, and no label is needed for each direction.
    null_directions = null_directions[:, :0] if penalised else null_directions
    things, terms, verb = ("pairs", "labels", "label") if n_thresholds > 0 else ("comparisons", "answers", "make")
    problems = [
        f"{name_columns(names, direction)} does not vary in these {things}, so nothing is learned about it: M is zero "
        f"there. Leave a column out, or add {things} in which it varies."
        for direction in null_directions.T[:_MOST_COMBINATIONS]
    ]
    more = null_directions.shape[1] - _MOST_COMBINATIONS
    if more > 0:
        them = "combinations of columns do" if more > 1 else "combination of columns does"
        problems.append(f"{more} more {them} not vary; {n_directions} directions remain.")
    n, k = sum(counts), min(rank or n_directions, n_directions)
    n_parameters = count_parameters(n_directions, rank, has_origin=has_origin, n_thresholds=n_thresholds)
    n_rarer = min(counts)
    if n_rarer < n_directions and len(counts) == 2 and not penalised:
        rarer = "far" if counts[1] == n_rarer else "close"
        problems.append(
            f"only {n_rarer} of {n} pairs are labelled {rarer}, for {n_directions} directions of M. "
            f"Label more {rarer} pairs."
        )
    if n < n_parameters and not penalised:
        problems.append(
            f"there are {n} {things} for {n_parameters} parameters (M with {n_directions} directions and "
            f"rank {k}{', tau' if n_thresholds == 1 else ''}). Set "
            + setting(alpha="auto")
            + f", or {verb} at least {4 * n_parameters} {things}."
        )
    elif uncertain_per_parameter < _FEW_UNCERTAIN and n_rarer >= n_directions and not penalised:
        problems.append(
            f"there are only {uncertain_per_parameter:.1f} uncertain {terms} per parameter: without a "
            "penalty the fit probably overfits, and its probabilities are too extreme. Set "
            + setting(alpha="auto")
            + f", or {verb} more {things}."
        )
    return problems


def find_enormous(source: BlockRows, judgements: Judgements, enormous: IndexArray) -> list[str]:
    """Return a sentence, with advice, if some of the enormous differences are labelled close."""
    if len(enormous) == 0:
        return []
    close = enormous[to_numpy(source.pick(judgements.signs_in(source), enormous)) < 0]
    row_numbers = judgements.numbers_of(close[_are_long(source, close)]) if len(close) else close
    if len(row_numbers) == 0:
        return []
    named = _first_of(row_numbers.tolist())
    rows, are, alone, it = ("rows", "are", "they alone determine", "them")
    if len(row_numbers) == 1:
        rows, are, alone, it = ("row", "is", "it alone determines", "it")
    return [
        f"{rows} {named}, labelled close, {are} more than {ENORMOUS:,.0f} times as long as a typical difference, "
        f"so {alone} what is learned in that direction. Check the units, or leave {it} out."
    ]


def _are_long(rows: BlockRows, chosen: IndexArray) -> BoolArray:
    """Whether a difference is far larger in some column than nonzero ones usually are; in a rare 0/1 column none is."""
    indices = np.union1d(chosen, np.arange(0, rows.n_rows, 1 + rows.n_rows // _ENOUGH_ROWS))
    sizes = np.abs(to_numpy(rows.take_rows(indices).read(slice(0, len(indices)))))
    long = sizes[:, np.searchsorted(indices, chosen)]
    sizes[sizes == 0.0] = np.nan
    varies = ~np.all(np.isnan(sizes), axis=1)
    is_long: BoolArray = np.any(long[varies] > _LONG_IN_COLUMN * np.nanmedian(sizes[varies], axis=1)[:, None], axis=0)
    return is_long


def name_columns(names: Sequence[str], direction: FloatArray) -> str:
    """Name the columns with a large loading on a direction, given in standard deviations."""
    direction = direction / np.linalg.norm(direction)
    involved = [index for index in np.argsort(-np.abs(direction), kind="stable") if abs(direction[index]) >= _INVOLVED]
    if len(involved) == 1:
        return f"column {names[involved[0]]!r}"
    return f"a combination of the columns {_first_of([names[index] for index in involved])}"


def _first_of(named: Sequence[Any]) -> str:
    """The first of some columns or rows, and how many there are besides."""
    more = f" and {len(named) - _MOST_COLUMNS_NAMED} more" if len(named) > _MOST_COLUMNS_NAMED else ""
    return ", ".join(map(repr, named[:_MOST_COLUMNS_NAMED])) + more


# ---------------------------------------------------------------------------------------------------------------------
# Quasi-separable fits: the optimum lies at infinity although the metric does not get every label right.


_SPAN_ROUNDING = 1e-6  # of a column within the span of directions, relative to its length
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
    if is_plain(judgements) and not rows.compares:
        return find_recession(rows.legs, judgements.signs_in(rows, solved.likelihood.codes), solved.in_doubt)
    if judgements.kind is Kind.COMPARISONS:
        signs = judgements.signs_in(rows, solved.likelihood.codes)
    else:
        signs = rows.map(partial(_helped, n_levels=judgements.n_levels), solved.likelihood.codes)
    free = find_free_directions(rows.legs, rows.leg_signs(signs))
    return None if free is None else (free, 0.0)


def _helped(codes: Array, n_levels: int) -> Array:
    """+1 for judgements that a larger margin makes likelier for ever, -1 for the others."""
    return 2.0 * as_float64((codes == n_levels - 1) | (codes == n_levels + 1)) - 1.0


def _involved(matrix: FloatArray, threshold: float, coordinates: Coordinates) -> FloatArray:
    """The contribution of each column to the growth of M; only columns that explain those labels alone, if any do."""
    if threshold == 0.0:  # the matrix is a projection, and every direction in its range explains them
        columns = np.linalg.pinv(coordinates.scales[:, None] * coordinates.transform)
        lengths: FloatArray = np.linalg.norm(columns, axis=0)
        is_within = np.linalg.norm(columns - matrix @ columns, axis=0) <= _SPAN_ROUNDING * lengths
        if np.any(is_within & (lengths > 0.0)):
            return np.asarray(is_within * lengths)
    factor = coordinates.to_units(root_of(matrix).T)
    involved: FloatArray = coordinates.scales * np.linalg.norm(factor, axis=1)
    return involved


# ---------------------------------------------------------------------------------------------------------------------
# Reversed judgements: a fit that explains next to nothing, although the opposite judgements would fit well.


# If a fit explains more than this share of the loss, its labels are not swapped.
_LITTLE_EXPLAINED = 0.05

_REVERSAL_SIGNIFICANCE = 1e-4  # the probability of such a gain by chance
_STANDARD_ERRORS = 4.0  # below one half: an agreement that is not chance


def find_reversal(
    rows: Rows, judgements: Judgements, noise: Noise, settings: Settings, statistics: FitStatistics, loss: float
) -> list[str]:
    """Return a sentence if the judgements, or those of one kind of a mix, fit far better the other way round."""
    explains_little = loss >= (1.0 - _LITTLE_EXPLAINED) * statistics.null_loss
    if not (explains_little or _contradicts(judgements, statistics)):
        return []
    chosen = np.arange(0, rows.n_rows, max(rows.n_rows // _ENOUGH_ROWS, 1))
    kinds = [judgements.kind] if judgements.comparisons is None else [judgements.kind, Kind.COMPARISONS]
    turns = [(kind,) for kind in kinds] if len(kinds) == 1 else [*((kind,) for kind in kinds), tuple(kinds)]
    losses = {turn: _turned_loss(rows, judgements, noise, settings, turn, chosen) for turn in turns}
    best = min(losses, key=losses.__getitem__)
    gain = loss - losses[best]
    if gain < _LITTLE_EXPLAINED * statistics.null_loss or 2.0 * len(chosen) * gain < chi2.isf(
        _REVERSAL_SIGNIFICANCE, statistics.n_parameters
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
        f"the comparisons fit far better reversed ({losses}). If the second leg of each is the nearer one, "
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
    likelihood = turned.of_rows(arrays, part.total(arrays[1]))
    if not likelihood.determines_thresholds(part):
        return math.inf
    rough = settings.but(rank=None, tol=1e-4, max_iter=100)
    solution = solve(settings.problem(part, likelihood), rough, rng=settings.rng())
    return solution.certificate.loss


# ---------------------------------------------------------------------------------------------------------------------
# Whether the labels determine the two flip rates, of close and of far pairs.


_SMALL_RATE = 0.05  # rates up to this one hardly change the metric, and are not tested

# Rates are clearly not zero if this would be rarer by chance; how precisely the loss without flips must be known.
_SIDE_RATES_SIGNIFICANT = 0.01
_SIDE_RATES_TOL = 1e-5  # in nats per label: far below what is significant of as many labels as determine two rates


def find_undetermined_rates(solved: Solved, settings: Settings) -> list[str]:
    """Return a sentence if two flip rates were estimated, and the labels are about as likely without flips."""
    rates, judgements = solved.flip_rate, solved.judgements
    if not (isinstance(rates, tuple) and settings.estimates_flips and max(rates) > _SMALL_RATE):
        return []
    width = np.inf if solved.annotated is None else solved.annotated.width
    problem = settings.problem(solved.rows, likelihood_of(judgements, solved.rows, solved.noise, width=width))
    rough = settings.but(tol=max(settings.tol, _SIDE_RATES_TOL))
    plain = solve(problem, rough, rng=settings.rng(), start=solved.solution.state)
    gain = plain.certificate.loss - solved.solution.certificate.loss
    if 2.0 * judgements.total_weight * gain > float(chi2.isf(_SIDE_RATES_SIGNIFICANT, 2)):
        return []
    said = (
        f"the labels hardly determine the two flip rates, {rates[0]:.2g} of close pairs called far and {rates[1]:.2g} "
        "of far pairs called close: they are hardly more likely than without flips. Label more pairs far from the "
        "threshold, on both sides, or set "
    )
    return [said + setting(flip_rate="estimate") + " (one rate for both) or " + setting(flip_rate=0) + "."]


# ---------------------------------------------------------------------------------------------------------------------
# What the answers of each annotator show.


# The chance that one of the annotators who answer at random is found to be informative, or to answer the other way.
_WRONG_VERDICTS = 0.01

# How many times as probable answers at random must be as expected ones, per annotator of whom that might be by chance.
_RANDOM_ODDS = 20.0

# Nothing is said of annotators with fewer judgements: errors of a slope are not normal.
_FEWEST_ANSWERS = 20

# The share of wrong answers of an attentive annotator.
_SLIPS = 0.02

# If less of the answers depends on the distance, the annotator often answers at random.
_INFORMATIVE_SLOPE = 0.7
_REVERSED_SLOPE = -0.5  # and if less than this, the answers are reversed

# How many times smaller than that of the metric the noise may be: answers at random make a metric smaller.
_SHARPER = (1.0, 1.5, 2.0, 3.0, 4.0)

_BISECTIONS = 40  # to 1e-12 of the range
_STRICTEST = 50.0  # in units of the noise


def annotator_table(solved: Solved, *, compares: bool) -> AnnotatorTable | None:
    """The table of the annotators of a solution; None without annotators.

    If it `compares`, answers to the same pairs are compared as well.
    """
    judgements, annotated = solved.judgements, solved.annotated
    if judgements.annotators is None or annotated is None:
        return None
    names, who, codes = judgements.annotators.names, judgements.annotators.codes, judgements.codes
    squared = solved.rows.gather(solved.solution.squared)[: len(judgements)]
    answers = _Answers(codes.astype(np.float64), judgements.weights, who, len(names))
    slopes = _sharp_slopes(answers, solved.noise, squared, solved.thresholds)
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

    codes: FloatArray
    weights: FloatArray
    who: IndexArray
    n_annotators: int

    def sums(self, values: FloatArray) -> FloatArray:
        """The weighted sum over the answers of each annotator."""
        found: FloatArray = sums_by(self.who, self.n_annotators, self.weights * values)[0]
        return found

    def means(self, values: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return self.sums(values) / self.counts

    @property
    def counts(self) -> FloatArray:
        """The weight of the answers of each annotator: their number, if there are no weights."""
        return self.sums(np.ones(len(self.codes)))

    @property
    def are_constant(self) -> BoolArray:
        """Whether all answers of an annotator are the same."""
        varied: BoolArray = self.sums((self.codes - self.means(self.codes)[self.who]) ** 2) > 1e-12 * self.counts
        return ~varied


def _expected(answers: _Answers, noise: Noise, squared: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The probabilities of at least level 1, 2, and so on, if no answers are at random.

    Each annotator is as strict as the mean of their answers says, or as is typical if all are the same.  The
    strictness of the fit will not do, since it may explain answers at random.
    """

    def beyond(strictness: FloatArray) -> FloatArray:
        found: FloatArray = noise.cdf((squared - strictness[answers.who])[:, None] - thresholds)
        return found

    given = answers.means(answers.codes)
    most = float(np.abs(squared).max()) + float(np.abs(thresholds).max()) + _STRICTEST
    low, high = np.full(answers.n_annotators, -most), np.full(answers.n_annotators, most)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        is_too_low = answers.means(beyond(middle).sum(axis=1)) > given
        low, high = np.where(is_too_low, middle, low), np.where(is_too_low, high, middle)
    return beyond(np.where(answers.are_constant, 0.0, 0.5 * (low + high)))


class _Slopes(NamedTuple):
    """The slope of each annotator's answers on the expected ones, which is the share that is not at random.

    `at_random` and `as_expected` are its standard errors if all answers are at random, and if none are; `is_constant`
    if all are the same.
    """

    values: FloatArray
    at_random: FloatArray
    as_expected: FloatArray
    is_constant: BoolArray


def _slopes(answers: _Answers, beyond: FloatArray) -> _Slopes:
    """Regress answers on those expected, given by the probabilities of at least level 1, 2, and so on."""
    levels = np.arange(1, beyond.shape[1] + 1)
    expected = beyond.sum(axis=1)
    variance = np.maximum(beyond @ (2.0 * levels - 1.0) - expected**2, _SLIPS)
    x = expected - answers.means(expected)[answers.who]
    y = answers.codes - answers.means(answers.codes)[answers.who]
    spread, counts = answers.sums(x * x), answers.counts
    scatter = answers.sums(y * y) / np.maximum(counts - 1.0, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = answers.sums(x * y) / spread
        errors = np.sqrt(scatter / spread), np.sqrt(answers.sums(variance * x * x)) / spread
    return _Slopes(np.nan_to_num(values), *errors, answers.are_constant)


def _sharp_slopes(answers: _Answers, noise: Noise, squared: FloatArray, thresholds: FloatArray) -> _Slopes:
    """The slopes on the answers that the metric expects or, if some may be at random, on sharper ones.

    Unless flips are estimated, answers at random make a metric smaller, so that it expects less of the others too.
    """
    sharpest, informs, highest = None, None, -math.inf
    at, levels = np.arange(len(squared)), answers.codes.astype(np.intp)
    for times in _SHARPER:
        beyond = _expected(answers, noise, times * squared, times * thresholds)
        slopes = _slopes(answers, beyond)
        if informs is None:
            with np.errstate(invalid="ignore", divide="ignore"):
                informs = np.nan_to_num(slopes.values / slopes.at_random) > _limit(answers.n_annotators)
        least = np.column_stack([np.ones(len(beyond)), beyond, np.zeros(len(beyond))])
        probability = np.maximum(least[at, levels] - least[at, levels + 1], np.finfo(float).tiny)
        likelihood = float(answers.sums(np.log(probability))[informs].sum())
        if sharpest is not None and likelihood <= highest:
            break
        sharpest, highest = slopes, likelihood
        if informs.all() or not informs.any():
            break
    assert sharpest is not None
    return sharpest


def _limit(n: int) -> float:
    """How many standard errors are not by chance, for any of n annotators."""
    return -float(norm.ppf(0.5 * _WRONG_VERDICTS / n))


def _verdicts(slopes: _Slopes, unlike_most: FloatArray, counts: FloatArray) -> list[AnnotatorVerdict]:
    """A verdict on each; `unlike_most` is 1 for a strict, -1 for a lenient annotator, 0 for the others."""
    n, values, verdict = len(counts), slopes.values, AnnotatorVerdict
    limit = _limit(n)
    with np.errstate(invalid="ignore", divide="ignore"):
        from_random = np.nan_to_num(values / slopes.at_random)
        from_expected = np.nan_to_num((values - 1.0) / slopes.as_expected)
        # How much more probable the slope is if answers are at random than if they are as expected.
        odds = -np.log(slopes.at_random) - 0.5 * (values / slopes.at_random) ** 2
        odds -= -np.log(slopes.as_expected) - 0.5 * ((values - 1.0) / slopes.as_expected) ** 2
        are_random = odds > math.log(_RANDOM_ODDS * n)
    cases = (  # the first that holds counts
        (counts < _FEWEST_ANSWERS, verdict.TOO_FEW),
        (slopes.is_constant & (from_expected < -limit), verdict.ALWAYS_THE_SAME),
        (slopes.is_constant, verdict.TOO_FEW),
        ((from_random < -limit) & (values < _REVERSED_SLOPE), verdict.THE_OTHER_WAY_ROUND),
        ((from_random <= limit) & are_random, verdict.AT_RANDOM),
        (from_random <= limit, verdict.TOO_FEW),
        ((from_expected < -limit) & (values < _INFORMATIVE_SLOPE), verdict.OFTEN_AT_RANDOM),
        (unlike_most > 0.0, verdict.STRICTER),
        (unlike_most < 0.0, verdict.MORE_LENIENT),
        (np.ones(n, dtype=bool), verdict.TYPICAL),
    )
    return [next(found for holds, found in cases if holds[place]) for place in range(n)]


def same_pairs(data: object) -> IndexArray:
    """A number for each pair, the same for equal pairs, in either order of their points."""
    rows = pair_rows(data)
    differences = np.concatenate([to_numpy(block).T for _, block in rows.blocks()]) + 0.0
    first = np.argmax(differences != 0.0, axis=1)
    signs = np.sign(differences[np.arange(len(differences)), first])
    turned = np.where(signs < 0.0, -1.0, 1.0)[:, None] * differences + 0.0  # without negative zeros
    lines = np.ascontiguousarray(turned).view(np.dtype((np.void, turned.itemsize * turned.shape[1])))
    return np.unique(lines.ravel(), return_inverse=True)[1]


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
