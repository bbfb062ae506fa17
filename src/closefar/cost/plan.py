"""What a fit of a given size will cost on this machine, on workers or on a card."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from closefar.cost.advice import USABLE, advise
from closefar.cost.cards import (
    DECOMPOSITIONS,
    DOUBLE_PASSES,
    H200,
    PRECISE_PASSES,
    Card,
    card_seconds,
    copying_seconds,
    measure_card,
)
from closefar.cost.memory import Memory, expected_memory
from closefar.cost.network import Network, expected_traffic, measure_network
from closefar.cost.passes import Work, expected_work
from closefar.cost.rates import Rates, measure_rates
from closefar.cost.run_plan import RunPlan
from closefar.cost.size import RunSize, parse_bytes, parse_count
from closefar.cost.text import as_time
from closefar.errors import setting

__all__ = ["plan_run"]

_DISK = 1e9  # bytes per second of each machine, assumed
_CARD_UNCERTAINTY = 1.8
# Two workers take 1.5 to 2.6 times the CPU seconds of the same partitions in one process (benchmarks/cost.py): they
# receive data, handle tasks and share caches.
_WORKER_OVERHEAD = 2.0
_WORKER_START = 0.6  # seconds of importing closefar at the first task
# Pairs by index: a product with the Hessian, or a search along a line, gathers two projections of each point.
_GATHERED_TWICE = 1.7
_BASE_SECONDS = 0.005  # of any fit, however small


def plan_run(
    n_pairs: str | float | None,
    n_features: str | float,
    *,
    n_comparisons: str | float | None = None,
    rank: str | float | None = None,
    n_points: str | float | None = None,
    n_workers: str | float | None = None,
    n_partitions: str | float | None = None,
    gpu: bool = False,
    memory: str | float | None = None,
    dtype: str = "float64",
    differences: bool = False,
    rates: Rates | None = None,
    network: Network | None = None,
    card: Card | None = None,
) -> RunPlan:
    """Predict what `LinearMetricLearner().fit` will cost for data of a given size, without such data.

    The solver is the one that `fit` would choose; the number of passes follows from laws fitted to counted runs; the
    time of each follows from rates that are measured on this machine, which takes about a second.
    For how many pairs to label, see `plan_sample_size`.

    Parameters
    ----------
    n_pairs, n_features : int or str
        The size of the data; sizes may be written as 1e10, "10_000_000" or "10M".  `n_pairs` is None if there are
        comparisons alone.
    n_comparisons : int or str, optional
        The number of comparisons, each of which is two pairs to compute with.
    rank : int, optional
        The largest rank of M.
    n_points : int, optional
        The number of points, if pairs are given by index (`closefar.Tuples`).
    n_workers : int, optional
        The number of Dask workers, each with one core like those of this machine.  The round trip is measured on
        the current client or, if there is none, with a worker inside this process.
    n_partitions : int, optional
        The number of partitions; by default eight per worker, or as many as keep each below 128 MiB.
    gpu : bool, default=False
        Plan for a graphics card (one per worker): the one in this machine, which is then measured, or an NVIDIA
        H200 by its documented figures.
    memory : int or str, optional
        Bytes of memory of the machine, or of each worker; "64GB", for example.  By default that of this machine.
    dtype : {"float64", "float32"}, default="float64"
        The numbers of the data.
    differences : bool, default=False
        Whether the data are differences, (n, d), not pairs of points, (n, 2, d).
    rates, network, card : Rates, Network and Card, optional
        Rates that are known, so that nothing is measured.

    Returns
    -------
    RunPlan

    Examples
    --------
    >>> import closefar as cf
    >>> plan = cf.plan_run("1M", 50)
    >>> plan.passes.solver
    'sampled'
    >>> plan.seconds_low < plan.seconds < plan.seconds_high
    True
    """
    if n_pairs is None and n_comparisons is None:
        raise ValueError(
            "a plan needs "
            + setting("n_pairs")
            + " or "
            + setting("n_comparisons")
            + "; got neither. Give the number of pairs."
        )
    if n_comparisons is not None and n_workers is not None:
        raise ValueError(
            "comparisons can't be fitted on workers; got " + setting(n_workers=n_workers) + ". Plan for one machine."
        )
    pairs = 0 if n_pairs is None else parse_count(n_pairs, "n_pairs")
    compared = 0 if n_comparisons is None else parse_count(n_comparisons, "n_comparisons")
    size = RunSize(
        pairs + 2 * compared,
        parse_count(n_features, "n_features"),
        None if rank is None else parse_count(rank, "rank"),
        None if n_points is None else parse_count(n_points, "n_points"),
        dtype,
        differences,
        compared,
    )
    workers = None if n_workers is None else parse_count(n_workers, "n_workers")
    partitions = None if n_partitions is None else parse_count(n_partitions, "n_partitions")
    available = float(_physical_memory() if memory is None else parse_bytes(memory, "memory"))
    if rates is None:
        rates = measure_rates(size, n_threads=1 if gpu or workers is not None else None)
    card = (card or measure_card(size) or H200) if gpu else None
    network = None if workers is None else network or measure_network()
    machine = _Machine(rates, workers, partitions, network, card, available)
    return _plan(size, machine)


@dataclass(frozen=True)
class _Machine:
    """Where a run is planned."""

    rates: Rates
    n_workers: int | None
    n_partitions: int | None
    network: Network | None
    card: Card | None
    memory: float


def _plan(size: RunSize, machine: _Machine) -> RunPlan:
    rates, n_workers, card, network = machine.rates, machine.n_workers, machine.card, machine.network
    work = expected_work(size, is_remote=n_workers is not None, gpu=card is not None)
    needed = expected_memory(size, work, n_workers=n_workers, gpu=card is not None)
    if card is None:
        passes, uncertainty = work.passes(size), work.uncertainty
        parts = _parts(size, work, rates, n_workers)
        n_passes = work.precise + work.proof
    else:
        passes = replace(work.passes(size), sample=0.0, n_sampled=0, over_all=PRECISE_PASSES, proof=DOUBLE_PASSES)
        parts, uncertainty = _card_parts(size, rates, card, needed, n_workers), _CARD_UNCERTAINTY
        n_passes = passes.over_all + passes.proof
    parts |= _reading(size, needed, machine, n_passes)
    traffic = None
    if n_workers is not None and network is not None:
        traffic = expected_traffic(size, network, n_workers, n_passes, work.n_sampled, machine.n_partitions)
        parts["network and scheduler"] = traffic.seconds
        parts["loading partitions"] = size.data_bytes / _DISK / n_workers
        parts["first task of each worker"] = _WORKER_START
    seconds = _BASE_SECONDS + sum(parts.values())
    return RunPlan(
        size=size,
        engine=_engine(machine),
        passes=passes,
        seconds=seconds,
        seconds_low=seconds / uncertainty,
        seconds_high=seconds * uncertainty,
        parts=dict(sorted(parts.items(), key=lambda part: -part[1])),
        memory=needed,
        memory_available=machine.memory,
        traffic=traffic,
        advice=advise(size, work, needed, machine.memory, parts, n_workers=n_workers, card=card),
        assumptions=_assumptions(size, parts, machine),
        rates=rates,
        network=network,
        card=card,
    )


def _parts(size: RunSize, work: Work, rates: Rates, n_workers: int | None) -> dict[str, float]:
    """The seconds of a fit on processors, by what limits them."""
    n, d = size.n_pairs, size.n_features
    n_points, twice = (0, 1.0) if size.n_points is None else (size.n_points, _GATHERED_TWICE)
    full = work.precise + twice * work.proof
    rough = twice * (work.rough + work.rough_proof)
    passes = n * (full * rates.precise + rough * rates.rough + work.narrow * rates.narrow)
    points = n_points * rates.point * (full + rough + work.narrow * (size.rank or d) / d)
    spread = 1.0 if n_workers is None else _WORKER_OVERHEAD / n_workers
    rows = (n * (rates.prepare + rates.likelihood * work.likelihoods) + passes) * spread + points
    n_sampled_points = min(n_points, 2 * work.n_sampled)
    on_driver = twice * work.sample * (work.n_sampled * rates.precise + n_sampled_points * rates.point)
    return {
        **_split(size, rates, rows),
        "passes over the sample": on_driver,
        "Hessian": work.hessian_rows * rates.hessian * spread,
        "matrices of the size of M": work.eigen * rates.eigen + work.driver / rates.products,
    }


def _split(size: RunSize, rates: Rates, seconds: float) -> dict[str, float]:
    """The seconds of passes, split as the parts of one pass would take alone."""
    flops = 4.0 * size.n_features**2
    alone = {
        "arithmetic": flops / rates.products,
        "memory bandwidth": 2.0 * size.pair_bytes / rates.bandwidth,
        "likelihood": rates.likelihood,
    }
    if size.n_points is not None:
        share = size.n_points / size.n_pairs
        alone["arithmetic"] *= share
        alone["gathering projections of points"] = max(rates.precise - sum(alone.values()), 0.0)
    total = sum(alone.values())
    return {name: seconds * each / total for name, each in alone.items()}


def _card_parts(size: RunSize, rates: Rates, card: Card, needed: Memory, n_workers: int | None) -> dict[str, float]:
    """The seconds of a fit on a card; matrices of the size of M are decomposed on the host."""
    fits = (needed.card or 0.0) <= USABLE * card.memory
    parts = card_seconds(size, card, share=1.0 / (n_workers or 1), fits=fits)
    return {**parts, "matrices of the size of M": DECOMPOSITIONS * rates.eigen}


def _reading(size: RunSize, needed: Memory, machine: _Machine, n_passes: float) -> dict[str, float]:
    """The seconds of reading data that memory can't hold from a disk in every pass."""
    share = 1.0 / (machine.n_workers or 1)
    held = needed.process if needed.worker is None else needed.worker
    if machine.card is not None and (needed.card or 0.0) > USABLE * machine.card.memory:
        held += share * size.data_bytes
    if held <= USABLE * machine.memory:
        return {}
    return {"reading from disk": (2.0 + n_passes) * size.data_bytes / _DISK * share}


def _engine(machine: _Machine) -> str:
    threads = "one thread" if machine.rates.n_threads == 1 else f"{machine.rates.n_threads} threads"
    where = f"NumPy, {threads}" if machine.card is None else machine.card.name
    return where if machine.n_workers is None else f"Dask, {machine.n_workers} workers ({where} each)"


def _assumptions(size: RunSize, parts: dict[str, float], machine: _Machine) -> tuple[str, ...]:
    network, card, found = machine.network, machine.card, []
    if network is not None:
        found.append(
            "Each worker is assumed to have a core like those of this machine, and to load its partitions at 1 GB/s; "
            f"the network is {network.how}."
        )
    if card is not None and not card.is_measured:
        found.append(
            f"There is no graphics card here: the figures are documented ones of an {card.name}, not measured."
        )
    if card is not None:
        copying = copying_seconds(size, card, share=1.0 / (machine.n_workers or 1))
        found.append(
            f"Copying the data to the card takes another {as_time(copying)}, and compiling kernels at the first fit "
            "some seconds."
        )
    if "reading from disk" in parts:
        found.append("Memory can't hold the data, so each pass reads it from a disk, at an assumed 1 GB/s.")
    return tuple(found)


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
