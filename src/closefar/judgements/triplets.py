"""Triplets (a, b, c), "a is closer to b than to c", from other kinds of answers, by the numbers of the items."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from closefar.arrays import IndexArray

__all__ = ["triplets_from_odd_one_out", "triplets_from_ranking"]


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
