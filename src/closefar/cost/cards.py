"""Graphics cards: their rates, documented or measured, and the passes that a fit takes on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from closefar.cost.size import RunSize

__all__ = [
    "CARD_PASSES",
    "DECOMPOSITIONS",
    "DOUBLE_PASSES",
    "H200",
    "PRECISE_PASSES",
    "Card",
    "card_seconds",
    "copying_seconds",
    "measure_card",
]

# Everything that is known of passes on a card, in one place: counted and measured in fits of 200,000 to 50,000,000
# pairs with 10 to 100 columns.
PRECISE_PASSES, DOUBLE_PASSES = 10.0, 2.5
CARD_PASSES = PRECISE_PASSES + DOUBLE_PASSES
DECOMPOSITIONS = 150.0  # of matrices of the size of M, most of them in steps on a sample
SAMPLE_SECONDS = 0.08  # of launching kernels on that sample
CARD_BYTES_PER_NUMBER = 8.0  # float32 rows, and two float16 planes of them
CARD_BYTES_PER_PAIR = 40.0  # label, weight, and what a pass keeps of each pair
PREPARING_PASSES = 1.5  # coordinates and statistics, in double precision
LABEL_SECONDS = 1e-8  # per pair: labels are validated on the host


@dataclass(frozen=True)
class Card:
    """A card: bytes of memory, bytes per second, and passes in multiples of reading float32 rows once.

    `double` is the rate of a pass in double precision, in multiplications and additions per second; `gathered` the
    seconds per pair and column of a pass over pairs by index; `link` the bytes per second from the memory of the
    host; `overhead` the seconds of a pass besides.
    """

    name: str
    memory: float
    bandwidth: float
    precise: float
    double: float
    gathered: float
    link: float
    overhead: float
    is_measured: bool = False


# Passes of 10,000,000 x 100 float32 rows take 3.4 ms, and 29 ms in double precision.
H200 = Card(
    name="NVIDIA H200",
    memory=1.41e11,
    bandwidth=4.26e12,
    precise=3.5,
    double=4 * 1e7 * 100**2 / 0.029,
    gathered=12e-3 / (5e7 * 100),
    link=2.5e10,
    overhead=2e-4,
)


def card_seconds(size: RunSize, card: Card, *, share: float = 1.0, fits: bool = True) -> dict[str, float]:
    """The seconds of each part of a fit on a card that has this share of the pairs.

    If the card can't hold them (`fits`), every pass copies them again.
    """
    n, d = share * size.n_pairs, size.n_features
    double = (DOUBLE_PASSES + PREPARING_PASSES) * 4.0 * d**2 / card.double
    if size.n_points is None:
        rows = PRECISE_PASSES * card.precise * 4.0 * n * d / card.bandwidth
    else:
        rows = CARD_PASSES * n * d * card.gathered
    again = {} if fits else {"copying to the card": CARD_PASSES * copying_seconds(size, card, share=share)}
    return {
        "memory bandwidth of the card": rows,
        "double precision on the card": double * (n if size.n_points is None else size.n_points),
        "overhead of passes": SAMPLE_SECONDS + CARD_PASSES * card.overhead,
        "labels": LABEL_SECONDS * n,
        **again,
    }


def copying_seconds(size: RunSize, card: Card, *, share: float = 1.0) -> float:
    """The seconds of copying this share of the pairs to the card once."""
    n, d = share * size.n_pairs, size.n_features
    if size.n_points is None:
        return 4.0 * n * d * (1 if size.are_differences else 2) / card.link
    return (16.0 * n + 8.0 * size.n_points * d) / card.link


def measure_card(size: RunSize) -> Card | None:
    """Measure the card of this machine with real passes over generated rows; None if there is no card."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info()
    d = size.n_features
    n = int(max(min(2e8 / d, 0.2 * free / (16 * d)), 1e4))
    rows = torch.randn((n, d), device="cuda", dtype=torch.float32)
    other = torch.empty_like(rows)
    read_once = _card_seconds(lambda: other.copy_(rows), torch) / 2.0
    double, precise = _pass_seconds(rows, torch)
    link = torch.empty(1 << 26, dtype=torch.uint8)
    copying = _card_seconds(lambda: link.to("cuda"), torch)
    return replace(
        H200,
        name=torch.cuda.get_device_name(),
        memory=float(free),
        bandwidth=4.0 * n * d / read_once,
        precise=precise / read_once,
        double=4.0 * n * d**2 / double,
        link=len(link) / copying,
        is_measured=True,
    )


def _pass_seconds(rows: Any, torch: Any) -> tuple[float, float]:
    """The seconds of a pass in double precision, and of a precise one."""
    import numpy as np

    from closefar.noise import get_noise
    from closefar.rows import rows_of, unit_free
    from closefar.solve import CloseFar, Objective, Passes

    n, d = int(rows.shape[0]), int(rows.shape[1])
    shares = np.full(n, 1.0 / n)
    source, _ = unit_free(rows_of(rows), shares)
    signs = source.row_array(np.where(np.arange(n) % 2 == 0, 1.0, -1.0))
    objective = Objective(source, CloseFar(get_noise("logistic"), signs, source.row_array(shares)), Passes())
    rough = objective.rough
    matrix, threshold = np.eye(d), np.ones(1)
    return (
        _card_seconds(lambda: objective.loss_and_gradient(matrix, threshold), torch),
        _card_seconds(lambda: rough.loss_and_gradient(matrix, threshold), torch),
    )


def _card_seconds(function: Callable[[], Any], torch: Any) -> float:
    """The shortest of three calls, after one that compiles."""
    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])
