"""The file of judgements: each answer exactly once, nothing lost, no other table, no second server."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closefar.label import LabelPoints, read_label_points
from closefar.label.storage import NewEvent, Refusal, Store, StoreError
from closefar.tables import TableError, read_recorded
from recorded import answer, ask, make_task, undo, write_points


@pytest.fixture
def points(tmp_path: Path) -> LabelPoints:
    return read_label_points(write_points(tmp_path), show=["photo"])


@pytest.fixture
def store(tmp_path: Path, points: LabelPoints) -> Any:
    with Store(tmp_path / "judgements.sqlite", make_task(), points) as opened:
        yield opened


def _events(store: Store) -> int:
    return int(store.run(lambda connection: connection.execute("SELECT count(*) FROM events").fetchone()[0]))


def _live(store: Store) -> list[tuple[Any, ...]]:
    found = read_recorded(store.path)
    columns = (found.question, found.annotator, found.answer, found.original, found.purpose, found.reviewed)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_an_answer_is_recorded_with_all_that_is_known_of_it(store: Store) -> None:
    (question,) = ask(store, [(4, 7)], chosen="information")
    assert answer(store, question, "far", "k", now=123.5).recorded
    found = read_recorded(store.path)
    assert (found.first.tolist(), found.second.tolist(), found.third) == ([4], [7], None)
    assert (found.answer.tolist(), found.original.tolist()) == (["far"], ["far"])
    assert (found.annotator.tolist(), found.chosen.tolist(), found.purpose.tolist()) == (
        ["ana"],
        ["information"],
        ["first"],
    )
    assert (found.seconds.tolist(), found.at.tolist(), found.question.tolist()) == ([2.5], [123.5], [question])
    assert found.ids.tolist() == [f"p{row}" for row in range(30)]
    assert found.about["task"]["question"] == "Alike?"
    assert (found.about["features"], found.about["shown"]) == (["a", "b", "c"], ["photo"])
    assert found.n_events == 1


# Exactly once


def test_an_answer_that_is_sent_again_is_recorded_once(store: Store) -> None:
    (question,) = ask(store, [(0, 1)])
    for now in (1.0, 2.0, 3.0):
        assert answer(store, question, "close", "k", now=now).recorded
    assert _events(store) == 1
    assert read_recorded(store.path).at.tolist() == [1.0]


def test_a_repeat_is_known_after_the_store_was_opened_again(tmp_path: Path, points: LabelPoints) -> None:
    path = tmp_path / "judgements.sqlite"
    with Store(path, make_task(), points) as store:
        (question,) = ask(store, [(0, 1)])
        answer(store, question, "close", "k")
    with Store(path, make_task(), points) as store:
        assert answer(store, question, "close", "k").recorded
        assert _events(store) == 1


@pytest.mark.parametrize(
    ("who", "event"),
    [
        ("ana", NewEvent("k", "answer", 1, "far")),
        ("ana", NewEvent("k", "answer", 1, None)),
        ("ana", NewEvent("k", "answer", 2, "close")),
        ("ana", NewEvent("k", "undo", 1, undoes="k")),
        ("ben", NewEvent("k", "answer", 1, "close")),
    ],
)
def test_a_key_with_other_content_is_refused(store: Store, who: str, event: NewEvent) -> None:
    ask(store, [(0, 1), (2, 3)], ("ana", "ben"))
    answer(store, 1, "close", "k")
    (receipt,) = store.record(who, [event], 1.0)
    assert (receipt.recorded, receipt.reason) == (False, Refusal.OTHER_CONTENT)
    assert _events(store) == 1


def test_two_answers_are_never_one_question_s(store: Store) -> None:
    (question,) = ask(store, [(0, 1)])
    assert answer(store, question, "close", "k1").recorded
    assert answer(store, question, "far", "k2").reason == Refusal.ANSWERED
    assert answer(store, question, "close", "k3").reason == Refusal.ANSWERED
    assert _live(store) == [(question, "ana", "close", "close", "first", False)]


def test_threads_that_send_the_same_answers_record_each_once(store: Store) -> None:
    questions = ask(store, [(row, row + 1) for row in range(25)], ("ana", "ben"))
    events = {
        name: [NewEvent(f"{name}-{question}", "answer", question, "far") for question in questions]
        for name in ("ana", "ben")
    }

    def send(number: int) -> int:
        name, rng = ("ana", "ben")[number % 2], np.random.default_rng(number)
        own = [events[name][position] for position in rng.permutation(len(questions))]
        return sum(store.record(name, [event], 1.0)[0].recorded for event in own)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send, range(8))) == [25] * 8
    assert _events(store) == 50
    assert len(read_recorded(store.path)) == 50


def test_of_several_events_each_has_its_receipt(store: Store) -> None:
    one, two = ask(store, [(0, 1), (2, 3)])
    events = [
        NewEvent("k1", "answer", one, "close"),
        NewEvent("k2", "answer", one, "far"),
        NewEvent("k3", "undo", one, undoes="k1"),
        NewEvent("k4", "answer", one, "far"),
        NewEvent("k5", "answer", two, "near"),
    ]
    receipts = store.record("ana", events, 1.0)
    assert [receipt.key for receipt in receipts] == ["k1", "k2", "k3", "k4", "k5"]
    assert [receipt.recorded for receipt in receipts] == [True, False, True, True, False]
    assert _live(store) == [(one, "ana", "far", "far", "first", False)]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (NewEvent("k", "answer", 1, "maybe"), Refusal.NOT_AN_ANSWER),
        (NewEvent("k", "answer", 1, ""), Refusal.NOT_AN_ANSWER),
        (NewEvent("k", "answer", 1, "close", undoes="x"), Refusal.NOT_AN_ANSWER),
        (NewEvent("k", "answer", 2, "close"), Refusal.NOT_HANDED),
        (NewEvent("k", "answer", 99, "close"), Refusal.NOT_HANDED),
        (NewEvent("k", "answer", -1, "close"), Refusal.NOT_HANDED),
        (NewEvent("k", "delete", 1), Refusal.BAD_KIND),
        (NewEvent("k", "undo", 1, undoes="nobody's"), Refusal.NOTHING_TO_UNDO),
        (NewEvent("k", "undo", 1), Refusal.NOTHING_TO_UNDO),
        (NewEvent("k", "undo", 2, undoes="bens"), Refusal.NOTHING_TO_UNDO),
    ],
)
def test_what_is_refused_and_why(store: Store, event: NewEvent, reason: Refusal) -> None:
    ask(store, [(0, 1)])
    ask(store, [(2, 3)], ["ben"])
    answer(store, 2, "far", "bens", "ben")
    (receipt,) = store.record("ana", [event], 1.0)
    assert (receipt.recorded, receipt.reason) == (False, reason)
    assert _events(store) == 1


# Undo and review


def test_an_undone_answer_can_be_given_again_and_undone_again(store: Store) -> None:
    (question,) = ask(store, [(0, 1)])
    for turn, given in enumerate(["close", "far", None, "far"]):
        assert answer(store, question, given, f"k{turn}").recorded
        assert _live(store) == [(question, "ana", given, given, "first", False)]
        assert undo(store, question, f"k{turn}", f"u{turn}").recorded
        assert _live(store) == []
    assert _events(store) == 8


def test_an_answer_is_undone_once(store: Store) -> None:
    (question,) = ask(store, [(0, 1)])
    answer(store, question, "close", "k")
    assert undo(store, question, "k", "u1").recorded
    assert undo(store, question, "k", "u1").recorded  # sent again
    assert undo(store, question, "k", "u2").reason == Refusal.NOTHING_TO_UNDO
    assert undo(store, question, "u1", "u3").reason == Refusal.NOTHING_TO_UNDO  # an undo is no answer
    assert _events(store) == 2


def _review(store: Store, question: int, who: str = "ana") -> None:
    store.run(
        lambda connection: (
            connection.execute(
                "UPDATE handed SET purpose = 'review' WHERE question = ? AND annotator = ?", [question, who]
            ).rowcount
        )
    )


@pytest.mark.parametrize(("who", "purpose"), [("ana", "first"), ("ben", "shared")])
def test_a_review_replaces_the_answer_and_keeps_the_original(store: Store, who: str, purpose: str) -> None:
    (question,) = ask(store, [(0, 1)], ("ana", "ben"))
    answer(store, question, "close", "k1", who)
    _review(store, question, who)
    assert answer(store, question, "far", "k2", who).recorded
    assert _live(store) == [(question, who, "far", "close", purpose, True)]
    assert answer(store, question, "close", "k3", who).reason == Refusal.ANSWERED  # a double press
    assert undo(store, question, "k1", "u", who).reason == Refusal.NOT_THE_LAST
    assert undo(store, question, "k2", "u", who).recorded
    assert _live(store) == [(question, who, "close", "close", purpose, False)]
    assert answer(store, question, None, "k4", who).recorded  # the review goes on
    assert _live(store) == [(question, who, None, "close", purpose, True)]


def test_an_answer_whose_original_was_undone_on_review_measures_nothing(store: Store) -> None:
    (question,) = ask(store, [(0, 1)])
    answer(store, question, "close", "k1")
    _review(store, question)
    assert undo(store, question, "k1", "u1").recorded
    assert answer(store, question, "far", "k2").recorded
    assert _live(store) == [(question, "ana", "far", None, "review", True)]
    assert answer(store, question, "far", "k3").reason == Refusal.ANSWERED


def test_the_view_gives_ids_to_any_program(store: Store) -> None:
    (question,) = ask(store, [(3, 5)])
    answer(store, question, "close", "k")
    rows = store.run(
        lambda connection: connection.execute(
            "SELECT first_id, second_id, third_id, answer, first_answer, chosen, purpose FROM answers"
        ).fetchall()
    )
    assert rows == [("p3", "p5", None, "close", "close", "random", "first")]


# The database itself


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET answer = 'far'",
        "DELETE FROM events",
        "REPLACE INTO events SELECT id, key, kind, annotator, question, 'far', purpose, undoes, 1, 1 FROM events",
        "REPLACE INTO events SELECT NULL, key, kind, annotator, question, 'far', purpose, undoes, 1, 1 FROM events",
        "REPLACE INTO questions SELECT id, 8, 9, NULL, chosen, batch FROM questions",
        "UPDATE questions SET first = 9",
        "DELETE FROM questions",
    ],
)
def test_the_database_refuses_to_change_what_was_recorded(store: Store, statement: str) -> None:
    (question,) = ask(store, [(0, 1)])
    answer(store, question, "close", "k")
    with pytest.raises(sqlite3.IntegrityError, match="never"):
        store.run(lambda connection: connection.execute(statement))
    assert _live(store) == [(question, "ana", "close", "close", "first", False)]


@pytest.mark.parametrize("things", [(0, 0), (0, 99), (1, 2, 2)])
def test_a_question_is_about_different_things_that_exist(store: Store, things: tuple[int, ...]) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        ask(store, [things])


def test_every_commit_waits_for_the_disk(store: Store) -> None:
    settings = store.run(
        lambda connection: [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    )
    assert settings == ["wal", 2, 1]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_files_are_their_owner_s_alone(tmp_path: Path, points: LabelPoints) -> None:
    before = os.umask(0)
    try:
        with Store(tmp_path / "judgements.sqlite", make_task(), points) as store:
            ask(store, [(0, 1)])
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("judgements*")}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(
        ["judgements.sqlite", "judgements.sqlite-key", "judgements.sqlite-shm", "judgements.sqlite-wal"], 0o600
    )


def test_a_closed_file_is_one_file_that_can_be_copied(tmp_path: Path, points: LabelPoints) -> None:
    path = tmp_path / "judgements.sqlite"
    with Store(path, make_task(), points) as store:
        (question,) = ask(store, [(0, 1)])
        answer(store, question, "close", "k")
        store.run(lambda connection: connection.execute("SELECT 1").fetchone())
    read_recorded(path)
    assert sorted(found.name for found in tmp_path.glob("judgements*")) == [
        "judgements.sqlite",
        "judgements.sqlite-key",
    ]
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    assert len(read_recorded(copy)) == 1


# Transactions


def test_a_job_that_fails_is_rolled_back_alone(store: Store) -> None:
    """Of jobs that many threads want done at once, some of which fail after a change."""

    def insert(connection: sqlite3.Connection, number: int) -> int:
        connection.execute("INSERT INTO questions(first, second, chosen, batch) VALUES (0, ?, 'random', 0)", [number])
        if number % 3 == 0:
            raise LookupError(str(number))
        return number

    with ThreadPoolExecutor(8) as pool:
        futures = {number: pool.submit(store.run, partial(insert, number=number)) for number in range(1, 13)}
    for number, future in futures.items():
        if number % 3 == 0:
            with pytest.raises(LookupError, match=str(number)):
                future.result()
        else:
            assert future.result() == number
    found = store.run(lambda connection: connection.execute("SELECT second FROM questions ORDER BY 1").fetchall())
    assert [second for (second,) in found] == [1, 2, 4, 5, 7, 8, 10, 11]


def test_a_full_disk_is_a_sentence_and_the_store_goes_on(store: Store) -> None:
    (question, other) = ask(store, [(0, 1), (2, 3)])
    answer(store, question, "close", "k1")
    store.run(
        lambda connection: connection.execute(
            f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}"
        ).fetchone()
    )
    with pytest.raises(StoreError, match=r"can't be written: database or disk is full\. Check that the disk has room"):
        store.add_findings({"text": "x" * 100_000}, 1, [], "information")
    store.run(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchone())
    assert answer(store, other, "far", "k2").recorded
    assert len(read_recorded(store.path)) == 2
    assert store.add_findings({"text": "x" * 100_000}, 1, [], "information") == 1


def test_a_lock_of_another_program_is_a_sentence_and_the_store_goes_on(store: Store) -> None:
    (question,) = ask(store, [(0, 1)])
    store.run(lambda connection: connection.execute("PRAGMA busy_timeout = 50").fetchone())
    other = sqlite3.connect(store.path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            answer(store, question, "close", "k")
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert answer(store, question, "close", "k").recorded


def test_a_closed_store_takes_no_more(tmp_path: Path, points: LabelPoints) -> None:
    store = Store(tmp_path / "judgements.sqlite", make_task(), points)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.run(lambda connection: 8)


def test_another_process_reads_while_this_one_writes(store: Store) -> None:
    code = """
        import sys
        from closefar.tables import read_recorded
        seen = [read_recorded(sys.argv[1]) for _ in range(40)]
        assert all(len(found) == found.n_events for found in seen)
        assert [found.n_events for found in seen] == sorted(found.n_events for found in seen)
        print(seen[-1].n_events)
    """
    questions = ask(store, [(row % 29, 29) for row in range(3000)])
    command = [sys.executable, "-c", textwrap.dedent(code), str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        for question in questions:
            assert answer(store, question, "close", f"k{question}").recorded
            if reader.poll() is not None:
                break
        assert reader.stdout is not None
        assert 0 <= int(reader.stdout.read()) <= 3000
    assert reader.returncode == 0


# Findings


def test_findings_and_their_questions_come_together(store: Store) -> None:
    assert store.add_findings({"map": [1], "quality": 0.5, "doubtful": []}, 10, [(0, 1), (2, 3)], "information") == 1
    assert store.add_findings({"map": [2], "quality": 0.6}, 20, [(4, 5)], "uncertainty") == 2
    rows = store.run(lambda connection: connection.execute("SELECT id, n_events, body FROM findings").fetchall())
    assert rows == [
        (1, 10, '{"quality":0.5}'),
        (2, 20, '{"map": [2], "quality": 0.6}'),
    ]  # maps of the past are not kept
    questions = store.run(
        lambda connection: connection.execute("SELECT first, second, third, chosen, batch FROM questions").fetchall()
    )
    assert questions == [(0, 1, None, "information", 1), (2, 3, None, "information", 1), (4, 5, None, "uncertainty", 2)]


def test_what_somebody_has_been_asked_is_not_chosen_again(store: Store) -> None:
    ask(store, [(0, 1)])
    store.add_findings({}, 1, [(0, 1), (1, 0), (np.int64(0), np.int64(2))], "information")
    store.add_findings({}, 1, [(0, 2)], "information")  # chosen before, but nobody was asked
    found = store.run(lambda connection: connection.execute("SELECT first, second, batch FROM questions").fetchall())
    assert found == [(0, 1, 0), (0, 2, 1), (0, 2, 2)]


def test_a_triplet_is_the_same_with_its_sides_exchanged(tmp_path: Path, points: LabelPoints) -> None:
    with Store(tmp_path / "triplets.sqlite", make_task("triplets"), points) as store:
        ask(store, [(0, 1, 2)])
        store.add_findings({}, 1, [(0, 2, 1), (1, 0, 2)], "information")
        found = store.run(
            lambda connection: connection.execute("SELECT first, second, third FROM questions").fetchall()
        )
        assert found == [(0, 1, 2), (1, 0, 2)]
        answer(store, 1, "right", "k")
        recorded = read_recorded(store.path)
        assert recorded.third is not None
        assert (recorded.third.tolist(), recorded.answer.tolist()) == ([2], ["right"])


def test_findings_are_json(store: Store) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.add_findings({"quality": float("nan")}, 1, [], "information")


# Which file


def test_a_second_server_is_refused(tmp_path: Path, points: LabelPoints, store: Store) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(store.path)
    for path in (store.path, link):
        with pytest.raises(ValueError, match="is open in another `closefar label`"):
            Store(path, make_task(), points)
    (question,) = ask(store, [(0, 1)])
    assert answer(store, question, "close", "k").recorded


def test_the_key_stays_and_is_not_in_the_file(tmp_path: Path, points: LabelPoints) -> None:
    path = tmp_path / "judgements.sqlite"
    keys = []
    for _ in range(2):
        with Store(path, make_task(), points) as store:
            keys.append(store.key)
    assert keys[0] == keys[1] == Path(f"{path}-key").read_bytes()
    assert len(keys[0]) == 32
    assert keys[0] not in path.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
def test_a_key_that_others_can_read_or_made_is_refused(tmp_path: Path, points: LabelPoints) -> None:
    path, key = tmp_path / "judgements.sqlite", tmp_path / "judgements.sqlite-key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    with pytest.raises(PermissionError, match=r"readable by you alone.*its mode is 644"):
        Store(path, make_task(), points)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(ValueError, match="must have 32 bytes; it has 5"):
        Store(path, make_task(), points)
    key.unlink()
    key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a link"):
        Store(path, make_task(), points)
    assert not (tmp_path / "elsewhere").exists()


def _opened(path: Path, points: LabelPoints, **task: Any) -> str:
    """What opening says, or nothing."""
    try:
        Store(path, make_task(**task), points).close()
    except ValueError as error:
        return str(error)
    return ""


def _rewritten(table: Path, old: str, new: str) -> LabelPoints:
    table.write_text(table.read_text().replace(old, new))
    return read_label_points(table, show=["photo"])


def test_other_points_are_refused_with_the_difference_named(tmp_path: Path, points: LabelPoints) -> None:
    path, table = tmp_path / "judgements.sqlite", tmp_path / "points.csv"
    text, value = table.read_text(), str(points.columns["b"][3])
    assert _opened(path, points) == ""
    lines = text.splitlines(keepends=True)

    def changed(new: str) -> str:
        table.write_text(new)
        return _opened(path, read_label_points(table, show=["photo"]))

    assert "another table of points: column 'b' has changed." in changed(text.replace(value, "9.5", 1))
    assert "column 'photo' has changed" in changed(text.replace("7.png", "8.png", 1))
    assert "2 points are new: 'x', 'y'." in changed(text + "x,1,2,3,x.png\ny,1,2,3,y.png\n")
    assert "1 point is missing: 'p29'." in changed("".join(lines[:-1]))
    assert "1 point is new: 'q7'; 1 point is missing: 'p7'." in changed(text.replace("p7,", "q7,"))
    assert "the points are in another order." in changed("".join([*lines[:-2], lines[-1], lines[-2]]))
    assert "column 'b' is missing; column 'beta' is new." in changed(text.replace("id,a,b", "id,a,beta"))
    assert changed(text) == ""


def test_columns_in_another_order_and_other_shown_ones_are_the_same_table(tmp_path: Path, points: LabelPoints) -> None:
    path, table = tmp_path / "judgements.sqlite", tmp_path / "points.csv"
    assert _opened(path, points) == ""
    assert _opened(path, read_label_points(table, drop=["photo"])) == ""
    assert _opened(path, read_label_points(table, columns=["c", "b", "a"], show=["photo"])) == ""
    assert "column 'c' is missing" in _opened(path, read_label_points(table, drop=["c"], show=["photo"]))


def test_the_wording_may_change_and_the_kind_may_not(tmp_path: Path, points: LabelPoints) -> None:
    path = tmp_path / "judgements.sqlite"
    assert _opened(path, points) == ""
    assert _opened(path, points, annotators=("ana", "ben", "cara")) == ""
    assert read_recorded(path).about["task"]["annotators"] == ["ana", "ben", "cara"]
    assert "has answers to pairs (close, far); got levels (same, similar, other)." in _opened(
        path, points, kind="levels"
    )
    assert read_recorded(path).about["task"]["kind"] == "pairs"


def test_files_of_another_kind_are_refused_and_left_alone(tmp_path: Path, points: LabelPoints) -> None:
    other, text, newer = (tmp_path / name for name in ("other.sqlite", "notes.txt", "newer.sqlite"))
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine(x)")
    connection.close()
    text.write_text("not a database, " * 100)
    assert _opened(newer, points) == ""
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, words in (
        (other, "database of another program"),
        (text, "damaged, or not a file of judgements: file is not a database"),
        (newer, "newer version of closefar, in format 99"),
    ):
        before = path.read_bytes()
        assert words in _opened(path, points)
        with pytest.raises(TableError, match=words):
            read_recorded(path)
        assert path.read_bytes() == before
    assert not Path(f"{other}-key").exists()
    assert not Path(f"{text}-key").exists()


def test_a_damaged_file_is_refused_with_a_sentence(tmp_path: Path, points: LabelPoints) -> None:
    path = tmp_path / "judgements.sqlite"
    with Store(path, make_task(), points) as store:
        for question in ask(store, [(row % 29, 29) for row in range(500)]):
            answer(store, question, "close", f"k{question}")
    content = bytearray(path.read_bytes())
    for start in range(8192, len(content), 8192):
        content[start : start + 2048] = bytes(range(256)) * 8
    path.write_bytes(content)
    assert "is damaged" in _opened(path, points)
    with pytest.raises(TableError, match="is damaged"):
        read_recorded(path)
    path.write_bytes(content[: len(content) // 2])
    assert "is damaged" in _opened(path, points)


def test_an_empty_file_is_as_good_as_none(tmp_path: Path, points: LabelPoints) -> None:
    path = tmp_path / "judgements.sqlite"
    path.touch()
    with pytest.raises(TableError, match="no judgements yet"):
        read_recorded(path)
    assert _opened(path, points) == ""
    assert len(read_recorded(path)) == 0


def test_paths_that_can_t_be_used_are_sentences(tmp_path: Path, points: LabelPoints) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        Store(tmp_path / "none" / "judgements.sqlite", make_task(), points)
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        Store(tmp_path, make_task(), points)
    with pytest.raises(TableError, match="does not exist"):
        read_recorded(tmp_path / "none.sqlite")
    with pytest.raises(TableError, match="directory without"):
        read_recorded(tmp_path)


def test_odd_paths_are_paths(tmp_path: Path, points: LabelPoints) -> None:
    folder = tmp_path / "a?mode=memory#b%20c 'ö"
    folder.mkdir()
    assert _opened(folder / "j?x.sqlite", points) == ""
    assert len(read_recorded(folder / "j?x.sqlite")) == 0


def test_two_points_are_needed(tmp_path: Path) -> None:
    points = read_label_points(write_points(tmp_path, 2), show=["photo"])
    assert "a question shows 3 points; got a table of 2" in _opened(tmp_path / "x.sqlite", points, kind="triplets")


_HOSTILE = [
    "Robert'); DROP TABLE events;--",
    "quote \" and ' and , ; tab\tend",
    "two\nlines",
    "ünïcödé 雪 🎉",
    "‮right to left",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "../../etc/passwd",
    "1e5",
    "00017",
    "x" * 100_000,
]


def test_hostile_and_huge_ids_are_ids(tmp_path: Path) -> None:
    points = read_label_points(write_points(tmp_path, len(_HOSTILE), _HOSTILE), show=["photo"])
    with Store(tmp_path / "judgements.sqlite", make_task(), points) as store:
        for question in ask(store, [(row, (row + 1) % len(_HOSTILE)) for row in range(len(_HOSTILE))]):
            answer(store, question, "far", f"k{question}")
    found = read_recorded(tmp_path / "judgements.sqlite")
    assert found.ids.tolist() == _HOSTILE
    assert found.ids[found.first].tolist() == _HOSTILE
    assert _opened(tmp_path / "judgements.sqlite", points) == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit for the size of files")
def test_writes_that_the_system_refuses_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """In a process of its own, whose files may not grow for a while."""
    code = """
        import resource, sys
        from pathlib import Path
        from recorded import answer, ask, make_task, write_points
        from closefar.label import read_label_points
        from closefar.label.storage import Store, StoreError
        from closefar.tables import read_recorded

        folder = Path(sys.argv[1])
        points = read_label_points(write_points(folder), show=["photo"])
        with Store(folder / "judgements.sqlite", make_task(), points) as store:
            questions = ask(store, [(row % 29, 29) for row in range(400)])
            log = Path(f"{store.path}-wal").stat().st_size
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (log + 50_000, unlimited[1]))
            recorded, refused = [], []
            for question in questions:
                try:
                    assert answer(store, question, "far", f"k{question}").recorded
                    recorded.append(question)
                except StoreError as error:
                    assert "can't be written" in str(error), error
                    refused.append(question)
            assert recorded and refused, (len(recorded), len(refused))
            assert read_recorded(store.path).question.tolist() == recorded
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            for question in refused:
                assert answer(store, question, "far", f"k{question}").recorded
        assert sorted(read_recorded(folder / "judgements.sqlite").question.tolist()) == questions
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_file_is_read_where_nothing_may_be_written(
    tmp_path: Path, points: LabelPoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "judgements.sqlite"
    with Store(path, make_task(), points) as store:
        (question,) = ask(store, [(0, 1)])
        answer(store, question, "close", "k")
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
            assert len(read_recorded(path)) == 1  # beside a server
    path.chmod(0o400)
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
    assert len(read_recorded(path)) == 1
