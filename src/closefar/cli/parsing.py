"""Numbers and words that options take."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["any_of", "check_positive", "check_range", "number"]


def number(text: str | None, kind: type[int] | type[float], option: str, *words: str) -> Any:
    """The number that an option has, or one of these words."""
    if text is None or text in words:
        return text
    try:
        return kind(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise ValueError(f"{option} must be {any_of(*words, expected)}; got {text!r}.") from None


def check_positive(option: str, text: str | None) -> None:
    """Refuse what is neither a number > 0 nor to be estimated."""
    value = number(text, float, option, "estimate")
    if isinstance(value, float) and not (math.isfinite(value) and value > 0):
        raise ValueError(f"{option} must be estimate or a finite number > 0; got {text}.")


def check_range(option: str, value: float) -> None:
    """Refuse what is no number >= 0."""
    if not (math.isfinite(value) and value >= 0):
        word = "auto or " if option == "--alpha" else ""
        raise ValueError(f"{option} must be {word}a finite number >= 0; got {value:g}.")


def any_of(*words: str) -> str:
    """The words with commas, and "or" before the last."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
