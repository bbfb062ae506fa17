"""Whether the optimum lies at infinity: a direction in which M and tau can grow without bound at no cost.

The risk decreases for ever along (D, t), with D positive semidefinite and t >= 0, if
l (z'Dz - t) >= 0 for every label l, and > 0 for some.  Labels that are still uncertain at the
solution must have z'Dz = t, which leaves few candidate directions, usually none.  With t = 0 they
are the directions in which no close pair differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace

from closefar import packed
from closefar.arrays import TINY, Array, FloatArray, as_float64, to_numpy
from closefar.rows import BlockRows
from closefar.solve.loop import Run, Solver, State, Watch
from closefar.solve.newton import Newton
from closefar.solve.problem import Cone, Problem

# ---------------------------------------------------------------------------------------------------------------------
# Separable labels: some metric gets every label right, so the likelihood has no finite maximum.


# The gap of first-order steps, as a share of the penalty and of the objective.
_SHARE, _RELATIVE = 1e-3, 0.01

# Newton steps that gain less than the first share of the objective hardly change which labels are right; they go on to
# the second if all are.
_HARDLY_GAINS, _GAINS_NOTHING = 1e-5, 1e-10


def max_margin(
    kind: type[Solver], problem: Problem, separated: Run, rng: np.random.Generator, max_iter: int, watch: Watch
) -> Run:
    """Replace an arbitrary separating metric by one with a wide margin.

    As the penalty falls to zero, its solution tends to the direction of largest margin; the first
    penalty whose solution separates the labels is used.
    """
    alpha = 0.01 * _largest_penalty(problem)
    cone = Cone(problem.cone.size, problem.likelihood.least)
    state: State | None = None
    found = separated
    for _ in range(10):
        path = _follow(kind, replace(problem, alpha=alpha, cone=cone), state, rng, max_iter, watch)
        state = path.state
        found = replace(found, n_iter=found.n_iter + path.n_iter)
        if path.ending.is_early:
            return replace(found, ending=path.ending)
        if state.least_margin > 0.0:
            return replace(found, state=replace(state, bound=0.0))
        alpha *= 0.1
    return found


def _follow(
    kind: type[Solver], problem: Problem, state: State | None, rng: np.random.Generator, max_iter: int, watch: Watch
) -> Run:
    """Minimise with a penalty, from the solution of a larger one; roughly if the labels are then not separated."""
    if not issubclass(kind, Newton):  # whose last digits take long
        solver = kind(problem, _SHARE * problem.alpha, rng)
        begin = partial(_begin, solver, state)
        return solver.run(begin, tol=solver.tol, max_iter=max_iter, watch=watch, relative_tol=_RELATIVE)
    newton = Newton(problem, _HARDLY_GAINS, rng)
    newton.proves = False
    path = newton.run(newton.beginning(state), tol=0.0, max_iter=max_iter, watch=watch)
    if path.ending.is_early or path.state.least_margin <= 0.0:
        return path
    newton.tol = _GAINS_NOTHING
    rest = newton.run(partial(newton.resume, path.state), tol=0.0, max_iter=max_iter, watch=watch)
    return replace(rest, n_iter=path.n_iter + rest.n_iter)


def _begin(solver: Solver, state: State | None) -> State:
    """Begin with the solution of the last penalty; the tolerance is a share of the objective there."""
    begun = solver.beginning(state)()
    solver.tol = max(solver.tol, 0.5 * _RELATIVE * begun.objective)
    return begun


def _largest_penalty(problem: Problem) -> float:
    """The alpha from which on M = 0 is optimal."""
    nothing = problem.squared_distances(np.zeros((problem.cone.size, 0)))
    _, evaluation = problem.minimise_threshold(nothing, np.zeros_like(problem.cone.least))
    gradient = problem.outer(evaluation.margin_gradient)[problem.cone.core, problem.cone.core]
    return max(-float(np.linalg.eigvalsh(gradient)[0]), 1e-8)


# ---------------------------------------------------------------------------------------------------------------------
# Directions in which the optimum may lie at infinity.


# With more parameters, the search around a threshold takes longer than the fit.
_MOST_SEARCHED_PARAMETERS = 600

# With more candidate directions, each of up to twenty linear programs takes longer than a fit: 0.3 s with 400 of them.
_MOST_IN_PROGRAM = 64

# Labels with 4 p (1 - p) above this count as uncertain; those of a rare kind still are when a fit has converged.
_IN_DOUBT = (0.5, 0.05, 0.005, 0.0005)

_NULL_EIGENVALUE = 1e-11  # an eigenvalue of a Gram matrix of unit vectors, relative to the largest
_ZERO_CHANGE = 1e-5  # a change of a margin, relative to the largest
_MOST_NULL_ROUNDS = 20  # linear programs, each with the constraints that the last one violated

_PER_DIMENSION = 4  # rows, which usually prove that a null space is empty
_LOOKED_AT = 16  # times as many rows, among which these are found


def find_recession(rows: BlockRows, signs: Array, in_doubt: Array) -> tuple[FloatArray, float] | None:
    """Return (D, t), or None if there is none or the search would take too long.

    `in_doubt` is 4 p (1 - p) of each label at the solution; this and the signs are handles of the rows.
    """
    n_parameters = packed.packed_size(rows.n_columns) + 1
    searches = n_parameters <= _MOST_SEARCHED_PARAMETERS
    sample = _Sample.of(rows, signs, in_doubt, n_parameters if searches else rows.n_columns)
    free = _free_directions(rows, sample, signs)
    if free is not None or not searches:
        return None if free is None else (free, 0.0)
    for level in _IN_DOUBT:
        basis = _null_space(rows, sample, partial(_is_in_doubt, level=level), in_doubt, of_forms=True)
        if basis.shape[1] == 0:
            return None
        if basis.shape[1] > _MOST_IN_PROGRAM:
            continue
        found = _around_threshold(rows, signs, basis)
        if found is not None:
            return found
    return None


def find_free_directions(rows: BlockRows, signs: Array) -> FloatArray | None:
    """Return the projection on the directions in which differences with a positive sign alone vary, if there are any.

    Signs are positive for pairs of the last level, and for the longer legs of comparisons.
    """
    return _free_directions(rows, _Sample.of(rows, signs, signs, rows.n_columns), signs)


def _free_directions(rows: BlockRows, sample: _Sample, signs: Array) -> FloatArray | None:
    free = _null_space(rows, sample, _is_close, signs, of_forms=False)
    if free.shape[1] == 0:
        return None
    along, lengths = rows.squared_distances(free), rows.squared_distances(np.eye(len(free)))
    return free @ free.T if rows.extremes(along - _ZERO_CHANGE**2 * lengths)[1] > 0.0 else None


class _Sample(NamedTuple):
    """Some rows, spread evenly over all; each is a column."""

    columns: FloatArray
    signs: FloatArray
    in_doubt: FloatArray
    is_all: bool

    @classmethod
    def of(cls, rows: BlockRows, signs: Array, in_doubt: Array, size: int) -> _Sample:
        step = max(rows.n_rows // (_LOOKED_AT * _PER_DIMENSION * size), 1)
        indices = np.arange(0, rows.n_rows, step)
        part, (picked, doubted) = rows.take(indices, signs, in_doubt)
        return cls(_columns(part), to_numpy(picked), to_numpy(doubted), is_all=step == 1)


def _is_close(signs: Array) -> Array:
    return signs < 0


def _is_in_doubt(in_doubt: Array, level: float) -> Array:
    return in_doubt >= level


def _null_space(
    rows: BlockRows, sample: _Sample, condition: Callable[[Array], Array], array: Array, *, of_forms: bool
) -> FloatArray:
    """The orthogonal complement of the features of the chosen rows; a few rows often prove that it is empty.

    Features are the rows, or those of forms: the derivative of each margin in (packed M, tau).
    """
    size = packed.packed_size(rows.n_columns) + 1 if of_forms else rows.n_columns
    most = _PER_DIMENSION * size
    few = sample.columns[:, condition(sample.in_doubt if of_forms else sample.signs)]
    if few.shape[1] < most and not sample.is_all:  # rows of a rare kind
        indices = rows.find(condition, array)
        few = _columns(rows.take_rows(indices[:: max(len(indices) // most, 1)]))
    features = _features(few[:, :: max(few.shape[1] // most, 1)], of_forms=of_forms)
    if _has_full_rank(features.T @ features):
        return np.zeros((size, 0))
    chosen = rows.map(lambda values: as_float64(condition(values)), array)
    lengths = rows.squared_distances(np.eye(rows.n_columns))
    if of_forms:
        root = rows.map(_over_feature, chosen, lengths)
        gram = rows.sum_of_squares(root, (-root,))
    else:
        gram = rows.outer(rows.map(_divided, chosen, lengths))
    if _has_full_rank(gram):
        return np.zeros((size, 0))
    values, vectors = np.linalg.eigh(gram)
    return vectors[:, values <= _NULL_EIGENVALUE * max(values[-1], 1.0)]


def _has_full_rank(gram: FloatArray) -> bool:
    """Whether it clearly has full rank, by a Cholesky factorisation, ten times as fast as eigenvalues."""
    try:
        np.linalg.cholesky(gram - _NULL_EIGENVALUE * max(float(np.trace(gram)), 1.0) * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return False
    return True


def _columns(rows: BlockRows) -> FloatArray:
    return to_numpy(rows.read(slice(0, rows.n_rows)))


def _features(columns: FloatArray, *, of_forms: bool) -> FloatArray:
    """The features of each row, scaled to length one; zero rows stay zero."""
    features = packed.margin_gradients(columns) if of_forms else columns.T
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0.0, lengths, 1.0)


def _divided(values: Array, lengths: Array) -> Array:
    return values / array_namespace(lengths).clip(lengths, TINY, None)


def _over_feature(values: Array, lengths: Array) -> Array:
    """Divided by the length of (packed zz', -1), which is that of (|z|^2, 1)."""
    return values / array_namespace(lengths).sqrt(lengths * lengths + 1.0)


def _changes(rows: BlockRows, signs: Array, basis: FloatArray) -> FloatArray:
    """By how much each direction of the basis changes the margin of each row, times its sign; features have length one.

    An array of shape (n, number of directions).
    """
    lengths, found = rows.squared_distances(np.eye(rows.n_columns)), []
    for direction in basis.T:
        matrix, threshold = packed.split(direction, rows.n_columns)
        moved = rows.forms(matrix) - float(threshold[0])
        found.append(rows.gather(rows.product(rows.map(_over_feature, moved, lengths), signs)))
    return np.column_stack(found)


def _around_threshold(rows: BlockRows, signs: Array, basis: FloatArray) -> tuple[FloatArray, float] | None:
    """(D, t) by a linear program over the basis that adds violated constraints: labels, and eigenvectors of D."""
    from scipy.optimize import linprog  # metrics are loaded and applied without SciPy

    d = rows.n_columns
    changes = _changes(rows, signs, basis)
    gain = changes.sum(axis=0)
    constraints = [basis[-1], *(packed.form_gradients(np.eye(d)) @ basis[:-1])]
    for _ in range(_MOST_NULL_ROUNDS):
        program = linprog(-gain, A_ub=-np.array(constraints), b_ub=np.zeros(len(constraints)), bounds=(-1.0, 1.0))
        if program.x is None or -program.fun <= _ZERO_CHANGE * np.abs(gain).sum():
            return None
        matrix, threshold = packed.split(basis @ program.x, d)
        values, vectors = np.linalg.eigh(matrix)
        inside = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if _is_recession(changes, basis, packed.join(inside, threshold)):
            return inside, float(threshold[0])
        objecting = changes @ program.x
        worst = np.argsort(objecting)[: 10 + 2 * basis.shape[1]]
        constraints += list(packed.form_gradients(vectors[:, values < 0.0].T) @ basis[:-1])
        constraints += list(changes[worst[objecting[worst] < 0.0]])
    return None


def _is_recession(changes: FloatArray, basis: FloatArray, direction: FloatArray) -> bool:
    """Whether a direction contradicts no label and is, up to rounding, within the basis."""
    coefficients, size = basis.T @ direction, float(np.linalg.norm(direction))
    agreed = changes @ coefficients
    largest = float(agreed.max(initial=0.0))
    is_within = float(np.linalg.norm(direction - basis @ coefficients)) <= _ZERO_CHANGE * size
    return is_within and largest > 1e-3 * size and float(agreed.min()) >= -_ZERO_CHANGE * largest
