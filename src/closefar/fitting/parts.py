"""Fits to some of the judgements of a fit, by which the others are judged."""

from __future__ import annotations

from closefar.fitting.known_rank import refit
from closefar.fitting.result import Fit
from closefar.judgements import Judgements
from closefar.model import Metric

__all__ = ["fit_from", "fit_part", "is_near_parts"]

# Up to so many columns a proven fit is as quick as an approximate one; of many judgements, Newton steps are.
_FEW_COLUMNS = 16
_FEW_FOR_NEWTON = 32

# With so many judgements, and so many uncertain labels per parameter, a fit to four fifths of them is near that to all.
_MANY = 50_000
_MANY_PER_PARAMETER = 50.0


def fit_part(fitted: Fit, judgements: Judgements) -> Metric:
    """The metric that the same settings find in these judgements; of many columns approximately, without a proof."""
    settings = fitted.chosen
    is_rough = settings.solver == "auto" and judgements.n_columns > _FEW_COLUMNS
    weighted = judgements.weighted(settings.class_weight).counted()
    return refit(weighted, settings.but(approximate=is_rough)).metric


def is_near_parts(fitted: Fit) -> bool:
    """Whether a fit to most of the judgements can start from the fit to all, without a trace of those left out."""
    statistics, settings = fitted.statistics, fitted.settings
    is_many = statistics.n_pairs >= _MANY and statistics.uncertain_per_parameter >= _MANY_PER_PARAMETER
    return is_many and fitted.certificate.converged and settings.solver == "auto" and not settings.fit_origin


def fit_from(fitted: Fit, judgements: Judgements) -> Fit:
    """Fit to most of the judgements of a fit that is near, from there: with its rank, noise and penalty.

    A few steps lead to the optimum, of which nothing is proven.
    """
    solver = "newton" if judgements.n_columns <= _FEW_FOR_NEWTON else "auto"
    settings = fitted.chosen.but(approximate=True, solver=solver)
    if fitted.settings.estimates_flips and fitted.flip_rate > 0 and solver == "newton":
        settings = settings.but(flip_rate="estimate")
    weighted = judgements.weighted(settings.class_weight).counted()
    return refit(weighted, settings, start=fitted.metric)
