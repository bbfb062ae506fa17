"""The file in which `closefar label` records answers as they are given: a SQLite database that only grows.

Its schema and how it is opened; its live answers, as arrays and as a table of judgements; and how points are compared
with those that were judged.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.errors import TableError, UnreadableError, counted, listed, note_left_out
from closefar.tables.inputs import Input
from closefar.tables.values import to_text

SIGNATURE = b"SQLite format 3\0"

_APPLICATION = int.from_bytes(b"clfr", "big")  # what `file` and SQLite tell one program's files from another's by
_VERSION = 1  # of the schema below
_WRITER_SECONDS = 30.0  # that a reader waits for a writer: transactions take milliseconds

# Answers and undos are events, none of which ever changes.  A standing answer is one that was not undone; the live
# answer of a person to a question is the last that stands, and the original one the first that is no review.
_SCHEMA = """
CREATE TABLE about(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE points(row INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TABLE questions(
    id INTEGER PRIMARY KEY,
    first INTEGER NOT NULL REFERENCES points(row),
    second INTEGER NOT NULL REFERENCES points(row),
    third INTEGER REFERENCES points(row),
    chosen TEXT NOT NULL CHECK (chosen IN ('information', 'uncertainty', 'random')),
    batch INTEGER NOT NULL DEFAULT 0,
    CHECK (first <> second AND first IS NOT third AND second IS NOT third)
);
CREATE INDEX questions_by_point ON questions(first, second);
CREATE INDEX questions_by_batch ON questions(batch);
CREATE TABLE handed(
    question INTEGER NOT NULL REFERENCES questions(id),
    annotator TEXT NOT NULL,
    purpose TEXT NOT NULL CHECK (purpose IN ('first', 'shared', 'review')),
    at REAL NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (question, annotator)
) WITHOUT ROWID;
CREATE INDEX handed_by_annotator ON handed(annotator);
CREATE TABLE events(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('answer', 'undo')),
    annotator TEXT NOT NULL,
    question INTEGER NOT NULL REFERENCES questions(id),
    answer TEXT,
    purpose TEXT NOT NULL CHECK (purpose IN ('first', 'shared', 'review')),
    undoes TEXT UNIQUE REFERENCES events(key),
    seconds REAL,
    at REAL NOT NULL,
    CHECK ((kind = 'undo') = (undoes IS NOT NULL))
);
CREATE INDEX events_by_question ON events(question, annotator);
CREATE INDEX events_by_annotator ON events(annotator);
CREATE TABLE findings(id INTEGER PRIMARY KEY, at REAL NOT NULL, n_events INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
CREATE TRIGGER events_once BEFORE INSERT ON events
    WHEN EXISTS (SELECT 1 FROM events WHERE id = new.id OR key = new.key OR undoes = new.undoes)
    BEGIN SELECT RAISE(ABORT, 'events are never replaced'); END;
CREATE TRIGGER questions_stay BEFORE UPDATE ON questions BEGIN SELECT RAISE(ABORT, 'questions are never changed'); END;
CREATE TRIGGER questions_last BEFORE DELETE ON questions BEGIN SELECT RAISE(ABORT, 'questions are never deleted'); END;
CREATE TRIGGER questions_once BEFORE INSERT ON questions
    WHEN EXISTS (SELECT 1 FROM questions WHERE id = new.id)
    BEGIN SELECT RAISE(ABORT, 'questions are never replaced'); END;
CREATE VIEW standing AS
    SELECT * FROM events AS given
    WHERE kind = 'answer' AND NOT EXISTS (SELECT 1 FROM events WHERE undoes = given.key);
CREATE VIEW answers AS
    SELECT live.id AS event, live.question, live.annotator, live.answer, original.answer AS first_answer,
        asked.chosen, coalesce(original.purpose, live.purpose) AS purpose, live.purpose = 'review' AS reviewed,
        live.seconds, live.at, asked.first, asked.second, asked.third,
        one.id AS first_id, two.id AS second_id, three.id AS third_id
    FROM standing AS live
    JOIN questions AS asked ON asked.id = live.question
    JOIN points AS one ON one.row = asked.first
    JOIN points AS two ON two.row = asked.second
    LEFT JOIN points AS three ON three.row = asked.third
    LEFT JOIN events AS original ON original.id = (
        SELECT min(id) FROM standing
        WHERE question = live.question AND annotator = live.annotator AND purpose <> 'review')
    WHERE live.id = (SELECT max(id) FROM standing WHERE question = live.question AND annotator = live.annotator)
    ORDER BY live.id;
"""


def create_recorded(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty database, inside the transaction that is open."""
    for statement in _SCHEMA.split(";\n"):  # one at a time: executescript would end the transaction
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def check_recorded(connection: sqlite3.Connection, name: str) -> bool:
    """Whether a database has the tables; False for an empty one, and TableError for one of another kind."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == _APPLICATION and version > _VERSION:
        raise TableError(
            f"{name} was written by a newer version of closefar, in format {version}; this one reads format "
            f"{_VERSION}. Upgrade closefar."
        )
    if application == _APPLICATION and version == _VERSION:
        return True
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        return False
    raise TableError(
        f"{name} is a SQLite database of another program, not a file of judgements. Give a file that `closefar label` "
        "wrote."
    )


def is_recorded(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a SQLite database does.

    Not for the process that writes the file: closing it here would end the locks that SQLite has on it there.
    """
    try:
        if Input(path).is_stream or not os.path.isfile(path):  # a pipe can be read only once
            return False
        with open(path, "rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def _connect_to_read(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Connect to a database that is only read: also where nothing may be written, if no other program has it open."""
    place, mode = Path(os.path.realpath(path)), "rw"  # one that may not write would leave the files of the log behind
    if not (os.access(place, os.W_OK) and os.access(place.parent, os.W_OK)):
        mode = "ro" if os.path.exists(f"{place}-wal") else "ro&immutable=1"  # without a log, nobody writes
    return sqlite3.connect(
        f"{place.as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=_WRITER_SECONDS,
        check_same_thread=False,
    )


@contextmanager
def readable(name: str) -> Iterator[None]:
    """What goes wrong in SQLite is a TableError."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise UnreadableError(f"{name} is locked by another program. Try again when that is done.") from error
        if isinstance(error, sqlite3.OperationalError) and "no such" not in str(error):
            raise UnreadableError(f"{name} can't be read: {error}. Check the disk and the permissions.") from error
        raise TableError(
            f"{name} is damaged, or not a file of judgements: {error}. Restore it from a copy, or recover what is left "
            "with the command .recover of sqlite3."
        ) from error


# ---------------------------------------------------------------------------------------------------------------------
# The answers in it.

# The columns of the view of answers, and of which kind they are as arrays.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("first", "second", "third", "question"), np.int64),
    **dict.fromkeys(("answer", "original", "annotator", "chosen", "purpose"), object),
    "reviewed": bool,
    **dict.fromkeys(("seconds", "at"), np.float64),
}


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

    @property
    def things(self) -> NDArray[np.int64]:
        """The rows of the points of each question, (n, 2) or (n, 3)."""
        return np.column_stack([self.first, self.second, *([] if self.third is None else [self.third])])


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
    source = path if isinstance(path, Input) else Input(path)
    source.check()
    if source.is_stream or os.path.isdir(source):
        raise UnreadableError(f"{source.name}: a SQLite database can't be read from a pipe or folder. Give a file.")
    with readable(source.name), closing(_connect_to_read(source)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        if not check_recorded(connection, source.name):
            raise TableError(f"{source.name} has no judgements yet: it is empty. Judge something first.")
        connection.execute("BEGIN")  # so that all is as at this moment
        columns = ", ".join("first_answer" if name == "original" else name for name in _KINDS)
        rows = connection.execute(f"SELECT {columns} FROM answers").fetchall()
        ids = connection.execute("SELECT row, id FROM points ORDER BY row").fetchall()
        about = dict(connection.execute("SELECT key, value FROM about").fetchall())
        (n_events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    try:
        if [row for row, _ in ids] != list(range(len(ids))):
            raise ValueError("its points are not numbered from 0")
        about = {key: json.loads(value) for key, value in about.items()}
        values: dict[str, Any] = dict(zip(_KINDS, zip(*rows, strict=True) if rows else [()] * len(_KINDS), strict=True))
        found = {name: np.array(values[name], dtype=kind) for name, kind in _KINDS.items() if name != "third"}
        third = np.array(values["third"], dtype=np.int64) if about["task"]["kind"] == "triplets" else None
        names = np.array([id for _, id in ids], dtype=object)
        return RecordedAnswers(**found, third=third, ids=names, about=about, n_events=n_events)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise TableError(f"{os.fspath(path)} is damaged: {error}. Restore it from a copy.") from error


def recorded_task(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What was asked in a file of judgements, its kind and answers; None if the file is another or can't be read."""
    try:
        return dict(read_recorded(path).about["task"]) if is_recorded(path) else None
    except TableError:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# The answers as a table.

_PAIRS, _TRIPLETS = ("first", "second", "label"), ("point", "left", "right", "answer")


def recorded_columns(answers: RecordedAnswers, *, keeps_unsure: bool = False) -> dict[str, NDArray[Any]]:
    """The columns of a table of judgements.

    Parameters
    ----------
    answers : RecordedAnswers
    keeps_unsure : bool
        Whether to keep answers of "can't say", with None as their label.
    """
    kept = np.ones(len(answers), dtype=bool) if keeps_unsure else answers.answer != np.array(None)
    names = _PAIRS if answers.third is None else _TRIPLETS
    times = np.array([_time(at) for at in answers.at[kept].tolist()], dtype=object)
    return {
        **dict(zip(names, [*answers.ids[answers.things[kept]].T, answers.answer[kept]], strict=True)),
        "annotator": answers.annotator[kept],
        "time": times,
        "chosen": answers.chosen[kept],
        "purpose": answers.purpose[kept],
        "seconds": answers.seconds[kept],
        "original": answers.original[kept],
    }


def note_unsure(n_unsure: int, n: int) -> list[str]:
    """A sentence that says how many answers of "can't say" were left out, if there are any."""
    return [note_left_out(n_unsure, n, "answers", "can't say")] if n_unsure else []


def _time(at: float) -> str:
    """A time as ISO 8601, UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---------------------------------------------------------------------------------------------------------------------
# Whether a table of points is the one that was judged.

_MOST_CHANGES = 3  # points or columns in one part of a sentence that may have four parts


def fingerprint_columns(columns: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """A short text for each column, which differs if a value does."""
    found = {}
    for name, column in columns.items():
        if column.dtype.kind == "f":
            numbers = np.where(np.isnan(column), np.nan, column + 0.0).astype("<f8")  # one NaN, and no minus zero
            content = b"numbers" + numbers.tobytes()
        else:
            content = b"texts" + json.dumps(to_text(column).tolist()).encode()
        found[name] = hashlib.blake2b(content, digest_size=16).hexdigest()
    return found


def point_differences(
    known_ids: Sequence[str], known: Mapping[str, str], ids: Sequence[str], found: Mapping[str, str]
) -> list[str]:
    """What differs between the points that were judged and others, as parts of a sentence; none if nothing does."""
    before, now = set(known_ids), set(ids)
    new, gone = [id for id in ids if id not in before], [id for id in known_ids if id not in now]
    differences = [
        f"{counted(len(names), 'point')} {'is' if len(names) == 1 else 'are'} {what}: {listed(names, _MOST_CHANGES)}"
        for names, what in ((new, "new"), (gone, "missing"))
        if names
    ]
    if not differences and list(ids) != list(known_ids):
        differences.append("the points are in another order")
    known_both = [] if differences else [name for name in known if name in found]  # of others values are not comparable
    for names, one, several in (
        ([name for name in known if name not in found], "is missing", "are missing"),
        ([name for name in found if name not in known], "is new", "are new"),
        ([name for name in known_both if found[name] != known[name]], "has changed", "have changed"),
    ):
        if names:
            noun, what = ("column", one) if len(names) == 1 else ("columns", several)
            differences.append(f"{noun} {listed(names, _MOST_CHANGES)} {what}")
    return differences
