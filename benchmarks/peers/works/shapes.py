"""The spectra of simulated metrics and points, and the error of a metric."""

from __future__ import annotations

from typing import Any

import numpy as np

from peers.works.pairs import PAPER

__all__ = ["SHAPES", "relative_error"]


def _graded(d: int) -> dict[str, Any]:
    return {"metric_eigenvalues": np.linspace(1.0, 0.1, d // 3), "covariance_eigenvalues": np.linspace(1.0, 0.05, d)}


# By the number of columns: those of the paper with 10.
SHAPES: dict[int, dict[str, Any]] = {
    10: {name: PAPER[name] for name in ("metric_eigenvalues", "covariance_eigenvalues")},
    20: _graded(20),
    30: _graded(30),
}


def relative_error(metric: np.ndarray, truth: np.ndarray) -> float:
    """Return the spectral norm of the difference, relative to that of the truth."""
    return float(np.linalg.norm(metric - truth, 2) / np.linalg.norm(truth, 2))
