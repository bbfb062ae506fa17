"""The choice of the rank by cross-validation."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from closefar.fitting import Learner, RankChoice, Settings, cross_validate_rank, fit
from closefar.judgements import resolve_folds

__all__ = ["choose_rank"]


def choose_rank(
    learner: Learner,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    annotators: Any = None,
    comparisons: Any = None,
    cv: Any = 5,
    groups: Any = None,
    rule: str = "one_se",
    scale: str = "data",
    refit: bool = True,
    random_state: int | None = 0,
) -> RankChoice:
    """Choose the rank by the cross-validated loss.

    In each fold, a copy of `learner` is fitted without a limit on its rank, truncated to each
    rank, refitted within the retained directions, and scored on the held-out labels.  A penalty
    shrinks M to zero, since only then its rank can be limited; what is "auto" is chosen once,
    for all folds.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        The learner; it need not be fitted, and is not changed.
    X, y, sample_weight, annotators, comparisons
        As for `learner.fit`.  `comparisons` among pairs are part of the training side of every fold, so that losses
        are those of held-out pairs.
    cv : int, splitter or iterable of (train, test) indices, default=5
        A number of folds, or as in scikit-learn.
    groups : array of shape (n,) or (n, 2), optional
        A group per pair, or the ids of its points.  No group or point is on both sides of a
        split, and standard errors are clustered by group or point.  By default, points that pairs
        share are detected in (n, 2, d) data, with a `SharedPointsWarning`.
    rule : {"one_se", "best"}, default="one_se"
        "one_se": the lowest rank whose held-out loss exceeds the best by at most one standard
        error of the difference, computed pair by pair.  "best": the rank with the lowest loss.
    scale : {"data", "units"}, default="data"
        As for `Metric.truncate`.  With "data" the choice does not depend on units.
    refit : bool, default=True
        False scores truncation without refitting, which favours higher ranks.
    random_state : int or None, default=0
        Seed of the folds.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(4000, 4, metric_eigenvalues=[1.0, 0.4], wrong_share=0.1, random_state=0)
    >>> cf.choose_rank(cf.LinearMetricLearner(), data.pairs, data.labels).rank
    2
    """
    judgements = clone(learner).read(X, y, sample_weight, annotators=annotators, comparisons=comparisons)
    settings = Settings.of(learner).but(rank=None, prior="zero")
    settings.check(judgements)
    weighted = judgements.weighted(settings.class_weight)
    weighted.check_both_count()
    cv, groups = resolve_folds(cv, weighted, groups, seed=random_state)
    if settings.has_choice:
        settings = fit(judgements, settings, groups=groups).unless_interrupted().known
    return cross_validate_rank(
        weighted, settings, cv=cv, groups=groups, rule=rule, scale=scale, refits=refit, random_state=random_state
    )
