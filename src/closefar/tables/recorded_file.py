"""Recorded answers as a table: a row for each judgement, with the ids of the points."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.errors import Place, TableError, counted
from closefar.tables.ids import as_id_column
from closefar.tables.inputs import Input
from closefar.tables.recorded import RecordedAnswers, read_recorded
from closefar.tables.values import MissingValues, load_arrow, to_text

_PAIRS, _TRIPLETS = ("first", "second", "label"), ("point", "left", "right", "answer")


class RecordedFile:
    """The judgements in a file that `closefar label` wrote, without those who can't say."""

    first_column_may_be_ids = False

    def __init__(self, source: Input, missing: MissingValues) -> None:
        self.path = source.name
        self.place = Place(self.path, first_row=0)
        self._missing = missing
        answers = read_recorded(source)
        self.about = answers.about
        self.ids = answers.ids
        self._columns = recorded_columns(answers)
        n_left, n_unsure = len(self._columns["time"]), len(answers) - len(self._columns["time"])
        if n_left == 0:
            unsure = f" but {counted(n_unsure, 'answer')} of can't say" if n_unsure else ""
            raise TableError(f"{self.path} has no judgements{unsure} yet. Judge something with `closefar label`.")
        self.notes = note_unsure(n_unsure, len(answers))
        self.names = list(self._columns)

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Return these columns; those `as_text` become text, and those `as_ids` pyarrow's."""
        return {
            name: self._converted(column, as_text=name in as_text, is_id=name in as_ids)
            for name, column in self._columns.items()
            if name in only
        }

    def _converted(self, column: NDArray[Any], *, as_text: bool, is_id: bool) -> Any:
        if is_id:
            load_arrow(self.path)
            return as_id_column(column, self._missing.words)
        return self._missing.in_column(to_text(column) if as_text else column)


def recorded_columns(answers: RecordedAnswers, *, keeps_unsure: bool = False) -> dict[str, NDArray[Any]]:
    """The columns of a table of judgements.

    Parameters
    ----------
    answers : RecordedAnswers
    keeps_unsure : bool
        Whether to keep answers of "can't say", with None as their label.
    """
    kept = np.ones(len(answers), dtype=bool) if keeps_unsure else answers.answer != np.array(None)
    things = [answers.first, answers.second, *([] if answers.third is None else [answers.third])]
    names = _PAIRS if answers.third is None else _TRIPLETS
    times = np.array([_time(at) for at in answers.at[kept].tolist()], dtype=object)
    return {
        **dict(zip(names, [*(answers.ids[rows[kept]] for rows in things), answers.answer[kept]], strict=True)),
        "annotator": answers.annotator[kept],
        "time": times,
        "chosen": answers.chosen[kept],
        "purpose": answers.purpose[kept],
        "seconds": answers.seconds[kept],
        "original": answers.original[kept],
    }


def note_unsure(n_unsure: int, n: int) -> list[str]:
    """A sentence that says how many answers of "can't say" were left out, if there are any."""
    verb = "was" if n_unsure == 1 else "were"
    return [f"{n_unsure:,} of {counted(n, 'answer')} {verb} left out: can't say."] if n_unsure else []


def _time(at: float) -> str:
    """A time as ISO 8601, UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
