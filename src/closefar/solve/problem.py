"""The problem that solvers minimise: the penalised risk over its feasible set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import Array, BoolArray, FloatArray, IndexArray
from closefar.packed import packed_size
from closefar.rows import RowSource
from closefar.solve.likelihood import Curvature, Evaluation, Likelihood

# ---------------------------------------------------------------------------------------------------------------------
# The feasible set of M and thresholds.


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


# ---------------------------------------------------------------------------------------------------------------------
# The time that a fit may take, which may end at any of its passes over the rows.


class OutOfTime(Exception):  # noqa: N818  # no error: the fit ends with what it has
    """The time of a fit is over; `near` is what it has by then, to start from."""

    def __init__(self, near: Any = None) -> None:
        super().__init__()
        self.near = near


class Supervisor:
    """What holds for all runs of a fit.

    Attributes
    ----------
    max_time : float, optional
        The time that the fit may take, in seconds from now.
    on_pass : callable, optional
        Called with the number of passes over the data whenever one begins.
    timed_out : bool
        Whether a run ended because the time was over.
    """

    def __init__(self, max_time: float | None = None, on_pass: Callable[[float], None] | None = None) -> None:
        self.max_time = max_time
        self.on_pass = on_pass
        self.timed_out = False
        self._deadline = math.inf if max_time is None else time.monotonic() + max_time
        self._may_raise = False

    @property
    def is_over(self) -> bool:
        return self._deadline < math.inf and time.monotonic() >= self._deadline

    def note_pass(self, count: float) -> None:
        """End the step under way if the time is over."""
        if self.on_pass is not None:
            self.on_pass(count)
        if self._may_raise and self.is_over:
            raise OutOfTime

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Within this, a pass may end the computation: there is a state to keep."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False


_CURRENT: ContextVar[Supervisor] = ContextVar("supervisor", default=Supervisor())  # noqa: B039  # it limits nothing


def supervisor() -> Supervisor:
    """The supervisor of the fit that this is part of."""
    return _CURRENT.get()


@contextmanager
def supervised(by: Supervisor) -> Iterator[None]:
    """Supervise the runs within this."""
    token = _CURRENT.set(by)
    try:
        yield
    finally:
        _CURRENT.reset(token)


# ---------------------------------------------------------------------------------------------------------------------
# The risk R(M, thresholds): a likelihood over the rows of a source, with a count of the passes over them.


_SPARSELY_DRAWN = 1 << 24  # rows, beyond which a random number for each takes long


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

    def scale_derivatives(self, squared: Array, scale: float, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
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
        squares = self.source.product(squared - mean, squared - mean)
        return mean, float(np.sqrt(self.source.dot(self.likelihood.weights, squares)))

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
        if not self.source.can_project:
            return 2.0 * self.source.outer(evaluation.margin_gradient) @ factor
        return 2.0 * self.source.backward(self.source.forward(factor), evaluation.margin_gradient)

    @property
    def rough(self) -> Objective:
        """The objective in a precision that is enough to approach its minimum, if that is faster."""
        if self.source.can_fuse and not self.likelihood.is_plain:
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
    if n < _SPARSELY_DRAWN:
        return np.flatnonzero(rng.random(n) < share)
    drawn = np.sort(rng.integers(n, size=rng.binomial(n, share)))
    return drawn[np.diff(drawn, prepend=-1) > 0]


# ---------------------------------------------------------------------------------------------------------------------
# How many judgements a sample needs in the place of all of them.


# A Hessian of m judgements differs from that of all by about 2 sqrt(p / m), relative to it, with p parameters.
_FEWEST_PER_PARAMETER, _MOST_PER_PARAMETER = 32, 128

# A step on the sample, of about ten passes over it, takes no longer than two passes over all judgements, if the sample
# is no larger than the second share; if it is no larger than the first, it takes little time and memory.
_SMALL_SHARE, _LARGEST_SHARE = 1.0 / 24.0, 1.0 / 6.0

_MOST_SAMPLED_THRESHOLDS = 16  # each is as much work as half a pass over the sample

# Where each pass is a round trip to other processes, passes over a sample in this one may take longer to save some.
_LARGEST_REMOTE_SHARE = 1.0 / 2.0


def share_for_hessian(objective: Objective) -> float:
    """The share of the judgements whose Hessian stands for that of all."""
    per_parameter = packed_size(objective.n_directions) / objective.n_judgements
    small = min(_SMALL_SHARE, _MOST_PER_PARAMETER * per_parameter)
    return min(max(small, _FEWEST_PER_PARAMETER * per_parameter), _largest_share(objective))


def enough_for_hessian(objective: Objective) -> bool:
    """Whether that share is enough, so that steps with its Hessian converge quickly."""
    n_sampled = objective.n_judgements * _largest_share(objective)
    has_many = n_sampled >= _FEWEST_PER_PARAMETER * packed_size(objective.n_directions)
    return has_many and objective.likelihood.n_thresholds <= _MOST_SAMPLED_THRESHOLDS


def _largest_share(objective: Objective) -> float:
    return _LARGEST_REMOTE_SHARE if objective.source.is_remote else _LARGEST_SHARE


@dataclass(frozen=True)
class Problem:
    """Minimise R(M, thresholds) + alpha tr M over the cone."""

    objective: Objective
    alpha: float
    cone: Cone

    def value(self, evaluation: Evaluation, matrix: FloatArray) -> float:
        return evaluation.loss + self.alpha * self.cone.trace(matrix)

    def project(self, matrix: FloatArray) -> tuple[FloatArray, Array]:
        """The nearest feasible M and its squared distances: at most half a pass."""
        if not self.cone.has_constant:
            factor = psd_factor(matrix, cutoff=1e-9)
            return factor @ factor.T, self.objective.squared_distances(factor)
        projected = self.cone.project(matrix)
        return projected, self.objective.quadratic_forms(projected)

    def minimise_threshold(
        self, squared: Array, thresholds: FloatArray, tol: float = 1e-15
    ) -> tuple[FloatArray, Evaluation]:
        """The best feasible thresholds for given squared distances, and the risk there."""
        return self.objective.best_thresholds(squared, thresholds, self.cone.least, tol)

    def at(self, matrix: FloatArray, thresholds: FloatArray) -> Point:
        """Value and gradient at (M, thresholds): one pass."""
        evaluation, gradient = self.objective.loss_and_gradient(matrix, thresholds)
        return self.known(matrix, thresholds, evaluation, gradient)

    def known(
        self, matrix: FloatArray, thresholds: FloatArray, evaluation: Evaluation, gradient: FloatArray | None = None
    ) -> Point:
        """The same, given the risk: half a pass, unless its gradient is given too."""
        gradient = self.objective.gradient(evaluation) if gradient is None else gradient
        summed = replace(evaluation, margin_gradient=None)  # one number per row that nothing needs any more
        penalised = gradient + self.alpha * self.cone.identity if self.alpha else gradient
        return Point(self, matrix, thresholds, summed, penalised)

    @property
    def rough(self) -> Problem:
        """The problem in a precision that is enough to approach its optimum, if that is faster."""
        rough = self.objective.rough
        return self if rough is self.objective else replace(self, objective=rough)

    def sample(self, share: float, rng: np.random.Generator) -> Problem | None:
        """The problem of about this share of the judgements; None if they are all the same."""
        few = self.objective.sample(share, rng)
        return None if few is None else replace(self, objective=few)


@dataclass(frozen=True)
class Point:
    """(M, thresholds) with the penalised risk and its gradient there."""

    problem: Problem
    matrix: FloatArray
    thresholds: FloatArray
    evaluation: Evaluation
    gradient: FloatArray

    @property
    def slopes(self) -> FloatArray:
        """The derivatives of the risk in the thresholds."""
        return self.evaluation.slopes

    @cached_property
    def value(self) -> float:
        return self.problem.value(self.evaluation, self.matrix)

    @property
    def unpaid_slopes(self) -> FloatArray:
        """The slopes that must be in the dual cone: zero for thresholds with a penalty, which bounds what they gain."""
        return np.where(self.problem.objective.likelihood.precisions > 0.0, 0.0, self.slopes)

    @property
    def dual_value(self) -> float:
        """A lower bound on the optimum, if the gradient and the unpaid slopes are in the dual cone.

        A threshold with the penalty p t^2 / 2 gains at most s^2 / (2 p) where the slope is s.
        """
        above = self.thresholds - self.problem.cone.lowest
        precisions = self.problem.objective.likelihood.precisions
        paid = precisions > 0.0
        gain = 0.5 * float(np.sum(self.slopes[paid] ** 2 / precisions[paid]))
        lowered = float(above @ self.unpaid_slopes)
        return self.value - float(np.sum(self.gradient * self.matrix)) - lowered - gain
