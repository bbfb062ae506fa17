"""The start of solvers: a metric from the second moments of the labelled rows."""

from __future__ import annotations

import numpy as np

from closefar.arrays import TINY, Array, FloatArray
from closefar.solve.problem import Problem

_FITTED_JUDGEMENTS = 2048  # to which a spectrum is fitted
_MOST_SPECTRUM_STEPS = 5  # of that fit, which only has to be near
_LEAST_GAIN = 0.03  # of the value; a step that gains less is the last
_MOST_FITTED_THRESHOLDS = 16  # that are fitted with it
_LONGEST_SPECTRUM_STEP = 3.0  # relative to the eigenvalues and the threshold


def moment_start(problem: Problem, accuracy: float = 1e-4) -> tuple[FloatArray, FloatArray]:
    """Return a metric and thresholds close to the optimum.

    The feasible part of mean(l zz') - mean(l) I has approximately the right direction (for normal
    rows by Stein's identity; without thresholds, mean(l) is not subtracted, since nothing else can
    absorb it).  Its scale and a threshold are then fitted by a few Newton steps; several thresholds
    are ordered, which such steps would not preserve, and are fitted to the scale.  `accuracy` is that
    of the loss there.
    """
    matrix, squared = problem.project(centred_moments(problem))
    scale, thresholds = fit_scale(problem, squared, accuracy=accuracy)
    return scale * matrix, thresholds


def centred_moments(problem: Problem) -> FloatArray:
    """mean(l zz') and, if there are thresholds, less mean(l) I."""
    objective = problem.objective
    moments, mean_trend = objective.trend_moment()
    return moments - mean_trend * np.eye(objective.n_directions) if len(problem.cone.least) > 0 else moments


def fit_scale(
    problem: Problem, squared: Array, penalty: float = 0.0, *, accuracy: float = 1e-4
) -> tuple[float, FloatArray]:
    """Fit a scale of these squared distances, and thresholds; `penalty` is that of scale one."""
    objective, least = problem.objective, problem.cone.least
    mean, spread = objective.mean_and_spread(squared)
    if spread <= 1e-9 * abs(mean):
        return 0.0, problem.minimise_threshold(0.0 * squared, np.zeros_like(least), tol=1e-6)[0]
    scale, thresholds = 1.0 / spread, np.full_like(least, mean / spread)
    has_several, value = len(least) > 1, np.inf
    if has_several:
        thresholds, here = problem.minimise_threshold(scale * squared, thresholds, tol=1e-6)
        value = here.loss + scale * penalty
    for _ in range(8):
        gradient, hessian = objective.scale_derivatives(squared, scale, thresholds)
        gradient[0] += penalty
        damped = hessian + (1e-12 * np.trace(hessian) + TINY) * np.eye(len(hessian))
        step, length = np.linalg.solve(damped, gradient), 1.0
        if not has_several:
            scale = float(np.clip(scale - step[0], 0.3 * scale, 3.0 * scale))
            thresholds = np.maximum(thresholds - np.clip(step[1:], -3.0, 3.0), least)
            if gradient @ step < accuracy:
                break
            continue
        while length > 0.01:  # until the step lowers the value
            longer = float(np.clip(scale - length * step[0], 0.3 * scale, 3.0 * scale))
            moved = np.maximum(thresholds - length * step[1:], least)
            there = objective.evaluate(longer * squared, moved).loss + longer * penalty
            if there < value:
                break
            length *= 0.5
        else:
            break
        gain, scale, thresholds, value = value - there, longer, moved, there
        if gain < accuracy:
            break
    return scale, thresholds


def spectral_start(problem: Problem, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return a metric and thresholds still closer to the optimum, for few columns.

    Its eigenvectors are those of the moments in `moment_start`; its eigenvalues are fitted to a sample by Newton steps.
    """
    objective, cone = problem.objective, problem.cone
    share = _FITTED_JUDGEMENTS / objective.n_judgements
    few = problem if share >= 0.5 else problem.sample(share, rng)
    if few is None or cone.has_constant or len(cone.least) > _MOST_FITTED_THRESHOLDS:
        return moment_start(problem)
    values, basis = np.linalg.eigh(centred_moments(problem))
    squared = few.objective.squared_distances(basis * np.sqrt(np.maximum(values, 0.0)))
    scale, thresholds = fit_scale(few, squared, accuracy=0.1)
    return _fit_spectrum(few, basis, np.append(scale * np.maximum(values, 0.0), thresholds))


def _fit_spectrum(few: Problem, basis: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimise over x = (eigenvalues, threshold) >= 0 of a metric with these eigenvectors."""
    least, d = np.append(np.zeros(len(basis)), few.cone.least), len(basis)
    best, best_value = x, np.inf
    for _ in range(_MOST_SPECTRUM_STEPS):
        point = few.at((basis * x[:d]) @ basis.T, x[d:])
        if not point.value < best_value:
            break
        # Towards separating the labels, steps would become longer and longer.
        is_last = point.value > (1.0 - _LEAST_GAIN) * best_value or point.evaluation.least_margin > 0.0
        best, best_value = x, point.value
        if is_last:
            break
        gradient = np.append(np.einsum("ij,ij->j", basis, point.gradient @ basis), point.slopes)
        curvature = point.evaluation.curvature
        fourth, border = few.objective.rotated_moments(curvature, basis)
        hessian = np.block([[fourth, border], [border.T, curvature.thresholds]])
        free = (x > least) | (gradient < 0.0)
        damped = hessian + (1e-6 * np.trace(hessian) + TINY) * np.eye(len(hessian))
        step = np.zeros_like(x)
        step[free] = -np.linalg.solve(damped[np.ix_(free, free)], gradient[free])
        longest = _LONGEST_SPECTRUM_STEP * float(np.linalg.norm(x))
        x = np.maximum(x + step * min(1.0, longest / max(float(np.linalg.norm(step)), TINY)), least)
    return (basis * best[:d]) @ basis.T, best[d:]
