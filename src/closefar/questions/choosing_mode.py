"""The centre of what is known: the fit, or the same fit with a light penalty where labels are few."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from closefar.arrays import Array, is_foreign, is_indexed, to_numpy
from closefar.fitting import Fit, number_of, refit
from closefar.judgements import Judgements

__all__ = ["fit_with_prior", "in_numpy", "training_of"]

# With fewer uncertain labels per parameter, M is too large without a penalty; if none is uncertain, it is arbitrary.
_FEW_UNCERTAIN = 5.0

# As alpha="auto" has it for few labels: times the root of their number.
_LIGHT = 0.2

# Few labels can be explained without flips, even if one in ten is flipped: so many are expected until there are more.
# Questions that are chosen without teach much less if there are flips, and no more if there are none.
_USUAL_FLIPS = 0.1

_ROUGH = 1e-3  # the tolerance of the fit


def training_of(fit: Fit) -> Judgements:
    """The training data of a fit that count, in NumPy."""
    if fit.judgements is None:
        raise ValueError(
            "choose_pairs needs the judgements that the learner was fitted to; this learner was copied or loaded "
            "without them. Fit it again."
        )
    found = fit.training().weighted(fit.settings.class_weight).counted()
    return found.with_data(in_numpy(found.data))


def fit_with_prior(fit: Fit) -> Fit:
    """The mode of the posterior: with few uncertain labels, a fit with a penalty and with flips."""
    rate = _usual_flips(fit)
    if fit.statistics.uncertain_per_parameter >= _FEW_UNCERTAIN or (fit.alpha > 0 and rate == fit.flip_rate):
        return fit
    judgements, settings = training_of(fit), fit.chosen
    if fit.alpha == 0:
        light = _LIGHT / math.sqrt(number_of(judgements))
        settings = settings.but(alpha=light, alpha_scale="data", shrink_to="zero")
    settings = settings.but(flip_rate=rate, class_weight=None, tol=_ROUGH, max_time=None, device=None)
    return replace(refit(judgements, settings, start=fit.metric), judgements=judgements)


def _usual_flips(fit: Fit) -> Any:
    """The flip rates of the fit, at least the usual ones; those of annotators are estimated."""
    if fit.annotators is not None and fit.annotators.flip_rates is not None:
        return fit.chosen.flip_rate
    found = np.maximum(fit.flip_rate, _USUAL_FLIPS)
    return tuple(found.tolist()) if found.ndim else float(found)


def in_numpy(data: Array) -> Array:
    """Data of any library in NumPy."""
    if is_indexed(data) and is_foreign(data.points):
        return data.with_arrays(to_numpy(data.points), to_numpy(data.index))
    return to_numpy(data) if is_foreign(data) else data
