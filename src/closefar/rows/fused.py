"""Fused passes on NVIDIA GPUs: where they run, rows as kernels read them, launches, and sums in a fixed order.

Rows that are in tensors on a GPU get `FusedPasses` where the card, the libraries and the number of columns allow; all
other operations stay those of the array API.  The variable CLOSEFAR_GPU (fused or plain) turns fused passes off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from closefar.arrays import Array, FloatArray, is_tensor
from closefar.noise import NOISES, Noise
from closefar.rows.source import MarginSums, MarginTerms

# ---------------------------------------------------------------------------------------------------------------------
# Where fused passes run.


VARIABLE = "CLOSEFAR_GPU"
MOST_COLUMNS = 128  # a block of rows and the matrix have to fit into the shared memory of a multiprocessor

_LEAST_CAPABILITY = (9, 0)  # of the cards that the kernels were written for


def why_not_here(model: Array) -> str:
    """Why there are no kernels for arrays like this one: the variable, the libraries, the card; empty if there are."""
    asked = os.environ.get(VARIABLE, "").lower()
    if asked not in ("", "fused", "plain"):
        raise ValueError(f"the variable {VARIABLE} must be fused or plain; got {asked!r}.")
    if asked == "plain":
        return f"{VARIABLE}=plain"
    if not is_tensor(model):
        return "fused kernels need torch"
    if find_spec("triton") is None:
        return "fused kernels need Triton, which is not installed"
    import torch

    if torch.version.cuda is None or torch.cuda.get_device_capability(model.device) < _LEAST_CAPABILITY:
        return "fused kernels need an NVIDIA H100 or a later card"
    return _why_no_compiler()


def why_not_fused(model: Array, n_columns: int) -> str:
    """Why rows of so many columns have no fused passes; empty if they have."""
    return f"fused kernels have up to {MOST_COLUMNS} columns" if n_columns > MOST_COLUMNS else why_not_here(model)


@cache
def _why_no_compiler() -> str:
    """Why Triton can't compile kernels here: it needs a C compiler, for one; empty if it can."""
    from triton.runtime import driver

    try:
        driver.active.get_current_target()
    except Exception as error:  # of Triton, or of a compiler that it calls: of any kind
        first_line = str(error).strip().partition("\n")[0][:200]
        return f"Triton can't compile fused kernels: {type(error).__name__}: {first_line}"
    return ""


def free_for_torch(device: Any) -> int:
    """The bytes on a card that torch may use: those that are free, and those that it holds without using them."""
    import torch

    unused = int(torch.cuda.memory_reserved(device)) - int(torch.cuda.memory_allocated(device))
    return int(torch.cuda.mem_get_info(device)[0]) + unused


# The noises that have a kernel, by name; CURVED is a product with the Hessian, whose second derivatives are given.
KINDS = {"logistic": 0, "normal": 1, "laplace": 2, "hypsecant": 3}
CURVED = 4  # beside the numbers of noises


def has_kernel(noise: Noise) -> bool:
    """Whether there are kernels for this noise: for those that come with the package, not for the user's own."""
    return type(noise) is type(NOISES.get(noise.name))


class Blocks(Protocol):
    """Rows that are read in blocks, each row a column, in double precision."""

    n_rows: int
    n_columns: int

    @property
    def model(self) -> Array: ...

    @property
    def as_stored(self) -> AsStored | None: ...

    def read(self, where: slice) -> Array: ...

    def blocks(self) -> Iterator[tuple[slice, Array]]: ...


class AsStored(NamedTuple):
    """Rows as they are stored: an array of shape (n, d), the map to coordinates, and the usual size of each column."""

    array: Array
    transform: FloatArray
    scales: FloatArray


# ---------------------------------------------------------------------------------------------------------------------
# Rows as kernels read them: two planes of float16 numbers, or as they are stored in single precision.
#
# In planes, z 2^e = high + low has 22 bits in the four bytes of single precision.


# The largest entry becomes at most this: products with the coefficients of a pass, which are at most 1, stay below the
# largest float16 number, 65,504.
_LARGEST_HALF = 2.0**14

# Beyond this many times the root mean square of the rows, which is about 1 in unit-free coordinates, the low parts of
# usual entries would be lost among the smallest float16 numbers.
_MOST_RANGE = 2.0**17

_USUAL_RANGE = 2.0**5  # tried first, as nearly all rows are within it
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
    scales[varies] = 2.0 ** np.floor(np.log2(_LARGEST_HALF / largest[varies]))
    return StoredRows(array, torch.from_numpy(scales.astype(np.float32)).to(array.device))


def make_planes(source: Blocks) -> Planes | None:
    """Split rows in two; None if some are so large that float16 numbers can't hold the others precisely."""
    unit = _LARGEST_HALF / _USUAL_RANGE
    planes, largest = _split(source, unit)
    if largest <= _USUAL_RANGE:
        return planes if largest > 0.0 else None
    del planes  # before others take its place
    return _split(source, 2.0 ** math.floor(math.log2(_LARGEST_HALF / largest)))[0] if largest <= _MOST_RANGE else None


def _split(source: Blocks, unit: float) -> tuple[Planes, float]:
    """The planes of rows in this unit, and their largest entry, with which the planes may not be valid."""
    import torch

    n, d = source.n_rows, source.n_columns
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

# The largest entry of the point in its unit; those of the rows have theirs.
_LARGEST_ENTRY = 2.0**6

_TERM_SLOTS, _TERM_ROWS = 1056, 256  # of the kernel of known squared distances: eight slots for each of 132 processors


@dataclass(frozen=True)
class Launch:
    """The shape of a launch, which suits the number of columns; slots are a constant, not a property of the card."""

    rows: int  # in a block
    warps: int
    stages: int
    slots: int

    @classmethod
    def of(cls, width: int, level: int, *, are_planes: bool = True) -> Launch:
        if not are_planes:
            return cls(rows=32 if width <= 32 else 64, warps=2 if width <= 32 else 8, stages=2, slots=528)
        if width <= 32:
            return cls(rows=32, warps=2, stages=4, slots=2112)
        if width <= 64:
            return cls(rows=128, warps=4, stages=3, slots=528)
        return cls(rows=128, warps=8, stages=3 if level > 0 else 4, slots=264 if level > 0 else 132)


def _padded(size: int) -> int:
    """The power of two that blocks of this size are padded to."""
    return max(16, 1 << (size - 1).bit_length())


@dataclass(frozen=True, eq=False)
class Pass:
    """A pass at a symmetric matrix; its coefficients are at most `largest`."""

    rows: Planes | StoredRows
    signs: Array
    weights: Array | None
    point: FloatArray
    threshold: float
    kind: int
    largest: float
    level: int

    def run(self) -> MarginSums:
        """Run the pass, and wait for its sums."""
        sums, totals, scale = self.start()
        d, found = len(self.point), _to_host(sums, totals)
        loss, slope, curvature, least_margin = found[:4].tolist()
        return MarginSums(loss, slope, curvature, least_margin, found[4:].reshape(_padded(d), -1)[:d, :d] * scale)

    def start(self) -> tuple[Array, Array, float]:
        """Start the pass; return the sums of each slot, the gradient and its scale, without waiting for them."""
        import torch

        from closefar.rows import kernels

        rows, point = self.rows, self.point
        n, d, place = rows.array.shape[0], len(point), rows.array.device
        width = _padded(d)
        launch = Launch.of(width, self.level, are_planes=rows.are_planes)
        unit = _power_below(_LARGEST_ENTRY / max(float(np.abs(point).max(initial=0.0)), 1e-30))
        coefficient_unit = _power_below(1.0 / self.largest)  # coefficients multiply rows of at most 2^14 in their unit
        given = np.zeros((width, width), dtype=np.float32)
        given[:d, :d] = point * unit
        sums = torch.empty(launch.slots, 4, dtype=torch.float64, device=place)
        totals = torch.empty(launch.slots, width * width, dtype=torch.float32, device=place)
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
            1.0 / (rows.unit**2 * unit),
            rows.shrunk,
            coefficient_unit,
            1.0,
            d=d,
            D=width,
            B=launch.rows,
            KIND=self.kind,
            LEVEL=self.level,
            ARE_PLANES=rows.are_planes,
            WEIGHTED=self.weights is not None,
            STAGES=launch.stages,
            num_warps=launch.warps,
            num_stages=launch.stages,
            enable_fp_fusion=True,
        )
        return sums, totals.sum(0, dtype=torch.float64), 1.0 / (rows.unit**2 * coefficient_unit)


def fused_terms(
    noise: Noise, squared: Array, signs: Array, weights: Array, threshold: float, order: int
) -> MarginTerms | None:
    """Return the terms of all rows at known squared distances, in double precision; None without such a kernel."""
    if not has_kernel(noise):
        return None
    import torch

    from closefar.rows import kernels

    n, is_weighted, squared = len(squared), weights.stride(0) != 0, squared.contiguous()
    sums = torch.empty(_TERM_SLOTS, 4, dtype=torch.float64, device=squared.device)
    slopes = torch.empty_like(squared)
    curvatures = torch.empty_like(squared) if order > 1 else None
    kernels.terms_kernel[(_TERM_SLOTS,)](
        squared,
        signs,
        weights if is_weighted else sums,
        torch.tensor([threshold, 1.0 / n], dtype=torch.float64, device=squared.device),
        sums,
        slopes,
        sums if curvatures is None else curvatures,
        n,
        -(-n // (_TERM_SLOTS * _TERM_ROWS)) * _TERM_ROWS,
        B=_TERM_ROWS,
        KIND=KINDS[noise.name],
        ORDER=order,
        WEIGHTED=is_weighted,
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


# ---------------------------------------------------------------------------------------------------------------------
# The fused passes of a source.


def passes_or_reason(source: Blocks) -> FusedPasses | str:
    """Return fused passes over rows or, if there are none, the reason."""
    import torch
    from triton.runtime.errors import OutOfResources

    try:
        return _passes_over(source) or "these rows differ too much in size for fused kernels"
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "fused kernels need more memory than the card has left"
    except OutOfResources:
        return "fused kernels need more shared memory than this card has"


Kernel = TypeVar("Kernel", Planes, StoredRows)

# Coefficients of a product with the Hessian are of the size of the matrix; few are this many times as large.
_TAIL = 2.0**8

_BESIDE = 64  # bytes per row
_CALIBRATED = 1 << 17  # rows
_MOST_SHRUNK = 1e-6  # by truncation; a larger share has another cause

# Of the loss of each noise; that of normal noise grows with the margin, of which few are larger.
_LARGEST_SLOPES = {"logistic": 1.0, "laplace": 1.0, "hypsecant": 2.0, "normal": _TAIL}


def _passes_over(exact: Blocks) -> FusedPasses | None:
    """Return fused passes over rows; None if they differ too much in size, or are too many.

    Rows become planes or, if there is no room for these, are read as they are stored, if that is in single precision.
    """
    if exact.n_rows >= 2**31:
        return None
    if _have_room(exact):
        planes = make_planes(exact)
        return None if planes is None else FusedPasses(_calibrated(planes, exact.read(slice(0, _CALIBRATED))))
    stored = exact.as_stored
    found = None if stored is None or stored.array.shape[1] > MOST_COLUMNS else as_stored(stored.array, stored.scales)
    if stored is None or found is None:
        return None
    scales = found.scales.double().cpu().numpy()
    few = found.array[:_CALIBRATED].double() * found.scales
    return FusedPasses(_calibrated(found, few.T), transform=stored.transform / scales[:, None])


def _have_room(exact: Blocks) -> bool:
    """Whether the planes fit on the card, beside as much for the other arrays of a fit."""
    return exact.n_rows * (4 * (exact.n_columns + 8) + _BESIDE) < free_for_torch(exact.model.device)


def _calibrated(rows: Kernel, block: Array) -> Kernel:
    """Compare the forms of some rows, each a column, at a random matrix with those in double precision."""
    import torch

    d, n = block.shape
    root = np.random.default_rng(0).standard_normal((d, d)) / np.sqrt(d)
    matrix = root @ root.T
    expected = float(torch.sum((torch.from_numpy(matrix).to(block) @ block) * block))
    ones = torch.ones(n, dtype=torch.float32, device=block.device)
    largest = _TAIL * float(np.linalg.norm(matrix)) * max(expected / (n * d), 1.0)
    found = Pass(rows.first(n), ones, ones, matrix, 0.0, CURVED, largest, PRECISE).run()
    shrunk = expected / found.slope - 1.0 if found.slope > 0.0 else 0.0
    return replace(rows, shrunk=shrunk if abs(shrunk) < _MOST_SHRUNK else 0.0)


class FusedPasses:
    """Fused passes over planes, or over rows as they are stored; None is returned for what can't be fused.

    At the level FINEST, losses have an error of about 1e-8 and gradients of 1e-6; at the level PRECISE, gradients have
    the error of fast passes, up to 1e-2 on columns of few values, where fast losses have one of up to 1e-3.
    """

    def __init__(self, rows: Planes | StoredRows, *, transform: FloatArray | None = None, level: int = FINEST) -> None:
        self.words = f"fused Triton kernels on {'float16 planes' if rows.are_planes else 'float32 rows'}"
        self.rows = rows
        self.n_rows = int(rows.array.shape[0])
        self._transform = transform  # from the rows that kernels read to the coordinates of the source
        self._level = level
        self._converted: dict[str, tuple[Array, Array]] = {}

    @property
    def faster(self) -> FusedPasses:
        """FusedPasses of the next lower level; these, if there are none."""
        return self if self._level == FAST else FusedPasses(self.rows, transform=self._transform, level=self._level - 1)

    def margin(
        self, noise: Noise, signs: Array, weights: Array, matrix: FloatArray, threshold: float
    ) -> MarginSums | None:
        """See `RowSource.margin_pass`."""
        if not has_kernel(noise):
            return None
        import torch

        relative, largest = None, _LARGEST_SLOPES[noise.name]
        if weights.stride(0) != 0:
            relative = self._as_needed("weights", weights, self._relative)
            largest *= float(relative.max())
        signs = self._as_needed("signs", signs, lambda given: given.to(torch.int8))
        return self._sums(signs, relative, matrix, threshold, KINDS[noise.name], largest)

    def curvature(self, curvature: Array, matrix: FloatArray, shift: float) -> tuple[FloatArray, float] | None:
        """See `RowSource.curvature_pass`."""
        relative = self._as_needed("curvature", curvature, self._relative)
        size = float(np.linalg.norm(matrix)) + abs(shift)
        if size == 0.0:
            return np.zeros_like(matrix), 0.0
        sums = self._sums(relative, relative, matrix, shift, CURVED, _TAIL * size * float(relative.max()))
        return None if sums is None else (-sums.gradient, -sums.slope)

    def _sums(
        self, signs: Array, weights: Array | None, matrix: FloatArray, threshold: float, kind: int, largest: float
    ) -> MarginSums | None:
        """The sums in the coordinates of the source; None if float16 numbers do not hold them."""
        transform = np.eye(len(matrix)) if self._transform is None else self._transform
        point = transform @ matrix @ transform.T
        sums, n = Pass(self.rows, signs, weights, point, threshold, kind, largest, self._level).run(), self.n_rows
        if not math.isfinite(sums.loss + sums.slope + sums.curvature) or not np.all(np.isfinite(sums.gradient)):
            return None
        pulled = transform.T @ (-sums.gradient / n) @ transform  # of rows of weight 1 / n, with the sign of derivatives
        gradient = 0.5 * (pulled + pulled.T)
        return MarginSums(sums.loss / n, sums.slope / n, sums.curvature / n, sums.least_margin, gradient)

    def _relative(self, weights: Array) -> Array:
        """Weights relative to their mean."""
        import torch

        return (weights * self.n_rows).to(torch.float32)

    def _as_needed(self, name: str, given: Array, convert: Callable[[Array], Array]) -> Array:
        """The array as kernels need it; converted once, as long as the same one is given."""
        if name not in self._converted or self._converted[name][0] is not given:
            self._converted[name] = given, convert(given).contiguous()
        return self._converted[name][1]
