"""The cost of each rank: a metric truncated to its k strongest directions, for every k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from closefar.arrays import FloatArray
from closefar.fitting import (
    Fit,
    Learner,
    RankChoice,
    Scorer,
    Settings,
    candidate_ranks,
    cross_validate_rank,
    fit,
    legs_along,
    refit_leading,
)
from closefar.judgements import Columns, Judgements, Kind, check_pairs, resolve_folds
from closefar.model import Directions, Metric, Scores, in_data_scale
from closefar.plain import format_table

# ---------------------------------------------------------------------------------------------------------------------
# The choice of the rank by cross-validation.


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


@dataclass(frozen=True)
class TruncationStep:
    """The cost of keeping only the `k` largest eigenvalues of M.

    Attributes
    ----------
    k : int
    metric : Metric
        The truncated metric; its thresholds are unchanged.
    gamma : float
        The largest eigenvalue that is removed.
    bound : float
        An upper bound on `lost`: zeta times the mean of z'(M - M_k)z (of comparisons, of the absolute difference of
        both legs).
    guarantee : float
        The paper's bound, which uses only the length of the longest difference: zeta * F * gamma
        (theorem "thm:DR-main2", before zeta * F is set to one).
    loss, accuracy : float
        On the given pairs.
    lost : float
        Their loss minus that of the full metric.
    held_out_loss, held_out_accuracy : float or None
        On the held-out pairs.
    refit_metric : Metric or None
        The best metric in the k retained directions; the `refit_` figures are for it.
    """

    k: int
    metric: Metric
    gamma: float
    bound: float
    guarantee: float
    loss: float
    lost: float
    accuracy: float
    held_out_loss: float | None = None
    held_out_accuracy: float | None = None
    refit_metric: Metric | None = None
    refit_loss: float | None = None
    refit_accuracy: float | None = None
    refit_held_out_loss: float | None = None
    refit_held_out_accuracy: float | None = None


@dataclass(frozen=True)
class TruncationPath(Sequence[TruncationStep]):
    """The steps k = 0, ..., rank; it prints as a table.

    `scale` is the scale in which eigenvalues are compared, `zeta` the slope of the loss at the
    worst margin, and `longest` the paper's F: the largest squared length of a difference in
    that scale, within the range of M.
    """

    steps: tuple[TruncationStep, ...]
    scale: str
    zeta: float
    longest: float

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, k: Any) -> Any:
        """The step of rank k, or a tuple of them."""
        return self.steps[k]

    def __str__(self) -> str:
        columns = {
            "k": ("k", "d"),
            "gamma": ("cut off", ".4g"),
            "loss": ("loss", ".5f"),
            "lost": ("lost", ".5f"),
            "bound": ("at most", ".4g"),
            "guarantee": ("guarantee", ".4g"),
            "accuracy": ("accuracy", ".4f"),
            "refit_loss": ("refitted", ".5f"),
            "held_out_loss": ("held out", ".5f"),
            "refit_held_out_loss": ("held out, refitted", ".5f"),
        }
        shown = [name for name in columns if any(getattr(step, name) is not None for step in self.steps)]
        rows = [[getattr(step, name) for name in shown] for step in self.steps]
        return format_table([columns[name] for name in shown], rows)


def truncation_path(
    metric: Metric,
    differences: Any,
    signs: Any,
    weights: Any = None,
    *,
    scale: str | None = None,
    held_out: tuple[Any, ...] | None = None,
    learner: Learner | None = None,
) -> TruncationPath:
    """Truncate a metric to each rank and compute the cost.

    Parameters
    ----------
    metric : Metric
    differences : array of shape (n, d), or of pairs (n, 2, d)
        The pairs that the metric was learned from.
    signs : array of n labels, +1 far and -1 close
    weights : array of n numbers >= 0, optional
    scale : {"data", "units"}, optional
        As for `Metric.truncate`.  For a metric without a data scale, "data" is the scale of
        `differences`.
    held_out : tuple (differences, signs) or (differences, signs, weights), optional
        Pairs that the metric was not learned from.
    learner : LinearMetricLearner, optional
        The learner that learned the metric, fitted.  If given, a copy of it with the same penalty is also fitted
        within the retained directions: the truncated metric keeps the scale and the threshold of the full
        metric, which are no longer optimal.  If M was shrunk to the plain distance, these fits are shrunk to the
        truncated metric.

    Examples
    --------
    >>> import closefar as cf
    >>> metric = cf.Metric([[1.0, 0.0], [0.0, 0.1]], threshold=1.0)
    >>> print(cf.truncation_path(metric, [[2.0, 0.5], [0.5, 2.0]], [1, -1]))
    k  cut off     loss      lost  at most  guarantee  accuracy
    0        1  0.81326   0.58909    2.045      4.049    0.5000
    1     0.01  0.21773  -0.00644  0.02024    0.04049    1.0000
    2        0  0.22417   0.00000        0          0    1.0000
    """
    settings = None if learner is None else Settings.of(learner)
    if learner is not None and settings is not None and settings.has_choice:
        settings = Fit.of(learner).known
    others = None if held_out is None else _judgements(metric, *held_out)
    return _path(Scorer(metric), _judgements(metric, differences, signs, weights), scale, others, settings)


def truncation_of(
    fit: Fit,
    judgements: Judgements,
    *,
    scale: str | None = None,
    held_out: Judgements | None = None,
    refits: bool = True,
    is_rough: bool = False,
) -> TruncationPath:
    """The path of a fit on judgements, weighted as in the fit.

    `refits` also refits each step; with `is_rough` these refits need no certificate.
    """
    weighted = judgements.weighted(fit.settings.class_weight)
    if refits:
        weighted.check_both_count()
    settings = fit.known.roughly() if is_rough and fit.known.solver == "auto" else fit.known
    return _path(Scorer.of(fit), weighted.counted(), scale, held_out, settings if refits else None)


def _path(
    whole: Scorer, judgements: Judgements, scale: str | None, held_out: Judgements | None, settings: Settings | None
) -> TruncationPath:
    if scale == "data" and whole.metric.data_factor is None:
        whole = replace(whole, metric=in_data_scale(whole.metric, judgements.data, judgements.weights))
    metric, noise, directions = whole.metric, whole.metric.noise, whole.metric.directions(scale)
    squared, longest = _squared_distances(metric, directions, judgements)
    unseen = None if held_out is None else _squared_distances(metric, directions, held_out)[0]
    # The paper's zeta over the margins of M and of every M_k; those of pairs lie between -tau and those of M.  Flips
    # only flatten the loss, and the loss of a level is nowhere steeper than that of its thresholds.
    margins = whole.margins(judgements, squared if judgements.kind is Kind.COMPARISONS else squared[:, [0, -1]])
    zeta = noise.constants(float(np.abs(margins).max(initial=0.0))).zeta
    full_loss = whole.score(judgements, squared[:, -1]).loss
    refitted = [] if settings is None else candidate_ranks(metric.rank)
    steps = []
    for k in range(metric.rank + 1):
        score, figures = whole.score(judgements, squared[:, k]), {}
        if held_out is not None and unseen is not None:
            figures = _named("held_out", whole.score(held_out, unseen[:, k]))
        gamma = float(directions.values[k]) if k < metric.rank else 0.0
        if settings is not None and k in refitted:
            best = refit_leading(judgements, settings.but(verbose=0), whole, directions, k)
            figures |= {"refit_metric": best.metric, **_named("refit", best.score(judgements))}
            if held_out is not None:
                figures |= _named("refit_held_out", best.score(held_out))
        steps.append(
            TruncationStep(
                k=k,
                metric=metric.truncate(k, "data" if directions.is_data_scale else "units"),
                gamma=gamma,
                bound=zeta * judgements.mean(np.abs(squared[:, -1] - squared[:, k])),
                guarantee=zeta * longest * gamma,
                loss=score.loss,
                lost=score.loss - full_loss,
                accuracy=score.accuracy,
                **figures,
            )
        )
    return TruncationPath(tuple(steps), "data" if directions.is_data_scale else "units", zeta, longest)


def _squared_distances(metric: Metric, directions: Directions, judgements: Judgements) -> tuple[FloatArray, float]:
    """z'M_k z for k = 0, ..., rank, of M truncated to its first k directions, and the largest squared length of a z.

    For comparisons it is the difference of both legs.  Lengths are those in the scale of the directions.
    """
    if judgements.kind is Kind.COMPARISONS:
        near, far = (legs**2 for legs in legs_along(judgements, directions.columns))
        squares, legs = far - near, np.concatenate([near, far])
    else:
        squares = legs = metric.coordinates(judgements.data, directions.columns) ** 2
    inverse = np.divide(1.0, directions.values, out=np.zeros(metric.rank), where=directions.values > 0)
    squared = np.hstack([np.zeros((len(squares), 1)), np.cumsum(squares, axis=1)])
    return squared, float((legs @ inverse).max(initial=0.0))


def _named(prefix: str, scored: Scores) -> dict[str, Any]:
    return {f"{prefix}_loss": scored.loss, f"{prefix}_accuracy": scored.accuracy}


def _judgements(metric: Metric, differences: Any, signs: Any, weights: Any = None) -> Judgements:
    data = check_pairs(Columns(len(metric.factor)), differences, fitting=False)
    return Judgements.of_signs(data, signs, weights)
