"""Tests of whether labels depend on more than a distance and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.stats import norm

from closefar.arrays import FloatArray
from closefar.questions import features
from closefar.questions.dependence import Dependence
from closefar.questions.legs import combined_legs
from closefar.questions.score_tests import FLOOR, AdjustedSums, LabelScores, combine
from closefar.questions.testable import FEWEST_UNCERTAIN, check_certain_enough
from closefar.questions.two_sided import TwoSided
from closefar.questions.units import points_of_legs
from closefar.rows import rows_of

__all__ = ["Misfit", "MisfitTest", "misfit_tests"]


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
    z = features.differences_of(rows)
    sizes = [features.absolute_sums(z, metric), features.bounded(np.abs(z))]
    found[Misfit.SHAPE] = _test_terms(free, [combined_legs(size, rows) for size in sizes], dependence)
    if metric.origin is None:
        found[Misfit.LINEAR] = _test_terms(free, [combined_legs(features.bounded(z), rows)], dependence)
        if judgements.data.ndim == 3:
            terms = features.by_place(*points_of_legs(judgements), z, metric)
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
    terms = combined_legs(features.products(y), rows_of(data)) if data.ndim == 3 else features.products(y)
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
