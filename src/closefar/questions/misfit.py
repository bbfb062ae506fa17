"""Tests of whether labels depend on more than a distance and its noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from closefar.arrays import FloatArray, as_float64, is_source, to_numpy
from closefar.errors import either, setting, words_of
from closefar.fitting import Fit, FitStatistics, fit, without_penalty
from closefar.judgements import Judgements, Kind, find_points
from closefar.model import ZERO, Metric
from closefar.packed import form_gradients
from closefar.questions.calibration import TwoSided, two_sided
from closefar.questions.dependence import Dependence, points_of_legs, units_of_all
from closefar.questions.likelihood import combined_legs, differences
from closefar.questions.noise_check import DOUBT, NoiseCheck, better_noise, check_noise_if_possible, show_p_value
from closefar.questions.score_tests import (
    FEWEST_UNCERTAIN,
    FLOOR,
    MOST_TESTED,
    AdjustedSums,
    LabelScores,
    check_certain_enough,
    check_testable,
    check_units,
    combine,
)
from closefar.rows import Rows, rows_of

# ---------------------------------------------------------------------------------------------------------------------
# What labels might depend on besides a quadratic form of the differences, as columns of numbers.
#
# All are unit-free and bounded, so that no test is decided by a few pairs.


# Values are clipped at this many times their mean absolute value.
_LARGEST = 4.0


def bounded(values: FloatArray) -> FloatArray:
    """Columns divided by their mean absolute value, and clipped."""
    size = np.mean(np.abs(values), axis=0)
    return np.clip(values / np.where(size > 0, size, 1.0), -_LARGEST, _LARGEST)


def differences_of(rows: Rows) -> FloatArray:
    """The difference of each pair, of each point and the origin, or of each leg of comparisons."""
    return np.vstack([to_numpy(block).T for block in differences(rows)])


def products(values: FloatArray) -> FloatArray:
    """All products of two columns, squares included."""
    return form_gradients(bounded(values))


def absolute_sums(z: FloatArray, metric: Metric) -> FloatArray:
    """The city-block distance with the weights of the metric's diagonal, and its square."""
    total = bounded(np.sum(np.abs(z) * np.sqrt(np.maximum(np.diag(metric.matrix), 0.0)), axis=1)[:, None])
    return np.hstack([total, total**2])


def by_place(x: FloatArray, y: FloatArray, z: FloatArray, metric: Metric) -> list[FloatArray]:
    """Three ways in which a metric can depend on where the midpoint of a pair lies, for its points x and y.

    First, place itself may matter, and each column may have another unit where its values are large, as
    under a logarithm.  Second, the scale of the whole metric may depend on place.  Third, the weights of
    columns may depend on the place of other columns.
    """
    middle = 0.5 * x + 0.5 * y
    place = bounded(middle - np.median(middle, axis=0))
    squares, distance = bounded(z) ** 2, bounded(metric.measure(z)[:, None])
    return [
        np.hstack([place, place**2, place * squares]),
        np.hstack([place * distance, place**2 * distance]),
        np.hstack([column[:, None] * squares for column in place.T]),
    ]


def place_columns(d: int) -> FloatArray:
    """The column whose place is part of each term of `by_place`, for d columns."""
    every = np.arange(d)
    return np.concatenate([np.tile(every, 5), np.repeat(every, d)])


class Misfit(StrEnum):
    """What labels may depend on that is not in the model."""

    LINEAR = "linear"
    INDEFINITE = "indefinite"
    RANK = "rank"
    SHAPE = "shape"
    PLACE = "place"
    ASYMMETRIC_FLIPS = "asymmetric flips"
    NOISE = "noise"


@dataclass(frozen=True, eq=False)
class MisfitTest:
    """The p-value of a test, and the z score of each tested term."""

    p_value: float
    z: FloatArray

    @classmethod
    def combined(cls, tests: Sequence[MisfitTest]) -> MisfitTest:
        """One test from those of several questions about the same judgements, with the z scores of the clearest."""
        if len(tests) == 1:
            return tests[0]
        clearest = min(tests, key=lambda test: test.p_value)
        return cls(combine(*(test.p_value for test in tests)), clearest.z)


def misfit_tests(asked: TwoSided, dependence: Dependence) -> dict[Misfit, MisfitTest]:
    """Test whether the answers to a question depend on anything besides their margins under the metric.

    Tests for which there are too few uncertain labels are omitted, and of comparisons those that need two sides.
    """
    metric, judgements = asked.metric, asked.judgements
    kept = LabelScores.of(asked)
    check_certain_enough(kept, "the metric")
    found = {}
    # A comparison turned round is the same comparison, and two flip rates allow for asymmetric flips.
    if not asked.are_compared and asked.n_rates < 2:
        likeliest = kept.at_optimum()
        if likeliest.uncertain_per_parameter >= FEWEST_UNCERTAIN:
            found[Misfit.ASYMMETRIC_FLIPS] = _test_flips(likeliest, dependence)
    if 0 < metric.rank < kept.moves.moves.size:
        found[Misfit.INDEFINITE] = _test_null_space(kept, metric.rank, dependence)
    # The other tests adjust for all quadratic forms, so that they detect what no such form explains.
    free = LabelScores.of(asked, keep_rank=False).at_optimum()
    if free.uncertain_per_parameter < FEWEST_UNCERTAIN:
        return found
    rows = rows_of(judgements.data, metric.origin)
    z = differences_of(rows)
    sizes = [absolute_sums(z, metric), bounded(np.abs(z))]
    found[Misfit.SHAPE] = _test_terms(free, [combined_legs(size, rows) for size in sizes], dependence)
    if metric.origin is None:
        found[Misfit.LINEAR] = _test_terms(free, [combined_legs(bounded(z), rows)], dependence)
        if judgements.data.ndim == 3:
            terms = by_place(*points_of_legs(judgements), z, metric)
            found[Misfit.PLACE] = _test_terms(free, [combined_legs(each, rows) for each in terms], dependence)
    return found


def _test_flips(scores: LabelScores, dependence: Dependence) -> MisfitTest:
    """Test whether labels that contradict a large margin are far as often as close; positive if more are far."""
    model = scores.model
    questions = np.column_stack([np.ones(len(model.far)), model.flip_slope]) / (model.variance[:, None] + FLOOR)
    z = AdjustedSums.of(questions, scores, dependence).beside(0, 1).z(0)
    return MisfitTest(2.0 * float(norm.sf(abs(z))), np.array([z]))


def _test_null_space(scores: LabelScores, rank: int, dependence: Dependence) -> MisfitTest:
    """Test whether M would be nonzero on its null space without the constraint; one z per direction.

    The labels decide where on the boundary of the cone M lies, which makes the statistic larger:
    at most as if the moves between range and null space counted as well.
    """
    data = scores.scored.judgements.data
    y = scores.moves.null_coordinates(data)
    terms = combined_legs(products(y), rows_of(data)) if data.ndim == 3 else products(y)
    test = _test_terms(scores, [terms], dependence, more_dof=rank * y.shape[1])
    left, right = np.triu_indices(y.shape[1])
    return MisfitTest(test.p_value, test.z[left == right])


def _test_terms(
    scores: LabelScores, terms: list[FloatArray], dependence: Dependence, *, more_dof: int = 0
) -> MisfitTest:
    """Test terms of the margin, each array of terms separately, and combine the p-values."""
    model = scores.model
    part = np.repeat(np.arange(len(terms)), [columns.shape[1] for columns in terms])
    questions = np.hstack(terms) * (model.slope / (model.variance + FLOOR))[:, None]
    asked = AdjustedSums.of(questions, scores, dependence)
    p_values = [asked.chi_square(part == index, more_dof=more_dof).p_value for index in range(len(terms))]
    deviation = np.sqrt(np.maximum(np.diag(asked.covariance), 0.0))
    return MisfitTest(combine(*p_values), asked.sums / np.where(deviation > 0, deviation, np.inf))


# ---------------------------------------------------------------------------------------------------------------------
# Evidence against a fit, in words: which tests reject it, and what to do.


# The cost of the tests is about pairs times squared parameters; beyond this they use a sample of the pairs.
_MOST_WORK = 4e9
_FEWEST_PAIRS = 2000

# A metric that does not fit is detected by these tests as well.
_NOISE_LAST = (Misfit.NOISE, Misfit.ASYMMETRIC_FLIPS)

# Logarithms are recommended if they raise the log-likelihood by at least this much.
_GAIN = 2.0


@dataclass(frozen=True)
class Finding:
    """Evidence against the model.

    Attributes
    ----------
    kind : Misfit
    p_value : float
        The p-value of its test alone.
    sentence : str
        What was found, and what to do.
    """

    kind: Misfit
    p_value: float
    sentence: str


def find_misfit(fitted: Fit, groups: Any = None) -> tuple[Finding, ...]:
    """Test whether labels depend on more than a distance and its noise; clearest finding first.

    All tests together reject a correct model in at most 5% of cases (Holm's procedure).
    They test the fit without penalty and class weights.

    Parameters
    ----------
    fitted : Fit
        A fit that still holds its training pairs.
    groups : array of shape (n,) or (n, 2), optional
        Which of those pairs are not independent: a group id per pair, or the ids of its two
        points.  By default pairs that share a point are dependent.

    Raises
    ------
    ValueError
        If the labels are not enough for the tests.
    """
    plain = without_penalty(fitted, fitted.training(), class_weight=None)
    check_testable(plain)
    judgements, ids = _sample(plain, groups)
    n = len(judgements)
    check_units(Dependence(ids if ids is None else ids[:n]))
    check = check_noise_if_possible(plain, judgements, ids)
    tests: dict[Misfit, list[MisfitTest]] = {}
    refused = []
    for asked in two_sided(plain, judgements):
        is_attached = asked.are_compared and judgements.comparisons is not None
        own = ids if ids is None else ids[n:] if is_attached else ids[:n]
        try:
            found = _tests_of(asked, check, Dependence(own))
        except ValueError as error:
            refused.append(error)
            continue
        for kind, test in found.items():
            tests.setdefault(kind, []).append(test)
    if refused and not tests and check is None:
        raise refused[0]
    joined = {kind: MisfitTest.combined(found) for kind, found in tests.items()}
    p_values = {kind: test.p_value for kind, test in joined.items()}
    if check is not None:
        p_values[Misfit.NOISE] = check.p_value
    return tuple(
        Finding(kind, check.p_value, check.advice)
        if check is not None and kind is Misfit.NOISE
        else _finding(kind, joined[kind], plain, judgements)
        for kind in sorted(_rejected(p_values), key=_NOISE_LAST.__contains__)
    )


def _tests_of(asked: TwoSided, check: NoiseCheck | None, dependence: Dependence) -> dict[Misfit, MisfitTest]:
    """The tests of one question.

    Wrong noise can look like a wrong metric, so the metric is tested under noise that fits.
    """
    better = None if check is None or check.p_value >= DOUBT else better_noise(asked.scored)
    if better is None:
        return misfit_tests(asked, dependence)
    is_flipped = isinstance(better.flip_rate, float) and better.flip_rate != asked.scored.flip_rate
    n_rates = 1 if is_flipped else asked.n_rates
    return misfit_tests(replace(asked, scored=better, n_rates=n_rates), dependence)


def _sample(fitted: Fit, groups: Any) -> tuple[Judgements, NDArray[Any] | None]:
    """Some of the training judgements, and which of them depend on each other, attached comparisons last."""
    most = int(np.clip(_MOST_WORK / fitted.statistics.n_parameters**2, _FEWEST_PAIRS, MOST_TESTED))
    training = fitted.training()
    if training.comparisons is None:
        judgements = training.counted().sample(most, seed=0)
        return judgements, find_points(judgements.data) if groups is None else np.asarray(groups)[judgements.numbers]
    judgements = replace(training.counted(), comparisons=training.comparisons.counted().sample(most, seed=0))
    judgements = judgements.sample(most, seed=0)
    if groups is None:
        return judgements, units_of_all(None, judgements)
    assert judgements.comparisons is not None
    chosen = np.concatenate([judgements.numbers, len(training) + judgements.comparisons.numbers])
    ids = units_of_all(groups, training)
    return judgements, None if ids is None else ids[chosen]


def _rejected(p_values: Mapping[Misfit, float]) -> list[Misfit]:
    """The kinds that Holm's procedure rejects, smallest p-value first."""
    ordered = sorted(p_values, key=lambda kind: p_values[kind])
    for index, kind in enumerate(ordered):
        if p_values[kind] > DOUBT / (len(ordered) - index):
            return ordered[:index]
    return ordered


def _finding(kind: Misfit, test: MisfitTest, fitted: Fit, judgements: Judgements) -> Finding:
    shown, names = show_p_value(test.p_value), fitted.metric.column_names
    noun, terms = fitted.kind.noun, f"{fitted.kind.term}s"
    largest = int(np.argmax(np.abs(test.z)))
    if kind is Misfit.LINEAR and fitted.kind is Kind.COMPARISONS:
        sentence = (
            f"Answers depend on which of the compared points has the larger value ({shown}), mostly in column "
            f"{names[largest]!r}. No distance can represent this. Check how the comparisons were made, or use a linear "
            "classifier of the differences."
        )
    elif kind is Misfit.LINEAR:
        sentence = (
            f"Labels depend on the sign of the difference ({shown}), mostly in column {names[largest]!r}: it matters "
            "which side has the larger value. No distance can represent this. Use a linear classifier of the "
            "differences, or check the order of the two sides of each pair."
        )
    elif kind is Misfit.INDEFINITE and fitted.rank == fitted.metric.rank and test.z[largest] > 0:
        kind = Misfit.RANK
        sentence = (
            f"{terms.capitalize()} depend on more directions than "
            + setting(rank=fitted.rank)
            + f" allows ({shown}). Raise "
            + setting("rank")
            + ", or leave it out."
        )
    elif kind is Misfit.INDEFINITE:
        sentence = (
            f"In some directions a larger difference makes {noun}s closer ({shown}), which no distance can represent. "
            f"{terms.capitalize()} may depend on a product or a ratio of columns, or on one difference exceeding "
            "another. Transform the columns (logarithms turn ratios into differences), or use a classifier of the "
            "products of differences."
        )
    elif kind is Misfit.SHAPE:
        like = "the sum of absolute differences (city block)" if test.z[1] > 0 else "the largest difference alone"
        sentence = (
            f"Differences do not add up as squares ({shown}): the {terms} follow {like} more closely. Take roots or "
            "logarithms of the columns, or use a classifier of the absolute differences."
        )
    elif kind is Misfit.PLACE:
        sentence = _of_place(shown, names[place_columns(len(names))[largest]], fitted, judgements)
    else:
        wrong, right = ("close", "far") if test.z[0] > 0 else ("far", "close")
        sentence = (
            f"{wrong.capitalize()} pairs are labelled {right} more often than {right} pairs are labelled "
            f"{wrong} ({shown}) at large margins. The model assumes the same flip rate on both sides, so "
            "probabilities are biased at one end. Find out how such labels arise, or list them with "
            + either("find_label_errors", "closefar label-errors")
            + "."
        )
    return Finding(kind, test.p_value, sentence)


def _of_place(shown: str, column: str, fitted: Fit, judgements: Judgements) -> str:
    found = f"What counts as far depends on where a {fitted.kind.noun} lies ({shown}), mostly in column {column!r}: "
    logged = _log_columns(fitted, judgements)
    if logged:
        return (
            found + f"logarithms describe the {fitted.kind.term}s better. Take the logarithm of "
            f"{', '.join(map(repr, logged))}."
        )
    return found + (
        "no single metric fits everywhere. Transform the columns so that equal differences mean the same "
        "everywhere, or fit one metric per region."
    )


def _log_columns(fitted: Fit, judgements: Judgements) -> list[str]:
    """The columns of positive numbers, if differences of their logarithms describe the labels better."""
    pairs = judgements.data
    data: FloatArray = np.asarray(pairs, np.float64) if is_source(pairs) else to_numpy(as_float64(pairs))
    positive = np.all(data > 0, axis=(0, 1))
    if not np.any(positive):
        return []
    logs = np.where(positive, np.log(np.where(positive, data, 1.0)), data)
    other = fit(judgements.with_data(logs), fitted.settings)
    gain = judgements.effective_number * (fitted.certificate.loss - other.certificate.loss)
    return [
        name
        for name, is_positive in zip(fitted.metric.column_names, positive, strict=True)
        if is_positive and gain > _GAIN
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Problems of a fit and its data, with advice.


# Uncertain labels per parameter below which intervals and tests are rough, and below which they are unreliable.
_ROUGH = 10.0
_TOO_FEW = 4.0


@dataclass(frozen=True)
class Diagnosis:
    """The problems of a fit, most urgent first, each with advice.

    Attributes
    ----------
    facts : tuple of str
        Key figures of the fit.
    problems : tuple of str
        One or more sentences with advice per problem, those of `findings` last.
    findings : tuple of Finding
        The kinds of misfit that the tests found, with their p-values.
    """

    facts: tuple[str, ...]
    problems: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, fit: Fit, problems: Sequence[str], findings: Sequence[Finding] = (), untested: str = "") -> Diagnosis:
        """Collect the problems, the certificate's status unless it is good, and the reason if nothing was tested."""
        certificate = fit.certificate
        is_good = certificate.converged and not (fit.is_separable or fit.is_quasi_separable)
        every = [*([] if is_good else [certificate.status]), *problems, *(finding.sentence for finding in findings)]
        return cls(_facts(fit) + ((untested,) if untested else ()), tuple(every), tuple(findings))

    def __str__(self) -> str:
        found = [f"* {problem}" for problem in self.problems] or ["No problems found."]
        return "\n".join([*self.facts, "", *found])

    def __repr__(self) -> str:
        return f"Diagnosis({len(self.problems)} problems)"


def diagnose(fit: Fit, groups: Any = None) -> Diagnosis:
    """Report the problems of a fit, its data and its noise, and whether labels depend on more than a distance.

    `groups` is as for `find_misfit`.
    """
    problems, noun = list(fit.problems), fit.kind.noun
    if fit.metric.rank == 0 and fit.alpha > 0 and not fit.settings.chooses_alpha:
        problems.append(ZERO + " Lower " + setting("alpha") + ".")
    elif fit.metric.rank == 0 and not problems:  # a problem may be that the labels are reversed
        problems.append(f"{ZERO} Check the {fit.kind.term}s, and which {fit.kind.term} means far.")
    if fit.judgements is None:
        problems.append(
            f"This copy has no training {noun}s: check its noise model with "
            f"check_noise_model({noun}s, {fit.kind.term}s)."
        )
        return Diagnosis.of(fit, problems)
    try:
        return Diagnosis.of(fit, problems, find_misfit(fit, groups))
    except ValueError as error:
        return Diagnosis.of(fit, problems, untested="Not tested: " + words_of(error))


def _facts(fit: Fit) -> tuple[str, ...]:
    statistics = fit.statistics
    return (
        _data(fit),
        f"The metric has rank {fit.metric.rank} and a training accuracy of {statistics.accuracy:.1%} "
        f"(majority baseline {_baseline(fit):.1%}).",
        *_comparisons(statistics),
        f"The model estimates that {statistics.wrong_share:.1%} of the {fit.kind.term}s are wrong.",
        describe_evidence(fit),
    )


def _data(fit: Fit) -> str:
    statistics = fit.statistics
    found = f"{statistics.n_pairs} {fit.kind.noun}s with {len(fit.metric.factor)} columns"
    annotators = "" if fit.annotators is None else f", by {len(fit.annotators)} annotators"
    if fit.kind is Kind.COMPARISONS:
        return f"{found}."
    if fit.kind is Kind.LEVELS:
        return f"{found}, rated on {len(fit.sides.classes)} levels{annotators}."
    return f"{found}, {statistics.share_far:.1%} labelled far{annotators}."


def _baseline(fit: Fit) -> float:
    """The accuracy of the most frequent label; a comparison can be given either way round."""
    if fit.kind is Kind.COMPARISONS:
        return 0.5
    share = fit.statistics.share_far
    return max(fit.statistics.level_shares or (share, 1.0 - share))


def _comparisons(statistics: FitStatistics) -> tuple[str, ...]:
    """What is known of comparisons that were fitted with the pairs."""
    if statistics.comparison_accuracy is None:
        return ()
    return (f"It agrees with {statistics.comparison_accuracy:.1%} of {statistics.n_comparisons} comparisons.",)


def describe_evidence(fit: Fit) -> str:
    """State the number of uncertain labels per parameter, and whether it is enough for intervals and tests."""
    if fit.is_metric_alone:
        return "Intervals and tests need a fit; this metric was truncated, or stored without its fit."
    found = fit.statistics.uncertain_per_parameter
    if found >= _ROUGH:
        meaning = "enough for intervals and tests."
    elif found >= _TOO_FEW:
        meaning = "so intervals and tests are approximate."
    else:
        meaning = (
            f"too few for intervals and tests. {fit.kind.verb.capitalize()} more {fit.kind.noun}s, or limit the rank."
        )
    return (
        f"{found:.1f} uncertain {fit.kind.term}s per parameter ({fit.statistics.uncertain_labels:,.0f} for "
        f"{fit.statistics.n_parameters:,} parameters), {meaning}"
    )
