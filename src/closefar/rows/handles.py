"""Arrays of one number, or of k numbers, per row that stay in their partitions: handles, and how they are computed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from closefar.arrays import Array
from closefar.engines.engine import Ref
from closefar.rows.source import PART_ROWS, concatenated, slices

__all__ = ["Compiled", "InParts", "PartitionedArray", "Program", "compiled"]

# Beyond this many steps, the numbers are stored when they are first computed: they would be computed again and again.
_MOST_STEPS = 8


class PartitionedArray:
    """A handle: numbers that are stored in partitions, or a function of such handles that is computed where they are.

    Sums and multiples of handles, and functions of them, take no round trip: they are computed in the next one that
    needs them, and stored there if they are needed again.
    """

    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to the methods below

    def __init__(self, function: Callable[..., Array], *arguments: Any, is_costly: bool = False) -> None:
        self.function: Callable[..., Array] | None = function
        self.arguments = arguments
        self.refs: Sequence[Ref] = ()
        self.place: int | str = ""
        self.is_costly = is_costly
        self._was_needed = False

    def __reduce__(self) -> Any:
        raise TypeError("a handle stays in its process: a function that is run on partitions must not refer to it.")

    @classmethod
    def stored(cls, refs: Sequence[Ref], place: int | str) -> PartitionedArray:
        """What the partitions have in this place: an attribute, or a number of what an `TaskResult` has kept."""
        array = cls(_unknown)
        array.store(refs, place)
        return array

    def store(self, refs: Sequence[Ref], place: int | str) -> None:
        """Refer to stored numbers from now on."""
        self.function, self.arguments, self.refs, self.place = None, (), refs, place

    def should_be_stored(self) -> bool:
        """Whether to store the numbers, which are about to be computed: they are costly, or needed again."""
        stores = self.is_costly or self._was_needed or self.n_steps > _MOST_STEPS
        self._was_needed = True
        return stores

    @property
    def n_steps(self) -> int:
        handles = (each for each in self.arguments if isinstance(each, PartitionedArray))
        return 0 if self.function is None else 1 + sum(each.n_steps for each in handles)

    def __add__(self, other: Any) -> PartitionedArray:
        return PartitionedArray(operator.add, self, _number(other))

    def __sub__(self, other: Any) -> PartitionedArray:
        return PartitionedArray(operator.sub, self, _number(other))

    def __mul__(self, other: Any) -> PartitionedArray:
        return PartitionedArray(operator.mul, self, _number(other))

    def __neg__(self) -> PartitionedArray:
        return PartitionedArray(operator.neg, self)

    __radd__ = __add__
    __rmul__ = __mul__


class _Stored(NamedTuple):
    column: int
    place: int | str


class _Applied(NamedTuple):
    function: Callable[..., Array]
    arguments: tuple[Any, ...]


class _Step(NamedTuple):
    """The number of the step whose result is an argument."""

    number: int


class Program(NamedTuple):
    """How handles are computed from what one partition has stored, step by step.

    `results` and `stored` are the numbers of the steps whose results are arguments, and are stored.
    """

    steps: tuple[_Stored | _Applied, ...]
    results: tuple[int, ...]
    stored: tuple[int, ...]

    def compute(self, items: Sequence[Any]) -> tuple[list[Array], tuple[Array, ...]]:
        found: list[Array] = []
        for step in self.steps:
            if isinstance(step, _Stored):
                item = items[step.column]
                found.append(getattr(item, step.place) if isinstance(step.place, str) else item.kept[step.place])
            else:
                given = (found[each.number] if isinstance(each, _Step) else each for each in step.arguments)
                found.append(step.function(*given))
        return [found[number] for number in self.results], tuple(found[number] for number in self.stored)


class Compiled(NamedTuple):
    """A program, the columns of what it needs, and the handles whose numbers it stores."""

    program: Program
    columns: list[Sequence[Ref]]
    stored: list[PartitionedArray]


def compiled(arrays: Sequence[PartitionedArray]) -> Compiled:
    """Return the program that computes these handles, and stores those that would be computed again."""
    steps: list[_Stored | _Applied] = []
    columns: list[Sequence[Ref]] = []
    computed: list[PartitionedArray] = []
    known: dict[int, int] = {}
    places: dict[int, int] = {}

    def number_of(array: PartitionedArray) -> int:
        if id(array) not in known:
            if array.function is None:
                if id(array.refs) not in places:
                    places[id(array.refs)] = len(columns)
                    columns.append(array.refs)
                step: _Stored | _Applied = _Stored(places[id(array.refs)], array.place)
            else:
                step = _Applied(array.function, tuple(map(argument, array.arguments)))
                computed.append(array)
            steps.append(step)
            known[id(array)] = len(steps) - 1
        return known[id(array)]

    def argument(value: Any) -> Any:
        return _Step(number_of(value)) if isinstance(value, PartitionedArray) else value

    results = tuple(number_of(array) for array in arrays)
    wanted = {id(array) for array in arrays}
    stored = [array for array in computed if array.is_costly or (id(array) in wanted and array.should_be_stored())]
    program = Program(tuple(steps), results, tuple(known[id(array)] for array in stored))
    return Compiled(program, columns, stored)


class InParts:
    """A function of row arrays that is applied to a part of them at a time, which stays in cache."""

    def __init__(self, function: Callable[..., Array]) -> None:
        self._function = function

    def __call__(self, *arrays: Array) -> Array:
        n = int(arrays[0].shape[0])
        return concatenated([self._function(*(array[where] for array in arrays)) for where in slices(n, PART_ROWS)])


def _number(value: Any) -> Any:
    return value if isinstance(value, PartitionedArray) else float(value)


def _unknown() -> Array:
    raise RuntimeError("these numbers are stored in their partitions.")
