"""Learning from points and their classes, some of which are wrong."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from closefar import fitting
from closefar.arrays import FloatArray, IndexArray
from closefar.errors import InvalidValueError, either, setting
from closefar.judgements import Tuples
from closefar.learners.base import store_parameters
from closefar.learners.linear import LinearMetricLearner
from closefar.model import Metric

# How many pairs are learned from, by default and at least.
_PAIRS_OF_A_POINT, _MOST_OF_CLASSES, _FEWEST_OF_CLASSES = 20, 50_000, 100

# Of the metric for neighbours: alpha in units of 1 / sqrt(n), and the tolerance, as only the order of distances counts.
_NEIGHBOUR_PENALTY, _NEIGHBOUR_TOL = 3.2, 1e-3

_MOST_CLASSES_NAMED = 5  # classes in a warning

_DEFAULT = LinearMetricLearner(flip_rate=0.0)


class ClassMetricLearner(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Learn from points and their classes, some of which are wrong.

    Three questions are answered, one after another:

    1. Which labels are wrong?  Each label is compared with those of the nearest neighbours
       (`class_probabilities_`, `wrong_probability_`).
    2. Which pairs are of the same class?  `pair_learner_` is a `LinearMetricLearner` of pairs of these points (-1 the
       same class, +1 another), with the penalty chosen on held-out points; pairs count as close or far as probably as
       they are.
    3. Which points are near?  `transform` maps points to a space for nearest neighbours.  Its metric is learned from
       the pairs with a larger penalty, and has a share of the plain distance in all columns, as much as predicts
       held-out classes best.

    A label is assumed to be wrong with the same probability everywhere, and then equally likely to be any other
    class.  Labels that are wrong where classes meet, or that mistake one class for a certain other one, can't be
    distinguished from classes that overlap: labels are believed then, and `wrong_share_` is too small.

    Parameters
    ----------
    wrong_share : "estimate" or float, default="estimate"
        The share of wrong labels.  With 0 all labels are trusted, as they should be if a class has very few points.
    units : {"auto", "columns", "shared"}, default="auto"
        The plain distance in 3.: "columns" divides each column by its standard deviation, so that units do not matter;
        "shared" takes the columns as they are, for columns in one unit, such as the pixels of an image.  "auto"
        decides by held-out classes, so its result depends on the units.
    n_pairs : int, optional
        The number of pairs to learn from, by default 20 for each point, and at most 50,000.
    learner : LinearMetricLearner, optional
        The learner of the pairs.  By default `LinearMetricLearner(flip_rate=0.0)`.
    random_state : int, RandomState or None, default=0
    verbose : int, default=0
        1 shows what takes long.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    class_probabilities_ : array of shape (n, n_classes)
        The probability of each class for each training point.
    wrong_probability_ : array of shape (n,)
        The probability that the label of a training point is wrong.
    corrected_classes_ : array of shape (n,)
        The most probable class of each training point.
    wrong_share_ : float
        The estimated share of wrong labels: the mean of `wrong_probability_`.
    wrong_share_interval_ : tuple of two floats
        An approximate 90 % interval of that share.  It is wide if the labels do not tell.
    pair_learner_ : LinearMetricLearner
        Predicts whether pairs are of one class; with `metric_`, `certificate_`, `summary` and so on.
    metric_ : Metric
        The metric of `pair_learner_`.
    neighbour_metric_ : Metric
        The metric of `transform`; it has no threshold.

    Examples
    --------
    >>> import closefar as cf
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> wines, cultivar = load_wine(return_X_y=True)
    >>> learner = cf.ClassMetricLearner().fit(wines[::2], cultivar[::2])
    >>> neighbours = KNeighborsClassifier().fit(learner.transform(wines[::2]), cultivar[::2])
    >>> neighbours.score(learner.transform(wines[1::2]), cultivar[1::2]) > 0.9
    True
    """

    def __init__(
        self,
        *,
        wrong_share: float | str = "estimate",
        units: str = "auto",
        n_pairs: int | None = None,
        learner: Any = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        store_parameters(self, locals())

    n_features_in_: int
    classes_: NDArray[Any]
    class_probabilities_: FloatArray
    wrong_probability_: FloatArray
    wrong_share_: float
    wrong_share_interval_: tuple[float, float]
    pair_learner_: LinearMetricLearner
    neighbour_metric_: Metric

    def fit(self, X: Any, y: Any, *, feature_names: Any = None) -> Self:
        """Learn from points X of shape (n, d) and their classes y; frames have names of columns themselves."""
        self._check_parameters()
        points, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=4)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        counts = np.bincount(codes)
        if len(counts) < 2:
            raise ValueError(f"there must be two classes at least; got 1 class, {self.classes_.tolist()[0]!r}.")
        if counts.max() < 2:
            raise ValueError("a class must have two points at least; got one point of each. Merge rare classes.")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        with fitting.showing(int(self.verbose)) as shown:
            with shown.stage("comparing labels with those of neighbours"):
                posterior = self._posterior(points, codes, rng)
            self.class_probabilities_ = posterior.probabilities
            self.wrong_probability_ = 1.0 - posterior.probabilities[np.arange(len(codes)), codes]
            self.wrong_share_, self.wrong_share_interval_ = posterior.wrong_share, posterior.share_interval
            self._warn_of_lost_classes(codes)
            n_pairs = min(_PAIRS_OF_A_POINT * len(points), _MOST_OF_CLASSES) if self.n_pairs is None else self.n_pairs
            pairs = fitting.class_pairs(posterior, n_pairs, rng)
            with shown.stage("learning from pairs"):
                names = getattr(self, "feature_names_in_", feature_names)
                self.pair_learner_ = self._learned(points, *pairs, names)
            with shown.stage("choosing the metric of neighbours"):
                self.neighbour_metric_ = fitting.neighbour_metric(
                    points, posterior, lambda kept: self._smooth(points, pairs, kept), units=self.units, rng=rng
                )
        return self

    def _warn_of_lost_classes(self, codes: IndexArray) -> None:
        """Name classes that are no longer the most probable one of most of their points."""
        kept = self.class_probabilities_.argmax(axis=1) == codes
        counts = np.bincount(codes)
        lost = np.flatnonzero(np.bincount(codes, weights=kept) < counts / 2)
        if len(lost) == 0:
            return
        named = [f"{self.classes_[code]} ({counts[code]:,})" for code in lost[:_MOST_CLASSES_NAMED].tolist()]
        more = f" and {len(lost) - _MOST_CLASSES_NAMED:,} more" if len(lost) > _MOST_CLASSES_NAMED else ""
        warnings.warn(
            (
                "most labels of these classes seem wrong, because most neighbours are of other classes: "
                f"{', '.join(named)}{more}. If the labels are right, set " + setting(wrong_share=0) + "."
            ),
            UserWarning,
            stacklevel=3,
        )

    @property
    def metric_(self) -> Metric:
        check_is_fitted(self)
        return self.pair_learner_.metric_

    @property
    def corrected_classes_(self) -> NDArray[Any]:
        check_is_fitted(self)
        corrected: NDArray[Any] = self.classes_[self.class_probabilities_.argmax(axis=1)]
        return corrected

    @property
    def _n_features_out(self) -> int:
        return self.neighbour_metric_.rank

    def transform(self, X: Any) -> FloatArray:
        """Map points to a space in which near points are those of `neighbour_metric_`."""
        check_is_fitted(self)
        points = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(points @ self.neighbour_metric_.components.T)

    def _check_parameters(self) -> None:
        if self.units not in ("auto", "columns", "shared"):
            raise ValueError(f'units must be "auto", "columns" or "shared"; got {self.units!r}.')
        share = self.wrong_share
        if share != "estimate" and not (
            isinstance(share, numbers.Real) and not isinstance(share, bool) and 0 <= float(share) < 1
        ):
            raise InvalidValueError(
                "wrong_share", either('must be "estimate"', "must be estimate") + " or a number from 0 to 1", share
            )
        if self.n_pairs is not None and not (
            isinstance(self.n_pairs, numbers.Integral) and int(self.n_pairs) >= _FEWEST_OF_CLASSES
        ):
            raise InvalidValueError("n_pairs", f"must be a whole number >= {_FEWEST_OF_CLASSES}, or None", self.n_pairs)

    def _posterior(self, points: FloatArray, codes: IndexArray, rng: np.random.Generator) -> fitting.ClassPosterior:
        if self.wrong_share == 0:
            return fitting.ClassPosterior.certain(codes, len(self.classes_))
        share = None if self.wrong_share == "estimate" else float(self.wrong_share)
        found = fitting.class_posterior(points, codes, len(self.classes_), rng, share)
        if np.ptp(found.codes) > 0:
            return found
        warnings.warn(
            (
                "neighbours do not tell the classes apart: by their labels all points are most probably of "
                f"class {self.classes_[found.codes[0]]}. All labels are trusted, as with "
                + setting(wrong_share=0)
                + "."
            ),
            UserWarning,
            stacklevel=4,
        )
        return fitting.ClassPosterior.certain(codes, len(self.classes_))

    def _learned(
        self, points: FloatArray, index: IndexArray, labels: IndexArray, weights: FloatArray, names: Any
    ) -> LinearMetricLearner:
        given = _DEFAULT if self.learner is None else self.learner
        if not isinstance(given, LinearMetricLearner):
            raise TypeError(f"learner must be a LinearMetricLearner; got {type(given).__name__}.")
        learner: LinearMetricLearner = clone(given)
        pairs = Tuples(points, index)
        with warnings.catch_warnings():
            # A constant column says nothing about classes; a warning about pairs, which nobody gave, would puzzle.
            warnings.simplefilter("ignore", fitting.IdentifiabilityWarning)
            learner.fit(pairs, labels, weights, groups=index, feature_names=names)
        learner.fit_.unless_interrupted()
        return learner

    def _smooth(
        self, points: FloatArray, pairs: tuple[IndexArray, IndexArray, FloatArray], kept: NDArray[np.bool_]
    ) -> Metric:
        """The metric of the pairs of these points, penalised for neighbours: roughly, and more than for pairs."""
        index, labels, weights = pairs
        inside = kept[index].all(axis=1)
        alpha = _NEIGHBOUR_PENALTY / math.sqrt(inside.sum())
        smooth = {"alpha": alpha, "prior": "zero", "tol": _NEIGHBOUR_TOL}
        learner: LinearMetricLearner = clone(self.pair_learner_).set_params(**smooth)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit to all pairs has warned
            names = self.metric_.feature_names
            learner.fit(Tuples(points, index[inside]), labels[inside], weights[inside], feature_names=names)
        return learner.fit_.unless_interrupted().metric
