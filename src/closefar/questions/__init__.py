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
from closefar.questions.summary import describe_comparisons, describe_directions, summarize
from closefar.questions.truncation import TruncationPath, TruncationStep, choose_rank, truncation_of, truncation_path

__all__ = [
    "DOUBT",
    "JACKKNIFE_PARTS",
    "MOST_MOVES",
    "CalibrationBin",
    "Confidence",
    "Diagnosis",
    "Finding",
    "Interval",
    "LabelErrors",
    "Misfit",
    "NoiseBin",
    "NoiseCheck",
    "SampleSizePlan",
    "TruncationPath",
    "TruncationStep",
    "calibrate",
    "check_noise_if_possible",
    "check_noise_model",
    "choose_pairs",
    "choose_rank",
    "confidence",
    "describe_comparisons",
    "describe_directions",
    "describe_evidence",
    "diagnose",
    "find_label_errors",
    "find_misfit",
    "flip_aware",
    "judge_labels",
    "plan_sample_size",
    "sides_of",
    "summarize",
    "truncation_of",
    "truncation_path",
    "units_with_comparisons",
    "wilson",
]
