"""Folds: how pairs are divided into those to fit to and those to test on, also where they share points."""

from __future__ import annotations

import heapq
import numbers
import warnings
from collections.abc import Iterator
from copy import deepcopy
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import BaseCrossValidator, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from closefar.arrays import TINY, Array, FloatArray, as_float64, is_source, numbered, take_rows, to_numpy
from closefar.errors import either, setting
from closefar.judgements.judgements import Judgements, Kind
from closefar.judgements.tuples import Tuples

# ---------------------------------------------------------------------------------------------------------------------
# Which pairs or comparisons have a point in common: (n, k, d) data shows it, whether or not groups are given.


# Fewer pairs than this share that have a point in common with another hardly matter: a record that is there twice.
_NEGLIGIBLE_SHARE = 0.02
_FEWEST_SHARING = 4  # pairs; fewer may share a point by chance

# Rows that are equal this many times as often as chance explains are the same point.
_BEYOND_CHANCE = 10.0

_ROWS_DIGESTED_AT_ONCE = 1 << 16  # bounds the memory
_MOST_ROWS_SAMPLED = 1 << 14  # rows from which it is learned how often different points agree
_MOST_POINTS_COMPARED = 1 << 13  # different points whose values are compared
_FREQUENT = 5.0  # times the median
_HALVINGS_OF_COLUMNS = 4  # random ones, whose halves are compared
_MOST_CELLS = 1e6  # values on a finer grid than that are as good as continuous
_BINS_OF_COLUMN = 20  # of a histogram that stands for a smooth density


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
        (
            f"these {len(points):,} {noun} have only {int(points.max()) + 1:,} different points, so they "
            f"are not independent: {consequence}. "
            + either("Give groups to say", "Use --group to say")
            + f" which {noun} depend on each other; groups=range(n) says that none do."
        ),
        SharedPointsWarning,
        stacklevel=stacklevel + 1,
    )


def variance_of_sum(values: FloatArray, groups: NDArray[Any] | None) -> float:
    """The variance of the sum of one number of mean zero per pair, where those of a group or a point are dependent."""
    independent = float(values @ values)
    if groups is None:
        return independent
    # By inclusion and exclusion of the points that two rows share: summed over points, two pairs that share both count
    # twice; once is right (Aronow, Samii and Assenova 2015).
    ids = np.sort(numbered(groups)[0].reshape(len(values), -1), axis=1)
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
    return max(total, independent)


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
    return _share_dependent(numbered(groups)[0].reshape(len(groups), -1)) > _NEGLIGIBLE_SHARE


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
    return bool(
        ids.max() >= ids.shape[1] and _share_dependent(ids) > max(_NEGLIGIBLE_SHARE, _FEWEST_SHARING / len(ids))
    )


def _checked(groups: Any, n: int, k: int) -> NDArray[Any]:
    ids = np.asarray(groups)
    if ids.shape not in ((n,), (n, k)):
        noun, number = ("pair", "two") if k == 2 else ("comparison", {3: "three", 4: "four"}[k])
        raise ValueError(
            setting("groups")
            + f" must hold one group id per {noun}, or the ids of its {number} points in shape ({n}, {k}); "
            f"got shape {ids.shape}."
        )
    return _without_missing(ids, "an id for each pair", "those pairs")


def _without_missing(ids: NDArray[Any], what: str, those: str) -> NDArray[Any]:
    """Refuse missing ids; return ids of several kinds, which have no order, as numbers."""
    values = ids.ravel().tolist() if ids.dtype.kind == "O" else []
    if any(value is None or value != value for value in values) or (ids.dtype.kind == "f" and np.isnan(ids).any()):
        raise ValueError(setting("groups") + f" must hold {what}; some are missing. Give {those} ids of their own.")
    codes: dict[Any, int] = {}
    return np.array([codes.setdefault(each, len(codes)) for each in values]).reshape(ids.shape) if values else ids


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
    if len(where) > _MOST_ROWS_SAMPLED:
        where = np.random.default_rng(0).choice(where, _MOST_ROWS_SAMPLED, replace=False)
    pairs: FloatArray = to_numpy(as_float64(take_rows(data, where // k)))
    return pairs[np.arange(len(where)), where % k] + 0.0


def _digests(data: Array) -> NDArray[np.uint64]:
    """A number for each point, the same for equal rows and for hardly any others."""
    n, k, d = data.shape
    digests = np.empty((n, k), dtype=np.uint64)
    for start in range(0, n, _ROWS_DIGESTED_AT_ONCE):
        block = to_numpy(as_float64(data[start : min(start + _ROWS_DIGESTED_AT_ONCE, n), ...]))
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


def _have_own_values(data: Array, found: NDArray[np.intp]) -> bool:
    """Whether repeated rows have a value that no other row has, in a column without a grid.

    Nothing is equal to that by chance.
    """
    step = 1 + int(found.max()) // _MOST_POINTS_COMPARED
    rows = _points_at(data, np.flatnonzero(found % step == 0))  # all that are equal to one of these are there
    digests = _mixed(rows) @ _factors(rows.shape[1])
    first, counts = np.unique(digests, return_index=True, return_counts=True)[1:]
    has_own = np.zeros(len(first), dtype=bool)
    for column in rows[first].T:
        if _rate_on_grid(column) == 0.0:
            which, n_rows = np.unique(column, return_inverse=True, return_counts=True)[1:]
            has_own |= n_rows[which] == 1
    return int(counts[has_own & (counts > 1)].sum()) > max(_NEGLIGIBLE_SHARE * len(rows), 2 * _FEWEST_SHARING)


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
        """The share of all couples of rows that are equal in these columns."""
        counts = np.unique(mixed[:, part] @ factors[part], return_counts=True)[1]
        return float(np.sum(counts * (counts - 1.0)) / (counts.sum() * (counts.sum() - 1.0)))

    equal = agreement(slice(None))
    independent = 1.0
    for index, column in enumerate(rows.T):
        independent *= max((agreement([index]) - equal) / max(1.0 - equal, TINY), _rate_on_grid(column))
    if equal <= _BEYOND_CHANCE * independent:
        return False
    rng = np.random.default_rng(0)
    orders = [rng.permutation(d) for _ in range(_HALVINGS_OF_COLUMNS if d > 1 else 0)]
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
    n_bins = int(min(cells + 0.5, _BINS_OF_COLUMN))
    shares = np.histogram(column, n_bins)[0] / len(column)
    return float(np.sum(shares**2) * n_bins / cells)


def _is_whole(values: FloatArray, tolerance: float = 1e-6) -> bool:
    return bool(np.max(np.abs(values)) < 1e9 and np.max(np.abs(values - np.round(values))) < tolerance)


# So many groups of points, the largest, are dealt one by one to the lightest fold.
_MOST_DEALT = 200_000

Split = tuple[NDArray[np.int64], NDArray[np.int64]]


def split_judgements(cv: Any, judgements: Judgements, *, groups: Any = None, seed: int | None = None) -> list[Split]:
    """Return the row numbers to fit to and to test on, split by split.

    Parameters
    ----------
    cv : int, splitter or iterable of (train, test)
        A number of folds has about equal shares of close and far, or of each level, in each.
    groups : array of shape (n,) or (n, k), optional
        For a number of folds: pairs of the same group share a fold, or (with the ids of the two points of pairs, or
        of the three or four of comparisons) no point is on both sides.  A splitter gets them as they are.
    seed : int, optional
        Shuffles a number of folds.
    """
    n_folds = int(cv) if isinstance(cv, numbers.Integral) else None
    if n_folds is not None:
        shuffle: dict[str, Any] = {} if seed is None else {"shuffle": True, "random_state": seed}
        if groups is None:
            cv = StratifiedKFold(n_folds, **shuffle)
        elif np.ndim(groups) == 2:
            cv = PairGroupKFold(n_folds, random_state=seed or 0)
        else:
            cv = StratifiedGroupKFold(n_folds, **shuffle)
    rows = judgements.data if isinstance(judgements.data, Tuples) else np.zeros((len(judgements), 1))
    splits = check_cv(cv).split(rows, _strata(cv, judgements, n_folds), groups)
    everything = np.arange(len(judgements))
    found = [(everything[train], everything[test]) for train, test in splits]
    if judgements.kind is not Kind.LEVELS or n_folds is None or groups is not None:
        return found
    return [_with_all_levels(judgements, train, test) for train, test in found]


def _strata(cv: Any, judgements: Judgements, n_folds: int | None) -> NDArray[np.int64] | None:
    """What folds have equal shares of: labels, or levels, of which rare ones count as the next common one."""
    if judgements.kind is Kind.COMPARISONS:
        return None if isinstance(cv, PairGroupKFold) else np.zeros(len(judgements), dtype=np.int64)
    codes: NDArray[np.int64] = judgements.codes.astype(np.int64)
    if judgements.kind is not Kind.LEVELS or n_folds is None or isinstance(cv, PairGroupKFold):
        return codes
    common = np.flatnonzero(np.bincount(codes, minlength=judgements.n_levels) >= n_folds)
    return np.minimum(np.searchsorted(common, codes), max(len(common) - 1, 0))


def _with_all_levels(judgements: Judgements, train: NDArray[np.int64], test: NDArray[np.int64]) -> Split:
    """The same split with a judgement of each level to fit to: one of a level that is only tested on is moved."""
    counts, codes = judgements.weights > 0, judgements.codes
    missing = np.setdiff1d(np.arange(judgements.n_levels), codes[train[counts[train]]])
    tested = test[counts[test]]
    moved = [int(tested[codes[tested] == level][0]) for level in missing.tolist() if np.any(codes[tested] == level)]
    if not moved:
        return train, test
    return np.sort(np.append(train, moved)), np.setdiff1d(test, moved)


def resolve_folds(
    cv: Any, judgements: Judgements, groups: Any, *, seed: int | None = None, stacklevel: int = 2, warns: bool = True
) -> tuple[Any, Any]:
    """Return the folds and the groups to split by: as given or, by default, as the data require.

    A number of folds without groups is by point where pairs share points: with fewer folds, or by
    pair after all, where the points do not allow that many.  A warning says so, unless an index of the
    points was given and allows all folds.
    """
    points = find_points(judgements.data) if groups is None and isinstance(cv, numbers.Integral) else None
    if points is None:
        return cv, groups
    n_folds = most_folds(int(cv), judgements, points, seed=seed)
    consequence = "folds are by point"
    lacking = {Kind.CLOSE_FAR: "a class", Kind.LEVELS: "a level", Kind.COMPARISONS: "comparisons"}[judgements.kind]
    if n_folds < 2:
        have = {Kind.CLOSE_FAR: "both classes and ", Kind.LEVELS: "all levels and ", Kind.COMPARISONS: ""}
        by = judgements.kind.noun
        consequence = f"but folds are by {by}, as no two of them have {have[judgements.kind]}no point in common"
    elif n_folds < cv:
        consequence = f"folds are by point, {n_folds} of them, as more would lack {lacking}"
    if warns and not (isinstance(judgements.data, Tuples) and n_folds == cv):
        warn_of_points(points, consequence, stacklevel=stacklevel + 1)
    return (cv, None) if n_folds < 2 else (n_folds, points)


def most_folds(n_folds: int, judgements: Judgements, groups: Any, *, seed: int | None = None) -> int:
    """Return how many folds, at most `n_folds`, keep groups or points apart; 0 if not even two do.

    All train on both classes, or on all levels, and test on something.
    """
    counts, codes = judgements.weights > 0, judgements.codes
    needed = 1 if judgements.kind is Kind.COMPARISONS else judgements.n_levels
    for number in range(min(n_folds, judgements.n_rarer), 1, -1):
        try:
            splits = split_judgements(number, judgements, groups=groups, seed=deepcopy(seed))
        except ValueError:  # a side of one class
            continue
        sides = [(codes[train[counts[train]]], counts[test]) for train, test in splits]
        if all(len(np.unique(trained)) >= needed and np.any(tested) for trained, tested in sides):
            return number
    return 0


class PairGroupKFold(BaseCrossValidator):  # type: ignore[misc]
    """Folds of pairs, or of comparisons, in which no point is on both sides.

    The points are divided into `n_splits` parts.  Each part is held out once: the test side
    is the pairs with both points in it, the train side those with none.  A pair with one
    point in it is on neither side of that split.  So are comparisons with some of their points in it.

    Points that are linked by pairs stay in one part where they fit, and then no pair is
    lost.  Where they don't (they hold more than 1.5 times the pairs of an even fold), they
    are divided at random; of such pairs about (1 - 1/n_splits)^2 are trained on and
    1/n_splits^2 tested on in each split.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=True
        Choose among equally balanced divisions at random.
    random_state : int, RandomState or None, default=None
        An int gives the same folds each time.

    Examples
    --------
    >>> import closefar as cf
    >>> ids = [["a", "b"], ["b", "c"], ["d", "e"], ["f", "g"]]
    >>> for train, test in cf.PairGroupKFold(2, random_state=0).split(ids, groups=ids):
    ...     print(train, test)
    [2 3] [0 1]
    [0 1] [2 3]
    """

    __metadata_request__split = {"groups": True}

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None) -> None:
        if not (isinstance(n_splits, (int, np.integer)) and n_splits >= 2):
            raise ValueError(f"n_splits must be a whole number >= 2; got {n_splits!r}.")
        self.n_splits = int(n_splits)
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """Return the row numbers of the train and the test side of each split.

        Parameters
        ----------
        X : anything of n rows
            The index of `Tuples` is the default of `groups`.
        y : array of n labels, optional
            If given, both sides of each split must have two labels.
        groups : array of shape (n, 2), (n, 3) or (n, 4), optional for `Tuples`
            The ids of the two points of each pair, or of the three or four points of each comparison.
        """
        groups = to_numpy(X.index) if groups is None and isinstance(X, Tuples) else groups
        ends = _number_points(groups, _num_samples(X))
        rng = check_random_state(self.random_state) if self.shuffle else None
        parts = divide_points(ends, self.n_splits, rng)[0][ends]
        labels = None if y is None else np.asarray(y)
        splits = []
        for part in range(self.n_splits):
            held_out = parts == part
            train, test = np.flatnonzero(~held_out.any(axis=1)), np.flatnonzero(held_out.all(axis=1))
            for name, side in (("train", train), ("test", test)):
                if len(side) == 0 or (labels is not None and len(np.unique(labels[side])) < 2):
                    raise ValueError(
                        f"each side of a split needs pairs{'' if y is None else ' of both classes'}; the {name} side "
                        f"of split {part} of {self.n_splits} has {len(side)} of {len(ends)} pairs"
                        f"{' and one class' if len(side) else ''}. Set fewer n_splits, try another random_state, or "
                        "hold out points of one column of groups only, with scikit-learn's GroupKFold."
                    )
            splits.append((train, test))
        return iter(splits)


def divide_points(ends: NDArray[np.int64], n_parts: int, rng: Any = None) -> tuple[NDArray[np.int64], bool]:
    """Divide points, by the numbers of those of each judgement, into parts with about as many judgements each.

    Points that judgements link stay in one part where they fit (they hold at most 1.5 times the judgements of an even
    part).  Returns the part of each point, and whether all linked ones stay together.
    """
    n, n_points = len(ends), int(ends.max()) + 1
    first, other = np.repeat(ends[:, 0], ends.shape[1] - 1), ends[:, 1:].ravel()
    graph = coo_array((np.ones(len(first), dtype=bool), (first, other)), shape=(n_points, n_points))
    n_components, component = connected_components(graph, directed=False)
    sizes = np.bincount(component[ends[:, 0]], minlength=n_components)
    whole = sizes <= 1.5 * n / n_parts
    if whole.all() and n_components < n_parts:
        whole[np.argmax(sizes)] = False
    own = np.where(whole[component], component, n_components + np.arange(n_points))
    unit, _ = numbered(own)
    loads = np.bincount(unit, weights=np.bincount(ends.ravel(), minlength=n_points))
    order = np.arange(len(loads)) if rng is None else rng.permutation(len(loads))
    # Heavy units first, for balance; those of nearly one weight in any order, so that shuffling mixes them.
    order = order[np.argsort(-np.floor(np.log2(np.maximum(loads[order], 1.0))), kind="stable")]
    part_of_unit = np.empty(len(loads), dtype=np.int64)
    part_of_unit[order] = _balanced(loads[order].astype(np.float64), n_parts)
    return part_of_unit[unit], bool(whole.all())


def _balanced(loads: FloatArray, n_parts: int) -> NDArray[np.int64]:
    """The part of each load, in this order to the lightest one; of very many, the last go to each part in turn."""
    heap = [(0.0, part) for part in range(n_parts)]
    parts = np.empty(len(loads), dtype=np.int64)
    for number, load in enumerate(loads[:_MOST_DEALT].tolist()):
        lightest, part = heap[0]
        parts[number] = part
        heapq.heapreplace(heap, (lightest + load, part))
    parts[_MOST_DEALT:] = np.arange(max(len(loads) - _MOST_DEALT, 0)) % n_parts
    return parts


def _number_points(groups: Any, n: int) -> NDArray[np.int64]:
    """Return the ids as numbers 0, 1, ..."""
    if groups is None:
        raise ValueError("PairGroupKFold needs groups: an (n, 2) array with the ids of the two points of each pair.")
    ids = np.asarray(groups)
    if ids.ndim != 2 or len(ids) != n or ids.shape[1] not in (2, 3, 4):
        raise ValueError(
            setting("groups")
            + f" must have shape (n, 2) = ({n}, 2), the ids of the two points of each pair, or three or "
            f"four columns for comparisons; got {ids.shape}. For one id per pair, use scikit-learn's "
            "GroupKFold."
        )
    return numbered(_without_missing(ids, "the id of each point", "those points"))[0]
