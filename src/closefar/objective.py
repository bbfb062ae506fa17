"""The risk R(M, tau), its derivatives, and the sums over rows that make them.

A solver never touches rows: it asks a `Risk` for sums.  The rows are read block by
block, so nothing of their size is held beyond the row vectors that a method returns
(one number a row, to be handed back to the same risk).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace

from closefar import packed
from closefar.arrays import Array, FloatArray
from closefar.noise import Noise
from closefar.pairs import BLOCK_BYTES, Rows

__all__ = ["Pointwise", "Risk"]


@dataclass(frozen=True)
class Pointwise:
    """The risk at given quadratic forms and threshold, and what its derivatives need.

    `pull` is w_i l_i phi'(l_i m_i) for each row (phi = -log CDF), so dR/dM is the sum of
    pull_i z_i z_i' and dR/dtau is ``threshold_slope``; `curvature` is w_i phi''.
    """

    loss: float
    threshold_slope: float
    least_margin: float
    pull: Array
    curvature: Array


class Risk:
    """R(M, tau) = sum_i w_i phi(l_i (z_i'M z_i - tau)) and its derivatives.

    `n_passes` counts passes over the rows; one is a loss with its gradient (two matrix
    products of the size of the data).
    """

    def __init__(self, rows: Rows, noise: Noise) -> None:
        self.rows = rows
        self.noise = noise
        self.n_passes = 0.0

    @property
    def n_directions(self) -> int:
        return self.rows.n_directions

    def loss_and_gradient(self, factor: Array, threshold: float) -> tuple[float, Array, float]:
        """Return R(A A', tau), dR/dA and dR/dtau in one pass over the rows."""
        loss, slope, gradient = 0.0, 0.0, 0.0
        for where, block in self.rows.blocks():
            product = factor.T @ block
            part = self._pointwise(column_dots(product, product), where, threshold, order=1)
            gradient = gradient + block @ (product * part.pull).T
            loss, slope = loss + part.loss, slope + part.threshold_slope
        self.n_passes += factor.shape[1] / self.n_directions
        return loss, 2.0 * gradient, slope

    def quadratic_forms(self, factor: Array) -> Array:
        """Return z_i' A A' z_i for each row."""
        self.n_passes += 0.5 * factor.shape[1] / self.n_directions
        return self._per_row(lambda block: _squared_columns(factor.T @ block))

    def quadratic_forms_of(self, matrix: Array) -> Array:
        """Return z_i' S z_i for each row, for a symmetric S of any signature."""
        self.n_passes += 0.5
        return self._per_row(lambda block: column_dots(matrix @ block, block))

    def pointwise(self, forms: Array, threshold: float, *, order: int = 1) -> Pointwise:
        """Evaluate the risk at known quadratic forms: no pass over the rows."""
        parts = [self._pointwise(forms[where], where, threshold, order) for where in self.rows.slices()]
        if len(parts) == 1:
            return parts[0]
        concat = array_namespace(forms).concat
        return Pointwise(
            loss=sum(part.loss for part in parts),
            threshold_slope=sum(part.threshold_slope for part in parts),
            least_margin=min(part.least_margin for part in parts),
            pull=concat([part.pull for part in parts]),
            curvature=concat([part.curvature for part in parts]) if order == 2 else None,
        )

    def outer_sum(self, coefficients: Array) -> Array:
        """Return sum_i c_i z_i z_i'; with c = pull this is dR/dM."""
        total: Array = 0.0
        for where, block in self.rows.blocks():
            total = total + block @ (block * coefficients[where]).T
        self.n_passes += 0.5
        return 0.5 * (total + total.T)

    def hessian_product(self, matrix: Array, threshold: float, curvature: Array) -> tuple[Array, float]:
        """Return the second derivative along (S, t): matrix part and threshold part."""
        total: Array = 0.0
        slope = 0.0
        for where, block in self.rows.blocks():
            change = curvature[where] * (column_dots(matrix @ block, block) - threshold)
            total = total + block @ (block * change).T
            slope -= float(array_namespace(block).sum(change))
        self.n_passes += 1.0
        return 0.5 * (total + total.T), slope

    def rotated_moments(self, curvature: Array, basis: Array) -> tuple[Array, Array]:
        """Return sum_i c_i y_i^2 (y_i^2)' and sum_i c_i y_i^2 for y = basis' z (squares by entry)."""
        fourth, second = 0.0, 0.0
        for where, block in self.rows.blocks():
            squares = (basis.T @ block) ** 2
            weighted = squares * curvature[where]
            fourth = fourth + weighted @ squares.T
            second = second + array_namespace(block).sum(weighted, axis=1)
        self.n_passes += 1.0
        return fourth, second

    def factor_gradient(self, factor: Array, pull: Array) -> Array:
        """Return dR/dA of R(A A', tau) where `pull` is known."""
        total = 0.0
        for where, block in self.rows.blocks():
            total = total + block @ ((factor.T @ block) * pull[where]).T
        self.n_passes += factor.shape[1] / self.n_directions
        return 2.0 * total

    def dense_hessian(self, curvature: FloatArray) -> FloatArray:
        """Return the second derivative in (packed M, tau) as a matrix of d(d+1)/2 + 1 rows."""
        size = packed.packed_size(self.n_directions)
        step = max(256, BLOCK_BYTES // (16 * size))
        hessian = np.zeros((size + 1, size + 1))
        features = np.empty((size + 1, step))  # reused: fresh memory would cost more than the products
        for where, block in self.rows.blocks():
            root = np.sqrt(curvature[where])
            for start in range(0, block.shape[1], step):
                columns, scale = block[:, start : start + step], root[start : start + step]
                filled = features[:, : len(scale)]
                packed.row_products(columns, scale, out=filled[:-1])
                np.negative(scale, out=filled[-1])
                hessian += filled @ filled.T
        self.n_passes += size * size / (4.0 * self.n_directions**2)
        scale = np.append(packed.weights(self.n_directions), 1.0)
        return hessian * np.outer(scale, scale)

    def best_threshold(
        self, forms: Array, start: float, *, least: float = 0.0, tol: float = 1e-15
    ) -> tuple[float, Pointwise]:
        """Minimise the risk over tau >= `least` at fixed quadratic forms: no pass over the rows.

        Safeguarded Newton until dR/dtau is at most `tol`, or tau is least with dR/dtau >= 0.
        Returns tau and the risk there, curvature included.
        """
        xp = array_namespace(forms)
        low, high = max(float(xp.min(forms)) - 1e3, least), max(float(xp.max(forms)) + 1e3, least)
        threshold = min(max(start, low), high)
        for _ in range(200):
            point = self.pointwise(forms, threshold, order=2)
            slope = point.threshold_slope
            if abs(slope) <= tol or (threshold == least and slope >= 0.0):
                break
            low, high = (low, threshold) if slope > 0 else (threshold, high)
            bend = float(xp.sum(point.curvature))
            proposal = max(threshold - slope / bend, least) if bend > 0.0 else np.nan
            if not low <= proposal <= high:
                proposal = 0.5 * (low + high)
            if abs(proposal - threshold) <= 4e-16 * abs(threshold):
                break
            threshold = proposal
        else:
            point = self.pointwise(forms, threshold, order=2)
        return threshold, point

    def _per_row(self, function: Any) -> Array:
        parts = [function(block) for _, block in self.rows.blocks()]
        return array_namespace(parts[0]).concat(parts) if len(parts) > 1 else parts[0]

    def _pointwise(self, forms: Array, where: slice, threshold: float, order: int) -> Pointwise:
        xp = array_namespace(forms)
        signs, weights = self.rows.signs[where], self.rows.weights[where]
        margin = signs * (forms - threshold)
        terms = self.noise.derivatives(margin, order)
        pull = weights * signs * terms[1]
        return Pointwise(
            loss=float(xp.vecdot(weights, terms[0])),
            threshold_slope=-float(xp.sum(pull)),
            least_margin=float(xp.min(margin)),
            pull=pull,
            curvature=weights * terms[2] if order == 2 else None,
        )


def column_dots(left: Array, right: Array) -> Array:
    """The dot product of each column of `left` with the same column of `right`."""
    xp = array_namespace(left)
    if is_numpy_namespace(xp):
        return np.einsum("ij,ij->j", left, right)
    return xp.vecdot(left, right, axis=-2)


def _squared_columns(product: Array) -> Array:
    return column_dots(product, product)
