"""closefar: learn a distance from noisy close/far labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from closefar import datasets, noise, theory
from closefar.certificate import Certificate
from closefar.diagnosis import IdentifiabilityWarning
from closefar.learner import LinearMetricLearner
from closefar.metric import Metric, load
from closefar.modelfile import ModelFileError

if TYPE_CHECKING:
    from closefar.folds import PairGroupKFold
    from closefar.inference import confidence
    from closefar.label_errors import find_label_errors
    from closefar.planning import plan_sample_size
    from closefar.selection import LinearMetricLearnerCV

__all__ = [
    "Certificate",
    "IdentifiabilityWarning",
    "LinearMetricLearner",
    "LinearMetricLearnerCV",
    "Metric",
    "ModelFileError",
    "PairGroupKFold",
    "confidence",
    "datasets",
    "find_label_errors",
    "load",
    "noise",
    "plan_sample_size",
    "theory",
]

__version__ = "0.1.0"

# Imported when first used: scikit-learn's model selection takes longer to import than all of the rest.
_LATER = {
    "LinearMetricLearnerCV": "selection",
    "PairGroupKFold": "folds",
    "confidence": "inference",
    "find_label_errors": "label_errors",
    "plan_sample_size": "planning",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'closefar' has no attribute {name!r}")
    return getattr(import_module(f"closefar.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
