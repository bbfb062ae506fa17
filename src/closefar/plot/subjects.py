"""What a plot is asked to show: a metric, a learner, or labelled pairs."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray
from closefar.learner import LinearMetricLearner
from closefar.metric import Metric
from closefar.pairs import are_far, check_pairs, check_weights
from closefar.subspace import Spectrum

__all__ = [
    "LabelledDistances",
    "check_count",
    "leading_directions",
    "learner_of",
    "metric_of",
]


def learner_of(learner: Any) -> LinearMetricLearner:
    """Return the fitted learner, of a search the one that it chose."""
    if not isinstance(learner, LinearMetricLearner):
        raise TypeError(f"this plot needs a fitted LinearMetricLearner; got {type(learner).__name__}.")
    check_is_fitted(learner)
    return cast(LinearMetricLearner, getattr(learner, "best_estimator_", learner))


def metric_of(learner_or_metric: Any) -> Metric:
    if isinstance(learner_or_metric, Metric):
        return learner_or_metric
    if not isinstance(learner_or_metric, LinearMetricLearner):
        raise TypeError(
            f"this plot needs a Metric or a fitted LinearMetricLearner; got {type(learner_or_metric).__name__}."
        )
    return learner_of(learner_or_metric).metric_


def leading_directions(metric: Metric, scale: str | None) -> Spectrum:
    """The columns of a factor of M and their eigenvalues in a scale, by default as `Metric.truncate` does."""
    metric.truncate(metric.rank, scale)  # which checks the scale
    return Spectrum.of(metric, scale or ("units" if metric.data_factor is None else "data"))


def check_count(name: str, value: Any) -> None:
    if not (isinstance(value, numbers.Integral) and int(value) >= 1):
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")


@dataclass(frozen=True)
class LabelledDistances:
    """Pairs as a plot needs them: squared distance, whether labelled far, and weight."""

    squared: FloatArray
    is_far: NDArray[np.bool_]
    weights: FloatArray
    description: str

    @classmethod
    def of(cls, learner: LinearMetricLearner, X: Any, y: Any, sample_weight: Any) -> LabelledDistances:
        """Measure the given pairs, or those of the fit; labels must be those of the fit."""
        pairs, given, weights = learner.given_or_training(X, y, sample_weight)
        differences = check_pairs(learner, pairs, fitting=False)
        if given is None:
            raise ValueError("this plot needs labels, one close/far label a pair; got pairs alone. Give y.")
        is_far = are_far(given, learner.classes_, len(differences))
        return cls(
            squared=learner.metric_.forms(differences),
            is_far=is_far,
            weights=check_weights(weights, None, is_far.astype(np.float64), differences),
            description=f"{len(is_far):,} {'training ' if X is None else ''}pairs",
        )
