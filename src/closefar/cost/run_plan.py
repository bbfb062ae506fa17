"""A plan: what a fit will cost, and its summary."""

from __future__ import annotations

from dataclasses import dataclass

from closefar.cost.cards import Card
from closefar.cost.memory import Memory
from closefar.cost.network import Network, Traffic
from closefar.cost.passes import ExpectedPasses
from closefar.cost.rates import Rates
from closefar.cost.size import RunSize
from closefar.cost.text import as_bytes, as_count, as_time

__all__ = ["RunPlan"]

_SHOWN = 0.02  # parts of a smaller share of the time are not shown


@dataclass(frozen=True)
class RunPlan:
    """What a fit will cost; `str` of it is a readable summary.

    Attributes
    ----------
    size : RunSize
    engine : str
        Where passes run.
    passes : ExpectedPasses
        The solver that `fit` chooses, why, and its passes.
    seconds, seconds_low, seconds_high : float
        The time of `fit`, and a range for it.
    parts : dict of str to float
        The seconds of each part: arithmetic, memory bandwidth, likelihood, and so on.
    memory : Memory
    memory_available : float
        The memory of this machine, or the one that was given (of each worker, with workers).
    traffic : Traffic or None
        With workers: round trips, and bytes per pass and in all.
    advice : tuple of str
        What would make the run faster or smaller.
    assumptions : tuple of str
        What the plan assumes.
    rates : Rates
        The measured rates.
    network : Network or None
    card : Card or None
    """

    size: RunSize
    engine: str
    passes: ExpectedPasses
    seconds: float
    seconds_low: float
    seconds_high: float
    parts: dict[str, float]
    memory: Memory
    memory_available: float
    traffic: Traffic | None
    advice: tuple[str, ...]
    assumptions: tuple[str, ...]
    rates: Rates
    network: Network | None = None
    card: Card | None = None

    @property
    def bottleneck(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])

    def __str__(self) -> str:
        return _describe(self)


def _describe(plan: RunPlan) -> str:
    """The plan as lines of text."""
    lines = [
        f"{_data(plan)}; {plan.engine}.",
        f"Solver   {plan.passes.solver}: {plan.passes.reason}.",
        f"Passes   {_passes(plan)}.",
        f"Time     {as_time(plan.seconds)} ({as_time(plan.seconds_low)} to {as_time(plan.seconds_high)}).",
        f"Memory   {_memory(plan)}.",
    ]
    if plan.traffic is not None:
        traffic = plan.traffic
        lines.append(
            f"Network  {as_bytes(traffic.bytes_per_pass)} per pass, {as_bytes(traffic.total_bytes)} in all; "
            f"{traffic.round_trips:.0f} round trips to {as_count(traffic.n_partitions)} partitions."
        )
    lines.append(f"Bottleneck: {plan.bottleneck}. {_parts(plan)}.")
    lines += [f"Note: {each}" for each in plan.assumptions]
    lines += [f"Advice: {each}" for each in plan.advice]
    return "\n".join(lines)


def _data(plan: RunPlan) -> str:
    size = plan.size
    rank = "" if size.rank is None else f", rank {size.rank}"
    by = "" if size.n_points is None else f" of {as_count(size.n_points)} points, by index"
    parts = [(size.n_pairs - 2 * size.n_comparisons, "pairs"), (size.n_comparisons, "comparisons")]
    judged = " and ".join(f"{as_count(n)} {noun}" for n, noun in parts if n)
    return f"{judged}{by} x {size.n_features} features{rank}, {as_bytes(size.data_bytes)}"


def _passes(plan: RunPlan) -> str:
    passes = plan.passes
    text = f"about {passes.over_all:.0f} over all pairs, and {passes.proof:.0f} for the proof"
    if passes.n_sampled:
        return f"about {passes.sample:.0f} over a sample of {as_count(passes.n_sampled)} pairs, {text[6:]}"
    return text


def _memory(plan: RunPlan) -> str:
    memory = plan.memory
    parts = []
    if memory.worker is None:
        with_data = "" if memory.card is not None else f", of which {as_bytes(memory.data)} are the data"
        parts.append(f"{as_bytes(memory.process)} in the process{with_data}")
    else:
        parts.append(f"{as_bytes(memory.worker)} per worker, {as_bytes(memory.process)} in the driver")
    if memory.card is not None:
        parts.append(f"{as_bytes(memory.card)} on {'each' if memory.worker is not None else 'the'} card")
    owner = "here" if memory.worker is None else "each worker is assumed to have"
    available = as_bytes(plan.memory_available)
    parts.append(f"{available} are available" if owner == "here" else f"{owner} {available}")
    return "; ".join(parts)


def _parts(plan: RunPlan) -> str:
    total = sum(plan.parts.values())
    shown = [f"{name} {share:.0%}" for name, each in plan.parts.items() if (share := each / total) >= _SHOWN]
    return "Shares of the time: " + ", ".join(shown)
