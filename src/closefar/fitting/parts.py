"""Fits to parts of the judgements of a fit, used to judge the others."""

from __future__ import annotations

from closefar.fitting.fitting import refit
from closefar.fitting.result import Fit
from closefar.judgements import Judgements
from closefar.model import Metric
from closefar.noise import has_flips

__all__ = ["fit_from", "fit_part", "is_near_parts", "refit_part"]

# Up to this many columns, a fit with a certificate is as fast as an approximate one; with many judgements, so are
# Newton steps up to the second number.
_FEW_COLUMNS = 16
_FEW_FOR_NEWTON = 32

# With this many judgements and uncertain labels per parameter, a fit to four fifths of them is close to that to all.
_MANY = 50_000
_MANY_PER_PARAMETER = 50.0


def fit_part(fitted: Fit, judgements: Judgements) -> Metric:
    """The metric of `refit_part`."""
    return refit_part(fitted, judgements).metric


def refit_part(fitted: Fit, judgements: Judgements) -> Fit:
    """The fit of the same settings to these judgements; approximate, without a certificate, if columns are many."""
    settings = fitted.chosen
    is_rough = settings.solver == "auto" and judgements.n_columns > _FEW_COLUMNS
    weighted = judgements.weighted(settings.class_weight).counted()
    return refit(weighted, settings.but(approximate=is_rough))


def is_near_parts(fitted: Fit) -> bool:
    """Whether a fit to most of the judgements can start from the fit to all without leaking the held-out ones."""
    statistics, settings = fitted.statistics, fitted.settings
    is_many = statistics.n_pairs >= _MANY and statistics.uncertain_per_parameter >= _MANY_PER_PARAMETER
    return is_many and fitted.certificate.converged and settings.solver == "auto" and not settings.fit_origin


def fit_from(fitted: Fit, judgements: Judgements) -> Fit:
    """Fit to most of the judgements, starting from the fit to all, with its rank, noise and penalty.

    A few steps reach the optimum, without a certificate.
    """
    solver = "newton" if judgements.n_columns <= _FEW_FOR_NEWTON else "auto"
    settings = fitted.chosen.but(approximate=True, solver=solver)
    if fitted.known.estimates_flips and has_flips(fitted.flip_rate) and solver == "newton":
        settings = settings.but(flip_rate=fitted.known.flip_rate)
    weighted = judgements.weighted(settings.class_weight).counted()
    return refit(weighted, settings, start=fitted.metric)
