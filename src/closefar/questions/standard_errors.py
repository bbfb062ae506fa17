"""How sure a fit is: which standard errors hold for it, and a sentence that says so."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from closefar import packed
from closefar.arrays import FloatArray, to_numpy
from closefar.fitting import Fit, Fitted, Settings, refit
from closefar.judgements import Judgements
from closefar.model import Metric
from closefar.questions.dependence import Dependence
from closefar.questions.intervals import Confidence, Spread
from closefar.questions.optimum import Optimum
from closefar.questions.sandwich import Sandwich, sandwich

__all__ = ["confidence"]

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
    learner: Fit | Fitted,
    pairs: Any,
    labels: Any = None,
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
    fit = Fit.of(learner)
    _check_arguments(fit, level, method, n_bootstrap)
    sample = _Observed.of(fit, fit.read(pairs, labels, sample_weight), groups)
    facts = sandwich(sample.optimum, sample.dependence, sample.repeats, sample.largest_rank)
    boundary = _boundary(facts, sample.largest_rank)
    flaws = _flaws(fit, sample, facts)
    if facts.root is None or fit.is_separable or fit.is_quasi_separable:
        used, roots, valid, statement = "none", [], False, _UNDETERMINED
    elif method == "sandwich" or (method == "auto" and boundary is None and fit.settings.alpha == 0):
        used, roots, valid = "sandwich", [facts.root], boundary is None and not flaws
        statement = _sandwich_statement(facts, boundary)
    else:
        draws = _bootstrap(fit, sample, n_bootstrap, random_state, n_jobs)
        used, roots = "bootstrap", _bootstrap_roots(draws - sample.optimum.parameters, facts, boundary)
        if len(draws) < _LEAST_FINITE * n_bootstrap:
            flaws = [*flaws, f"Only {len(draws)} of the {n_bootstrap} resampled fits have a finite optimum."]
        valid = not flaws
        statement = _bootstrap_statement(n_bootstrap, boundary, sample.dependence)
    if flaws and used != "none":
        statement = " ".join(["Not valid.", *flaws, f"The standard errors are the {used}'s."])
    spread = Spread(tuple(roots), sample.optimum.coordinates.transform, float(ndtri(0.5 + 0.5 * level)))
    return Confidence(
        method=used,
        valid=valid,
        flaws=tuple(flaws),
        statement=statement + _about_constant_directions(sample.optimum, fit.metric),
        level=float(level),
        metric=fit.metric,
        threshold=spread.threshold(fit.metric),
        matrix=spread.matrix(fit.metric),
        eigenvalues=spread.eigenvalues(fit.metric),
        _spread=spread,
    )


def _check_arguments(fit: Fit, level: Any, method: Any, n_bootstrap: Any) -> None:
    if not (isinstance(level, numbers.Real) and 0 < float(level) < 1):
        raise ValueError(f"level must be a number between 0 and 1, such as 0.95; got {level!r}.")
    if method not in _METHODS:
        raise ValueError(f"method must be one of {list(_METHODS)}; got {method!r}.")
    if not (isinstance(n_bootstrap, numbers.Integral) and int(n_bootstrap) >= 2):
        raise ValueError(f"n_bootstrap must be a whole number >= 2; got {n_bootstrap!r}.")
    if fit.metric.origin is not None:
        raise ValueError(
            "confidence intervals are for distances between pairs; got a learner with fit_origin=True. "
            "Fit differences of pairs without it."
        )
    if fit.flip_rate > 0:
        raise ValueError(
            "confidence intervals are for a likelihood without flipped labels; got a learner with the flip rate "
            f"{fit.flip_rate:.3g}. Fit it with flip_rate=0: its intervals allow for noise of another kind."
        )


@dataclass(frozen=True)
class _Observed:
    """The fit in unit-free coordinates, how many observations each row stands for, and which rows depend on others."""

    judgements: Judgements
    optimum: Optimum
    repeats: FloatArray
    dependence: Dependence
    largest_rank: int

    @classmethod
    def of(cls, fit: Fit, judgements: Judgements, groups: Any) -> _Observed:
        judgements.check_both_count()
        groups = Dependence.check(groups, len(judgements))
        weighted = judgements.weighted(fit.settings.class_weight)
        kept = np.flatnonzero(weighted.weights > 0)
        counted = weighted.take(kept)
        optimum = Optimum.of(fit.metric, counted, mix_columns=fit.settings.mixes_columns)
        n_parameters = packed.packed_size(optimum.size) + 1
        if n_parameters > _MOST_PARAMETERS:
            raise ValueError(
                f"standard errors need the covariance of at most {_MOST_PARAMETERS} parameters; {optimum.size} columns "
                f"have {n_parameters}. Leave columns out, or map them to fewer (for instance with PCA)."
            )
        return cls(
            counted,
            optimum,
            repeats=judgements.weights[kept],
            dependence=Dependence(None if groups is None else groups[kept]),
            largest_rank=min(fit.rank or optimum.size, optimum.size),
        )


def _boundary(facts: Sandwich, largest_rank: int) -> str | None:
    """Why the optimum may lie on the boundary of the feasible set; None where it is interior."""
    if facts.rank < largest_rank:
        return f"M has rank {facts.rank} of {largest_rank}"
    if not facts.smallest > _AWAY:
        return f"the smallest eigenvalue of M is only {facts.smallest:.1f} standard errors above zero"
    if not facts.threshold > _AWAY:
        return f"the threshold is only {facts.threshold:.1f} standard errors above zero"
    return None


def _flaws(fit: Fit, sample: _Observed, facts: Sandwich) -> list[str]:
    """Why neither method is valid, a sentence each."""
    flaws = []
    n, n_parameters, dependence = float(sample.repeats.sum()), len(sample.optimum.parameters), sample.dependence
    if fit.settings.alpha > 0:
        flaws.append(
            f"The penalty alpha={fit.settings.alpha:g} shrinks M, and the intervals do not show by how much: "
            "set alpha=0."
        )
    elif not fit.certificate.converged:
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


def _bootstrap_roots(moves: FloatArray, facts: Sandwich, boundary: str | None) -> list[FloatArray]:
    """Roots of covariances, of which intervals hold the widest; none where no refit has an optimum."""
    if len(moves) == 0:
        return []
    roots = [moves.T / np.sqrt(len(moves))]
    if boundary is not None and facts.root is not None:
        # A refit's optimum is held at the boundary, where the labels' source may not be.
        roots.append(facts.root)
    return roots


def _bootstrap_statement(n_bootstrap: int, boundary: str | None, dependence: Dependence) -> str:
    statement = f"Bootstrap standard errors from {n_bootstrap} refits"
    if boundary is None:
        statement += ": the optimum is interior, where the sandwich is as good and faster."
    else:
        statement += (
            f", or the sandwich's where those are larger: {boundary}, so the optimum is on the boundary or near "
            "it, where neither is exact. They hold approximately for the threshold, probabilities, distances, and "
            "entries and eigenvalues clearly not zero. Nothing is claimed for eigenvalues at zero and distances along "
            "their directions."
        )
    if dependence.by_points:
        statement += " With points resampled they are too wide, by a factor of about two where few pairs share a point."
    return statement


def _about_constant_directions(optimum: Optimum, metric: Metric) -> str:
    n = len(metric.factor) - optimum.size
    return f" In {n} directions the pairs do not vary; there M is taken as zero." if n > 0 else ""


def _bootstrap(fit: Fit, sample: _Observed, n_bootstrap: int, random_state: Any, n_jobs: int | None) -> FloatArray:
    """The parameters of each refit that has a finite optimum, one row each.

    The refits are in the optimum's unit-free coordinates: a fit does not depend on units.
    """
    rows = sample.optimum.rows
    points = np.ascontiguousarray(to_numpy(rows.read(slice(0, rows.n_rows))).T)
    judgements = sample.judgements.in_coordinates(points)
    # What was chosen is kept; class weights are in the rows' weights already.
    settings = fit.chosen.but(rank=sample.largest_rank)
    start = Metric.from_factor(sample.optimum.factor, sample.optimum.threshold)
    scale = judgements.shares / sample.repeats
    seeds = np.random.SeedSequence(check_random_state(random_state).randint(2**31)).spawn(n_bootstrap)
    draws = Parallel(n_jobs=n_jobs)(
        delayed(_draw)(judgements, settings, scale, sample.repeats, sample.dependence, seed, start) for seed in seeds
    )
    finite = [draw for draw in draws if draw is not None]
    return np.array(finite).reshape(len(finite), len(sample.optimum.parameters))


def _draw(
    judgements: Judgements,
    settings: Settings,
    scale: FloatArray,
    repeats: FloatArray,
    dependence: Dependence,
    seed: np.random.SeedSequence,
    start: Metric,
) -> FloatArray | None:
    """The parameters of one refit; None where it has no finite optimum."""
    weights = scale * dependence.draw(repeats, np.random.default_rng(seed))
    drawn = np.flatnonzero(weights > 0)
    if len(np.unique(judgements.is_far[drawn])) < 2:
        return None
    fit = refit(judgements.with_weights(weights).take(drawn), settings, start=start)
    if not fit.certificate.converged or fit.is_separable:
        return None
    return packed.joined(fit.metric.matrix, np.array([fit.metric.threshold]))
