"""Fitting: a function from judgements and settings to a fit, with the choices of noise, rank and penalty."""

from closefar.fitting.annotators import AnnotatorTable, AnnotatorVerdict
from closefar.fitting.calibration import CalibratedThreshold, calibrate_threshold
from closefar.fitting.checkpoint import Checkpoint
from closefar.fitting.choice import Baseline, Choice, Tried
from closefar.fitting.class_labels import ClassPosterior, class_posterior
from closefar.fitting.class_pairs import class_pairs
from closefar.fitting.comparison_noise import ComparisonNoise
from closefar.fitting.fitting import fit, refit, without_penalty
from closefar.fitting.identifiability import IdentifiabilityWarning
from closefar.fitting.kind_statistics import measured_statistics
from closefar.fitting.likelihoods import is_plain, likelihood_of
from closefar.fitting.neighbour_metric import neighbour_metric
from closefar.fitting.noise_choice import NoiseChoice, choose_noise
from closefar.fitting.parts import fit_from, fit_part, is_near_parts, refit_part
from closefar.fitting.placing import placed_on
from closefar.fitting.progress import showing
from closefar.fitting.protocols import Fitted, Learner
from closefar.fitting.rank_choice import cross_validate_rank
from closefar.fitting.rank_scores import RankChoice, RankScore
from closefar.fitting.result import Fit
from closefar.fitting.scoring import Scorer, Scores, joined, score, whole_loss
from closefar.fitting.settings import Settings
from closefar.fitting.statistics import FitStatistics, count_parameters, count_uncertain
from closefar.fitting.subspace import candidate_ranks, legs_along, refit_leading
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
