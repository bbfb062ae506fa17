"""The best values of several thresholds at once, where the squared distances are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from closefar.arrays import TINY, FloatArray

if TYPE_CHECKING:
    from closefar.solve.likelihood import Evaluation

__all__ = ["best_several"]

_MOST_STEPS = 200


def best_several(
    evaluate: Callable[[FloatArray], Evaluation], start: FloatArray, least: FloatArray, tol: float
) -> tuple[FloatArray, Evaluation]:
    """Minimise a convex loss over thresholds >= `least` until no slope that counts is larger than `tol`.

    Newton steps in the thresholds that are free; a step that does not lower the loss is halved, and
    ends the search where only rounding is left.
    """
    thresholds = np.maximum(start, least)
    here = evaluate(thresholds)
    for _ in range(_MOST_STEPS):
        free = ~((thresholds <= least) & (here.slopes >= 0.0))
        if np.abs(here.slopes[free]).max(initial=0.0) <= tol:
            break
        second = here.curvature.thresholds[np.ix_(free, free)]
        damped = second + (1e-12 * np.trace(second) + TINY) * np.eye(len(second))
        step = np.zeros_like(thresholds)
        step[free] = -np.linalg.solve(damped, here.slopes[free])
        moved, there = _descend(evaluate, thresholds, here, step, least)
        if moved is None or there is None:
            break
        thresholds, here = moved, there
    return thresholds, here


def _descend(
    evaluate: Callable[[FloatArray], Evaluation],
    thresholds: FloatArray,
    here: Evaluation,
    step: FloatArray,
    least: FloatArray,
) -> tuple[FloatArray | None, Evaluation | None]:
    """The first of ever shorter steps that lowers the loss or, within its rounding, the slopes."""
    # From a flat tail a step may be enormous.
    length = min(1.0, 10.0 * (1.0 + float(np.abs(thresholds).max())) / max(float(np.abs(step).max()), TINY))
    while length > 1e-9:
        moved = np.maximum(thresholds + length * step, least)
        there = evaluate(moved)
        rounding = 1e-15 * (1.0 + abs(here.loss))
        if there.loss < here.loss - rounding:
            return moved, there
        if there.loss <= here.loss + rounding and _size(there, moved, least) < 0.9 * _size(here, thresholds, least):
            return moved, there
        length *= 0.5
    return None, None


def _size(evaluation: Evaluation, thresholds: FloatArray, least: FloatArray) -> float:
    """The largest slope that counts."""
    held = (thresholds <= least) & (evaluation.slopes >= 0.0)
    return float(np.abs(evaluation.slopes[~held]).max(initial=0.0))
