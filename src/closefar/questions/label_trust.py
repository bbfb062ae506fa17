"""Whether a share of wrong labels can be reported: only if there is no evidence against the model behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.fitting import Fit
from closefar.judgements import Judgements
from closefar.model import Scored
from closefar.questions.dependence import Dependence
from closefar.questions.label_model import LabelModel
from closefar.questions.noise_check import check_noise_if_possible

__all__ = ["doubt_about", "explained"]

# A metric with an error rate above this share of the majority baseline's explains too little.
_MOST_LEFT = 0.6

# With fewer labels of the rarer kind per parameter, the metric fits the labels that it should call wrong.
_LEAST_PER_PARAMETER = 3.0

# If p-values below 0.05 were enough, one share in twenty would be withheld by chance.
_UNLIKELY = 0.01

# One-sided, 2.3% of normal numbers are larger.
_DEPENDENT = 2.0


def explained(unseen: Scored) -> float:
    """How much a metric explains: 0 if its error rate is the majority baseline's, 1 if it is 0.6 times that."""
    guessed = 1.0 - unseen.majority
    if guessed == 0.0:
        return 0.0
    left = (1.0 - unseen.accuracy) / guessed
    return min(max((1.0 - left) / (1.0 - _MOST_LEFT), 0.0), 1.0)


def doubt_about(fit: Fit, judgements: Judgements, unseen: Scored, groups: NDArray[Any] | None) -> str | None:
    """Return why the number of wrong labels can't be estimated from the fit, or None if it can.

    `unseen` are out-of-fold margins, where there are any.
    """
    if fit.metric.rank == 0:
        return "the metric is zero"
    if fit.is_separable:
        return "the metric gets every training label right"
    rarer = judgements.effective_number * (1.0 - Scored.by(fit.metric, judgements).majority)
    needed = _LEAST_PER_PARAMETER * fit.statistics.n_parameters
    if rarer < needed:
        return (
            f"{rarer:.0f} labels of the rarer kind are too few for {fit.statistics.n_parameters} parameters; label "
            f"more pairs, at least {needed:.0f} of each kind, or use fewer columns"
        )
    if explained(unseen) < 1.0:
        return (
            f"the learned distance explains too little: its cross-validated accuracy is {unseen.accuracy:.1%} "
            f"(majority baseline {unseen.majority:.1%})"
        )
    return _doubt_about_noise(fit, judgements, groups) or _doubt_about_points(fit, judgements, groups)


def _doubt_about_noise(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> str | None:
    check = check_noise_if_possible(fit, judgements, groups)
    if check is None or check.p_value >= _UNLIKELY:  # None: too few uncertain labels, so no evidence against it
        return None
    return f"the labels do not fit {fit.metric.noise.name} noise (p = {check.p_value:.2g})"


def _doubt_about_points(fit: Fit, judgements: Judgements, groups: NDArray[Any] | None) -> str | None:
    """Label errors are independent; what the metric misses about a point shows in all pairs of that point."""
    if groups is None:
        return None
    scored = Scored.by(fit.metric, judgements)
    model = LabelModel.at(scored.margin, scored.noise, scored.one_flip_rate)
    scores = judgements.weights * model.residual(judgements.is_far) * model.slope / model.variance
    dependence = Dependence(groups)
    variance = _sum_of_products(judgements.weights**2 * model.information, dependence)
    if not variance > 0 or _sum_of_products(scores, dependence) <= _DEPENDENT * np.sqrt(variance):
        return None
    kind = "point" if groups.ndim == 2 else "group"
    return f"contradictions cluster in pairs of the same {kind}, so the metric misses something about those {kind}s"


def _sum_of_products(values: FloatArray, dependence: Dependence) -> float:
    """The sum over all pairs of rows that depend on each other."""
    return 0.5 * sum(float(cross[0, 0]) for cross in dependence.cross_sums(values[:, None]))
