"""The feasible set of M and thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closefar.arrays import BoolArray, FloatArray

__all__ = ["Cone", "psd_factor"]


@dataclass(frozen=True)
class Cone:
    """The feasible (M, thresholds): M positive semidefinite, each threshold at least `least`.

    With a learned origin the last coordinate of every row is the constant 1, and z'Mz - tau
    is x'Mx + b'x - tau.  Then only the leading block must be positive semidefinite; the
    border b and tau are free, and the corner, which tau makes redundant, is zero.
    """

    size: int
    least: FloatArray
    has_constant: bool = False

    @property
    def core(self) -> slice:
        """The coordinates in which M is positive semidefinite."""
        return slice(0, self.size - int(self.has_constant))

    @property
    def identity(self) -> FloatArray:
        """The derivative of `trace`."""
        ones = np.ones(self.size)
        ones[self.core.stop :] = 0.0
        return np.diag(ones)

    @property
    def lowest(self) -> FloatArray:
        """The least thresholds, and zero for free ones: the reference values in a proof."""
        return np.where(np.isneginf(self.least), 0.0, self.least)

    def trace(self, matrix: FloatArray) -> float:
        """The trace that is penalised."""
        return float(np.trace(matrix[self.core, self.core]))

    def project(self, matrix: FloatArray) -> FloatArray:
        """The nearest feasible M."""
        projected = matrix.copy()
        factor = psd_factor(matrix[self.core, self.core], cutoff=1e-9)
        projected[self.core, self.core] = factor @ factor.T
        if self.has_constant:
            projected[-1, -1] = 0.0
        return projected

    def eigen(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues of the core, ascending, and its eigenvectors as columns in all coordinates."""
        values, vectors = np.linalg.eigh(matrix[self.core, self.core])
        return values, np.vstack([vectors, np.zeros((self.size - len(vectors), len(vectors)))])

    def are_held(self, thresholds: FloatArray, slopes: FloatArray) -> BoolArray:
        """Which thresholds are held at their least values."""
        held: BoolArray = (thresholds == self.least) & (slopes >= 0.0)
        return held

    def violations(self, gradient: FloatArray, slopes: FloatArray) -> tuple[float, float]:
        """The distance of a gradient from the dual cone: in its core, and in the rest.

        Zero and zero mean that it proves a bound.
        """
        below = max(-float(np.linalg.eigvalsh(gradient[self.core, self.core])[0]), 0.0)
        free = np.isneginf(self.least)
        rest = np.where(free, np.abs(slopes), np.maximum(-slopes, 0.0)).max(initial=0.0)
        if self.has_constant:
            rest = max(float(np.abs(gradient[-1]).max()), rest)
        return below, float(rest)


def psd_factor(matrix: FloatArray, cutoff: float = 1e-12) -> FloatArray:
    """A factor A of the projection of a symmetric matrix onto the PSD cone, longest column last.

    Eigenvalues up to `cutoff` times the largest, or 1e-14 (coordinates are unit-free), count as zero.
    """
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    keep = values > max(cutoff * values[-1], 1e-14)
    factor: FloatArray = vectors[:, keep] * np.sqrt(values[keep])
    return factor
