"""The quadratic model of a Newton step, minimised over the feasible (M, thresholds)."""

from __future__ import annotations

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.solve.cone import Cone
from closefar.solve.journal import Entry

__all__ = ["ConeProgram"]


class ConeProgram:
    """min 1/2 x'Hx + h'x over the feasible x = (packed M, thresholds), where H is the Hessian plus damping.

    `damping` is relative to the mean eigenvalue of the Hessian.

    The fixed point of Douglas-Rachford splitting is found by a semismooth Newton
    method: a Newton step if it reduces the residual, and otherwise a splitting step, which
    never increases it.  One to three iterations suffice near a solution.
    """

    def __init__(self, hessian: FloatArray, damping: float, cone: Cone) -> None:
        mean = max(float(np.trace(hessian)) / len(hessian), 1e-6)
        damping = damping * mean
        rho = mean * _typical_eigenvalue(_without_annotators(hessian, cone) / mean) + damping
        self._set(hessian + damping * np.eye(len(hessian)), damping, rho, cone)

    def _set(self, hessian: FloatArray, damping: float, rho: float, cone: Cone) -> None:
        self.hessian = hessian
        self.damping = damping
        self.rho = rho
        self.cone = cone
        self.resolvent = np.linalg.inv(hessian + rho * np.eye(len(hessian)))

    def saved(self) -> Entry:
        """The program as an array and numbers."""
        return {"hessian": self.hessian, "damping": float(self.damping), "rho": float(self.rho)}

    @classmethod
    def restored(cls, saved: Entry, cone: Cone) -> ConeProgram:
        program = cls.__new__(cls)
        program._set(saved["hessian"], saved["damping"], saved["rho"], cone)
        return program

    def solve(self, linear: FloatArray, start: FloatArray, tol: float, max_iter: int = 60) -> FloatArray:
        """Return the splitting variable t; the minimiser is ``project(t)``, its slack rho (project(t) - t)."""
        t = start
        residual, spectrum = self._residual(t, linear)
        for _ in range(max_iter):
            size = np.abs(residual).max()
            if self.rho * size <= tol or size <= 1e-14 * np.abs(t).max():
                break
            step = self._newton_step(t, residual, spectrum)
            for length in (1.0, 0.5, 0.2):
                trial = t + length * step
                trial_residual, trial_spectrum = self._residual(trial, linear)
                if np.linalg.norm(trial_residual) <= (1.0 - 0.1 * length) * np.linalg.norm(residual):
                    break
            else:
                trial = t - residual
                trial_residual, trial_spectrum = self._residual(trial, linear)
            t, residual, spectrum = trial, trial_residual, trial_spectrum
        return t

    def project(self, t: FloatArray) -> FloatArray:
        return self._project(t)[0]

    def _project(self, t: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        core = self.cone.core
        matrix, thresholds = packed.split(t, self.cone.size)
        values, vectors = np.linalg.eigh(matrix[core, core])
        matrix[core, core] = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if self.cone.has_constant:
            matrix[-1, -1] = 0.0
        return packed.joined(matrix, np.maximum(thresholds, self.cone.least)), (values, vectors)

    def _residual(self, t: FloatArray, linear: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        inside, spectrum = self._project(t)
        return inside - self.resolvent @ (self.rho * (2.0 * inside - t) - linear), spectrum

    def _newton_step(self, t: FloatArray, residual: FloatArray, spectrum: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Solve J step = -residual for the Jacobian J, after multiplying both sides by H + rho.

        In the eigenbasis of M the projection has a diagonal derivative D, and (H + rho) J = H D + rho (1 - D).
        """
        values, vectors = spectrum
        core = self.cone.core
        turn, slopes = np.eye(self.cone.size), np.ones((self.cone.size, self.cone.size))
        turn[core, core] = vectors
        slopes[core, core] = _projection_slopes(values)
        if self.cone.has_constant:
            slopes[-1, -1] = 0.0
        size = packed.packed_size(self.cone.size)
        rotation = np.eye(len(t))
        rotation[:size, :size] = packed.packed_rotation(turn)
        diagonal = np.concatenate([packed.pack_plain(slopes), t[size:] > self.cone.least])
        regular = 1e-4 * self.damping / self.rho
        system = (rotation.T @ self.hessian @ rotation) * (diagonal + regular)
        system[np.diag_indices(len(t))] += self.rho * (1.0 + regular - diagonal)
        right = rotation.T @ (self.hessian @ residual + self.rho * residual)
        step: FloatArray = rotation @ np.linalg.solve(system, -right)
        return step


def _without_annotators(hessian: FloatArray, cone: Cone) -> FloatArray:
    """The Hessian in M and thresholds with a bound: many free ones, with little curvature each, would set the scale."""
    n_free = int(np.sum(np.isneginf(cone.least)))
    return hessian[:-n_free, :-n_free] if n_free > 1 else hessian


def _typical_eigenvalue(hessian: FloatArray) -> float:
    """The geometric mean of the eigenvalues, whose arithmetic mean is one; small ones are raised to a thousandth.

    Outliers make the arithmetic mean useless as a scale; neither mean depends on the basis.
    """
    log_determinant = np.linalg.slogdet(hessian + 1e-3 * np.eye(len(hessian)))[1]
    return float(np.exp(log_determinant / len(hessian)))


def _projection_slopes(values: FloatArray) -> FloatArray:
    """Divided differences of max(x, 0) at each pair of eigenvalues."""
    positive = np.maximum(values, 0.0)
    total = np.abs(values)[:, None] + np.abs(values)
    return np.where(total > 0.0, (positive[:, None] + positive) / np.where(total > 0.0, total, 1.0), 0.5)
