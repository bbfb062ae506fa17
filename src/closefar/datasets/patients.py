"""Realistic tables: points with ids and columns of several kinds, and labelled pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from closefar.datasets.simulated import solve_noise_scale
from closefar.noise import get_noise

Columns = dict[str, NDArray[Any]]

# The weight of each column in the true distance: one divided by the difference that matters.
_WEIGHTS = {"age": 1 / 15, "cholesterol": 1 / 35, "smoker": 1.2}
_WARDS = np.array(["north", "south", "west"])

_LEVEL_SHARES = (0.15, 0.35, 0.65, 0.85)  # of pairs below each threshold between two ratings
_N_TIMES = 3  # that each pair of the annotated table is judged


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
    left, right = _different(n_points, n_pairs, rng)
    squared = _squared_distances(points, left, right)
    margin = squared - np.median(squared)
    noise = get_noise("logistic")
    scale = solve_noise_scale(margin, noise, wrong_share)
    words = np.array(["close", "far"])
    labels = words[(margin + scale * noise.sample(n_pairs, rng) >= 0).astype(int)]
    pairs: Columns = {"patient": points["id"][left], "other": points["id"][right], "label": labels}
    return PatientTables(points, pairs, words[(margin >= 0).astype(int)])


class PatientJudgements(NamedTuple):
    """The columns of three tables of judgements of the same patients."""

    ratings: Columns
    triplets: Columns
    annotated: Columns


def judge_patients(
    points: Columns, n_ratings: int = 1500, n_triplets: int = 1500, n_annotators: int = 12, *, random_state: Any = 0
) -> PatientJudgements:
    """Generate other judgements of the patients that `make_patients` makes.

    Ratings are from 1 (closest) to 5 (farthest).  A triplet says which of two patients is nearer to the first one.
    In the annotated table each pair is called close or far by three of several people, who differ in how large a
    distance must be to be far; the last of them answers at random.

    Parameters
    ----------
    points : dict of arrays
        The table of patients.
    n_ratings, n_triplets, n_annotators : int
        The numbers of ratings and of triplets, and the number of people, each of whom judges 100 pairs.
    random_state : int, RandomState or None

    Examples
    --------
    >>> from closefar.datasets import judge_patients, make_patients
    >>> tables = judge_patients(make_patients(random_state=0).points)
    >>> [list(table) for table in tables]
    [['patient', 'other', 'rating'], ['patient', 'left', 'right', 'answer'], ['patient', 'other', 'worker', 'label']]
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    ids, noise = points["id"], get_noise("logistic")
    left, right = _different(len(ids), n_ratings, rng)
    squared = _squared_distances(points, left, right)
    scale = solve_noise_scale(squared - np.median(squared), noise, 0.1)
    thresholds = np.quantile(squared, _LEVEL_SHARES)
    heard = squared + scale * noise.sample(n_ratings, rng)
    ratings: Columns = {
        "patient": ids[left],
        "other": ids[right],
        "rating": 1 + np.searchsorted(thresholds, heard, side="right"),
    }
    anchor, near = _different(len(ids), n_triplets, rng)
    far = (near + rng.integers(1, len(ids) - 1, size=n_triplets)) % len(ids)
    far = np.where(far == anchor, (far + 1) % len(ids), far)
    far = np.where(far == near, (far + 1) % len(ids), far)
    margin = _squared_distances(points, anchor, far) - _squared_distances(points, anchor, near)
    is_left = margin + scale * noise.sample(n_triplets, rng) >= 0
    triplets: Columns = {
        "patient": ids[anchor],
        "left": ids[near],
        "right": ids[far],
        "answer": np.where(is_left, "left", "right"),
    }
    return PatientJudgements(ratings, triplets, _annotated(points, n_annotators, scale, rng))


def _annotated(points: Columns, n_annotators: int, scale: float, rng: np.random.Generator) -> Columns:
    n = 100 * n_annotators
    left, right = (np.resize(side, n) for side in _different(len(points["id"]), -(-n // _N_TIMES), rng))
    squared = _squared_distances(points, left, right)
    threshold, worker = np.median(squared), rng.permutation(np.resize(np.arange(n_annotators), n))
    strictness = 0.3 * threshold * rng.standard_normal(n_annotators)
    margin = squared - threshold - strictness[worker] + scale * get_noise("logistic").sample(n, rng)
    is_far = np.where(worker == n_annotators - 1, rng.random(n) < 0.5, margin >= 0)
    return {
        "patient": points["id"][left],
        "other": points["id"][right],
        "worker": np.array([f"w{number:02d}" for number in range(1, n_annotators + 1)])[worker],
        "label": np.where(is_far, "far", "close"),
    }


def _different(n_points: int, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of two different points."""
    left, right = rng.integers(n_points, size=(2, n))
    return left, np.where(left == right, (right + 1) % n_points, right)


def _squared_distances(points: Columns, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """The true squared distance of each pair."""
    weighted = np.column_stack([points[name] * weight for name, weight in _WEIGHTS.items()])
    squared: NDArray[np.float64] = np.sum((weighted[left] - weighted[right]) ** 2, axis=1)
    return squared
