"""The journal of a fit: what its runs have come to, as numbers that another process can continue from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Entry", "Journal"]

# Numbers, strings, lists, dicts and small arrays; never one number per row.
Entry = dict[str, Any]


class Journal:
    """The runs that have ended, in order, and the one under way.

    A fit is a fixed sequence of runs of solvers.  When it is repeated, runs that have ended are not run again, and the
    one under way continues where it was.

    Parameters
    ----------
    ended : sequence of dict
        The entries of the runs that have ended.
    under_way : dict, optional
        That of the run that had begun.
    write : callable
        Called with the journal when there is something new to write; it decides whether it is time to.
    """

    def __init__(
        self, write: Callable[[Journal], None], ended: Sequence[Entry] = (), under_way: Entry | None = None
    ) -> None:
        self.ended = list(ended)
        self.under_way = under_way
        self._write = write
        self._position = 0
        self._is_sealed = False

    def begin(self, label: Entry) -> tuple[Entry | None, bool]:
        """The entry of the run that begins, if there is one, and whether that run has ended."""
        position = self._position
        self._position += 1
        if self._is_sealed or position > len(self.ended):
            return None, False
        has_ended = position < len(self.ended)
        entry = self.ended[position] if has_ended else self.under_way
        if entry is not None and entry["label"] != label:
            raise ValueError(
                f"the checkpoint was written by another version of closefar: its computation number {position + 1} is "
                f"{_words(entry['label'])}, and here it is {_words(label)}. Use that version, or another checkpoint."
            )
        return entry, has_ended

    def keep(self, entry: Entry) -> None:
        """Note what the run under way has come to."""
        if not self._is_sealed:
            self.under_way = entry
            self._write(self)

    def end(self, entry: Entry) -> None:
        """Note the result of a run."""
        if not self._is_sealed:
            self.ended.append(entry)
            self.under_way = None
            self._write(self)

    def seal(self) -> None:
        """Note nothing more: what follows an interrupt only completes what has been computed."""
        self._is_sealed = True


def _words(label: Entry) -> str:
    return ", ".join(f"{name} {value}" for name, value in label.items())
