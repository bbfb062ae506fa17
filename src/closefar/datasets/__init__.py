"""Example data: simulated judgements, and pairs made from points."""

from closefar.datasets.from_points import PairCount, count_pairs, pairs_from_points
from closefar.datasets.panel import Panel
from closefar.datasets.patients import PatientJudgements, PatientTables, judge_patients, make_patients
from closefar.datasets.simulated import SimulatedJudgements, make_judgements
from closefar.datasets.synthetic import LabelledPairs, make_pairs, solve_noise_scale

__all__ = [
    "LabelledPairs",
    "PairCount",
    "Panel",
    "PatientJudgements",
    "PatientTables",
    "SimulatedJudgements",
    "count_pairs",
    "judge_patients",
    "make_judgements",
    "make_pairs",
    "make_patients",
    "pairs_from_points",
    "solve_noise_scale",
]
