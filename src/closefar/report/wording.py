"""Numbers and names in sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from closefar.errors import command_words, either

_LONGEST_IN_SENTENCE = 40  # letters: less than half a line
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"


def percent(share: float) -> str:
    """A share that is not all never reads as all, nor one that is not none as none."""
    if min(abs(share), abs(share - 1.0)) < 1e-9:  # the rounding of sums
        return f"{share:.0%}"
    if 0.9995 <= share < 1.0:
        return "over 99.9%"
    if 0.0 < share < 0.0005:
        return "under 0.1%"
    return f"{share:.1%}"


def points(difference: float) -> str:
    """A difference of two percentages."""
    return f"{100.0 * difference:+.1f} percentage points".replace("-0.0 ", "±0.0 ").replace("+0.0 ", "±0.0 ")


def count(n: float, noun: str) -> str:
    """Return "1 pair", "2,000 pairs"."""
    return f"{n:,.0f} {noun}" + ("" if n == 1 else "s")


def digits(value: float, form: str = ".3g") -> str:
    """Three digits, with zeros at the end, so that numbers below each other have as many digits."""
    return format(value, form.replace(".", "#.")).removesuffix(".") if value else "0"


def signed(value: float) -> str:
    """Two decimals with a sign, and zero without one."""
    return f"{value:+z.2f}".replace("+0.00", "0.00")


def with_and(words: Sequence[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def sentence(words: str) -> str:
    """The same words with a capital, unless the first is the name of a parameter."""
    both = (str(words), command_words(words))
    return either(*(each if "_" in each.partition(" ")[0] else each[:1].upper() + each[1:] for each in both))


def abridged(words: str, longest: int) -> str:
    """A long name without its middle, as names often differ at the end."""
    if len(words) <= longest:
        return words
    end = longest * 2 // 5
    return f"{words[: longest - end - 1].rstrip()}…{words[-end:].lstrip()}"


def short(name: str, longest: int = _LONGEST_IN_SENTENCE) -> str:
    """A name fit for a sentence: one line, not too long, without bidirectional control characters."""
    printable = "".join(letter if letter.isprintable() else " " for letter in name)
    words = abridged(" ".join(printable.split()), longest) or "(no name)"
    if any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in words):
        return f"{_FIRST_STRONG_ISOLATE}{words}{_POP_ISOLATE}"
    return words
