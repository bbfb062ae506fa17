"""Where a report comes from: its files, which it names, and the tool in whose words it speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from closefar.messages import as_options

__all__ = ["Provenance"]


@dataclass(frozen=True)
class Provenance:
    """The files behind a report; with data files it is one of the command line, else of Python.

    Attributes
    ----------
    points, pairs, comparisons, judgements : str or None
        The files that the data were read from; `judgements` are those of pairs that have a file of their own.
    model : str or None
        The model file.
    categories : mapping of str to sequence of str
        The values of each column without numbers: the one without a 0/1 column of its own first, or those that
        were encoded as 0, 1, 2 and so on.
    """

    points: str | None = None
    pairs: str | None = None
    model: str | None = None
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    comparisons: str | None = None
    judgements: str | None = None

    @property
    def files(self) -> list[str]:
        """The data files."""
        given = (self.points, self.pairs, self.comparisons, self.judgements)
        return [name for name in given if name is not None]

    @property
    def is_command_line(self) -> bool:
        return bool(self.files)

    def say(self, words: str) -> str:
        """Advice in the words of the reader's tool."""
        return as_options(words) if self.is_command_line else words
