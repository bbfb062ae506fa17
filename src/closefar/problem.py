"""The problem that a solver is given: the penalised risk over its feasible set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.objective import Pointwise, Risk

__all__ = ["Cone", "Point", "Problem", "psd_factor"]


@dataclass(frozen=True)
class Cone:
    """The feasible (M, tau): M positive semidefinite and tau >= 0.

    With a learned origin the last coordinate of every row is the constant 1, and z'Mz - tau
    is x'Mx + b'x - tau.  Then only the leading block must be positive semidefinite; the
    border b and tau are free, and the corner, which tau makes redundant, is zero.
    """

    size: int
    has_constant: bool = False

    @property
    def core(self) -> slice:
        """The coordinates in which M is positive semidefinite."""
        return slice(0, self.size - int(self.has_constant))

    @property
    def least_threshold(self) -> float:
        return -np.inf if self.has_constant else 0.0

    @property
    def identity(self) -> FloatArray:
        """The derivative of `trace`."""
        ones = np.ones(self.size)
        ones[self.core.stop :] = 0.0
        return np.diag(ones)

    def trace(self, matrix: FloatArray) -> float:
        """What the penalty weighs."""
        return float(np.trace(matrix[self.core, self.core]))

    def eigen(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues of the core, ascending, and its eigenvectors as columns in all coordinates."""
        values, vectors = np.linalg.eigh(matrix[self.core, self.core])
        return values, np.vstack([vectors, np.zeros((self.size - len(vectors), len(vectors)))])

    def violations(self, gradient: FloatArray, slope: float) -> tuple[float, float]:
        """How far a gradient is from the dual cone: by its core, and by the rest.

        Zero and zero mean that it proves a bound.
        """
        below = max(-float(np.linalg.eigvalsh(gradient[self.core, self.core])[0]), 0.0)
        if self.has_constant:
            return below, max(float(np.abs(gradient[-1]).max()), abs(slope))
        return below, max(-slope, 0.0)


@dataclass(frozen=True)
class Problem:
    """Minimise R(M, tau) + alpha tr M over the cone."""

    risk: Risk
    alpha: float
    cone: Cone

    def value(self, pointwise: Pointwise, matrix: FloatArray) -> float:
        return pointwise.loss + self.alpha * self.cone.trace(matrix)

    def gradient(self, pointwise: Pointwise) -> FloatArray:
        """The derivative in M: half a pass."""
        gradient: FloatArray = self.risk.outer_sum(pointwise.pull) + self.alpha * self.cone.identity
        return gradient

    def project(self, matrix: FloatArray) -> tuple[FloatArray, Array]:
        """The nearest feasible M and its quadratic forms: at most half a pass."""
        if not self.cone.has_constant:
            factor = psd_factor(matrix, cutoff=1e-9)
            return factor @ factor.T, self.forms(factor)
        core = self.cone.core
        factor = psd_factor(matrix[core, core], cutoff=1e-9)
        projected = matrix.copy()
        projected[core, core] = factor @ factor.T
        projected[-1, -1] = 0.0
        return projected, self.risk.quadratic_forms_of(projected)

    def forms(self, factor: FloatArray) -> Array:
        """Return z'AA'z for each row; a factor without columns is the metric zero."""
        return self.risk.quadratic_forms(factor) if factor.shape[1] else np.zeros(len(self.risk.rows))

    def settle(self, forms: Array, threshold: float, tol: float = 1e-15) -> tuple[float, Pointwise]:
        """The best feasible threshold for given quadratic forms, and the risk there."""
        return self.risk.best_threshold(forms, threshold, least=self.cone.least_threshold, tol=tol)

    def point(self, matrix: FloatArray, threshold: float, pointwise: Pointwise | None = None) -> Point:
        """Value and gradient at (M, tau): one pass, or half where the rows' part is known."""
        if pointwise is None:
            pointwise = self.risk.pointwise(self.risk.quadratic_forms_of(matrix), threshold, order=2)
        return Point(self, matrix, threshold, pointwise, self.gradient(pointwise))


@dataclass(frozen=True)
class Point:
    """(M, tau) with the penalised risk and its gradient there."""

    problem: Problem
    matrix: FloatArray
    threshold: float
    pointwise: Pointwise
    gradient: FloatArray

    @property
    def slope(self) -> float:
        """dR/dtau."""
        return self.pointwise.threshold_slope

    @property
    def objective(self) -> float:
        return self.problem.value(self.pointwise, self.matrix)

    @property
    def dual_value(self) -> float:
        """A lower bound on the optimum wherever the gradient is in the dual cone."""
        return self.objective - float(np.sum(self.gradient * self.matrix)) - self.threshold * self.slope


def psd_factor(matrix: FloatArray, cutoff: float = 1e-12) -> FloatArray:
    """A factor A of the projection of a symmetric matrix onto the PSD cone, longest column last.

    Eigenvalues up to `cutoff` times the largest, or 1e-14 (coordinates are unit-free), count as zero.
    """
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    keep = values > max(cutoff * values[-1], 1e-14)
    factor: FloatArray = vectors[:, keep] * np.sqrt(values[keep])
    return factor
