"""The same convex problem as a conic program in cvxpy, solved by Clarabel or SCS."""

from __future__ import annotations

from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

from peers.worker import Learned, NotApplicableError, Train

# Beyond this size of the products of differences, building the program alone takes many times as much memory.
MOST_BYTES = 1 << 28


def fit(train: Train, solver: str) -> Learned:
    """Minimise the mean logistic loss over M positive semidefinite and tau >= 0, in standardised columns."""
    differences = train["pairs"][:, 0] - train["pairs"][:, 1]
    n, d = differences.shape
    if 4 * n * d * (d + 1) > MOST_BYTES:
        raise NotApplicableError(f"{n:,} pairs of {d} columns are too many for a conic program.")
    scales = np.sqrt(np.mean(differences**2, axis=0))
    scaled = differences / scales
    products = (scaled[:, :, None] * scaled[:, None, :]).reshape(n, d * d)
    signs = np.where(train["labels"] > 0, 1.0, -1.0)
    matrix, tau = cp.Variable((d, d), PSD=True), cp.Variable(nonneg=True)
    margins = cp.multiply(signs, products @ cp.vec(matrix, order="C") - tau)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.logistic(-margins)) / n))
    problem.solve(solver=solver)
    if matrix.value is None:
        raise RuntimeError(f"{solver} ended without a solution: {problem.status}.")
    metric, threshold = matrix.value / np.outer(scales, scales), float(tau.value)

    def probability(pairs: np.ndarray) -> np.ndarray:
        apart = pairs[:, 0] - pairs[:, 1]
        beyond = np.einsum("ij,ij->i", apart @ metric, apart) - threshold
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(-beyond, -700.0, 700.0))))

    # Clarabel and SCS end at a duality gap within their tolerances, which their status stands for.
    return Learned(metric=metric, threshold=threshold, probability=probability, claim=f"status {problem.status}")


PEERS: dict[str, Any] = {"cvxpy (Clarabel)": partial(fit, solver="CLARABEL"), "cvxpy (SCS)": partial(fit, solver="SCS")}
