"""Statistics of fits to levels, comparisons, mixes of them, and judgements of annotators."""

from __future__ import annotations

from closefar.arrays import FloatArray
from closefar.fitting.likelihoods import is_plain
from closefar.fitting.scoring import Scorer
from closefar.fitting.solved import Solved
from closefar.fitting.statistics import FitStatistics
from closefar.judgements import Judgements
from closefar.model import Metric, ScoredLevels

__all__ = ["measured_statistics", "statistics_of"]


def statistics_of(solved: Solved, metric: Metric, column_scales: FloatArray, n_parameters: int) -> FitStatistics:
    """The statistics of the judgements of a fit, whatever their kind."""
    judgements = solved.judgements
    if is_plain(judgements) and not isinstance(solved.flip_rate, tuple):
        return solved.statistics(column_scales, n_parameters)
    squared = solved.rows.gather(solved.solution.squared)
    return measured_statistics(judgements, squared, Scorer(metric, solved.strictness), column_scales, n_parameters)


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
        level_shares=tuple(first.shares.tolist()) if isinstance(first, ScoredLevels) else (),
        n_comparisons=0 if compared is None else len(compared),
        comparison_accuracy=None if compared is None else parts[1].accuracy,
    )
