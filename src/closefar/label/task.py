"""What the owner of a labelling task has decided: what is asked, of whom, and how the next question is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskKind(StrEnum):
    """What is judged: pairs as close or far, pairs on levels, or which of two things is nearer to a third."""

    pairs = "pairs"
    levels = "levels"
    triplets = "triplets"


class Purpose(StrEnum):
    """Why somebody was asked a question: for its own sake, to compare people, or to look at an answer again."""

    first = "first"
    shared = "shared"
    review = "review"


# What is recorded, from closest to farthest; for triplets, which of the two is nearer to the first thing.
ANSWERS = {TaskKind.pairs: ("close", "far"), TaskKind.triplets: ("left", "right")}


@dataclass(frozen=True)
class Task:
    """A labelling task.

    Attributes
    ----------
    kind : TaskKind
    question, instructions : str
        The wording of the question, and a longer text above the first one; both are shown as plain text.
    answers : tuple of str
        What may be answered, from closest to farthest; can't say is always allowed, and recorded as None.
    annotators : tuple of str
        Who judges: the owner, or others by their names.
    method : {"information", "uncertainty", "random"}
        How questions are chosen, apart from the random ones.
    random_share, shared_share : float
        The share of questions drawn at random, which alone measure quality; and the share that is asked of a second
        person, if there are several.
    target_error : float
        The relative spectral error of M / tau (M / tr M) up to which the number of judgements is projected.
    """

    kind: TaskKind
    question: str
    instructions: str
    answers: tuple[str, ...]
    annotators: tuple[str, ...] = ("owner",)
    method: str = "information"
    random_share: float = 0.15
    shared_share: float = 0.1
    target_error: float = 0.1

    @property
    def n_things(self) -> int:
        """How many things a question shows."""
        return 3 if self.kind is TaskKind.triplets else 2

    @property
    def is_shared(self) -> bool:
        """Whether several people judge."""
        return len(self.annotators) > 1
