"""Engines: where the partitions of data are stored and computed with; nothing here knows of metrics."""

from closefar.engines.choice import engine_for
from closefar.engines.engine import Engine, LocalEngine, Movable, PartitionError, TaskResult, by_partition, combined
from closefar.engines.threads import threads_at_most, threads_for

__all__ = [
    "Engine",
    "LocalEngine",
    "Movable",
    "PartitionError",
    "TaskResult",
    "by_partition",
    "combined",
    "engine_for",
    "threads_at_most",
    "threads_for",
]
