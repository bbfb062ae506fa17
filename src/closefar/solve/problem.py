"""The problem that solvers minimise: the penalised risk over its feasible set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from closefar.arrays import TINY, Array, BoolArray, FloatArray, IndexArray
from closefar.packed import packed_size
from closefar.rows import RowSource, Terms, Trait
from closefar.solve.likelihood import Curvature, Evaluation, Likelihood, LineLoss, best_one, best_several

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
    def traits(self) -> frozenset[Trait]:
        return frozenset() if self.has_constant else frozenset([Trait.FACTORS])

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

    def project(self, matrix: FloatArray, rank: int | None = None) -> FloatArray:
        """The nearest feasible M, of at most this rank."""
        projected = matrix.copy()
        factor = psd_factor(matrix[self.core, self.core], cutoff=1e-9)[:, -(rank or self.size) :]
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
# Minimising the penalised risk R(M, thresholds) + alpha tr M over the feasible set: sums over rows, with a count of the
# passes over them.


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
class Problem:
    """Minimise R(M, thresholds) + alpha tr M over the cone, where R is the likelihood of the judgements of rows.

    Squared distances, and all arrays of an `Evaluation`, are handles of the rows.  Problems of the same rows share one
    count of passes.
    """

    rows: RowSource
    likelihood: Likelihood
    alpha: float
    cone: Cone
    passes: Passes

    @classmethod
    def of(
        cls,
        rows: RowSource,
        likelihood: Likelihood,
        alpha: float = 0.0,
        *,
        has_constant: bool = False,
        passes: Passes | None = None,
    ) -> Problem:
        """The problem over M positive semidefinite; with `has_constant`, rows end with the constant of an origin.

        A penalty on all of M keeps the origin finite; without a penalty its linear terms must be free.
        """
        is_free = has_constant and alpha == 0.0
        least = np.full_like(likelihood.least, -np.inf) if is_free else likelihood.least
        cone = Cone(rows.n_columns, least, is_free)
        return cls(rows, likelihood, alpha, cone, Passes() if passes is None else passes)

    @property
    def n_directions(self) -> int:
        return self.rows.n_columns

    @property
    def n_judgements(self) -> int:
        return self.rows.n_rows

    @property
    def traits(self) -> frozenset[Trait]:
        """What solvers may rely on."""
        return self.rows.traits | self.likelihood.traits | self.cone.traits

    def with_likelihood(self, likelihood: Likelihood) -> Problem:
        """The problem of another likelihood of the same judgements."""
        return replace(self, likelihood=likelihood)

    @property
    def rough(self) -> Problem:
        """The problem in a precision that is enough to approach its optimum, if that is faster."""
        return self if self.rows.rough is self.rows else replace(self, rows=self.rows.rough)

    def sample(self, share: float, rng: np.random.Generator) -> Problem | None:
        """The problem of about this share of the judgements; None if they determine no threshold."""
        indices = _random_rows(self.rows.n_rows, share, rng)
        part, arrays = self.rows.take(indices, *self.likelihood.row_arrays)
        likelihood = self.likelihood.of_rows(arrays, part.total(arrays[1]))
        if not likelihood.determines_thresholds(part):
            return None
        return replace(self, rows=part, likelihood=likelihood, passes=self.passes.of_part(share))

    # Values and sums at known squared distances: no pass over the rows.

    def evaluate(self, squared: Array, thresholds: FloatArray, order: int = 1) -> Evaluation:
        """Return the risk, with derivatives up to this order."""
        if not self.likelihood.is_feasible(thresholds):
            return self.likelihood.infeasible(squared)
        found = self.rows.each(self.likelihood.loss(thresholds, order), squared, *self.likelihood.row_arrays)
        return self.likelihood.evaluation(found, thresholds)

    def value(self, evaluation: Evaluation, matrix: FloatArray) -> float:
        return evaluation.loss + self.alpha * self.cone.trace(matrix)

    def minimise_threshold(
        self, squared: Array, thresholds: FloatArray, tol: float = 1e-15
    ) -> tuple[FloatArray, Evaluation]:
        """The best feasible thresholds, from a guess that need not be feasible, and the risk there with its curvature.

        No slope is larger than `tol`, unless it is positive for a threshold at its least value.
        """
        least, evaluate = self.cone.least, partial(self.evaluate, squared, order=2)
        if len(least) == 0:
            return least, evaluate(least)
        if len(least) == 1 and self.likelihood.answers.are_one_sided:
            return best_one(evaluate, lambda: self.rows.extremes(squared), float(thresholds[0]), float(least[0]), tol)
        begin = self.likelihood.made_feasible(np.maximum(thresholds, least))
        return best_several(evaluate, begin, least, tol, is_convex=Trait.CONVEX in self.likelihood.traits)

    def along_line(
        self, length: float, thresholds: FloatArray, squared: Array, linear: Array, square: Array
    ) -> tuple[Evaluation, FloatArray, FloatArray]:
        """The risk at squared distances f + t (g + t h), for the length t, and its derivatives in (t, thresholds).

        Returns the risk, its slopes along g + 2 t h and along h, and the second derivatives along (g + 2 t h,
        thresholds).
        """
        likelihood, n = self.likelihood, len(thresholds)
        if not likelihood.is_feasible(thresholds):
            return likelihood.infeasible(squared), np.zeros(2), np.eye(1 + n)
        line = LineLoss(likelihood.loss(thresholds), length)
        found = self.rows.each(line, squared, linear, square, *likelihood.row_arrays)
        of_loss, dots, of_change = line.split(found.sums)
        here = likelihood.evaluation(Terms(of_loss, found.least), thresholds)
        hessian = np.empty((1 + n, 1 + n))
        hessian[0, 0] = dots[2]
        hessian[0, 1:] = hessian[1:, 0] = likelihood.slopes_of_change(of_change)
        hessian[1:, 1:] = here.curvature.thresholds
        return here, dots[:2], hessian

    def scale_derivatives(self, squared: Array, scale: float, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the first and second derivatives in (scale, thresholds) for scaled distances."""
        nothing = 0.0 * squared
        here, dots, hessian = self.along_line(scale, thresholds, nothing, squared, nothing)
        return np.append(dots[0], here.slopes), hessian

    def mean_and_spread(self, squared: Array) -> tuple[float, float]:
        """Return the weighted mean and standard deviation of squared distances."""
        mean = self.rows.dot(self.likelihood.weights, squared)
        squares = self.rows.product(squared - mean, squared - mean)
        return mean, float(np.sqrt(self.rows.dot(self.likelihood.weights, squares)))

    # Sums over rows.

    def at(self, matrix: FloatArray, thresholds: FloatArray) -> Point:
        """Value and gradient at (M, thresholds): one pass."""
        self.passes.add(1.0)
        likelihood, rows = self.likelihood, self.rows
        if not likelihood.is_feasible(thresholds):
            return Point(self, matrix, thresholds, likelihood.infeasible(None), np.zeros_like(matrix))
        found, gradient = rows.sweep(likelihood.loss(thresholds), matrix, *likelihood.row_arrays)

        def evaluate() -> Evaluation:
            return self.evaluate(rows.forms(matrix), thresholds, order=2)

        # A fused sweep keeps nothing of the rows.
        evaluation = likelihood.evaluation(found, thresholds, None if found.arrays else evaluate)
        return replace(self.known(matrix, thresholds, evaluation, gradient), squared=found.forms)

    def known(
        self, matrix: FloatArray, thresholds: FloatArray, evaluation: Evaluation, gradient: FloatArray | None = None
    ) -> Point:
        """The same, given the risk: half a pass, unless its gradient is given too."""
        gradient = self.outer(evaluation.margin_gradient) if gradient is None else gradient
        summed = replace(evaluation, margin_gradient=None)  # one number per row that nothing needs any more
        penalised = gradient + self.alpha * self.cone.identity if self.alpha else gradient
        return Point(self, matrix, thresholds, summed, penalised)

    def project(self, matrix: FloatArray) -> tuple[FloatArray, Array]:
        """The nearest feasible M and its squared distances: at most half a pass."""
        if not self.cone.has_constant:
            factor = psd_factor(matrix, cutoff=1e-9)
            return factor @ factor.T, self.squared_distances(factor)
        projected = self.cone.project(matrix)
        return projected, self.forms(projected)

    def squared_distances(self, factor: FloatArray) -> Array:
        """Return z'AA'z for each row; a factor without columns is the metric zero."""
        self.passes.add(0.5 * factor.shape[1] / self.n_directions)
        return self.rows.squared_distances(factor)

    def forms(self, matrix: FloatArray) -> Array:
        """Return z'Sz for each row, for a symmetric S of any signature."""
        self.passes.add(0.5)
        return self.rows.forms(matrix)

    def outer(self, coefficients: Array) -> FloatArray:
        """Return sum_i c_i F_i; for c = dR/dq this is dR/dM."""
        self.passes.add(0.5)
        return self.rows.outer(coefficients)

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections A'z_i of each row, as a handle."""
        self.passes.add(0.5 * factor.shape[1] / self.n_directions)
        return self.rows.forward(factor)

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        """Return sum_i c_i z_i p_i' for projections p; for p = A'z and c = dR/dq this is half of dR/dA."""
        pulled = self.rows.backward(projections, coefficients)
        self.passes.add(0.5 * pulled.shape[1] / self.n_directions)
        return pulled

    def hessian(self, curvature: Curvature, *, rough: bool = False) -> FloatArray:
        """Return the second derivative in (packed M, thresholds) as a matrix of d(d+1)/2 rows and more.

        If it may be `rough`, single precision is used where that is faster.
        """
        self.passes.add(self._passes_of_hessian + curvature.border_passes)
        return curvature.hessian(self.rows, rough=rough)

    def sampled_hessian(
        self, matrix: FloatArray, thresholds: FloatArray, indices: IndexArray, factors: FloatArray
    ) -> FloatArray:
        """Return the Hessian of some judgements, each times its factor, in single precision where that is faster."""
        self.passes.add((0.5 + self._passes_of_hessian) * len(indices) / self.n_judgements)
        part, (codes, weights, *rest) = self.rows.take(indices, *self.likelihood.row_arrays)
        weights = part.product(weights, part.row_array(factors))
        few = replace(self, rows=part, likelihood=self.likelihood.of_rows((codes, weights, *rest)))
        here = few.evaluate(part.forms(matrix), thresholds, order=2)
        return here.curvature.hessian(part, rough=True)

    @property
    def _passes_of_hessian(self) -> float:
        return packed_size(self.n_directions) ** 2 / (4.0 * self.n_directions**2)

    def hessian_product(
        self, matrix: FloatArray, thresholds: FloatArray, curvature: Curvature
    ) -> tuple[FloatArray, FloatArray]:
        """Return the second derivative along (S, t): matrix part and threshold part."""
        self.passes.add(1.0)
        return curvature.product(self.rows, matrix, thresholds)

    def rotated_moments(self, curvature: Curvature, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the second derivatives in the diagonal of V'MV, V the basis, and in it and each threshold."""
        self.passes.add(1.0)
        return curvature.rotated(self.rows, basis)


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


def share_for_hessian(problem: Problem) -> float:
    """The share of the judgements whose Hessian stands for that of all."""
    per_parameter = packed_size(problem.n_directions) / problem.n_judgements
    small = min(_SMALL_SHARE, _MOST_PER_PARAMETER * per_parameter)
    return min(max(small, _FEWEST_PER_PARAMETER * per_parameter), _largest_share(problem))


def enough_for_hessian(problem: Problem) -> bool:
    """Whether that share is enough, so that steps with its Hessian converge quickly."""
    n_sampled = problem.n_judgements * _largest_share(problem)
    has_many = n_sampled >= _FEWEST_PER_PARAMETER * packed_size(problem.n_directions)
    return has_many and problem.likelihood.n_thresholds <= _MOST_SAMPLED_THRESHOLDS


def _largest_share(problem: Problem) -> float:
    return _LARGEST_REMOTE_SHARE if Trait.REMOTE in problem.traits else _LARGEST_SHARE


@dataclass(frozen=True)
class Point:
    """(M, thresholds) with the penalised risk and its gradient there, and the squared distances if they were kept."""

    problem: Problem
    matrix: FloatArray
    thresholds: FloatArray
    evaluation: Evaluation
    gradient: FloatArray
    squared: Array = None

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
        return np.where(self.problem.likelihood.precisions > 0.0, 0.0, self.slopes)

    @property
    def dual_value(self) -> float:
        """A lower bound on the optimum, if the gradient and the unpaid slopes are in the dual cone.

        A threshold with the penalty p t^2 / 2 gains at most s^2 / (2 p) where the slope is s.
        """
        above = self.thresholds - self.problem.cone.lowest
        precisions = self.problem.likelihood.precisions
        paid = precisions > 0.0
        gain = 0.5 * float(np.sum(self.slopes[paid] ** 2 / precisions[paid]))
        lowered = float(above @ self.unpaid_slopes)
        return self.value - float(np.sum(self.gradient * self.matrix)) - lowered - gain


# ---------------------------------------------------------------------------------------------------------------------
# Where searches start: a metric from the second moments of the labelled rows.


_FITTED_JUDGEMENTS = 2048  # to which a spectrum is fitted
_MOST_SPECTRUM_STEPS = 5  # of that fit, which only has to be near
_LEAST_GAIN = 0.03  # of the value; a step that gains less is the last
_MOST_FITTED_THRESHOLDS = 16  # that are fitted with it
_LONGEST_SPECTRUM_STEP = 3.0  # relative to the eigenvalues and the threshold


def moment_start(problem: Problem, accuracy: float = 1e-4) -> tuple[FloatArray, FloatArray]:
    """Return a metric and thresholds close to the optimum.

    The feasible part of mean(l zz') - mean(l) I has approximately the right direction (for normal
    rows by Stein's identity; without thresholds, mean(l) is not subtracted, since nothing else can
    absorb it).  Its scale and a threshold are then fitted by a few Newton steps; several thresholds
    are ordered, which such steps would not preserve, and are fitted to the scale.  `accuracy` is that
    of the loss there.
    """
    matrix, squared = problem.project(centred_moments(problem))
    scale, thresholds = fit_scale(problem, squared, accuracy=accuracy)
    return scale * matrix, thresholds


def centred_moments(problem: Problem) -> FloatArray:
    """mean(l zz') and, if there are thresholds, less mean(l) I."""
    trend = problem.likelihood.trend(problem.rows)
    moments, mean_trend = problem.outer(trend), problem.rows.total(trend)
    return moments - mean_trend * np.eye(problem.n_directions) if len(problem.cone.least) > 0 else moments


def fit_scale(
    problem: Problem, squared: Array, penalty: float = 0.0, *, accuracy: float = 1e-4
) -> tuple[float, FloatArray]:
    """Fit a scale of these squared distances, and thresholds; `penalty` is that of scale one."""
    least = problem.cone.least
    mean, spread = problem.mean_and_spread(squared)
    if spread <= 1e-9 * abs(mean):
        return 0.0, problem.minimise_threshold(0.0 * squared, np.zeros_like(least), tol=1e-6)[0]
    scale, thresholds = 1.0 / spread, np.full_like(least, mean / spread)
    has_several, value = len(least) > 1 or not problem.likelihood.answers.are_one_sided, np.inf
    if has_several:
        thresholds, here = problem.minimise_threshold(scale * squared, thresholds, tol=1e-6)
        value = here.loss + scale * penalty
    for _ in range(8):
        gradient, hessian = problem.scale_derivatives(squared, scale, thresholds)
        gradient[0] += penalty
        damped = hessian + (1e-12 * np.trace(hessian) + TINY) * np.eye(len(hessian))
        step, length = np.linalg.solve(damped, gradient), 1.0
        if not has_several:
            scale = float(np.clip(scale - step[0], 0.3 * scale, 3.0 * scale))
            thresholds = np.maximum(thresholds - np.clip(step[1:], -3.0, 3.0), least)
            if gradient @ step < accuracy:
                break
            continue
        while length > 0.01:  # until the step lowers the value
            longer = float(np.clip(scale - length * step[0], 0.3 * scale, 3.0 * scale))
            moved = np.maximum(thresholds - length * step[1:], least)
            there = problem.evaluate(longer * squared, moved).loss + longer * penalty
            if there < value:
                break
            length *= 0.5
        else:
            break
        gain, scale, thresholds, value = value - there, longer, moved, there
        if gain < accuracy:
            break
    return scale, thresholds


def spectral_start(problem: Problem, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return a metric and thresholds still closer to the optimum, for few columns.

    Its eigenvectors are those of the moments in `moment_start`; its eigenvalues are fitted to a sample by Newton steps.
    """
    cone = problem.cone
    share = _FITTED_JUDGEMENTS / problem.n_judgements
    few = problem if share >= 0.5 else problem.sample(share, rng)
    if few is None or cone.has_constant or len(cone.least) > _MOST_FITTED_THRESHOLDS:
        return moment_start(problem)
    values, basis = np.linalg.eigh(centred_moments(problem))
    squared = few.squared_distances(basis * np.sqrt(np.maximum(values, 0.0)))
    scale, thresholds = fit_scale(few, squared, accuracy=0.1)
    return _fit_spectrum(few, basis, np.append(scale * np.maximum(values, 0.0), thresholds))


def _fit_spectrum(few: Problem, basis: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimise over x = (eigenvalues, threshold) >= 0 of a metric with these eigenvectors."""
    least, d = np.append(np.zeros(len(basis)), few.cone.least), len(basis)
    best, best_value = x, np.inf
    for _ in range(_MOST_SPECTRUM_STEPS):
        point = few.at((basis * x[:d]) @ basis.T, x[d:])
        if not point.value < best_value:
            break
        # Towards separating the labels, steps would become longer and longer.
        is_last = point.value > (1.0 - _LEAST_GAIN) * best_value or point.evaluation.least_margin > 0.0
        best, best_value = x, point.value
        if is_last:
            break
        gradient = np.append(np.einsum("ij,ij->j", basis, point.gradient @ basis), point.slopes)
        curvature = point.evaluation.curvature
        fourth, border = few.rotated_moments(curvature, basis)
        hessian = np.block([[fourth, border], [border.T, curvature.thresholds]])
        free = (x > least) | (gradient < 0.0)
        damped = hessian + (1e-6 * np.trace(hessian) + TINY) * np.eye(len(hessian))
        step = np.zeros_like(x)
        step[free] = -np.linalg.solve(damped[np.ix_(free, free)], gradient[free])
        longest = _LONGEST_SPECTRUM_STEP * float(np.linalg.norm(x))
        x = np.maximum(x + step * min(1.0, longest / max(float(np.linalg.norm(step)), TINY)), least)
    return (basis * best[:d]) @ basis.T, best[d:]
