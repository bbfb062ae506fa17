"""What would make a planned run faster, smaller or unnecessary."""

from __future__ import annotations

import math

from closefar.cost.cards import Card
from closefar.cost.memory import Memory
from closefar.cost.passes import FEW_PER_PARAMETER, Work
from closefar.cost.size import RunSize
from closefar.cost.text import as_bytes, as_count
from closefar.errors import either, setting

__all__ = ["advise"]

# With so many pairs per parameter, the loss of a fit is within p / (2 n), 0.0005, of the best possible.
_ENOUGH_PER_PARAMETER = 1000
_PAIRS_PER_POINT = 20
_LARGE = 1_000_000  # pairs
USABLE = 0.8  # of a memory


def advise(
    size: RunSize,
    work: Work,
    memory: Memory,
    available: float,
    parts: dict[str, float],
    *,
    n_workers: int | None,
    card: Card | None,
) -> tuple[str, ...]:
    """Return sentences, the most effective advice first."""
    total = sum(parts.values())
    advice = [
        *_about_pairs(size),
        *_about_memory(size, memory, available, n_workers),
        *_about_card(memory, card, n_workers),
    ]
    if size.n_points is None and size.n_pairs >= _LARGE:
        advice.append(
            "If pairs share points, pass them by index "
            + either("(closefar.Tuples; plan it with n_points)", "(plan it with --points)")
            + ": a pass over N pairs of n points then takes N k + n d k operations instead of N d k, and "
            "the data take 16 bytes per pair."
        )
    if size.rank is not None and work.precise > 0 and size.n_features <= 128:
        advice.append(
            "A limited rank does not save time: the convex problem is solved first. Limit the rank for the sake of "
            "the metric, and leave out columns to save time."
        )
    if n_workers is not None and parts.get("network and scheduler", 0.0) > 0.5 * total:
        advice.append("The network takes most of the time: use fewer workers, or fewer and larger partitions.")
    elif n_workers is not None and parts.get("passes over the sample", 0.0) > 0.5 * total:
        advice.append("The driver's passes over the sample take most of the time: more workers do not help.")
    elif n_workers is None and card is None and total > 600.0:
        advice.append(
            "The passes over all pairs can be spread over Dask workers (" + setting("n_workers") + "), or run on a GPU."
        )
    return tuple(advice)


def _about_pairs(size: RunSize) -> list[str]:
    p, ratio = size.n_parameters, size.pairs_per_parameter
    if ratio < FEW_PER_PARAMETER:
        return [
            (
                f"There are only {ratio:.2g} pairs per parameter: labels may be separable, the time is "
                "uncertain, and a penalty is needed (" + setting(alpha="auto") + ")."
            )
        ]
    if size.n_points is not None and size.n_pairs > 2 * _PAIRS_PER_POINT * size.n_points:
        return [
            (
                f"There are {as_count(size.n_pairs / size.n_points)} pairs per point. Pairs of the same "
                f"points are not independent: beyond {_PAIRS_PER_POINT} per point, "
                f"{as_count(_PAIRS_PER_POINT * size.n_points)} pairs in all, more add little"
                + either(" (see closefar.datasets.count_pairs)", "")
                + "."
            )
        ]
    if ratio > 2 * _ENOUGH_PER_PARAMETER:
        enough = _ENOUGH_PER_PARAMETER * p
        return [
            (
                f"A random sample of {as_count(enough)} pairs is probably enough: the excess loss per label "
                f"of a fit to n pairs is about p / (2 n) with p = {p:,} parameters, {p / (2 * enough):.1g} "
                f"there and {p / (2 * size.n_pairs):.1g} with all. Fit a sample, and "
                + either("plan_sample_size says", "closefar sample-size says")
                + " how many are needed."
            )
        ]
    return []


def _about_memory(size: RunSize, memory: Memory, available: float, n_workers: int | None) -> list[str]:
    needed, owner = (memory.process, "this machine") if memory.worker is None else (memory.worker, "a worker")
    if needed <= USABLE * available:
        return []
    ways = ["use more workers"]
    if n_workers is None:
        ways = [
            ("use Dask workers (" + setting("n_workers") + ")"),
            ("leave the pairs in a file, which each pass reads" + either(" (closefar.open_pairs)", "")),
        ]
    if size.dtype == "float64" and size.n_points is None:
        ways.append("store float32, which halves the data")
    if not size.are_differences and size.n_points is None:
        ways.append("pass differences, which halves the data")
    return [f"{as_bytes(needed)} do not fit into the {as_bytes(available)} of {owner}: {', or '.join(ways)}."]


def _about_card(memory: Memory, card: Card | None, n_workers: int | None) -> list[str]:
    if card is None or memory.card is None:
        return []
    if memory.card <= USABLE * card.memory:
        return [f"The data fit on the card: {as_bytes(memory.card)} of {as_bytes(card.memory)}."]
    n_cards = math.ceil(memory.card / (USABLE * card.memory)) * (n_workers or 1)
    return [
        (
            f"{as_bytes(memory.card)} do not fit on a card of {as_bytes(card.memory)}: use "
            f"{as_count(n_cards)} workers with a card each ("
            + setting("n_workers")
            + "), fewer pairs, or pairs by index."
        )
    ]
