"""The estimator for comparisons: triplets and quadruplets."""

from __future__ import annotations

import os
from typing import Any, Self

from closefar.arrays import FloatArray
from closefar.fitting import CalibratedThreshold, calibrate_threshold
from closefar.judgements import Judgements
from closefar.learners.fitting_learner import FittingLearner
from closefar.model import Metric
from closefar.noise import Noise

__all__ = ["ComparisonMetricLearner"]


class ComparisonMetricLearner(FittingLearner):
    """Learn a Mahalanobis metric from comparisons of distances.

    A triplet (a, b, c) says that a is closer to b than to c, and a quadruplet (a, b, c, e) that a and b are
    closer than c and e.  Minimises the mean of -log Phi(q(far) - q(near)) over M positive semidefinite, where
    q(z) = z'Mz and Phi is the CDF of the noise, and proves how close the result is to the global minimum.
    There is no threshold: `calibrate_threshold` fits one to labelled pairs.

    Parameters
    ----------
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the noise.
    flip_rate : "auto", float or "estimate", default="auto"
        The share of answers that are reversed regardless of the distances, in addition to those that are wrong
        because of noise.
    alpha, prior, rank, solver, tol, max_iter, device, warm_start, random_state, verbose
        As in `LinearMetricLearner`.

    Attributes
    ----------
    classes_ : array([-1, 1])
        +1 is a comparison as its points are given, and -1 a reversed one.
    metric_, certificate_, history_, components_, n_iter_, choice_, baseline_, alpha_, prior_, rank_, flip_rate_, \
fit_statistics_, fit_
        As in `LinearMetricLearner`; ``metric_.threshold`` is None.

    Examples
    --------
    >>> import numpy as np
    >>> import closefar as cf
    >>> rng = np.random.default_rng(0)
    >>> triplets = rng.normal(size=(2000, 3, 2))
    >>> near, far = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2 * [1.0, 4.0], axis=1) for k in (1, 2))
    >>> answers = np.where(far - near + rng.logistic(size=2000) >= 0, 1, -1)
    >>> learner = cf.ComparisonMetricLearner().fit(triplets, answers)
    >>> bool(learner.score(triplets, answers) > 0.9)
    True
    >>> learner.predict(triplets[:5]).tolist()
    [1, -1, 1, 1, -1]
    """

    def __init__(
        self,
        noise: str | Noise = "logistic",
        *,
        alpha: float | str = "auto",
        prior: str | Metric = "auto",
        rank: int | str | None = None,
        flip_rate: float | str = "auto",
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
        feature_names: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        max_time: float | None = None,
    ) -> Self:
        """Learn from comparisons.

        Parameters
        ----------
        X : array of shape (n, 3, d) or (n, 4, d), or Tuples
            Triplets or quadruplets of points, in an array or by index (`closefar.Tuples` with three or four
            columns).
        y : array of n numbers +1 or -1, optional
            Whether each comparison is as its points are given (+1), or reversed (-1); by default all are as given.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 is equivalent to repeating the comparison.
        groups : array of shape (n,), (n, 3) or (n, 4), optional
            What is held out together when settings are chosen: a group per comparison, or the ids of its points.
        feature_names, checkpoint, max_time
            As for `LinearMetricLearner.fit`.
        """
        rest = {"groups": groups, "names": feature_names, "checkpoint": checkpoint, "limits": {"max_time": max_time}}
        return self._fit(X, y, sample_weight, noun="comparisons", **rest)

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
        if annotators is not None or comparisons is not None:
            given = "annotators" if annotators is not None else "comparisons"
            raise ValueError(
                f"{given} belong to pairs, not to comparisons; got {given} for a ComparisonMetricLearner. Leave them "
                "out, or fit pairs with a LinearMetricLearner."
            )
        return Judgements.read_comparisons(estimator, X, y, sample_weight, fitting=True)

    def predict(self, X: Any) -> Any:
        """Return +1 for each comparison whose first leg is the shorter one, as its points are given, and -1 for others.

        `X` has triplets or quadruplets, as for `fit`.
        """
        return super().predict(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of the answers -1 and +1 to each comparison."""
        return super().predict_proba(X)

    def decision_function(self, X: Any) -> FloatArray:
        """Return the squared distance of the second leg of each comparison less that of the first."""
        return super().decision_function(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of comparisons that the metric agrees with, weighted if there are weights."""
        given = self._fitted().read(X, y, sample_weight)
        return given.mean((self.decision_function(given.data) >= 0) == given.is_far)

    def calibrate_threshold(
        self, pairs: Any, labels: Any, sample_weight: Any = None, far_label: Any = None
    ) -> CalibratedThreshold:
        """Fit a threshold to pairs with close/far labels; the metric stays what it is.

        This is a convex problem in one unknown.  The labels are assumed to have the noise of the comparisons, and no
        flips; a `LinearMetricLearner` that is fitted to the pairs and the comparisons together needs neither.

        Parameters
        ----------
        pairs : array of shape (n, 2, d) or (n, d)
            Pairs or differences with the columns of the comparisons.
        labels : array of n labels
            Close or far, as two distinct values.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 is equivalent to repeating the pair.
        far_label : label, optional
            The label that means far; by default the one that sorts last.

        Returns
        -------
        CalibratedThreshold
            With the `threshold`, its `interval`, a proven `gap` and the `metric` with that threshold.

        Examples
        --------
        >>> import numpy as np
        >>> import closefar as cf
        >>> rng = np.random.default_rng(0)
        >>> triplets, pairs = rng.normal(size=(3000, 3, 2)), rng.normal(size=(300, 2, 2))
        >>> near, far = (np.sum((triplets[:, 0] - triplets[:, k]) ** 2, axis=1) for k in (1, 2))
        >>> answers = np.where(far - near + rng.logistic(size=3000) >= 0, 1, -1)
        >>> learner = cf.ComparisonMetricLearner().fit(triplets, answers)
        >>> labels = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2, axis=1) + rng.logistic(size=300) >= 3.0
        >>> found = learner.calibrate_threshold(pairs, labels)
        >>> found.interval[0] < 3.0 < found.interval[1]
        True
        >>> found.metric.threshold == found.threshold
        True
        """
        return calibrate_threshold(self._fitted(), pairs, labels, sample_weight, far_label=far_label)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.target_tags.required = False
        return tags
