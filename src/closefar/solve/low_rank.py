"""L-BFGS on a factor A of M = A A': of a rank that follows the solution, for many columns, or of a fixed one.

Below full rank the problem is not convex.  Full gradients only prove, and find new columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import TINY, Array, FloatArray
from closefar.rows import Trait
from closefar.solve.certificate import DUAL_ROUNDING, REACH, prove_bound
from closefar.solve.likelihood import Evaluation, RowLoss, damped
from closefar.solve.loop import SURPRISING, Solver, State
from closefar.solve.problem import Point, Problem, centred_moments, fit_scale, psd_factor

# ---------------------------------------------------------------------------------------------------------------------
# The penalised risk as a function of a factor A of M = A A', with the thresholds minimised out.


# The line search ends when the slope is this share of that at its start, or after this many evaluations.
_LINE_ACCURACY, _LINE_THRESHOLD_ACCURACY, _MOST_LINE_STEPS = 0.1, 0.02, 12
_RISE = 1e-9  # relative to the value, and more than rounding


# Slopes of the thresholds; in single precision, derivatives in the factor are less accurate than that anyway.
_THRESHOLD_TOL, _ROUGH_THRESHOLD_TOL = 1e-12, 1e-9


@dataclass(frozen=True)
class FactorPlace:
    """A factor with the projections of the data on it, their squared lengths, the best thresholds and the value.

    `curvature` is the sum of the second derivatives in the squared distances.  Projections along a line are updated,
    with rounding errors of their own.
    """

    factor: FloatArray
    projections: Array
    squared: Array
    thresholds: FloatArray
    evaluation: Evaluation
    value: float
    curvature: float

    @property
    def trace(self) -> float:
        return float(np.sum(self.factor**2))


@dataclass(frozen=True)
class Factored:
    """A problem over factors; `tol` limits the slopes in the thresholds, which are optimised at every place."""

    problem: Problem
    tol: float

    def at(self, factor: FloatArray, thresholds: FloatArray, tol: float | None = None) -> FactorPlace:
        """Evaluate a factor: half a pass."""
        projections = self.problem.forward(factor)
        return self._place(factor, projections, self.problem.rows.inner(projections, projections), thresholds, tol)

    def settled(self, place: FactorPlace, tol: float) -> FactorPlace:
        """The same place with more exact thresholds: no pass."""
        return self._place(place.factor, place.projections, place.squared, place.thresholds, tol)

    def gradient(self, place: FactorPlace) -> FloatArray:
        """The derivative in A: half a pass."""
        pulled = self.problem.backward(place.projections, place.evaluation.margin_gradient)
        return 2.0 * (pulled + self.problem.alpha * place.factor)

    def search(self, place: FactorPlace, direction: FloatArray) -> FactorPlace:
        """Minimise along A + t D, for one projection on D: half a pass.

        The squared distances along it are f + 2 t P'Q + t^2 Q'Q for each pair, so t and the thresholds are found
        without another pass, by Newton steps in both.
        """
        rows, ahead = self.problem.rows, self.problem.forward(direction)
        linear, square = 2.0 * rows.inner(place.projections, ahead), rows.inner(ahead, ahead)
        length, thresholds = _Line(self.problem, place, direction, linear, square).minimise()
        squared = place.squared + length * (linear + length * square)
        ahead *= float(length)
        ahead += place.projections
        return self._place(place.factor + length * direction, ahead, squared, thresholds)

    def _place(
        self, factor: FloatArray, projections: Array, squared: Array, thresholds: FloatArray, tol: float | None = None
    ) -> FactorPlace:
        problem = self.problem
        projections, squared = problem.rows.keep(projections), problem.rows.keep(squared)
        thresholds, evaluation = problem.minimise_threshold(squared, thresholds, tol or self.tol)
        value = evaluation.loss + problem.alpha * float(np.sum(factor**2))
        curvature = problem.rows.total(evaluation.curvature.distance)
        return FactorPlace(factor, projections, squared, thresholds, evaluation, value, curvature)


class _Line:
    """The penalised risk along a line of factors, as a function of its length and the thresholds."""

    def __init__(
        self, problem: Problem, place: FactorPlace, direction: FloatArray, linear: Array, square: Array
    ) -> None:
        self.problem, self.least, self.alpha = problem, problem.cone.least, problem.alpha
        self.place, self.forms = place, (place.squared, linear, square)
        self.trace = 2.0 * float(np.sum(place.factor * direction)), float(np.sum(direction**2))

    def minimise(self) -> tuple[float, FloatArray]:
        """The best length and thresholds of a few safeguarded Newton steps."""
        place, rows, (_, linear, _) = self.place, self.problem.rows, self.forms
        first = abs(rows.dot(place.evaluation.margin_gradient, linear) + self.alpha * self.trace[0])
        # The thresholds that follow a step of length one, to first order.
        curvature, free = place.evaluation.curvature, place.thresholds > self.least
        step, ahead = np.zeros_like(place.thresholds), curvature.across(rows, linear)[free]
        step[free] = -np.linalg.solve(damped(curvature.thresholds[np.ix_(free, free)]), ahead)
        length, thresholds = 1.0, self._moved(place.thresholds, step)
        low, high = 0.0, np.inf
        best = place.value, 0.0, place.thresholds
        for _ in range(_MOST_LINE_STEPS):
            value, gradient, hessian = self._evaluate(length, thresholds)
            # Below the rounding error of the value, a step that ends with a smaller slope is still one.
            if value < best[0] + 1e-14 * abs(best[0]):
                best = min(value, best[0]), length, thresholds
            free = np.append(True, ~((thresholds <= self.least) & (gradient[1:] >= 0.0)))
            # The slope in the length if the thresholds follow it.
            on = hessian[np.ix_(free, free)]
            rest = np.linalg.solve(damped(on[1:, 1:]), np.column_stack([gradient[free][1:], on[1:, 0]]))
            slope = float(gradient[0] - on[0, 1:] @ rest[:, 0])
            bend = float(on[0, 0] - on[0, 1:] @ rest[:, 1])
            if not np.isfinite(value):
                low, high, length, thresholds = low, length, 0.1 * length, self.place.thresholds
                continue
            low, high = (low, length) if slope > 0.0 else (length, high)
            new = length - slope / bend if bend > 0.0 else np.inf
            if not low < new < high:
                new = 2.0 * length if high == np.inf else 0.5 * (low + high)
            new = min(new, 10.0 * length)
            off = float(np.abs(gradient[free][1:]).max(initial=0.0))
            is_accurate = abs(slope) <= _LINE_ACCURACY * first and off <= _LINE_THRESHOLD_ACCURACY * first
            step = np.zeros_like(thresholds)
            step[free[1:]] = -(rest[:, 0] + (0.0 if is_accurate else new - length) * rest[:, 1])
            moved = self._moved(thresholds, step)
            if is_accurate and best[1] == 0.0 and value > best[0] + _RISE * abs(best[0]):
                break  # the bottom of another valley, which is higher
            if is_accurate:
                return (length, moved) if best[1] == length else best[1:]
            length, thresholds = new, moved
        return (best[1], best[2]) if best[1] > 0.0 else self._backtrack()

    def _moved(self, thresholds: FloatArray, step: FloatArray) -> FloatArray:
        most = 3.0 + np.abs(thresholds)
        within = np.clip(step, -most, most)  # far from it where the loss is flat
        return np.maximum(thresholds + within, self.least)

    def _backtrack(self) -> tuple[float, FloatArray]:
        """The first of shorter and shorter lengths that lowers the value with thresholds that are best there."""
        length, best, (squared, linear, square) = 1.0, self.place.thresholds, self.forms
        while length > 1e-6:
            moved = squared + length * (linear + length * square)
            thresholds, here = self.problem.minimise_threshold(moved, best, 1e-9)
            if here.loss + self._penalty(length) < self.place.value:
                return length, thresholds
            length *= 0.25
        return 0.0, self.place.thresholds

    def _penalty(self, length: float) -> float:
        on_linear, on_square = self.trace
        return self.alpha * (self.place.trace + length * (on_linear + length * on_square))

    def _evaluate(self, length: float, thresholds: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The value with its gradient and Hessian in (length, thresholds)."""
        on_linear, on_square = self.trace
        here, (pull, on_squares), hessian = self.problem.along_line(length, thresholds, *self.forms)
        hessian[0, 0] += 2.0 * (on_squares + self.alpha * on_square)
        slope = pull + self.alpha * (on_linear + 2.0 * length * on_square)
        return here.loss + self._penalty(length), np.append(slope, here.slopes), hessian


# ---------------------------------------------------------------------------------------------------------------------
# A lower bound on the penalised optimum from one gradient, without another pass over the rows.
#
# The loss of each row lies above every tangent: phi(m) >= phi(m') + phi'(m') (m - m'). If all slopes are multiplied
# by s = min(1, alpha / -lambda_min(dR/dM)), the gradient s dR/dM + alpha I is positive semidefinite, and the slopes
# of the thresholds keep their signs. The tangents with these slopes then bound the objective of every feasible
# point by
#
# sum_i w_i (phi(m_i') - s p_i m_i'), phi'(m_i') = s p_i, p_i = phi'(m_i),
#
# which is too low by about the violation of the dual cone times tr M.


_MOST_TANGENT_STEPS = 60  # of a bracketed Newton search, of which bisection alone would need 50 to the last digit
_FLAT = 1e-30  # a curvature without meaning, by which a division could overflow


def has_tangents(problem: Problem) -> bool:
    """Whether a bound can be computed this way."""
    return problem.alpha > 0.0 and Trait.CONVEX in problem.traits


def tangent_bound(problem: Problem, place: FactorPlace, least: float) -> float:
    """The bound proven by the slopes at a place where lambda_min(dR/dM) is at least `least`."""
    thresholds, slopes = place.thresholds, place.evaluation.slopes
    likelihood, rows = problem.likelihood, problem.rows
    share = min(1.0, problem.alpha / max(-least, 1e-300))
    if Trait.TANGENTS in problem.traits:
        tangents = partial(_tangents, likelihood.loss(thresholds), share)
        value = float(sum(rows.parts(tangents, place.squared, *likelihood.row_arrays)))
    else:
        # The conjugate of a loss >= 0 is convex and at most 0 at 0, so that slopes times the share prove at least
        # that share of what the slopes themselves prove.
        along = rows.dot(place.evaluation.margin_gradient, place.squared)
        value = share * (place.evaluation.loss - along - float(slopes @ thresholds))
    # Thresholds are optimal up to rounding; a slope that is still negative is paid for by their size, and so is any
    # of a threshold without a bound.
    is_free = np.isneginf(problem.cone.least)
    slack = np.where(is_free, np.abs(slopes), np.maximum(-slopes, 0.0)) @ (REACH * (1.0 + np.abs(thresholds)))
    return value - float(slack)


def _tangents(loss: RowLoss, share: float, squared: Array, codes: Array, weights: Array, *rest: Array) -> float:
    """sum_i w_i (phi(m') - q m') for some of the rows, with q = share phi'(m) and phi'(m') = q."""
    xp, pointwise = array_namespace(squared), loss.noise.derivatives
    margin = loss.margins(squared, codes, rest)
    slope = pointwise(margin)[1]
    wanted = share * slope
    # Towards the minimum, where slopes are smaller: the solution is between the margin and the first point beyond it.
    ahead = xp.where(slope < 0.0, xp.ones_like(slope), -xp.ones_like(slope))
    near, far = margin, margin + ahead * (1.0 + xp.abs(margin))
    for _ in range(_MOST_TANGENT_STEPS):
        is_beyond = ahead * (pointwise(far)[1] - wanted) >= 0.0
        if bool(xp.all(is_beyond)):
            break
        far = xp.where(is_beyond, far, 2.0 * far - near)
    found = near
    for n_left in reversed(range(_MOST_TANGENT_STEPS)):
        value, slope, curvature = pointwise(found)
        left = slope - wanted
        # The infimum of phi(m) - q m lies between `near` and `far`: this is what an inexact slope may leave of it.
        error = float(xp.vecdot(weights, xp.abs(left) * xp.abs(far - near)))
        if error <= DUAL_ROUNDING or n_left == 0:
            break
        is_short = ahead * left < 0.0
        near, far = xp.where(is_short, found, near), xp.where(is_short, far, found)
        is_curved = curvature > _FLAT
        proposal = found - left / xp.where(is_curved, curvature, xp.ones_like(curvature))
        is_inside = is_curved & (ahead * (proposal - near) > 0.0) & (ahead * (far - proposal) > 0.0)
        found = xp.where(is_inside, proposal, 0.5 * (near + far))
    return float(xp.vecdot(weights, value - wanted * found)) - error


# ---------------------------------------------------------------------------------------------------------------------
# Which columns a factor of low rank needs: the first ones, and those that a full gradient shows to be missing.


# The first factor has this many columns at least, and as many may be added at once.
_FEWEST_COLUMNS = 8

# Without a penalty, and up to this many columns of the data, half of the useful directions at zero are expected in the
# optimum, not a third.
_HALF_RANK_COLUMNS = 200

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
    def of(cls, factored: Factored, place: FactorPlace) -> Spectrum:
        """Compute dR/dM; its rounding error is that of double precision."""
        gradient = factored.problem.outer(place.evaluation.margin_gradient)
        values, vectors = np.linalg.eigh(gradient)
        largest = 1.0 + float(np.abs(values).max())
        # Terms are about d times as large as their sum, and coordinates that are applied to it amplify its error.
        rounding = 8.0 * float(np.finfo(np.float64).eps) * len(values) * factored.problem.rows.condition * largest
        return cls(gradient, values, vectors, rounding)

    def measured(self, exact: Factored, place: FactorPlace, rng: np.random.Generator) -> Spectrum:
        """The same with the error of a gradient in single precision, measured in double precision."""
        probes = rng.standard_normal((len(self.gradient), _N_PROBES))
        image = exact.problem.backward(exact.problem.forward(probes), place.evaluation.margin_gradient)
        error = float(np.linalg.norm(self.gradient @ probes - image)) / np.sqrt(_N_PROBES)
        return replace(self, rounding=self.rounding + _CAUTION * error)

    def violation(self, alpha: float) -> float:
        """How far dR/dM + alpha I is from positive semidefinite, at most."""
        return max(self.rounding - alpha - float(self.values[0]), 0.0)


def leading_factor(factored: Factored, rank: int | None) -> tuple[FloatArray, FloatArray]:
    """A factor of the leading directions of -dR/dM at M = 0, with a good scale and thresholds for it."""
    problem = factored.problem
    d = problem.n_directions
    values, vectors = np.linalg.eigh(0.5 * centred_moments(problem))
    n_useful = int(np.sum(values > problem.alpha))
    # With a penalty the optimum has far fewer directions than the gradient at zero.
    n_expected = n_useful // 2 if problem.alpha == 0.0 and d <= _HALF_RANK_COLUMNS else n_useful // 3
    k = rank or int(np.clip(n_expected, _FEWEST_COLUMNS, d))
    largest = float(values[-1])
    if largest <= 0.0 or (n_useful == 0 and rank is None):
        nothing = np.zeros((d, 0))
        return nothing, problem.minimise_threshold(problem.squared_distances(nothing), problem.cone.lowest, 1e-6)[0]
    chosen = slice(None, -k - 1, -1)
    factor = vectors[:, chosen] * np.sqrt(np.maximum(values[chosen] - 0.5 * problem.alpha, 1e-2 * largest))
    squared = problem.squared_distances(factor)
    penalty = problem.alpha * float(np.sum(factor**2))
    scale, thresholds = fit_scale(problem, squared, penalty)
    return np.sqrt(scale) * factor, thresholds


def add_or_drop_directions(
    factored: Factored, place: FactorPlace, spectrum: Spectrum, tol: float, precision: float, *, shrinks: bool
) -> FactorPlace | None:
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


# ---------------------------------------------------------------------------------------------------------------------
# A model of the Hessian in the factor A of M = A A' that is cheap to invert.


@dataclass(frozen=True)
class FactorModel:
    """H[D] = 4 c D A'A + 2 (dR/dM + alpha I) D: a Sylvester equation, diagonal in the eigenvectors of A'A and dR/dM.

    The first part is the curvature of the loss for uncorrelated coordinates, c its sum; the second is that of M in A.
    Without a known dR/dM (`values` and `vectors` of dR/dM + alpha I) the second part is a multiple of the identity.
    If the rank is limited, its negative curvature is real; otherwise it is only that new columns are missing.
    """

    alpha: float
    is_limited: bool
    values: FloatArray | None = None
    vectors: FloatArray | None = None

    def inverse(self, place: FactorPlace, right: FloatArray) -> FloatArray:
        """Solve H[D] = right."""
        if right.shape[1] == 0:
            return right
        lengths, turn = np.linalg.eigh(place.factor.T @ place.factor)
        on_columns = 4.0 * place.curvature * np.maximum(lengths, 1e-4 * lengths[-1]) + 1e-12
        least = 2.0 * self.alpha + (1e-3 if self.alpha == 0.0 else 0.0)
        if self.values is None or self.vectors is None:
            scaled: FloatArray = ((right @ turn) / (on_columns + least)) @ turn.T
            return scaled
        bend = 2.0 * self.values[:, None]
        if self.is_limited:
            denominator = np.maximum(on_columns + bend, 0.1 * on_columns)
        else:
            denominator = on_columns + np.maximum(bend, 0.02 * least)
        solved: FloatArray = self.vectors @ ((self.vectors.T @ (right @ turn)) / denominator) @ turn.T
        return solved


_HISTORY = 10  # pairs of steps and changes of the gradient, each as large as the factor
_FIRST_CHECK = 5  # steps before the first full gradient, and after columns were added

# A decrement of this multiple of the tolerance is small; a smaller one proves a smaller gap, but not at a limited rank,
# where it makes the minimiser accurate.
_SMALL_DECREMENT, _SMALL_DECREMENT_AT_RANK, _SMALL_DECREMENT_FOR_NEWTON = 1e-2, 3e-3, 0.1
_SMALL_DECREMENT_ROUGHLY = 3e-2  # at a limited rank, where nothing is proven

_MOST_STEPS_IN_VAIN = 10  # in a row, without progress beyond rounding

# Projections, which steps update, are computed anew after so many steps, as their rounding errors add up.
_FRESH_EVERY = 20

# Conjugate gradients are worth a try if the gap is at most this multiple of the tolerance, or columns are few.
_NEAR_GAP, _FEW_COLUMNS = 1e4, 64

_SINGLE_DECREMENT = 1e-9  # below this, steps in single precision follow rounding errors

# A tolerance that can be reached in single precision alone.
_SINGLE_TOL = 1e-5

# Where nothing is proven, slopes in the thresholds of this share of the tolerance hardly change the steps.
_THRESHOLD_SHARE = 1e-2

Steps = tuple[tuple[FloatArray, FloatArray, float], ...]  # recent (step, change of gradient, their product)


@dataclass(frozen=True)
class _Memory:
    factored: Factored
    place: FactorPlace
    gradient: FloatArray | None  # in the factor; None if it is not known yet
    model: FactorModel
    steps: Steps = ()
    decrement: float = np.inf
    lowest: float = np.inf  # of all decrements
    n_since: int = 0  # steps since the last full gradient
    check_after: int = _FIRST_CHECK  # check after this many steps; 0 if only the decrement decides
    check_below: float = _SMALL_DECREMENT  # check once the decrement is below this multiple of the tolerance
    n_checks: int = 0
    expected: float = np.inf  # the gap that the last full gradient would prove
    n_idle: int = 0  # consecutive steps that brought nothing

    @property
    def is_idle(self) -> bool:
        return self.n_idle >= _MOST_STEPS_IN_VAIN


class LowRank(Solver):
    """L-BFGS on a factor A of M = A A', with as many columns as the optimum needs, or at most `rank`.

    The thresholds are optimised at every point, and a step is one projection and one pull back of as many columns
    as the factor has.  Without `rank` the gap is proven: with a penalty from a full gradient alone (`tangent_bound`),
    otherwise by conjugate gradients.
    """

    needs = frozenset([Trait.FACTORS])

    def __init__(
        self, problem: Problem, tol: float, rng: np.random.Generator, rank: int | None = None, *, proves: bool = True
    ) -> None:
        super().__init__(problem, tol, rng)
        self.rank = rank if rank is not None and rank < problem.cone.size else None
        self.proves = proves
        self.is_inexact = not proves and tol >= _SINGLE_TOL
        threshold_tols = (_THRESHOLD_SHARE * tol,) * 2 if self.is_inexact else (_THRESHOLD_TOL, _ROUGH_THRESHOLD_TOL)
        self.exact = Factored(problem, threshold_tols[0])
        rough = problem.rough
        self.rough = self.exact if rough is problem else Factored(rough, threshold_tols[1])

    def start(self) -> State:
        factor, thresholds = leading_factor(self.rough, self.rank)
        begun = self._begin(factor, thresholds, bound=0.0)
        if self.rank is not None or self.problem.alpha == 0.0:
            return begun
        # Moments do not know the penalty, and if an enormous difference is close, they are far too large.
        nothing = self._begin(factor[:, :0], np.ones_like(thresholds), bound=0.0)
        return nothing if begun.objective > SURPRISING * (1.0 + nothing.objective) else begun

    def resume(self, state: State) -> State:
        """Start from its leading directions; its bound is valid if the rank is limited, but not for another penalty."""
        factor = np.ascontiguousarray(psd_factor(state.matrix, cutoff=1e-7)[:, ::-1][:, : self.rank])
        bound = 0.0 if self.rank is None else state.bound
        return self._begin(factor, state.thresholds, bound)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        floor = 0.0 if last.factored is self.exact else _SINGLE_DECREMENT
        is_small = last.n_since >= 2 and last.decrement <= max(last.check_below * self.tol, floor)
        is_settled = is_small or last.is_idle or last.place.factor.shape[1] == 0
        is_due = last.n_since == last.check_after and last.check_after > 0
        return self._check(state, is_settled=is_settled) if is_settled or is_due else self._descend(state)

    def _begin(self, factor: FloatArray, thresholds: FloatArray, bound: float) -> State:
        place = self.rough.at(factor, thresholds)
        model = FactorModel(self.problem.alpha, self.rank is not None)
        at_rank = _SMALL_DECREMENT_AT_RANK if self.proves else _SMALL_DECREMENT_ROUGHLY
        below = _SMALL_DECREMENT if self.rank is None else at_rank
        if self.rank is None and self.proves and not self._proves:  # by Newton's method, which goes on from there
            below = _SMALL_DECREMENT_FOR_NEWTON
        memory = _Memory(self.rough, place, self.rough.gradient(place), model, check_below=below)
        return _state(memory, bound)

    def _descend(self, state: State) -> State:
        last: _Memory = state.memory
        before = last.factored.gradient(last.place) if last.gradient is None else last.gradient
        direction, steps = _direction(last, before)
        place = last.factored.search(last.place, direction)
        if not np.isfinite(place.value):
            return replace(state, stuck=True)  # with flips, a level may be left with no width between its thresholds
        if (last.n_since + 1) % _FRESH_EVERY == 0:
            place = last.factored.at(place.factor, place.thresholds)
        gradient = last.factored.gradient(place)
        step, change = place.factor - last.place.factor, gradient - before
        product = float(np.sum(step * change))
        has_failed = not np.any(step)
        if has_failed:
            steps = ()
        elif product > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            steps = (*steps, (step, change, product))[-_HISTORY:]
        # Below the rounding error of the value, a smaller decrement is progress too.
        decrement = -0.5 * float(np.sum(direction * before))
        falls = place.value < last.place.value - 1e-15 * abs(place.value) or decrement < 0.8 * last.lowest
        memory = replace(
            last,
            place=place,
            gradient=gradient,
            steps=steps,
            decrement=decrement,
            lowest=min(decrement, last.lowest),
            n_since=last.n_since + 1,
            n_idle=0 if falls and not has_failed else last.n_idle + (1 if last.steps else _MOST_STEPS_IN_VAIN),
        )
        return _state(memory, state.bound)

    def _check(self, state: State, *, is_settled: bool) -> State:
        """Take a full gradient: it proves a bound, renews the model, and shows which columns are missing."""
        last: _Memory = state.memory
        alpha, factored = self.problem.alpha, last.factored
        if is_settled and self.rank is not None and not self._proves and self._is_precise(last):
            return self._end(last, state.bound)
        place = last.place if self.is_inexact else factored.settled(last.place, 1e-15)
        spectrum = Spectrum.of(factored, place)
        expected = spectrum.violation(alpha) * place.trace
        model = replace(last.model, values=spectrum.values + alpha, vectors=spectrum.vectors)
        memory = replace(
            last, place=place, model=model, n_since=0, n_checks=last.n_checks + 1, n_idle=0, expected=expected
        )
        bound = state.bound
        # In double precision a bound takes no pass, and an interrupt may come; in single precision it takes one.
        is_exact, ends = factored is self.exact, is_settled and self.rank is not None
        if expected <= self.tol or last.is_idle or ends or is_exact:
            bound = max(bound, self._bound(memory, spectrum))
            if place.value - bound <= self.tol:
                return self._in_double(memory, bound)
        if self.rank is None:
            # Smaller eigenvalues of a gradient in single precision may be rounding errors.
            precision = 0.0 if is_exact else 1e-6 / np.sqrt(self.problem.cone.size)
            shrinks = last.n_checks == 0
            changed = add_or_drop_directions(factored, place, spectrum, self.tol, precision, shrinks=shrinks)
            if changed is not None:
                if is_settled:
                    memory = self._stricter(memory, expected)
                return self._with_columns(memory, changed, bound)
        if not is_settled:
            memory = replace(memory, check_after=3 * last.check_after)
            return _state(memory, bound)
        return self._finish(memory, spectrum, bound, is_idle=last.is_idle)

    def _bound(self, memory: _Memory, spectrum: Spectrum) -> float:
        """The bound that the gradient proves; in double precision where rounding alone exceeds the tolerance."""
        place = memory.place
        if not self._proves:
            return 0.0
        if memory.factored is not self.exact:
            spectrum = spectrum.measured(self.exact, place, self.rng)
            if spectrum.violation(self.problem.alpha) * place.trace > self.tol:
                spectrum = Spectrum.of(self.exact, place)
        return tangent_bound(self.problem, place, spectrum.least)

    def _with_columns(self, memory: _Memory, changed: FactorPlace, bound: float) -> State:
        """Continue with more columns; recent steps are still right for the old ones."""
        more = changed.factor.shape[1] - memory.place.factor.shape[1]
        steps = (
            () if memory.n_checks == 1 else tuple((_grown(s, more), _grown(y, more), sy) for s, y, sy in memory.steps)
        )
        gradient = memory.factored.gradient(changed)
        return _state(replace(memory, place=changed, gradient=gradient, steps=steps, check_after=_FIRST_CHECK), bound)

    def _finish(self, memory: _Memory, spectrum: Spectrum, bound: float, *, is_idle: bool) -> State:
        """Nothing is left to do at this precision: end, or prove what is left, or continue more precisely."""
        is_rough = memory.factored is not self.exact
        if self.rank is not None or not self.proves:
            return self._end(memory, bound) if self._is_precise(memory) else self._in_double(memory, bound)
        if is_rough and (is_idle or self.problem.alpha == 0.0 or memory.decrement <= _SINGLE_DECREMENT):
            if self._proves:
                return self._in_double(replace(self._stricter(memory, memory.expected), check_after=0), bound)
            is_ready = not is_idle and memory.decrement <= memory.check_below * self.tol
            return self._in_double(replace(memory, n_since=2 if is_ready else 0), bound)
        is_near = memory.expected <= _NEAR_GAP * self.tol or len(spectrum.values) <= _FEW_COLUMNS
        # A full gradient alone proves a gap down to about the root of the rounding error.
        if not is_rough and is_near and (is_idle or not has_tangents(self.problem)):
            place = memory.place
            gradient = spectrum.gradient + self.problem.alpha * np.eye(len(spectrum.gradient))
            point = Point(self.problem, place.factor @ place.factor.T, place.thresholds, place.evaluation, gradient)
            bound = max(bound, prove_bound(point, self.tol))
        gap = memory.expected if has_tangents(self.problem) else memory.place.value - bound
        memory = replace(self._stricter(memory, gap), check_after=0)
        return replace(_state(memory, bound), stuck=is_idle)

    def _stricter(self, memory: _Memory, gap: float) -> _Memory:
        """Check again when the decrement promises a small enough gap, which falls about as its root."""
        wanted = float(np.clip(0.5 * self.tol / max(gap, TINY), 5e-3, 0.5)) ** 1.7
        return replace(memory, check_below=wanted * min(memory.check_below, memory.decrement / self.tol))

    @property
    def _proves(self) -> bool:
        """Whether a full gradient proves a bound."""
        return self.proves and has_tangents(self.problem)

    def _is_precise(self, memory: _Memory) -> bool:
        return memory.factored is self.exact or self.tol >= _SINGLE_TOL

    def _end(self, memory: _Memory, bound: float) -> State:
        """End where nothing more can be proven."""
        memory = self._exactly(memory)
        return replace(_state(memory, bound), stuck=True, squared=memory.place.squared)

    def _in_double(self, memory: _Memory, bound: float) -> State:
        """Continue in double precision, or end there."""
        if memory.factored is self.exact:
            return _state(memory, bound)
        memory = self._exactly(memory)
        if memory.place.value - bound <= self.tol:
            return replace(_state(memory, bound), squared=memory.place.squared)
        return _state(replace(memory, gradient=None), bound)

    def _exactly(self, memory: _Memory) -> _Memory:
        """The same place in double precision."""
        place = self.exact.at(memory.place.factor, memory.place.thresholds, None if self.is_inexact else 1e-15)
        return replace(memory, factored=self.exact, place=place)


def _direction(memory: _Memory, gradient: FloatArray) -> tuple[FloatArray, Steps]:
    """The preconditioned L-BFGS direction, and the steps that it used."""
    inverse = partial(memory.model.inverse, memory.place)
    direction = _two_loop(gradient, memory.steps, inverse)
    if float(np.sum(direction * gradient)) >= 0.0:
        return -inverse(gradient), ()
    return direction, memory.steps


def _two_loop(gradient: FloatArray, steps: Steps, inverse: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """The L-BFGS direction by Nocedal's two-loop recursion, from an approximate inverse of the Hessian."""
    direction = -gradient
    weights = []
    for step, change, product in reversed(steps):
        weights.append(float(np.sum(step * direction)) / product)
        direction = direction - weights[-1] * change
    direction = inverse(direction)
    if steps:
        _, change, product = steps[-1]
        direction = direction * (product / float(np.sum(change * inverse(change))))
    for (step, change, product), weight in zip(steps, reversed(weights), strict=True):
        direction = direction + (weight - float(np.sum(change * direction)) / product) * step
    return direction


def _grown(matrix: FloatArray, more: int) -> FloatArray:
    return np.hstack([matrix, np.zeros((len(matrix), more))])


def _state(memory: _Memory, bound: float) -> State:
    place = memory.place
    matrix, least_margin = place.factor @ place.factor.T, place.evaluation.least_margin
    return State(matrix, place.thresholds, place.value, bound, least_margin, memory, factor=place.factor)
