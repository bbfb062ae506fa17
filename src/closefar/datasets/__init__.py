"""Example data: simulated judgements, and pairs made from points."""

from closefar.datasets.from_points import PairCount, count_pairs, pairs_from_points
from closefar.datasets.patients import PatientJudgements, PatientTables, judge_patients, make_patients
from closefar.datasets.simulated import (
    LabelledPairs,
    Panel,
    SimulatedJudgements,
    make_judgements,
    make_pairs,
    solve_noise_scale,
)

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
