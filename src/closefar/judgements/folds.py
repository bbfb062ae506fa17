"""Folds: how pairs are divided into those to fit to and those to test on, also where they share points."""

from __future__ import annotations

import heapq
import numbers
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import BaseCrossValidator, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from closefar.arrays import FloatArray, numbered, to_numpy
from closefar.judgements.judgements import Judgements
from closefar.judgements.kinds import Kind
from closefar.judgements.shared_points import find_points, warn_of_points
from closefar.judgements.tuples import Tuples

__all__ = [
    "PairGroupKFold",
    "Split",
    "divide_points",
    "most_folds",
    "resolve_folds",
    "split_by_points",
    "split_judgements",
]

# So many pairs tell candidates apart.
_ENOUGH_TESTED = 500

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
    """What folds have equal shares of: labels or levels; rare levels count as the next one, comparisons all alike."""
    if judgements.kind is Kind.COMPARISONS:
        return None if isinstance(cv, PairGroupKFold) else np.zeros(len(judgements), dtype=np.int64)
    codes: NDArray[np.int64] = judgements.codes.astype(np.int64)
    if judgements.kind is not Kind.LEVELS or n_folds is None or isinstance(cv, PairGroupKFold):
        return codes
    counts = np.bincount(codes, minlength=judgements.n_levels)
    stratum, n_before, strata = 0, 0, []
    for level, count in enumerate(counts.tolist()):
        strata.append(stratum)
        n_before += count
        if n_before >= n_folds and counts[level + 1 :].sum() >= n_folds:
            stratum, n_before = stratum + 1, 0
    return np.array(strata, dtype=np.int64)[codes]


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
    pair after all, where the points do not allow so many.  A warning says so, unless an index of the
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


def split_by_points(judgements: Judgements, points: NDArray[Any], seed: Any) -> list[Split]:
    """Split so that no point is on both sides: five folds, or fewer where a side of them would lack a class.

    Where all points are linked, five folds test a fifth of the pairs.  Three test a third; of few
    pairs two divisions into three test twice as many.
    """
    splits = split_judgements(most_folds(5, judgements, points, seed=seed) or 5, judgements, groups=points, seed=seed)
    if 2 * sum(len(test) for _, test in splits) >= len(judgements):
        return splits
    found: list[Split] = []
    for division in check_random_state(deepcopy(seed)).randint(2**31, size=2).tolist():
        if sum(len(test) for _, test in found) >= _ENOUGH_TESTED:
            break
        n_folds = most_folds(3, judgements, points, seed=division)
        found += split_judgements(n_folds, judgements, groups=points, seed=division) if n_folds else []
    return found or splits


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
            f"groups must have shape (n, 2) = ({n}, 2), the ids of the two points of each pair, or three or four "
            f"columns for comparisons; got {ids.shape}. For one id per pair, use scikit-learn's GroupKFold."
        )
    flat = ids.ravel()
    if flat.dtype.kind in "fO" and any(value is None or value != value for value in flat.tolist()):
        raise ValueError("groups must hold the id of each point; some are missing. Give those points ids of their own.")
    if flat.dtype.kind == "O":
        codes: dict[Any, int] = {}
        return np.array([codes.setdefault(value, len(codes)) for value in flat]).reshape(ids.shape)
    return numbered(ids)[0]
