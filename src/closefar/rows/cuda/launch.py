"""Launching the kernels: block sizes, a fixed number of slots, powers of two as units, and sums in a fixed order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from closefar.arrays import Array, FloatArray
from closefar.rows.blocks import BlockRows
from closefar.rows.cuda import kernels
from closefar.rows.graph_rows import Ends
from closefar.rows.source import MarginSums, MarginTerms

# ---------------------------------------------------------------------------------------------------------------------
# Rows as kernels read them: two planes of float16 numbers, or as they are stored in single precision.
#
# In planes, z 2^e = high + low has 22 bits in the four bytes of single precision.


# The largest entry becomes at most this: products with the coefficients of a pass, which are at most 1, stay below the
# largest float16 number, 65,504.
_LARGEST = 2.0**14

# Beyond this many times the root mean square of the rows, which is about 1 in unit-free coordinates, the low parts of
# usual entries would be lost among the smallest float16 numbers.
_MOST_RANGE = 2.0**17

_USUAL_RANGE = 2.0**5
_ALIGNED = 8  # columns: the copy engine moves multiples of 16 bytes


@dataclass(frozen=True, eq=False)
class Planes:
    """The high and the low parts of rows times `unit`, each of shape (n, d), with d rounded up.

    `shrunk` is the share by which forms come out too small, since tensor cores truncate.
    """

    high: Array
    low: Array
    unit: float
    n_columns: int
    shrunk: float = 0.0
    _descriptors: dict[Any, Any] = field(default_factory=dict)

    are_planes: ClassVar[bool] = True

    @property
    def array(self) -> Array:
        return self.high

    def first(self, n: int) -> Planes:
        return Planes(self.high[:n], self.low[:n], self.unit, self.n_columns)

    def arguments(self, box: tuple[int, int]) -> tuple[Any, Any, Array]:
        """The first arguments of a kernel: descriptors with which the copy engine reads blocks of this shape."""
        return self._described("high", box), self._described("low", box), self.high

    def _described(self, part: str, box: tuple[int, int]) -> Any:
        from triton.tools.tensor_descriptor import TensorDescriptor

        if (part, box) not in self._descriptors:
            self._descriptors[part, box] = TensorDescriptor.from_tensor(getattr(self, part), list(box))
        return self._descriptors[part, box]


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows as they are stored, of shape (n, d), with a power of two for each column that float16 numbers suit."""

    array: Array
    scales: Array
    shrunk: float = 0.0

    unit: ClassVar[float] = 1.0
    are_planes: ClassVar[bool] = False

    @property
    def n_columns(self) -> int:
        return int(self.array.shape[1])

    def first(self, n: int) -> StoredRows:
        return StoredRows(self.array[:n], self.scales)

    def arguments(self, box: tuple[int, int]) -> tuple[Any, Any, Array]:
        """The first arguments of a kernel."""
        return self.array, self.array, self.scales


def as_stored(array: Array, usual: FloatArray) -> StoredRows | None:
    """The rows of a tensor, given the root mean square of each column; None if some are far larger."""
    import torch

    largest = torch.maximum(array.max(dim=0).values, -array.min(dim=0).values).double().cpu().numpy()
    varies = largest > 0.0
    if np.any(largest[varies] > _MOST_RANGE * usual[varies]):
        return None
    scales = np.ones(len(largest))
    scales[varies] = 2.0 ** np.floor(np.log2(_LARGEST / largest[varies]))
    return StoredRows(array, torch.from_numpy(scales.astype(np.float32)).to(array.device))


def make_planes(source: BlockRows) -> Planes | None:
    """Split rows in two; None if some are so large that float16 numbers can't hold the others precisely."""
    unit = _LARGEST / _USUAL_RANGE
    planes, largest = _split(source, unit)
    if largest <= _USUAL_RANGE:
        return planes if largest > 0.0 else None
    del planes  # before others take its place
    return _split(source, 2.0 ** math.floor(math.log2(_LARGEST / largest)))[0] if largest <= _MOST_RANGE else None


def _split(source: BlockRows, unit: float) -> tuple[Planes, float]:
    """The planes of rows in this unit, and their largest entry, with which the planes may not be valid."""
    import torch

    n, d = source.shape
    width = -(-d // _ALIGNED) * _ALIGNED
    high = torch.zeros(n, width, dtype=torch.float16, device=source.model.device)
    low = torch.zeros_like(high)
    largest = []
    for where, block in source.blocks():
        scaled = block.T * unit
        part = scaled.to(torch.float16)
        high[where, :d] = part
        low[where, :d] = (scaled - part).to(torch.float16)
        largest.append(scaled.abs().max())
    return Planes(high, low, unit, d), float(torch.stack(largest).max()) / unit


FAST, PRECISE, FINEST = 0, 1, 2  # the levels of passes

MOST_COLUMNS = 128
LOW_RANK = 16

# The largest entry of the point in its unit; those of the rows have theirs.
_LARGEST_ENTRY = 2.0**6

_SHORTER = 2.0**-3

_TERM_SLOTS, _TERM_ROWS = 1056, 256


class Sums(NamedTuple):
    """The sums of a pass over rows: loss, slope, curvature, least margin, and the gradient."""

    loss: float
    slope: float
    curvature: float
    least_margin: float
    gradient: FloatArray

    @property
    def are_finite(self) -> bool:
        return bool(math.isfinite(self.loss + self.slope + self.curvature) and np.all(np.isfinite(self.gradient)))

    def scaled(self, share: float) -> MarginSums:
        """The sums if each row has this weight, with the signs of derivatives."""
        return MarginSums(
            self.loss * share, self.slope * share, self.curvature * share, self.least_margin, -share * self.gradient
        )


@dataclass(frozen=True)
class Launch:
    """The shape of a launch, which suits the number of columns; slots are a constant, not a property of the card."""

    rows: int  # in a block
    warps: int
    stages: int
    slots: int

    @classmethod
    def of(cls, width: int, rank: int, level: int, *, are_planes: bool = True) -> Launch:
        if not are_planes:
            return cls(rows=32 if width <= 32 else 64, warps=2 if width <= 32 else 8, stages=2, slots=528)
        if width <= 32:
            return cls(rows=32, warps=2, stages=4, slots=2112)
        if width <= 64:
            return cls(rows=128, warps=4, stages=3, slots=528)
        if rank <= LOW_RANK:
            return cls(rows=128, warps=8, stages=3, slots=528 if level > 0 else 264)
        return cls(rows=128, warps=8, stages=3 if level > 0 else 4, slots=264 if level > 0 else 132)


def _padded(size: int) -> int:
    """The power of two that blocks of this size are padded to."""
    return max(16, 1 << (size - 1).bit_length())


@dataclass(frozen=True, eq=False)
class Pass:
    """A pass at a symmetric matrix, or at a factor of up to 16 columns; its coefficients are at most `largest`."""

    rows: Planes | StoredRows
    signs: Array
    weights: Array | None
    point: FloatArray
    threshold: float
    kind: int
    largest: float
    level: int

    def run(self) -> Sums:
        """Run the pass, and wait for its sums."""
        sums, totals, scale = self.start()
        width, (d, rank) = _padded(len(self.point)), self.point.shape
        found = _to_host(sums, totals)
        loss, slope, curvature, least_margin = found[:4].tolist()
        return Sums(loss, slope, curvature, least_margin, found[4:].reshape(width, -1)[:d, :rank] * scale)

    def start(self) -> tuple[Array, Array, float]:
        """Start the pass; return the sums of each slot, the gradient and its scale, without waiting for them."""
        import torch

        rows, point = self.rows, self.point
        n, (d, rank), place = rows.array.shape[0], point.shape, rows.array.device
        width, of_factor = _padded(d), rank != d
        columns = LOW_RANK if of_factor else width
        launch = Launch.of(width, columns, self.level, are_planes=rows.are_planes)
        unit = _power_below(_LARGEST_ENTRY / max(float(np.abs(point).max(initial=0.0)), 1e-30))
        # Coefficients multiply rows, which are at most 2^14 in their unit, or projections of rows, which may be longer.
        coefficient_unit = _power_below(1.0 / self.largest) * (_SHORTER / unit if of_factor else 1.0)
        given = np.zeros((width, columns), dtype=np.float32)
        given[:d, :rank] = point * unit
        sums = torch.empty(launch.slots, 4, dtype=torch.float64, device=place)
        totals = torch.empty(launch.slots, width * columns, dtype=torch.float32, device=place)
        kernels.pass_kernel[(launch.slots,)](
            *rows.arguments((launch.rows, width)),
            self.signs,
            sums if self.weights is None else self.weights,
            torch.from_numpy(given).to(place),
            float(self.threshold),
            float(self.threshold - np.float32(self.threshold)),
            sums,
            totals,
            n,
            -(-n // (launch.slots * launch.rows)) * launch.rows,
            1.0 / (rows.unit**2 * (unit**2 if of_factor else unit)),
            rows.shrunk,
            coefficient_unit,
            1.0,
            **{
                "d": d,
                "D": width,
                "K": columns,
                "B": launch.rows,
                "STAGES": launch.stages,
                "ARE_PLANES": rows.are_planes,
            },
            **{"KIND": self.kind, "LEVEL": self.level, "OF_FACTOR": of_factor, "WEIGHTED": self.weights is not None},
            **{"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True},
        )
        scale = 1.0 / (rows.unit**2 * coefficient_unit * (unit if of_factor else 1.0))
        return sums, totals.sum(0, dtype=torch.float64), scale


def run_graph(
    points: Array, matrix: Array, ends: Ends, signs: Array, weights: Array | None, threshold: float, kind: int
) -> Sums:
    """Run one pass over pairs of points by index; points are in single precision, M is in double precision."""
    import torch

    n, width = points.shape
    exact = points.to(torch.float64)
    images = exact @ matrix
    lengths = (images * exact).sum(1).to(torch.float32)
    sums = torch.empty(n, 4, dtype=torch.float64, device=points.device)
    pulled = torch.empty_like(points)
    kernels.graph_kernel[(n,)](
        points,
        images.to(torch.float32),
        lengths,
        ends.starts,
        ends.others,
        signs,
        sums if weights is None else weights,
        float(threshold),
        sums,
        pulled,
        WIDTH=width,
        B=32,
        KIND=kind,
        WEIGHTED=weights is not None,
        STAGES=2,
        num_warps=4,
        num_stages=2,
        enable_fp_fusion=True,
    )
    gradient = exact.T @ pulled.to(torch.float64)
    found = _to_host(sums, gradient.ravel())
    loss, slope, curvature = (0.5 * found[:3]).tolist()  # each pair was met from either side
    return Sums(loss, slope, curvature, float(found[3]), found[4:].reshape(width, width))


def run_terms(
    squared: Array, signs: Array, weights: Array | None, threshold: float, kind: int, order: int
) -> MarginTerms:
    """Evaluate the likelihood of all rows at their squared distances, in double precision."""
    import torch

    n = len(squared)
    sums = torch.empty(_TERM_SLOTS, 4, dtype=torch.float64, device=squared.device)
    slopes = torch.empty_like(squared)
    curvatures = torch.empty_like(squared) if order > 1 else None
    kernels.terms_kernel[(_TERM_SLOTS,)](
        squared,
        signs,
        sums if weights is None else weights,
        torch.tensor([threshold, 1.0 / n], dtype=torch.float64, device=squared.device),
        sums,
        slopes,
        sums if curvatures is None else curvatures,
        n,
        -(-n // (_TERM_SLOTS * _TERM_ROWS)) * _TERM_ROWS,
        B=_TERM_ROWS,
        KIND=kind,
        ORDER=order,
        WEIGHTED=weights is not None,
        num_warps=4,
        enable_fp_fusion=True,
    )
    loss, slope, curvature, least_margin = _to_host(sums).tolist()
    return MarginTerms(loss, slope, curvature, least_margin, slopes, curvatures)


def _to_host(sums: Array, *rest: Array) -> FloatArray:
    """The sums over slots, the least of the last column, and other numbers: one copy."""
    import torch

    found: FloatArray = torch.cat([sums[:, :3].sum(0), sums[:, 3].min()[None], *rest]).cpu().numpy()
    return found


def _power_below(value: float) -> float:
    return 2.0 ** math.floor(math.log2(value))
