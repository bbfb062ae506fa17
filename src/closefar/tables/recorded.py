"""Answers that were recorded one at a time, by `closefar label`: read as arrays, also while more are being given."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.errors import TableError
from closefar.tables.recorded_format import open_recorded

_COLUMNS = "first, second, third, answer, first_answer, annotator, chosen, purpose, reviewed, seconds, at, question"


@dataclass(frozen=True, eq=False)
class RecordedAnswers:
    """The live answers, one for each person and question, in the order in which they were given.

    Parameters
    ----------
    first, second : array of int
        The things that were compared, as rows of the points.
    third : array of int, or None
        The third thing of each triplet, of which `first` is the reference; None for pairs.
    answer : array of text
        What was answered last, and not undone; None is "can't say".
    original : array of text
        What was answered before anybody looked at the answer again; None is "can't say", or that it was undone.
    annotator, chosen, purpose : arrays of text
        Who answered, how the question was chosen ("information", "uncertainty" or "random") and why this person was
        asked ("first" or "shared"; "review" only where the original answer was undone).
    reviewed : array of bool
        Whether the answer was given on looking again.
    seconds, at : arrays of float
        How long the answer took (NaN where that is not known), and when it came, in seconds since 1970 UTC.
    question : array of int
        The number of the question.
    ids : array of text
        The id of each point, by row.
    about : dict
        The task, the fingerprint of the points, which of their columns are features, and which are only shown.
    n_events : int
        The number of events, answers and undos, that these answers result from.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    third: NDArray[np.int64] | None
    answer: NDArray[np.object_]
    original: NDArray[np.object_]
    annotator: NDArray[np.object_]
    chosen: NDArray[np.object_]
    purpose: NDArray[np.object_]
    reviewed: NDArray[np.bool_]
    seconds: FloatArray
    at: FloatArray
    question: NDArray[np.int64]
    ids: NDArray[np.object_]
    about: dict[str, Any]
    n_events: int

    def __len__(self) -> int:
        return len(self.question)


def read_recorded(path: str | os.PathLike[str]) -> RecordedAnswers:
    """Read the live answers of a file of judgements, also while a server writes to it.

    Parameters
    ----------
    path : str or Path
        A file that `closefar label` wrote.

    Returns
    -------
    RecordedAnswers
    """
    with open_recorded(path) as connection:
        rows = connection.execute(f"SELECT {_COLUMNS} FROM answers").fetchall()
        ids = connection.execute("SELECT row, id FROM points ORDER BY row").fetchall()
        about = dict(connection.execute("SELECT key, value FROM about").fetchall())
        (n_events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    try:
        if [row for row, _ in ids] != list(range(len(ids))):
            raise ValueError("its points are not numbered from 0")
        return _answers(rows, [id for _, id in ids], {key: json.loads(value) for key, value in about.items()}, n_events)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise TableError(f"{os.fspath(path)} is damaged: {error}. Restore it from a copy.") from error


def _answers(rows: list[tuple[Any, ...]], ids: list[str], about: dict[str, Any], n_events: int) -> RecordedAnswers:
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS.split(","))
    first, second, third, answer, original, annotator, chosen, purpose, reviewed, seconds, at, question = columns
    return RecordedAnswers(
        first=np.array(first, dtype=np.int64),
        second=np.array(second, dtype=np.int64),
        third=np.array(third, dtype=np.int64) if about["task"]["kind"] == "triplets" else None,
        answer=_texts(answer),
        original=_texts(original),
        annotator=_texts(annotator),
        chosen=_texts(chosen),
        purpose=_texts(purpose),
        reviewed=np.array(reviewed, dtype=bool),
        seconds=np.array([np.nan if value is None else value for value in seconds], dtype=np.float64),
        at=np.array(at, dtype=np.float64),
        question=np.array(question, dtype=np.int64),
        ids=_texts(ids),
        about=about,
        n_events=n_events,
    )


def _texts(values: Any) -> NDArray[np.object_]:
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts
