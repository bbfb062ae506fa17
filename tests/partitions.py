"""Judgements of every kind in partitions: by dask arrays, or loaded by a function."""

from __future__ import annotations

import numpy as np
import pytest

import closefar as cf
from closefar.judgements import Partition, Partitions, Tuples
from paper_estimator import PAPER

RNG = np.random.default_rng(0)
N = 700
Z = RNG.standard_normal((N, 4)) @ np.triu(np.ones((4, 4)))
SQUARED = np.sum(Z[:, :2] ** 2, axis=1) + RNG.logistic(size=N)
LABELS, LEVELS = (SQUARED > 5.0).astype(int), np.digitize(SQUARED, [2.0, 6.0])
WEIGHTS = RNG.random(N) + 0.5


def cut(n, n_partitions):
    """The first and last row of each partition; their sizes differ."""
    sizes = np.arange(1, n_partitions + 1) + 3
    ends = np.round(n * np.cumsum(sizes) / sizes.sum()).astype(int)
    return list(zip([0, *ends[:-1]], ends, strict=True))


class Loader:
    """Loads a part of arrays in memory; the arrays travel with it."""

    def __init__(self, data, labels, weights=None):
        self.data, self.labels, self.weights = data, labels, weights

    def __call__(self, task, shared):
        where = slice(*task)
        weights = None if self.weights is None else self.weights[where]
        return Partition(self.data[where], self.labels[where], weights)


def partitioned(data, labels, weights=None, *, n_partitions=5, tasks=None, load=None, client=None):
    """These judgements in partitions."""
    return Partitions(
        tuple(cut(len(labels), n_partitions) if tasks is None else tasks),
        Loader(data, labels, weights) if load is None else load,
        n_columns=data.shape[-1],
        are_pairs=data.ndim == 3,
        has_weights=weights is not None,
        client=client,
    )


def bits(learner):
    """The parts of a fit that must be the same to the last bit."""
    metric, certificate = learner.metric_, learner.certificate_
    return metric.factor.tobytes(), metric.threshold, certificate.loss, certificate.gap


# Every kind of judgement: the learner, and the data as for `fit`.


def judged(kind="pairs", n=400, d=3, seed=0, **more):
    found = cf.datasets.make_judgements(n, d, kind=kind, random_state=seed, **more)
    return {"X": found.tuples, "y": found.labels} | (
        {} if found.annotators is None else {"annotators": found.annotators}
    )


def mixed(kind="triplets", **more):
    compared = judged(kind, 200, noise_scale=0.5)
    return judged(noise_scale=0.5, **more) | {"comparisons": (compared["X"], compared["y"])}


PANEL = {"n_annotators": 6, "strictness_spread": 1.0}
PARAMETERS = {"tol": 1e-10} | PAPER
LINEAR, ORDINAL, COMPARISON = (
    lambda learner=learner, **parameters: learner(**PARAMETERS | parameters)
    for learner in (cf.LinearMetricLearner, cf.OrdinalMetricLearner, cf.ComparisonMetricLearner)
)
POINTS = RNG.standard_normal((N, 3)) + 2.0
INSIDE = np.sum((POINTS - 2.0) ** 2, axis=1) + RNG.logistic(size=N) > 3.0
KINDS = {
    "pairs": (LINEAR(), judged()),
    "differences": (LINEAR(), {"X": Z, "y": LABELS, "sample_weight": WEIGHTS}),
    "pairs by index": (LINEAR(), judged(n_points=60)),
    "noise": (LINEAR(noise="auto"), {"X": Z, "y": LABELS}),
    "sampled": (LINEAR(solver="sampled", tol=1e-12), {"X": Z, "y": LABELS}),
    "low rank": (LINEAR(rank=2, tol=1e-8), judged()),
    "penalty": (LINEAR(solver="lowrank", alpha=0.05, tol=1e-8), judged()),
    "centre": (LINEAR(alpha=0.02, prior="euclidean"), judged()),
    "units": (LINEAR(alpha=0.02, prior="standardized"), judged()),
    "classes": (LINEAR(class_weight="balanced"), {"X": Z, "y": LABELS, "sample_weight": WEIGHTS}),
    "class weights": (LINEAR(class_weight={0: 2.0, 1: 0.5}), {"X": Z, "y": LABELS}),
    "weights of zero": (LINEAR(), {"X": Z, "y": LABELS, "sample_weight": np.where(np.arange(N) % 3, WEIGHTS, 0.0)}),
    "flips": (LINEAR(flip_rate="estimate"), judged(n=800, flip_rate=0.1)),
    "flips of sides": (LINEAR(flip_rate="two"), judged(n=1500, flip_rate=(0.05, 0.2))),
    "origin": (LINEAR(fit_origin=True), {"X": POINTS, "y": INSIDE}),
    "levels": (ORDINAL(), judged("levels")),
    "levels with a penalty": (ORDINAL(solver="lowrank", alpha=0.05, tol=1e-8), judged("levels")),
    "weighted levels": (ORDINAL(), {"X": Z, "y": LEVELS, "sample_weight": WEIGHTS}),
    "triplets": (COMPARISON(), judged("triplets")),
    "quadruplets": (COMPARISON(solver="lowrank", alpha=0.05, tol=1e-8), judged("quadruplets")),
    "pairs and triplets": (LINEAR(), mixed()),
    "pairs and quadruplets": (LINEAR(alpha=0.01), mixed("quadruplets")),
    "noise of comparisons": (LINEAR(tol=1e-7), mixed() | {"comparison_noise": "estimate"}),
    "annotators": (LINEAR(), judged(**PANEL)),
    "annotators of levels": (ORDINAL(), judged("levels", **PANEL)),
    "annotators who flip": (LINEAR(flip_rate="estimate", tol=1e-8), judged(n=800, flip_rate=0.1, **PANEL)),
    "annotators and triplets": (LINEAR(), mixed(**PANEL)),
    "chosen": (cf.LinearMetricLearner(), judged()),
    "chosen levels": (cf.OrdinalMetricLearner(), judged("levels")),
}


def on_dask(values, n_partitions=4):
    """The data of a fit as dask arrays, with the points of tuples as they are."""
    import dask.array as da

    if isinstance(values, dict):
        sizes = {"comparisons": 3}
        return {name: on_dask(each, sizes.get(name, n_partitions)) for name, each in values.items()}
    if isinstance(values, tuple):
        return tuple(on_dask(each, n_partitions) for each in values)
    if isinstance(values, Tuples):
        return Tuples(values.points, on_dask(values.index, n_partitions))
    if isinstance(values, str):
        return values
    array = np.asarray(values)
    return da.from_array(array, chunks=(len(array) // n_partitions + 1, *array.shape[1:]))


def check_same(there, here, data):
    """Two fits to these data found the same minimum, and say the same of it."""
    assert there.certificate_.loss == pytest.approx(here.certificate_.loss, abs=1e-8)
    asked = data["X"] if isinstance(here, cf.ComparisonMetricLearner) else np.asarray(data["X"])[:200]
    np.testing.assert_allclose(there.predict_proba(asked), here.predict_proba(asked), rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(np.ravel(there.flip_rate_), np.ravel(here.flip_rate_), atol=1e-5)
    for name in ("accuracy", "null_loss", "uncertain_labels", "n_pairs", "wrong_share"):
        found, expected = (getattr(each.fit_statistics_, name) for each in (there, here))
        assert found == (expected if expected is None else pytest.approx(expected, rel=1e-5)), name
    if "annotators" in data:
        np.testing.assert_allclose(there.annotators_.strictness, here.annotators_.strictness, atol=1e-5)
    if "comparisons" in data:
        assert there.comparison_noise_.value == pytest.approx(here.comparison_noise_.value, rel=1e-4)
    if getattr(here, "fit_origin", False):
        np.testing.assert_allclose(there.metric_.origin, here.metric_.origin, atol=1e-4)
