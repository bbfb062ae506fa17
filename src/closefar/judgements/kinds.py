"""The kinds of judgement."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Kind"]


class Kind(StrEnum):
    """What was judged, and how: a pair as close or far, a pair by a level, or two pairs compared."""

    CLOSE_FAR = "close_far"
    LEVELS = "levels"
    COMPARISONS = "comparisons"

    @property
    def noun(self) -> str:
        """What a judgement is about."""
        return "comparison" if self is Kind.COMPARISONS else "pair"

    @property
    def term(self) -> str:
        """What a judgement says."""
        return "answer" if self is Kind.COMPARISONS else "label"
