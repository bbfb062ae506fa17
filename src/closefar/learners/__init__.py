"""The estimators: the scikit-learn interface to fitting and analyses."""

from typing import TYPE_CHECKING, Any

from closefar.learners.model_files import Model

if TYPE_CHECKING:
    from closefar.learners.base import MetricLearner
    from closefar.learners.classes import ClassMetricLearner
    from closefar.learners.linear import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner

__all__ = ["ClassMetricLearner", "MetricLearner", "Model"]
__all__ += ["ComparisonMetricLearner", "LinearMetricLearner", "OrdinalMetricLearner"]


def __getattr__(name: str) -> Any:
    """Import an estimator when it is first used, so that models load without scikit-learn."""
    if name not in __all__:
        raise AttributeError(f"module 'closefar.learners' has no attribute {name!r}")
    from closefar.learners import classes, linear

    return getattr(classes if name == "ClassMetricLearner" else linear, name)
