"""A lower bound on the penalised optimum from one gradient, without another pass over the rows.

The loss of each row lies above every tangent: phi(m) >= phi(m') + phi'(m') (m - m').  If all slopes are multiplied
by s = min(1, alpha / -lambda_min(dR/dM)), the gradient s dR/dM + alpha I is positive semidefinite, and the slopes of
the thresholds keep their signs.  The tangents with these slopes then bound the objective of every feasible point by

    sum_i w_i (phi(m_i') - s p_i m_i'),     phi'(m_i') = s p_i,  p_i = phi'(m_i),

which is too low by about the violation of the dual cone times tr M.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, FloatArray
from closefar.solve.factored import Place
from closefar.solve.problem import Problem

__all__ = ["has_tangents", "tangent_bound"]

_MOST_STEPS = 60
_FLAT = 1e-30  # a curvature without meaning, by which a division could overflow
_ROUNDING = 1e-13
_REACH = 1e3  # a slope of a threshold that is wrong by rounding is multiplied by this multiple of the thresholds


def has_tangents(problem: Problem) -> bool:
    """Whether a bound can be computed this way."""
    return problem.alpha > 0.0 and problem.objective.likelihood.is_convex


def tangent_bound(problem: Problem, place: Place, least: float) -> float:
    """The bound proven by the slopes at a place where lambda_min(dR/dM) is at least `least`."""
    thresholds, slopes = place.thresholds, place.evaluation.slopes
    likelihood, source = problem.objective.likelihood, problem.objective.source
    share = min(1.0, problem.alpha / max(-least, 1e-300))
    if likelihood.has_tangents:
        tangents = partial(_tangents, likelihood.without_rows(), thresholds, share)
        value = float(sum(source.parts(tangents, place.squared, *likelihood.row_arrays)))
    else:
        # The conjugate of a loss >= 0 is convex and at most 0 at 0, so that slopes times the share prove at least
        # that share of what the slopes themselves prove.
        along = source.dot(place.evaluation.margin_gradient, place.squared)
        value = share * (place.evaluation.loss - along - float(slopes @ thresholds))
    # Thresholds are optimal up to rounding; a slope that is still negative is paid for by their size, and so is any
    # of a threshold without a bound.
    is_free = np.isneginf(problem.cone.least)
    slack = np.where(is_free, np.abs(slopes), np.maximum(-slopes, 0.0)) @ (_REACH * (1.0 + np.abs(thresholds)))
    return value - float(slack)


def _tangents(likelihood: Any, thresholds: FloatArray, share: float, squared: Array, *arrays: Array) -> float:
    """sum_i w_i (phi(m') - q m') for some of the rows, with q = share phi'(m) and phi'(m') = q."""
    xp = array_namespace(squared)
    margin, (_, weights, *rest) = likelihood.margins(squared, *arrays, thresholds=thresholds)
    pointwise = partial(_derivatives, likelihood, rest)
    slope = pointwise(margin)[1]
    wanted = share * slope
    # Towards the minimum, where slopes are smaller: the solution is between the margin and the first point beyond it.
    ahead = xp.where(slope < 0.0, xp.ones_like(slope), -xp.ones_like(slope))
    near, far = margin, margin + ahead * (1.0 + xp.abs(margin))
    for _ in range(_MOST_STEPS):
        is_beyond = ahead * (pointwise(far)[1] - wanted) >= 0.0
        if bool(xp.all(is_beyond)):
            break
        far = xp.where(is_beyond, far, 2.0 * far - near)
    found = near
    for n_left in reversed(range(_MOST_STEPS)):
        loss, slope, curvature = pointwise(found)
        left = slope - wanted
        # The infimum of phi(m) - q m lies between `near` and `far`: this is what an inexact slope may leave of it.
        error = float(xp.vecdot(weights, xp.abs(left) * xp.abs(far - near)))
        if error <= _ROUNDING or n_left == 0:
            break
        is_short = ahead * left < 0.0
        near, far = xp.where(is_short, found, near), xp.where(is_short, far, found)
        is_curved = curvature > _FLAT
        proposal = found - left / xp.where(is_curved, curvature, xp.ones_like(curvature))
        is_inside = is_curved & (ahead * (proposal - near) > 0.0) & (ahead * (far - proposal) > 0.0)
        found = xp.where(is_inside, proposal, 0.5 * (near + far))
    return float(xp.vecdot(weights, loss - wanted * found)) - error


def _derivatives(likelihood: Any, rest: list[Array], margin: Array) -> tuple[Array, ...]:
    found: tuple[Array, ...] = likelihood.pointwise(margin, *rest, order=2)
    return found
