"""Analyses of a fit: wrong labels, noise model, confidence intervals, rank and sample size."""

from closefar.questions.choosing import choose_pairs
from closefar.questions.dependence import units_with_comparisons
from closefar.questions.goodness_of_fit import (
    DOUBT,
    CalibrationBin,
    Diagnosis,
    Finding,
    Misfit,
    NoiseBin,
    NoiseCheck,
    calibrate,
    check_noise_if_possible,
    check_noise_model,
    describe_evidence,
    diagnose,
    find_misfit,
    sides_of,
    wilson,
)
from closefar.questions.intervals import JACKKNIFE_PARTS, Confidence, Interval, confidence
from closefar.questions.label_errors import LabelErrors, find_label_errors, flip_aware, judge_labels
from closefar.questions.likelihood import MOST_MOVES
from closefar.questions.sample_size import SampleSizePlan, plan_sample_size
from closefar.questions.summary import describe_comparisons, describe_directions, describe_fit
from closefar.questions.truncation import TruncationPath, TruncationStep, choose_rank, truncation_of, truncation_path

__all__ = ["choose_pairs", "units_with_comparisons"]
__all__ += ["DOUBT", "CalibrationBin", "Diagnosis", "Finding", "Misfit", "NoiseBin", "NoiseCheck", "calibrate"]
__all__ += ["check_noise_if_possible", "check_noise_model", "describe_evidence", "diagnose", "find_misfit", "sides_of"]
__all__ += ["JACKKNIFE_PARTS", "Confidence", "Interval", "confidence", "wilson"]
__all__ += ["MOST_MOVES", "LabelErrors", "find_label_errors", "flip_aware", "judge_labels"]
__all__ += ["SampleSizePlan", "describe_comparisons", "describe_directions", "describe_fit", "plan_sample_size"]
__all__ += ["TruncationPath", "TruncationStep", "choose_rank", "truncation_of", "truncation_path"]
