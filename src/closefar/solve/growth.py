"""Which columns a factor of low rank needs: the first ones, and those that a full gradient shows to be missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar.arrays import FloatArray
from closefar.solve.factored import Factored, Place
from closefar.solve.start import fit_scale

__all__ = ["Spectrum", "change_columns", "leading_factor"]

_FEWEST_COLUMNS = 8
_FEW_COLUMNS = 200

# The rounding error of a gradient in single precision is measured along this many random directions.  Its root mean
# square there is its Frobenius norm, which is at least its spectral norm; that it is three times too small has a
# probability of five in a million even if all of the error is in one direction.
_N_PROBES, _CAUTION = 16, 3.0


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of dR/dM, ascending, with its eigenvectors; `rounding` bounds the error of each."""

    gradient: FloatArray
    values: FloatArray
    vectors: FloatArray
    rounding: float

    @property
    def least(self) -> float:
        """A lower bound on the smallest eigenvalue."""
        return float(self.values[0]) - self.rounding

    @classmethod
    def of(cls, factored: Factored, place: Place) -> Spectrum:
        """Compute dR/dM; its rounding error is that of double precision."""
        gradient = factored.objective.outer(place.evaluation.margin_gradient)
        values, vectors = np.linalg.eigh(gradient)
        largest = 1.0 + float(np.abs(values).max())
        # Terms are about d times as large as their sum, and coordinates that are applied to it amplify its error.
        rounding = 8.0 * float(np.finfo(np.float64).eps) * len(values) * factored.objective.source.condition * largest
        return cls(gradient, values, vectors, rounding)

    def measured(self, exact: Factored, place: Place, rng: np.random.Generator) -> Spectrum:
        """The same with the error of a gradient in single precision, measured in double precision."""
        probes = rng.standard_normal((len(self.gradient), _N_PROBES))
        image = exact.objective.backward(exact.objective.forward(probes), place.evaluation.margin_gradient)
        error = float(np.linalg.norm(self.gradient @ probes - image)) / np.sqrt(_N_PROBES)
        return replace(self, rounding=self.rounding + _CAUTION * error)

    def violation(self, alpha: float) -> float:
        """How far dR/dM + alpha I is from positive semidefinite, at most."""
        return max(self.rounding - alpha - float(self.values[0]), 0.0)


def leading_factor(factored: Factored, rank: int | None) -> tuple[FloatArray, FloatArray]:
    """A factor of the leading directions of -dR/dM at M = 0, with a good scale and thresholds for it."""
    objective, problem = factored.objective, factored.problem
    d = objective.n_directions
    moments, mean_trend = objective.trend_moment()
    if len(problem.cone.least) > 0:
        moments = moments - mean_trend * np.eye(d)
    values, vectors = np.linalg.eigh(0.5 * moments)
    n_useful = int(np.sum(values > problem.alpha))
    # With a penalty the optimum has far fewer directions than the gradient at zero.
    n_expected = n_useful // 2 if problem.alpha == 0.0 and d <= _FEW_COLUMNS else n_useful // 3
    k = rank or int(np.clip(n_expected, _FEWEST_COLUMNS, d))
    largest = float(values[-1])
    if largest <= 0.0 or (n_useful == 0 and rank is None):
        nothing = np.zeros((d, 0))
        return nothing, problem.minimise_threshold(objective.squared_distances(nothing), problem.cone.lowest, 1e-6)[0]
    chosen = slice(None, -k - 1, -1)
    factor = vectors[:, chosen] * np.sqrt(np.maximum(values[chosen] - 0.5 * problem.alpha, 1e-2 * largest))
    squared = objective.squared_distances(factor)
    penalty = problem.alpha * float(np.sum(factor**2))
    scale, thresholds = fit_scale(replace(problem, objective=objective), squared, penalty)
    return np.sqrt(scale) * factor, thresholds


def change_columns(
    factored: Factored, place: Place, spectrum: Spectrum, tol: float, precision: float, *, shrinks: bool
) -> Place | None:
    """Add the columns that the gradient shows to be missing, by a proximal step within their directions.

    Violations below `precision` may be rounding errors.  If it `shrinks`, the step is taken within the old
    directions too, and columns that it empties are dropped.  Returns None if there is nothing to change, or no
    change lowers the objective.
    """
    alpha, scale = factored.problem.alpha, 0.5 / max(place.curvature, 1e-12)
    basis = np.linalg.qr(place.factor)[0]
    most = max(place.factor.shape[1], _FEWEST_COLUMNS)
    # A violation from which on a new column is worth its cost.
    worth = max(min(1e-3 * alpha + 1e-7, 0.2 * tol / max(place.trace, 1.0)), precision)
    found = np.flatnonzero(spectrum.values < -alpha - worth)[:most]
    outside = spectrum.vectors[:, found] - basis @ (basis.T @ spectrum.vectors[:, found])
    found = found[np.sum(outside**2, axis=0) > 0.5]
    new = spectrum.vectors[:, found]
    if shrinks and place.factor.shape[1] + len(found) > 0:
        both = np.linalg.qr(np.hstack([basis, new]))[0]
        ahead = both.T @ (spectrum.gradient @ both) + alpha * np.eye(both.shape[1])
        inside = both.T @ place.factor
        lengths, turn = np.linalg.eigh(inside @ inside.T - scale * ahead)
        keep = lengths > 1e-3 * lengths[-1]
        if lengths[-1] > 0.0:
            changed = factored.at(both @ (turn[:, keep] * np.sqrt(lengths[keep])), place.thresholds)
            if changed.value < place.value:
                return changed
    if len(found) == 0:
        return None
    added = new * np.sqrt(scale * np.maximum(-alpha - spectrum.values[found], 0.0))
    for _ in range(8):
        changed = factored.at(np.hstack([place.factor, added]), place.thresholds)
        if changed.value < place.value:
            return changed
        added = 0.4 * added
    return None
