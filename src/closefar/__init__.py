"""closefar: learn a distance from noisy close/far labels."""

from closefar import datasets, noise
from closefar.certificate import Certificate
from closefar.learner import LinearMetricLearner
from closefar.metric import Metric, load
from closefar.modelfile import ModelFileError

__all__ = ["Certificate", "LinearMetricLearner", "Metric", "ModelFileError", "datasets", "load", "noise"]

__version__ = "0.1.0"
