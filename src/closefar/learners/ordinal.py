"""The estimator for levels of pairs."""

from __future__ import annotations

import os
from typing import Any, Self

from closefar.judgements import Judgements, is_partitioned, read_judgements
from closefar.learners.fitting_learner import FittingLearner
from closefar.model import Metric
from closefar.noise import Noise

__all__ = ["OrdinalMetricLearner"]


class OrdinalMetricLearner(FittingLearner):
    """Learn a Mahalanobis metric and thresholds from pairs that were rated on a scale of levels.

    Minimises the mean of -log P(level) over M positive semidefinite and thresholds
    0 <= tau_1 <= ... <= tau_{K-1}, where P(level k) = Phi(z'Mz - tau_k) - Phi(z'Mz - tau_{k+1}) and level 0
    is the closest (a cumulative link model), and proves how close the result is to the global minimum.
    With two levels this is `LinearMetricLearner`.

    Parameters
    ----------
    levels : sequence, optional
        The levels from the closest to the farthest.  By default numbers are in their order, and an ordered
        categorical has its own; words need an order.
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the noise.  Logistic noise gives the proportional-odds model.
    flip_rate : "auto", float or "estimate", default="auto"
        The share of answers that were drawn from all levels with equal probability, in addition to those that are
        wrong because of noise.
    class_weight : dict or "balanced", optional
        Weights of the levels, as in scikit-learn.
    alpha, prior, rank, solver, tol, max_iter, device, warm_start, random_state, verbose
        As in `LinearMetricLearner`.

    Attributes
    ----------
    classes_ : array of K levels, from the closest to the farthest
        The columns of `predict_proba` are in this order.  Scorers of probabilities in scikit-learn need levels that
        also sort in it, as numbers do.
    thresholds_ : array of K - 1 numbers
        The thresholds on the squared distance.
    metric_, certificate_, history_, components_, n_iter_, choice_, baseline_, alpha_, prior_, rank_, flip_rate_, \
annotators_, comparison_noise_, fit_statistics_, fit_
        As in `LinearMetricLearner`.

    Examples
    --------
    >>> import numpy as np
    >>> import closefar as cf
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.normal(size=(2000, 2, 3))
    >>> squared = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=2000)
    >>> ratings = np.digitize(squared, [2.0, 5.0, 9.0])
    >>> learner = cf.OrdinalMetricLearner().fit(pairs, ratings)
    >>> learner.thresholds_.shape
    (3,)
    >>> learner.predict(pairs[:5]).tolist()
    [0, 3, 1, 1, 1]
    """

    def __init__(
        self,
        levels: Any = None,
        noise: str | Noise = "logistic",
        *,
        alpha: float | str = "auto",
        prior: str | Metric = "auto",
        rank: int | str | None = None,
        flip_rate: float | str = "auto",
        class_weight: Any = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        device: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        annotators: Any = None,
        comparisons: Any = None,
        comparison_noise: float | str = 1.0,
        feature_names: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        max_time: float | None = None,
    ) -> Self:
        """Learn from rated pairs.

        Parameters
        ----------
        X : array or frame of shape (n, d), or array of shape (n, 2, d)
            Differences or pairs, as for `LinearMetricLearner.fit`; not on a cluster.
        y : array of n levels
            Numbers, an ordered categorical of pandas, or words in the order of the parameter `levels`.  Each level
            must have been used.
        sample_weight, groups, annotators, comparisons, comparison_noise, feature_names, checkpoint, max_time
            As for `LinearMetricLearner.fit`.
        """
        more = {"annotators": annotators, "comparisons": comparisons}
        limits = {"comparison_noise": comparison_noise, "max_time": max_time}
        return self._fit(
            X, y, sample_weight, **more, groups=groups, names=feature_names, checkpoint=checkpoint, limits=limits
        )

    def _read(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        annotators: Any = None,
        comparisons: Any = None,
    ) -> Judgements:
        return read_judgements(
            estimator,
            X,
            y,
            sample_weight,
            levels=self.levels,
            is_graded=True,
            annotators=annotators,
            comparisons=comparisons,
            stacklevel=5,
        )

    def decision_function(self, X: Any, annotator: Any = None) -> Any:
        """Return the squared distance of each pair, to compare with `thresholds_`.

        The strictness of an annotator, if one is named, is subtracted from it; `annotator` is as for `predict`.
        """
        return super().decision_function(X, annotator)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, weighted if there are weights; opened pairs may have their own levels."""
        if is_partitioned(X):
            return super().score(X, y, sample_weight)
        given = Judgements.read_more(self, X, y, sample_weight, sides=self._fitted().sides)
        return given.mean(self.predict(given.data) == self.classes_[given.codes])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags
