"""Evidence against a fit, in words: which tests reject it, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, as_float64, is_source, to_numpy
from closefar.fitting import Fit, fit, without_penalty
from closefar.judgements import Judgements, Kind, find_points
from closefar.questions.dependence import Dependence
from closefar.questions.features import place_columns
from closefar.questions.misfit import Misfit, MisfitTest, misfit_tests
from closefar.questions.noise_advice import DOUBT, better_noise, show_p_value
from closefar.questions.noise_check import NoiseCheck, check_noise_if_possible
from closefar.questions.testable import MOST_TESTED, check_testable, check_units
from closefar.questions.two_sided import TwoSided, two_sided
from closefar.questions.units import units_of_all

__all__ = ["Finding", "find_misfit"]

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
            f"Labels depend on more directions than rank={fitted.rank} allows ({shown}). Raise rank, or leave it out."
        )
    elif kind is Misfit.INDEFINITE:
        sentence = (
            f"In some directions a larger difference makes pairs closer ({shown}), which no distance can represent. "
            "Labels may depend on a product or a ratio of columns, or on one difference exceeding another. Transform "
            "the columns (logarithms turn ratios into differences), or use a classifier of the products of differences."
        )
    elif kind is Misfit.SHAPE:
        like = "the sum of absolute differences (city block)" if test.z[1] > 0 else "the largest difference alone"
        sentence = (
            f"Differences do not add up as squares ({shown}): the labels follow {like} more closely. Take roots or "
            "logarithms of the columns, or use a classifier of the absolute differences."
        )
    elif kind is Misfit.PLACE:
        sentence = _of_place(shown, names[place_columns(len(names))[largest]], fitted, judgements)
    else:
        wrong, right = ("close", "far") if test.z[0] > 0 else ("far", "close")
        sentence = (
            f"{wrong.capitalize()} pairs are labelled {right} more often than {right} pairs are labelled {wrong} "
            f"({shown}) at large margins. The model assumes the same flip rate on both sides, so probabilities are "
            "biased at one end. Find out how such labels arise, or list them with find_label_errors."
        )
    return Finding(kind, test.p_value, sentence)


def _of_place(shown: str, column: str, fitted: Fit, judgements: Judgements) -> str:
    found = f"What counts as far depends on where a pair lies ({shown}), mostly in column {column!r}: "
    logged = _log_columns(fitted, judgements)
    if logged:
        return found + f"logarithms describe the labels better. Take the logarithm of {', '.join(map(repr, logged))}."
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
