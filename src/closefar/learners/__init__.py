"""The estimators: the scikit-learn interface to fitting and analyses."""

from typing import TYPE_CHECKING, Any

from closefar.learners.saved import Model

if TYPE_CHECKING:
    from closefar.learners.base import MetricLearner
    from closefar.learners.linear import LinearMetricLearner
    from closefar.learners.search import LinearMetricLearnerCV

__all__ = ["LinearMetricLearner", "LinearMetricLearnerCV", "MetricLearner", "Model"]


def __getattr__(name: str) -> Any:
    """Import an estimator when it is first used, so that models load without scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module 'closefar.learners' has no attribute {name!r}")
    from closefar.learners import base, linear, search

    homes = {"MetricLearner": base, "LinearMetricLearner": linear, "LinearMetricLearnerCV": search}
    return getattr(homes[name], name)
