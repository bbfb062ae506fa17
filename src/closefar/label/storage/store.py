"""The file of judgements while a server runs: one writer, any number of readers, nothing that was promised is lost."""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from closefar.files import check_writable
from closefar.label.storage.keyfile import KeyFile
from closefar.label.storage.points import LabelPoints
from closefar.label.storage.recording import NewEvent, Receipt, record_events
from closefar.label.storage.writer import Writer
from closefar.label.task import Task
from closefar.tables import TableError, check_recorded, connect_to_read, create_recorded, point_differences, readable

T = TypeVar("T")

_PATIENCE = 10.0  # seconds that the writer waits for another program that has the file locked
_DETAILS = ("map", "doubtful")  # large parts of findings that only the latest ones need


class Store:
    """A file of judgements that one server has open; `open` makes one.  All methods may be called from any thread."""

    def __init__(self, path: Path, task: Task, key_file: KeyFile, connection: sqlite3.Connection) -> None:
        self.path, self.task, self.key = path, task, key_file.key
        self._key_file = key_file
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()  # those that nobody uses
        self._writer = Writer(connection, str(path))

    @classmethod
    def open(cls, path: str | os.PathLike[str], task: Task, points: LabelPoints) -> Store:
        """Open a file of judgements, or make it.

        Parameters
        ----------
        path : str or Path
        task : Task
            Of an existing file, the kind and the answers must be the same; the rest may change.
        points : LabelPoints
            Those that the file was made for.

        Returns
        -------
        Store

        Raises
        ------
        ValueError
            If the file is of other points, of another kind of task or of another program, is damaged, or another server
            has it open; the message says which.
        """
        if len(points) < task.n_things:
            raise ValueError(f"a question shows {task.n_things} points; got a table of {len(points)}. Add points.")
        place = Path(os.path.realpath(path))
        check_writable(place)
        key_file = KeyFile(place)
        try:
            with readable(str(path)):
                connection = _connect(place)
                try:
                    _prepare(connection, str(path), task, points)
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            key_file.close(discard_new=True)
            raise
        return cls(place, task, key_file, connection)

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Have a job change the file; the result is there once the change is on the disk.

        Jobs run one after the other.  If a job raises, its changes are undone, and the future has the exception: a
        `StoreError` if the file can't be written at present.
        """
        return self._writer.submit(job)

    def record(self, annotator: str, events: Sequence[NewEvent], now: float) -> Future[list[Receipt]]:
        """Record what somebody did, in this order; a receipt for each says whether it is recorded, or why not."""
        return self.submit(partial(record_events, task=self.task, annotator=annotator, events=tuple(events), now=now))

    def add_findings(
        self, body: Mapping[str, Any], n_events: int, questions: Sequence[tuple[int, ...]], chosen: str
    ) -> Future[int]:
        """Record what a fit found, and the questions that it chose and nobody has been asked yet; gives its number."""
        text = json.dumps(body, allow_nan=False)

        def job(connection: sqlite3.Connection) -> int:
            removed = "".join(f", '$.{name}'" for name in _DETAILS)
            connection.execute(
                f"UPDATE findings SET body = json_remove(body{removed}) WHERE id = (SELECT max(id) FROM findings)"
            )
            number = connection.execute(
                "INSERT INTO findings(at, n_events, body) VALUES (?, ?, ?)", [time.time(), n_events, text]
            ).lastrowid
            assert number is not None
            for things in questions:
                if not _is_asked(connection, things):
                    first, second, third = (*map(int, things), None)[:3]
                    connection.execute(
                        "INSERT INTO questions(first, second, third, chosen, batch) VALUES (?, ?, ?, ?, ?)",
                        [first, second, third, chosen, number],
                    )
            return number

        return self.submit(job)

    def read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Have a job read the file as it is at this moment, on a connection of its own."""
        with self._reader() as connection:
            return job(connection)

    def close(self) -> None:
        """Finish what waits to be written, and let another server open the file."""
        self._writer.close()
        while not self._readers.empty():
            self._readers.get().close()
        self._key_file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            connection = connect_to_read(self.path)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._readers.put(connection)


def _is_asked(connection: sqlite3.Connection, things: tuple[int, ...]) -> bool:
    """Whether somebody has, or had, a question about the same things, whichever is on which side."""
    first, second, third = (*map(int, things), None)[:3]
    turned = (second, first, None) if third is None else (first, third, second)
    sought = "first = ? AND second = ? AND third IS ?"
    found = connection.execute(
        f"SELECT 1 FROM questions WHERE (({sought}) OR ({sought})) AND id IN (SELECT question FROM handed) LIMIT 1",
        [first, second, third, *turned],
    ).fetchone()
    return found is not None


def _connect(path: Path) -> sqlite3.Connection:
    """Connect to the file, which only its owner can read if it is new."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
        connection.execute("PRAGMA fullfsync = ON")  # on macOS too
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, name: str, task: Task, points: LabelPoints) -> None:
    """Make the tables, or check that they are about the same task and points."""
    if check_recorded(connection, name):
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise TableError(
            f"{name} is on a disk that can't keep SQLite's log, such as a network disk. Choose a folder on a local one."
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        if check_recorded(connection, name):
            _check_same(connection, name, task, points)
        else:
            create_recorded(connection)
            rows = enumerate(points.ids.tolist())
            connection.executemany("INSERT INTO points(row, id) VALUES (?, ?)", rows)
            _write_about(connection, {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        _write_about(
            connection,
            {
                "task": asdict(task),
                "fingerprint": points.fingerprint,
                "features": points.feature_columns,
                "shown": points.shown,
                "id": points.id_name,
                "options": points.options,
            },
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write_about(connection: sqlite3.Connection, about: Mapping[str, Any]) -> None:
    rows = [(key, json.dumps(value)) for key, value in about.items()]
    connection.executemany("INSERT OR REPLACE INTO about(key, value) VALUES (?, ?)", rows)


def _check_same(connection: sqlite3.Connection, name: str, task: Task, points: LabelPoints) -> None:
    about = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM about")}
    known = about["task"]
    if known["kind"] != task.kind or tuple(known["answers"]) != task.answers:
        raise ValueError(
            f"{name} has answers to {known['kind']} ({', '.join(known['answers'])}); got {task.kind} "
            f"({', '.join(task.answers)}). Choose the same kind and answers, or another file."
        )
    ids = [id for (id,) in connection.execute("SELECT id FROM points ORDER BY row")]
    shown = {*about["shown"], *points.shown}  # what is only shown may come and go, but not change
    fingerprint, found = dict(about["fingerprint"]), dict(points.fingerprint)
    for column in shown:
        if column not in found or column not in fingerprint:
            fingerprint.pop(column, None)
            found.pop(column, None)
    differences = point_differences(ids, fingerprint, points.ids.tolist(), found)
    if differences:
        raise ValueError(
            f"{name} was made for another table of points: {'; '.join(differences)}. Give the table that it was made "
            "for, or choose another file."
        )
