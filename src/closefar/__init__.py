"""closefar: learn a distance from noisy close/far labels."""

# Nothing is imported here, not even __future__: an interrupt before the command line begins ends in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from closefar import datasets as datasets
    from closefar import judgements as judgements
    from closefar import noise as noise
    from closefar import plot as plot
    from closefar import theory as theory
    from closefar.fitting import IdentifiabilityWarning as IdentifiabilityWarning
    from closefar.judgements import PairGroupKFold as PairGroupKFold
    from closefar.judgements import SharedPointsWarning as SharedPointsWarning
    from closefar.judgements import Tuples as Tuples
    from closefar.learners import ClassMetricLearner as ClassMetricLearner
    from closefar.learners import ComparisonMetricLearner as ComparisonMetricLearner
    from closefar.learners import LinearMetricLearner as LinearMetricLearner
    from closefar.learners import OrdinalMetricLearner as OrdinalMetricLearner
    from closefar.model import Metric as Metric
    from closefar.model import ModelFileError as ModelFileError
    from closefar.model import load as load
    from closefar.questions import check_noise_model as check_noise_model
    from closefar.questions import choose_pairs as choose_pairs
    from closefar.questions import choose_rank as choose_rank
    from closefar.questions import confidence as confidence
    from closefar.questions import find_label_errors as find_label_errors
    from closefar.questions import plan_sample_size as plan_sample_size
    from closefar.questions import truncation_path as truncation_path
    from closefar.solve import Certificate as Certificate
    from closefar.tables import open_pairs as open_pairs

__version__ = "0.1.0"

# Each name is imported when it is first used, so that `closefar --help` does not wait for scikit-learn.
_MODULES = ("datasets", "judgements", "noise", "plot", "theory")
_ROOMS = {
    "fitting": ("IdentifiabilityWarning",),
    "judgements": ("PairGroupKFold", "SharedPointsWarning", "Tuples"),
    "learners": ("ClassMetricLearner", "ComparisonMetricLearner", "LinearMetricLearner", "OrdinalMetricLearner"),
    "model": ("Metric", "ModelFileError", "load"),
    "questions": (
        "check_noise_model",
        "choose_pairs",
        "choose_rank",
        "confidence",
        "find_label_errors",
        "plan_sample_size",
        "truncation_path",
    ),
    "solve": ("Certificate",),
    "tables": ("open_pairs",),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted([*_MODULES, *_HOMES])


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
