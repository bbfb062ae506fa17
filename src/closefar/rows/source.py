"""The interface of row sources: rows as a linear operator on symmetric matrices, wherever they are stored.

A solver holds parameters of the size of M and requests sums over rows.  Arrays of one number
per row stay with the source: callers receive handles, which they can add, multiply by numbers and
pass back; for anything else they pass a function that the source calls.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from array_api_compat import array_namespace

from closefar import packed
from closefar.arrays import Array, FloatArray, IndexArray, as_float64, is_on_gpu, like, to_numpy
from closefar.noise import Noise

# ---------------------------------------------------------------------------------------------------------------------
# Unit-free coordinates of the solver, in which the rows, or at least their columns, have unit second moment.
#
# Under z -> Uz the optimum maps to U^-T M U^-1 (section "Invariance to Changes in Unit of Input"), so the solver
# may choose its units.


# Rows this many times as long as a typical row are in another unit, or wrong.
ENORMOUS = 1e4

_WELL_CONDITIONED = 1e6  # a map that loses at most six digits of sixteen


@dataclass(frozen=True)
class Coordinates:
    """The map ``w = transform' z + offset`` from rows to unit-free coordinates.

    With a learned origin, `offset` centres the rows and a constant 1 is appended to w;
    otherwise it is None.  `null_directions` are the combinations of columns, each divided by its
    root mean square (with an origin, its standard deviation), that do not vary; `scales` are
    those root mean squares.  `enormous` are the numbers of rows that are more than `ENORMOUS`
    times as long as a typical row.
    """

    transform: FloatArray
    offset: FloatArray | None
    null_directions: FloatArray
    scales: FloatArray
    enormous: IndexArray = field(default_factory=lambda: np.arange(0))

    @property
    def has_constant(self) -> bool:
        return self.offset is not None

    @property
    def n_directions(self) -> int:
        """The length of w, which excludes directions of z that do not vary."""
        return int(self.transform.shape[1]) + int(self.has_constant)

    @property
    def condition(self) -> float:
        """The largest root mean square of the scaled columns along a direction, divided by the smallest."""
        lengths = np.linalg.norm(self.scales[:, None] * self.transform, axis=0)
        return float(lengths.max(initial=1.0) / lengths.min(initial=1.0))

    def apply(self, block: Array) -> Array:
        """Map rows, each a column of the block, to coordinates."""
        block = as_float64(block)
        mapped = like(block, self.transform).T @ block
        if self.offset is None:
            return mapped
        xp = array_namespace(block)
        return xp.concat([mapped + like(block, self.offset)[:, None], xp.ones_like(mapped[:1, :])])

    def to_units(self, factor: FloatArray) -> FloatArray:
        """Map a factor back to the user's units; with a learned origin, for (z, 1)."""
        if self.offset is None:
            return self.transform @ factor
        return np.vstack([self.transform @ factor[:-1], self.offset @ factor[:-1] + factor[-1]])

    def from_units(self, factor: FloatArray) -> FloatArray | None:
        """Map a factor in the user's units to coordinates; None if the rows are needed to do that accurately."""
        varies = np.any(self.transform != 0.0, axis=1)
        scaled = self.scales[varies, None] * self.transform[varies]
        if self.has_constant or scaled.shape[0] != scaled.shape[1] or np.linalg.cond(scaled, 1) > _WELL_CONDITIONED:
            return None
        return np.asarray(np.linalg.solve(scaled, self.scales[varies, None] * factor[varies]), dtype=np.float64)


Part = TypeVar("Part")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class HasPull(Protocol):
    """A result for some rows that includes one coefficient per row."""

    @property
    def margin_gradient(self) -> Array: ...


Pulling = TypeVar("Pulling", bound=HasPull)

# Rows per part of arrays with one number per row: in cache or, on a GPU, few parts, each of which is waited for.
PART_ROWS, GPU_PART_ROWS = 1 << 16, 1 << 22


class Sweeper(Protocol[Result_co]):
    """The function that a pass over the rows evaluates: a likelihood."""

    row_arrays: tuple[Array, ...]

    def without_rows(self) -> Any: ...

    def loss_and_gradient(
        self, source: RowSource, matrix: FloatArray, thresholds: FloatArray
    ) -> tuple[Result_co, FloatArray]: ...

    def evaluate(self, source: RowSource, squared: Array, thresholds: FloatArray, order: int) -> Result_co: ...

    def best_thresholds(
        self, source: RowSource, squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Result_co]: ...


class MarginSums(NamedTuple):
    """The sums of a fused pass: the loss, its first and second derivative in tau, the least margin, and dR/dM."""

    loss: float
    slope: float
    curvature: float
    least_margin: float
    gradient: FloatArray


class MarginTerms(NamedTuple):
    """The loss, its first and second derivative in tau, the least margin, and derivatives in the squared distances."""

    loss: float
    slope: float
    curvature: float
    least_margin: float
    margin_gradient: Array
    second: Array | None


class RowSource(ABC):
    """Rows that map a symmetric S to <F_i, S>; for a difference z_i, that is z_i' S z_i with F_i = z_i z_i'.

    A source must implement `quadratic_forms` and its adjoint `outer`; everything else follows from
    them, and a source overrides what it can do faster.  Input matrices and resulting sums are NumPy
    arrays.

    Parameters
    ----------
    n_rows, n_columns : int
        The number of rows, and the number of columns of S.

    Attributes
    ----------
    can_project : bool
        Whether rows are differences whose projections A'z_i can be kept (`forward`, `backward`, `inner`).
    is_remote : bool
        Whether each operation is a round trip to other processes, so that a few large ones are better than many.
    is_fused : bool
        Whether it has `margin_pass` and `curvature_pass`, so that these are faster than other operations.
    condition : float
        By how much coordinates amplify the rounding errors of sums.
    """

    can_project: bool = False
    is_remote: bool = False
    is_fused: bool = False
    condition: float = 1.0

    def __init__(self, n_rows: int, n_columns: int) -> None:
        self.n_rows = n_rows
        self.n_columns = n_columns

    @property
    def rough(self) -> RowSource:
        """The same rows in a precision that is enough to approach an optimum, if that is faster; or the rows."""
        return self

    @property
    def has_kernels(self) -> bool:
        """Whether it has `margin_terms`, so that all rows are better evaluated at once than block by block."""
        return False

    @property
    def can_fuse(self) -> bool:
        """Whether the rows that are `rough` are probably fused."""
        return False

    @property
    def engine(self) -> str:
        """What computes the passes over the rows, and where, in words."""
        return "NumPy"

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_columns

    @property
    def n_projected(self) -> int:
        """How many rows the projections of `forward` have."""
        return self.n_rows

    @property
    def ndim(self) -> int:
        return 2

    @abstractmethod
    def quadratic_forms(self, matrix: FloatArray) -> Array:
        """Return <F_i, S> for each row, for a symmetric S of any signature."""

    @abstractmethod
    def outer(self, coefficients: Array) -> FloatArray:
        """Return sum_i c_i F_i."""

    @abstractmethod
    def take_rows(self, indices: IndexArray) -> RowSource:
        """Return the rows at these indices."""

    @abstractmethod
    def in_coordinates(self, coordinates: Coordinates) -> RowSource:
        """Return the same rows in other coordinates."""

    @abstractmethod
    def row_array(self, values: FloatArray) -> Array:
        """Return a handle for these numbers, one per row."""

    def row_numbers(self) -> Array:
        """Return a handle for the number of each row, from 0."""
        return self.row_array(np.arange(self.n_rows, dtype=np.float64))

    # Arrays of one number per row.

    def gather(self, array: Array) -> FloatArray:
        """Return the numbers behind a handle."""
        return to_numpy(array)

    def pick(self, array: Array, indices: IndexArray) -> Array:
        """Return the numbers of some rows."""
        return array_namespace(array).take(array, like(array, indices))

    def find(self, condition: Callable[..., Array], *arrays: Array) -> IndexArray:
        """Return the numbers of the rows for which a function of these arrays is true, in their order."""
        found: IndexArray = np.flatnonzero(self.gather(self.map(condition, *arrays)))
        return found

    def total(self, array: Array) -> float:
        return float(array_namespace(array).sum(array))

    def extremes(self, array: Array) -> tuple[float, float]:
        xp = array_namespace(array)
        lowest, highest = to_numpy(xp.stack([xp.min(array), xp.max(array)])).tolist()
        return lowest, highest

    def parts(self, function: Callable[..., Part], *arrays: Array) -> list[Part]:
        """Call a function with one part of these arrays after another, where they are stored."""
        size = GPU_PART_ROWS if arrays and is_on_gpu(arrays[0]) else PART_ROWS
        return [function(*(array[where] for array in arrays)) for where in slices(self.n_rows, size)]

    def join(self, arrays: list[Array]) -> Array:
        """Return the array that consists of these parts."""
        return concatenated(arrays)

    def map(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """Apply a function to the numbers of each row."""
        return self.join(self.parts(function, *arrays))

    def product(self, left: Array, right: Array) -> Array:
        """Return the product of two numbers for each row."""
        return self.map(operator.mul, left, right)

    def dot(self, left: Array, right: Array) -> float:
        """Return the sum of those products."""
        return sum(self.parts(_dot, left, right))

    def dots(self, *pairs: tuple[Array, Array]) -> list[float]:
        """Return several such sums, in one round trip."""
        return [self.dot(left, right) for left, right in pairs]

    # Projections: k numbers per row, as a handle that callers may add and multiply by numbers, like row arrays.

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections A'z_i, from which everything about M = A A' can be computed without another pass."""
        raise NotImplementedError(f"{type(self).__name__} has no projections.")

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        """Return sum_i c_i z_i p_i', one column for each of the k numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no projections.")

    def inner(self, left: Array, right: Array) -> Array:
        """Return the row array p_i'q_i of two projections: for p = q = A'z it is z'AA'z."""
        raise NotImplementedError(f"{type(self).__name__} has no projections.")

    # Derived from the operator.

    def squared_distances(self, factor: FloatArray) -> Array:
        """Return <F_i, A A'> for each row."""
        return self.quadratic_forms(factor @ factor.T)

    def sweep(
        self, matrix: FloatArray, function: Callable[..., Pulling], *arrays: Array
    ) -> tuple[list[Pulling], FloatArray]:
        """Call a function of <F_i, S> and of these arrays; return its results, in parts, and sum_i g_i F_i.

        g_i are the numbers in `margin_gradient` of the results, one per row.
        """
        parts = self.parts(function, self.quadratic_forms(matrix), *arrays)
        return parts, self.outer(self.join([part.margin_gradient for part in parts]))

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return sum_i c_i q_i q_i' for q_i = (<F_i, v v'> for each column v of the basis), and columns of sums.

        The first column is sum_i c_i q_i, the others sum_i b_i q_i for each cross b.
        """
        measured = [self.quadratic_forms(np.outer(vector, vector)) for vector in basis.T]
        columns = [[self.dot(q, each) for each in (curvature, *crosses)] for q in measured]
        return self._gram(measured, curvature), np.array(columns)

    def mixed_moments(self, curvature: Array, basis: FloatArray) -> FloatArray | None:
        """Return sum_i c_i <F_i, v w'>^2 for columns v, w of the basis; None if F_i has rank one.

        Then they are those of `rotated_moments`.
        """
        return None

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], *, rough: bool = False) -> FloatArray:
        """Return sum_i f_i f_i' for f_i = (root_i times F_i, packed, and border_i).

        If it may be `rough`, single precision is used where that is faster.
        """
        size = packed.packed_size(self.n_columns)
        measured = [self.quadratic_forms(packed.unpack(entry, self.n_columns)) for entry in np.eye(size)]
        features = [self.product(q, root) for q in measured] + list(border)
        return self._gram(features, None)

    def grouped_outers(self, coefficients: Array, groups: Array, n_groups: int) -> FloatArray:
        """Return the sum of c_i F_i over the rows of each group, packed: an array of shape (n_groups, d (d + 1) / 2).

        `groups` is a handle, the number of the group of each row; rows of higher numbers are in none.
        """
        found = (
            self.outer(self.map(partial(_of_group, group=group), coefficients, groups)) for group in range(n_groups)
        )
        return np.array([packed.pack(each) for each in found]).reshape(n_groups, packed.packed_size(self.n_columns))

    def take(self, indices: IndexArray, *arrays: Array) -> tuple[RowSource, list[Array]]:
        """Return the rows at these indices, and their numbers in these arrays, in one round trip."""
        return self.take_rows(indices), [self.pick(array, indices) for array in arrays]

    # Operations that a source may replace altogether: the pass of the solvers, and the search for thresholds.

    def loss_and_gradient(
        self, likelihood: Sweeper[Result], matrix: FloatArray, thresholds: FloatArray
    ) -> tuple[Result, FloatArray]:
        """Evaluate a metric and dR/dM in a forward, a pointwise and a backward step, which a kernel may fuse."""
        return likelihood.loss_and_gradient(self, matrix, thresholds)

    def evaluate(self, likelihood: Sweeper[Result], squared: Array, thresholds: FloatArray, order: int) -> Result:
        """Evaluate a likelihood at known squared distances, with derivatives up to this order."""
        return likelihood.evaluate(self, squared, thresholds, order)

    def best_thresholds(
        self, likelihood: Sweeper[Result], squared: Array, start: FloatArray, least: FloatArray, tol: float
    ) -> tuple[FloatArray, Result]:
        """Minimise over the thresholds at known squared distances; one round trip on a cluster."""
        return likelihood.best_thresholds(self, squared, start, least, tol)

    # Fused passes, which some sources have.

    def margin_terms(
        self, noise: Noise, squared: Array, signs: Array, weights: Array, threshold: float, order: int
    ) -> MarginTerms | None:
        """Return the terms w_i phi(s_i (q_i - tau)) at squared distances q; None if that can't be fused."""
        return None

    def margin_pass(
        self, noise: Noise, signs: Array, weights: Array, matrix: FloatArray, threshold: float
    ) -> MarginSums | None:
        """Return the sums over w_i phi(s_i (<F_i, S> - tau)) or None if that can't be fused."""
        return None

    def curvature_pass(self, curvature: Array, matrix: FloatArray, shift: float) -> tuple[FloatArray, float] | None:
        """Return sum_i c_i (<F_i, S> - t) F_i, and minus the same sum without F_i; None if that can't be fused."""
        return None

    def _gram(self, arrays: list[Array], weights: Array | None) -> FloatArray:
        weighted = arrays if weights is None else [self.product(array, weights) for array in arrays]
        return np.array([[self.dot(left, right) for right in arrays] for left in weighted])


def slices(n: int, size: int) -> Iterator[slice]:
    """Slices of `size` rows each; if there are no rows, one empty slice."""
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))


def concatenated(arrays: list[Array]) -> Array:
    """The parts of an array joined along its last axis."""
    return arrays[0] if len(arrays) == 1 else array_namespace(arrays[0]).concat(arrays, axis=-1)


def _of_group(coefficients: Array, groups: Array, group: int) -> Array:
    return coefficients * as_float64(groups == group)


def _dot(left: Array, right: Array) -> float:
    return float(array_namespace(left).vecdot(left, right))
