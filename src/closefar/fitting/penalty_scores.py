"""The table from which a penalty is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from closefar.plain import format_table

__all__ = ["PenaltyChoice", "PenaltyScore"]


class PenaltyScore(NamedTuple):
    """A penalty that was tried.

    `loss` and `accuracy` are those of held-out pairs, `excess` is the difference of that loss from the lowest one
    with the chosen scale, with its standard error, and `gap` is the proven gap of the fit to the other pairs.
    """

    alpha: float
    alpha_scale: float | str
    loss: float
    excess: float
    standard_error: float
    accuracy: float
    rank: int
    gap: float


@dataclass(frozen=True)
class PenaltyChoice:
    """The weight and the scale of a penalty that were chosen on held-out pairs, and the table of all that were tried.

    Attributes
    ----------
    alpha : float
    alpha_scale : float or str
        As in `LinearMetricLearner`.
    n_held_out : int
        The number of held-out pairs; zero if there were too few, or no time, and the penalty is a rule of thumb.
    by_point : bool
        Whether points were held out, since pairs share them.
    table : tuple of PenaltyScore
        In the order in which they were tried.
    """

    alpha: float
    alpha_scale: float | str
    n_held_out: int
    by_point: bool
    table: tuple[PenaltyScore, ...]

    @property
    def sentence(self) -> str:
        """What was chosen, and how."""
        chosen = f'alpha="auto" chose alpha={self.alpha:.4g} and alpha_scale={self.alpha_scale!r}'
        if not self.table:
            return f"{chosen} by a rule of thumb, without held-out pairs."
        unseen = "pairs of unseen points" if self.by_point else "held-out pairs"
        return f"{chosen} by the loss of {self.n_held_out:,} {unseen}, out of {len(self.table)} penalties."

    def __str__(self) -> str:
        if not self.table:
            return self.sentence
        columns = [
            ("alpha", ".4g"),
            ("scale", ""),
            ("held-out loss", ".5f"),
            ("excess", ".5f"),
            ("std. error", ".5f"),
            ("accuracy", ".4f"),
            ("rank", "d"),
            ("proven gap", ".1e"),
        ]
        lines = format_table(columns, [list(score) for score in self.table]).split("\n")
        marked = [
            line + (" *" if score[:2] == (self.alpha, self.alpha_scale) else "")
            for line, score in zip(lines[1:], self.table, strict=True)
        ]
        return "\n".join([lines[0], *marked])
