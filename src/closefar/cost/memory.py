"""The memory that a fit takes, from what it holds: data, numbers of each pair, a sample, projections."""

from __future__ import annotations

from dataclasses import dataclass

from closefar.cost.cards import CARD_BYTES_PER_NUMBER, CARD_BYTES_PER_PAIR
from closefar.cost.passes import COPY_BYTES, Work
from closefar.cost.size import RunSize

__all__ = ["Memory", "expected_memory"]

PROGRAM_BYTES = 2.5e8  # of Python and the libraries
_PAIR_BYTES = 8 * 7  # distances, margins, slopes and curvatures
_LABEL_BYTES = 8
_HELD_BYTES, _KEPT_BYTES = 1 << 23, 1 << 28  # rows of few columns up to this size are kept in unit-free coordinates
_NARROW = 32
_TYPICAL_RANK = 0.65  # of the optimum, as a share of the columns
_CHUNK_BYTES = 60  # of a pair in a sparse matrix
_FEWEST_SUMMED, _MOST_SUMMED = 1 << 18, 1 << 21


@dataclass(frozen=True)
class Memory:
    """Bytes that are in use at once.

    Attributes
    ----------
    data : float
        The data with its labels.
    process : float
        The process that fits: with workers, the driver, which has no data but the sample; with a card, without the
        data, which are on the card.
    worker : float or None
        Each worker.
    card : float or None
        The card (each card, with workers).
    """

    data: float
    process: float
    worker: float | None = None
    card: float | None = None


def expected_memory(size: RunSize, work: Work, *, n_workers: int | None = None, gpu: bool = False) -> Memory:
    """The memory of a fit with these operations."""
    data = size.data_bytes + _LABEL_BYTES * size.n_pairs
    share = 1.0 / (n_workers or 1)
    points = 0.0 if size.n_points is None else 8.0 * size.n_points * size.n_features
    shared_data = (data - points) * share + points
    on_card = None
    if gpu:
        per_pair = CARD_BYTES_PER_PAIR + (0.0 if points else CARD_BYTES_PER_NUMBER * size.n_features)
        on_card = per_pair * size.n_pairs * share + 2.0 * points
    labels = 3.0 * _LABEL_BYTES * size.n_pairs
    if n_workers is None:
        held = labels if gpu else data + working_bytes(size, work)
        return Memory(data, PROGRAM_BYTES + held, card=on_card)
    worker = PROGRAM_BYTES + (labels * share if gpu else shared_data + _PAIR_BYTES * size.n_pairs * share + points)
    driver = PROGRAM_BYTES + _sample_bytes(size, work) + 50.0 * 8.0 * size.n_features**2
    return Memory(data, driver, worker=worker, card=on_card)


def working_bytes(size: RunSize, work: Work) -> float:
    """What a fit allocates on top of the data, in one process."""
    n, d = size.n_pairs, size.n_features
    total = float(_PAIR_BYTES * n) + _sample_bytes(size, work)
    if size.n_points is not None:
        pairs_at_once = min(max(4 * size.n_points, _FEWEST_SUMMED), _MOST_SUMMED, n)
        total += 2.0 * 8.0 * size.n_points * d + _CHUNK_BYTES * pairs_at_once
    elif d <= _NARROW:
        is_held = size.are_differences and size.dtype == "float64"
        total += 8.0 * n * d if 8 * n * d <= (_HELD_BYTES if is_held else _KEPT_BYTES) else 0.0
    elif not size.are_differences and size.dtype == "float64" and 8 * n * d <= _KEPT_BYTES:
        total += 8.0 * n * d  # differences of pairs, which are computed once
    if work.solver == "lowrank":
        copied = 4 * n * d if size.n_points is None and size.dtype == "float64" else COPY_BYTES + 1
        total += float(copied) if copied <= COPY_BYTES else 0.0
        total += 16.0 * min(n, size.n_points or n) * _TYPICAL_RANK * d
    return total


def _sample_bytes(size: RunSize, work: Work) -> float:
    """The rows of a sample, or of the Hessian of some; pairs by index remain pairs by index."""
    if size.n_points is not None:
        return 16.0 * work.n_sampled
    rows = 1.15 * work.n_sampled
    if work.solver == "newton":
        rows += min(work.hessian_rows, size.n_pairs) / 1.5
    return 8.0 * size.n_features * rows
