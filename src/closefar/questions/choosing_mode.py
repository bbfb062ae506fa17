"""The centre of what is known: the fit, or the same fit with a penalty where labels are few."""

from __future__ import annotations

import math
from dataclasses import replace

from closefar.arrays import Array, FloatArray, is_foreign, is_indexed, to_numpy
from closefar.fitting import Fit, number_of, refit
from closefar.judgements import Judgements
from closefar.model import Metric

__all__ = ["fit_with_prior", "in_numpy", "training_of"]

# With fewer uncertain labels per parameter, M is too large without a penalty; if none is uncertain, it is arbitrary.
_FEW_UNCERTAIN = 10.0

# That of alpha="auto" with few labels: times the root of their number.
_PENALTY = 0.2
_ROUGH = 1e-4  # the tolerance of that fit


def training_of(fit: Fit) -> Judgements:
    """The training data of a fit that count, in NumPy."""
    if fit.judgements is None:
        raise ValueError(
            "choose_pairs needs the judgements that the learner was fitted to; this learner was copied or loaded "
            "without them. Fit it again."
        )
    found = fit.training().weighted(fit.settings.class_weight).counted()
    return found.with_data(in_numpy(found.data))


def fit_with_prior(fit: Fit, judgements: Judgements, transform: FloatArray) -> Fit:
    """The mode of the posterior: a fit with a penalty is one, and so is, nearly, a fit to many uncertain labels.

    The penalty is on tr M in the coordinates y = transform' z.
    """
    if fit.alpha > 0 or fit.statistics.uncertain_per_parameter >= _FEW_UNCERTAIN:
        return fit
    settings = fit.chosen.but(
        alpha=_PENALTY / math.sqrt(number_of(judgements)),
        alpha_scale="units",
        flip_rate=fit.settings.flip_rate,
        shrink_to="zero",
        class_weight=None,
        tol=_ROUGH,
        max_time=None,
        device=None,
    )
    found = refit(_transformed(judgements, transform), settings)
    learned = found.metric
    thresholds = learned.threshold if len(learned.thresholds) < 2 else learned.thresholds
    factor = transform @ learned.factor
    metric = Metric.from_factor(factor, thresholds, learned.noise, flip_rate=learned.flip_rate)
    return replace(found, metric=metric, columns=fit.columns, judgements=judgements)


def _transformed(judgements: Judgements, transform: FloatArray) -> Judgements:
    data, others = judgements.data, judgements.comparisons
    moved = data.with_arrays(data.points @ transform, data.index) if is_indexed(data) else data @ transform
    comparisons = None if others is None else _transformed(others, transform)
    return replace(judgements.with_data(moved), comparisons=comparisons)


def in_numpy(data: Array) -> Array:
    """Data of any library in NumPy."""
    if is_indexed(data) and is_foreign(data.points):
        return data.with_arrays(to_numpy(data.points), to_numpy(data.index))
    return to_numpy(data) if is_foreign(data) else data
