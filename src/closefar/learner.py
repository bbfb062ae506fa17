"""The estimator: checks input, hands it to a solver, keeps the result. No mathematics."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray
from closefar.certificate import Certificate
from closefar.metric import Metric
from closefar.noise import Noise, get_noise
from closefar.objective import Risk
from closefar.origin import find_origin
from closefar.pairs import Differences, check_labels, check_pairs, check_weights, unit_free_rows
from closefar.progress import Progress
from closefar.solvers import SOLVERS, solve
from closefar.summary import FitStatistics, summarize

__all__ = ["LinearMetricLearner"]


class LinearMetricLearner(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Learn a Mahalanobis metric and a threshold from pairs with noisy close/far labels.

    Minimises the mean of -log P(label) over M positive semidefinite and tau >= 0, where
    P(far) = Phi(z'Mz - tau) and Phi is the CDF of the noise, and proves how near to the
    global minimum it came.  Columns may have any units: they never need normalising.

    Parameters
    ----------
    noise : {"logistic", "normal", "laplace", "hypsecant"} or Noise, default="logistic"
        The distribution of the noise that makes labels wrong.
    rank : int, optional
        Largest rank of M.  The certificate then says what the restriction may cost.
    alpha : float, default=0.0
        Weight of a trace penalty in unit-free coordinates.  Favours low rank; 0.01 is a first
        try where there are few pairs; cross-validation finds a better one.
    alpha_scale : {"data", "columns"}, default="data"
        The coordinates that the penalty is measured in.  "data": those in which the second
        moment of the rows is the identity, so that the penalty is the mean of z'Mz and follows
        every linear change of units.  "columns": each column over its root mean square (its
        standard deviation with `fit_origin`), which follows the units of each column.  Choose
        it where columns are nearly collinear and rows few: it also shrinks the directions in
        which the data hardly varies.
    fit_origin : bool, default=False
        For single points: learn the point that distances are measured from.
    solver : {"auto", "newton", "fista", "factor"}, default="auto"
        "newton" for few columns, "fista" for many, "factor" for a nonconvex L-BFGS.
    tol : float, default=1e-6
        Stop when the objective is proven to be this near to its minimum.
    max_iter : int, default=1000
        Largest number of solver steps.
    class_weight : dict or "balanced", optional
        Weights of the two classes, as in scikit-learn.
    far_label : label, optional
        The label that means far.  By default the one that sorts last: 1 of {0, 1} and of
        {-1, 1}, True, "far".
    random_state : int, RandomState or None, default=None
        Chooses the rows of the first steps; None always chooses the same.  The result does
        not depend on it beyond `tol`.
    verbose : int, default=0
        1 shows progress, 2 every step.

    Attributes
    ----------
    metric_ : Metric
        The learned metric, in the units of the data.
    certificate_ : Certificate
        The loss, the proven gap to its minimum, and a status to act on.
    classes_ : array of two labels, close first
    components_ : array of shape (rank, n_features)
        ``transform(X) = X @ components_.T``.
    n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    fit_statistics_ : FitStatistics
        What `summary` says of the training pairs.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(pairs, labels)
    >>> learner.certificate_.gap < 1e-6
    True
    >>> learner.predict(pairs[:3]).tolist()
    [1, 1, 1]
    """

    def __init__(
        self,
        noise: str | Noise = "logistic",
        *,
        rank: int | None = None,
        alpha: float = 0.0,
        alpha_scale: str = "data",
        fit_origin: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        far_label: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.noise = noise
        self.rank = rank
        self.alpha = alpha
        self.alpha_scale = alpha_scale
        self.fit_origin = fit_origin
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.far_label = far_label
        self.random_state = random_state
        self.verbose = verbose

    metric_: Metric
    certificate_: Certificate
    classes_: NDArray[Any]
    components_: FloatArray
    n_features_in_: int
    n_iter_: int
    fit_statistics_: FitStatistics

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from pairs.

        Parameters
        ----------
        X : array or frame of shape (n, d), or array of shape (n, 2, d)
            Differences x - y (or points, measured from the origin), or pairs of points.
        y : array of n labels
            Close or far; two distinct values.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 counts as the pair given twice.
        """
        noise = get_noise(self.noise)
        differences = check_pairs(self, X, fitting=True)
        self._check_parameters(differences)
        classes, signs = check_labels(y, self.far_label, len(differences))
        weights = check_weights(sample_weight, self.class_weight, np.asarray(y).reshape(-1), differences)
        if not np.all(weights > 0):
            kept = weights > 0
            differences, signs, weights = Differences(differences.data[kept]), signs[kept], weights[kept]
        rows, coordinates = unit_free_rows(
            differences,
            signs,
            weights,
            with_constant=self.fit_origin,
            mix_columns=self.alpha == 0 or self.alpha_scale == "data",
        )
        risk = Risk(rows, noise)
        with Progress(self.verbose, risk) as progress:
            solution = solve(
                risk,
                alpha=float(self.alpha),
                rank=self.rank,
                has_constant=self.fit_origin,
                solver=self.solver,
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                rng=np.random.default_rng(check_random_state(self.random_state or 0).randint(2**31)),
                watch=progress,
            )
        factor, threshold, origin = coordinates.to_units(solution.factor), solution.threshold, None
        if self.fit_origin:
            origin, slack = find_origin(differences, weights, factor)
            factor, threshold = factor[:-1], threshold - slack
        names = getattr(self, "feature_names_in_", None)
        self.metric_ = Metric.from_factor(factor, threshold, noise, feature_names=names, origin=origin)
        self.certificate_ = solution.certificate
        self.classes_ = classes
        self.components_ = np.array(self.metric_.factor.T)
        self.n_iter_ = max(solution.n_iter, 1)
        self._n_features_out = len(self.components_)
        self.fit_statistics_ = FitStatistics.of(noise, solution.margin, signs, weights)
        self._warn()
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return the margin z'Mz - tau of each pair: positive is far."""
        return self._squared_distances(X) - self.metric_.threshold

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likelier label of each pair."""
        margin = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(margin >= 0).astype(int)]
        return labels

    def predict_proba(self, X: Any) -> FloatArray:
        """Return P(close) and P(far) of each pair, in the order of `classes_`."""
        margin = self.decision_function(X)
        cdf = self.metric_.noise.cdf
        return np.column_stack([cdf(-margin), cdf(margin)])

    def transform(self, X: Any) -> FloatArray:
        """Map points, or both sides of pairs, to where the metric is Euclidean: ``X @ components_.T``."""
        check_is_fitted(self)
        mapped: FloatArray = check_pairs(self, X, fitting=False).data @ self.components_.T
        return mapped

    def pair_distance(self, X: Any) -> FloatArray:
        """Return the distance of each pair, or the length of each difference."""
        return np.sqrt(self._squared_distances(X))

    def pair_score(self, X: Any) -> FloatArray:
        """Return minus the distance of each pair: larger is closer, as in metric-learn."""
        return -self.pair_distance(X)

    def get_metric(self) -> Callable[[Any, Any], float]:
        """Return a function of two points, for scikit-learn's ``metric=``.

        Mapping the points with `transform` and using Euclidean distance is much faster.
        """
        check_is_fitted(self)
        return self.metric_.distance

    def get_mahalanobis_matrix(self) -> FloatArray:
        """Return M."""
        check_is_fitted(self)
        return self.metric_.matrix

    def summary(self) -> str:
        """Return a table of what was learned, how well, and how surely."""
        check_is_fitted(self)
        return summarize(self.metric_, self.certificate_, self.fit_statistics_, float(self.alpha))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = not self.fit_origin  # points around another centre than zero
        return tags

    def _squared_distances(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        return self.metric_.forms(check_pairs(self, X, fitting=False))

    def _check_parameters(self, differences: Differences) -> None:
        d = differences.n_features
        if self.rank is not None and not (_is_integer(self.rank) and 1 <= self.rank <= d):
            raise ValueError(f"rank must be None or a whole number from 1 to the {d} columns; got {self.rank!r}.")
        for name in ("alpha", "tol"):
            value = getattr(self, name)
            if not (isinstance(value, numbers.Real) and math.isfinite(value) and float(value) >= 0):
                raise ValueError(f"{name} must be a finite number >= 0; got {value!r}.")
        if not (_is_integer(self.max_iter) and self.max_iter >= 1):
            raise ValueError(f"max_iter must be a whole number >= 1; got {self.max_iter!r}.")
        if self.alpha_scale not in ("data", "columns"):
            raise ValueError(f'alpha_scale must be "data" or "columns"; got {self.alpha_scale!r}.')
        if self.solver not in ("auto", *SOLVERS):
            raise ValueError(f"solver must be one of {['auto', *SOLVERS]}; got {self.solver!r}.")
        if self.fit_origin and differences.data.ndim == 3:
            raise ValueError(
                "fit_origin needs single points, an (n, d) array: the difference of a pair has no origin; got pairs "
                f"of shape {differences.data.shape}. Leave fit_origin out, or give points."
            )

    def _warn(self) -> None:
        word = self.certificate_.status.split(":")[0]
        if word in ("unfinished", "stalled", "separable"):
            warnings.warn(self.certificate_.status, ConvergenceWarning, stacklevel=3)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
