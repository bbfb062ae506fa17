"""Fitting: a function from judgements and settings to a fit, with the choices of noise, rank and penalty."""

from closefar.fitting.choose import choose_settings
from closefar.fitting.classes import ClassPosterior, class_pairs, class_posterior, neighbour_metric
from closefar.fitting.explain import measured_statistics
from closefar.fitting.fitting import choose_noise, fit, refit, without_penalty
from closefar.fitting.problem import answers_of, likelihood_of
from closefar.fitting.progress import Checkpoint, showing
from closefar.fitting.refits import (
    CalibratedThreshold,
    RankChoice,
    RankScore,
    calibrate_threshold,
    candidate_ranks,
    cross_validate_rank,
    fit_from,
    is_near_parts,
    legs_along,
    refit_leading,
    refit_part,
)
from closefar.fitting.result import (
    AnnotatorTable,
    AnnotatorVerdict,
    Baseline,
    Choice,
    ComparisonNoise,
    Fit,
    FitStatistics,
    Fitted,
    IdentifiabilityWarning,
    Learner,
    NoiseChoice,
    Tried,
    count_parameters,
    count_uncertain,
)
from closefar.fitting.scoring import Scorer, join_scores, score
from closefar.fitting.settings import Settings
from closefar.rows import check_device

__all__ = ["ClassPosterior", "choose_settings", "class_pairs", "class_posterior", "neighbour_metric"]
__all__ += ["answers_of", "choose_noise", "fit", "likelihood_of", "measured_statistics", "refit", "without_penalty"]
__all__ += ["Checkpoint", "showing"]
__all__ += ["CalibratedThreshold", "RankChoice", "RankScore", "calibrate_threshold", "candidate_ranks"]
__all__ += ["cross_validate_rank", "fit_from", "is_near_parts", "legs_along", "refit_leading", "refit_part"]
__all__ += ["AnnotatorTable", "AnnotatorVerdict", "Baseline", "Choice", "ComparisonNoise", "Fit", "FitStatistics"]
__all__ += ["Fitted", "IdentifiabilityWarning", "Learner", "NoiseChoice", "Tried", "count_parameters"]
__all__ += ["Scorer", "Settings", "check_device", "count_uncertain", "join_scores", "score"]
