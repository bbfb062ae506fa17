"""Example data: simulated judgements, pairs made from points, the paper's real data sets and published judgements."""

from closefar.datasets.flamelets import make_combustion
from closefar.datasets.from_points import PairCount, count_pairs, pairs_from_points
from closefar.datasets.patients import PatientJudgements, PatientTables, judge_patients, make_patients
from closefar.datasets.published import load_airline, load_combustion
from closefar.datasets.similarity import (
    load_car_similarity,
    load_food_similarity,
    load_imagenet_similarity,
    load_material_similarity,
    load_musician_similarity,
    load_scene_similarity,
    load_similarity_matrix,
    load_things_similarity,
)
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
    "load_airline",
    "load_car_similarity",
    "load_combustion",
    "load_food_similarity",
    "load_imagenet_similarity",
    "load_material_similarity",
    "load_musician_similarity",
    "load_scene_similarity",
    "load_similarity_matrix",
    "load_things_similarity",
    "make_combustion",
    "make_judgements",
    "make_pairs",
    "make_patients",
    "pairs_from_points",
    "solve_noise_scale",
]
