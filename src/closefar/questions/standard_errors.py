"""Confidence intervals of a fit: the choice of a valid method, and a statement about it."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from closefar.arrays import FloatArray
from closefar.fitting import Fit, Fitted, without_penalty
from closefar.questions.annotating import read_for
from closefar.questions.free_optimum import find_free_optimum
from closefar.questions.intervals import Confidence
from closefar.questions.noise_advice import DOUBT
from closefar.questions.noise_check import check_noise_if_possible
from closefar.questions.observed import Observed
from closefar.questions.reach import Reach, only
from closefar.questions.refits import bootstrap, jackknife
from closefar.questions.sandwich import Sandwich, sandwich
from closefar.questions.spread import Spread
from closefar.questions.validity import (
    CONTRADICTED_MODEL,
    CONTRADICTED_RANK,
    FARTHEST,
    NO_FREE_OPTIMUM,
    NOT_WITHOUT_PARTS,
    Evidence,
    boundary_of,
    find_flaws,
    state,
    state_bootstrap,
    state_flaws,
    undetermined_statement,
)
from closefar.questions.vocabulary import in_words_of

__all__ = ["confidence"]

_METHODS = ("auto", "sandwich", "jackknife", "bootstrap")

# The share of the bootstrap's refits that must have a finite optimum.
_LEAST_FINITE = 0.95


def confidence(
    learner: Fit | Fitted,
    pairs: Any = None,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    annotators: Any = None,
    comparisons: Any = None,
    level: float = 0.95,
    method: str = "auto",
    n_bootstrap: int = 200,
    groups: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Confidence:
    """Compute confidence intervals for a fitted learner from its training judgements, of any kind.

    Their target is the M and the thresholds that generated the labels.  If the noise is of another kind than
    the learner's, the target is the best approximation: the M and thresholds that an infinite sample would
    give.  The statement says so if `check_noise_model` rejects the noise model.  Intervals for
    a probability are computed for the margin (with an estimated flip rate, for the log odds) and
    mapped to probabilities; those for a distance are computed for its square.

    Each interval contains the fit's estimate, but need not be centred there.  If M has eigenvalues at
    or near zero, or the rank was chosen from the labels, the centre is the optimum over all
    symmetric matrices, which has no boundary.  With few uncertain labels per parameter, the
    interval also allows for the bias of the fit.  For more than 100,000 pairs, a sample that represents
    all gives the standard errors to within about one percent; it depends on the order of the pairs.

    Parameters
    ----------
    learner : LinearMetricLearner, OrdinalMetricLearner or ComparisonMetricLearner
        A fitted learner without a learned origin.  If it has a penalty, as it has by default, the intervals are
        those of the fit without it, which takes one more fit; nothing is known of how far a penalty is from the
        truth.  A flip rate that was chosen is estimated again.  A rank that was set is treated as known, and so is
        the noise.
    pairs, labels, sample_weight, annotators, comparisons
        As passed to `fit`; for a comparison learner, `pairs` are the comparisons and `labels` the answers.  By
        default the training judgements.  The strictness of annotators is part of the uncertainty; the width of its
        distribution and an estimated noise of comparisons are treated as known.  With a flip rate for each annotator,
        only `relative_matrix` can be trusted.  A weight of 2
        counts as two independent observations of the pair:
        multiplying all weights by 4 halves the standard errors.  For weights that express the
        importance of an observation, pass ``groups=range(n)`` as well.
    level : float, default=0.95
    method : {"auto", "sandwich", "jackknife", "bootstrap"}, default="auto"
        "sandwich": H^-1 V H^-1 with the observed information H and the variance V of the
        scores, which needs no refits but many uncertain labels per parameter.  "jackknife": an
        interval that contains that of the sandwich and that of 20 fits, each without one twentieth
        of the pairs, corrected for bias.  "auto" uses the first if it is valid, otherwise the second.
        "bootstrap": the root mean square change over refits to resampled pairs or, on the
        boundary, the sandwich if that is larger; it needs many uncertain labels, too.
        No refits are made if they can't make the intervals valid.
    n_bootstrap : int, default=200
        The number of bootstrap refits.
    groups : array of n ids, or of shape (n, 2), optional
        Pairs that are not independent: those with the same id or, in the second form, those
        that share the id of a point.  By default, points that pairs share are detected in
        (n, 2, d) data.
    random_state : int, RandomState or None
        Seed of the jackknife parts (by default always the same) and of the bootstrap samples.
    n_jobs : int, optional
        The number of refits to run in parallel, as in joblib.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(3000, 2, rank=2, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(data.pairs, data.labels)
    >>> intervals = cf.confidence(learner, data.pairs, data.labels)
    >>> intervals.method, intervals.valid
    ('sandwich', True)
    >>> bool(intervals.threshold.low < learner.metric_.threshold < intervals.threshold.high)
    True
    """
    fit = Fit.of(learner)
    _check_arguments(fit, level, method, n_bootstrap)
    judgements = read_for(fit, pairs, labels, sample_weight, annotators, comparisons)
    plain = without_penalty(fit, judgements, class_weight=fit.settings.class_weight)
    sample = Observed.of(plain, judgements, groups)
    facts = sandwich(sample.likelihood, sample.parameters, sample.dependence, sample.repeats, sample.largest_rank)
    if facts.root is None or sample.fit.is_separable or sample.fit.is_quasi_separable:
        statement = undetermined_statement(sample, has_penalty=fit.alpha > 0)
        answer = _Answer("none", (statement,), statement, ())
    else:
        answer = _answer(
            sample, facts, facts.root, _Request(method, int(n_bootstrap), float(level), random_state, n_jobs)
        )
    transform, likelihood = sample.optimum.coordinates.transform, sample.likelihood
    spread = Spread(answer.reaches, transform, likelihood.outcomes.n_thresholds, likelihood.n_rates)
    metric = sample.fit.metric
    thresholds = spread.thresholds(metric)
    statement = answer.statement + _remarks(fit, sample, is_determined=answer.method != "none")
    return Confidence(
        method=answer.method,
        valid=not answer.flaws,
        flaws=tuple(in_words_of(fit.kind, flaw) for flaw in answer.flaws),
        statement=in_words_of(fit.kind, statement),
        level=float(level),
        metric=metric,
        threshold=only(thresholds) if len(metric.thresholds) == 1 else None,
        thresholds=thresholds,
        directions=spread.directions(sample.optimum.matrix, sample.optimum.moment_root),
        matrix=spread.matrix(metric),
        eigenvalues=spread.eigenvalues(metric),
        relative_matrix=spread.relative_matrix(metric),
        flip_rate=spread.flip_rate(metric),
        _spread=spread,
        _comparison_noise=sample.fit.relative_noise,
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
            "confidence intervals need a learner with fit_origin=False; got fit_origin=True. "
            "Fit the differences of pairs without it."
        )


@dataclass(frozen=True)
class _Request:
    """The options of the computation."""

    method: str
    n_bootstrap: int
    level: float
    random_state: Any
    n_jobs: int | None


@dataclass(frozen=True)
class _Answer:
    """The method, the reasons why the intervals are not valid (none if they are), and where the parameters may be."""

    method: str
    flaws: tuple[str, ...]
    statement: str
    reaches: tuple[Reach, ...]


def _answer(sample: Observed, facts: Sandwich, root: FloatArray, request: _Request) -> _Answer:
    """Choose a method and apply it; if none can be valid, use the sandwich at the fit."""
    boundary = boundary_of(facts, sample.largest_rank)
    keeps_rank = sample.knows_rank and boundary is None
    evidence = Evidence.of(sample, facts, keeps_rank=keeps_rank)
    used = request.method
    if used == "auto":
        used = "sandwich" if evidence.is_plenty else "jackknife"
    at_fit = Reach(np.zeros_like(sample.parameters), root, float(ndtri(0.5 + 0.5 * request.level)))
    flaws = find_flaws(sample, facts, evidence, used, keeps_rank=keeps_rank)
    if flaws:
        return _Answer("sandwich", flaws, state_flaws(flaws, "sandwich", skipped=used != "sandwich"), (at_fit,))
    if used == "bootstrap":
        reaches, flaws = _by_bootstrap(sample, at_fit, boundary, request)
        statement = state_flaws(flaws, used) if flaws else state_bootstrap(sample, boundary, request.n_bootstrap)
        return _Answer(used, flaws, statement, reaches)
    around, flaws, remark = _centre(sample, facts, at_fit, boundary, keeps_rank=keeps_rank)
    reaches = (around,)
    if used == "jackknife" and not flaws:
        by_parts = jackknife(
            sample,
            sample.parameters + around.shift,
            request.level,
            request.random_state,
            request.n_jobs,
            keeps_rank=keeps_rank,
        )
        reaches, flaws = (reaches, (NOT_WITHOUT_PARTS,)) if by_parts is None else ((around, by_parts), ())
    if flaws:
        return _Answer("sandwich", flaws, state_flaws(flaws, "sandwich"), reaches)
    return _Answer(used, (), state(sample, facts, evidence, used, boundary) + remark, reaches)


def _centre(
    sample: Observed, facts: Sandwich, at_fit: Reach, boundary: str | None, *, keeps_rank: bool
) -> tuple[Reach, tuple[str, ...], str]:
    """The sandwich at the fit or, if that is not in the interior, at the free optimum; flaws, and a remark."""
    has_all_ranks = sample.largest_rank == sample.optimum.size
    if boundary is None and has_all_ranks and facts.distance <= FARTHEST:
        return at_fit, (), ""
    free = find_free_optimum(sample, facts)
    if keeps_rank:
        remark = "" if free is None or not free.contradicts else " " + CONTRADICTED_RANK
        return at_fit, (), remark
    if free is None:
        return at_fit, (NO_FREE_OPTIMUM,), ""
    if has_all_ranks and free.contradicts:
        return at_fit, (CONTRADICTED_MODEL,), ""
    return replace(at_fit, shift=free.shift, root=free.root), (), ""


def _by_bootstrap(
    sample: Observed, at_fit: Reach, boundary: str | None, request: _Request
) -> tuple[tuple[Reach, ...], tuple[str, ...]]:
    draws = bootstrap(sample, request.n_bootstrap, request.random_state, request.n_jobs)
    flaws: tuple[str, ...] = ()
    if len(draws) < _LEAST_FINITE * request.n_bootstrap:
        flaws = (f"Only {len(draws)} of {request.n_bootstrap} bootstrap refits have a finite optimum.",)
    if len(draws) == 0:
        return (), flaws
    root = (draws - sample.parameters).T / np.sqrt(len(draws))
    # The optimum of a refit is held at the boundary, where the true parameters may not be.
    return (replace(at_fit, root=root), *((at_fit,) if boundary is not None else ())), flaws


def _remarks(fit: Fit, sample: Observed, *, is_determined: bool) -> str:
    """Remarks for every method: penalty, noise, what is treated as known, and directions without data."""
    remarks = ""
    if fit.alpha > 0:
        remarks += f" The intervals are for the fit without the penalty alpha={fit.alpha:.3g}, which shrinks M."
    if is_determined and _is_noise_in_doubt(sample):
        remarks += (
            " check_noise_model rejects the noise model, so the intervals are for the best approximation, not for the "
            "M and tau that generated the labels."
        )
    if sample.judgements.annotators is not None:
        remarks += " The width of the annotators' strictness is treated as known."
    if sample.judgements.comparisons is not None and fit.settings.comparison_noise == "estimate":
        remarks += " The noise of comparisons, which was estimated, is treated as known."
    n = len(sample.fit.metric.factor) - sample.optimum.size
    plural = "s" if n > 1 else ""
    return remarks + (f" The pairs do not vary in {n} direction{plural}; M is zero there." if n > 0 else "")


def _is_noise_in_doubt(sample: Observed) -> bool:
    judgements = sample.judgements.with_weights(sample.repeats[: len(sample.judgements)])
    check = check_noise_if_possible(sample.fit, judgements, sample.dependence.ids)
    return check is not None and check.p_value < DOUBT
