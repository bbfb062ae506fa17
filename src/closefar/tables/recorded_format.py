"""The file in which answers are recorded as they are given: a SQLite database that only grows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from closefar.tables.errors import TableError, UnreadableError
from closefar.tables.inputs import Input

SIGNATURE = b"SQLite format 3\0"

_APPLICATION = int.from_bytes(b"clfr", "big")  # what `file` and SQLite tell one program's files from another's by
_VERSION = 1
_PATIENCE = 30.0  # seconds that a reader or writer waits for another one

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
    for statement in _statements(_SCHEMA):
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
        if not os.path.isfile(path):  # a pipe can be read only once
            return False
        with open(path, "rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


@contextmanager
def open_recorded(path: str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
    """Open a file of judgements for reading, as it is at this moment; others may write to it meanwhile."""
    source = path if isinstance(path, Input) else Input(path)
    source.check()
    if source.is_stream or os.path.isdir(source):
        raise UnreadableError(f"{source.name}: a SQLite database can't be read from a pipe or folder. Give a file.")
    with readable(source.name):
        connection = connect_to_read(source)
        try:
            if not check_recorded(connection, source.name):
                raise TableError(f"{source.name} has no judgements yet: it is empty. Judge something first.")
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()


def connect_to_read(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Connect to a database that is only read: also where nothing may be written, if no other program has it open."""
    place = Path(os.path.realpath(path))
    if os.access(place, os.W_OK) and os.access(place.parent, os.W_OK):
        modes = ["mode=rw"]  # a connection that may not write would leave the files of the log behind
    else:
        log = Path(f"{place}-wal")
        modes = ["mode=ro", *([] if log.exists() and log.stat().st_size else ["mode=ro&immutable=1"])]
    for mode in modes:
        connection = sqlite3.connect(
            f"{place.as_uri()}?{mode}", uri=True, isolation_level=None, timeout=_PATIENCE, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.Error:
            connection.close()
            if mode == modes[-1]:
                raise
        else:
            break
    return connection


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


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one at a time: executescript would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
