"""Whether the labels determine the two flip rates, of close and of far pairs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from array_api_compat import array_namespace
from scipy.stats import chi2

from closefar.arrays import Array, FloatArray
from closefar.fitting.likelihoods import likelihood_of
from closefar.fitting.settings import Settings
from closefar.fitting.solved import Solved
from closefar.noise import Noise
from closefar.solve import Objective, Passes, solve, unwatched

__all__ = ["find_undetermined_rates"]

# The largest standard error of a rate that is known well enough.
_LARGEST_ERROR = 0.05
_LEAST = 1e-12

# Rates are clearly not zero if this would be rarer by chance; how precisely the loss without flips must be known.
_SIGNIFICANT = 0.01
_ROUGH = 1e-5


def find_undetermined_rates(solved: Solved, settings: Settings) -> list[str]:
    """Return a sentence if two flip rates were estimated that the labels hardly determine.

    This is skipped for approximate fits, whose problems are never shown.
    """
    rates = solved.flip_rate
    if not (isinstance(rates, tuple) and settings.estimates_flips) or settings.approximate:
        return []
    errors = _rate_errors(solved, rates)
    if max(errors) > _LARGEST_ERROR:
        found = [
            f"{rate:.2g} (standard error {error:.2g})" if error < 1.0 else f"{rate:.2g} (not determined)"
            for rate, error in zip(rates, errors, strict=True)
        ]
        return [
            f"the labels hardly determine the two flip rates, estimated as {found[0]} of close pairs called far and "
            f"{found[1]} of far pairs called close. Label more pairs far from the threshold, on both sides, or use "
            'one rate for both, flip_rate="estimate".'
        ]
    if max(rates) > _LARGEST_ERROR and not _is_better(solved, settings):
        return [
            f"the labels are hardly more likely with the two flip rates, {rates[0]:.2g} of close pairs called far and "
            f"{rates[1]:.2g} of far pairs called close, than without flips. Label more pairs far from the threshold, "
            "or, if labels are never flipped, use flip_rate=0."
        ]
    return []


def _is_better(solved: Solved, settings: Settings) -> bool:
    """Whether the labels are clearly likelier with both rates than without flips."""
    judgements, width = solved.judgements, np.inf if solved.annotated is None else solved.annotated.width
    likelihood = likelihood_of(judgements, solved.rows, solved.noise, width=width)
    options = replace(settings.options, tol=max(settings.options.tol, _ROUGH))
    objective = Objective(solved.rows, likelihood, Passes())
    plain = solve(objective, options, rng=settings.rng(), watch=unwatched, start=solved.solution.state)
    gain = plain.certificate.loss - solved.solution.certificate.loss
    return 2.0 * judgements.total_weight * gain > float(chi2.isf(_SIGNIFICANT, 2))


def _rate_errors(solved: Solved, flip_rates: tuple[float, float]) -> tuple[float, float]:
    """The standard errors of both rates if the scale of M, the threshold and the rates are unknown.

    They are enormous for what the labels do not determine.
    """
    judgements, rows = solved.judgements, solved.rows
    squared = solved.solution.squared
    if solved.strictness is not None and judgements.annotators is not None:
        own = np.append(solved.strictness, 0.0)
        squared = squared - rows.row_array(own[rows.gather(judgements.groups_in(rows)).astype(np.intp)])
    # At a rate of zero the information is not finite; one label in as many as there are is as little as can be told.
    least = 1.0 / judgements.total_weight
    rates = max(flip_rates[0], least), max(flip_rates[1], least)
    sums = partial(_information, solved.noise, solved.threshold, rates)
    parts = rows.parts(sums, squared, judgements.codes_in(rows), judgements.shares_in(rows))
    information = judgements.total_weight * np.sum(parts, axis=0)
    units = np.sqrt(np.maximum(np.diag(information), _LEAST))
    values, vectors = np.linalg.eigh(information / np.outer(units, units))
    variances = np.sum(vectors[-2:] ** 2 / np.maximum(values, _LEAST), axis=1)
    first, second = (np.sqrt(variances) / units[-2:]).tolist()
    return first, second


def _information(
    noise: Noise, threshold: float, rates: tuple[float, float], squared: Array, codes: Array, weights: Array
) -> FloatArray:
    """The Fisher information of some labels in the scale of M, the threshold, and both rates.

    Comparisons have no threshold, and are flipped at the mean of both rates.
    """
    xp = array_namespace(squared)
    of_close = xp.where(codes < 2, 1.0 + 0.0 * squared, 0.5 + 0.0 * squared)  # the part of the rate of close pairs
    from_threshold = 2.0 * of_close - 1.0
    margin, floor = squared - threshold * from_threshold, of_close * rates[0] + (1.0 - of_close) * rates[1]
    far = noise.cdf(margin)
    called_far = floor + (1.0 - sum(rates)) * far
    slope = (1.0 - sum(rates)) * noise.pdf(margin)
    variance = xp.maximum(called_far * (1.0 - called_far), _LEAST + 0.0 * far)
    moves = (slope * squared, -slope * from_threshold, of_close - far, 1.0 - of_close - far)
    return np.array([[float(xp.sum(weights * one * other / variance)) for one in moves] for other in moves])
