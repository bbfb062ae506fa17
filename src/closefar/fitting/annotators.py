"""What a fit says about each annotator: strictness, flip rate, agreement, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

import numpy as np
from scipy.stats import norm

from closefar.arrays import FloatArray, IndexArray
from closefar.plain import data_frame

_MOST_SHOWN = 40


class AnnotatorVerdict(StrEnum):
    """What the answers of an annotator show, in words."""

    TYPICAL = "typical"
    STRICTER = "stricter than most"
    MORE_LENIENT = "more lenient than most"
    AT_RANDOM = "answers at random"
    OFTEN_AT_RANDOM = "often answers at random"
    THE_OTHER_WAY_ROUND = "answers the other way round"
    ALWAYS_THE_SAME = "always gives the same answer"
    TOO_FEW = "too few judgements to tell"


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorTable:
    """One row per annotator, in the order of their ids.

    Attributes
    ----------
    names : tuple
        The ids.
    judgements : array of R integers
        How many judgements each annotator made.
    strictness : array of R numbers
        What each annotator adds to the thresholds: a strict one calls far only what is far indeed.  It is relative to
        the typical annotator, in the unit of the thresholds.
    strictness_errors : array of R numbers
        Its standard error, which includes that of the thresholds and of the metric.
    flip_rates : array of R numbers, optional
        The share of answers of each that are wrong since they are given at random; of close/far labels it is 0.5 if
        all are.  None unless each has their own rate (`flip_rate="estimate"`).
    agreement : array of R numbers
        The share of answers that the metric gives as well, for the typical annotator.
    kappa : array of R numbers
        Cohen's kappa of the answers of each and those of others to the same pairs, with quadratic weights for levels;
        NaN if no pair was judged by others too, or if all these answers are the same.
    information : array of R numbers
        The slope of the answers on those that the metric expects: 1 for answers as expected, 0 for answers at random.
    verdicts : tuple of AnnotatorVerdict
    width : float
        The standard deviation of the prior on strictness, set or estimated.

    Examples
    --------
    >>> import numpy as np, closefar as cf
    >>> data = cf.datasets.make_pairs(2000, 3, random_state=0)
    >>> who = np.repeat(["ann", "bea", "cem", "dag"], 500)
    >>> answers = np.where(who == "dag", np.random.default_rng(0).choice([-1, 1], 2000), data.labels)
    >>> learner = cf.LinearMetricLearner(flip_rate="estimate").fit(data.pairs, answers, annotators=who)
    >>> str(learner.annotators_.verdict_of("dag"))
    'answers at random'
    """

    names: tuple[Any, ...]
    judgements: IndexArray
    strictness: FloatArray
    strictness_errors: FloatArray
    flip_rates: FloatArray | None
    agreement: FloatArray
    kappa: FloatArray
    information: FloatArray
    verdicts: tuple[AnnotatorVerdict, ...]
    width: float

    def __len__(self) -> int:
        return len(self.names)

    def keys(self) -> list[str]:
        """Return the names of the columns of `to_dict`."""
        return list(self.to_dict())

    def __getitem__(self, column: str) -> list[Any]:
        """Return a column of `to_dict`."""
        columns = self.to_dict()
        if column not in columns:
            raise KeyError(f"a table of annotators has the columns {', '.join(columns)}; got {column!r}.")
        return columns[column]

    def strictness_of(self, ids: Any) -> FloatArray:
        """Return the strictness of these annotators."""
        return self.strictness[[self._place(name) for name in ids]]

    def strictness_interval(self, level: float = 0.95) -> FloatArray:
        """Return the lower and the upper end of the interval of each strictness, shape (R, 2)."""
        reach = float(norm.ppf(0.5 + 0.5 * level)) * self.strictness_errors
        return np.column_stack([self.strictness - reach, self.strictness + reach])

    def verdict_of(self, name: Any) -> AnnotatorVerdict:
        """Return the verdict on an annotator."""
        return self.verdicts[self._place(name)]

    def named(self, verdict: AnnotatorVerdict | str) -> list[Any]:
        """Return the annotators with this verdict."""
        if verdict not in list(AnnotatorVerdict):
            known = ", ".join(repr(str(each)) for each in AnnotatorVerdict)
            raise ValueError(f"the verdict must be one of {known}; got {verdict!r}.")
        return [name for name, each in zip(self.names, self.verdicts, strict=True) if each == verdict]

    def _place(self, name: Any) -> int:
        if name not in self.names:
            raise ValueError(
                f"the annotator must be one of the {len(self.names)} of the fit; got {name!r}. See `names`."
            )
        return self.names.index(name)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists; None where a number is undefined."""
        interval = self.strictness_interval()
        columns: dict[str, list[Any]] = {
            "annotator": list(self.names),
            "judgements": self.judgements.tolist(),
            "strictness": self.strictness.tolist(),
            "strictness_low": interval[:, 0].tolist(),
            "strictness_high": interval[:, 1].tolist(),
        }
        if self.flip_rates is not None:
            columns["flip_rate"] = self.flip_rates.tolist()
        return columns | {
            "agreement": self.agreement.tolist(),
            "kappa": [None if np.isnan(value) else value for value in self.kappa.tolist()],
            "verdict": [str(verdict) for verdict in self.verdicts],
        }

    def to_frame(self) -> Any:
        """Return the table as a pandas data frame."""
        return data_frame(self.to_dict(), "to_dict()")

    def __repr__(self) -> str:
        return f"AnnotatorTable({len(self)} annotators)"

    def __str__(self) -> str:
        cells = self._cells()
        lengths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        texts = (0, len(lengths) - 1)
        lines = [
            "  ".join(
                cell.ljust(length) if column in texts else cell.rjust(length)
                for column, (cell, length) in enumerate(zip(row, lengths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        head, *body = ([escape(cell) for cell in row] for row in self._cells())
        rows = ["<tr><th>" + "</th><th>".join(head) + "</th></tr>"]
        rows += ["<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in body]
        return "<table>" + "".join(rows) + "</table>" + "".join(f"<p>{escape(line)}</p>" for line in self._rest())

    def _cells(self) -> list[list[str]]:
        """The header and the rows as text, of not too many annotators."""
        interval = self.strictness_interval()
        head = ["annotator", "judgements", "strictness", "95% interval", "flip rate", "agreement", "kappa", "verdict"]
        rows = [head]
        for place in range(min(len(self), _MOST_SHOWN)):
            low, high = interval[place]
            rate = "" if self.flip_rates is None else f"{self.flip_rates[place]:.2f}"
            kappa = self.kappa[place]
            rows.append(
                [
                    str(self.names[place]),
                    str(self.judgements[place]),
                    f"{self.strictness[place]:+z.2f}",
                    f"{low:+z.2f} to {high:+z.2f}",
                    rate,
                    f"{self.agreement[place]:.0%}",
                    "-" if np.isnan(kappa) else f"{kappa:.2f}",
                    str(self.verdicts[place]),
                ]
            )
        if self.flip_rates is None:
            rows = [[*row[:4], *row[5:]] for row in rows]
        return rows

    def _rest(self) -> list[str]:
        left = len(self) - _MOST_SHOWN
        return [f"... and {left} more annotators"] if left > 0 else []
