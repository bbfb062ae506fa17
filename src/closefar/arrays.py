"""The kinds of array in type annotations, the way between NumPy and other array libraries, and the threads of BLAS."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

__all__ = ["LEGS", "TINY", "TURNED", "Array", "BoolArray", "FloatArray", "IndexArray", "as_float64", "engine_of"]
__all__ += ["is_dask", "is_foreign", "is_in_partitions", "is_indexed", "is_mapped", "is_on_gpu", "is_source"]
__all__ += ["is_tensor", "like", "numbered", "release", "shared_with_torch", "sums_by", "take_rows", "to_numpy"]
__all__ += ["threads_at_most", "threads_for", "whole_numbers"]

# An array of any library that array-api-compat knows: NumPy, torch, CuPy, array-api-strict.
Array = Any

# Stands for zero in a denominator: quotients stay finite.
TINY = 1e-300

# The points of both legs of a triplet and of a quadruplet, (n, 3, d) and (n, 4, d), the near leg first; and the order
# of the points if such a comparison is turned round.
LEGS = {3: ((0, 1), (0, 2)), 4: ((0, 1), (2, 3))}
TURNED = {3: [0, 2, 1], 4: [2, 3, 0, 1]}

_MOST_GAPS = 4  # for each id

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IndexArray = NDArray[np.intp]


def is_foreign(values: Any) -> bool:
    """Whether this is an array of another library that fits run in: torch, CuPy or array-api-strict.

    Those of others (JAX, Dask) can't be written in place, and are copied to NumPy.
    """
    if not compat.is_array_api_obj(values):
        return False
    is_strict = compat.is_array_api_strict_namespace(compat.array_namespace(values))
    return bool(is_strict or compat.is_torch_array(values) or compat.is_cupy_array(values))


def is_dask(values: Any) -> bool:
    """Whether this is a dask array, frame or series, which is computed later, and elsewhere."""
    kind = type(values)
    is_lazy = hasattr(kind, "__dask_graph__") and hasattr(kind, "ndim")  # xarray's may be lazy, too, but are not dask's
    return is_lazy and any(base.__module__.split(".")[0] in ("dask", "dask_expr") for base in kind.__mro__)


def is_tensor(values: Any) -> bool:
    """Whether this is a tensor of torch."""
    return bool(compat.is_torch_array(values))


def shared_with_torch(values: Any) -> Any:
    """Return an array of CuPy as a tensor that shares its memory, if there is a torch for that; others as they are."""
    if not compat.is_cupy_array(values) or find_spec("torch") is None:
        return values
    import torch

    return torch.from_dlpack(values) if torch.cuda.is_available() else values


def is_on_gpu(values: Any) -> bool:
    """Whether this is an array in the memory of a GPU, where operations must be few and large."""
    if compat.is_torch_array(values):
        return bool(values.device.type != "cpu")
    return bool(compat.is_cupy_array(values))


def engine_of(values: Array) -> str:
    """The library of an array, and the device that it is on, in words."""
    if compat.is_torch_array(values):
        return f"torch on {'the CPU' if values.device.type == 'cpu' else values.device}"
    if compat.is_cupy_array(values):
        return f"CuPy on cuda:{values.device.id}"
    return "NumPy" if compat.is_numpy_array(values) else "array-api-strict"


def is_mapped(values: Any) -> bool:
    """Whether this is a memory map, or a view of one, that no copy of changed pages belongs to."""
    while isinstance(values, np.ndarray):
        if isinstance(values, np.memmap):
            return values.mode in ("r", "r+")
        values = values.base
    return False


def release(values: Any) -> None:
    """Give back the pages of a memory map: those that were read count as memory in use, and can be read again."""
    while isinstance(values, np.ndarray):
        values = values.base
    if isinstance(values, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        values.madvise(mmap.MADV_DONTNEED)


def like(reference: Array, values: NDArray[Any]) -> Array:
    """Return these numbers in the library, and on the device, of another array."""
    if compat.is_numpy_array(reference):
        return values
    # A copy: torch shares no memory that is read-only or runs backwards.
    return compat.array_namespace(reference).asarray(np.array(values, order="C"), device=compat.device(reference))


def to_numpy(values: Array) -> NDArray[Any]:
    """Return an array of any library as NumPy's."""
    if compat.is_torch_array(values):
        values = values.detach().cpu()
        return np.asarray(values.float() if str(values.dtype) == "torch.bfloat16" else values)  # NumPy has no such type
    return np.asarray(compat.to_device(values, "cpu") if compat.is_cupy_array(values) else values)


def numbered(ids: NDArray[Any]) -> tuple[IndexArray, int]:
    """Return which of the different ids, in their order, each one is, and how many there are."""
    if ids.size and ids.dtype.kind == "i" and ids.dtype.itemsize >= 4:
        lowest, highest = int(ids.min()), int(ids.max())
        if highest - lowest < _MOST_GAPS * ids.size:  # without sorting
            is_there = np.zeros(highest - lowest + 1, dtype=bool)
            is_there[ids - lowest] = True
            numbers = np.cumsum(is_there) - 1
            return numbers[ids - lowest], int(numbers[-1]) + 1
    different, found = np.unique(ids, return_inverse=True)
    return found.reshape(ids.shape), len(different)


def is_source(values: Any) -> bool:
    """Whether these are rows that are no array: they have a `shape`, and some can be taken (`take_rows`)."""
    return hasattr(values, "take_rows")


def is_indexed(values: Any) -> bool:
    """Whether these are pairs of points by index: they have `points` and an `index` of them."""
    return hasattr(values, "points") and hasattr(values, "index")


def is_in_partitions(values: Any) -> bool:
    """Whether these are rows in the partitions of a cluster: they have `refs` of them."""
    return hasattr(values, "refs") and hasattr(values, "cluster")


def take_rows(values: Array, where: IndexArray) -> Array:
    """Return some rows of an array of any library, or of a source."""
    if is_source(values):
        return values.take_rows(where)
    return compat.array_namespace(values).take(values, like(values, where), axis=0)


def as_float64(values: Array) -> Array:
    """Return the array in double precision, itself where it is that already."""
    xp = compat.array_namespace(values)
    return xp.astype(values, xp.float64, copy=False)


def whole_numbers(values: Array) -> Array:
    """Return codes as integers to look up with; handles of some libraries are floats."""
    if compat.is_numpy_array(values):
        return values if values.dtype.kind in "iu" else values.astype(np.intp)
    xp = compat.array_namespace(values)
    return xp.astype(values, xp.int64, copy=False)


# Codes whose sums are products with a matrix of indicators, and entries of it at a time.
_MOST_INDICATED, _INDICATORS = 4096, 1 << 24


def sums_by(codes: Array, n: int, *values: Array) -> FloatArray:
    """Return the sums of each array of values by code 0, ..., n - 1, a line for each; one code need not be given."""
    xp = compat.array_namespace(values[0])
    if n == 1:
        return np.array([[float(xp.sum(each))] for each in values])
    if compat.is_numpy_array(values[0]) or n > _MOST_INDICATED:
        index = to_numpy(whole_numbers(codes))
        return np.array([np.bincount(index, weights=to_numpy(each), minlength=n) for each in values], dtype=np.float64)
    # Where they are, and in the same order each time.
    total, step, numbers = np.zeros((len(values), n)), max(1, _INDICATORS // n), like(codes, np.arange(n))
    size = int(codes.shape[0])
    for start in range(0, size, step):
        part = slice(start, min(start + step, size))
        indicators = xp.astype(codes[part][None, :] == numbers[:, None], values[0].dtype)
        total += to_numpy(xp.stack([each[part] for each in values]) @ indicators.T)
    return total


# ---------------------------------------------------------------------------------------------------------------------
# The number of BLAS threads: as many as the work can share, since threads that wait for each other take time.


# Multiplications in a pass over the data for each thread.
_WORK_OF_THREAD = 1e8


class _Limit:
    """The limit in this process: the lowest of those of all computations, the last of which restores the numbers.

    Numbers are only lowered, so a limit that the user has set holds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[object, int] = {}
        self._before: list[tuple[Any, int]] = []

    @contextmanager
    def at_most(self, number: int) -> Iterator[None]:
        """Use no more BLAS threads than this; the numbers are restored in the end."""
        user = object()
        try:
            with self._lock:
                self._users[user] = number
                if len(self._users) == 1:
                    self._before = [(library, library.num_threads) for library in _libraries()]
                self._apply()
            yield
        finally:  # even of a computation that was interrupted while it entered
            with self._lock:
                self._users.pop(user, None)
                self._apply()
                if not self._users:
                    self._before = []

    def _apply(self) -> None:
        for library, before in self._before:
            wanted = min([before, *self._users.values()])
            if library.num_threads != wanted:
                library.set_num_threads(wanted)


threads_at_most = _Limit().at_most


def threads_for(n_rows: int, n_columns: int) -> AbstractContextManager[None]:
    """Use no more BLAS threads than passes over data of this size can share.

    Within another computation this never raises the number: the lower limit holds.
    """
    return threads_at_most(max(1, int(n_rows * n_columns**2 / _WORK_OF_THREAD)))


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """The BLAS libraries of this process; looking for them takes as long as a small fit."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
