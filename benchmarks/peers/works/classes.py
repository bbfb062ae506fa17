"""Points with classes, some of which are wrong: how useful is the learned distance for new points?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from peers.works import Arrays, Data, Measure, Setting
from peers.works.pairs import best_threshold

TITLE = "Points with classes"

TABLES = {
    "wine": "178 wines with 13 columns, 3 classes",
    "breast cancer": "569 tumours with 30 columns, 2 classes",
    "digits": "1,797 images with 64 pixels, 10 classes; the columns have the same unit and are not standardised",
    "combustion": "1,500 states of a hydrogen flame with 9 columns, 4 classes by quartiles of the mixture fraction",
}
WRONG = (0, 10, 30)
N_COMBUSTION = 1_500
TEST_SHARE = 0.3
N_PAIRS = 20_000
N_FOLDS = 3
NEIGHBOURS = (1, 3, 5, 7, 9, 15, 25, 35, 51)


def _setting(table: str, wrong: int) -> Setting:
    smaller = {"digits": "breast cancer", "breast cancer": "wine"}.get(table)
    return Setting(
        "classes",
        _name(table, wrong),
        {"table": table, "wrong": wrong / 100.0},
        quick=table == "wine" and wrong > 0,
        smaller=_name(smaller, wrong) if smaller else "",
        description=f"{TABLES[table]}; 30% of the points are new ones, and {wrong}% of the other classes are wrong.",
    )


def _name(table: str, wrong: int) -> str:
    return f"{table}, {wrong}% wrong classes"


SETTINGS = tuple(_setting(table, wrong) for table in TABLES for wrong in WRONG)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


MEASURES = (
    Measure("knn_5", "kNN accuracy, k=5, %", True, _percent),
    Measure("knn_chosen", "kNN accuracy, k cross-validated, %", True, _percent),
    Measure("pair_accuracy", "pair accuracy, %", True, _percent),
)


def make(setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
    """Split the points, make some training classes wrong, and draw pairs of either part, half of them close."""
    table, wrong = setting.parameters["table"], setting.parameters["wrong"]
    points, classes = _combustion(options.get("combustion")) if table == "combustion" else _scikit_learn(table)
    of_table = np.random.default_rng(
        [seed, list(TABLES).index(table)]
    )  # the same split for all shares of wrong classes
    of_setting = np.random.default_rng([seed, list(TABLES).index(table), round(100 * wrong)])
    rows = np.arange(len(classes))
    if table == "combustion":
        rows = np.sort(of_table.choice(len(classes), N_COMBUSTION, replace=False))
    train, new = split_by_class(rows, classes, of_table)
    known = with_wrong_classes(classes[train], wrong, of_setting)
    pairs, labels = draw_pairs(known, N_PAIRS, of_setting)
    new_pairs, new_labels = draw_pairs(classes[new], N_PAIRS, of_table)
    return Data(
        train={
            "points": points[train], "classes": known, "same_units": np.array(table == "digits"),
            "pairs": points[train][pairs], "pairs_index": pairs, "labels": labels,
            "point_folds": np.random.default_rng(seed).permutation(np.arange(len(train)) % N_FOLDS),
        },
        asked={"points": points[new], "pairs": points[new][new_pairs]},
        truth={"classes": classes[new], "labels": new_labels},
    )  # fmt: skip


@cache
def _scikit_learn(table: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets

    found = getattr(datasets, "load_" + table.replace(" ", "_"))()
    return np.asarray(found.data, dtype=np.float64), np.asarray(found.target)


@cache
def _combustion(folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if folder is None:
        raise ValueError("The combustion data are not part of this project: --combustion must name their folder.")
    files = [Path(folder) / f"hydrogen-air-{name}.csv.gz" for name in ("state-space", "mixture-fraction")]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise ValueError(f"The folder given by --combustion has no file {missing[0]}.")
    states, fraction = (np.loadtxt(file, delimiter=",") for file in files)
    return states, np.searchsorted(np.quantile(fraction, [0.25, 0.5, 0.75]), fraction)


def split_by_class(rows: np.ndarray, classes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to learn from and rows of new points, with the same shares of each class."""
    train, new = [], []
    for name in np.unique(classes):
        shuffled = rng.permutation(rows[classes[rows] == name])
        n_new = round(TEST_SHARE * len(shuffled))
        new.append(shuffled[:n_new])
        train.append(shuffled[n_new:])
    return rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(new))


def with_wrong_classes(classes: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Replace a share of the classes by another class, drawn at random."""
    names, codes = np.unique(classes, return_inverse=True)
    rows = rng.choice(len(classes), round(share * len(classes)), replace=False)
    codes[rows] += rng.integers(1, len(names), size=len(rows))
    return np.asarray(names[codes % len(names)])


def draw_pairs(classes: np.ndarray, n_pairs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw different pairs, half with the same class and half not, and fewer if there are not so many."""
    first, second = np.triu_indices(len(classes), 1)
    far = classes[first] != classes[second]
    half = min(n_pairs // 2, int(far.sum()), int((~far).sum()))
    rows = np.concatenate([rng.choice(np.flatnonzero(kind), half, replace=False) for kind in (~far, far)])
    rows = rng.permutation(rows)
    return np.column_stack([first[rows], second[rows]]), np.where(far[rows], 1, -1)


def figures(data: Data, answers: Arrays) -> dict[str, float]:
    """Return kNN and pair accuracies on the true classes of new points.

    Neighbours and their votes have the classes to learn from, wrong ones included.  The threshold of pairs is the best
    on the training pairs, for every peer.
    """
    found: dict[str, float] = {}
    known, truth = data.train["classes"], data.truth["classes"]
    if "points.transformed" in answers:
        near = nearest(answers["train_points.transformed"], answers["points.transformed"])
        found["knn_5"] = float(np.mean(vote(near, known, 5) == truth))
        if "fold_0.transformed" in answers:
            k = choose_neighbours(data.train, answers)
            found["knn_chosen"] = float(np.mean(vote(near, known, k) == truth))
            found["neighbours"] = float(k)
    if "pairs.farness" in answers:
        if not all(np.isfinite(answers[name]).all() for name in ("train_pairs.farness", "pairs.farness")):
            raise ValueError("some distances are not finite")
        threshold = best_threshold(answers["train_pairs.farness"], data.train["labels"])
        called = np.where(answers["pairs.farness"] >= threshold, 1, -1)
        found["pair_accuracy"] = float(np.mean(called == data.truth["labels"]))
    return found


def choose_neighbours(train: Mapping[str, np.ndarray], answers: Arrays) -> int:
    """Return k with the best cross-validated accuracy on the classes to learn from; the largest of equals.

    The metric of each fold was learned without it: a metric that fits its own points too well would choose k = 1.
    """
    right = np.zeros(len(NEIGHBOURS), dtype=np.int64)
    for fold in range(N_FOLDS):
        transformed, held_out = answers[f"fold_{fold}.transformed"], train["point_folds"] == fold
        near = nearest(transformed[~held_out], transformed[held_out])
        rest = train["classes"][~held_out]
        right += [np.sum(vote(near, rest, k) == train["classes"][held_out]) for k in NEIGHBOURS]
    return max(k for k, count in zip(NEIGHBOURS, right, strict=True) if count == right.max())


def nearest(points: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the row numbers of the nearest points of each new one, nearest first."""
    if not (np.isfinite(points).all() and np.isfinite(new).all()):
        raise ValueError("some transformed points are not finite")
    squared = np.square(new).sum(axis=1)[:, None] + np.square(points).sum(axis=1) - 2.0 * new @ points.T
    return np.asarray(np.argsort(squared, axis=1, kind="stable")[:, : max(NEIGHBOURS)])


def vote(near: np.ndarray, classes: np.ndarray, k: int) -> np.ndarray:
    """Return the most frequent class of the k nearest points; of equally frequent ones that with nearer points."""
    names, codes = np.unique(classes, return_inverse=True)
    votes = np.zeros((len(near), len(names)))
    for rank in range(k):
        votes[np.arange(len(near)), codes[near[:, rank]]] += 1.0 - 1e-6 * rank
    return np.asarray(names[votes.argmax(axis=1)])
