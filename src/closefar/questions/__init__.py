"""What one asks of a fit: which labels are wrong, is the noise right, how sure is it, which rank, how many pairs."""

from closefar.questions.calibration import CalibrationBin, calibrate, effective_number, wilson
from closefar.questions.diagnosis import Diagnosis, diagnose
from closefar.questions.intervals import Confidence, Interval
from closefar.questions.label_errors import LabelErrors, find_label_errors, judge_labels, with_care
from closefar.questions.moves import MOST_MOVES
from closefar.questions.noise_check import DOUBT, NoiseBin, NoiseCheck, check_noise_model
from closefar.questions.planning import SampleSizePlan, plan_sample_size
from closefar.questions.rank import choose_rank
from closefar.questions.standard_errors import confidence
from closefar.questions.summary import summarize
from closefar.questions.truncation import TruncationPath, TruncationStep, truncation_of, truncation_path

__all__ = [
    "DOUBT",
    "MOST_MOVES",
    "CalibrationBin",
    "Confidence",
    "Diagnosis",
    "Interval",
    "LabelErrors",
    "NoiseBin",
    "NoiseCheck",
    "SampleSizePlan",
    "TruncationPath",
    "TruncationStep",
    "calibrate",
    "check_noise_model",
    "choose_rank",
    "confidence",
    "diagnose",
    "effective_number",
    "find_label_errors",
    "judge_labels",
    "plan_sample_size",
    "summarize",
    "truncation_of",
    "truncation_path",
    "wilson",
    "with_care",
]
