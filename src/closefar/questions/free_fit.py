"""Fitting over all symmetric M by Newton's method."""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray
from closefar.questions.label_likelihood import LabelLikelihood
from closefar.questions.moves import scaled_eigh

__all__ = ["fit_freely"]

_MOST_STEPS = 50
_MOST_HALVINGS = 30
_LARGEST_RATE = 0.499

# The optimum is reached when the next step would be shorter than this, in standard errors.
_NEAR = 1e-3

# The information is recomputed if steps with the previous one shrink by less than this factor.
_SHRINKS = 0.2

# The information does not determine a direction if an eigenvalue, with the diagonal scaled to one, is below this.
_SINGULAR = 1e-12


def fit_freely(
    likelihood: LabelLikelihood,
    start: FloatArray,
    weights: FloatArray,
    n_observations: float,
    information: FloatArray | None = None,
) -> FloatArray | None:
    """Minimise the mean loss under these weights by Newton's method; None if it has no finite minimum.

    `information` is that of a similar fit, if there is one.
    """
    parameters, terms = start, likelihood.terms(start)
    loss, last = likelihood.loss(terms, start, weights), np.inf
    solve = None if information is None else _inverse(information)
    for _ in range(_MOST_STEPS):
        gradient = likelihood.gradient(terms, parameters, weights)
        if solve is None:
            solve = _inverse(likelihood.information(parameters, weights, terms))
            if solve is None:
                return None
        step = -(solve @ gradient)
        decrement = -float(gradient @ step)
        if n_observations * decrement <= _NEAR**2:
            return parameters
        if decrement > _SHRINKS * last:
            solve, last = None, np.inf
            continue
        last = decrement
        length = _longest_step(likelihood, parameters, step)
        for _ in range(_MOST_HALVINGS):
            new = parameters + length * step
            terms = likelihood.terms(new)
            value = likelihood.loss(terms, new, weights)
            if value <= loss - 1e-4 * length * decrement:
                break
            length *= 0.5
        else:
            return None
        parameters, loss = new, value
    return None


def _inverse(information: FloatArray) -> FloatArray | None:
    values, vectors, scale = scaled_eigh(information)
    if not values[0] > _SINGULAR:
        return None
    inverse: FloatArray = (vectors / values) @ vectors.T / np.outer(scale, scale)
    return inverse


def _longest_step(likelihood: LabelLikelihood, parameters: FloatArray, step: FloatArray) -> float:
    """At most one, and at most half of the way to an invalid flip rate."""
    length = 1.0
    for rate, along in zip(*(each[likelihood.n_on_margin :] for each in (parameters, step)), strict=True):
        if along != 0.0:
            room = _LARGEST_RATE - rate if along > 0 else rate
            length = float(min(length, 0.5 * room / abs(along)))
    return length
