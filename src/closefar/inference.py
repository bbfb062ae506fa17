"""How sure a fit is: which standard errors hold for it, and a sentence that says so."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from closefar import packed
from closefar.arrays import FloatArray
from closefar.intervals import Confidence, Interval, Spread
from closefar.metric import Metric
from closefar.pairs import Differences, check_labels, check_pairs, check_weights
from closefar.sandwich import Dependence, Optimum, Sandwich, sandwich

__all__ = ["Confidence", "Interval", "confidence"]

_METHODS = ("auto", "sandwich", "bootstrap")

# An eigenvalue or a threshold this many standard errors above zero is away from the boundary.
_AWAY = 3.0

# A fit further than this from its optimum, in standard errors, moves the intervals visibly.
_FARTHEST = 0.1

_FEWEST_UNITS = 30
_MOST_PARAMETERS = 4000

# Of the bootstrap's refits this share must have a finite optimum.
_LEAST_FINITE = 0.95

_UNDETERMINED = (
    "Not valid: the pairs do not determine the metric (a change of it leaves every likely label as it is, or all "
    "labels can be explained without error), so every interval is unbounded. Give more pairs or fewer columns."
)


def confidence(
    learner: Any,
    pairs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    level: float = 0.95,
    method: str = "auto",
    n_bootstrap: int = 200,
    groups: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Confidence:
    """Compute confidence intervals for a fitted learner from the pairs it was fitted to.

    The intervals are estimate +- quantile * standard error; for a probability on the scale
    of the margin, then mapped through the noise's CDF; for a distance on its square.  Their
    target are the M and tau that the labels came from.  Where the noise is of another kind
    than the learner's, it is the best approximation: the M and tau that an endless sample
    would give.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted without penalty (alpha=0), learned origin or flipped labels.  A rank or a noise
        that it chose itself counts as known.
    pairs, labels, sample_weight
        As they were given to `fit`.  A weight of 2 counts as the pair given twice, by two
        independent observations: all weights times 4 halve the standard errors.  For weights
        that say how much an observation matters, give ``groups=range(n)`` as well.
    level : float, default=0.95
    method : {"auto", "sandwich", "bootstrap"}, default="auto"
        "sandwich": H^-1 V H^-1 with the observed information H and the variance V of the
        scores; needs no refits, and holds where M has full rank (or the rank that the learner
        was told) and tau > 0, both clearly.  "bootstrap": the root mean square change over
        refits to resampled pairs or, on the boundary, the sandwich where that is larger.
        "auto" takes the first where it holds, else the second.
    n_bootstrap : int, default=200
        The number of refits.
    groups : array of n ids, or of shape (n, 2), optional
        Pairs that are not independent: those with the same id or, in the second form, those
        that share a point, each given by its id.
    random_state : int, RandomState or None
        Chooses the bootstrap samples.
    n_jobs : int, optional
        Refits that run at once, as in joblib.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(3000, 2, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> sure = cf.confidence(learner, data.pairs, data.labels)
    >>> sure.method, sure.valid
    ('sandwich', True)
    >>> bool(sure.threshold.low < learner.metric_.threshold < sure.threshold.high)
    True
    """
    learner = getattr(learner, "best_estimator_", learner)
    _check_arguments(learner, level, method, n_bootstrap)
    optimum, dependence = _read(learner, pairs, labels, sample_weight, groups)
    largest_rank = min(learner.rank_ or optimum.size, optimum.size)
    facts = sandwich(optimum, dependence, largest_rank)
    metric = learner.metric_
    boundary = _boundary(facts, largest_rank)
    flaws = _flaws(learner, optimum, dependence, facts)
    if facts.root is None or learner.certificate_.status.startswith("separable"):
        used, roots, valid, statement = "none", [], False, _UNDETERMINED
    elif method == "sandwich" or (method == "auto" and boundary is None and learner.alpha == 0):
        used, roots, valid = "sandwich", [facts.root], boundary is None and not flaws
        statement = _sandwich_statement(facts, boundary)
    else:
        draws = _bootstrap(learner, optimum, dependence, n_bootstrap, random_state, n_jobs)
        used, roots = "bootstrap", [(draws - optimum.parameters).T / np.sqrt(len(draws))] if len(draws) else []
        if boundary is not None and roots:
            # A refit's optimum is held at the boundary, where the labels' source may not be.
            roots.append(facts.root)
        if len(draws) < _LEAST_FINITE * n_bootstrap:
            flaws = [*flaws, f"Only {len(draws)} of the {n_bootstrap} resampled fits have a finite optimum."]
        valid = not flaws
        statement = _bootstrap_statement(n_bootstrap, boundary)
        if dependence.by_points:
            statement += (
                " With points resampled they are too wide, by a factor of about two where few pairs share a point."
            )
    if flaws and used != "none":
        statement = " ".join(["Not valid.", *flaws, f"The standard errors are the {used}'s."])
    if optimum.size < len(metric.factor):
        statement += (
            f" In {len(metric.factor) - optimum.size} directions the pairs do not vary; there M is taken as zero."
        )
    spread = Spread(tuple(roots), optimum.transform, float(ndtri(0.5 + 0.5 * level)))
    return Confidence(
        method=used,
        valid=valid,
        statement=statement,
        level=float(level),
        metric=metric,
        threshold=spread.threshold(metric),
        matrix=spread.matrix(metric),
        eigenvalues=spread.eigenvalues(metric),
        _spread=spread,
    )


def _check_arguments(learner: Any, level: Any, method: Any, n_bootstrap: Any) -> None:
    check_is_fitted(learner, "metric_")
    if not (isinstance(level, numbers.Real) and 0 < float(level) < 1):
        raise ValueError(f"level must be a number between 0 and 1, such as 0.95; got {level!r}.")
    if method not in _METHODS:
        raise ValueError(f"method must be one of {list(_METHODS)}; got {method!r}.")
    if not (isinstance(n_bootstrap, numbers.Integral) and int(n_bootstrap) >= 2):
        raise ValueError(f"n_bootstrap must be a whole number >= 2; got {n_bootstrap!r}.")
    if learner.metric_.origin is not None:
        raise ValueError(
            "confidence intervals are for distances between pairs; got a learner with fit_origin=True. "
            "Fit differences of pairs without it."
        )
    if getattr(learner, "flip_rate_", 0.0) > 0:
        raise ValueError(
            "confidence intervals are for a likelihood without flipped labels; got a learner with the flip rate "
            f"{learner.flip_rate_:.3g}. Fit it with flip_rate=0: its intervals allow for noise of another kind."
        )


def _read(learner: Any, pairs: Any, labels: Any, sample_weight: Any, groups: Any) -> tuple[Optimum, Dependence]:
    """The fit in unit-free coordinates, and which of its rows depend on each other."""
    differences = check_pairs(learner, pairs, fitting=False)
    _, signs = check_labels(labels, learner.classes_[1], len(differences))
    labels = np.asarray(labels).reshape(-1)
    repeats = check_weights(sample_weight, None, labels, differences)
    weights = check_weights(sample_weight, learner.class_weight, labels, differences)
    groups = Dependence.check(groups, len(differences))
    kept = weights > 0
    if not np.all(kept):
        differences = Differences(differences.data[kept])
        signs, repeats, weights = signs[kept], repeats[kept], weights[kept]
        groups = None if groups is None else groups[kept]
    mix_columns = learner.alpha == 0 or learner.alpha_scale == "data"
    optimum = Optimum.of(learner.metric_, differences, signs, repeats, weights, mix_columns)
    n_parameters = packed.packed_size(optimum.size) + 1
    if n_parameters > _MOST_PARAMETERS:
        raise ValueError(
            f"standard errors need the covariance of at most {_MOST_PARAMETERS} parameters; {optimum.size} columns "
            f"have {n_parameters}. Leave columns out, or map them to fewer (for instance with PCA)."
        )
    return optimum, Dependence(groups)


def _boundary(facts: Sandwich, largest_rank: int) -> str | None:
    """Why the optimum may lie on the boundary of the feasible set; None where it is interior."""
    if facts.rank < largest_rank:
        return f"M has rank {facts.rank} of {largest_rank}"
    if not facts.smallest > _AWAY:
        return f"the smallest eigenvalue of M is only {facts.smallest:.1f} standard errors above zero"
    if not facts.threshold > _AWAY:
        return f"the threshold is only {facts.threshold:.1f} standard errors above zero"
    return None


def _flaws(learner: Any, optimum: Optimum, dependence: Dependence, facts: Sandwich) -> list[str]:
    """Why neither method is valid, a sentence each."""
    flaws = []
    n, n_parameters = float(optimum.repeats.sum()), len(optimum.parameters)
    if learner.alpha > 0:
        flaws.append(
            f"The penalty alpha={learner.alpha:g} shrinks M, and the intervals do not show by how much: set alpha=0."
        )
    elif not learner.certificate_.converged:
        flaws.append("The fit did not converge: see certificate_.status.")
    elif not facts.distance <= _FARTHEST:
        flaws.append(
            f"The fit is {facts.distance:.2g} standard errors from the optimum: give the pairs, labels and weights "
            "that it was fitted to, or fit with a smaller tol."
        )
    if n <= n_parameters:
        flaws.append(f"{n:g} observations (weights count as repeats) are too few for {n_parameters} parameters.")
    if dependence.n_units is not None and dependence.n_units < _FEWEST_UNITS:
        what = "points" if dependence.by_points else "groups"
        flaws.append(f"{dependence.n_units} {what} are too few: at least {_FEWEST_UNITS} are needed.")
    return flaws


def _sandwich_statement(facts: Sandwich, boundary: str | None) -> str:
    if boundary is None:
        return (
            "Sandwich standard errors from the observed information: the optimum is interior "
            f"(the smallest eigenvalue of M is {facts.smallest:.1f} standard errors above zero, "
            f"the threshold {facts.threshold:.1f})."
        )
    return (
        f"Sandwich standard errors from the observed information, though {boundary}: there they are not proven, and "
        'tend to be too large. Use method="bootstrap".'
    )


def _bootstrap_statement(n_bootstrap: int, boundary: str | None) -> str:
    refits = f"Bootstrap standard errors from {n_bootstrap} refits"
    if boundary is None:
        return f"{refits}: the optimum is interior, where the sandwich is as good and faster."
    return (
        f"{refits}, or the sandwich's where those are larger: {boundary}, so the optimum is on the boundary or near "
        "it, where neither is exact. They hold approximately for the threshold, probabilities, distances, and entries "
        "and eigenvalues clearly not zero. Nothing is claimed for eigenvalues at zero and distances along their "
        "directions."
    )


def _bootstrap(
    learner: Any, optimum: Optimum, dependence: Dependence, n_bootstrap: int, random_state: Any, n_jobs: int | None
) -> FloatArray:
    """The parameters of each refit that has a finite optimum, one row each.

    The refits are in the optimum's unit-free coordinates: the learner does not depend on units.
    """
    rows = optimum.risk.rows
    points = np.ascontiguousarray(rows.read(slice(0, len(rows))).T)
    # What the learner chose is kept; class weights are in the rows' weights already, and labels are signs.
    chosen = {"noise": learner.metric_.noise, "rank": min(learner.rank_ or optimum.size, optimum.size)}
    learner = clone(learner).set_params(
        **chosen, flip_rate=0.0, class_weight=None, far_label=None, verbose=0, warm_start=True
    )
    start = Metric.from_factor(optimum.factor, optimum.threshold)
    scale = rows.weights / optimum.repeats
    seeds = np.random.SeedSequence(check_random_state(random_state).randint(2**31)).spawn(n_bootstrap)
    draws = Parallel(n_jobs=n_jobs)(
        delayed(_refit)(learner, points, rows.signs, scale, optimum.repeats, dependence, seed, start) for seed in seeds
    )
    finite = [draw for draw in draws if draw is not None]
    return np.array(finite).reshape(len(finite), len(optimum.parameters))


def _refit(
    learner: Any,
    points: FloatArray,
    signs: FloatArray,
    scale: FloatArray,
    repeats: FloatArray,
    dependence: Dependence,
    seed: np.random.SeedSequence,
    start: Metric,
) -> FloatArray | None:
    weights = scale * dependence.draw(repeats, np.random.default_rng(seed))
    drawn = weights > 0
    if len(np.unique(signs[drawn])) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a refit would warn of is counted
        fitted = clone(learner)
        fitted.metric_ = start
        fitted.fit(points[drawn], signs[drawn], sample_weight=weights[drawn])
    if not fitted.certificate_.converged or fitted.certificate_.status.startswith("separable"):
        return None
    return np.append(packed.pack(fitted.metric_.matrix), fitted.metric_.threshold)
