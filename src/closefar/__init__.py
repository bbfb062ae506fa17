"""closefar: learn a distance from noisy close/far labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from closefar import datasets, noise, plot, theory
    from closefar.certificate import Certificate
    from closefar.diagnosis import IdentifiabilityWarning
    from closefar.folds import PairGroupKFold
    from closefar.inference import confidence
    from closefar.label_errors import find_label_errors
    from closefar.learner import LinearMetricLearner
    from closefar.metric import Metric, load
    from closefar.modelfile import ModelFileError
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
    "plot",
    "theory",
]

__version__ = "0.1.0"

# Each name is imported when it is first used, so that `closefar --help` does not wait for scikit-learn.
_MODULES = {"datasets", "noise", "plot", "theory"}
_HOMES = {
    "Certificate": "certificate",
    "IdentifiabilityWarning": "diagnosis",
    "LinearMetricLearner": "learner",
    "LinearMetricLearnerCV": "selection",
    "Metric": "metric",
    "ModelFileError": "modelfile",
    "PairGroupKFold": "folds",
    "confidence": "inference",
    "find_label_errors": "label_errors",
    "load": "metric",
    "plan_sample_size": "planning",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"closefar.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'closefar' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"closefar.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
