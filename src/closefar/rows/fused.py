"""Fused passes on NVIDIA GPUs: where they run, rows as kernels read them, launches, and sums in a fixed order.

Rows that are in tensors on a GPU get `FusedPasses` where the card, the libraries and the number of columns allow; all
other operations stay those of the array API.  The variable CLOSEFAR_GPU (fused or plain) turns fused passes off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from closefar.arrays import Array, FloatArray, is_tensor, sums_by
from closefar.noise import NOISES, Noise
from closefar.rows.source import KernelCall, Terms

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


# The noises that have a kernel, by name, and what kernels compute besides: a product with the Hessian, whose second
# derivatives are given, a sum with given coefficients, and forms alone.
KINDS = {"logistic": 0, "normal": 1, "laplace": 2, "hypsecant": 3}
CURVED, GIVEN, FORMS_ONLY = 4, 5, 6  # beside the numbers of noises

_MOST_CODES = 16  # of answers, whose sums are kept on the chip
_NO_END = 1e30  # stands for an infinite end of an interval in single precision


def has_kernel(noise: Noise) -> bool:
    """Whether there are kernels for this noise: for those that come with the package, not for the user's own."""
    return noise.name in KINDS and type(noise) is type(NOISES[noise.name])


class Blocks(Protocol):
    """Rows that are read in blocks, each row a column, in double precision."""

    n_rows: int
    n_columns: int
    n_together: int

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
_SPLIT_ROWS = 32  # in a block of the kernel that splits rows


@dataclass(frozen=True, eq=False)
class Planes:
    """The high and the low parts of rows times `unit`, each of shape (n, d), with d rounded up.

    Of comparisons, whose legs are near and far, they are far - near and far + near in turn, as kernels need them;
    `n_legs` is then 2.  `shrunk` is the share by which forms come out too small, since tensor cores truncate.
    """

    high: Array
    low: Array
    unit: float
    n_columns: int
    n_legs: int
    shrunk: float = 0.0
    _descriptors: dict[Any, Any] = field(default_factory=dict)

    are_planes: ClassVar[bool] = True

    @property
    def array(self) -> Array:
        return self.high

    def first(self, n: int) -> Planes:
        return Planes(self.high[:n], self.low[:n], self.unit, self.n_columns, 1)

    def arguments(self, box: tuple[int, int]) -> tuple[Any, Any, Array]:
        """The first arguments of a kernel: descriptors with which the copy engine reads blocks of this shape."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        if box not in self._descriptors:
            beside = [part.view(-1, self.n_legs * part.shape[1]) for part in (self.high, self.low)]
            self._descriptors[box] = [TensorDescriptor.from_tensor(part, list(box)) for part in beside]
        return *self._descriptors[box], self.high


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows as they are stored, of shape (n, d), with a power of two for each column that float16 numbers suit."""

    array: Array
    scales: Array
    n_legs: int
    shrunk: float = 0.0

    unit: ClassVar[float] = 1.0
    are_planes: ClassVar[bool] = False

    @property
    def n_columns(self) -> int:
        return int(self.array.shape[1])

    def first(self, n: int) -> StoredRows:
        return StoredRows(self.array[:n], self.scales, 1)

    def arguments(self, box: tuple[int, int]) -> tuple[Any, Any, Array]:
        """The first arguments of a kernel."""
        return self.array, self.array, self.scales


def as_stored(array: Array, usual: FloatArray, n_legs: int) -> StoredRows | None:
    """The rows of a tensor, given the root mean square of each column; None if some are far larger."""
    import torch

    largest = torch.maximum(array.max(dim=0).values, -array.min(dim=0).values).double().cpu().numpy()
    varies = largest > 0.0
    if np.any(largest[varies] > _MOST_RANGE * usual[varies]):
        return None
    scales = np.ones(len(largest))
    scales[varies] = 2.0 ** np.floor(np.log2(_LARGEST_HALF / largest[varies]))
    return StoredRows(array, torch.from_numpy(scales.astype(np.float32)).to(array.device), n_legs)


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

    from closefar.rows import kernels

    n, d = source.n_rows, source.n_columns
    width = -(-d // _ALIGNED) * _ALIGNED
    high = torch.zeros(n, width, dtype=torch.float16, device=source.model.device)
    low = torch.zeros_like(high)
    largest = []
    for where, block in source.blocks():
        block = _turned(block) if source.n_together == 2 else block
        size, (across, along) = block.shape[1], block.stride()
        found = torch.empty(-(-size // _SPLIT_ROWS), dtype=torch.float32, device=high.device)
        given = (block, high[where], low[where], found, unit, size, along, across, width)
        kernels.split_kernel[found.shape](*given, d=d, D=_padded(d), B=_SPLIT_ROWS)
        largest.append(found.max())
    return Planes(high, low, unit, d, source.n_together), float(torch.stack(largest).max()) / unit


def _turned(block: Array) -> Array:
    """The differences and the sums of legs, in turn."""
    import torch

    near, far = block.T[0::2], block.T[1::2]
    return torch.stack([far - near, far + near], 1).reshape(-1, len(block)).T


FAST, PRECISE, FINEST = 0, 1, 2  # the levels of passes

# The largest entry of the point in its unit; those of the rows have theirs.
_LARGEST_ENTRY = 2.0**6

_FORM_SLOTS, _FORM_ROWS = 132, 64  # of the kernel of forms in double precision, which fills a processor
_TERM_SLOTS, _TERM_ROWS = 1056, 256  # of the kernel of known squared distances: eight slots for each of 132 processors


@dataclass(frozen=True)
class Launch:
    """The shape of a launch, which suits the number of columns; slots are a constant, not a property of the card."""

    rows: int  # in a block
    warps: int
    stages: int
    slots: int

    @classmethod
    def of(cls, width: int, level: int, *, are_planes: bool = True, n_legs: int = 1, n_codes: int = 0) -> Launch:
        if not are_planes:
            rows = 32 if width <= 32 or n_legs == 2 else 64
            return cls(rows, warps=2 if width <= 32 else 8, stages=2, slots=528)
        if width <= 32:
            return cls(rows=32, warps=2, stages=4, slots=2112)
        if width <= 64:
            return cls(rows=128, warps=4, stages=3, slots=528)
        # Blocks of two legs take twice the room, and the sums of many codes are on the chip too.
        stages = ((4, 3) if n_legs == 1 else (3, 1))[level > 0] - (n_codes > 8 and (n_legs == 1 or level == 0))
        return cls(rows=128, warps=8, stages=stages, slots=132 if n_legs == 1 and level == 0 else 264)


def _padded(size: int) -> int:
    """The power of two that blocks of this size are padded to."""
    return max(16, 1 << (size - 1).bit_length())


class _Sums(NamedTuple):
    """The loss, its first and second derivative in the threshold, the least margin, slopes by code, and the gradient.

    The slopes are those in the lower and in the upper ends, if there are several codes.
    """

    loss: float
    slope: float
    curvature: float
    least_margin: float
    slopes: FloatArray
    gradient: FloatArray


@dataclass(frozen=True, eq=False)
class Pass:
    """A pass at a symmetric matrix; its coefficients are at most `largest`.

    With `ends`, the answers are intervals between these, (2, number of codes).
    """

    rows: Planes | StoredRows
    codes: Array
    weights: Array | None
    point: FloatArray
    threshold: float
    kind: int
    largest: float
    level: int
    ends: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows, or of comparisons."""
        return int(self.rows.array.shape[0]) // self.rows.n_legs

    @property
    def n_codes(self) -> int:
        """The number of codes, padded; zero for the two sides of one threshold."""
        return 0 if self.ends is None else _padded(self.ends.shape[1])

    def run(self) -> _Sums:
        """Run the pass, and wait for its sums."""
        sums, totals, scale = self.start()
        d, c, found = len(self.point), self.n_codes, _to_host(sums, totals)
        loss, slope, curvature, least_margin = found[:4].tolist()
        slopes, gradient = found[4 : 4 + 2 * c].reshape(2, c), found[4 + 2 * c :].reshape(_padded(d), -1)
        return _Sums(loss, slope, curvature, least_margin, slopes, gradient[:d, :d] * scale)

    def start(self) -> tuple[Array, Array, float]:
        """Start the pass; return the sums of each slot, the gradient and its scale, without waiting for them."""
        import torch

        n_slots, width, place = self._launch.slots, _padded(len(self.point)), self.rows.array.device
        sums = torch.empty(n_slots, 4 + 2 * self.n_codes, dtype=torch.float64, device=place)
        totals = torch.empty(n_slots, width * width, dtype=torch.float32, device=place)
        unit = self._start(sums, totals, sums)
        return sums, totals.sum(0, dtype=torch.float64), 1.0 / (self.rows.unit**2 * unit)

    def forms(self) -> Array:
        """Return the form of each row, in double precision."""
        import torch

        found = torch.empty(self.n_rows, dtype=torch.float64, device=self.rows.array.device)
        self._start(found, found, found)
        return found

    @property
    def _launch(self) -> Launch:
        rows, width = self.rows, _padded(len(self.point))
        return Launch.of(width, self.level, are_planes=rows.are_planes, n_legs=rows.n_legs, n_codes=self.n_codes)

    def _start(self, sums: Array, totals: Array, forms: Array) -> float:
        """Start the kernel; return the unit of the coefficients."""
        import torch

        from closefar.rows import kernels

        rows, point, launch = self.rows, self.point, self._launch
        n, d, place = self.n_rows, len(point), rows.array.device
        width = _padded(d)
        unit = _power_below(_LARGEST_ENTRY / max(float(np.abs(point).max(initial=0.0)), 1e-30))
        coefficient_unit = _power_below(1.0 / max(self.largest, 1e-30))  # they multiply rows of at most 2^14
        given = np.zeros((width, width), dtype=np.float32)
        given[:d, :d] = point * unit
        ends = np.zeros((2, self.n_codes), dtype=np.float32)
        if self.ends is not None:
            ends[:, : self.ends.shape[1]] = np.clip(self.ends, -_NO_END, _NO_END)
        both = torch.from_numpy(np.append(given, ends)).to(place)  # in one copy
        weights = sums if self.weights is None else self.weights
        inputs = (*rows.arguments((launch.rows, width)), self.codes, weights, both, both[given.size :])
        threshold = float(self.threshold), float(self.threshold - np.float32(self.threshold))
        per_slot = -(-n // (launch.slots * launch.rows)) * launch.rows
        units = 1.0 / (rows.unit**2 * unit), rows.shrunk, coefficient_unit, 1.0
        shape = {"d": d, "D": width, "WIDTH": rows.array.shape[1], "B": launch.rows, "STAGES": launch.stages}
        what = {"KIND": self.kind, "LEVEL": self.level, "N_CODES": self.n_codes, "WEIGHTED": self.weights is not None}
        form = {"ARE_PLANES": rows.are_planes, "N_LEGS": rows.n_legs}
        options = {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True}
        run = partial(kernels.pass_kernel[(launch.slots,)], **shape, **what, **form, **options)
        run(*inputs, *threshold, sums, totals, forms, n, per_slot, *units)
        return coefficient_unit


def exact_forms(rows: Array, point: FloatArray, *, is_factor: bool = False) -> Array:
    """Return forms z'Mz of rows in single precision, or squared lengths |A'z|^2, in double precision."""
    import torch

    from closefar.rows import kernels

    (n, d), k = rows.shape, point.shape[1]
    padded = np.zeros((_padded(d), _padded(k)))
    padded[:d, :k] = point
    found = torch.empty(n, dtype=torch.float64, device=rows.device)
    per_slot = -(-n // (_FORM_SLOTS * _FORM_ROWS)) * _FORM_ROWS
    shape = {"d": d, "D": _padded(d), "K": _padded(k), "B": _FORM_ROWS, "IS_FACTOR": is_factor}
    there = torch.from_numpy(padded).to(rows.device)
    kernels.forms_kernel[(_FORM_SLOTS,)](rows, there, found, n, per_slot, **shape, num_warps=8, num_stages=1)
    return found


def fused_terms(call: KernelCall, squared: Array, codes: Array, weights: Array | None = None) -> Terms | None:
    """Return the terms of all rows at known squared distances, in double precision; None without such a kernel."""
    if call.noise is None or weights is None or call.threshold is None or not has_kernel(call.noise):
        return None
    import torch

    from closefar.rows import kernels

    n, is_weighted, squared = len(squared), weights.stride(0) != 0, squared.contiguous()
    sums = torch.empty(_TERM_SLOTS, 4, dtype=torch.float64, device=squared.device)
    slopes = torch.empty_like(squared)
    curvatures = torch.empty_like(squared) if call.order > 1 else None
    numbers = torch.cat([torch.tensor([call.threshold], dtype=torch.float64, device=squared.device), weights[:1]])
    inputs = squared, codes, weights if is_weighted else sums, numbers
    outputs = sums, slopes, sums if curvatures is None else curvatures
    per_slot = -(-n // (_TERM_SLOTS * _TERM_ROWS)) * _TERM_ROWS
    what = {"KIND": KINDS[call.noise.name], "ORDER": call.order, "WEIGHTED": is_weighted, "B": _TERM_ROWS}
    run = partial(kernels.terms_kernel[(_TERM_SLOTS,)], **what, num_warps=4, enable_fp_fusion=True)
    run(*inputs, *outputs, n, per_slot)
    *found, least = _to_host(sums).tolist()
    arrays = () if curvatures is None else (curvatures,)
    return Terms(np.array(found[: 1 + call.order]), least, slopes, arrays)


def _bytes(codes: Array) -> Array:
    import torch

    return codes.to(torch.int8).contiguous()


def _relative(weights: Array) -> Array:
    """Weights relative to their mean, if they sum to one."""
    import torch

    return (weights * weights.shape[0]).to(torch.float32).contiguous()


def _shares(codes: Array, weights: Array, n_codes: int) -> FloatArray:
    """The weight of each answer."""
    found: FloatArray = sums_by(codes, n_codes, weights * 1.0)[0]
    return found


def _to_host(sums: Array, *rest: Array) -> FloatArray:
    """The sums over slots, the least of the fourth column, and other numbers: one copy."""
    import torch

    totals = [sums[:, :3].sum(0), sums[:, 3].min()[None], sums[:, 4:].sum(0)]
    found: FloatArray = torch.cat([*totals, *rest]).cpu().numpy()
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
        few = exact.read(slice(0, min(_CALIBRATED, exact.n_rows)))
        return None if planes is None else FusedPasses(_calibrated(planes, _turned(few) if planes.n_legs == 2 else few))
    stored = exact.as_stored
    found = (
        None
        if stored is None or stored.array.shape[1] > MOST_COLUMNS
        else as_stored(stored.array, stored.scales, exact.n_together)
    )
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
        self.n_legs = rows.n_legs
        self._transform = transform  # from the rows that kernels read to the coordinates of the source
        self._level = level
        self._converted: dict[str, tuple[tuple[Array, ...], Any]] = {}

    @property
    def faster(self) -> FusedPasses:
        """FusedPasses of the next lower level; these, if there are none."""
        return self if self._level == FAST else FusedPasses(self.rows, transform=self._transform, level=self._level - 1)

    def forms(self, matrix: FloatArray) -> Array:
        """The form of each row, or comparison, at a symmetric matrix."""
        nothing = self.rows.array
        return self._pass(nothing, None, matrix, FORMS_ONLY, 1.0).forms()

    def outer(self, coefficients: Array) -> FloatArray | None:
        """See `RowSource.outer`; None if float16 numbers do not hold the sum."""
        largest = float(coefficients.abs().max())
        if not 0.0 < largest < math.inf:
            return None
        given = (coefficients / largest).float()
        d = self.rows.n_columns if self._transform is None else self._transform.shape[1]
        found = self._run(given, given, largest, np.zeros((d, d)), GIVEN, 1.0)
        return None if found is None else -found.gradient

    def sweep(
        self, call: KernelCall, matrix: FloatArray, codes: Array, weights: Array | None = None
    ) -> tuple[Terms, FloatArray] | None:
        """See `RowSource.sweep`; None for what can't be fused.  Second derivatives are summed, and not kept."""
        if call.noise is None:
            return None if call.threshold is None else self._curved(codes, matrix, call.threshold)
        if not has_kernel(call.noise) or weights is None:
            return None
        largest = _LARGEST_SLOPES[call.noise.name]
        if weights.stride(0) == 0:
            relative, share = None, self._as_needed("share", lambda given: float(given[0]), weights)
        else:
            relative, share = self._as_needed("weights", _relative, weights), 1.0 / len(weights)
            largest *= float(relative.max())
        codes = self._as_needed("codes", _bytes, codes)
        more: dict[str, Any] = {"threshold": call.threshold or 0.0}
        if call.threshold is None:
            if call.noise.name != "logistic" or len(call.low) > _MOST_CODES:
                return None
            more["ends"] = np.array([call.low, call.up])
        found = self._run(codes, relative, share, matrix, KINDS[call.noise.name], largest, **more)
        if found is None:
            return None
        if call.threshold is not None:
            order = min(call.order, 1) if self._level == FAST else call.order
            sums = np.array([found.loss, found.slope, found.curvature][: 1 + order])
            return Terms(sums, found.least_margin), found.gradient
        # What the width of intervals adds to the loss and the slopes in their ends, for the weight of each answer.
        n_codes = len(call.low)
        shares = self._as_needed("shares", partial(_shares, n_codes=n_codes), codes, weights)
        on_width = call.noise.width_terms(call.up - call.low)
        assert on_width is not None
        loss, slope, _ = on_width
        lower, upper = found.slopes[:, :n_codes]
        slopes = np.array([lower - shares * slope, shares * slope - upper])
        if np.all(np.isinf(call.low) | np.isinf(call.up)):  # each has one end
            slopes = slopes.sum(axis=0)
        sums = np.append(found.loss + float(shares @ loss), slopes.ravel())
        return Terms(sums, found.least_margin), found.gradient

    def _curved(self, weights: Array, matrix: FloatArray, shift: float) -> tuple[Terms, FloatArray] | None:
        relative = self._as_needed("curvature", _relative, weights)
        size = float(np.linalg.norm(matrix)) + abs(shift)
        if size == 0.0:
            return Terms(np.zeros(1)), np.zeros_like(matrix)
        largest = _TAIL * size * float(relative.max())
        found = self._run(relative, relative, 1.0 / len(weights), matrix, CURVED, largest, threshold=shift)
        return None if found is None else (Terms(np.array([-found.slope])), -found.gradient)

    def _pass(
        self, codes: Array, weights: Array | None, matrix: FloatArray, kind: int, largest: float, **more: Any
    ) -> Pass:
        """A pass at a matrix in the coordinates of the source."""
        point = matrix if self._transform is None else self._transform @ matrix @ self._transform.T
        return Pass(self.rows, codes, weights, point, more.pop("threshold", 0.0), kind, largest, self._level, **more)

    def _run(
        self,
        codes: Array,
        weights: Array | None,
        share: float,
        matrix: FloatArray,
        kind: int,
        largest: float,
        **more: Any,
    ) -> _Sums | None:
        """The sums in the coordinates of the source, times a share; None if float16 does not hold them."""
        sums = self._pass(codes, weights, matrix, kind, largest, **more).run()
        if not math.isfinite(sums.loss + sums.slope + sums.curvature) or not np.all(np.isfinite(sums.gradient)):
            return None
        pulled = -share * sums.gradient  # with the sign of derivatives
        if self._transform is not None:
            pulled = self._transform.T @ pulled @ self._transform
        gradient = 0.5 * (pulled + pulled.T)
        loss, slope, curvature = share * sums.loss, share * sums.slope, share * sums.curvature
        return _Sums(loss, slope, curvature, sums.least_margin, share * sums.slopes, gradient)

    def _as_needed(self, name: str, convert: Callable[..., Any], *given: Array) -> Any:
        """Arrays as kernels need them; converted once, as long as the same ones are given."""
        before, found = self._converted.get(name, ((), None))
        if tuple(map(id, before)) != tuple(map(id, given)):
            found = convert(*given)
            self._converted[name] = given, found
        return found
