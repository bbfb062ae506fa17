"""Partitions in this process, one after another; the reference for all other engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from closefar.engines.engine import Combine, Engine, Load, Ref, TaskResult, combined, loaded
from closefar.engines.movable import moved
from closefar.engines.threads import threads_at_most

__all__ = ["LocalEngine"]

# Partitions of up to this size together are held once they are loaded; others are loaded in each pass.
HOLD_BYTES = 1 << 31


class LocalEngine(Engine):
    """Computes with one partition after another, with one thread each as on a cluster, so that sums have the same bits.

    Partitions that fit `HOLD_BYTES` are held in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = HOLD_BYTES

    def load(self, load: Load, tasks: Sequence[Any], shared: Any) -> list[Ref]:
        n, shared = len(tasks), _computed(shared)
        return [_Here(self, _loaded_here, (load, task, shared, number, n)) for number, task in enumerate(tasks)]

    def keep(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Ref]:
        function = moved(function)
        return [_Here(self, function, items) for items in zip(*columns, strict=True)]

    def run(
        self, function: Callable[..., TaskResult], *columns: Sequence[Any], combine: Combine, keeps: bool = False
    ) -> tuple[Any, list[Ref]]:
        self.round_trips += 1
        function = moved(function)  # as on a cluster: the layout of its arrays decides how sums are rounded
        small, kept = [], []
        with threads_at_most(1):
            for items in zip(*columns, strict=True):
                result = function(*map(_value, items))
                small.append(moved(result.small))
                if keeps:
                    kept.append(result)
        return combined(combine, small), kept

    def describe(self, n_partitions: int) -> str:
        return f"NumPy, {n_partitions:,} partition{'s' if n_partitions != 1 else ''} in this process"

    def has_room(self, value: Any) -> bool:
        """Whether a value of this size can be held; if so, there is less room from now on."""
        size = int(getattr(value, "nbytes", 0))
        if size > self._room:
            return False
        self._room -= size
        return True

    def make_room(self, value: Any) -> None:
        self._room += int(getattr(value, "nbytes", 0))


class _Here:
    """A value of one partition, computed when it is needed, and held as long as there is room."""

    def __init__(self, engine: LocalEngine, function: Callable[..., Any], items: tuple[Any, ...]) -> None:
        self._engine = engine
        self._function = function
        self._items = items
        self._held: Any = None

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def value(self) -> Any:
        if self._held is not None:
            return self._held
        found = self._function(*map(_value, self._items))
        if all(item.is_held for item in self._items if isinstance(item, _Here)) and self._engine.has_room(found):
            self._held = found
        return found

    def __del__(self) -> None:
        if self._held is not None:
            self._engine.make_room(self._held)


def _value(item: Any) -> Any:
    return item.value() if isinstance(item, _Here) else item


def _computed(value: Any) -> Any:
    """What a `dask.delayed.Delayed` stands for; other values stay what they are."""
    return value.compute(scheduler="synchronous") if hasattr(value, "__dask_graph__") else value


def _loaded_here(load: Load, task: Any, shared: Any, number: int, n_partitions: int) -> Any:
    def load_computed(task: Any, shared: Any) -> Any:
        return load(_computed(task), shared)

    return loaded(load_computed, task, shared, number, n_partitions)
