"""The estimators: scikit-learn's manners around fitting and its questions."""

from closefar.learners.base import MetricLearner
from closefar.learners.linear import LinearMetricLearner
from closefar.learners.saved import Model
from closefar.learners.search import LinearMetricLearnerCV

__all__ = ["LinearMetricLearner", "LinearMetricLearnerCV", "MetricLearner", "Model"]
