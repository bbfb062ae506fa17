"""Which classes points belong to, if some of their labels are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from sklearn.neighbors import NearestNeighbors

from closefar.arrays import FloatArray, IndexArray

__all__ = ["ClassPosterior", "class_posterior"]

_MOST_NEIGHBOURS = 20
_FEWEST_NEIGHBOURS = 3

# The label of a neighbour counts as half of one: neighbours are not independent, and some are of another class.
_NEIGHBOUR_WEIGHT = 0.5

# The share of the distance in all columns, relative to that along the directions that separate the classes.
_ALL_COLUMNS = 0.3

# The share of the mean variance that is added to the scatter within classes.
_RIDGE = 0.1

_ROUNDS = 5
_STEPS = 30
_SMALLEST_SHARE = 1e-3

# Neighbours are looked for among this many points, drawn at random if there are more.
_MOST_REFERENCES = 20_000


@dataclass(frozen=True, eq=False)
class ClassPosterior:
    """The probability of each class for each point, and the share of wrong labels.

    Attributes
    ----------
    probabilities : array of shape (n, n_classes)
    wrong_share : float
        The mean probability that a label is wrong.
    """

    probabilities: FloatArray
    wrong_share: float

    @property
    def codes(self) -> IndexArray:
        """The most probable class of each point."""
        codes: IndexArray = self.probabilities.argmax(axis=1)
        return codes

    @classmethod
    def certain(cls, codes: IndexArray, n_classes: int) -> ClassPosterior:
        """Every label is right."""
        return cls(np.eye(n_classes)[codes], 0.0)


def class_posterior(
    points: FloatArray, codes: IndexArray, n_classes: int, rng: np.random.Generator, wrong_share: float | None = None
) -> ClassPosterior:
    """Estimate the class of each point from its own label and from those of its nearest neighbours.

    A label is right with probability 1 - rho and otherwise any other class alike; given the class of a point, its
    label and those of its neighbours are independent, and a neighbour counts as half.  The posterior of the classes,
    their shares and rho (unless `wrong_share` gives it) are found by expectation maximisation.  Neighbours are those
    in the directions that separate the classes, with a share of all columns; both are computed in turns.

    Parameters
    ----------
    points : array of shape (n, d)
    codes : array of shape (n,)
        The labels, as numbers of classes.
    """
    n_neighbours = min(_MOST_NEIGHBOURS, max(_FEWEST_NEIGHBOURS, len(codes) // (2 * n_classes)), len(codes) - 1)
    references = np.arange(len(codes))
    if len(codes) > _MOST_REFERENCES:
        references = rng.choice(len(codes), _MOST_REFERENCES, replace=False)
    scales = points.std(axis=0)
    if not np.any(scales > 0):
        raise ValueError("points must differ in some column; got points that are all the same.")
    points = (points - points.mean(axis=0))[:, scales > 0] / scales[scales > 0]
    found = ClassPosterior.certain(codes, n_classes)
    for _ in range(_ROUNDS):
        separated = points @ _discriminant(points, found.probabilities)
        shares = np.sqrt([1.0 / _total_variance(separated), _ALL_COLUMNS / _total_variance(points)])
        mapped = np.hstack([shares[0] * separated, shares[1] * points])
        neighbours = _neighbours(mapped, references, n_neighbours)
        found = _expected(np.eye(n_classes)[codes], neighbours, wrong_share)
    return found


def _expected(labels: FloatArray, neighbours: IndexArray, wrong_share: float | None) -> ClassPosterior:
    n_classes = labels.shape[1]
    votes = _NEIGHBOUR_WEIGHT * labels[neighbours].sum(axis=1) + labels
    n_votes = 1.0 + _NEIGHBOUR_WEIGHT * neighbours.shape[1]
    largest = 0.9 * (1.0 - 1.0 / n_classes)
    prior, share = np.full(n_classes, 1.0 / n_classes), 0.1 if wrong_share is None else wrong_share
    for _ in range(_STEPS):
        known = min(max(share, _SMALLEST_SHARE), largest)
        right, wrong = np.log1p(-known), np.log(known / (n_classes - 1))
        logs = np.log(prior) + votes * right + (n_votes - votes) * wrong
        probabilities = np.exp(logs - logs.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        prior = np.maximum(probabilities.mean(axis=0), 1.0 / len(labels) ** 2)
        if wrong_share is None:
            share = float(1.0 - np.sum(probabilities * labels) / len(labels))
    return ClassPosterior(probabilities, float(1.0 - np.sum(probabilities * labels) / len(labels)))


def _discriminant(points: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Linear discriminant directions of points that belong to classes with these probabilities."""
    counts = np.maximum(probabilities.sum(axis=0), 1e-12)
    means = probabilities.T @ points / counts[:, None]
    between = means.T @ (means * (counts / len(points))[:, None])
    within = points.T @ points / len(points) - between
    n = points.shape[1]
    within = (1.0 - _RIDGE) * within + _RIDGE * np.trace(within) / n * np.eye(n)
    _, directions = eigh(between, within)
    return np.asarray(directions[:, ::-1][:, : probabilities.shape[1] - 1])


def _total_variance(points: FloatArray) -> float:
    return max(float(points.var(axis=0).sum()), np.finfo(float).tiny)


def _neighbours(points: FloatArray, references: IndexArray, n_neighbours: int) -> IndexArray:
    """The nearest references of each point, without the point itself."""
    search = NearestNeighbors(n_neighbors=min(n_neighbours + 1, len(references))).fit(points[references])
    found: IndexArray = references[search.kneighbors(points, return_distance=False)]
    itself = found == np.arange(len(points))[:, None]
    itself[~itself.any(axis=1), -1] = True  # not among the references, or behind others at the same place
    others: IndexArray = found[~itself].reshape(len(points), -1)
    return others
