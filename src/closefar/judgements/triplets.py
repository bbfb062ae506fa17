"""Triplets (a, b, c), "a is closer to b than to c", from other kinds of answers, by the numbers of the items."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from closefar.arrays import FloatArray, IndexArray, to_numpy
from closefar.judgements.tuples import checked_points

# ---------------------------------------------------------------------------------------------------------------------
# Triplets sampled from classes: an anchor, a point of its class, a point of another.


_PER_POINT = 10
_DISTANCES_AT_ONCE = 1 << 22
# Groups of which a larger share than this is wanted are enumerated; few draws from the others repeat an earlier one.
_DENSE = 1.0 / 3.0


def triplets_from_classes(
    classes: Any,
    n_triplets: int | None = None,
    *,
    points: Any = None,
    negatives: str = "random",
    n_nearest: int = 10,
    random_state: Any = None,
) -> IndexArray:
    """Sample triplets of an anchor, a point of its class and a point of another class.

    All points whose class has another point are anchors about equally often, so that classes occur as often as they
    have points; no triplet occurs twice.

    Parameters
    ----------
    classes : array of shape (n,)
        The class of each point.
    n_triplets : int, optional
        By default 10 for each point, or as many as there are.
    points : array or frame of shape (n, d), optional
        Needed for hard negatives.
    negatives : {"random", "hard"}, default="random"
        Points of other classes at random, or among the `n_nearest` to the anchor, after columns are divided by
        their standard deviations, so that units do not matter.
    n_nearest : int, default=10
    random_state : int, RandomState or None

    Returns
    -------
    array of int, of shape (n_triplets, 3)
        For `Tuples(points, triplets)`.

    Examples
    --------
    >>> import closefar as cf
    >>> cf.judgements.triplets_from_classes(["a", "b", "a"], random_state=0).tolist()
    [[0, 2, 1], [2, 0, 1]]
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    codes, sizes = _class_codes(classes)
    n, own = len(codes), sizes[codes]
    if negatives not in ("random", "hard"):
        raise ValueError(f"negatives must be 'random' or 'hard'; got {negatives!r}.")
    scaled = _scaled(points, n) if negatives == "hard" else None
    if not (isinstance(n_nearest, numbers.Integral) and n_nearest >= 1):
        raise ValueError(f"n_nearest must be a whole number >= 1; got {n_nearest!r}.")
    n_negatives = n - own if scaled is None else np.minimum(n - own, n_nearest)
    wanted = _shares((own - 1) * n_negatives, n_triplets, rng)
    anchors, number = _distinct((own - 1) * n_negatives, wanted, rng)
    same, other = np.divmod(number, n_negatives[anchors])
    by_class = np.argsort(codes, kind="stable")
    start = (np.cumsum(sizes) - sizes)[codes[anchors]]
    place = np.empty(n, dtype=np.intp)
    place[by_class] = np.arange(n)
    positive = by_class[start + same + (start + same >= place[anchors])]
    if scaled is None:
        negative = by_class[other + np.where(other >= start, own[anchors], 0)]
    else:
        different, row = np.unique(anchors, return_inverse=True)
        negative = _nearest_of_others(scaled, codes, different, int(n_nearest))[row, other]
    return rng.permutation(np.column_stack([anchors, positive, negative]))


def _class_codes(classes: Any) -> tuple[IndexArray, IndexArray]:
    """The class of each point as a number, and the sizes of the classes."""
    given = np.asarray(classes)
    if given.ndim != 1:
        raise ValueError(f"classes must be one class per point; got shape {given.shape}.")
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(
            f"classes must not be missing; got nan at point {int(np.argmax(np.isnan(given)))}. Leave it out."
        )
    names, codes = np.unique(given, return_inverse=True)
    sizes = np.bincount(codes, minlength=len(names))
    if len(names) < 2 or sizes.max() < 2:
        raise ValueError(
            "classes must be at least two, and one of them must have two points; "
            f"got {len(names)} of {len(given)} points, the largest with {sizes.max(initial=0)}."
        )
    return codes, sizes


def _scaled(points: Any, n: int) -> FloatArray:
    """The points in columns of standard deviation one, around zero."""
    if points is None:
        raise ValueError("hard negatives need points, to find the nearest ones; got points=None. Set it.")
    array: FloatArray = to_numpy(checked_points(points)).astype(np.float64)
    if len(array) != n:
        raise ValueError(f"points must be one per class label, {n:,}; got {len(array):,}.")
    if not np.all(np.isfinite(array)):
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise ValueError(f"points must be finite; point {row} is {array[row].tolist()}. Fill it in or leave it out.")
    largest = np.abs(array).max(axis=0)
    array = array / np.where(largest > 0, largest, 1.0)
    spread = array.std(axis=0)
    scaled: FloatArray = (array - array.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled


def _shares(capacity: IndexArray, n_triplets: int | None, rng: np.random.Generator) -> IndexArray:
    """How many triplets each anchor has: equally many, as far as there are."""
    total = int(capacity.sum())
    n = min(_PER_POINT * len(capacity), total) if n_triplets is None else n_triplets
    if not (isinstance(n, numbers.Integral) and 1 <= n <= total):
        raise ValueError(f"n_triplets must be from 1 to the {total:,} different ones; got {n_triplets!r}.")
    low, high = 0, int(n)  # the smallest limit that gives enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if int(np.minimum(capacity, middle).sum()) >= n else (middle, high)
    wanted = np.minimum(capacity, high)
    full = np.flatnonzero(capacity >= high)
    wanted[rng.choice(full, int(wanted.sum()) - int(n), replace=False)] -= 1
    return wanted


def _distinct(capacity: IndexArray, wanted: IndexArray, rng: np.random.Generator) -> tuple[IndexArray, IndexArray]:
    """So many different numbers below its capacity for each group: the groups, and the numbers."""
    is_dense = wanted > _DENSE * capacity
    group, number = _all_numbers(np.where(is_dense, capacity, 0))
    order = np.lexsort((rng.random(len(group)), group))
    group, number = group[order], number[order]
    first = np.searchsorted(group, group)
    kept = np.arange(len(group)) - first < wanted[group]
    group, number = group[kept], number[kept]
    missing = np.where(is_dense, 0, wanted)
    while missing.any():
        more = np.repeat(np.arange(len(capacity)), missing)
        group, number = np.append(group, more), np.append(number, rng.integers(capacity[more]))
        order = np.lexsort((number, group))
        group, number = group[order], number[order]
        is_new = np.append(True, (np.diff(group) != 0) | (np.diff(number) != 0))
        group, number = group[is_new], number[is_new]
        missing = wanted - np.bincount(group, minlength=len(capacity))
    return group, number


def _all_numbers(capacity: IndexArray) -> tuple[IndexArray, IndexArray]:
    group = np.repeat(np.arange(len(capacity)), capacity)
    return group, np.arange(len(group)) - (np.cumsum(capacity) - capacity)[group]


def _nearest_of_others(points: FloatArray, codes: IndexArray, anchors: IndexArray, k: int) -> IndexArray:
    """The k nearest points of other classes of each anchor, or all of them where there are fewer, nearest first."""
    k = min(k, len(points) - 1)
    squares = np.sum(points**2, axis=1)
    found = np.empty((len(anchors), k), dtype=np.intp)
    step = max(1, _DISTANCES_AT_ONCE // len(points))
    for start in range(0, len(anchors), step):
        some = anchors[start : start + step]
        distances = squares - 2.0 * points[some] @ points.T
        distances[codes[some][:, None] == codes] = np.inf
        nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
        found[start : start + step] = np.take_along_axis(nearest, order, axis=1)
    return found


def triplets_from_odd_one_out(shown: Any, odd: Any = 2) -> IndexArray:
    """Convert answers to "which of these three is the odd one out?" to triplets.

    The other two, i and j, are closer to each other than either is to the odd one k, so that each answer is two
    triplets: (i, j, k) and (j, i, k).

    Parameters
    ----------
    shown : array of int, of shape (n, 3)
        The numbers of the three items of each question.
    odd : int or array of int, of shape (n,), default=2
        The column of the odd one, in all rows; or the odd item of each row, one of the three shown.

    Returns
    -------
    array of int, of shape (2n, 3)
        Both triplets of an answer follow each other.

    Examples
    --------
    >>> import closefar as cf
    >>> cf.judgements.triplets_from_odd_one_out([[4, 7, 1], [2, 0, 5]], odd=[1, 2]).tolist()
    [[4, 7, 1], [7, 4, 1], [0, 5, 2], [5, 0, 2]]
    """
    items = _numbers("shown", shown, (None, 3))
    _check_different("shown", items)
    if isinstance(odd, numbers.Integral):
        if odd not in (0, 1, 2):
            raise ValueError(f"odd must be a column of shown, 0 to 2, or one item for each row; got {odd!r}.")
        column = np.full(len(items), int(odd))
    else:
        chosen = _numbers("odd", odd, (len(items),))
        is_odd = items == chosen[:, None]
        missing = np.flatnonzero(~is_odd.any(axis=1))
        if len(missing):
            row = int(missing[0])
            raise ValueError(
                f"odd must be one of the three items shown; got {chosen[row]} in row {row}, which shows "
                f"{items[row].tolist()}. Correct or leave out that row."
            )
        column = np.argmax(is_odd, axis=1)
    rows = np.arange(len(items))
    first, second, last = (items[rows, (column + step) % 3] for step in (1, 2, 0))
    swapped = column == 1  # keeps the order in which the other two were shown
    first, second = np.where(swapped, second, first), np.where(swapped, first, second)
    return np.stack([np.column_stack([first, second, last]), np.column_stack([second, first, last])], 1).reshape(-1, 3)


def triplets_from_ranking(
    queries: Any, ranked: Any, *, comparisons: str = "all", n_ranked: int | None = None
) -> IndexArray:
    """Convert items ranked by their distance from a query to triplets.

    Parameters
    ----------
    queries : array of int, of shape (n,)
        The number of the item of each ranking that distances are measured from.
    ranked : array of int, of shape (n, m)
        The others, from the nearest to the farthest.  Shorter rankings end in -1.
    comparisons : {"all", "adjacent"}, default="all"
        Compare each item with all that are farther, or with the next one alone.  A ranking of m items
        has m (m - 1) / 2 comparisons, which are answers to one question, and not as informative as that many questions.
    n_ranked : int, optional
        Only the first so many are ranked; the others are farther, in no order.  1 is the answer to "which of these is
        nearest?".  All by default.

    Returns
    -------
    array of int, of shape (n_triplets, 3)

    Examples
    --------
    >>> import closefar as cf
    >>> cf.judgements.triplets_from_ranking([0], [[3, 1, 2]]).tolist()
    [[0, 3, 1], [0, 3, 2], [0, 1, 2]]
    >>> cf.judgements.triplets_from_ranking([0], [[3, 1, 2]], n_ranked=1).tolist()
    [[0, 3, 1], [0, 3, 2]]
    """
    anchors = _numbers("queries", queries, (None,))
    items = _numbers("ranked", ranked, (len(anchors), None), lowest=-1)
    if comparisons not in ("all", "adjacent"):
        raise ValueError(f"comparisons must be 'all' or 'adjacent'; got {comparisons!r}.")
    m = items.shape[1]
    if n_ranked is not None and not (isinstance(n_ranked, numbers.Integral) and 1 <= int(n_ranked) < m):
        raise ValueError(f"n_ranked must be from 1 to {m - 1}, one less than the number of items; got {n_ranked!r}.")
    last = m - 1 if n_ranked is None else int(n_ranked)
    _check_rankings(anchors, items)
    near, far = np.triu_indices(m, 1)
    kept = near < last
    if comparisons == "adjacent":
        kept &= (far == near + 1) | (near == last - 1)
    triplets = np.stack(np.broadcast_arrays(anchors[:, None], items[:, near[kept]], items[:, far[kept]]), axis=-1)
    there: IndexArray = triplets[triplets[:, :, 2] >= 0]
    return there


def _numbers(name: str, values: Any, shape: tuple[int | None, ...], lowest: int = 0) -> IndexArray:
    """Numbers of items, in an array of this shape."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        advice = "End shorter ones with -1" if lowest < 0 else "Correct or leave out the others"
        raise ValueError(f"{name} must have rows of equal length; got {str(values)[:60]}. {advice}.") from error
    if array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("n" if size is None else str(size) for size in shape) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} must have shape ({wanted}), the numbers of items; got {array.shape}.")
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must hold integers, the numbers of items; got an array of {array.dtype}. Number the items first, "
            "as with numpy.unique(..., return_inverse=True)."
        )
    if array.size and int(array.min()) < lowest:
        end = ", or -1 after the last item of a row" if lowest < 0 else ""
        raise ValueError(f"{name} must hold numbers >= 0{end}; got {int(array.min())}.")
    return array.astype(np.intp, copy=False)


def _check_different(name: str, items: IndexArray) -> None:
    """Refuse a row in which an item occurs twice."""
    ordered = np.sort(items, axis=1)
    twice = np.flatnonzero(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1))
    if len(twice):
        row = int(twice[0])
        raise ValueError(
            f"{name} must hold different items in each row; got {items[row].tolist()} in row {row}. "
            "Correct or leave out that row."
        )


def _check_rankings(anchors: IndexArray, items: IndexArray) -> None:
    ends = items < 0
    gaps = np.flatnonzero((ends[:, :-1] & ~ends[:, 1:]).any(axis=1))
    if len(gaps):
        row = int(gaps[0])
        raise ValueError(f"ranked must have -1 only after the last item of a row; row {row} is {items[row].tolist()}.")
    _check_different("ranked", items)
    itself = np.flatnonzero((items == anchors[:, None]).any(axis=1))
    if len(itself):
        row = int(itself[0])
        raise ValueError(
            f"ranked must not hold the query itself; got {anchors[row]} in row {row}, {items[row].tolist()}. "
            "Leave it out."
        )
