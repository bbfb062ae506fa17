"""Realistic tables: points with ids and columns of several kinds, and labelled pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from closefar.datasets.synthetic import solve_noise_scale
from closefar.noise import get_noise

__all__ = ["PatientTables", "make_patients"]

Columns = dict[str, NDArray[Any]]

# The weight of each column in the true distance: one divided by the difference that matters.
_WEIGHTS = {"age": 1 / 15, "cholesterol": 1 / 35, "smoker": 1.2}
_WARDS = np.array(["north", "south", "west"])


class PatientTables(NamedTuple):
    """The columns of two tables, and the true labels."""

    points: Columns
    pairs: Columns
    true_labels: NDArray[np.str_]


def make_patients(
    n_points: int = 400, n_pairs: int = 3000, *, wrong_share: float = 0.1, random_state: Any = 0
) -> PatientTables:
    """Generate synthetic patients, and pairs of them labelled close or far.

    The labels depend on age, cholesterol and smoking, but not on height and ward.

    Parameters
    ----------
    n_points, n_pairs : int
    wrong_share : float, default=0.1
        The expected share of wrong labels, most of them near the threshold.
    random_state : int, RandomState or None

    Examples
    --------
    >>> from closefar.datasets import make_patients
    >>> tables = make_patients(random_state=0)
    >>> list(tables.points), list(tables.pairs)
    (['id', 'age', 'height', 'cholesterol', 'smoker', 'ward'], ['patient', 'other', 'label'])
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    points: Columns = {
        "id": np.array([f"P{index:04d}" for index in range(1, n_points + 1)]),
        "age": rng.integers(20, 90, n_points),
        "height": np.round(rng.normal(1.71, 0.1, n_points), 2),
        "cholesterol": np.round(rng.normal(195.0, 38.0, n_points), 1),
        "smoker": rng.random(n_points) < 0.3,
        "ward": _WARDS[rng.integers(len(_WARDS), size=n_points)],
    }
    left, right = rng.integers(n_points, size=(2, n_pairs))
    right = np.where(left == right, (right + 1) % n_points, right)
    differences = np.column_stack([points[name] * weight for name, weight in _WEIGHTS.items()])
    squared = np.sum((differences[left] - differences[right]) ** 2, axis=1)
    margin = squared - np.median(squared)
    noise = get_noise("logistic")
    scale = solve_noise_scale(margin, noise, wrong_share)
    words = np.array(["close", "far"])
    labels = words[(margin + scale * noise.sample(n_pairs, rng) >= 0).astype(int)]
    pairs: Columns = {"patient": points["id"][left], "other": points["id"][right], "label": labels}
    return PatientTables(points, pairs, words[(margin >= 0).astype(int)])
