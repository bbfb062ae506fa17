"""Data to try things on: generated pairs, pairs made from points, and the paper's real data sets."""

from closefar.datasets.flamelets import make_combustion
from closefar.datasets.published import load_airline, load_combustion
from closefar.datasets.synthetic import LabelledPairs, make_pairs, pairs_from_points, solve_noise_scale

__all__ = [
    "LabelledPairs",
    "load_airline",
    "load_combustion",
    "make_combustion",
    "make_pairs",
    "pairs_from_points",
    "solve_noise_scale",
]
