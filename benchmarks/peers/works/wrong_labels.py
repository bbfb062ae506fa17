"""Which labels are wrong? Simulated pairs, and pairs of the points of tables whose labels are flipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import average_precision_score

import closefar as cf
from peers.works import Arrays, Data, Measure, Setting
from peers.works.shapes import SHAPES

TITLE = "Wrong labels"

TABLES = {"wine": (load_wine, 1_500), "breast cancer": (load_breast_cancer, 3_000), "digits": (load_digits, 4_000)}


def _simulated(name: str, noise: str, wrong_share: float, quick: bool = False) -> Setting:
    parameters = {"n_pairs": 3_000, "n_features": 10, "noise": noise, "wrong_share": wrong_share, **SHAPES[10]}
    description = "3,000 pairs with 10 columns, a metric of rank 5; each point once."
    return Setting("wrong_labels", f"{name}, d=10", parameters, quick, description=description)


def _table(name: str, wrong_share: float) -> Setting:
    description = f"{TABLES[name][1]:,} pairs of points of the table, half of them truly close, which is of one class."
    parameters = {"table": name, "wrong_share": wrong_share}
    return Setting("wrong_labels", f"{name}, {100 * wrong_share:.0f} % flipped", parameters, description=description)


SETTINGS = (
    _simulated("logistic noise, 10 % wrong", "logistic", 0.1, quick=True),
    _simulated("10 % flipped", "flips", 0.1),
    _simulated("30 % flipped", "flips", 0.3),
    *(_table(name, share) for name in TABLES for share in (0.1, 0.3)),
)

MEASURES = (
    Measure("average_precision", "average precision of wrong labels", True, lambda value: f"{value:.3f}"),
    Measure("first_hundred", "wrong labels among the first 100", True, lambda value: f"{100 * value:.0f}"),
)


def make(setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
    """Draw pairs and labels, some of them wrong; the points that pairs share are known to all peers."""
    if "table" not in setting.parameters:
        made = cf.datasets.make_pairs(**setting.parameters, random_state=seed)
        n, _, d = made.pairs.shape
        points, index = made.pairs.reshape(-1, d), np.arange(2 * n).reshape(n, 2)
        labels, truth = made.labels, made.true_labels
    else:
        points, index, truth, rng = _pairs_of(setting.parameters["table"], seed)
        labels = np.where(rng.uniform(size=len(truth)) < setting.parameters["wrong_share"], -truth, truth)
    return Data({"points": points, "index": index, "labels": labels}, {}, {"is_wrong": labels != truth})


def _pairs_of(table: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    """Draw pairs of a table, as many of one class as of two; classes say which are truly close."""
    rng = np.random.default_rng(seed)
    load, n = TABLES[table]
    points, classes = load(return_X_y=True)
    points = points[:, points.std(axis=0) > 0]
    index = rng.integers(len(points), size=(20 * n, 2))
    index = index[index[:, 0] != index[:, 1]]
    is_far = classes[index[:, 0]] != classes[index[:, 1]]
    chosen = rng.permutation(np.concatenate([np.flatnonzero(is_far)[: n // 2], np.flatnonzero(~is_far)[: n // 2]]))
    return points, index[chosen], np.where(is_far[chosen], 1, -1), rng


def figures(data: Data, answers: Arrays) -> dict[str, float]:
    """Return how well the suspicion of each label finds the wrong ones."""
    is_wrong, suspicion = data.truth["is_wrong"], answers["suspicion"]
    first = np.argsort(-suspicion, kind="stable")[:100]
    return {
        "average_precision": float(average_precision_score(is_wrong, suspicion)),
        "first_hundred": float(np.mean(is_wrong[first])),
    }
