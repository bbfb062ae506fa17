"""Engines: where the partitions of data are stored and computed with; nothing here knows of metrics."""

from closefar.engines.engine import (
    Combine,
    DaskEngine,
    Engine,
    LocalEngine,
    Movable,
    PartitionError,
    Ref,
    TaskResult,
    by_partition,
    combined,
    engine_for,
)
from closefar.engines.threads import threads_at_most, threads_for

__all__ = [
    "Combine",
    "DaskEngine",
    "Engine",
    "LocalEngine",
    "Movable",
    "PartitionError",
    "Ref",
    "TaskResult",
    "by_partition",
    "combined",
    "engine_for",
    "threads_at_most",
    "threads_for",
]
