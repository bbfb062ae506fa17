"""A learned origin in the solver's coordinates: from free linear terms to a finite point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from closefar.solve.cone import Cone
from closefar.solve.loop import State

__all__ = ["with_finite_origin", "with_free_corner"]


def with_finite_origin(cone: Cone, state: State, cost: float) -> State:
    """Turn x'Mx + b'x - tau into |(x, 1)'A|^2 - tau, a squared distance from a finite origin.

    If b is not in the range of M, the best origin lies at infinity.  An eigenvalue of `cost` in that
    direction makes it finite, and raises the loss by about as much; below 1e-7 the origin would be so
    far away that margins lose their precision.
    """
    core = cone.core
    values, vectors = np.linalg.eigh(state.matrix[core, core])
    values = np.maximum(values, 0.0)
    half_border = vectors.T @ state.matrix[core, -1]
    lift = (values <= 1e-9 * values[-1]) & (np.abs(half_border) > 1e-9 * np.abs(half_border).max())
    values = np.where(lift, max(cost, 1e-7), values)
    moved = np.divide(half_border, values, out=np.zeros_like(values), where=values > 0)
    corner = float(moved @ half_border)
    matrix = np.zeros_like(state.matrix)
    matrix[core, core] = (vectors * values) @ vectors.T
    matrix[core, -1] = matrix[-1, core] = vectors @ (values * moved)
    matrix[-1, -1] = corner
    return replace(state, matrix=matrix, thresholds=state.thresholds + corner)


def with_free_corner(cone: Cone, state: State) -> State:
    """Move the corner of M to the threshold, as free linear terms require."""
    if not cone.has_constant:
        return state
    matrix = state.matrix.copy()
    matrix[-1, -1] = 0.0
    return replace(state, matrix=matrix, thresholds=state.thresholds - float(state.matrix[-1, -1]))
