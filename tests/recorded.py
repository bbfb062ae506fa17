"""Files of judgements for tests: a small table of points, a task, and questions that were handed out."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closefar.label import ANSWERS, LabelPoints, Task, TaskKind, read_label_points
from closefar.label.storage import NewEvent, Receipt, Store

__all__ = ["answer", "ask", "judge_file", "make_task", "undo", "write_points"]


def write_points(folder: Path, n: int = 30, ids: Sequence[str] | None = None, seed: int = 0) -> Path:
    """Write a table with the columns id, a, b, c and photo."""
    from closefar.tables import encode_table

    numbers = np.random.default_rng(seed).normal(size=(n, 3)).round(3)
    columns: dict[str, Any] = {"id": np.array(ids or [f"p{row}" for row in range(n)], dtype=object)}
    columns |= dict(zip("abc", numbers.T, strict=True))
    columns["photo"] = np.array([f"{row}.png" for row in range(n)], dtype=object)
    path = folder / "points.csv"
    path.write_bytes(encode_table(columns, path))
    return path


def make_task(kind: str = "pairs", annotators: tuple[str, ...] = ("ana", "ben")) -> Task:
    kind = TaskKind(kind)
    return Task(kind, "Alike?", "Look.", ANSWERS.get(kind) or ("same", "similar", "other"), annotators)


def ask(
    store: Store, things: Sequence[tuple[int, ...]], who: Sequence[str] = ("ana",), *, chosen: str = "random"
) -> list[int]:
    """Add questions, and hand all of them to these people; gives their numbers."""

    def job(connection: sqlite3.Connection) -> list[int]:
        numbers = []
        for each in things:
            first, second, third = (*each, None)[:3]
            number = connection.execute(
                "INSERT INTO questions(first, second, third, chosen, batch) VALUES (?, ?, ?, ?, 0)",
                [first, second, third, chosen],
            ).lastrowid
            assert number is not None
            for position, name in enumerate(who):
                purpose = "shared" if position else "first"
                connection.execute("INSERT INTO handed VALUES (?, ?, ?, 0.0, 600.0)", [number, name, purpose])
            numbers.append(number)
        return numbers

    return store.run(job)


def answer(store: Store, question: int, given: str | None, key: str, who: str = "ana", now: float = 1.0) -> Receipt:
    (receipt,) = store.record(who, [NewEvent(key, "answer", question, given, seconds=2.5)], now)
    return receipt


def undo(store: Store, question: int, undoes: str | None, key: str, who: str = "ana") -> Receipt:
    (receipt,) = store.record(who, [NewEvent(key, "undo", question, undoes=undoes)], 2.0)
    return receipt


def judge_file(
    folder: Path, kind: str = "pairs", n: int = 200, *, annotators: tuple[str, ...] = ("ana", "ben"), unsure: int = 13
) -> tuple[Path, LabelPoints]:
    """Write judgements.sqlite beside points.csv: answers by a distance with noise, each 13th of them can't say."""
    points = read_label_points(write_points(folder, 40), show=["photo"])
    task, rng = make_task(kind, annotators), np.random.default_rng(1)
    path = folder / "judgements.sqlite"
    with Store(path, task, points) as store:
        things = [tuple(rng.choice(40, task.n_things, replace=False).tolist()) for _ in range(n)]
        for number, question in enumerate(ask(store, things, annotators)):
            squared = [
                np.square(points.features[things[number][0]] - points.features[other]) @ (1.0, 0.5, 0.0)
                for other in things[number][1:]
            ]
            margin = squared[0] - (squared[1] if task.n_things == 3 else 2.0) + rng.logistic()
            level = int(margin > 0) + int(margin > 2 and len(task.answers) > 2)
            given = None if unsure and number % unsure == 0 else task.answers[level]
            answer(store, question, given, f"key-{number}", annotators[number % len(annotators)], 1.7e9 + number)
    return path, points
