"""Pairs, triplets and quadruplets by index: points once, and which of them each tuple consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, IndexArray, is_dask, is_foreign, is_tensor, like, shared_with_torch, to_numpy
from closefar.judgements.dask_tuples import DaskTuples
from closefar.judgements.frames import names_of_frame
from closefar.judgements.point_array import checked_points
from closefar.judgements.tuple_samples import sample_tuples

__all__ = ["Tuples", "unchecked_tuples"]

_SIZES = (2, 3, 4)
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
        The row numbers of the points of each tuple; it is taken to the device of tensors.  A dask array of shape
        (n, 2) gives `DaskTuples`, whose index stays on the cluster; its points may be a dask array too.

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
        return DaskTuples(points, index) if is_dask(index) else super().__new__(cls)

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
        arrays = ((self._index, other._index), (self._points, other._points))
        return all(left is right or np.array_equal(to_numpy(left), to_numpy(right)) for left, right in arrays)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return unchecked_tuples, (self._points, self._index, self._feature_names)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("Tuples must be copied to become an array; got copy=False.")
        return self._at(self._index).astype(self.dtype if dtype is None else dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        first, second, third = _three_keys(key)
        if is_tensor(self._index) and isinstance(first, list | np.ndarray) and np.ndim(first) == 1:
            first = like(self._index, np.arange(len(self))[first])
        if _is_everything(second) and _is_everything(third):
            selected = self._index[first]
            selects_tuples = isinstance(first, slice) or np.ndim(first) == 1
            return self._with_index(selected) if selects_tuples else self._at(selected)
        if isinstance(third, (slice, int, np.integer)) or (isinstance(first, slice) and isinstance(second, slice)):
            return self._at(self._index[first, second], third)
        return np.asarray(self)[key]

    def take_rows(self, where: IndexArray) -> Tuples:
        """Return the tuples at these indices."""
        return self._with_index(self._index[like(self._index, where)])

    def with_arrays(self, points: Array, index: Array) -> Tuples:
        """Return the same tuples with their arrays in another library, or on another device."""
        return unchecked_tuples(points, index, self._feature_names)

    def _at(self, numbers: IndexArray, columns: Any = slice(None)) -> NDArray[Any]:
        """Some columns of points, by number, in NumPy."""
        found: NDArray[Any] = to_numpy(self._points[:, columns][numbers]).astype(self.dtype, copy=False)
        return found

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


def _three_keys(key: Any) -> tuple[Any, Any, Any]:
    """A subscript as one key for each axis."""
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [place for place, each in enumerate(keys) if each is Ellipsis]
    if len(dots) > 1 or any(each is None for each in keys) or len(keys) - len(dots) > 3:
        raise IndexError(f"Tuples take one subscript for each of their three axes; got {key!r}.")
    missing = [slice(None)] * (3 - len(keys) + len(dots))
    first, second, third = keys[: dots[0]] + missing + keys[dots[0] + 1 :] if dots else keys + missing
    return first, second, third


def _is_everything(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


def _checked_index(index: Any, points: Array) -> Array:
    n_points, index = len(points), shared_with_torch(index)
    if is_tensor(index) and is_tensor(points):
        array: Array = _selecting(index.to(points.device))
    else:
        array = to_numpy(index) if is_foreign(index) else np.asarray(index)
        if array.dtype == object:  # as of pandas' Int64
            array = np.array(array.tolist())
    if array.ndim != 2 or array.shape[1] not in _SIZES:
        raise ValueError(
            f"index must have shape (n, 2), (n, 3) or (n, 4): the row numbers of the points of each tuple; "
            f"got {tuple(array.shape)}."
        )
    is_whole = "int" in str(array.dtype) if is_tensor(array) else array.dtype.kind in "iu"
    if not is_whole:
        raise ValueError(
            f"index must hold integers, the row numbers of points; got an array of {array.dtype}. Convert it to "
            "integers, or number the points first."
        )
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) < n_points):
        place = int(np.argmax(to_numpy((array < 0) | (array >= n_points)).ravel()))
        tuple_number, side = divmod(place, array.shape[1])
        raise ValueError(
            f"index must hold row numbers of the {n_points:,} points, 0 to {n_points - 1}; "
            f"got {int(array[tuple_number, side])} in row {tuple_number}, column {side}."
        )
    if is_tensor(points) and not is_tensor(array):
        return like(points, array.astype(np.int32 if n_points <= _MOST_INT32 else np.int64, copy=False))
    return array


def _selecting(index: Array) -> Array:
    """Whole numbers of other sizes as int64: torch selects with int32 and int64 alone."""
    kind = str(index.dtype).removeprefix("torch.")
    return index.long() if "int" in kind and kind not in ("int32", "int64") else index


def _check_finite(tuples: Tuples) -> None:
    """Refuse NaN and infinity in points that occur."""
    points, index = tuples.points, tuples.index
    if is_tensor(points):
        if bool((points.min(dim=1).values - points.max(dim=1).values).isfinite().all()) if len(points) else True:
            return
        points, index = to_numpy(points), to_numpy(index)
    if points.dtype.kind != "f":
        return
    step = max(1, _CHECKED_VALUES // points.shape[1])
    starts = range(0, len(points), step)
    is_bad = np.concatenate(
        [np.zeros(0, dtype=bool), *(~np.isfinite(points[start : start + step]).all(axis=1) for start in starts)]
    )
    if not is_bad.any():
        return
    for start in range(0, len(index), _CHECKED_VALUES):
        bad = np.flatnonzero(is_bad[index[start : start + _CHECKED_VALUES]].ravel())
        if len(bad):
            row, side = divmod(int(bad[0]), index.shape[1])
            point = int(index[start + row, side])
            column = int(np.argmin(np.isfinite(points[point])))
            name = column if tuples.feature_names is None else repr(tuples.feature_names[column])
            raise ValueError(
                f"points must be finite; point {point}, which occurs in tuple {start + row}, has "
                f"{points[point, column]} in column {name}. Fill it in, or leave out the tuples that it occurs in."
            )
