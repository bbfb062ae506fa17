"""The estimator: checks input, hands it to a solver, keeps the result. No mathematics."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from closefar.arrays import FloatArray
from closefar.certificate import Certificate
from closefar.diagnosis import Diagnosis, IdentifiabilityWarning, find_problems
from closefar.flips import solve_with_flips
from closefar.metric import ZERO, Metric
from closefar.noise import NOISES, Noise, get_noise, label_losses, with_flips
from closefar.noise_check import NoiseCheck, check_noise_model
from closefar.noise_choice import choose_noise
from closefar.objective import Risk
from closefar.origin import find_origin
from closefar.pairs import Differences, Rows, check_labels, check_pairs, check_weights, unit_free_rows
from closefar.progress import Progress
from closefar.rank_choice import RankChoice, choose_rank
from closefar.solvers import SOLVERS, Solution, solve
from closefar.solvers.history import FitStep
from closefar.summary import FitStatistics, summarize
from closefar.truncation import TruncationPath, truncation_path

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
    noise : {"logistic", "normal", "laplace", "hypsecant", "auto"} or Noise, default="logistic"
        The distribution of the noise that makes labels wrong.  "auto" fits all four and takes
        the likeliest.
    rank : int or "auto", optional
        Largest rank of M.  The certificate then says what the restriction may cost.  "auto"
        chooses it by the loss of held-out labels (see `closefar.rank_choice.choose_rank`).
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
    flip_rate : float or "estimate", default=0.0
        The share of labels that are wrong whatever the distance, beside those that the noise
        makes wrong near the threshold: P(far) = q + (1 - 2q) Phi(z'Mz - tau).  The likelihood is
        then not convex; it is climbed from the optimum of q = 0, and the certificate is about
        the last step, with each label's probability of being flipped held fixed.
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
    warm_start : bool, default=False
        Start from the metric of the last fit, where there is one and no origin is learned: faster
        along a path of `alpha`, or where labels are added.
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
    history_ : tuple of FitStep
        The `objective` (the loss plus the penalty) and the proven `gap` after so many `passes` over
        the data, step by step; the gap is infinite where nothing was proven yet.  The last is that
        of `certificate_`.  (Where labels may be flipped, the objective accounts for that, which
        `certificate_.objective` does not, and nothing is proven before the last step.)
    classes_ : array of two labels, close first
    components_ : array of shape (rank, n_features)
        ``transform(X) = X @ components_.T``.
    n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    rank_ : int or None
        The largest rank that was asked for or chosen; with "auto" `rank_choice_` has the table.
    noise_comparison_ : dict
        With noise="auto": for each noise its loss, the difference to the chosen one's, and z.
    flip_rate_ : float
        The share of flipped labels that was given or estimated.
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
        rank: int | str | None = None,
        alpha: float = 0.0,
        alpha_scale: str = "data",
        flip_rate: float | str = 0.0,
        fit_origin: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        far_label: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.noise = noise
        self.rank = rank
        self.alpha = alpha
        self.alpha_scale = alpha_scale
        self.flip_rate = flip_rate
        self.fit_origin = fit_origin
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.far_label = far_label
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    metric_: Metric
    certificate_: Certificate
    history_: tuple[FitStep, ...]
    classes_: NDArray[Any]
    components_: FloatArray
    n_features_in_: int
    n_iter_: int
    fit_statistics_: FitStatistics
    rank_: Any
    flip_rate_: float
    noise_comparison_: dict[str, dict[str, float]]
    rank_choice_: RankChoice

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, feature_names: Any = None) -> Self:
        """Learn from pairs.

        Parameters
        ----------
        X : array or frame of shape (n, d), or array of shape (n, 2, d)
            Differences x - y (or points, measured from the origin), or pairs of points.
        y : array of n labels
            Close or far; two distinct values.
        sample_weight : array of n numbers >= 0, optional
            A weight of 2 counts as the pair given twice.
        feature_names : sequence of d str, optional
            Names of the columns for what is shown of the metric, where `X` is an array without any.
        """
        for name in ("rank_choice_", "noise_comparison_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        candidates = list(NOISES.values()) if _is(self.noise, "auto") else [get_noise(self.noise)]
        differences, signs, weights = self._read(X, y, sample_weight)
        if feature_names is not None and len(feature_names) != self.n_features_in_:
            raise ValueError(
                f"there must be a feature name for each of the {self.n_features_in_} columns; got {len(feature_names)}."
            )
        self.rank_ = self.rank
        if _is(self.rank, "auto"):
            free = clone(self).set_params(rank=None, far_label=self.classes_[1])
            self.rank_choice_ = choose_rank(free, X, y, sample_weight)
            self.rank_ = self.rank_choice_.rank
        mixed = self.alpha == 0 or self.alpha_scale == "data"
        rows, coordinates = unit_free_rows(
            differences, signs, weights, with_constant=self.fit_origin, mix_columns=mixed
        )
        start = self._start(differences, rows)
        fits = {noise.name: self._solve(Risk(rows, noise), start) for noise in candidates}
        noise = candidates[0]
        if len(candidates) > 1:
            losses = {name: label_losses(NOISES[name], signs * fit.margin, rate) for name, (fit, rate) in fits.items()}
            noise = self._choose_noise(losses, weights)
        solution, self.flip_rate_ = fits[noise.name]
        core, threshold, origin = solution.factor, solution.threshold, None
        if self.fit_origin:
            origin, slack = find_origin(differences, weights, coordinates.to_units(core))
            core, threshold = core[:-1], threshold - slack
        self.metric_ = Metric.from_data_scale(
            coordinates.transform,
            core,
            threshold,
            noise,
            second_moment=None if mixed else rows.second_moment()[: len(core), : len(core)],
            feature_names=getattr(self, "feature_names_in_", None) if feature_names is None else tuple(feature_names),
            origin=origin,
            flip_rate=self.flip_rate_,
        )
        self.certificate_ = solution.certificate
        self.history_ = solution.history
        self.components_ = np.array(self.metric_.factor.T)
        self.n_iter_ = max(solution.n_iter, 1)
        self._n_features_out = len(self.components_)
        self.fit_statistics_ = FitStatistics.of(
            noise, solution.margin, signs, weights, self.flip_rate_, coordinates.scales
        )
        self._training = (X, y, sample_weight)
        self._problems = find_problems(
            self.metric_.column_names,
            coordinates.null_directions,
            signs,
            coordinates.transform.shape[1],
            rank=self.rank_,
            has_origin=self.fit_origin,
            penalised=self.alpha > 0,
        )
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
        """Return the probabilities that each pair is labelled close and far, in the order of `classes_`."""
        margin, cdf = self.decision_function(X), self.metric_.noise.cdf
        probabilities: FloatArray = with_flips(np.column_stack([cdf(-margin), cdf(margin)]), self.flip_rate_)
        return probabilities

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

    def to_onnx(self, kind: str | None = None) -> Any:
        """Return the learned metric as an ONNX model; see `Metric.to_onnx`."""
        check_is_fitted(self)
        return self.metric_.to_onnx(kind)

    def to_faiss(self, points: Any = None) -> Any:
        """Return a FAISS index in which L2 search is the learned metric; see `Metric.to_faiss`."""
        check_is_fitted(self)
        return self.metric_.to_faiss(points)

    def summary(self) -> str:
        """Return a table of what was learned, how well, and how surely."""
        check_is_fitted(self)
        penalty = f"{self.alpha:g}" + (" (columns)" if self.alpha and self.alpha_scale == "columns" else "")
        return summarize(self.metric_, self.certificate_, self.fit_statistics_, penalty)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = not self.fit_origin  # points around another centre than zero
        return tags

    def truncation_path(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, scale: str | None = None, held_out: Any = None
    ) -> TruncationPath:
        """Say what cutting the metric to each rank costs, beside refitting in the directions that are kept.

        Parameters
        ----------
        X, y, sample_weight
            Pairs, labels and weights as for `fit`; by default those of the fit, which were not
            copied and must be as they were.
        scale : {"data", "units"}, optional
            As for `Metric.truncate`.
        held_out : tuple (pairs, labels), optional
            Labels that the fit has not seen, to say what is lost on those.
        """
        pairs, labels, weights = self.given_or_training(X, y, sample_weight)
        rows = check_pairs(self, pairs, fitting=False)
        weights = check_weights(weights, self.class_weight, np.asarray(labels).reshape(-1), rows)
        others = None if held_out is None else self._signed(*held_out)
        return truncation_path(
            self.metric_, *self._signed(pairs, labels), weights, scale=scale, held_out=others, learner=self
        )

    def check_noise_model(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> NoiseCheck:
        """Test whether labels are as frequent at each margin as the fitted noise says.

        Of the pairs of the fit by default; see `closefar.noise_check.check_noise_model`.
        """
        return check_noise_model(self, *self.given_or_training(X, y, sample_weight))

    def diagnose(self) -> Diagnosis:
        """Print what the fit and its data leave open, with advice, and return it."""
        check_is_fitted(self)
        problems = [*self._problems, *self._noise_problems()]
        diagnosis = Diagnosis.of(self.metric_, self.certificate_, self.fit_statistics_, problems)
        print(diagnosis)
        return diagnosis

    @property
    def data_problems(self) -> tuple[str, ...]:
        """What the data of the fit leave open, a sentence with advice each."""
        check_is_fitted(self)
        return tuple(self._problems)

    def report(
        self,
        path: str | Path,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        title: str | None = None,
        ids: Any = None,
        random_state: Any = 0,
        n_bootstrap: int | None = None,
        watch: Callable[[str], None] | None = None,
    ) -> None:
        """Write a page, JSON or text that shows what was learned, how good it is and how to go on.

        Parameters
        ----------
        path : str or Path
            Its suffix says what to write: .html (extra `report`), .json, .txt or .md.
        X, y, sample_weight : optional
            Pairs, labels and weights as for `fit`.  By default those of the fit, each judged by
            a fit that has not seen it; others are judged by this one.
        title : str, optional
            The headline.
        ids : array of shape (n,) or (n, 2), optional
            Names of the pairs, or of their points, to show suspicious pairs by.
        random_state, n_bootstrap, watch
            As for `closefar.report.summarize`.
        """
        from closefar.report import write_report

        chosen: dict[str, Any] = {"title": title, "n_bootstrap": n_bootstrap}
        given = {name: value for name, value in chosen.items() if value is not None}
        write_report(self, path, X, y, sample_weight, ids=ids, random_state=random_state, watch=watch, **given)

    def _noise_problems(self) -> list[str]:
        if self.metric_.rank == 0:
            advice = "Lower alpha." if self.alpha > 0 else "Check the labels, and which of them means far."
            return [f"{ZERO} {advice}"]
        if not hasattr(self, "_training"):
            return ["This copy is without its training pairs: check its noise with check_noise_model(pairs, labels)."]
        try:
            check = self.check_noise_model()
        except ValueError as error:
            return [str(error)]
        return [check.advice] if check.p_value < 0.05 else []

    def __getstate__(self) -> dict[str, Any]:
        """Leave the training pairs out of a pickle: they may be large, and secret."""
        return {name: value for name, value in super().__getstate__().items() if name != "_training"}

    def given_or_training(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return what is given, or else the pairs, labels and weights of the fit."""
        check_is_fitted(self)
        if X is not None:
            return X, y, sample_weight
        if not hasattr(self, "_training"):
            raise ValueError("this learner was copied or loaded without its training pairs: give pairs and labels.")
        return self._training

    def _signed(self, X: Any, y: Any) -> tuple[Any, FloatArray]:
        return check_pairs(self, X, fitting=False).data, check_labels(y, self.classes_[1], len(X))[1]

    def _choose_noise(self, row_losses: dict[str, FloatArray], weights: FloatArray) -> Noise:
        choice = choose_noise(row_losses, weights)
        self.noise_comparison_ = choice.comparison
        if choice.warning is not None:
            warnings.warn(choice.warning, IdentifiabilityWarning, stacklevel=3)
        return NOISES[choice.name]

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Differences, FloatArray, FloatArray]:
        """Check everything, and return differences, signs and weights of the pairs that count."""
        differences = check_pairs(self, X, fitting=True)
        self._check_parameters(differences)
        self.classes_, signs = check_labels(y, self.far_label, len(differences))
        weights = check_weights(sample_weight, self.class_weight, np.asarray(y).reshape(-1), differences)
        if np.all(weights > 0):
            return differences, signs, weights
        kept = weights > 0
        return Differences(differences.data[kept]), signs[kept], weights[kept]

    def _start(self, differences: Differences, rows: Rows) -> tuple[FloatArray, float] | None:
        """The metric of the last fit in the rows' coordinates, where it is wanted and of use."""
        last: Metric | None = getattr(self, "metric_", None)
        if not self.warm_start or last is None or self.fit_origin or len(last.factor) != self.n_features_in_:
            return None
        factor = rows.factor_of(differences, last.factor)
        return factor @ factor.T, max(last.threshold, 0.0)

    def _solve(self, risk: Risk, start: tuple[FloatArray, float] | None) -> tuple[Solution, float]:
        """Return the solution and the flip rate."""
        with Progress(self.verbose, risk) as progress:
            options: dict[str, Any] = {
                "alpha": float(self.alpha),
                "rank": self.rank_,
                "has_constant": self.fit_origin,
                "solver": self.solver,
                "tol": float(self.tol),
                "max_iter": int(self.max_iter),
                "rng": np.random.default_rng(check_random_state(self.random_state or 0).randint(2**31)),
                "watch": progress,
                "start": start,
            }
            if not _is(self.flip_rate, "estimate") and self.flip_rate == 0:
                return solve(risk, **options), 0.0
            known = None if _is(self.flip_rate, "estimate") else float(self.flip_rate)
            return solve_with_flips(risk, known, **options)

    def _squared_distances(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        return self.metric_.forms(check_pairs(self, X, fitting=False))

    def _check_parameters(self, differences: Differences) -> None:
        d = differences.n_features
        if not (self.rank is None or _is(self.rank, "auto") or (_is_integer(self.rank) and 1 <= int(self.rank) <= d)):
            raise ValueError(
                f'rank must be None, "auto" or a whole number from 1 to the {d} columns; got {self.rank!r}.'
            )
        for name in ("alpha", "tol"):
            value = getattr(self, name)
            if not (isinstance(value, numbers.Real) and math.isfinite(value) and float(value) >= 0):
                raise ValueError(f"{name} must be a finite number >= 0; got {value!r}.")
        if not (_is_integer(self.max_iter) and self.max_iter >= 1):
            raise ValueError(f"max_iter must be a whole number >= 1; got {self.max_iter!r}.")
        rate = self.flip_rate
        if not _is(rate, "estimate") and not (isinstance(rate, numbers.Real) and 0 <= float(rate) < 0.5):
            raise ValueError(f'flip_rate must be "estimate" or a number from 0 to below 0.5; got {rate!r}.')
        if _is(self.noise, "auto") and self.alpha > 0:
            raise ValueError(
                'noise="auto" compares likelihoods, which a penalty shrinks by different amounts; got '
                f"alpha={self.alpha!r}. Choose the noise with alpha=0, or with LinearMetricLearnerCV(noises=...)."
            )
        if not isinstance(self.alpha_scale, str) or self.alpha_scale not in ("data", "columns"):
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
        for problem in self._problems:
            warnings.warn(problem, IdentifiabilityWarning, stacklevel=3)


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
