"""Which pairs or comparisons have a point in common: (n, k, d) data shows it, whether or not groups are given."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import TINY, Array, FloatArray, as_float64, is_source, numbered, take_rows, to_numpy
from closefar.judgements.tuples import Tuples

__all__ = [
    "SharedPointsWarning",
    "find_points",
    "resolve_groups",
    "share_points",
    "variance_of_sum",
    "warn_of_points",
]

# Fewer pairs than this share that have a point in common with another hardly matter: a record that is there twice.
_NEGLIGIBLE = 0.02
_FEWEST = 4

# Rows that are equal this many times as often as chance explains are the same point.
_BEYOND_CHANCE = 10.0

_ROWS_AT_ONCE = 1 << 16
_MOST_SAMPLED = 1 << 14  # rows from which it is learned how often different points agree
_MOST_POINTS = 1 << 13
_FREQUENT = 5.0  # times the median
_HALVINGS = 4
_MOST_CELLS = 1e6  # values on a finer grid than that are as good as continuous
_BINS = 20


class SharedPointsWarning(UserWarning):
    """Pairs share points, so they are not independent; folds and standard errors are by point.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import closefar as cf
    >>> rng = np.random.default_rng(0)
    >>> points = rng.standard_normal((40, 3))
    >>> pairs = points[rng.integers(40, size=(300, 2))]
    >>> labels = (pairs[:, 0, 0] - pairs[:, 1, 0]) ** 2 + rng.logistic(size=300) > 1
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = cf.choose_rank(cf.LinearMetricLearner(), pairs, labels, cv=3)
    >>> print(str(caught[0].message).partition(". ")[0])
    these 300 pairs have only 40 different points, so they are not independent: folds are by point
    """


def resolve_groups(groups: Any, data: Array, *, stacklevel: int = 2) -> NDArray[Any] | None:
    """Validate the groups of dependent pairs: one group id per pair, the ids of its points, or None.

    Without groups, the data may show that pairs share points: those are then the groups, with a
    warning if that was found in an array, not given by an index.
    """
    if groups is not None:
        return _checked(groups, int(data.shape[0]), int(data.shape[1]) if _are_compared(data) else 2)
    points = find_points(data)
    if points is not None and not isinstance(data, Tuples):
        warn_of_points(points, "folds and standard errors are by point", stacklevel=stacklevel + 1)
    return points


def warn_of_points(points: NDArray[np.intp], consequence: str, *, stacklevel: int) -> None:
    """Warn that pairs share points, and what follows from that."""
    noun = "pairs" if points.shape[1] == 2 else "comparisons"
    warnings.warn(
        f"these {len(points):,} {noun} have only {int(points.max()) + 1:,} different points, so they are not "
        f"independent: {consequence}. Give groups to say which {noun} depend on each other; groups=range(n) says that "
        "none do.",
        SharedPointsWarning,
        stacklevel=stacklevel + 1,
    )


def variance_of_sum(values: FloatArray, groups: NDArray[Any] | None) -> float:
    """The variance of the sum of one number of mean zero per pair, where those of a group or a point are dependent."""
    independent = float(values @ values)
    if groups is None:
        return independent
    ids, _ = numbered(groups)
    if ids.ndim == 1:
        sums = np.bincount(ids, values)
        return max(float(sums @ sums), independent)
    if ids.shape[1] > 2:
        return max(_variance_by_points(values, np.sort(ids, axis=1)), independent)
    # Summed over points, two pairs that share both count twice; once is right (Aronow, Samii and Assenova 2015).
    low, high = np.sort(ids, axis=1).T
    others = np.where(low == high, 0.0, values)
    size = int(high.max()) + 1
    by_point = np.bincount(low, values, size) + np.bincount(high, others, size)
    by_pair = np.bincount(np.unique(low * size + high, return_inverse=True)[1], others)
    return max(float(by_point @ by_point - by_pair @ by_pair), independent)


def _variance_by_points(values: FloatArray, ids: NDArray[np.intp]) -> float:
    """The same for three or four points each, sorted, by inclusion and exclusion of the points that two rows share."""
    k, total = ids.shape[1], 0.0
    repeats = np.column_stack([np.zeros(len(ids), dtype=bool), ids[:, 1:] == ids[:, :-1]])  # as a in (a, b, a, c)
    for size in range(1, k + 1):
        keys, summed = [], []
        for columns in combinations(range(k), size):
            chosen = ~repeats[:, columns].any(axis=1)
            keys.append(ids[chosen][:, columns])
            summed.append(values[chosen])
        sums = np.bincount(_numbered_rows(np.concatenate(keys)), np.concatenate(summed))
        total += (-1.0) ** (size + 1) * float(sums @ sums)
    return total


def _numbered_rows(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Which of the different rows each one is."""
    found = rows[:, 0]
    for column in rows[:, 1:].T:
        found = np.unique(found * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return found


def share_points(groups: NDArray[Any] | None) -> bool:
    """Whether a non-negligible part of the pairs depends on another pair by these groups."""
    if groups is None:
        return False
    return _share_dependent(numbered(groups)[0].reshape(len(groups), -1)) > _NEGLIGIBLE


def find_points(data: Array) -> NDArray[np.intp] | None:
    """Number the points of pairs or comparisons, shape (n, k); None where hardly any share one, or it can't be told.

    The index of pairs says which points they share.  In an array equal rows are one point unless
    columns have so few values that different points are often equal.
    """
    if isinstance(data, Tuples):
        numbers = numbered(to_numpy(data.index).astype(np.intp, copy=False))[0]
        return numbers if _are_dependent(numbers) else None
    if is_source(data) or data.ndim != 3:
        return None
    found = np.unique(_digests(data), return_inverse=True)[1]
    ids: NDArray[np.intp] = found.reshape(-1, int(data.shape[1]))
    if not _are_dependent(ids):
        return None
    return ids if _have_own_values(data, found) or _exceed_chance(data, found) else None


def _are_compared(data: Array) -> bool:
    return data.ndim == 3 and int(data.shape[1]) > 2


def _are_dependent(ids: NDArray[np.intp]) -> bool:
    """Whether enough pairs have a point in common with another to matter."""
    return bool(ids.max() >= ids.shape[1] and _share_dependent(ids) > max(_NEGLIGIBLE, _FEWEST / len(ids)))


def _checked(groups: Any, n: int, k: int) -> NDArray[Any]:
    ids = np.asarray(groups)
    if ids.shape not in ((n,), (n, k)):
        noun, number = ("pair", "two") if k == 2 else ("comparison", {3: "three", 4: "four"}[k])
        raise ValueError(
            f"groups must hold one group id per {noun}, or the ids of its {number} points in shape ({n}, {k}); "
            f"got shape {ids.shape}."
        )
    values = ids.ravel().tolist() if ids.dtype.kind == "O" else []
    if any(value is None or value != value for value in values) or (ids.dtype.kind == "f" and np.isnan(ids).any()):
        raise ValueError("groups must hold an id for each pair; some are missing. Give those pairs ids of their own.")
    if ids.dtype.kind != "O":
        return ids
    codes: dict[Any, int] = {}  # of ids of several kinds, which have no order
    return np.array([codes.setdefault(value, len(codes)) for value in values]).reshape(ids.shape)


def _share_dependent(ids: NDArray[np.intp]) -> float:
    """The share of pairs with a group or a point that another pair has too."""
    degrees = np.bincount(ids[:, 0], minlength=int(ids.max(initial=0)) + 1)
    # Each point counts once, also of a pair of one point, or of (a, b, a, c).
    others = [(ids[:, place], (ids[:, place, None] != ids[:, :place]).all(axis=1)) for place in range(1, ids.shape[1])]
    for column, differs in others:
        degrees += np.bincount(column[differs], minlength=len(degrees))
    is_shared = degrees > 1
    dependent = is_shared[ids[:, 0]]
    for column, differs in others:
        dependent |= is_shared[column] & differs
    return float(np.mean(dependent))


def _points_at(data: Array, where: NDArray[np.intp]) -> FloatArray:
    """Points by their numbers, two to a pair; of too many some, chosen at random."""
    k = int(data.shape[1])
    if len(where) > _MOST_SAMPLED:
        where = np.random.default_rng(0).choice(where, _MOST_SAMPLED, replace=False)
    pairs: FloatArray = to_numpy(as_float64(take_rows(data, where // k)))
    return pairs[np.arange(len(where)), where % k] + 0.0


def _digests(data: Array) -> NDArray[np.uint64]:
    """A number for each point, the same for equal rows and for hardly any others."""
    n, k, d = data.shape
    digests = np.empty((n, k), dtype=np.uint64)
    for start in range(0, n, _ROWS_AT_ONCE):
        block = to_numpy(as_float64(data[start : min(start + _ROWS_AT_ONCE, n), ...]))
        digests[start : start + len(block)] = _mixed(block) @ _factors(d)
    return digests.ravel()


def _mixed(values: FloatArray) -> NDArray[np.uint64]:
    """The bits of each number, mixed (as the finalizer of MurmurHash3 does); minus zero is zero."""
    bits: NDArray[np.uint64] = np.ascontiguousarray(values + 0.0).view(np.uint64)
    for constant in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(constant)
    return bits ^ (bits >> np.uint64(33))


def _factors(d: int) -> NDArray[np.uint64]:
    return np.random.default_rng(0).integers(0, 2**63, d, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _rate_of_equals(counts: NDArray[np.intp]) -> float:
    """The share of all couples of rows that are equal, from how often each row is there."""
    total = float(counts.sum())
    return float(np.sum(counts * (counts - 1.0))) / (total * (total - 1.0))


def _have_own_values(data: Array, found: NDArray[np.intp]) -> bool:
    """Whether repeated rows have a value that no other row has, in a column without a grid.

    Nothing is equal to that by chance.
    """
    step = 1 + int(found.max()) // _MOST_POINTS
    rows = _points_at(data, np.flatnonzero(found % step == 0))  # all that are equal to one of these are there
    digests = _mixed(rows) @ _factors(rows.shape[1])
    first, counts = np.unique(digests, return_index=True, return_counts=True)[1:]
    has_own = np.zeros(len(first), dtype=bool)
    for column in rows[first].T:
        if _rate_on_grid(column) == 0.0:
            which, n_rows = np.unique(column, return_inverse=True, return_counts=True)[1:]
            has_own |= n_rows[which] == 1
    return int(counts[has_own & (counts > 1)].sum()) > max(_NEGLIGIBLE * len(rows), 2 * _FEWEST)


def _exceed_chance(data: Array, found: NDArray[np.intp]) -> bool:
    """Whether rows are equal far more often than independent columns would be.

    For columns that depend on each other: also more often than points agree in one half of the
    columns and differ in the other.  Rows that are much more frequent than most are left out: all
    zeros, say, where columns have few values and depend on each other.
    """
    counts = np.bincount(found)
    rows = _points_at(data, np.flatnonzero((counts <= _FREQUENT * np.median(counts))[found]))
    if len(rows) < 2:
        return False
    d, mixed = rows.shape[1], _mixed(rows)
    factors = _factors(d)

    def agreement(part: Any) -> float:
        return _rate_of_equals(np.unique(mixed[:, part] @ factors[part], return_counts=True)[1])

    equal = agreement(slice(None))
    independent = 1.0
    for index, column in enumerate(rows.T):
        independent *= max((agreement([index]) - equal) / max(1.0 - equal, TINY), _rate_on_grid(column))
    if equal <= _BEYOND_CHANCE * independent:
        return False
    rng = np.random.default_rng(0)
    orders = [rng.permutation(d) for _ in range(_HALVINGS if d > 1 else 0)]
    halves = [part for order in orders for part in (order[: d // 2], order[d // 2 :])]
    return equal > min((agreement(part) - equal for part in halves), default=0.0)


def _rate_on_grid(column: FloatArray) -> float:
    """How often two values would be equal, were they drawn from a smooth density and rounded to the column's grid.

    Zero if the values are on no grid, as integers, decimals and such are.
    """
    values = np.unique(column)
    if len(values) == 1:
        return 1.0
    extent = float(values[-1] - values[0])
    step = next((step for step in (1.0, 0.1, 0.01, 0.001) if _is_whole(values / step)), None)
    if step is None:
        step = float(np.diff(values).min())
        if extent / step > _MOST_CELLS or not _is_whole(np.diff(values) / step, 1e-3):
            return 0.0
    cells = extent / step + 1.0
    n_bins = int(min(cells + 0.5, _BINS))
    shares = np.histogram(column, n_bins)[0] / len(column)
    return float(np.sum(shares**2) * n_bins / cells)


def _is_whole(values: FloatArray, tolerance: float = 1e-6) -> bool:
    return bool(np.max(np.abs(values)) < 1e9 and np.max(np.abs(values - np.round(values))) < tolerance)
