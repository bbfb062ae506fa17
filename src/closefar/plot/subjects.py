"""The subjects of plots: a metric, a fit, or labelled pairs."""

from __future__ import annotations

import numbers
from typing import Any

from closefar.fitting import Fit, Fitted, Scores, score
from closefar.model import Metric

__all__ = ["check_count", "description", "fit_of", "metric_of", "scored_by"]


def fit_of(learner: Fit | Fitted) -> Fit:
    """Return the fit of a fitted learner."""
    if not (isinstance(learner, Fit) or hasattr(type(learner), "metric_")):
        raise TypeError(f"this plot needs a fitted LinearMetricLearner; got {type(learner).__name__}.")
    return Fit.of(learner)


def metric_of(learner_or_metric: Metric | Fit | Fitted) -> Metric:
    """Return the metric, or that of a fitted learner."""
    return learner_or_metric if isinstance(learner_or_metric, Metric) else fit_of(learner_or_metric).metric


def check_count(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Integral) and int(value) >= 1):
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")


def scored_by(fit: Fit, X: Any, y: Any, sample_weight: Any) -> Scores:
    """The given pairs, or the training pairs, scored by the fit, without pairs of weight zero."""
    return score(fit, fit.read_or_training(X, y, sample_weight).counted())


def description(fit: Fit, scored: Scores, *, are_training: bool) -> str:
    """The number of pairs, and whether they are the training pairs."""
    return f"{len(scored):,} {'training ' if are_training else ''}{fit.kind.noun}s"
