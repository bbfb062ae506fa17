"""What is shown of each annotator: agreement with the others, strictness, answers at random, and time per answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closefar.fitting import AnnotatorTable, AnnotatorVerdict
from closefar.label.live.learned import Learned
from closefar.label.task import Task, TaskKind
from closefar.questions import wilson
from closefar.tables import RecordedAnswers

# Nothing is said of people with fewer answers to triplets, as in the annotator model of pairs.
_FEWEST = 20
_FEWEST_SHARED = 5  # answers, for a kappa
_INFORMATIVE = 0.6  # agreement with the metric that answers at random hardly reach


class Shared(NamedTuple):
    """The first answers of two people to the same question, as places in the answers of the task."""

    first: str
    second: str
    one: int
    other: int
    question: int


def shared_answers(answers: RecordedAnswers, task: Task) -> list[Shared]:
    """The answers of each two people to the same question, as they were first given."""
    place = {answer: code for code, answer in enumerate(task.answers)}
    by_question: dict[int, list[tuple[str, int]]] = {}
    rows = zip(answers.question, answers.annotator, answers.original, strict=True)
    for question, name, answer in rows:
        if answer is not None:
            by_question.setdefault(int(question), []).append((str(name), place[answer]))
    return [
        Shared(first, second, one, other, question)
        for question, said in by_question.items()
        for number, (first, one) in enumerate(sorted(said))
        for second, other in sorted(said)[number + 1 :]
        if first != second
    ]


def agreement_of_people(answers: RecordedAnswers, task: Task) -> dict[str, Any] | None:
    """Cohen's kappa of the answers of two people to the same question, over all such pairs of answers."""
    shared = shared_answers(answers, task)
    found = _kappa(shared, len(task.answers))
    if found is None:
        return None
    n = len({each.question for each in shared})
    kappa, low, high = found
    weights = " with quadratic weights" if task.kind is TaskKind.levels else ""
    reading = (
        f"Cohen's kappa{weights} is {kappa:.2f} (95% interval: {low:.2f} to {high:.2f}) on {n} questions that two or "
        "more people answered. 1 is perfect agreement and 0 is that of chance."
    )
    return {"kappa": kappa, "low": low, "high": high, "n": n, "reading": reading}


def annotators(
    answers: RecordedAnswers, task: Task, learned: Learned | None, agrees: NDArray[np.bool_] | None
) -> list[dict[str, Any]]:
    """One dict per annotator; `agrees` says of each answer to a triplet whether a metric without it expects it."""
    table = None if learned is None else learned.learner.fit_.annotators
    shared = shared_answers(answers, task)
    names = np.asarray(answers.annotator, dtype=object)
    said = np.array([answer is not None for answer in answers.answer], dtype=bool)
    found = []
    for name in [*task.annotators, *sorted(set(names.tolist()) - set(task.annotators))]:
        own = names == name
        both = [each for each in shared if name in each[:2]]
        kappa = _kappa(both, len(task.answers))
        strictness, verdict = _modelled(table, name)
        if task.kind is TaskKind.triplets and task.is_shared and agrees is not None:
            verdict = _verdict_on_triplets(agrees[own[said]])
        seconds = answers.seconds[own & np.isfinite(answers.seconds)]
        entry = {
            "name": name,
            "n": int(np.sum(own & said)),
            "seconds": float(np.median(seconds)) if len(seconds) else None,
            "kappa": None if kappa is None else kappa[0],
            "kappa_low": None if kappa is None else kappa[1],
            "kappa_high": None if kappa is None else kappa[2],
            "n_shared": len(both),
            "strictness": strictness,
            "verdict": None if verdict is None else str(verdict),
        }
        found.append({**entry, "reading": _reading(entry)})
    return found


def _modelled(table: AnnotatorTable | None, name: str) -> tuple[float | None, AnnotatorVerdict | None]:
    """The strictness of an annotator and a verdict, by the annotator model."""
    if table is None or name not in table.names:
        return None, None
    return float(table.strictness_of([name])[0]), table.verdict_of(name)


def _verdict_on_triplets(agrees: NDArray[np.bool_]) -> AnnotatorVerdict:
    """Whether somebody's answers agree with a metric that was learned without them; there is no strictness."""
    if len(agrees) < _FEWEST:
        return AnnotatorVerdict.TOO_FEW
    low, high = wilson(float(agrees.mean()), len(agrees))
    if high < 0.5:
        return AnnotatorVerdict.THE_OTHER_WAY_ROUND
    if low > 0.5:
        return AnnotatorVerdict.TYPICAL
    return AnnotatorVerdict.AT_RANDOM if high < _INFORMATIVE else AnnotatorVerdict.TOO_FEW


def _kappa(shared: Sequence[Shared], n_answers: int) -> tuple[float, float, float] | None:
    """Cohen's kappa with quadratic weights, and its 95% interval; None if no disagreement is expected by chance.

    Of more than two people, what is expected by chance is that of each two of them.  The interval is that of the
    disagreement: Wilson's, for as many answers as give a share the variance of the disagreement.  So it has a width
    even where all answers agree.
    """
    n, widest = len(shared), float((n_answers - 1) ** 2)
    if n < _FEWEST_SHARED:
        return None
    by_people: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for each in shared:
        by_people.setdefault((each.first, each.second), []).append((each.one, each.other))
    by_chance = 0.0
    for said in by_people.values():
        one, other = np.array(said, dtype=np.float64).T
        by_chance += float(np.sum(np.mean((one[:, None] - other[None, :]) ** 2, axis=0))) / widest / n
    if by_chance <= 0.0:
        return None
    differences = np.array([(each.one - each.other) ** 2 / widest for each in shared])
    share, variance = float(differences.mean()), float(differences.var())
    low, high = wilson(share, n * share * (1.0 - share) / variance if variance > 0.0 else n)
    return 1.0 - share / by_chance, 1.0 - high / by_chance, 1.0 - low / by_chance


def _reading(entry: dict[str, Any]) -> str:
    parts = [f"{entry['name']}: {entry['n']} answers"]
    if entry["seconds"] is not None:
        parts.append(f"{entry['seconds']:.1f} s per answer at the median")
    if entry["kappa"] is not None:
        parts.append(f"kappa {entry['kappa']:.2f} with the others on {entry['n_shared']} shared answers")
    if entry["verdict"] is not None:
        parts.append(entry["verdict"])
    return ", ".join(parts) + "."
