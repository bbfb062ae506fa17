"""From data to the source of their rows: on the device that a fit computes on, or wherever they are."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array

from closefar.arrays import Array, FloatArray, is_in_partitions, is_indexed, is_mapped, release, to_numpy
from closefar.errors import InvalidValueError, either, setting
from closefar.rows.blocks import BlockRows, Differences, FromOrigin
from closefar.rows.fused import free_for_torch
from closefar.rows.indexed import indexed_rows
from closefar.rows.legs import LegRows, Rows, legs_of
from closefar.rows.partitioned import PartitionedRows, StoredRows
from closefar.rows.source import RowSource, slices
from closefar.rows.streamed import StreamedRows

if TYPE_CHECKING:
    from closefar.judgements import Judgements

# ---------------------------------------------------------------------------------------------------------------------
# Taking data to a device: NumPy arrays, files and pairs by index to a GPU, or back.


_KNOWN = re.compile(r"cpu|cuda(:\d+)?")

_COPIED_BYTES = 1 << 26  # at a time
_WORKSPACE = 1 << 30  # bytes that passes need on the card beside the rows


def check_device(device: Any, *, is_here: bool = True) -> None:
    """Raise an error, with what to do, if this device is unknown or, unless it is that of workers, can't be used."""
    if device is None:
        return
    name = _name(device)
    if name != "cpu" and is_here:
        _check_torch(name)


def on_device(data: Any, device: Any) -> Any:
    """Return data on a device: None is where they are, "cpu", "cuda" or "cuda:1".

    On a GPU, arrays, files and pairs by index become tensors of torch, in the precision that they are stored in.
    """
    if device is None or (isinstance(data, RowSource) and not isinstance(data, BlockRows)):
        return data  # partitions are computed with where they are stored
    name = _name(device)
    if name == "cpu":
        return _on_cpu(data)
    _check_torch(name)
    if not is_indexed(data):
        return _to_torch(data, name)
    index = data.index
    if not is_torch_array(index):  # row numbers take four bytes, if they fit
        is_narrow = len(data.points) <= np.iinfo(np.int32).max
        index = to_numpy(index).astype(np.int32 if is_narrow else np.int64, copy=False)
    _check_room(name, _n_bytes(data.points) + 3 * _n_bytes(index))
    return data.with_arrays(_to_torch(data.points, name), _to_torch(index, name))


def _name(device: Any) -> str:
    name = str(device)
    if _KNOWN.fullmatch(name):
        return name
    rule = either(
        'must be None (where the data is), "cpu", "cuda", or "cuda:1" and so on',
        "must be cpu, cuda, or cuda:1 and so on",
    )
    kind = name.split(":")[0]
    if kind in ("mps", "xpu"):
        lacks = "has no double precision, which proofs need" if kind == "mps" else "is not supported"
        raise InvalidValueError("device", rule, name, f"It {lacks}. Use " + setting(device="cpu") + ".")
    raise InvalidValueError("device", rule, device)


def _check_torch(name: str) -> None:
    """Say why torch can't compute on this GPU, if it can't."""
    if find_spec("torch") is None:
        reason = "torch is not installed. Run pip install 'closefar[gpu]'."
    else:
        import torch

        n = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(name.partition(":")[2] or 0) < n:
            return
        reason = "there is 1 GPU, cuda:0." if n == 1 else f"there are {n} GPUs, cuda:0 to cuda:{n - 1}."
        if n == 0:
            is_for_cpu = torch.version.cuda is None and getattr(torch.version, "hip", None) is None
            no_card = "no GPU was found. Check that nvidia-smi lists a card"
            reason = "this torch was built for the CPU only. Install torch with CUDA" if is_for_cpu else no_card
            reason += ", or use " + setting(device="cpu") + "."
    raise ValueError(setting(device=name) + " can't be used: " + reason)


def _on_cpu(data: Any) -> Any:
    if is_indexed(data):
        points, index = _on_cpu(data.points), _on_cpu(data.index)
        return data if points is data.points and index is data.index else data.with_arrays(points, index)
    if is_torch_array(data):
        return data.cpu()
    return to_numpy(data) if is_cupy_array(data) else data


def _to_torch(data: Any, name: str) -> Array:
    import torch

    if is_torch_array(data):
        is_there = data.device.type == "cuda" and (":" not in name or data.device == torch.device(name))
        if not is_there:
            _check_room(name, data.element_size() * data.numel())
        return data if is_there else data.to(name)
    if is_cupy_array(data):
        return torch.from_dlpack(data).to(name)
    source = _Stored(data) if isinstance(data, BlockRows) else np.asarray(data)
    dtype = torch.float32 if source.dtype == np.float32 else torch.float64
    if source.dtype.kind == "i":
        dtype = getattr(torch, str(source.dtype))
    _check_room(name, _n_bytes(source))
    there = torch.empty(tuple(source.shape), dtype=dtype, device=name)
    for where, part in _parts(source):
        there[where] = torch.from_numpy(part)
    return there


class _Stored:
    """Rows of a source with the shape, and the precision, in which they are copied."""

    def __init__(self, rows: BlockRows) -> None:
        single = rows.in_single() if isinstance(rows, StreamedRows) else None
        self._rows = rows if single is None else single
        self.shape = rows.shape
        self.dtype = np.dtype(np.float64 if single is None else np.float32)

    def __getitem__(self, where: slice) -> Any:
        return to_numpy(self._rows.read(where)).T


def _parts(source: Any) -> Any:
    """Slices of rows, and these rows in memory that torch may use: copied unless it may be theirs."""
    row_bytes = int(np.prod(source.shape[1:])) * source.dtype.itemsize
    for where in slices(source.shape[0], max(1, _COPIED_BYTES // max(row_bytes, 1))):
        yield where, np.require(source[where], requirements=["C", "W"])
        if is_mapped(source):
            release(source)


def _n_bytes(data: Any) -> int:
    size = data.dtype.itemsize if hasattr(data.dtype, "itemsize") else 8
    return int(np.prod(tuple(data.shape))) * int(size)


def _check_room(name: str, needed: int) -> None:
    """Refuse data that do not fit on the card beside what passes need."""
    free = free_for_torch(name)
    if needed + _WORKSPACE > free:
        raise ValueError(
            f"the data must fit on the card: they take {_in_gib(needed)}, and {_in_gib(_WORKSPACE)} for "
            f"computing, but {_in_gib(free)} of {name} are free. Store them as float32, give pairs by "
            "index (closefar.Tuples), spread them over several machines with Dask, or use "
            + setting(device="cpu")
            + "."
        )


def _in_gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:,.1f} GiB"


# ---------------------------------------------------------------------------------------------------------------------
# The rows of data.


def rows_of(data: Any, origin: FloatArray | None = None) -> Rows:
    """Return differences, pairs, pairs by index, rows in partitions or a source as rows; or comparisons.

    Single points are measured from an origin, if one is given; in the difference of a pair it cancels.
    """
    if is_in_partitions(data):
        return _partitioned(data)
    if _are_compared(data):
        return LegRows(legs_of(data), 0, int(data.shape[0]))
    return pair_rows(data, origin)


def pair_rows(data: Any, origin: FloatArray | None = None) -> BlockRows:
    """Return the same, of anything but comparisons: rows that are one difference each."""
    if _are_compared(data):
        raise ValueError(
            f"this needs pairs, which have one difference each; got comparisons of shape {tuple(data.shape)}. "
            "Give pairs (n, 2, d) or differences (n, d)."
        )
    source: BlockRows = _partitioned(data) if is_in_partitions(data) else _rows_here(data)
    has_two_sides = is_indexed(data) or data.ndim == 3 or not getattr(data, "is_single", True)
    return source if origin is None or has_two_sides else FromOrigin(source, origin)


def _rows_here(data: Any) -> BlockRows:
    """Return differences, pairs, pairs by index or a source as rows, in the process that has them in memory."""
    if is_indexed(data):
        return indexed_rows(data.points, data.index)
    if isinstance(data, RowSource) and not isinstance(data, BlockRows):
        raise TypeError(
            f"rows must be readable in blocks to find their coordinates; got {type(data).__name__}. "
            "Derive its class from closefar.rows.BlockRows."
        )
    return data if isinstance(data, BlockRows) else Differences(data)


def _partitioned(data: Any, compared: Any = None, scale: float = 1.0) -> PartitionedRows:
    """The rows of partitions, and after them those of comparisons, whose margins are multiplied by a scale."""
    parts, of_comparisons = [data], _are_compared(data)
    parts += [] if compared is None else [compared]
    to_rows = partial(_rows_of_partition, device=data.device, scale=scale)
    refs = [ref for part in parts for ref in data.cluster.keep(to_rows, part.refs)]
    counts = [count for part in parts for count in part.counts]
    n_compared = len(parts[-1].counts) if of_comparisons or compared is not None else 0
    found = PartitionedRows(data.cluster, refs, counts, data.n_columns, data.device, n_compared)
    found.scale = scale
    return found


def _rows_of_partition(partition: Any, device: Any, scale: float) -> StoredRows:
    data = on_device(partition.data, device)
    if _are_compared(data):
        return StoredRows(LegRows(legs_of(data), 0, int(data.shape[0]), scale))
    return StoredRows(_rows_here(data))


def judged_rows(judgements: Judgements, comparison_noise: float = 1.0) -> Rows:
    """Return the rows of judgements; of pairs with comparisons, the pairs first.

    `comparison_noise` is the noise of comparisons, relative to that of pairs.
    """
    data, scale = judgements.data, 1.0 / comparison_noise
    if is_in_partitions(data):
        return _partitioned(data, getattr(judgements, "compared", None), scale)
    if _are_compared(data):
        return LegRows(legs_of(data), 0, len(judgements), scale)
    pairs = pair_rows(data)
    if judgements.comparisons is None:
        return pairs.at_hand() if isinstance(pairs, Differences) else pairs
    return LegRows.mixed(pairs, legs_of(judgements.comparisons.data), scale)


def _are_compared(data: Any) -> bool:
    """Whether these are triplets or quadruplets."""
    return getattr(data, "ndim", 2) == 3 and int(data.shape[1]) in (3, 4)
