"""Fitting: a function from judgements and settings to a fit, with the choices of noise, rank and penalty."""

from closefar.fitting.annotators import AnnotatorTable, AnnotatorVerdict
from closefar.fitting.calibration import CalibratedThreshold, calibrate_threshold
from closefar.fitting.checkpoint import Checkpoint
from closefar.fitting.choices import (
    Baseline,
    Choice,
    ComparisonNoise,
    NoiseChoice,
    RankChoice,
    RankScore,
    Tried,
    choose_noise,
)
from closefar.fitting.classes import ClassPosterior, class_pairs, class_posterior, neighbour_metric
from closefar.fitting.fitting import fit, measured_statistics, placed_on, refit, without_penalty
from closefar.fitting.prepared import is_plain, likelihood_of
from closefar.fitting.progress import showing
from closefar.fitting.refits import (
    candidate_ranks,
    cross_validate_rank,
    fit_from,
    fit_part,
    is_near_parts,
    legs_along,
    refit_leading,
    refit_part,
)
from closefar.fitting.result import Fit, Fitted, Learner
from closefar.fitting.scoring import Scorer, Scores, joined, score, whole_loss
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics, IdentifiabilityWarning, count_parameters, count_uncertain
from closefar.rows import check_device

__all__ = [
    "AnnotatorTable",
    "AnnotatorVerdict",
    "Baseline",
    "CalibratedThreshold",
    "Checkpoint",
    "Choice",
    "ClassPosterior",
    "ComparisonNoise",
    "Fit",
    "FitStatistics",
    "Fitted",
    "IdentifiabilityWarning",
    "Learner",
    "NoiseChoice",
    "RankChoice",
    "RankScore",
    "Scorer",
    "Scores",
    "Settings",
    "Tried",
    "calibrate_threshold",
    "candidate_ranks",
    "check_device",
    "choose_noise",
    "class_pairs",
    "class_posterior",
    "count_parameters",
    "count_uncertain",
    "cross_validate_rank",
    "fit",
    "fit_from",
    "fit_part",
    "is_near_parts",
    "is_plain",
    "joined",
    "legs_along",
    "likelihood_of",
    "measured_statistics",
    "neighbour_metric",
    "placed_on",
    "refit",
    "refit_leading",
    "refit_part",
    "score",
    "showing",
    "whole_loss",
    "without_penalty",
]
