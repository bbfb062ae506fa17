"""What the answers so far tell: how good the metric is, what it weighs, who agrees, and what to look at again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from closefar.arrays import FloatArray
from closefar.label.live.doubts import doubtful, no_doubts
from closefar.label.live.held_out import held_out_probabilities
from closefar.label.live.learned import Given, Learned, describe_learner, learn
from closefar.label.live.people import agreement_of_people, annotators
from closefar.label.live.point_map import point_map
from closefar.label.live.projection import no_projection, projected
from closefar.label.live.quality import quality
from closefar.label.live.reserved import measures_quality
from closefar.label.task import Task, TaskKind
from closefar.model import Metric, loadings
from closefar.plain import to_jsonable
from closefar.tables import RecordedAnswers

# Learning starts with so many answers.
_FEWEST = 20

_MOST_DIRECTIONS = 10
_MOST_WEIGHTS = 5
_FOLDS_OF_DOUBTS = 5


def findings(
    answers: RecordedAnswers,
    features: FloatArray,
    feature_names: Sequence[str],
    task: Task,
    previous: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What the answers so far tell, as JSON: every key is always there, and None where nothing is known yet.

    `previous` are the findings before these, whose map is not to jump.
    """
    given = Given.of(answers, features, task)
    return findings_of(answers, given, learned_from(given, task), feature_names, task, previous)


def learned_from(given: Given, task: Task) -> Learned | str:
    """The metric of the answers or, in a sentence, why there is none."""
    if len(given) < _FEWEST:
        return f"Learning starts after about {_FEWEST} answers: {len(given)} so far."
    if not np.any(np.ptp(_features_asked(given), axis=0) > 0):
        return "Nothing can be learned: the things of all questions have the same values in every column."
    try:
        learned = learn(given, task)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return f"No metric could be learned from these answers: {error}"
    if learned is None:
        said = task.answers[int(given.codes[0])]
        return f"All {len(given)} answers so far are {said!r}. Learning starts once there are two different answers."
    return learned


def _features_asked(given: Given) -> FloatArray:
    """The features of the things that questions were about."""
    found: FloatArray = given.features[np.unique(given.index)]
    return found


def findings_of(
    answers: RecordedAnswers,
    given: Given,
    learned: Learned | str,
    feature_names: Sequence[str],
    task: Task,
    previous: dict[str, Any] | None,
) -> dict[str, Any]:
    """The findings for a metric, or for why there is none."""
    found = nothing_found(task, learned if isinstance(learned, str) else "")
    found.update(
        n_answers=len(given),
        n_random=int(measures_quality(answers, task).sum()),
        n_unsure=len(answers.answer) - len(given),
        annotators=annotators(answers, task, None, None),
        kappa=agreement_of_people(answers, task) if task.is_shared else None,
        learner=describe_learner(given, task),
    )
    if isinstance(learned, Learned):
        found.update(_of_metric(answers, given, learned, feature_names, task, previous))
    checked: dict[str, Any] = to_jsonable(found, finite=True)
    return checked


def nothing_found(task: Task, status: str) -> dict[str, Any]:
    """All keys of the findings, without any."""
    return {
        "status": status,
        "n_answers": 0,
        "n_random": 0,
        "n_unsure": 0,
        "quality": None,
        "plan": no_projection(task, "There is no projection yet: no metric has been learned."),
        "directions": [],
        "doubtful": [],
        "no_doubts": "No answer is doubted yet: no metric has been learned.",
        "map": None,
        "annotators": [],
        "kappa": None,
        "learner": None,
    }


def _of_metric(
    answers: RecordedAnswers,
    given: Given,
    learned: Learned,
    feature_names: Sequence[str],
    task: Task,
    previous: dict[str, Any] | None,
) -> dict[str, Any]:
    is_zero = learned.metric.rank == 0
    measured = quality(answers, given, learned, task)
    reason = no_doubts(measured)
    doubts, agrees = [], None
    if not reason or (task.kind is TaskKind.triplets and task.is_shared):  # fits that take a while
        probabilities = held_out_probabilities(learned, given, task, _FOLDS_OF_DOUBTS)
        agrees = np.argmax(probabilities, axis=1) == given.codes
        doubts = [] if reason else doubtful(given, probabilities, task, answers.ids)
    return {
        "status": _status(learned),
        "quality": measured,
        "plan": projected(given, task),
        "directions": _directions(learned.metric, given.features, feature_names),
        "doubtful": doubts,
        "no_doubts": reason or ("" if doubts else "No answer contradicts the metric so far."),
        "map": None if is_zero else _map(answers, given, learned.metric, previous),
        "annotators": annotators(answers, task, learned, agrees),
    }


def _status(learned: Learned) -> str:
    """What to know about the metric before anything else: "" if it is learned, and complete."""
    fit = learned.learner.fit_
    if learned.metric.rank == 0:
        return "The answers so far do not depend on any distance between the things."
    if fit.choice is not None and fit.choice.is_plain:
        return (
            "The answers so far show no metric that is clearly better than the plain distance, which is shown instead."
        )
    if fit.certificate.outcome == "unfinished":
        return "The metric is not complete, as its fit takes long here. `closefar fit` completes it."
    return ""


def _map(
    answers: RecordedAnswers, given: Given, metric: Metric, previous: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The map of the points, with the ids of those on it."""
    found = point_map(metric, given.features, (previous or {}).get("map"))
    return None if found is None else {**found, "ids": [str(answers.ids[row]) for row in found["rows"]]}


def _directions(metric: Metric, features: FloatArray, names: Sequence[str]) -> list[dict[str, Any]]:
    """The share of each direction in the mean squared distance, and its largest weights, in standard deviations."""
    if metric.rank == 0:
        return []
    found = metric.directions()
    weights = loadings(found.columns, features.std(axis=0))
    rows = []
    for share, column in zip(found.shares[:_MOST_DIRECTIONS].tolist(), weights.T, strict=False):
        largest = np.argsort(-np.abs(column), kind="stable")[:_MOST_WEIGHTS]
        rows.append({"share": share, "weights": [[str(names[at]), float(column[at])] for at in largest]})
    return rows
