"""Triplets and quadruplets: of points that occur once, and of objects that are compared many times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import closefar as cf
from closefar.datasets import solve_noise_scale
from peers.works import Arrays, Data, Measure, Setting
from peers.works.shapes import SHAPES, relative_error

TITLE = "Triplets and quadruplets"

N_TEST = 4_000
N_OBJECTS, N_NEW_OBJECTS = 150, 50
LEGS = {3: ((0, 1), (0, 2)), 4: ((0, 1), (2, 3))}


_OBJECTS = (
    f"6,000 triplets of {N_OBJECTS} objects with 8 columns, 10% of the answers wrong. People see three coordinates, "
)


def _points(name: str, what: str, quick: bool = False, n: int = 5_000, d: int = 10, **parameters: Any) -> Setting:
    parameters |= {"n": n, "n_features": d, **SHAPES[d]}
    description = (
        f"{n:,} {what}, {d} columns, a metric of rank {len(SHAPES[d]['metric_eigenvalues'])}; each point once."
    )
    return Setting("comparisons", name, parameters, quick, description=description)


SETTINGS = (
    _points("triplets, d=10", "triplets, 10% of the answers wrong by noise", quick=True, kind="triplets"),
    _points(
        "triplets, 10 % turned round, d=10",
        "triplets, 10% of the answers wrong by noise and 10% turned round",
        kind="triplets",
        flip_rate=0.1,
    ),
    _points("triplets, d=30", "triplets, 10% of the answers wrong by noise", n=10_000, d=30, kind="triplets"),
    _points("quadruplets, d=10", "quadruplets, 10% of the answers wrong by noise", kind="quadruplets"),
    Setting(
        "comparisons",
        f"triplets of {N_OBJECTS} objects, distance linear in the columns",
        {"is_linear": True},
        description=_OBJECTS + "linear in the columns.",
    ),
    Setting(
        "comparisons",
        f"triplets of {N_OBJECTS} objects, distance not linear",
        {"is_linear": False},
        description=_OBJECTS
        + "bent ones that no linear map of the columns gives: what can be learned are the places of the objects, and "
        "hardly anything about new ones.",
    ),
)

MEASURES = (
    Measure("true_agreement", "agreement, true answers", True, lambda value: f"{100 * value:.2f}"),
    Measure("noisy_agreement", "agreement, noisy answers", True, lambda value: f"{100 * value:.2f}"),
    Measure("new_agreement", "agreement, new objects", True, lambda value: f"{100 * value:.2f}"),
    Measure("metric_error", "error of M/tr M", False, lambda value: f"{value:.3f}"),
    Measure("log_loss", "log-loss", False, lambda value: f"{value:.4f}"),
)


def make(setting: Setting, seed: int, options: Mapping[str, Any]) -> Data:
    """Draw comparisons to learn from, and new ones: of new points, or of the same objects and of new ones."""
    if "is_linear" in setting.parameters:
        return _of_objects(seed, **setting.parameters)
    parameters = dict(setting.parameters)
    n = parameters.pop("n")
    made = cf.datasets.make_judgements(n + N_TEST, **parameters, random_state=seed)
    size = made.index.shape[1]
    return Data(
        train={"points": made.points[: n * size], "index": made.index[:n], "answers": made.labels[:n]},
        asked=_legs(made.points, made.index[n:]),
        truth={
            "answers": made.labels[n:],
            "true_answers": made.true_labels[n:],
            "metric": made.metric.matrix / np.trace(made.metric.matrix),
        },
    )


def _of_objects(seed: int, is_linear: bool, n: int = 6_000, d: int = 8) -> Data:
    """Draw objects, where people see them, and what they answer.

    People see three coordinates: linear in the columns, or bent ones that no linear map of the columns gives.
    """
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((N_OBJECTS + N_NEW_OBJECTS, d))
    turned = points @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    factor = rng.standard_normal((d, 3))
    bent = [np.sin(2.0 * turned[:, 0]), np.abs(turned[:, 1]), turned[:, 2] * np.sign(turned[:, 3])]
    seen = points @ factor if is_linear else np.column_stack(bent)
    seen /= seen.std(axis=0) if not is_linear else 1.0
    index, known = (_different(N_OBJECTS, count, rng) for count in (n, N_TEST))
    new = _different(N_NEW_OBJECTS, N_TEST, rng) + N_OBJECTS
    margins, known_margins, new_margins = (_margins(seen, each) for each in (index, known, new))
    scale = solve_noise_scale(margins, "logistic", 0.1)
    answers, noisy = (np.where(m + scale * rng.logistic(size=len(m)) >= 0, 1, -1) for m in (margins, known_margins))
    truth = {
        "index": known,
        "answers": noisy,
        "true_answers": np.where(known_margins >= 0, 1, -1),
        "new_true_answers": np.where(new_margins >= 0, 1, -1),
    }
    if is_linear:
        truth["metric"] = factor @ factor.T / np.sum(factor**2)
    return Data(
        train={"points": points[:N_OBJECTS], "index": index, "answers": answers},
        asked=_legs(points, known) | {f"new_{name}": legs for name, legs in _legs(points, new).items()},
        truth=truth,
    )


def _different(n_objects: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Three different objects for each triplet."""
    return np.argsort(rng.uniform(size=(count, n_objects)), axis=1)[:, :3]


def _margins(seen: np.ndarray, index: np.ndarray) -> np.ndarray:
    near, far = (np.sum((seen[index[:, i]] - seen[index[:, j]]) ** 2, axis=1) for i, j in LEGS[3])
    return np.asarray(far - near)


def _legs(points: np.ndarray, index: np.ndarray) -> Arrays:
    near, far = (points[index[:, list(leg)]] for leg in LEGS[index.shape[1]])
    return {"near_pairs": near, "far_pairs": far}


def figures(data: Data, answers: Arrays) -> dict[str, float]:
    """Return the agreement with new comparisons, the error of M / tr M, and the log-loss.

    A peer has the distances of both legs of a comparison or, without columns, an embedding of the objects.  If it says
    that their difference is a logit, its log-loss is computed, with the share of answers that it says are turned round.
    """
    found: dict[str, float] = {}
    truth = data.truth
    if "embedding" in answers:
        margins = _margins(answers["embedding"], truth["index"])
    else:
        margins = answers["far_pairs.farness"] - answers["near_pairs.farness"]
    said = np.where(margins >= 0, 1, -1)
    found["true_agreement"] = float(np.mean(said == truth["true_answers"]))
    found["noisy_agreement"] = float(np.mean(said == truth["answers"]))
    if "new_true_answers" in truth and "new_far_pairs.farness" in answers:
        new = answers["new_far_pairs.farness"] - answers["new_near_pairs.farness"]
        found["new_agreement"] = float(np.mean(np.where(new >= 0, 1, -1) == truth["new_true_answers"]))
    if "metric" in truth and "metric" in answers:
        found["metric_error"] = relative_error(answers["metric"] / np.trace(answers["metric"]), truth["metric"])
    if "turned_share" in answers:
        share = float(answers["turned_share"])
        right = share + (1.0 - 2.0 * share) / (1.0 + np.exp(-np.clip(truth["answers"] * margins, -500.0, 500.0)))
        found["log_loss"] = float(-np.mean(np.log(np.clip(right, 1e-12, 1.0))))
    return found
