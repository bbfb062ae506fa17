"""The direction along which the labels determine the metric least."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from closefar.arrays import TINY, FloatArray, to_numpy
from closefar.questions.label_likelihood import LabelLikelihood
from closefar.questions.legs import by_legs, leg_blocks
from closefar.rows import Coordinates

__all__ = ["least_informed_direction"]

_ROUNDS = 30
_MOST_STARTS = 5

# A combination of columns is named only if its curvature is below this multiple of that of every single column.
_MUCH_LESS = 0.01


def least_informed_direction(
    likelihood: LabelLikelihood, parameters: FloatArray, coordinates: Coordinates
) -> FloatArray:
    """The combination of columns, each divided by its root mean square, that the labels determine least.

    Adding v v' to M, and t to tau, moves the margin of row w by (v'w)^2 - t.  The mean curvature of
    the labels, weighted by the square of that, is near zero if all labels that move are certain.
    """
    curvature = np.maximum(likelihood.terms(parameters).curvature, 0.0)
    starts = np.linalg.pinv(coordinates.transform) / np.maximum(coordinates.scales, TINY)
    of_columns = [_mean_curvature(likelihood, vector, curvature) for vector in starts.T]
    order = np.argsort(of_columns, kind="stable")
    combined = [_descend(likelihood, starts[:, column], curvature) for column in order[:_MOST_STARTS]]
    of_combined = [_mean_curvature(likelihood, vector, curvature) for vector in combined]
    if min(of_combined) < _MUCH_LESS * of_columns[order[0]]:
        return coordinates.scales * (coordinates.transform @ combined[int(np.argmin(of_combined))])
    return np.asarray(np.eye(len(order))[order[0]])


def _mean_curvature(likelihood: LabelLikelihood, vector: FloatArray, curvature: FloatArray) -> float:
    """The mean curvature of the labels that move, for the best t."""
    squares = np.concatenate([found for _, found in by_legs(likelihood.rows, lambda block: (block.T @ vector) ** 2)])
    scaled = squares / max(float(np.abs(squares).max()), TINY)
    compared = likelihood.outcomes.are_compared
    moves = np.column_stack([scaled, ~compared]) if not np.all(compared) else scaled[:, None]
    informed, moved = (moves.T @ (moves * (likelihood.shares * each)[:, None]) for each in (curvature, 1.0))
    return float(eigh(informed, moved + 1e-9 * np.eye(len(moved)), eigvals_only=True)[0])


def _descend(likelihood: LabelLikelihood, vector: FloatArray, curvature: FloatArray) -> FloatArray:
    """Minimise the mean curvature for t = 0 in steps, with (v'w)^2 fixed in the weights."""
    least, found = np.inf, vector
    for _ in range(_ROUNDS):
        informed, moved = np.zeros((2, len(vector), len(vector)))
        for where, legs in leg_blocks(likelihood.rows):
            for _, block in legs:
                rows = to_numpy(block).T
                weights = likelihood.shares[where] * (rows @ vector) ** 2
                moved += rows.T @ (rows * weights[:, None])
                informed += rows.T @ (rows * (weights * curvature[where])[:, None])
        mean = float(vector @ informed @ vector) / max(float(vector @ moved @ vector), TINY)
        if not mean < (1.0 - 1e-6) * least:
            break
        least, found = mean, vector
        ridge = max(1e-9 * float(np.trace(moved)), TINY) * np.eye(len(moved))
        vector = eigh(informed, moved + ridge, subset_by_index=[0, 0])[1][:, 0]
    return found
