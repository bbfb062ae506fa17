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
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

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


# ---------------------------------------------------------------------------------------------------------------------
# What a function finds for rows, part by part: sums over them, and numbers for each that stay where the rows are.


Part = TypeVar("Part")

# Rows per part of arrays with one number per row: in cache or, on a GPU, few parts, each of which is waited for.
PART_ROWS, GPU_PART_ROWS = 1 << 16, 1 << 22


class Terms(NamedTuple):
    """What a `RowFunction` finds for some rows.

    Attributes
    ----------
    sums : array
        Sums over these rows.
    least : float
        The least of some number of each row.
    pull : array, optional
        The coefficient of F_i of each row, for the sum of a sweep.
    arrays : tuple of arrays
        Numbers of each row to keep.
    forms : array, optional
        The forms of each row, if a sweep had all of them at once.
    """

    sums: FloatArray
    least: float = np.inf
    pull: Array = None
    arrays: tuple[Array, ...] = ()
    forms: Array = None


class KernelCall(NamedTuple):
    """A function as kernels know it: the loss of judgements whose answers are these intervals, or a change of it.

    Its arrays are the codes of answers, numbers from 0, and the weights.  Its sums are those of the loss and of its
    derivatives in the ends of intervals, by code.  If all intervals have the same single end t, as those of close and
    far, codes do not matter.  Without a noise it is w (q - t), its only array w, and its only sum has a negative sign.
    """

    noise: Noise | None
    low: FloatArray
    up: FloatArray
    order: int = 1

    @property
    def threshold(self) -> float | None:
        """The end of two intervals that share it, below and above; None for others."""
        is_split = len(self.low) == 2 and self.low[0] == -np.inf and self.up[1] == np.inf and self.up[0] == self.low[1]
        return float(self.up[0]) if is_split else None


class RowFunction(Protocol):
    """A function of one signed sum of squared distances per row, and of arrays with a number per row.

    It travels to where rows are, so it holds no such array itself.
    """

    @property
    def kernel(self) -> KernelCall | None:
        """The same for a kernel, if there are kernels for it."""

    def __call__(self, forms: Array, *arrays: Array) -> Terms: ...


class Joined:
    """The terms of parts of the rows as those of all of them.

    Arrays of NumPy are written into those of all rows at once: joining would hold all numbers twice, which would be
    most of the memory of a fit to very many judgements.
    """

    def __init__(self, n_rows: int, *, pulls: bool = True) -> None:
        self._n_rows = n_rows
        self._pulls = pulls  # whether to keep what is pulled
        self._sums: list[FloatArray] = []
        self._least = np.inf
        self._arrays: list[Array] = []  # of all rows, or the parts of each
        self._parts: list[list[Array]] = []

    def add(self, where: slice, part: Terms) -> Terms:
        """Add the terms of these rows, and return them."""
        self._sums.append(part.sums)
        self._least = min(self._least, part.least)
        self._pulls = self._pulls and part.pull is not None
        arrays = (part.pull, *part.arrays) if self._pulls else part.arrays
        if not all(isinstance(each, np.ndarray) for each in arrays):
            self._parts.append(list(arrays))
            return part
        if not self._arrays:
            is_all = where.stop - where.start == self._n_rows  # which is not copied
            self._arrays = list(arrays) if is_all else [np.empty(self._n_rows, dtype=each.dtype) for each in arrays]
        for array, values in zip(self._arrays, arrays, strict=True):
            if array is not values:
                array[where] = values
        return part

    def terms(self) -> Terms:
        arrays = self._arrays or [concatenated(list(each)) for each in zip(*self._parts, strict=True)]
        pull, *rest = arrays if self._pulls else (None, *arrays)
        return Terms(np.sum(self._sums, axis=0), self._least, pull, tuple(rest))


class Trait(Enum):
    """What rows, a likelihood or a feasible set have, and what solvers need of a problem."""

    PROJECTIONS = "k numbers per row can be kept, and a product with k columns takes k / d of a pass"
    KERNELS = "sweeps of the rows in lower precision are probably fused"
    FUSED = "sweeps are fused"
    REMOTE = "each operation is a round trip, so that a few large ones are better than many"
    CONVEX = "the loss is convex, so that bounds can be proven"
    TANGENTS = "the loss is a function of one margin per row, which its tangents bound"
    FACTORS = "each feasible M has a factor"


class RowSource(ABC):
    """Rows that map a symmetric S to <F_i, S>; for a difference z_i, that is z_i' S z_i with F_i = z_i z_i'.

    A source must implement `forms` and its adjoint `outer`; everything else follows from them, and a source overrides
    what it can do faster: `sweep` above all, which is what solvers call.  Input matrices and resulting sums are NumPy
    arrays.

    Parameters
    ----------
    n_rows, n_columns : int
        The number of rows, and the number of columns of S.

    Attributes
    ----------
    traits : frozenset of Trait
        What it can do better than others.
    condition : float
        By how much coordinates amplify the rounding errors of sums.
    """

    condition: float = 1.0

    def __init__(self, n_rows: int, n_columns: int) -> None:
        self.n_rows = n_rows
        self.n_columns = n_columns

    @property
    def traits(self) -> frozenset[Trait]:
        return frozenset()

    @property
    def rough(self) -> RowSource:
        """The same rows in a precision that is enough to approach an optimum, if that is faster; or the rows."""
        return self

    @property
    def engine(self) -> str:
        """What computes the passes over the rows, and where, in words."""
        return "NumPy"

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_columns

    @property
    def ndim(self) -> int:
        return 2

    @abstractmethod
    def forms(self, matrix: FloatArray) -> Array:
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

    def keep(self, array: Array) -> Array:
        """Compute an array once, if it is a handle of what is not computed yet."""
        return array

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

    # Projections: handles that callers may add and multiply by numbers, from which everything about M = A A' follows
    # without another pass where k numbers per row are kept.  By default they are the factor itself.

    def forward(self, factor: FloatArray) -> Array:
        """Return the projections A'z_i."""
        return factor.copy()  # which the caller may change

    def backward(self, projections: Array, coefficients: Array) -> FloatArray:
        """Return sum_i c_i z_i p_i', one column for each of the k numbers."""
        found: FloatArray = self.outer(coefficients) @ projections
        return found

    def inner(self, left: Array, right: Array) -> Array:
        """Return the row array p_i'q_i of two projections: for p = q = A'z it is z'AA'z."""
        product = left @ right.T
        return self.forms(0.5 * (product + product.T))

    @property
    def compares(self) -> bool:
        """Whether some rows are comparisons, of two legs."""
        return False

    @property
    def projected_bytes(self) -> int:
        """The memory that each column of projections takes."""
        return 0

    @property
    def most_projected(self) -> int:
        """The bytes that projections may take, where it is not known how many are free."""
        return 1 << 31

    # Derived from the operator.

    def squared_distances(self, factor: FloatArray) -> Array:
        """Return <F_i, A A'> for each row."""
        return self.forms(factor @ factor.T)

    def each(self, function: RowFunction, *arrays: Array) -> Terms:
        """Call a function of these arrays, the first of which are forms; its arrays become handles."""
        is_there = is_on_gpu(arrays[0])
        found = self.fused_each(function, *arrays) if is_there else None
        if found is not None:
            return found
        joined = Joined(self.n_rows)
        for where in slices(self.n_rows, GPU_PART_ROWS if is_there else PART_ROWS):
            joined.add(where, function(*(array[where] for array in arrays)))
        return joined.terms()

    def fused_each(self, function: RowFunction, *arrays: Array) -> Terms | None:
        """The same by a kernel; None without one."""
        return None

    def sweep(self, function: RowFunction, matrix: FloatArray, *arrays: Array) -> tuple[Terms, FloatArray]:
        """Call a function of <F_i, S> and of these arrays; return its terms, and sum_i c_i F_i for what they pull.

        A source that can do better, such as one with kernels or a cluster, replaces this alone.
        """
        forms = self.forms(matrix)
        found = self.each(function, forms, *arrays)
        return found._replace(pull=None, forms=forms), self.outer(found.pull)

    def rotated_moments(
        self, curvature: Array, crosses: tuple[Array, ...], basis: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return sum_i c_i q_i q_i' for q_i = (<F_i, v v'> for each column v of the basis), and columns of sums.

        The first column is sum_i c_i q_i, the others sum_i b_i q_i for each cross b.
        """
        measured = [self.forms(np.outer(vector, vector)) for vector in basis.T]
        columns = [[self.dot(q, each) for each in (curvature, *crosses)] for q in measured]
        return self._gram(measured, curvature), np.array(columns)

    def sum_of_squares(self, root: Array, border: tuple[Array, ...], *, rough: bool = False) -> FloatArray:
        """Return sum_i f_i f_i' for f_i = (root_i times F_i, packed, and border_i).

        If it may be `rough`, single precision is used where that is faster.
        """
        size = packed.packed_size(self.n_columns)
        measured = [self.forms(packed.unpack(entry, self.n_columns)) for entry in np.eye(size)]
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
