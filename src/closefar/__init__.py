"""closefar: learn a distance from noisy close/far labels."""

# Nothing is imported here, not even __future__: an interrupt before the command line begins ends in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from closefar import datasets, judgements, noise, plot, theory
    from closefar.fitting import IdentifiabilityWarning
    from closefar.judgements import PairGroupKFold, SharedPointsWarning, Tuples
    from closefar.learners import ClassMetricLearner, ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner
    from closefar.model import Metric, ModelFileError, load
    from closefar.questions import (
        check_noise_model,
        choose_pairs,
        choose_rank,
        confidence,
        find_label_errors,
        plan_sample_size,
        truncation_path,
    )
    from closefar.solve import Certificate
    from closefar.tables import open_pairs

__all__ = [
    "Certificate",
    "ClassMetricLearner",
    "ComparisonMetricLearner",
    "IdentifiabilityWarning",
    "LinearMetricLearner",
    "Metric",
    "ModelFileError",
    "OrdinalMetricLearner",
    "PairGroupKFold",
    "SharedPointsWarning",
    "Tuples",
    "check_noise_model",
    "choose_pairs",
    "choose_rank",
    "confidence",
    "datasets",
    "find_label_errors",
    "judgements",
    "load",
    "noise",
    "open_pairs",
    "plan_sample_size",
    "plot",
    "theory",
    "truncation_path",
]

__version__ = "0.1.0"

# Each name is imported when it is first used, so that `closefar --help` does not wait for scikit-learn.
_MODULES = {"datasets", "judgements", "noise", "plot", "theory"}
_HOMES = {
    "Certificate": "solve",
    "ClassMetricLearner": "learners",
    "ComparisonMetricLearner": "learners",
    "IdentifiabilityWarning": "fitting",
    "LinearMetricLearner": "learners",
    "Metric": "model",
    "ModelFileError": "model",
    "OrdinalMetricLearner": "learners",
    "PairGroupKFold": "judgements",
    "SharedPointsWarning": "judgements",
    "Tuples": "judgements",
    "check_noise_model": "questions",
    "choose_pairs": "questions",
    "choose_rank": "questions",
    "confidence": "questions",
    "find_label_errors": "questions",
    "load": "model",
    "open_pairs": "tables",
    "plan_sample_size": "questions",
    "truncation_path": "questions",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"closefar.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'closefar' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"closefar.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
