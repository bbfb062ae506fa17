"""A metric for nearest neighbours: that of the classes, with a share of the distance in all columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.neighbors import NearestNeighbors

from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.model import Metric
from closefar.solve import psd_factor

# ---------------------------------------------------------------------------------------------------------------------
# Which classes points belong to, if some of their labels are wrong.


_MOST_NEIGHBOURS = 20  # that vote on the class of a point
_FEWEST_NEIGHBOURS = 3  # enough for a majority

# The share of the distance in all columns, relative to that along the directions that separate the classes.
_ALL_COLUMNS = 0.3

# The share of the mean variance that is added to the scatter within classes.
_RIDGE = 0.1

_ROUNDS = 5  # of classes and the metric that separates them, in turn

# Shares of wrong labels that are averaged over, by their likelihood, as parts of the largest one that can be told.
_SHARES = np.concatenate([[0.0, 0.01, 0.02, 0.04], np.linspace(0.07, 0.99, 18)])
_LARGEST_WRONG_SHARE = 0.9  # of what labels at random would have

# The prior density of the share falls like (1 - share / largest) to this power: few points can't tell wrong labels from
# classes that overlap, and then labels are believed.
_PRIOR_POWER = 1.0

_INTERVAL = (0.05, 0.95)  # of the posterior of the share of wrong labels

# Added to the votes for each class, so that none is impossible.
_ADDED_VOTES = 0.5

# Normal priors of the sharpness and of the intercepts of the classes: they matter to few points only.
_SHARPNESS = (1.0, 3.0)
_INTERCEPT_WIDTH = 3.0  # standard deviation, in log odds
_LARGEST_SHARPNESS = 20.0  # a bound for the search, six standard deviations of the prior away

# Neighbours are looked for among this many points, and the model is fitted to this many, drawn at random if there are
# more.
_MOST_REFERENCES = 20_000
_MOST_FITTED = 5_000  # points


@dataclass(frozen=True, eq=False)
class ClassPosterior:
    """The probability of each class for each point, and the share of wrong labels.

    Attributes
    ----------
    probabilities : array of shape (n, n_classes)
    wrong_share : float
        The mean probability that a label is wrong.
    share_interval : tuple of two floats
        The share of wrong labels is in between with a probability of 90 %.
    """

    probabilities: FloatArray
    wrong_share: float
    share_interval: tuple[float, float] = (0.0, 0.0)

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

    A point is of class k with a probability proportional to exp(b_k) (v_k + 1/2)^s, where v_k neighbours have label k:
    with sharpness s = 1 these are the shares of the neighbours, and a larger s discounts wrong labels among them.  The
    label of the point is its class with probability 1 - rho, and otherwise any other class alike.  So wrong labels are
    told apart from classes that overlap: they also occur where all neighbours agree.  s and b are fitted to all labels
    for each rho, and posteriors are averaged over rho, by its likelihood, unless `wrong_share` gives it.

    Neighbours are those in the directions that separate the classes, with a share of all columns; both are computed
    in turns.

    Parameters
    ----------
    points : array of shape (n, d)
    codes : array of shape (n,)
        The labels, as numbers of classes.
    """
    n_neighbours = min(_MOST_NEIGHBOURS, max(_FEWEST_NEIGHBOURS, len(codes) // (2 * n_classes)), len(codes) - 1)
    references = _drawn(len(codes), _MOST_REFERENCES, rng)
    fitted = _drawn(len(codes), _MOST_FITTED, rng)
    points = points[:, points.min(axis=0) < points.max(axis=0)]
    if points.shape[1] == 0:
        raise ValueError("points must differ in some column; got points that are all the same.")
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    labels = np.eye(n_classes)[codes]
    found = ClassPosterior.certain(codes, n_classes)
    for _ in range(_ROUNDS):
        separated = points @ _discriminant(points, found.probabilities)
        shares = np.sqrt([1.0 / _total_variance(separated), _ALL_COLUMNS / _total_variance(points)])
        mapped = np.hstack([shares[0] * separated, shares[1] * points])
        votes = labels[_neighbours(mapped, references, n_neighbours)].sum(axis=1)
        found = _posterior(np.log(votes + _ADDED_VOTES), codes, fitted, wrong_share)
    return found


def _drawn(n: int, most: int, rng: np.random.Generator) -> IndexArray:
    return np.arange(n) if n <= most else rng.choice(n, most, replace=False)


def _posterior(logs: FloatArray, codes: IndexArray, fitted: IndexArray, wrong_share: float | None) -> ClassPosterior:
    """The posterior given the logarithm of the votes for each class, averaged over the share of wrong labels."""
    n_classes = logs.shape[1]
    largest = _LARGEST_WRONG_SHARE * (1.0 - 1.0 / n_classes)
    shares = largest * _SHARES if wrong_share is None else np.array([min(wrong_share, largest)])
    parameters, scores = np.append(np.zeros(n_classes), _SHARPNESS[0]), np.empty(len(shares))
    found = []
    for number, share in enumerate(shares):
        parameters, scores[number] = _fitted(logs[fitted], codes[fitted], share, parameters)
        found.append(parameters)
    if wrong_share is None:
        scores += _PRIOR_POWER * np.log1p(-_SHARES) + np.log(np.gradient(_SHARES))
    weights = softmax(scores)
    probabilities = np.zeros_like(logs)
    for share, weight, parameters in zip(shares, weights, found, strict=True):
        probabilities += weight * _given_label(_given_votes(logs, parameters), codes, share)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    wrong_share = float(1.0 - probabilities[np.arange(len(codes)), codes].mean())
    ends = np.interp(_INTERVAL, np.cumsum(weights) - weights / 2, shares)
    return ClassPosterior(
        probabilities, wrong_share, (min(float(ends[0]), wrong_share), max(float(ends[1]), wrong_share))
    )


def _given_votes(logs: FloatArray, parameters: FloatArray) -> FloatArray:
    return np.asarray(softmax(parameters[:-1] + parameters[-1] * logs, axis=1))


def _given_label(probabilities: FloatArray, codes: IndexArray, share: float) -> FloatArray:
    """The posterior of the classes, from the probabilities without the point's own label."""
    joint = probabilities * (share / (probabilities.shape[1] - 1))
    own = np.arange(len(codes)), codes
    joint[own] = probabilities[own] * (1.0 - share)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def _fitted(logs: FloatArray, codes: IndexArray, share: float, start: FloatArray) -> tuple[FloatArray, float]:
    """The likeliest intercepts and sharpness at this share of wrong labels, and their log posterior density."""
    n, n_classes = logs.shape
    labels, other = np.eye(n_classes)[codes], share / (n_classes - 1)
    centre, widths = np.zeros(n_classes + 1), np.full(n_classes + 1, _INTERCEPT_WIDTH)
    centre[-1], widths[-1] = _SHARPNESS

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        probabilities = _given_votes(logs, parameters)
        own = probabilities[np.arange(n), codes]
        label = np.maximum(other + (1.0 - share - other) * own, np.finfo(float).tiny)
        slopes = ((1.0 - share - other) * own / label)[:, None] * (labels - probabilities)
        off = (parameters - centre) / widths
        gradient = np.append(slopes.sum(axis=0), np.sum(slopes * logs))
        return float(off @ off / 2 - np.log(label).sum()), off / widths - gradient

    bounds = [(None, None)] * n_classes + [(0.0, _LARGEST_SHARPNESS)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x), -float(found.fun)


def _discriminant(points: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Linear discriminant directions of points that belong to classes with these probabilities."""
    counts = np.maximum(probabilities.sum(axis=0), 1e-12)
    means = probabilities.T @ points / counts[:, None]
    between = means.T @ (means * (counts / len(points))[:, None])
    within = points.T @ points / len(points) - between
    n = points.shape[1]
    size = max(float(np.trace(within)) / n, _RIDGE**2)  # classes may be points
    within = (1.0 - _RIDGE) * within + _RIDGE * size * np.eye(n)
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


# ---------------------------------------------------------------------------------------------------------------------
# Pairs of points whose classes are not certain: each is close with some probability, and far with the rest.


# A pair is left out of the side to which it belongs with a smaller probability.
_CLASS_PAIRS_SMALLEST_WEIGHT = 0.01


def class_pairs(
    posterior: ClassPosterior, n_pairs: int, rng: np.random.Generator
) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Draw pairs, half of them of one class; return the points of each, its label (-1 close, +1 far) and its weight.

    A pair whose classes are uncertain occurs twice, as close and as far, with weights that sum to one.
    """
    codes = posterior.codes
    index = np.vstack([_of_one_class(codes, n_pairs // 2, rng), _of_two_classes(codes, n_pairs - n_pairs // 2, rng)])
    left, right = posterior.probabilities[index[:, 0]], posterior.probabilities[index[:, 1]]
    far = 1.0 - np.sum(left * right, axis=1)
    weights = np.concatenate([1.0 - far, far])
    labels = np.repeat([-1, 1], len(index))
    kept = weights > _CLASS_PAIRS_SMALLEST_WEIGHT
    return np.vstack([index, index])[kept], labels[kept], weights[kept]


def _by_class(codes: IndexArray) -> tuple[IndexArray, IndexArray, IndexArray]:
    """The points in the order of their classes, and the number of each class and where it starts."""
    counts = np.bincount(codes)
    return np.argsort(codes, kind="stable"), counts, np.cumsum(counts) - counts


def _of_one_class(codes: IndexArray, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """A random point whose class has another one, and a random other point of that class."""
    order, counts, starts = _by_class(codes)
    place = np.empty(len(codes), dtype=np.int64)
    place[order] = np.arange(len(codes))
    anchors = np.flatnonzero(counts[codes] > 1)
    if len(anchors) == 0:
        raise ValueError("a class must have two points at least; got one point of each. Merge rare classes.")
    first = rng.choice(anchors, n_pairs)
    size, start = counts[codes[first]], starts[codes[first]]
    step = 1 + (rng.random(n_pairs) * (size - 1)).astype(np.int64)
    return np.column_stack([first, order[start + (place[first] - start + step) % size]])


def _of_two_classes(codes: IndexArray, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """A random point, and a random point of another class."""
    order, counts, starts = _by_class(codes)
    first = rng.integers(len(codes), size=n_pairs)
    size, start = counts[codes[first]], starts[codes[first]]
    place = (rng.random(n_pairs) * (len(codes) - size)).astype(np.int64)  # among the points of the other classes
    return np.column_stack([first, order[np.where(place < start, place, place + size)]])


# Shares of the plain distance relative to the learned one; at last it replaces that one.
_NEIGHBOUR_METRIC_SHARES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

_CLASS_FOLDS = 3  # each blend is learned on two thirds of the points

# Held-out points are scored by this many neighbours, with as many votes added for each class.
_N_NEIGHBOURS = (3, 7)
_NEIGHBOUR_METRIC_ADDED_VOTES = 0.3  # for each class

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

    fold = rng.permutation(np.arange(len(points)) % _CLASS_FOLDS)
    scored = np.zeros(len(points), dtype=bool)
    scored[rng.permutation(len(points))[:_MOST_SCORED]] = True
    scores = np.zeros(0)
    for held in range(_CLASS_FOLDS):
        train, test = scored & (fold != held), scored & (fold == held)
        metric = learn(fold != held)
        found = [
            _score(unit_free @ psd_factor(blend), posterior.probabilities, train, test) for blend in blends(metric)
        ]
        scores = np.array(found) if held == 0 else scores + found
    weights = np.exp(scores - scores.max())
    learned = learn(np.ones(len(points), dtype=bool))
    blend = np.tensordot(weights / weights.sum(), np.array(blends(learned)), axes=1)
    names = learned.feature_names
    scaling = np.diag(1.0 / scales)
    return Metric.from_data_scale(scaling, psd_factor(blend), (), second_moment=covariance, feature_names=names)


def _blends(factor: FloatArray, bases: list[FloatArray], covariance: FloatArray) -> list[FloatArray]:
    """The learned matrix, the bases, and sums of both, each with a mean squared distance of one."""
    bases = [base / np.sum(base * covariance) for base in bases]
    learned = factor @ factor.T
    size = np.sum(learned * covariance)
    learned = learned / size if size > 0 else learned
    return [learned, *bases, *(learned + share * base for base in bases for share in _NEIGHBOUR_METRIC_SHARES)]


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
        counted = votes[:, min(count, votes.shape[1]) - 1] + _NEIGHBOUR_METRIC_ADDED_VOTES
        shares = counted / counted.sum(axis=1, keepdims=True)
        total += float(np.sum(probabilities[test] * np.log(shares)))
    return total / len(_N_NEIGHBOURS)
