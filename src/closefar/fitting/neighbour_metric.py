"""A metric for nearest neighbours: that of the classes, with a share of the distance in all columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.neighbors import NearestNeighbors

from closefar.arrays import BoolArray, FloatArray
from closefar.fitting.class_labels import ClassPosterior
from closefar.model import Metric

__all__ = ["neighbour_metric"]

# Shares of the plain distance relative to the learned one; at last it replaces that one.
_SHARES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

_FOLDS = 3

# Held-out points are scored by this many neighbours, with as many votes added for each class.
_N_NEIGHBOURS = (3, 7)
_ADDED_VOTES = 0.3

# Blends are compared on this many points, drawn at random if there are more.
_MOST_SCORED = 6_000


def neighbour_metric(
    points: FloatArray,
    posterior: ClassPosterior,
    learn: Callable[[BoolArray], Metric],
    *,
    units: str,
    rng: np.random.Generator,
) -> Metric:
    """Blend a metric that separates classes with the distance in all columns.

    A metric that separates classes leaves out the directions in which points of one class differ, but these also say
    which points are alike.  Blends with different shares predict the classes of held-out points from their nearest
    neighbours; the result is the average of all blends, weighted by the likelihood of those classes.

    Parameters
    ----------
    points : array of shape (n, d)
    posterior : ClassPosterior
    learn : callable
        Gets which points to learn from, and returns their metric.
    units : {"auto", "columns", "shared"}
        As in `ClassMetricLearner`.
    rng : Generator

    Returns
    -------
    Metric
        Without a threshold.
    """
    varies = points.min(axis=0) < points.max(axis=0)
    scales = np.where(varies, points.std(axis=0), 0.0)
    plain = {"columns": np.diag(varies.astype(float)), "shared": np.diag(scales**2)}
    bases = list(plain.values()) if units == "auto" else [plain[units]]
    scales = np.where(varies, scales, 1.0)
    unit_free = (points - points.mean(axis=0)) / scales
    covariance = np.atleast_2d(np.cov(unit_free.T))

    def blends(metric: Metric) -> list[FloatArray]:
        return _blends(metric.factor * scales[:, None], bases, covariance)

    fold = rng.permutation(np.arange(len(points)) % _FOLDS)
    scored = np.zeros(len(points), dtype=bool)
    scored[rng.permutation(len(points))[:_MOST_SCORED]] = True
    scores = np.zeros(0)
    for held in range(_FOLDS):
        train, test = scored & (fold != held), scored & (fold == held)
        metric = learn(fold != held)
        found = [_score(unit_free @ _root(blend), posterior.probabilities, train, test) for blend in blends(metric)]
        scores = np.array(found) if held == 0 else scores + found
    weights = np.exp(scores - scores.max())
    learned = learn(np.ones(len(points), dtype=bool))
    blend = np.tensordot(weights / weights.sum(), np.array(blends(learned)), axes=1)
    names = learned.feature_names
    scaling = np.diag(1.0 / scales)
    return Metric.from_data_scale(scaling, _root(blend), (), second_moment=covariance, feature_names=names)


def _blends(factor: FloatArray, bases: list[FloatArray], covariance: FloatArray) -> list[FloatArray]:
    """The learned matrix, the bases, and sums of both, each with a mean squared distance of one."""
    bases = [base / np.sum(base * covariance) for base in bases]
    learned = factor @ factor.T
    size = np.sum(learned * covariance)
    learned = learned / size if size > 0 else learned
    return [learned, *bases, *(learned + share * base for base in bases for share in _SHARES)]


def _score(mapped: FloatArray, probabilities: FloatArray, train: BoolArray, test: BoolArray) -> float:
    """The expected log-likelihood of the classes of test points, predicted from their nearest training points."""
    n_classes = probabilities.shape[1]
    if mapped.shape[1] == 0:
        return -float(test.sum() * np.log(n_classes))
    search = NearestNeighbors(n_neighbors=min(max(_N_NEIGHBOURS), int(train.sum()))).fit(mapped[train])
    nearest = search.kneighbors(mapped[test], return_distance=False)
    votes = np.cumsum(probabilities[train][nearest], axis=1)
    total = 0.0
    for count in _N_NEIGHBOURS:
        counted = votes[:, min(count, votes.shape[1]) - 1] + _ADDED_VOTES
        shares = counted / counted.sum(axis=1, keepdims=True)
        total += float(np.sum(probabilities[test] * np.log(shares)))
    return total / len(_N_NEIGHBOURS)


def _root(matrix: FloatArray) -> FloatArray:
    """A with M = A A'."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > max(values[-1], 0.0) * len(values) * np.finfo(float).eps
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
