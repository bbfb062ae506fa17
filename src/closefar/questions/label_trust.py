"""Whether a share of wrong labels can be reported: only if there is no evidence against the model behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from closefar.arrays import FloatArray
from closefar.fitting import Fit, Scores
from closefar.judgements import Judgements, Kind
from closefar.model import Scored, ScoredLevels
from closefar.questions.dependence import Dependence
from closefar.questions.label_model import LabelModel
from closefar.questions.noise_check import check_noise_if_possible
from closefar.questions.two_sided import two_sided

__all__ = ["doubt_about", "explained"]

# A metric with an error rate above this share of the majority baseline's explains too little.
_MOST_LEFT = 0.6

# With fewer labels of the rarer kind per parameter, the metric fits the labels that it should call wrong.
_LEAST_PER_PARAMETER = 3.0

# If p-values below 0.05 were enough, one share in twenty would be withheld by chance.
_UNLIKELY = 0.01

# One-sided, 2.3% of normal numbers are larger.
_DEPENDENT = 2.0


def explained(unseen: Scores) -> float:
    """How much a metric explains: 0 if its error rate is the majority baseline's, 1 if it is 0.6 times that.

    Of levels these are the mean numbers of levels that it, and the best constant level, are wrong by.  A comparison
    can be given either way round, so the baseline is one half.
    """
    wrong, guessed = _errors(unseen)
    if guessed == 0.0:
        return 0.0
    return min(max((1.0 - wrong / guessed) / (1.0 - _MOST_LEFT), 0.0), 1.0)


def _errors(scores: Scores) -> tuple[float, float]:
    """The error of the metric, and of a baseline."""
    cuts = scores.dichotomies
    return sum(1.0 - each.accuracy for each in cuts), sum(1.0 - each.majority for each in cuts)


def doubt_about(fit: Fit, judgements: Judgements, unseen: Scores, groups: NDArray[Any] | None) -> str | None:
    """Return why the number of wrong labels can't be estimated from the fit, or None if it can.

    `unseen` are out-of-fold margins, where there are any.
    """
    if fit.metric.rank == 0:
        return "the metric is zero"
    if fit.is_separable:
        return "the metric gets every training label right"
    return (
        _doubt_about_number(fit, judgements)
        or _doubt_about_metric(unseen)
        or _doubt_about_noise(fit, judgements, groups)
        or _doubt_about_points(fit, judgements, groups)
    )


def _doubt_about_number(fit: Fit, judgements: Judgements) -> str | None:
    n, n_parameters = judgements.effective_number, fit.statistics.n_parameters
    needed = _LEAST_PER_PARAMETER * n_parameters
    if judgements.kind is Kind.COMPARISONS:
        if n >= 2.0 * needed:
            return None
        return (
            f"{n:.0f} comparisons are too few for {n_parameters} parameters; make more, at least {2.0 * needed:.0f}, "
            "or use fewer columns"
        )
    rarer = n * (1.0 - float(np.max(np.bincount(judgements.codes, judgements.shares))))
    if rarer >= needed:
        return None
    if judgements.levels is not None:
        return (
            f"{rarer:.0f} labels besides those of the most frequent level are too few for {n_parameters} parameters; "
            f"label more pairs, at least {needed:.0f} of other levels, or use fewer columns"
        )
    return (
        f"{rarer:.0f} labels of the rarer kind are too few for {n_parameters} parameters; label "
        f"more pairs, at least {needed:.0f} of each kind, or use fewer columns"
    )


def _doubt_about_metric(unseen: Scores) -> str | None:
    if explained(unseen) >= 1.0:
        return None
    wrong, guessed = _errors(unseen)
    found = (
        f"by cross-validation it is wrong by {wrong:.2f} levels on average (the best constant level by {guessed:.2f})"
        if isinstance(unseen, ScoredLevels)
        else f"its cross-validated accuracy is {1.0 - wrong:.1%} (majority baseline {1.0 - guessed:.1%})"
    )
    return f"the learned distance explains too little: {found}"


def _doubt_about_noise(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> str | None:
    check = check_noise_if_possible(fit, judgements, groups)
    if check is None or check.p_value >= _UNLIKELY:  # None: too few uncertain labels, so no evidence against it
        return None
    return f"the labels do not fit {fit.metric.noise.name} noise (p = {check.p_value:.2g})"


def _doubt_about_points(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> str | None:
    """Label errors are independent; what the metric misses about a point shows in all pairs of that point."""
    if groups is None:
        return None
    dependence, asked = Dependence(groups), two_sided(fit, replace(judgements, comparisons=None))
    # Of several questions, one may be this far out by chance.
    most = _DEPENDENT if len(asked) == 1 else float(norm.isf(norm.sf(_DEPENDENT) / len(asked)))
    if not any(_clusters(each.scored, dependence, most) for each in asked):
        return None
    kind = "point" if groups.ndim == 2 else "group"
    where = f"in {judgements.kind.noun}s of the same {kind}"
    return f"contradictions cluster {where}, so the metric misses something about those {kind}s"


def _clusters(scored: Scored, dependence: Dependence, most: float) -> bool:
    """Whether the scores of labels that depend on each other have the same sign more often than by chance."""
    judgements, model = scored.judgements, LabelModel.at(scored.margin, scored.noise, scored.flip_rate)
    scores = judgements.weights * model.residual(judgements.is_far) * model.slope / model.variance
    variance = _sum_of_products(judgements.weights**2 * model.information, dependence)
    return variance > 0 and _sum_of_products(scores, dependence) > most * np.sqrt(variance)


def _sum_of_products(values: FloatArray, dependence: Dependence) -> float:
    """The sum over all pairs of rows that depend on each other."""
    return 0.5 * sum(float(cross[0, 0]) for cross in dependence.cross_sums(values[:, None]))
