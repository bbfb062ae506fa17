"""The centre of what is known: the fit, or the same fit with a chosen penalty where labels are few."""

from __future__ import annotations

from dataclasses import replace

from closefar.arrays import Array, is_foreign, is_indexed, to_numpy
from closefar.fitting import Fit, refit
from closefar.judgements import Judgements

__all__ = ["fit_with_prior", "in_numpy", "training_of"]

# With fewer uncertain labels per parameter, M is too large without a penalty; if none is uncertain, it is arbitrary.
_FEW_UNCERTAIN = 10.0

_ROUGH = 1e-4  # the tolerance of a fit with a penalty


def training_of(fit: Fit) -> Judgements:
    """The training data of a fit that count, in NumPy."""
    if fit.judgements is None:
        raise ValueError(
            "choose_pairs needs the judgements that the learner was fitted to; this learner was copied or loaded "
            "without them. Fit it again."
        )
    found = fit.training().weighted(fit.settings.class_weight).counted()
    return found.with_data(in_numpy(found.data))


def fit_with_prior(fit: Fit, judgements: Judgements) -> Fit:
    """The mode of the posterior: a fit with a penalty is one, and so is, nearly, a fit to many uncertain labels."""
    if fit.alpha > 0 or fit.statistics.uncertain_per_parameter >= _FEW_UNCERTAIN:
        return fit
    flip_rate = fit.settings.flip_rate
    settings = fit.chosen.but(
        alpha="auto", flip_rate=flip_rate, class_weight=None, tol=_ROUGH, max_time=None, device=None
    )
    return replace(refit(judgements, settings), columns=fit.columns, judgements=judgements)


def in_numpy(data: Array) -> Array:
    """Data of any library in NumPy."""
    if is_indexed(data) and is_foreign(data.points):
        return data.with_arrays(to_numpy(data.points), to_numpy(data.index))
    return to_numpy(data) if is_foreign(data) else data
