"""Choosing alpha, the noise and the rank by cross-validation."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.metrics import check_scoring, log_loss, make_scorer
from sklearn.model_selection import ParameterGrid

from closefar.fitting import Fit, is_plain, is_wide, number_of, placed_on, usual_penalty
from closefar.judgements import (
    Columns,
    Judgements,
    Split,
    resolve_folds,
    split_by_points,
    split_judgements,
)
from closefar.learners.base import MetricLearner
from closefar.learners.fitting_learner import FittingLearner
from closefar.learners.linear import LinearMetricLearner
from closefar.learners.searching import check_split, coded_for, with_known_scales
from closefar.learners.trials import HeldOut, Predicted, Trials, Tried
from closefar.noise import Noise

__all__ = ["LinearMetricLearnerCV"]

# As in scikit-learn, but also defined if the test side has only one class.
_NEG_LOG_LOSS = make_scorer(log_loss, greater_is_better=False, response_method="predict_proba", labels=[0, 1])

# The default candidates, tried one after another.
_SCALES = ("columns", 0.3, "data")
_FLIP_RATES = (0.1, 0.2, 0.3, 0.4)

# The number of values of alpha that flip rates are tried with, from the best one without flips downwards.
_MOST_FLIPPED = 4


# By so many standard errors must the identity be better; with many columns, where a penalty decides what is learned, it
# is as good a guess as zero.
_CLEARLY, _CLEARLY_IF_WIDE = 2.0, 1.0


class _Usual(NamedTuple):
    """The alpha in the middle of the default candidates, the scales to try, and the one to try the identity in.

    None is the scale that was chosen.
    """

    alpha: float
    scales: list[float | str]
    of_identity: str | None = None


class LinearMetricLearnerCV(MetricLearner):
    """A `LinearMetricLearner` that chooses its penalty, noise, rank and flip rate by cross-validation.

    Candidates are fitted and scored on every split, and the chosen one is fitted to all pairs.  First
    all combinations of `alphas`, `noises` and `ranks` are tried with one shape of the penalty.  The
    best combination is then tried with flip rates, and with the other shapes, one after another, which
    must score better by more than two standard errors of the difference.

    With `learner` it chooses the parameters of another learner, for levels or for comparisons.

    Parameters
    ----------
    alphas : int or array of numbers >= 0, optional
        The values of alpha to try.  A whole number k means zero and k values from 0.1 / sqrt(n) to
        6.4 / sqrt(n), geometrically spaced, where n is the number of pairs (with weights w,
        sum(w)^2 / sum(w^2)).  None means 7, so that each is twice the previous one; the search then
        starts at the largest, stops after two in a row that score worse than the best, and skips the rest.
        With 64 columns or more, and fewer than ten pairs per parameter, the k values have the same ratio and
        0.3 sqrt(d / n) in their middle.
    noises : sequence of names or Noise, default=("logistic",)
    ranks : sequence of int or None, default=(None,)
    cv : int, splitter or iterable of (train, test), optional
        The splits; None means 5 folds.  A number of folds means `PairGroupKFold` if pairs share points
        (their ids are passed to `fit` as groups, or detected), and otherwise scikit-learn's
        StratifiedKFold or, with one group per pair, StratifiedGroupKFold.  If points are so closely
        linked that 5 folds would test less than half of the pairs, None divides the points into
        three parts, twice if there are few pairs.
    scoring : str or callable, default="neg_log_loss"
        As in scikit-learn; larger is better.  It receives the labels as 0 (close) and 1 (far),
        whatever they are in `fit`, and `sample_weight` if `fit` does; levels as 0, 1, ... from the closest, and
        comparisons as +1 and -1.  "neg_log_loss" and "accuracy" account for the strictness of annotators; others score
        predictions for the typical one.
    rule : {"best", "one_se"}, default="best"
        "one_se" changes only alpha, to the largest value whose mean score is within one standard
        error of the best.
    alpha_scale : {"auto", "data", "columns", "units", "units:B"} or float, default="auto"
        As in `LinearMetricLearner`.  "auto" tries "columns", then 0.3 and, if that is better, "data".  With
        many columns it tries a blend of "data" with "units", or with "columns" if these are of different
        units, and then "data".
    shrink_to : {"auto", "zero", "identity"}, default="auto"
        As in `LinearMetricLearner`.  "auto" tries both if the rank is not limited; with many columns the identity in
        the scale "units", or "columns" if these are of different units, where one standard error is enough.
    relax_threshold : bool or "auto", default="auto"
        As in `LinearMetricLearner`.  "auto" tries it with the chosen penalty, and keeps it unless it scores worse by
        more than two standard errors of the difference.
    flip_rate : {"auto", "estimate"} or float, default="auto"
        As in `LinearMetricLearner`.  "auto" tries 0, and then 0.1 to 0.4 until two in a row are no
        better, with the best alpha and smaller ones.
    n_jobs : int, optional
        The number of splits to process in parallel, as in joblib.
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner, optional
        The learner whose parameters are chosen, by default a `LinearMetricLearner`.  Parameters that are left at their
        defaults here have the values of this learner.
    comparison_noise, strictness_width, fit_origin, solver, tol, max_iter, device, class_weight, far_label, \
random_state, verbose
        As in `LinearMetricLearner`; `verbose` also shows the candidates.  For candidates, `comparison_noise` and
        `strictness_width` are estimated once, by a fit to all judgements.  With more than 16 columns,
        candidates are fitted approximately unless `solver` is set; the final fit has a certificate.

    Attributes
    ----------
    alpha_, noise_, rank_, alpha_scale_, shrink_to_, relax_threshold_, flip_rate_
        The chosen values.
    best_score_ : float
        Their mean score.
    cv_results_ : dict of arrays
        As in scikit-learn's GridSearchCV, with one row per candidate: "params",
        "param_alpha", "param_alpha_scale", "mean_test_score", "std_test_score", "rank_test_score",
        "split0_test_score" and so on.
    best_estimator_ : LinearMetricLearner, or as `learner`
        The final fit.  Its other attributes (`metric_`, `certificate_`, ...) are also available here.

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
        learner: Any = None,
        alpha_scale: float | str = "auto",
        shrink_to: str = "auto",
        relax_threshold: bool | str = "auto",
        flip_rate: float | str = "auto",
        comparison_noise: float | str = 1.0,
        strictness_width: float | str = "estimate",
        fit_origin: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        device: Any = None,
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
        self.learner = learner
        self.alpha_scale = alpha_scale
        self.shrink_to = shrink_to
        self.relax_threshold = relax_threshold
        self.flip_rate = flip_rate
        self.comparison_noise = comparison_noise
        self.strictness_width = strictness_width
        self.fit_origin = fit_origin
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.device = device
        self.class_weight = class_weight
        self.far_label = far_label
        self.random_state = random_state
        self.verbose = verbose

    noise_: str | Noise
    alpha_scale_: float | str
    shrink_to_: str
    relax_threshold_: bool
    best_score_: float
    cv_results_: dict[str, Any]
    best_estimator_: FittingLearner

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        annotators: Any = None,
        comparisons: Any = None,
        feature_names: Any = None,
    ) -> Self:
        """Choose, then learn from all pairs.

        Parameters
        ----------
        X, y, sample_weight, annotators, feature_names
            As in the `fit` of the learner.
        comparisons : optional
            As in `LinearMetricLearner.fit`.  They are part of the training side of every split, so that scores are
            those of held-out pairs.
        groups : array of shape (n,) or (n, 2), optional
            A group per pair, or the ids of its points: no group or point is on both sides of a
            split.  A splitter passed as `cv` receives them unchanged.  By default, points that pairs
            share are detected in (n, 2, d) data, with a `SharedPointsWarning`, and folds are by point.
        """
        others = {"annotators": annotators, "comparisons": comparisons}
        judgements = self._learner().read(X, y, sample_weight, **others, estimator=self)
        columns = Columns.of(self, feature_names)
        folds = resolve_folds(self._folds, judgements, groups, seed=self.random_state or 0)
        best = self._learner().set_params(**self._search(judgements, *folds))
        if isinstance(best, LinearMetricLearner):
            best.far_label = judgements.sides.far
        self.best_estimator_ = best.fit_to(judgements, columns=columns)
        self.fit_ = best.fit_
        self.fit_.warn(stacklevel=2)
        return self

    def read(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, annotators: Any = None, comparisons: Any = None
    ) -> Judgements:
        """Validate judgements in memory to choose with and to learn from."""
        read = self._learner().read
        return read(X, y, sample_weight, annotators=annotators, comparisons=comparisons, estimator=self)

    def learn(self, judgements: Judgements) -> Fit:
        """Choose, and return the fit to validated judgements, without storing it."""
        folds = resolve_folds(self._folds, judgements, None, seed=self.random_state or 0, warns=False)
        best = clone(self)._search(judgements, *folds)
        chosen: FittingLearner = self._learner().set_params(**best)
        return chosen.learn(judgements)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy, or the share of comparisons agreed with, as the learner does."""
        self._fitted()
        return self.best_estimator_.score(X, y, sample_weight)

    def _learner(self) -> FittingLearner:
        """The learner whose parameters are chosen: with what is set here, and otherwise with its own."""
        known = LinearMetricLearner().get_params()
        own = {name: value for name, value in self.get_params(deep=False).items() if name in known}
        if self.learner is None:
            return LinearMetricLearner(**own)
        if not isinstance(self.learner, FittingLearner):
            raise TypeError(
                "learner must be a LinearMetricLearner, an OrdinalMetricLearner or a ComparisonMetricLearner; got "
                f"{type(self.learner).__name__}."
            )
        default = type(self)().get_params(deep=False)
        changed = {name: value for name, value in own.items() if value is not default[name] and value != default[name]}
        strange = [name for name in changed if name not in self.learner.get_params()]
        if strange:
            raise ValueError(
                f"{strange[0]} is not a parameter of {type(self.learner).__name__}; got "
                f"{strange[0]}={changed[strange[0]]!r}. Leave it out."
            )
        found: FittingLearner = clone(self.learner).set_params(**changed)
        return found

    def _setting(self, name: str, usual: Any) -> Any:
        """A parameter that is searched: set here or, if `learner` has another value than usual, there; or "auto"."""
        here = getattr(self, name)
        if self.learner is None or not _is_auto(here):
            return here
        there = self.learner.get_params().get(name, usual)
        return here if there == usual else there

    @property
    def _folds(self) -> Any:
        return 5 if self.cv is None else self.cv

    def _search(self, judgements: Judgements, cv: Any, groups: Any) -> dict[str, Any]:
        """Score candidates on every split, keep the table, and return the best one."""
        trial = self._learner().set_params(verbose=0)
        judgements = placed_on(judgements, trial.device)  # once, not for each split
        weighted = judgements.weighted(getattr(trial, "class_weight", None))
        coded = coded_for(trial, judgements)
        scorer = self._scorer(trial, coded)
        sides = [(coded.take(train), coded.take(test)) for train, test in self._splits(weighted, cv, groups)]
        usual = self._usual(weighted)
        trial = with_known_scales(trial, coded, usual.alpha)
        trials = Trials(trial, scorer, sides, n_jobs=self.n_jobs, verbose=self.verbose > 0)
        found = self._try_all(trials, usual, plain=is_plain(judgements))
        best = self._choose(trials.tried, found)
        if self._may_relax(best, plain=is_plain(judgements)):
            best = _relaxed_unless_worse(trials, best)
        self.cv_results_ = trials.results()
        self.best_score_, chosen = best.mean, best.candidate
        self.noise_, self.alpha_scale_ = chosen["noise"], chosen["alpha_scale"]
        self.shrink_to_ = chosen.get("shrink_to", "zero")
        self.relax_threshold_ = chosen.get("relax_threshold", False)
        return chosen

    def _may_relax(self, best: Tried, *, plain: bool) -> bool:
        """Whether a threshold that the penalty does not affect is to be tried."""
        has_penalty = best.candidate["alpha"] > 0
        is_asked = _is_auto(self._setting("relax_threshold", False)) and "relax_threshold" in best.candidate
        return plain and has_penalty and is_asked

    def _scorer(self, trial: FittingLearner, judgements: Judgements) -> Predicted | HeldOut:
        if is_plain(judgements):
            plain = _NEG_LOG_LOSS if self.scoring == "neg_log_loss" else check_scoring(trial, self.scoring)
            return Predicted(plain)
        is_known = isinstance(self.scoring, str) and self.scoring in ("neg_log_loss", "accuracy")
        return HeldOut(self.scoring) if is_known else Predicted(check_scoring(trial, self.scoring))

    def _usual(self, judgements: Judgements) -> _Usual:
        n = number_of(judgements)
        if not is_wide(n, judgements.n_columns):
            return _Usual(0.8 / math.sqrt(n), list(_SCALES))
        alpha, scales = usual_penalty(judgements.counted(), has_origin=self.fit_origin)
        return _Usual(alpha, scales, "units" if str(scales[0]).startswith("units") else "columns")

    def _try_all(self, trials: Trials, usual: _Usual, *, plain: bool) -> Tried:
        """Try alphas, noises and ranks, then vary the best of them in one parameter after another; return the best.

        Flips come first: if many labels are flipped, no other choice is clear without them.  Another
        scale of the penalty, or another matrix to shrink to, must be clearly better.
        """
        grid = self._grid(usual.alpha)
        scale, centre, rate = (
            self._setting(name, default)
            for name, default in (("alpha_scale", "auto"), ("shrink_to", "zero"), ("flip_rate", 0.0))
        )
        scales = usual.scales if _is_auto(scale) else [scale]
        of_identity = usual.of_identity if _is_auto(scale) else None
        fixed = {"alpha_scale": [scales[0]], "flip_rate": [0.0 if _is_auto(rate) else rate]}
        if "shrink_to" in trials.learner.get_params():
            relaxes = self._setting("relax_threshold", False)
            fixed["shrink_to"] = ["zero" if _is_auto(centre) else centre]
            fixed["relax_threshold"] = [False if _is_auto(relaxes) else relaxes]
        candidates = list(ParameterGrid({**grid, **fixed}))
        stops = self.alphas is None and len(candidates) == len(grid["alpha"])
        best = trials.follow(candidates, stops_early=stops)
        if _is_auto(rate):
            best = _try_flips(trials, best, grid["alpha"])
        stops = self.alphas is None

        def path(**changes: Any) -> list[dict[str, Any]]:
            return [{**best.candidate, **changes, "alpha": alpha} for alpha in grid["alpha"]]

        for other in scales[1:]:
            found = trials.follow(path(alpha_scale=other), stops_early=stops)
            if not found.is_clearly_better(best):
                break
            best = found
        if plain and "shrink_to" in fixed and _is_auto(centre) and best.candidate["rank"] is None:
            changes = {} if of_identity is None else {"alpha_scale": of_identity}
            found = trials.follow(path(shrink_to="identity", **changes), stops_early=stops)
            best = found if found.is_clearly_better(best, _CLEARLY_IF_WIDE if changes else _CLEARLY) else best
        return best

    def _grid(self, middle: float) -> dict[str, list[Any]]:
        if self.rule not in ("best", "one_se"):
            raise ValueError(f'rule must be "best" or "one_se"; got {self.rule!r}.')
        noises, ranks = _as_list(self.noises), _as_list(self.ranks)
        if self.learner is not None:
            noises = [self.learner.noise] if noises == ["logistic"] else noises
            ranks = [self.learner.rank] if ranks == [None] else ranks
        grid = {"alpha": _alpha_grid(self.alphas, middle), "noise": noises, "rank": ranks}
        if not all(grid.values()):
            raise ValueError(f"alphas, noises and ranks must each contain at least one value; got {grid}.")
        return grid

    def _splits(self, judgements: Judgements, cv: Any, groups: Any) -> list[Split]:
        """The training and test sides, without pairs of weight zero."""
        seed = None if groups is None else self.random_state or 0
        if self.cv is None and np.ndim(groups) == 2:
            divided = split_by_points(judgements, np.asarray(groups), seed)
        else:
            divided = split_judgements(cv, judgements, groups=groups, seed=seed)
        splits = []
        for number, sides in enumerate(divided):
            train, test = (side[judgements.weights[side] > 0] for side in sides)
            check_split(judgements, number, train, test)
            splits.append((train, test))
        return splits

    def _choose(self, tried: list[Tried], best: Tried) -> Tried:
        """The best candidate or, by the rule of one standard error, the one with the largest alpha near it."""
        if self.rule == "best":
            return best
        error = best.scores.std() / math.sqrt(max(len(best.scores) - 1, 1))
        near = [each for each in tried if each.mean >= best.mean - error and _is_alike(each, best)]
        return max(near, key=lambda each: each.candidate["alpha"])


def _try_flips(trials: Trials, plain: Tried, alphas: list[float]) -> Tried:
    """Try flip rates at the best alpha without flips and below, since flips reduce the need for a penalty."""
    tried = {each.candidate["alpha"]: each for each in trials.tried if _is_alike(each, plain)}
    last: list[Tried] = []
    for alpha in sorted((alpha for alpha in alphas if 0 < alpha <= plain.candidate["alpha"]), reverse=True):
        if alpha not in tried:
            tried[alpha] = trials.follow([{**plain.candidate, "alpha": alpha}], start=last[-1])
        last.append(tried[alpha])
        if len(last) == _MOST_FLIPPED:
            break
    if not last:
        last = [plain]
    best, n_worse = plain, 0
    for rate in _FLIP_RATES:
        # Each fit starts from the one with fewer flips and the same alpha.
        last = [trials.follow([{**tried.candidate, "flip_rate": rate}], start=tried) for tried in last]
        found = max(last, key=lambda tried: tried.mean)
        n_worse = 0 if found.mean > best.mean else n_worse + 1
        best = found if found.mean > best.mean else best
        if n_worse == 2:
            break
    return best


def _relaxed_unless_worse(trials: Trials, best: Tried) -> Tried:
    """Prefer the relaxed threshold: it classifies more pairs correctly, and the log loss hardly depends on it."""
    relaxed = trials.follow([{**best.candidate, "relax_threshold": True}], start=best)
    return best if best.is_clearly_better(relaxed) else relaxed


def _is_alike(one: Tried, other: Tried) -> bool:
    """Whether they differ in alpha at most."""
    return {**one.candidate, "alpha": 0.0} == {**other.candidate, "alpha": 0.0}


def _alpha_grid(alphas: Any, middle: float) -> list[float]:
    count = 7 if alphas is None else alphas
    if isinstance(count, (int, np.integer)) and count >= 1:
        return [0.0, *(np.geomspace(0.125, 8.0, count) * middle).tolist()]
    values = np.asarray(alphas)
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(f"alphas must be None, a whole number >= 1 or a list of finite numbers >= 0; got {alphas!r}.")
    return [float(value) for value in values]


def _as_list(values: Any) -> list[Any]:
    return [values] if values is None or isinstance(values, (str, Noise, numbers.Integral)) else list(values)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
