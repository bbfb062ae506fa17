"""Tests of whether labels depend on more than a distance and its noise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.stats import norm

from closefar.arrays import FloatArray
from closefar.model import Metric, Scored
from closefar.questions import features
from closefar.questions.dependence import Dependence
from closefar.questions.moves import MarginMoves
from closefar.questions.score_tests import FLOOR, AdjustedSums, LabelScores, combine
from closefar.questions.testable import FEWEST_UNCERTAIN, check_certain_enough

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


def misfit_tests(
    metric: Metric, scored: Scored, dependence: Dependence, *, with_flip_rate: bool
) -> dict[Misfit, MisfitTest]:
    """Test whether labels depend on anything besides their margins under the metric.

    Tests for which there are too few uncertain labels are omitted.
    """
    judgements = scored.judgements
    kept = LabelScores(MarginMoves(metric, judgements), scored, with_flip_rate)
    check_certain_enough(kept, "the metric")
    found = {}
    likeliest = kept.at_optimum()
    if likeliest.uncertain_per_parameter >= FEWEST_UNCERTAIN:
        found[Misfit.ASYMMETRIC_FLIPS] = _test_flips(likeliest, dependence)
    if 0 < metric.rank < kept.moves.moves.size:
        found[Misfit.INDEFINITE] = _test_null_space(kept, metric.rank, dependence)
    # The other tests adjust for all quadratic forms, so that they detect what no such form explains.
    free = LabelScores(MarginMoves(metric, judgements, keep_rank=False), scored, with_flip_rate).at_optimum()
    if free.uncertain_per_parameter < FEWEST_UNCERTAIN:
        return found
    z = features.differences_of(metric, judgements)
    sizes = [features.absolute_sums(z, metric), features.bounded(np.abs(z))]
    found[Misfit.SHAPE] = _test_terms(free, sizes, dependence)
    if metric.origin is None:
        found[Misfit.LINEAR] = _test_terms(free, [features.bounded(z)], dependence)
        if judgements.are_pairs:
            found[Misfit.PLACE] = _test_terms(free, features.by_place(judgements, z, metric), dependence)
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
    y = scores.moves.null_coordinates(scores.scored.judgements.data)
    test = _test_terms(scores, [features.products(y)], dependence, more_dof=rank * y.shape[1])
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
