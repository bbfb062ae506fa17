"""The kinds of judgement."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["LEGS", "TURNED", "Kind"]

# The points of both legs of a triplet and of a quadruplet, the near leg first, by the number of points; and the order
# of the points if such a comparison is turned round.
LEGS = {3: ((0, 1), (0, 2)), 4: ((0, 1), (2, 3))}
TURNED = {3: [0, 2, 1], 4: [2, 3, 0, 1]}


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
