"""Choosing alpha, the noise and the rank by cross-validation."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.metrics import check_scoring, log_loss, make_scorer
from sklearn.model_selection import ParameterGrid

from closefar.arrays import FloatArray
from closefar.fitting import Fit
from closefar.judgements import Columns, Judgements, Sides, Split, resolve_folds, split_judgements
from closefar.learners.base import MetricLearner
from closefar.learners.linear import LinearMetricLearner
from closefar.noise import Noise
from closefar.questions import effective_number

__all__ = ["LinearMetricLearnerCV"]

# As scikit-learn's, and also defined where the test side has one class only.
_NEG_LOG_LOSS = make_scorer(log_loss, greater_is_better=False, response_method="predict_proba", labels=[0, 1])


class LinearMetricLearnerCV(MetricLearner):
    """A `LinearMetricLearner` that chooses alpha, the noise and the rank by cross-validation.

    Each combination is fitted and scored on every split; all pairs are fitted with the chosen one.

    Parameters
    ----------
    alphas : int or array of numbers >= 0, optional
        The values of alpha to try.  A whole number k: zero and k values from 0.1 / sqrt(n) to
        6.4 / sqrt(n) in equal ratios, where n is the number of pairs (with weights w,
        sum(w)^2 / sum(w^2)).  None is 7, so that each is twice the one before.
    noises : sequence of names or Noise, default=("logistic",)
    ranks : sequence of int or None, default=(None,)
    cv : int, splitter or iterable of (train, test), optional
        The splits; None is 5.  A number of folds means `PairGroupKFold` where pairs share points
        (`fit` gets the ids of both as groups, or finds them), and otherwise scikit-learn's
        StratifiedKFold or, with one group for each pair, StratifiedGroupKFold.
    scoring : str or callable, default="neg_log_loss"
        As in scikit-learn; larger is better.  Labels are 0 (close) and 1 (far) for it,
        whatever they are for `fit`.  It gets `sample_weight` if `fit` does.
    rule : {"best", "one_se"}, default="best"
        "one_se" keeps the noise and the rank of the best score, and takes the largest alpha
        whose mean score is within one standard error of it.
    n_jobs : int, optional
        Number of splits to work on at a time, as in joblib.
    alpha_scale, flip_rate, fit_origin, solver, tol, max_iter, class_weight, far_label, random_state, verbose
        As in `LinearMetricLearner`; `verbose` shows the last fit.

    Attributes
    ----------
    alpha_, noise_, rank_
        The chosen values.
    best_score_ : float
        Their mean score.
    cv_results_ : dict of arrays
        As in scikit-learn's GridSearchCV: "params", "param_alpha", "mean_test_score",
        "std_test_score", "rank_test_score", "split0_test_score" and so on.
    best_estimator_ : LinearMetricLearner
        The last fit.  Its other attributes (`metric_`, `certificate_`...) are here too.

    Examples
    --------
    >>> import closefar as cf
    >>> pairs, labels, *_ = cf.datasets.make_pairs(100, 6, rank=2, wrong_share=0.1, random_state=0)
    >>> learner = cf.LinearMetricLearnerCV().fit(pairs, labels)
    >>> round(learner.alpha_, 6)
    0.02
    """

    def __init__(
        self,
        alphas: Any = None,
        noises: Any = ("logistic",),
        ranks: Any = (None,),
        *,
        cv: Any = None,
        scoring: Any = "neg_log_loss",
        rule: str = "best",
        n_jobs: int | None = None,
        alpha_scale: str = "data",
        flip_rate: float | str = 0.0,
        fit_origin: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        far_label: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alphas = alphas
        self.noises = noises
        self.ranks = ranks
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.n_jobs = n_jobs
        self.alpha_scale = alpha_scale
        self.flip_rate = flip_rate
        self.fit_origin = fit_origin
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.far_label = far_label
        self.random_state = random_state
        self.verbose = verbose

    alpha_: float
    noise_: str | Noise
    best_score_: float
    cv_results_: dict[str, Any]
    best_estimator_: LinearMetricLearner

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, *, feature_names: Any = None) -> Self:
        """Choose, then learn from all pairs.

        Parameters
        ----------
        X, y, sample_weight, feature_names
            As in `LinearMetricLearner.fit`.
        groups : array of shape (n,) or (n, 2), optional
            A group for each pair, or the ids of its two points: no group, or no point, is on both
            sides of a split.  A splitter given as `cv` gets them as they are.  By default points
            that pairs share are found in (n, 2, d) data, with a `SharedPointsWarning`, and folds
            are by point.
        """
        judgements = Judgements.read(self, X, y, sample_weight, far_label=self.far_label)
        columns = Columns.of(self, feature_names)
        folds = resolve_folds(self._folds, judgements, groups, seed=self.random_state or 0)
        best = self._learner().set_params(**self._search(judgements, *folds), far_label=judgements.sides.far)
        self.best_estimator_ = best.fit_to(judgements, columns=columns)
        self.fit_ = best.fit_
        self.fit_.warn(stacklevel=2)
        return self

    def learn(self, judgements: Judgements) -> Fit:
        """Choose, and return the fit to judgements that are checked already; keep nothing of it."""
        folds = resolve_folds(self._folds, judgements, None, seed=self.random_state or 0, warns=False)
        best = clone(self)._search(judgements, *folds)
        chosen: LinearMetricLearner = self._learner().set_params(**best)
        return chosen.learn(judgements)

    def _learner(self) -> LinearMetricLearner:
        """The learner whose parameters are chosen."""
        names = LinearMetricLearner().get_params()
        return LinearMetricLearner(**{name: value for name, value in self.get_params().items() if name in names})

    @property
    def _folds(self) -> Any:
        return 5 if self.cv is None else self.cv

    def _search(self, judgements: Judgements, cv: Any, groups: Any) -> dict[str, Any]:
        """Score each candidate on every split, keep the table, and return the best one."""
        weighted = judgements.weighted(self.class_weight)
        trial = self._learner().set_params(far_label=None, verbose=0)
        if isinstance(self.class_weight, dict):
            trial.class_weight = {
                code: self.class_weight.get(label, 1.0)
                for code, label in enumerate((judgements.sides.close, judgements.sides.far))
            }
        coded = judgements.with_labels(judgements.is_far.astype(np.int64), Sides(np.array([0, 1])))
        scorer = _NEG_LOG_LOSS if self.scoring == "neg_log_loss" else check_scoring(trial, self.scoring)
        candidates = self._candidates(effective_number(weighted.weights))
        scores = np.array(
            Parallel(n_jobs=self.n_jobs)(
                delayed(_score_split)(trial, candidates, scorer, coded.take(train), coded.take(test))
                for train, test in self._splits(weighted, cv, groups)
            )
        )
        self.cv_results_ = _results(candidates, scores)
        best = self._choose(scores)
        self.best_score_ = float(self.cv_results_["mean_test_score"][best])
        self.alpha_, self.noise_ = (candidates[best][name] for name in ("alpha", "noise"))
        return candidates[best]

    def _candidates(self, n: float) -> list[dict[str, Any]]:
        if self.rule not in ("best", "one_se"):
            raise ValueError(f'rule must be "best" or "one_se"; got {self.rule!r}.')
        grid = {"alpha": _alpha_grid(self.alphas, n), "noise": _as_list(self.noises), "rank": _as_list(self.ranks)}
        if not all(grid.values()):
            raise ValueError(f"alphas, noises and ranks must each hold a value to try; got {grid}.")
        return list(ParameterGrid(grid))

    def _splits(self, judgements: Judgements, cv: Any, groups: Any) -> list[Split]:
        """The train and test sides, less the pairs of weight zero."""
        seed = None if groups is None else self.random_state or 0
        splits = []
        for number, sides in enumerate(split_judgements(cv, judgements, groups=groups, seed=seed)):
            train, test = (side[judgements.weights[side] > 0] for side in sides)
            n_close, n_far = np.bincount(judgements.is_far[train], minlength=2)
            if min(n_close, n_far, len(test)) == 0:
                raise ValueError(
                    f"each split must train on both classes and test on a pair; split {number} trains on {n_close} "
                    f"close and {n_far} far pairs and tests on {len(test)}. Set fewer folds (cv), or label more pairs."
                )
            splits.append((train, test))
        return splits

    def _choose(self, scores: FloatArray) -> int:
        """The candidate to take, from the scores of each split (row) and candidate."""
        mean = scores.mean(axis=0)
        best = int(np.argmax(mean))
        if self.rule == "best":
            return best
        alpha, noise, rank = (self.cv_results_[f"param_{name}"] for name in ("alpha", "noise", "rank"))
        error = scores[:, best].std() / math.sqrt(max(len(scores) - 1, 1))
        near = (mean >= mean[best] - error) & (noise == noise[best]) & (rank == rank[best])
        return int(np.argmax(np.where(near, alpha.astype(float), -1.0)))


def _score_split(
    learner: LinearMetricLearner, candidates: list[dict[str, Any]], scorer: Any, train: Judgements, test: Judgements
) -> list[float]:
    weights = {} if test.sample_weight is None else {"sample_weight": test.weights}
    scores = [math.nan] * len(candidates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate is judged by its score; the last fit warns
        fitted, start = clone(learner), None
        # From the largest penalty on, each fit starts from the one before.
        for number in sorted(range(len(candidates)), key=lambda each: -candidates[each]["alpha"]):
            fitted.set_params(**candidates[number]).fit_to(train, start=start)
            start = fitted.fit_.unless_interrupted().metric
            scores[number] = float(scorer(fitted, test.data, test.labels, **weights))
            if not math.isfinite(scores[number]):
                raise ValueError(f"scoring must give finite numbers; got {scores[number]} for {candidates[number]}.")
    return scores


def _alpha_grid(alphas: Any, n: float) -> list[float]:
    count = 7 if alphas is None else alphas
    if isinstance(count, (int, np.integer)) and count >= 1:
        return [0.0, *(np.geomspace(0.1, 6.4, count) / math.sqrt(n)).tolist()]
    values = np.asarray(alphas)
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(f"alphas must be None, a whole number >= 1 or a list of finite numbers >= 0; got {alphas!r}.")
    return [float(value) for value in values]


def _as_list(values: Any) -> list[Any]:
    return [values] if values is None or isinstance(values, (str, Noise, numbers.Integral)) else list(values)


def _results(candidates: list[dict[str, Any]], scores: FloatArray) -> dict[str, Any]:
    mean = scores.mean(axis=0)
    return {
        **{f"param_{name}": np.array([each[name] for each in candidates], dtype=object) for name in candidates[0]},
        "params": candidates,
        **{f"split{number}_test_score": row for number, row in enumerate(scores)},
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=0),
        "rank_test_score": rankdata(-mean, method="min").astype(np.int64),
    }
