"""Analyses of a fit: wrong labels, noise model, confidence intervals, rank and sample size."""

from closefar.questions.calibration import CalibrationBin, calibrate, sides_of, wilson
from closefar.questions.choosing import choose_pairs
from closefar.questions.diagnosis import Diagnosis, describe_evidence, diagnose
from closefar.questions.findings import Finding, find_misfit
from closefar.questions.intervals import Confidence
from closefar.questions.label_errors import LabelErrors, judge_labels
from closefar.questions.label_search import find_label_errors, flip_aware
from closefar.questions.misfit import Misfit
from closefar.questions.moves import MOST_MOVES
from closefar.questions.noise_advice import DOUBT
from closefar.questions.noise_check import NoiseBin, NoiseCheck, check_noise_if_possible, check_noise_model
from closefar.questions.planning import SampleSizePlan, plan_sample_size
from closefar.questions.rank import choose_rank
from closefar.questions.reach import Interval
from closefar.questions.refits import JACKKNIFE_PARTS
from closefar.questions.standard_errors import confidence
from closefar.questions.summary import describe_comparisons, describe_directions, summarize
from closefar.questions.truncation import TruncationPath, TruncationStep, truncation_of, truncation_path
from closefar.questions.units import units_with_comparisons

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
