"""The file of judgements while a server runs: one connection, and nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from closefar.files import check_writable
from closefar.label.assignment import padded, was_asked
from closefar.label.task import LabelPoints, Purpose, Task
from closefar.tables import TableError, check_recorded, create_recorded, point_differences, readable

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

_LOCK_SECONDS = 10.0  # that another program may have the file locked, before an answer is refused for now
_KEY_BYTES = 32  # as many as SHA-256 gives, which secrets and cookies are made with


class StoreError(OSError):
    """The file can't be used now, because the disk is full or the like; it may be tried again."""


class Store:
    """A file of judgements that one server has open, made if it is not there; any thread may call any method.

    A transaction waits for the disk, and others wait for it.  With 50 people who answer every 1.3 s, the median
    response took 3 to 8 ms, and 57 ms where each commit took 10 ms longer, as on a slow disk (measured with
    benchmarks/label_load.py on two busy cores).

    Parameters
    ----------
    path : str or Path
    task : Task
        Of an existing file, the kind and the answers must be the same; the rest may change.
    points : LabelPoints
        Those that the file was made for.

    Raises
    ------
    ValueError
        If the file is of other points, of another kind of task or of another program, is damaged, or another server
        has it open; the message says which.
    """

    def __init__(self, path: str | os.PathLike[str], task: Task, points: LabelPoints) -> None:
        if len(points) < task.n_things:
            raise ValueError(f"a question shows {task.n_things} points; got a table of {len(points)}. Add points.")
        self.path, self.task = Path(os.path.realpath(path)), task
        self._lock = threading.Lock()
        self._is_closed = False
        check_writable(self.path)
        with contextlib.ExitStack() as stack:
            self.key = stack.enter_context(_locked_key(self.path))
            with readable(str(path)):
                if not self.path.exists():  # only its owner can read it
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                self._connection = sqlite3.connect(
                    self.path, isolation_level=None, timeout=_LOCK_SECONDS, check_same_thread=False
                )
                stack.enter_context(contextlib.closing(self._connection))
                _prepare(self._connection, str(path), task, points)
            self._stack = stack.pop_all()  # what is closed with it

    def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in a transaction, and return its result once its changes are on the disk.

        If it raises, its changes are undone; where the file can't be used at present, that is a `StoreError`.
        """
        with self._lock:
            if self._is_closed:
                raise StoreError(f"{self.path} is closed, so nothing can be recorded. Start the server again.")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                result = job(self._connection)
                self._connection.execute("COMMIT")
                return result
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    if self._connection.in_transaction:  # SQLite itself may have rolled back, as on a full disk
                        self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise StoreError(
                        f"{self.path} can't be written: {error}. Check that the disk has room and that the file may be "
                        "changed; nothing that was recorded before is lost."
                    ) from error
                raise

    @property
    def n_events(self) -> int:
        """The number of events, of which none is ever deleted."""
        return self.run(lambda each: int(each.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]))

    def record(self, annotator: str, events: Sequence[NewEvent], now: float) -> list[Receipt]:
        """Record what somebody did, in this order; a receipt for each says whether it is recorded, or why not."""
        return self.run(lambda connection: [_record(connection, self.task, annotator, each, now) for each in events])

    def add_findings(
        self, body: Mapping[str, Any], n_events: int, questions: Sequence[tuple[int, ...]], chosen: str
    ) -> int:
        """Record what a fit found, and the questions that it chose and nobody has been asked yet; gives its number."""
        text = json.dumps(body, allow_nan=False)

        def job(connection: sqlite3.Connection) -> int:
            connection.execute(  # large parts that only the latest findings need
                "UPDATE findings SET body = json_remove(body, '$.map', '$.doubtful') "
                "WHERE id = (SELECT max(id) FROM findings)"
            )
            number = connection.execute(
                "INSERT INTO findings(at, n_events, body) VALUES (?, ?, ?)", [time.time(), n_events, text]
            ).lastrowid
            assert number is not None
            connection.executemany(
                "INSERT INTO questions(first, second, third, chosen, batch) VALUES (?, ?, ?, ?, ?)",
                [(*padded(each), chosen, number) for each in questions if not was_asked(connection, each)],
            )
            return number

        return self.run(job)

    def close(self) -> None:
        """Finish what is being written, and let another server open the file."""
        with self._lock:
            self._is_closed = True
            self._stack.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------------------------------------------------------------
# Answers and undos: each is recorded exactly once, or refused for a reason.


class Refusal(StrEnum):
    """Why an event was not recorded."""

    BAD_KIND = "An event must be an answer or an undo."
    OTHER_CONTENT = "This key was used before for something else."
    NOT_HANDED = "This question was never handed to you."
    NOT_AN_ANSWER = "This is not one of the answers."
    ANSWERED = "You have answered this question already; undo that answer first."
    NOTHING_TO_UNDO = "There is no answer of yours to undo."
    NOT_THE_LAST = "Only the latest answer to a question can be undone."


@dataclass(frozen=True)
class NewEvent:
    """What a page sends.

    Parameters
    ----------
    key : str
        Made by the page at random, and the same whenever the event is sent again.
    kind : str
        "answer" or "undo".
    question : int
        The number of the question.
    answer : str or None
        One of the answers of the task; None is "can't say".  None for an undo.
    undoes : str or None
        The key of the answer that is undone; None for an answer.
    seconds : float or None
        How long it took.
    """

    key: str
    kind: str
    question: int
    answer: str | None = None
    undoes: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Receipt:
    """Whether the event of this key is recorded, now or before, or why it is not."""

    key: str
    recorded: bool
    reason: Refusal | None = None


def _record(connection: sqlite3.Connection, task: Task, annotator: str, event: NewEvent, now: float) -> Receipt:
    known = connection.execute(
        "SELECT kind, annotator, question, answer, undoes FROM events WHERE key = ?", [event.key]
    ).fetchone()
    refusal: Refusal | None = None
    if known is None:
        refusal = _record_new(connection, task, annotator, event, now)
    elif known != (event.kind, annotator, event.question, event.answer, event.undoes):
        refusal = Refusal.OTHER_CONTENT
    return Receipt(event.key, refusal is None, refusal)


def _record_new(
    connection: sqlite3.Connection, task: Task, annotator: str, event: NewEvent, now: float
) -> Refusal | None:
    """Record an event unless something speaks against it, given this person's standing answers to the question."""
    here = {"question": event.question, "annotator": annotator}
    condition = "WHERE question = :question AND annotator = :annotator"
    handed = connection.execute(f"SELECT purpose FROM handed {condition}", here).fetchone()
    standing = dict(connection.execute(f"SELECT key, purpose FROM standing {condition} ORDER BY id", here).fetchall())
    if event.kind == "answer":
        if event.undoes is not None or not (event.answer is None or event.answer in task.answers):
            return Refusal.NOT_AN_ANSWER
        if handed is None:
            return Refusal.NOT_HANDED
        (purpose,) = handed
        if standing and purpose != Purpose.review:
            return Refusal.ANSWERED
        # A review is one answer; afterwards the question is there for what it was there for before.
        later = Purpose.shared if Purpose.shared in list(standing.values())[:1] else Purpose.first
    elif event.kind == "undo":
        if event.undoes not in standing or event.answer is not None:
            return Refusal.NOTHING_TO_UNDO
        if event.undoes != list(standing)[-1]:
            return Refusal.NOT_THE_LAST
        purpose, later = standing[event.undoes], Purpose.review  # it may be looked at again, as before
    else:
        return Refusal.BAD_KIND
    columns = {**asdict(event), "annotator": annotator, "purpose": purpose, "at": now}
    places = ", ".join(f":{name}" for name in columns)
    connection.execute(f"INSERT INTO events({', '.join(columns)}) VALUES ({places})", columns)
    if purpose == Purpose.review:
        connection.execute(f"UPDATE handed SET purpose = :purpose {condition}", {**here, "purpose": later.value})
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Opening a file: its tables, and whether it is about the same task and points.


def _prepare(connection: sqlite3.Connection, name: str, task: Task, points: LabelPoints) -> None:
    """Make the tables, or check that they are about the same task and points."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
    connection.execute("PRAGMA fullfsync = ON")  # on macOS too
    if check_recorded(connection, name):
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise TableError(
            f"{name} is on a disk that can't keep SQLite's log, such as a network disk. Choose a folder on a local one."
        )
    about = {
        "task": asdict(task),
        "fingerprint": points.fingerprint,
        "features": points.feature_columns,
        "shown": points.shown,
        "id": points.id_name,
        "options": points.options,
    }
    connection.execute("BEGIN IMMEDIATE")  # closing the connection undoes what is not committed
    if check_recorded(connection, name):
        _check_same(connection, name, task, points)
    else:
        create_recorded(connection)
        connection.executemany("INSERT INTO points(row, id) VALUES (?, ?)", enumerate(points.ids.tolist()))
        about["created"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rows = [(key, json.dumps(value)) for key, value in about.items()]
    connection.executemany("INSERT OR REPLACE INTO about(key, value) VALUES (?, ?)", rows)
    connection.execute("COMMIT")


def _check_same(connection: sqlite3.Connection, name: str, task: Task, points: LabelPoints) -> None:
    about = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM about")}
    known = about["task"]
    if known["kind"] != task.kind or tuple(known["answers"]) != task.answers:
        raise ValueError(
            f"{name} has answers to {known['kind']} ({', '.join(known['answers'])}); got {task.kind} "
            f"({', '.join(task.answers)}). Choose the same kind and answers, or another file."
        )
    ids = [id for (id,) in connection.execute("SELECT id FROM points ORDER BY row")]
    before, now = about["fingerprint"], points.fingerprint
    free = {*about["shown"], *points.shown} - (before.keys() & now.keys())  # shown columns may come and go
    differences = point_differences(
        ids,
        {column: mark for column, mark in before.items() if column not in free},
        points.ids.tolist(),
        {column: mark for column, mark in now.items() if column not in free},
    )
    if differences:
        raise ValueError(
            f"{name} was made for another table of points: {'; '.join(differences)}. Give the table that it was made "
            "for, or choose another file."
        )


@contextlib.contextmanager
def _locked_key(judgements: Path) -> Iterator[bytes]:
    """The key beside a file of judgements, which secrets derive from, and which only one server has open.

    It is made if it is not there, and removed again if nothing comes of that.
    """
    path, is_new = Path(f"{judgements}-key"), False
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise type(error)(
            f"can't open the key file {path}: {error.strerror}. It must be a file of yours, not a link; check the "
            "permissions."
        ) from error
    try:
        _lock(descriptor, path, judgements)
        key = os.read(descriptor, _KEY_BYTES + 1)
        if not key:
            is_new, key = True, secrets.token_bytes(_KEY_BYTES)
            os.write(descriptor, key)
            os.fsync(descriptor)
        if len(key) != _KEY_BYTES:
            raise ValueError(
                f"the key file {path} must have {_KEY_BYTES} bytes; it has {len(key)} or more. Remove it, so that a "
                "new key is made, and hand out the new addresses."
            )
        yield key
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, judgements: Path) -> None:
    """Lock a key; refuse one that another server has locked, that others can read, or may have put there."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"{judgements} is open in another `closefar label`: one server at a time writes to a file. Use its "
            "address, stop it, or choose another file."
        ) from None
    except OSError:  # where files can't be locked, as on some network disks
        pass
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"the key file {path} must be a file of yours. Remove it, or choose another name.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(
            f"the key file {path} must be readable by you alone, since whoever reads it can answer for everybody; its "
            f"mode is {stat.S_IMODE(found.st_mode):o}. Remove it, so that a new key is made, and hand out the new "
            "addresses."
        )
