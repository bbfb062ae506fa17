"""Which judgements a table holds, two labels, levels or comparisons, and what is said of them on the screen."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from closefar.cli.session import Session

if TYPE_CHECKING:
    from closefar.tables import Pairs

__all__ = ["answers_used", "in_words", "note_levels", "with_words", "words_in_order"]

_MOST_LEVELS = 21  # that numbers are taken for by themselves: 0 to 20
_MOST_NAMED = 5

# Labels, in lower case, that say by themselves which one is far.
_PLAIN = {("close", "far"), ("0", "1"), ("-1", "1"), ("false", "true")}


def words_in_order(labels: Any, far: str | None, levels: tuple[str, ...] | None) -> tuple[str, ...]:
    """The labels from closest to farthest: two of them, or levels.

    Parameters
    ----------
    labels : array of texts
    far : str, optional
        The one of two labels that means far.
    levels : tuple of str, optional
        All of them in order; more than two numbers are in order by themselves.
    """
    counts = _counts(labels)
    if levels is not None:
        return _ordered(counts, levels)
    if len(counts) == 2:
        return _two_sides(counts, far)
    words = sorted(counts)
    numbers = [word for word in words if _number(word) is not None]
    if len(words) < 2 or len(numbers) < len(words):
        mixed = "numbers and words, " if numbers and len(words) > 2 else ""
        words.sort(key=lambda word: _number(word) is not None)  # a few words among numbers come first
        raise ValueError(
            "there must be two labels, one for close and one for far, or levels, which are numbers or in the order of "
            f"--levels; got {mixed}{len(words)} in all: {_named(counts, words)}. Correct the label column, choose "
            "another with --label, or give all labels from closest to farthest with --levels."
        )
    levels = tuple(sorted(words, key=float))
    if len(levels) > _MOST_LEVELS:
        raise ValueError(
            f"numbers are taken for levels if there are at most {_MOST_LEVELS} different ones; got {len(levels)}: "
            f"{_named(counts, levels)}. Round them to fewer levels, or list them all with --levels."
        )
    if far is not None:
        raise ValueError(
            f"--far says which of two labels means far; got --far {far} with the {len(levels)} levels "
            f"{', '.join(levels)}. Leave it out; --levels gives an order from closest to farthest."
        )
    return levels


def _ordered(counts: dict[str, int], levels: tuple[str, ...]) -> tuple[str, ...]:
    """The levels, which must be those of the labels."""
    words = in_words(list(counts), levels)
    unknown = sorted(set(words) - set(levels))
    if unknown:
        raise ValueError(
            f"--levels must list every label, from closest to farthest; got {', '.join(levels)}, without "
            f"{_named({word: counts.get(word, 0) for word in unknown}, unknown)}. Add what is missing, or correct the "
            "labels."
        )
    unused = [level for level in levels if level not in words]
    if unused:
        raise ValueError(
            f"each level must have a judgement, as its thresholds can't be told otherwise; nobody used "
            f"{', '.join(map(repr, unused))}. Leave it out of --levels, or merge it with the next one."
        )
    return levels


def _two_sides(counts: dict[str, int], far: str | None) -> tuple[str, str]:
    first, second = words = sorted(counts)
    if far is None:
        if tuple(sorted(map(_plainly, words))) not in _PLAIN:
            raise ValueError(
                f"it is not clear which label means far: they are {_named(counts, words)}. "
                f"Use --far {second!r} or --far {first!r}."
            )
        far = max(words, key=_plainly)
    elif far not in words:
        raise ValueError(f"--far must be one of the two labels {_named(counts, words)}; got {far!r}.")
    return (first, second) if far == second else (second, first)


def in_words(labels: Any, words: tuple[str, ...]) -> Any:
    """The labels with a number as one of these words has it: 1.0 as 1."""
    import numpy as np

    from closefar.judgements import CodedLabels

    by_number = {_number(word): word for word in words if _number(word) is not None}
    if isinstance(labels, CodedLabels):
        return CodedLabels(in_words(labels.words.tolist(), words), labels.codes)
    if isinstance(labels, list):
        return [label if label in words else by_number.get(_number(label), label) for label in labels]
    known, codes = np.unique(labels.astype(str), return_inverse=True)
    return np.array(in_words(known.tolist(), words), dtype=object)[codes]


def answers_used(labels: Any, answers: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Those of the possible answers that were given, in their order; None where fewer than two were."""
    given = set(_counts_as_written(labels))
    used = tuple(answer for answer in answers or () if answer in given)
    return used if len(used) > 1 else None


def with_words(table: Pairs, words: tuple[str, ...]) -> Pairs:
    """The table with the labels of these levels."""
    if len(words) == 2 and len(_counts_as_written(table.labels)) == 2:
        return table
    labels: Any = in_words(table.labels, words)
    return table.with_labels(labels)


def note_levels(session: Session, words: tuple[str, ...], *, is_ordered: bool) -> None:
    """Say which levels were recognised and, unless somebody has put them in order, how to reverse them."""
    if len(words) == 2:
        return
    first, *middle, last = words
    order = ", ".join([f"{first} (closest)", *middle, f"{last} (farthest)"])
    if is_ordered:
        session.warn(f"{len(words)} levels: {order}.")
        return
    reverse = ",".join(reversed(words))
    session.warn(f"{len(words)} levels: {order}. If they rate similarity, reverse them with --levels {reverse}.")
    _note_gap(session, words)


def _note_gap(session: Session, levels: tuple[str, ...]) -> None:
    """Name the whole numbers that nobody used: one that is far off may stand for a missing answer."""
    numbers = [float(level) for level in levels]
    if not all(number.is_integer() for number in numbers):
        return
    gaps = [(low, high) for low, high in pairwise(numbers) if high - low > 1]
    for low, high in gaps[:1]:
        session.warn(
            f"nobody used a level between {low:g} and {high:g}, which therefore follow each other; if one of them "
            "stands for a missing answer, name it with --na-values."
        )


def _counts(labels: Any) -> dict[str, int]:
    """How many rows have each label; numbers count as the same however they are written."""
    counts = _counts_as_written(labels)
    if len(counts) <= 2:
        return counts
    written: dict[float, str] = {}
    together: Counter[str] = Counter()
    for word, count in counts.items():
        number = _number(word)
        together[word if number is None else written.setdefault(number, f"{number:.15g}")] += count
    return dict(together)


def _counts_as_written(labels: Any) -> dict[str, int]:
    counts: dict[str, int] = labels.counts() if hasattr(labels, "counts") else Counter(labels.tolist())
    return counts


def _named(counts: dict[str, int], words: Any) -> str:
    named = ", ".join(f"{word[:60]!r} ({counts[word]})" for word in words[:_MOST_NAMED])
    return f"{named}{', ...' if len(words) > _MOST_NAMED else ''}"


def _number(word: str) -> float | None:
    """The finite number that a label is; None for other labels."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in word else None


def _plainly(word: str) -> str:
    """The label in lower case; a whole number as 1, however it is written."""
    try:
        return f"{float(word):g}"
    except ValueError:
        return word.lower()
