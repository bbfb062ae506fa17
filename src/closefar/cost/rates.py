"""Rates of this machine, measured with the operations of a fit on generated rows of the planned shape."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from closefar.cost.size import RunSize
from closefar.engines import threads_for
from closefar.noise import get_noise
from closefar.rows import BlockRows, IndexedRows, find_coordinates, pair_rows, unit_free
from closefar.rows.blocks import MappedRows
from closefar.rows.unit_free import WideRows, suits_factors
from closefar.solve import CloseFar, Objective, Passes

__all__ = ["Rates", "measure_rates"]

_OPERATIONS = 3e8  # multiplications and additions of a measured pass
_POINTWISE = 3000  # those that the likelihood of a row takes as long as
_FEWEST, _MOST = 2048, 60_000
_FEWEST_COLUMNS = 4
_MOST_COLUMNS = 512  # those of more columns are extrapolated
_FEWEST_POINTS, _MOST_POINTS, _FEWEST_INDEXED = 1 << 14, 1 << 17, 1 << 17
_PROJECTED = 3_000_000  # numbers of all points: more than a cache holds
_FEW_PAIRS_PER_POINT, _FEW_COLUMNS = 4, 64
_HESSIAN_COLUMNS = 32  # a dense Hessian of more columns is not formed
_FEWEST_REPEATS, _ENOUGH_SECONDS, _MANY_SECONDS = 3, 0.05, 0.3


@dataclass(frozen=True)
class Rates:
    """Seconds of the operations of a fit, each for one pair unless it says otherwise.

    Attributes
    ----------
    prepare : float
        Validation, unit-free coordinates and statistics.
    precise : float
        A pass: the loss and its gradient, in double precision.
    rough : float
        A pass by projections on all columns, in single precision where a fit uses it.
    narrow : float
        The same on `rank` columns, in double precision.
    likelihood : float
        The likelihood at a known distance.
    hessian : float
        The dense Hessian of few columns.
    point : float
        The share of a point in a pass, if pairs are given by index.
    eigen : float
        The eigendecomposition of M: seconds for each.
    products : float
        Multiplications and additions per second of products of matrices.
    bandwidth : float
        Bytes that are read from memory per second.
    n_threads : int
        The number of BLAS threads that were used.
    """

    prepare: float
    precise: float
    rough: float
    narrow: float
    likelihood: float
    hessian: float
    point: float
    eigen: float
    products: float
    bandwidth: float
    n_threads: int


def measure_rates(size: RunSize, *, n_threads: int | None = None) -> Rates:
    """Measure the rates for a run of this size, in about a second.

    Passes use as many threads as `fit` would use for so many pairs, or `n_threads`.
    """
    columns = min(size.n_features, _MOST_COLUMNS)
    growth = size.n_features / columns
    n = int(np.clip(_OPERATIONS / (4 * columns**2 + _POINTWISE), _FEWEST, _MOST))
    if _uses_points(size):  # with fewer, their differences would be formed
        n = max(_FEWEST_INDEXED, 1 + _FEW_PAIRS_PER_POINT * _n_points(size))
    with threadpool_limits(n_threads, user_api="blas"), threads_for(size.n_pairs, size.n_features):
        clock, rng = _Clock(_count_threads()), np.random.default_rng(0)
        source = _generated(size, n, columns, rng)
        shares = np.full(source.n_rows, 1.0 / source.n_rows)
        prepare = clock.seconds(lambda: unit_free(source, shares), _ENOUGH_SECONDS) / n
        rows = _as_in_fit(source, shares, size)
        objective = Objective(rows, CloseFar(get_noise("logistic"), _signs(n, rng), shares), Passes())
        rank = min(size.rank or columns, columns)
        passes = _passes(clock, objective, columns, rank, rng)
        point = _point_seconds(clock, rows, columns)
        n_points = rows.n_projected if isinstance(rows, IndexedRows) else 0
        precise, rough, narrow = (max(each - n_points * point, 0.3 * each) / n for each in passes)
        likelihood = clock.seconds(lambda: _evaluate(objective)) / n
        bandwidth = _bandwidth(clock)
        reading = 2.0 * size.pair_bytes / bandwidth
        return Rates(
            prepare=prepare * growth**2 + reading + 4.0 * likelihood,
            precise=precise * growth**2,
            rough=rough * growth**2,
            narrow=narrow * growth,
            likelihood=likelihood,
            hessian=_hessian_seconds(clock, source),
            point=point * growth**2,
            eigen=_eigen_seconds(clock, columns, rng) * growth**3,
            products=_product_rate(clock, columns, rng),
            bandwidth=bandwidth,
            n_threads=clock.n_threads,
        )


@dataclass(frozen=True)
class _Clock:
    """Times calls, with this number of BLAS threads."""

    n_threads: int

    def seconds(self, function: Callable[[], Any], most: float = _MANY_SECONDS) -> float:
        """The time of a call, from as many as take long enough, or at `most` this long if they are few."""
        # The time of this process counts no other programs, but each of its threads.
        now = time.process_time if self.n_threads == 1 else time.perf_counter
        times: list[float] = []
        while sum(times) < (most if len(times) < _FEWEST_REPEATS else _ENOUGH_SECONDS):
            start = now()
            function()
            times.append(now() - start)
        return min(times) if self.n_threads == 1 else statistics.median(times)


def _count_threads() -> int:
    return max((int(each["num_threads"]) for each in threadpool_info() if each["user_api"] == "blas"), default=1)


def _generated(size: RunSize, n: int, columns: int, rng: np.random.Generator) -> BlockRows:
    """Rows of the layout and precision of the run."""
    if _uses_points(size):
        points = rng.standard_normal((_n_points(size), columns))
        return IndexedRows(points, rng.integers(0, len(points), (n, 2)))
    shape = (n, columns) if size.are_differences or size.n_points is not None else (n, 2, columns)
    return pair_rows(rng.standard_normal(shape).astype(size.dtype, copy=False))


def _uses_points(size: RunSize) -> bool:
    """Whether a fit computes with points; it forms the differences of few pairs for each point."""
    if size.n_points is None:
        return False
    return size.n_features >= _FEW_COLUMNS or size.n_pairs > _FEW_PAIRS_PER_POINT * size.n_points


def _n_points(size: RunSize) -> int:
    """The number of generated points; more of them, and projections are gathered at the same rate."""
    enough = int(np.clip(_PROJECTED / size.n_features, _FEWEST_POINTS, _MOST_POINTS))
    return min(size.n_points or 0, enough)


def _as_in_fit(source: BlockRows, shares: np.ndarray[Any, Any], size: RunSize) -> BlockRows:
    """The rows in unit-free coordinates, held as a fit of so many pairs would hold them."""
    coordinates = find_coordinates(source, shares)
    if isinstance(source, IndexedRows):
        return source.in_coordinates(coordinates)
    planned = copy.copy(source)
    planned.n_rows = size.n_pairs
    kind = WideRows if suits_factors(planned, coordinates) else MappedRows
    return kind(source, coordinates)


def _signs(n: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.choice([-1.0, 1.0], n)


def _passes(
    clock: _Clock, objective: Objective, columns: int, rank: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """The seconds of a precise, a rough and a narrow pass."""
    rough = objective.source.rough
    coefficients = rng.standard_normal(objective.n_judgements)
    matrix, factor = np.eye(columns), rng.standard_normal((columns, columns))

    def by_projection(source: Any, factor: np.ndarray[Any, Any]) -> None:
        projections = source.forward(factor)
        source.inner(projections, projections)
        source.backward(projections, coefficients)

    return (
        clock.seconds(lambda: objective.loss_and_gradient(matrix, np.ones(1))),
        clock.seconds(lambda: by_projection(rough, factor)),
        clock.seconds(lambda: by_projection(objective.source, factor[:, :rank])),
    )


def _evaluate(objective: Objective) -> None:
    objective.evaluate(np.ones(objective.n_judgements), np.ones(1), order=2)


def _point_seconds(clock: _Clock, rows: BlockRows, columns: int) -> float:
    """The seconds per point of projecting the points on all columns, and back."""
    if not isinstance(rows, IndexedRows):
        return 0.0
    return 2.0 * clock.seconds(lambda: rows.forward(np.eye(columns))) / rows.n_projected


def _hessian_seconds(clock: _Clock, source: BlockRows) -> float:
    """The seconds per row of a dense Hessian, in single precision."""
    if source.n_columns > _HESSIAN_COLUMNS:
        return 0.0
    some = source.take_rows(np.arange(min(source.n_rows, _FEWEST)))
    root = np.ones(some.n_rows)
    return clock.seconds(lambda: some.sum_of_squares(root, (root,), rough=True)) / some.n_rows


def _eigen_seconds(clock: _Clock, columns: int, rng: np.random.Generator) -> float:
    """The seconds of forming and decomposing a matrix of the size of M."""
    factor = rng.standard_normal((columns, columns))
    return clock.seconds(lambda: np.linalg.eigh(factor @ factor.T))


def _product_rate(clock: _Clock, columns: int, rng: np.random.Generator) -> float:
    """The rate of products of a block of rows with a factor; calls take most of the time of still fewer columns."""
    columns = max(columns, _FEWEST_COLUMNS)
    block = rng.standard_normal((max(512, (1 << 18) // columns), columns))
    factor = rng.standard_normal((columns, columns))
    return 2.0 * len(block) * columns**2 / clock.seconds(lambda: block @ factor)


def _bandwidth(clock: _Clock) -> float:
    """The bytes per second of a sum over an array that no cache holds."""
    numbers = np.ones(1 << 23)
    return numbers.nbytes / clock.seconds(lambda: float(numbers.sum()))
