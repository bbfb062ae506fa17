"""Pairs, triplets and quadruplets by index: points once, and which of them each tuple consists of."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from closefar import arrays
from closefar.arrays import Array, FloatArray, IndexArray

# ---------------------------------------------------------------------------------------------------------------------
# Frames of pandas, polars and others, by what they have in common: columns with names and types.


_NUMBER_KINDS = "biuf"


def names_of_frame(frame: Any) -> tuple[str, ...] | None:
    """The names of the columns, if this is a frame and all of them are strings."""
    names = tuple(getattr(frame, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def check_frame_columns(frame: Any) -> None:
    """Name the first column of a frame that does not hold numbers."""
    if not (hasattr(frame, "columns") and hasattr(frame, "dtypes")):
        return
    for index, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        if getattr(dtype, "kind", "-") in _NUMBER_KINDS or str(dtype) in ("Boolean", "Null"):
            continue
        if hasattr(dtype, "is_numeric") and dtype.is_numeric():
            continue
        column = np.asarray(frame.iloc[:, index] if hasattr(frame, "iloc") else frame[name])
        if column.dtype.kind == "O" and all(isinstance(value, (int, float, np.number)) for value in column):
            continue
        example = f" (first value {column[0]!r})" if len(column) else ""
        raise ValueError(
            f"columns must hold numbers; column {name!r} has type {dtype}{example}. "
            "Encode it (for instance one-hot) or leave it out."
        )


# ---------------------------------------------------------------------------------------------------------------------
# Points that pairs refer to by index: an array of numbers, each point once.


def checked_points(points: Any) -> Array:
    """Return points as an array of shape (n_points, d): itself, a memory map, a tensor, or a copy of anything else."""
    check_frame_columns(points)
    array: Array
    points = arrays.shared_with_torch(points)
    if arrays.is_tensor(points):
        points = checked_tensor(points, "points")
        array = points if points.is_floating_point() or points.is_complex() else points.double()
    elif isinstance(points, np.ndarray) and points.dtype != object:
        array = np.asarray(points)  # also of a memory map, which stays one
    else:
        array = check_array(
            arrays.to_numpy(points) if arrays.is_foreign(points) else points,
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
            input_name="points",
        )
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"points must have shape (n_points, d), with at least one column; got {tuple(array.shape)}.")
    if array.is_complex() if arrays.is_tensor(array) else array.dtype.kind not in _NUMBER_KINDS:
        raise ValueError(f"points must hold real numbers; got an array of {array.dtype}. Convert it to floats.")
    return array


def checked_tensor(values: Any, name: str) -> Any:
    """Return a tensor without its gradients, which passes do not keep; refuse one that is sparse, or elsewhere."""
    if str(values.layout) != "torch.strided":
        raise ValueError(f"{name} must be a dense tensor; got one of {values.layout}. Convert it with to_dense().")
    if values.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{name} must be on the processor or on a CUDA device; got a tensor on {values.device}. Copy it with cpu()."
        )
    return values.detach()


# ---------------------------------------------------------------------------------------------------------------------
# Random tuples of points, each different, without a list of all.


_SIZES = (2, 3, 4)  # points of pairs, triplets and quadruplets


def sample_tuples(n_points: int, n: int, size: int, random_state: Any) -> IndexArray:
    """Draw n different pairs, triplets or quadruplets of row numbers: an array of shape (n, size)."""
    if size not in _SIZES:
        raise ValueError(f"size must be 2 (pairs), 3 (triplets) or 4 (quadruplets); got {size!r}.")
    n_possible = _count(n_points, int(size))
    if not isinstance(n, numbers.Integral) or isinstance(n, bool) or not 1 <= n <= n_possible:
        raise ValueError(
            f"n must be a whole number from 1 to {n_possible:,}, the number of different tuples of {size} of "
            f"{n_points:,} points; got {n!r}. Draw fewer, or pass more points."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    found: IndexArray = np.empty((0, int(size)), dtype=np.intp)
    while len(found) < n:
        n_more = max(2 * (int(n) - len(found)), 1000)
        drawn = _in_order(rng.integers(0, n_points, (n_more, int(size))))
        found = _different(np.vstack([found, drawn]))
    return found[: int(n)]


def _count(n_points: int, size: int) -> int:
    pairs = math.comb(n_points, 2)
    return {2: pairs, 3: n_points * math.comb(max(n_points - 1, 0), 2), 4: math.comb(n_points, 4) * 3}[size]


def _in_order(drawn: IndexArray) -> IndexArray:
    """Those without repeated points, with points that are judged alike in increasing order."""
    size = drawn.shape[1]
    in_order = np.sort(drawn, axis=1)
    drawn = drawn[np.all(in_order[:, 1:] != in_order[:, :-1], axis=1)]
    if size == 2:
        return np.sort(drawn, axis=1)
    if size == 3:
        return np.column_stack([drawn[:, 0], np.sort(drawn[:, 1:], axis=1)])
    pairs = np.sort(drawn.reshape(-1, 2, 2), axis=2)
    is_turned = pairs[:, 0, 0] > pairs[:, 1, 0]
    turned: IndexArray = np.where(is_turned[:, None, None], pairs[:, ::-1], pairs).reshape(-1, 4)
    return turned


def _different(drawn: IndexArray) -> IndexArray:
    """Each once, in the order of their first occurrence."""
    order = np.lexsort(drawn.T)
    is_new = np.any(drawn[order[1:]] != drawn[order[:-1]], axis=1)
    return np.take(drawn, np.sort(np.append(order[:1], order[1:][is_new])), axis=0)


# ---------------------------------------------------------------------------------------------------------------------
# Tuples by index whose index is a dask array: points once per worker, and the index in partitions.


class DaskTuples:
    """Pairs, triplets or quadruplets of points, given by a dask array of row numbers; `Tuples` of such an index.

    Parameters
    ----------
    points : array or frame of shape (n_points, d), or dask array
        Each point once.  They are sent to each worker that needs them, once; those of a dask array are computed there.
    index : dask array or frame of int, of shape (n, 2), (n, 3) or (n, 4)
        The row numbers of the points of each tuple.

    Attributes
    ----------
    points : array of shape (n_points, d), or a `dask.delayed.Delayed` of one
    index : dask array
    feature_names : tuple of str, optional
    shape : tuple
        The number of tuples may be NaN, where dask does not know it.
    """

    def __init__(self, points: Any, index: Any) -> None:
        self.feature_names = names_of_frame(points)
        self.points, n_points, n_columns = _points_of(points)
        index = index.to_dask_array() if hasattr(index, "divisions") else index
        if index.ndim != 2 or index.shape[1] not in _SIZES or index.dtype.kind not in "iu":
            raise ValueError(
                "an index on a cluster must hold integers, the row numbers of the points of each tuple, in a dask "
                f"array of shape (n, 2), (n, 3) or (n, 4); got {index.dtype} of shape {index.shape}."
            )
        self.index = index
        self.n_points = n_points
        self.shape = (index.shape[0], int(index.shape[1]), n_columns)

    ndim = 3

    def __repr__(self) -> str:
        return f"DaskTuples({self.index.numblocks[0]:,} partitions, {self.n_points} points, {self.shape[2]} columns)"


def _points_of(points: Any) -> tuple[Any, Any, int]:
    """The points as an array or as a Delayed of one, how many there are, and their number of columns."""
    if not arrays.is_dask(points):
        array = checked_points(points)
        return array, len(array), int(array.shape[1])
    if hasattr(points, "divisions"):
        points = points.to_dask_array()
    if points.ndim != 2 or points.dtype.kind not in "biuf":
        raise ValueError(
            f"points must hold real numbers in shape (n_points, d); got {points.dtype} of shape {points.shape}."
        )
    import dask

    whole = dask.delayed(np.block)(points.to_delayed(optimize_graph=False).tolist())
    return whole, points.shape[0], int(points.shape[1])


_CHECKED_VALUES = 1 << 20  # at a time
_MOST_INT32 = np.iinfo(np.int32).max


class Tuples:
    """Tuples of points, given by index: they act as an array of shape (n, k, d) that is never formed.

    A slice, an index array or a mask selects tuples, which share the points; other subscripts,
    such as ``[0]`` or ``[:, 0]``, and `numpy.asarray` form the array that they select.  Both arrays
    are used as they are, without a copy, and can't be changed through this object.

    Parameters
    ----------
    points : array or frame of shape (n_points, d)
        Each point once: NumPy, pandas, polars, a memory map, or a tensor of torch.  Points that occur must be finite.
    index : array of int, of shape (n, 2), (n, 3) or (n, 4)
        The row numbers of the points of each tuple; it is taken to the device of tensors.  A dask array gives
        `DaskTuples`, whose index stays on the cluster; its points may be a dask array too.

    Attributes
    ----------
    points : array of shape (n_points, d)
    index : array of shape (n, k)
    feature_names : tuple of str, optional
        The column names of a frame.

    Examples
    --------
    >>> import closefar as cf
    >>> points = [[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]
    >>> pairs = cf.Tuples(points, [[0, 1], [1, 2]])
    >>> pairs.shape, len(pairs[:1])
    ((2, 2, 2), 1)
    >>> (pairs[:, 0] - pairs[:, 1]).tolist()
    [[-2.0, 1.0], [1.0, -1.0]]
    """

    __slots__ = ("_feature_names", "_index", "_points")

    def __new__(cls, points: Any, index: Any, **others: Any) -> Any:
        return DaskTuples(points, index) if arrays.is_dask(index) else super().__new__(cls)

    def __init__(self, points: Any, index: Any) -> None:
        self._feature_names = names_of_frame(points)
        self._points = _read_only(checked_points(points))
        self._index = _read_only(_checked_index(index, self._points))
        _check_finite(self)

    @classmethod
    def sample(cls, points: Any, n: int, *, size: int = 2, random_state: Any = None) -> Tuples:
        """Draw n different tuples of points at random, of all that can be judged, which are never formed.

        No tuple has the same point twice, and the order of the points that are judged alike does not make another one:
        those of a pair, the two that a triplet compares with its first, and both pairs of a quadruplet.

        Parameters
        ----------
        points : array or frame of shape (n_points, d)
        n : int
        size : {2, 3, 4}, default=2
            The number of points of each tuple: 2 for pairs, 3 for triplets, 4 for quadruplets.
        random_state : int, RandomState or None, default=None

        Examples
        --------
        >>> import numpy as np, closefar as cf
        >>> points = np.random.default_rng(0).normal(size=(1000, 3))
        >>> cf.Tuples.sample(points, 20_000, random_state=0)
        Tuples(20,000 tuples of 2, 1,000 points, 3 columns)
        """
        names, array = names_of_frame(points), _read_only(checked_points(points))
        found = unchecked_tuples(array, sample_tuples(len(array), n, size, random_state), names)
        _check_finite(found)
        return found

    @property
    def points(self) -> Array:
        return self._points

    @property
    def index(self) -> Array:
        return self._index

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self._feature_names

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self._index), int(self._index.shape[1]), int(self._points.shape[1])

    @property
    def ndim(self) -> int:
        return 3

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if the points are stored in single precision; otherwise float64."""
        return np.dtype(np.float32 if str(self._points.dtype).endswith("float32") else np.float64)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        n, k, d = self.shape
        return f"Tuples({n:,} tuples of {k}, {len(self._points):,} points, {d} columns)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tuples):
            return NotImplemented
        if self._feature_names != other._feature_names:
            return False
        both = ((self._index, other._index), (self._points, other._points))
        return all(
            left is right or np.array_equal(arrays.to_numpy(left), arrays.to_numpy(right)) for left, right in both
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return unchecked_tuples, (self._points, self._index, self._feature_names)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Tuples must be copied to become an array; got copy=False.")
        return self._at(self._index).astype(self.dtype if dtype is None else dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        first, *others = key if isinstance(key, tuple) else (key,)
        if arrays.is_tensor(self._index) and isinstance(first, list | np.ndarray) and np.ndim(first) == 1:
            first = arrays.like(self._index, np.arange(len(self))[first])
        is_slice = isinstance(first, slice)
        if (is_slice or np.ndim(first) == 1) and all(each is Ellipsis or _is_everything(each) for each in others):
            return self._with_index(self._index[first])
        if is_slice or isinstance(first, int | np.integer):
            return self._at(self._index[first])[(slice(None), *others) if is_slice else tuple(others)]
        return np.asarray(self)[key]

    def take_rows(self, where: IndexArray) -> Tuples:
        """Return the tuples at these indices."""
        return self._with_index(self._index[arrays.like(self._index, where)])

    def with_arrays(self, points: Array, index: Array) -> Tuples:
        """Return the same tuples with their arrays in another library, or on another device."""
        return unchecked_tuples(points, index, self._feature_names)

    def _at(self, numbers: IndexArray) -> NDArray[Any]:
        """Points by number, in NumPy."""
        return arrays.to_numpy(self._points[numbers]).astype(self.dtype, copy=False)

    def _with_index(self, index: Array) -> Tuples:
        return unchecked_tuples(self._points, index, self._feature_names)


def unchecked_tuples(points: Array, index: Array, feature_names: tuple[str, ...] | None) -> Tuples:
    """Return tuples of arrays that were checked before, or are checked elsewhere."""
    tuples = object.__new__(Tuples)
    tuples._points, tuples._index, tuples._feature_names = _read_only(points), _read_only(index), feature_names
    return tuples


def _read_only(array: Array) -> Array:
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _is_everything(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


def _checked_index(index: Any, points: Array) -> Array:
    n_points, index = len(points), arrays.shared_with_torch(index)
    if arrays.is_tensor(index) and arrays.is_tensor(points):
        array: Array = _selecting(index.to(points.device))
    else:
        array = arrays.to_numpy(index) if arrays.is_foreign(index) else np.asarray(index)
        if array.dtype == object:  # as of pandas' Int64
            array = np.array(array.tolist())
    if array.ndim != 2 or array.shape[1] not in _SIZES:
        raise ValueError(
            f"index must have shape (n, 2), (n, 3) or (n, 4): the row numbers of the points of each tuple; "
            f"got {tuple(array.shape)}."
        )
    is_whole = "int" in str(array.dtype) if arrays.is_tensor(array) else array.dtype.kind in "iu"
    if not is_whole:
        raise ValueError(
            f"index must hold integers, the row numbers of points; got an array of {array.dtype}. Convert it to "
            "integers, or number the points first."
        )
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) < n_points):
        place = int(np.argmax(arrays.to_numpy((array < 0) | (array >= n_points)).ravel()))
        tuple_number, side = divmod(place, array.shape[1])
        raise ValueError(
            f"index must hold row numbers of the {n_points:,} points, 0 to {n_points - 1}; "
            f"got {int(array[tuple_number, side])} in row {tuple_number}, column {side}."
        )
    if arrays.is_tensor(points) and not arrays.is_tensor(array):
        return arrays.like(points, array.astype(np.int32 if n_points <= _MOST_INT32 else np.int64, copy=False))
    return array


def _selecting(index: Array) -> Array:
    """Whole numbers of other sizes as int64: torch selects with int32 and int64 alone."""
    kind = str(index.dtype).removeprefix("torch.")
    return index.long() if "int" in kind and kind not in ("int32", "int64") else index


def _check_finite(tuples: Tuples) -> None:
    """Refuse NaN and infinity in points that occur."""
    points, index = tuples.points, tuples.index
    if arrays.is_tensor(points):
        if bool((points.min(dim=1).values - points.max(dim=1).values).isfinite().all()) if len(points) else True:
            return
        points, index = arrays.to_numpy(points), arrays.to_numpy(index)
    if points.dtype.kind != "f":
        return
    step = max(1, _CHECKED_VALUES // points.shape[1])
    parts = [~np.isfinite(points[start : start + step]).all(axis=1) for start in range(0, len(points), step)]
    is_bad = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
    if not (is_bad.any() and is_bad[index].any()):
        return
    row, side = divmod(int(np.argmax(is_bad[index])), index.shape[1])
    point = int(index[row, side])
    column = int(np.argmin(np.isfinite(points[point])))
    name = column if tuples.feature_names is None else repr(tuples.feature_names[column])
    raise ValueError(
        f"points must be finite; point {point}, which occurs in tuple {row}, has {points[point, column]} in column "
        f"{name}. Fill it in, or leave out the tuples that it occurs in."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Triplets (a, b, c), "a is closer to b than to c", from classes and other kinds of answers, by item numbers.


_PER_POINT = 10  # triplets by default
_DISTANCES_AT_ONCE = 1 << 22  # 32 MB


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
    array: FloatArray = arrays.to_numpy(checked_points(points)).astype(np.float64)
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
    """Draw this many different numbers below its capacity for each group: the groups, and the numbers."""
    drawn = [rng.choice(n, k, replace=False) for n, k in zip(capacity.tolist(), wanted.tolist(), strict=True)]
    return np.repeat(np.arange(len(capacity)), wanted), np.concatenate(drawn)


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
    is_odd = np.arange(3) == column[:, None]
    others, last = items[~is_odd].reshape(-1, 2), items[is_odd]
    return np.stack([np.column_stack([pair, last]) for pair in (others, others[:, ::-1])], axis=1).reshape(-1, 3)


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
        Only the first `n_ranked` items are ranked; the others are farther, in no order.  1 is the answer to "which of
        these is nearest?".  All by default.

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
    return triplets[triplets[:, :, 2] >= 0]


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
