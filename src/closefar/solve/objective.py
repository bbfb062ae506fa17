"""The risk R(M, thresholds): a likelihood over the rows of a source, with a count of the passes over them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from closefar import packed
from closefar.arrays import Array, FloatArray, IndexArray
from closefar.rows import RowSource
from closefar.solve.curvature import Curvature
from closefar.solve.likelihood import Evaluation, Likelihood
from closefar.solve.supervision import supervisor

__all__ = ["Objective", "Passes"]


_VERY_MANY = 1 << 24  # rows


class Passes:
    """A counter of passes over the rows; one is a loss with its gradient: two products of the size of the data.

    A step ends at its next pass once the time of the fit is over.
    """

    def __init__(self, whole: Passes | None = None, share: float = 1.0) -> None:
        self.count = 0.0
        self._whole = whole
        self._share = share

    def add(self, amount: float) -> None:
        self.count += amount
        if self._whole is not None:
            self._whole.add(self._share * amount)
        else:
            supervisor().note_pass(self.count)

    def of_part(self, share: float) -> Passes:
        """A counter of passes over this share of the rows, which also count here."""
        return Passes(self, share)


@dataclass(frozen=True)
class Objective:
    """R(M, tau) = sum_i w_i phi_i(z_i'M z_i, tau) and its derivatives.

    Squared distances, and all arrays of an `Evaluation`, are handles of the source.
    Objectives over the same rows share one count of passes.
    """

    source: RowSource
    likelihood: Likelihood
    passes: Passes

    @property
    def n_directions(self) -> int:
        return self.source.n_columns

    @property
    def n_judgements(self) -> int:
        return self.source.n_rows

    def trend_moment(self) -> tuple[FloatArray, float]:
        """Return sum_i t_i F_i for the trend t of the judgements, and sum_i t_i."""
        trend = self.likelihood.trend(self.source)
        return self.outer(trend), self.source.total(trend)

    def with_likelihood(self, likelihood: Likelihood) -> Objective:
        """The objective of another likelihood of the same rows."""
        return replace(self, likelihood=likelihood)

    def sample(self, share: float, rng: np.random.Generator) -> Objective | None:
        """The objective of about this share of the rows; None if they determine no threshold.

        This is the case if all their judgements are the same.
        """
        indices = _random_rows(self.source.n_rows, share, rng)
        part, arrays = self.source.take(indices, *self.likelihood.row_arrays)
        likelihood = self.likelihood.of_sample(part, arrays)
        if not likelihood.determines_thresholds(part):
            return None
        return Objective(part, likelihood, self.passes.of_part(share))

    def squared_distances(self, factor: FloatArray) -> Array:
        """Return z'AA'z for each row; a factor without columns is the metric zero."""
        self.passes.add(0.5 * factor.shape[1] / self.n_directions)
        return self.source.squared_distances(factor)

    def quadratic_forms(self, matrix: FloatArray) -> Array:
        """Return z'Sz for each row, for a symmetric S of any signature."""
        self.passes.add(0.5)
        return self.source.quadratic_forms(matrix)

    def evaluate(self, squared: Array, thresholds: FloatArray, *, order: int = 1) -> Evaluation:
        """Return the risk at known squared distances: no pass over the rows."""
        return self.source.evaluate(self.likelihood, squared, thresholds, order)

    def best_thresholds(
        self, squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Evaluation]:
        """Minimise over the thresholds at known squared distances: no pass over the rows."""
        return self.source.best_thresholds(self.likelihood, squared, start, least, tol)

    def along(self, squared: Array, scale: float, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the first and second derivatives in (scale, thresholds) for scaled distances: no pass."""
        here = self.evaluate(scale * squared, thresholds, order=2)
        curvature = here.curvature
        slope, bend, *crosses = self.source.dots(
            (here.margin_gradient, squared),
            (self.source.product(curvature.distance, squared), squared),
            *((cross, squared) for cross in curvature.crosses),
        )
        gradient = np.append(slope, here.slopes)
        hessian = np.empty((len(gradient), len(gradient)))
        hessian[0, 0] = bend
        hessian[0, 1:] = hessian[1:, 0] = crosses
        hessian[1:, 1:] = curvature.thresholds
        return gradient, hessian

    def mean_and_spread(self, squared: Array) -> tuple[float, float]:
        """Return the weighted mean and standard deviation of squared distances."""
        mean = self.source.dot(self.likelihood.weights, squared)
        deviations = self.source.map(_square, squared - mean)
        return mean, float(np.sqrt(self.source.dot(self.likelihood.weights, deviations)))

    def loss_and_gradient(self, matrix: FloatArray, thresholds: FloatArray) -> tuple[Evaluation, FloatArray]:
        """Return the risk of a metric, with its curvature, and dR/dM: one pass."""
        self.passes.add(1.0)
        return self.source.loss_and_gradient(self.likelihood, matrix, thresholds)

    def gradient(self, evaluation: Evaluation) -> FloatArray:
        """Return dR/dM, given the risk."""
        return self.outer(evaluation.margin_gradient)

    def outer(self, coefficients: Array) -> FloatArray:
        """Return sum_i c_i z_i z_i'."""
        self.passes.add(0.5)
        return self.source.outer(coefficients)

    def factor_gradient(self, factor: FloatArray, evaluation: Evaluation) -> FloatArray:
        """Return dR/dA of R(A A', tau), given the risk."""
        self.passes.add(factor.shape[1] / self.n_directions)
        return 2.0 * self.source.factor_gradient(factor, evaluation.margin_gradient)

    def factor_pass(self, factor: FloatArray, thresholds: FloatArray) -> tuple[Evaluation, FloatArray] | None:
        """Return the risk of M = A A' and dR/dA at once, if the source has a fused pass for them."""
        found = self.likelihood.factor_pass(self.source, factor, thresholds)
        self.passes.add(0.0 if found is None else factor.shape[1] / self.n_directions)
        return found

    @property
    def rough(self) -> Objective:
        """The objective in a precision that is enough to approach its minimum, if that is faster."""
        if self.source.can_fuse and not self.likelihood.can_be_fused:
            return self  # fused passes are for other likelihoods
        return self if self.source.rough is self.source else replace(self, source=self.source.rough)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections A'z_i of each row, as a handle."""
        self.passes.add(0.5 * factor.shape[1] / self.n_directions)
        return self.source.forward(factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        """Return sum_i c_i z_i p_i' for projections p; for p = A'z and c = dR/dq this is half of dR/dA."""
        pulled = self.source.backward(projections, coefficients)
        self.passes.add(0.5 * pulled.shape[1] / self.n_directions)
        return pulled

    def inner(self, left: Array, right: Array) -> Array:
        """Return p_i'q_i of two projections for each row: no pass over the rows."""
        return self.source.inner(left, right)

    def hessian(self, curvature: Curvature, *, rough: bool = False) -> FloatArray:
        """Return the second derivative in (packed M, thresholds) as a matrix of d(d+1)/2 rows and more.

        If it may be `rough`, single precision is used where that is faster.
        """
        size = packed.packed_size(self.n_directions)
        self.passes.add(size * size / (4.0 * self.n_directions**2) + curvature.border_passes)
        return curvature.hessian(self.source, rough=rough)

    def sampled_hessian(self, curvature: Curvature, indices: IndexArray, factors: FloatArray) -> FloatArray:
        """Return the Hessian of some judgements, each times its factor, in single precision where that is faster."""
        part = self.source.take_rows(indices)
        size = packed.packed_size(self.n_directions)
        self.passes.add(size * size / (4.0 * self.n_directions**2) * len(indices) / self.n_judgements)
        return curvature.sampled(self.source, part, indices, factors).hessian(part, rough=True)

    def hessian_product(
        self, matrix: FloatArray, thresholds: FloatArray, curvature: Curvature
    ) -> tuple[FloatArray, FloatArray]:
        """Return the second derivative along (S, t): matrix part and threshold part."""
        self.passes.add(1.0)
        return curvature.product(self.source, matrix, thresholds)

    def mixed_moments(self, curvature: Curvature, basis: FloatArray) -> FloatArray | None:
        """Return a half of the second derivatives in the other entries of V'MV; None if those of the diagonal do."""
        found = self.source.mixed_moments(curvature.distance, basis)
        self.passes.add(0.0 if found is None else 1.0)
        return found

    def rotated_moments(self, curvature: Curvature, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the second derivatives in the diagonal of V'MV, V the basis, and in it and each threshold."""
        self.passes.add(1.0)
        return curvature.rotated(self.source, basis)


def _random_rows(n: int, share: float, rng: np.random.Generator) -> IndexArray:
    """About this share of n row numbers, in order; of very many without a random number for each."""
    if n < _VERY_MANY:
        return np.flatnonzero(rng.random(n) < share)
    drawn = np.sort(rng.integers(n, size=rng.binomial(n, share)))
    return drawn[np.diff(drawn, prepend=-1) > 0]


def _square(values: Array) -> Array:
    return values**2
