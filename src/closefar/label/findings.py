"""What the answers so far show: how good the metric is, what it weighs, who agrees, and what to look at again.

They are found in a process of their own, which reads the file of judgements, so that no request ever waits for a fit.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import closefar as cf
from closefar.arrays import BoolArray, FloatArray, IndexArray, threads_at_most
from closefar.fitting import refit_part
from closefar.label.task import Purpose, Task, TaskKind
from closefar.learners import MetricLearner
from closefar.model import Metric, loadings
from closefar.plain import to_jsonable
from closefar.questions import wilson
from closefar.tables import RecordedAnswers, TableError, read_recorded

_LOG = logging.getLogger(__name__)

# ---------------------------------------------------------------------------------------------------------------------
# The metric of a labelling session: that of the default learner, what it expects, and which answers measure it.
#
# Questions that are chosen by a metric say what that metric says: they lie where it is uncertain, so that a fit to them
# finds it again, with every answer that it was fitted to.  A random question that guided the choice would then be
# predicted too well even by fits without it.  So the first random answers, with which choosing begins, measure nothing,
# and the later ones guide nothing; the metric itself is fitted to all.


# No fit may take longer, as the page is renewed every few answers.  Hardly any does: 1,000 answers about 30 columns
# take about a second.
_SECONDS = 60.0

# Choosing begins with this many random answers, enough for a first metric of a few columns, and more until two answers
# have been given this often.
_FEWEST_GUIDES, _FEWEST_OF_EACH = 10, 2


@dataclass(frozen=True, eq=False)
class Given:
    """The answers to learn from: all but "can't say".

    Attributes
    ----------
    features : array of shape (n_points, d)
    index : array of shape (n, 2) or (n, 3)
        The rows of `features` that each question is about.
    codes : array of n integers
        The answers, as places in the answers of the task.
    who : array of n names
    questions : array of n integers
    """

    features: FloatArray
    index: IndexArray
    codes: IndexArray
    who: NDArray[Any]
    questions: IndexArray

    @classmethod
    def of(cls, answers: RecordedAnswers, features: FloatArray, task: Task, used: Any = True) -> Given:
        """Select the answers other than "can't say"; of those only the ones that are `used`."""
        codes = task.codes_of(answers.answer)
        every = cls(features, answers.things, codes, answers.annotator, answers.question)
        return every.at((codes >= 0) & used)

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, rows: NDArray[Any]) -> Given:
        """Return some of the answers."""
        return Given(self.features, self.index[rows], self.codes[rows], self.who[rows], self.questions[rows])

    @property
    def tuples(self) -> cf.Tuples:
        return cf.Tuples(self.features, self.index)


@dataclass(frozen=True, eq=False)
class Learned:
    """A fitted learner, and the answers of the task that it knows, as places, in the order of its classes."""

    learner: MetricLearner
    known: IndexArray
    n_answers: int

    @property
    def metric(self) -> Metric:
        return self.learner.metric_

    def probabilities(self, tuples: cf.Tuples) -> FloatArray:
        """The probability of each answer of the task to each question, given by a typical annotator."""
        found = np.zeros((len(tuples), self.n_answers))
        found[:, self.known] = self.learner.predict_proba(tuples)
        return found


def learn(given: Given, task: Task, chosen: Learned | None = None, **settings: Any) -> Learned | None:
    """Fit a metric to the answers by the learner of their kind; None if all are the same.

    The learner has these settings, or those that were chosen for another fit, such as one to more of the answers.
    """
    known = np.unique(given.codes)
    learner: cf.LinearMetricLearner | cf.OrdinalMetricLearner | cf.ComparisonMetricLearner
    if task.kind is TaskKind.triplets:
        given, known = given.at(_differ(given)), np.array([1, 0])
        answers, learner = np.where(given.codes == 0, 1, -1), cf.ComparisonMetricLearner(**settings)
    elif task.kind is TaskKind.pairs:
        answers, learner = given.codes, cf.LinearMetricLearner(far_label=1, **settings)
    else:
        answers, learner = given.codes, cf.OrdinalMetricLearner(known.tolist(), **settings)
    if len(given) == 0 or len(known) < 2:
        return None
    has_strictness = len(set(given.who.tolist())) > 1 and task.kind is not TaskKind.triplets
    people: dict[str, Any] = {"annotators": given.who} if has_strictness else {}
    with warnings.catch_warnings(action="ignore"):  # what a fit to few answers leaves open is said by the findings
        if chosen is None:
            learner.fit(given.tuples, answers, max_time=_SECONDS, **people)
        else:
            learner.fit_ = refit_part(chosen.learner.fit_, learner.read(given.tuples, answers, **people))
    return Learned(learner, known, len(task.answers))


def _differ(given: Given) -> BoolArray:
    """Which triplets can teach something: not those whose two things are equally far from the first in any metric."""
    reference, left, right = (given.features[given.index[:, k]] for k in range(3))
    found: BoolArray = np.any(left != right, axis=1) & np.any(left - reference != reference - right, axis=1)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Answers to questions that a metric was not fitted to.


def held_out(learned: Learned, given: Given, task: Task, asked: IndexArray, n_folds: int) -> FloatArray:
    """The probability of each answer to the questions `asked`, by cross-validation.

    Each is by a fit to all answers but those to the questions of its fold; questions that are not asked about here are
    in every fit.  Equal questions share a fold.  They take turns in the order in which they are given, so that a
    question keeps its fold as more come, and what is shown of it does not jump.
    """
    numbers = np.unique(same_side(np.concatenate([asked, given.index])), axis=0, return_inverse=True)[1].ravel()
    distinct, first = np.unique(numbers[: len(asked)], return_index=True)
    turn = np.full(int(numbers.max(initial=-1)) + 1, -1)
    turn[distinct[np.argsort(first)]] = np.arange(len(distinct)) % n_folds
    found = np.zeros((len(asked), learned.n_answers))
    for fold in range(min(n_folds, len(distinct))):
        is_in = turn[numbers] == fold
        left_out, rest = is_in[: len(asked)], given.at(~is_in[len(asked) :])
        fitted = learn(rest, task, learned)
        if fitted is None:  # all other answers are the same
            found[left_out, rest.codes[0] if len(rest) else 0] = 1.0
        else:
            found[left_out] = fitted.probabilities(cf.Tuples(given.features, asked[left_out]))
    return found


def same_side(index: IndexArray) -> IndexArray:
    """The rows of questions with the two things to compare in one order, so that equal questions are equal rows."""
    return np.column_stack([index[:, :-2], np.sort(index[:, -2:], axis=1)])


# ---------------------------------------------------------------------------------------------------------------------
# Which answers measure the metric, and which guide the choice of questions.


def measures_quality(answers: RecordedAnswers, task: Task) -> BoolArray:
    """Which answers measure quality: those to reserved random questions, as first given, other than "can't say".

    An answer that was looked at again counts as it was first given: after a look at what the metric expects, people
    agree with it more often.  Answers to a question that is asked of a second person on purpose do not count.
    """
    return np.asarray(_counts(answers) & ~guides_choice(answers, task))


def guides_choice(answers: RecordedAnswers, task: Task) -> BoolArray:
    """Which answers the next questions may be chosen by: all but those to reserved random questions."""
    counts = _counts(answers)
    if np.all(answers.chosen == "random") and task.method == "random":
        return np.zeros(len(answers.question), dtype=bool)  # nothing is chosen
    reserved = set(answers.question[counts].tolist()) - _first_questions(answers, counts, task)
    return np.array([question not in reserved for question in answers.question.tolist()], dtype=bool)


def _counts(answers: RecordedAnswers) -> BoolArray:
    """Which answers were first given to random questions, and are not "can't say"."""
    is_said = np.array([answer is not None for answer in answers.original], dtype=bool)
    counts: BoolArray = (answers.chosen == "random") & (answers.purpose != str(Purpose.shared)) & is_said
    return counts


def _first_questions(answers: RecordedAnswers, counts: BoolArray, task: Task) -> set[int]:
    """The random questions that choosing begins with, in the order in which they were drawn.

    Where they end depends on their own answers only, so that those after them are a random sample.
    """
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(answers.question[rows], kind="stable")]
    given: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        said = str(answers.original[row])
        given[said] = given.get(said, 0) + 1
        differ = task.kind is TaskKind.triplets or sum(n >= _FEWEST_OF_EACH for n in given.values()) >= 2
        if number >= _FEWEST_GUIDES and differ:
            return set(answers.question[rows[:number]].tolist())
    return set(answers.question[rows].tolist())


# ---------------------------------------------------------------------------------------------------------------------
# The findings as a whole.

_FEWEST_TO_LEARN = 20  # answers, which take a minute or two
_DIRECTIONS, _WEIGHTS = 10, 5  # that the overview has room for: directions, and weights of each


_AT_FIRST = "Learning starts after about 20 answers."


class LatestFindings:
    """The latest findings of the fitting process, and the learning curve of all of them.

    Parameters
    ----------
    task : Task
    connection : sqlite3.Connection
        To the file, which may have findings already.
    """

    def __init__(self, task: Task, connection: sqlite3.Connection) -> None:
        self.body = nothing_found(task, _AT_FIRST)
        self._curve: list[dict[str, Any]] = []
        for (body,) in connection.execute("SELECT body FROM findings ORDER BY id"):
            self.publish(json.loads(body))

    def publish(self, body: dict[str, Any]) -> None:
        """Show new findings."""
        if body["quality"] is not None:
            shown = {name: body["quality"][name] for name in ("agreement", "low", "high")}
            self._curve = [*self._curve, {"n": body["n_answers"], **shown}]
        self.body = body

    def shown_to(self, name: str, *, is_owner: bool) -> dict[str, Any]:
        """All findings for the owner; for others, what concerns their own answers."""
        if is_owner:
            return {**self.body, "curve": self._curve}
        return {"status": self.body["status"], "doubtful": self.doubtful_of(name)}

    def doubtful_of(self, name: str) -> list[dict[str, Any]]:
        """The answers of somebody that the metric doubts."""
        return [each for each in self.body.get("doubtful") or [] if each.get("annotator") == name]


def learned_from(given: Given, task: Task) -> Learned | str:
    """The metric of the answers or, in a sentence, why there is none."""
    if len(given) < _FEWEST_TO_LEARN:
        return f"Learning starts after about {_FEWEST_TO_LEARN} answers: {len(given)} so far."
    if not np.any(np.ptp(given.features[np.unique(given.index)], axis=0) > 0):
        return "Nothing can be learned: the things of all questions have the same values in every column."
    try:
        learned = learn(given, task)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return f"No metric could be learned from these answers: {error}"
    if learned is None:
        said = task.answers[int(given.codes[0])]
        return f"All {len(given)} answers so far are {said!r}. Learning starts once there are two different answers."
    return learned


def findings(
    answers: RecordedAnswers,
    given: Given,
    learned: Learned | str,
    feature_names: Sequence[str],
    task: Task,
    previous: dict[str, Any] | None,
) -> dict[str, Any]:
    """What the answers so far show, as JSON: every key is always there, and None where nothing is known yet.

    `learned` is the metric or, in a sentence, why there is none; `previous` are the findings before these, whose map is
    not to jump.
    """
    found = nothing_found(task, learned if isinstance(learned, str) else "")
    found.update(
        n_answers=len(given),
        n_random=int(measures_quality(answers, task).sum()),
        n_unsure=len(answers) - len(given),
        kappa=_agreement_of_people(answers, task) if task.is_shared else None,
        annotators=_people(answers, task, learned),
    )
    if isinstance(learned, Learned):
        measured = quality(answers, given, learned, task)
        reason, doubts = _no_doubts(measured), []
        if not reason:
            probabilities = held_out(learned, given, task, given.index, _FOLDS_OF_DOUBTS)
            doubts = doubtful(given, probabilities, task, answers.ids)
        found.update(
            status=_status(learned),
            quality=measured,
            plan=_projected(given, task),
            directions=_directions(learned.metric, given.features, feature_names),
            doubtful=doubts,
            no_doubts=reason or ("" if doubts else "No answer contradicts the metric so far."),
            map=_map(learned.metric, given.features, answers.ids, previous),
        )
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
        "plan": _no_projection(task, "There is no projection yet: no metric has been learned."),
        "directions": [],
        "doubtful": [],
        "no_doubts": "No answer is doubted yet: no metric has been learned.",
        "map": None,
        "annotators": [],
        "kappa": None,
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


def _directions(metric: Metric, features: FloatArray, names: Sequence[str]) -> list[dict[str, Any]]:
    """The share of each direction in the mean squared distance, and its largest weights, in standard deviations."""
    if metric.rank == 0:
        return []
    found = metric.directions()
    weights = loadings(found.columns, features.std(axis=0)).T[:_DIRECTIONS]
    largest = np.argsort(-np.abs(weights), axis=1, kind="stable")[:, :_WEIGHTS]
    return [
        {"share": float(share), "weights": [[str(names[at]), float(column[at])] for at in places]}
        for share, column, places in zip(found.shares, weights, largest, strict=False)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Quality: how often the metric agrees with a new answer to a random question, measured on those that were asked.

# Random questions; with fewer, the interval of an agreement of 50% is wider than half of the scale.
_FEWEST_MEASURED = 12
_FOLDS_OF_QUALITY = 10  # the usual number: fits lack a tenth of the answers, and take seconds

# An answer is predicted by fits to the other ones, and helps to predict those, so that right predictions are not quite
# independent.  In 240 simulated sessions (benchmarks/label_quality.py) the variance of their share was 1.08 times that
# of a binomial.
_DEPENDENCE = 1.05


def agreement_interval(n_right: float, n: float) -> tuple[float, float]:
    """The 95% interval of Wilson for the probability behind `n_right` of `n` that were cross-validated."""
    return wilson(n_right / n, n / _DEPENDENCE)


def quality(answers: RecordedAnswers, given: Given, learned: Learned, task: Task) -> dict[str, Any] | None:
    """The agreement with a new answer to a random question, by cross-validation over the random questions.

    Beside it is that of the most frequent answer, `baseline`, to the same questions.
    """
    counts = measures_quality(answers, task)
    n = int(counts.sum())
    if n < _FEWEST_MEASURED:
        return None
    said, asked = task.codes_of(answers.original[counts]), answers.things[counts]
    n_right = int(np.sum(np.argmax(held_out(learned, given, task, asked, _FOLDS_OF_QUALITY), axis=1) == said))
    low, high = agreement_interval(n_right, n)
    agreement, baseline = n_right / n, float(np.bincount(said).max()) / n
    compared = "." if low > baseline else ", so it is not clear yet whether the metric is better."
    reading = (
        f"The metric agrees with about {agreement:.0%} of new answers to random questions (95% interval: {low:.0%} to "
        f"{high:.0%}). This is measured on {n} random questions, each by a fit that has not seen it. "
        f"Always giving the most frequent answer would agree with {baseline:.0%}{compared}"
    )
    return {"agreement": agreement, "low": low, "high": high, "baseline": baseline, "n": n, "reading": reading}


# ---------------------------------------------------------------------------------------------------------------------
# Answers to look at again: those that a metric which has not seen them finds improbable.

_DOUBTS_SHOWN = 20  # as many as somebody looks at again in one go
_FOLDS_OF_DOUBTS = 5  # half as many fits as for the quality, after which they come

# An answer is looked at again if another one is at least this many times as probable; of two answers, the other one
# then has a probability of at least 80%.  People often confuse adjacent levels, so that this also takes 80%.
_TIMES_AS_PROBABLE, _SURE = 4.0, 0.8

_SLIP_STEPS = 100  # of expectation and maximisation; the share of slips then changes by less than 0.001


def _no_doubts(quality: dict[str, Any] | None) -> str:
    """Why no answer may be doubted yet, "" if answers may be: a metric that explains nothing can't doubt anybody."""
    if quality is None:
        return "No answer is doubted yet: the quality of the metric is measured after more random questions."
    if quality["low"] <= quality["baseline"]:
        return (
            "No answer is doubted yet: it is not clear whether the metric is better than always giving the most "
            "frequent answer."
        )
    return ""


def doubtful(given: Given, probabilities: FloatArray, task: Task, ids: Any) -> list[dict[str, Any]]:
    """The least probable answers first; `probabilities` of each answer are by fits without the question.

    `ids` are those of all points.
    """
    probabilities = with_slips(probabilities, given.codes)
    rows = np.arange(len(given))
    expected = np.argmax(probabilities, axis=1)
    sure = probabilities[rows, expected]
    odds = sure / probabilities[rows, given.codes]
    is_clear = (sure >= _SURE) | (np.abs(expected - given.codes) > 1)
    suspects = np.flatnonzero(is_clear & (odds >= _TIMES_AS_PROBABLE))
    shown = suspects[np.argsort(-odds[suspects], kind="stable")][:_DOUBTS_SHOWN]
    return [
        {
            "question": int(given.questions[row]),
            "things": [str(ids[point]) for point in given.index[row]],
            "annotator": str(given.who[row]),
            "answer": task.answers[given.codes[row]],
            "expected": task.answers[expected[row]],
            "probability": float(sure[row]),
            "reading": _doubt(task, task.answers[given.codes[row]], task.answers[expected[row]], float(sure[row])),
        }
        for row in shown
    ]


def with_slips(probabilities: FloatArray, codes: Any) -> FloatArray:
    """The probabilities of answers by people of whom a share answers at random, regardless of the metric.

    The share is the most likely one for the answers that were given, `codes`, with one more answer that is such a slip
    and one that is none, so that no answer is impossible.  It makes up for slips that a fit does not know of, and for
    fits to few answers that are too sure.
    """
    n, k = probabilities.shape
    own = probabilities[np.arange(n), codes]
    slips = 0.05
    for _ in range(_SLIP_STEPS):
        is_slip = slips / k / (slips / k + (1.0 - slips) * own)
        slips = (1.0 + float(np.sum(is_slip))) / (n + 2.0)
    mixed: FloatArray = (1.0 - slips) * probabilities + slips / k
    return mixed


def _doubt(task: Task, answer: str, expected: str, probability: float) -> str:
    share = "more than 99%" if probability > 0.99 else f"{probability:.0%}"  # it never reads as certain
    if task.kind is TaskKind.triplets:
        return f"You said that the {answer} one is nearer; the metric says {share} the {expected} one."
    if task.kind is TaskKind.levels:
        return f"You said {answer}; the metric says {expected} ({share})."
    return f"You said {answer}; the metric says {share} {expected}."


# ---------------------------------------------------------------------------------------------------------------------
# A projection of how many judgements are still needed.

_WIDEST_PROJECTED = 60  # columns; a projection computes with a matrix that has a row for each entry of M


def _projected(given: Given, task: Task) -> dict[str, Any]:
    """The number of answers at which the expected error of the metric is the target, or why there is none yet."""
    d = given.features.shape[1]
    if d > _WIDEST_PROJECTED:
        return _no_projection(task, f"Projections are made for at most {_WIDEST_PROJECTED} columns; there are {d}.")
    one_person = replace(given, who=np.full(len(given), "", dtype=object))
    pilot = learn(one_person, task, alpha=0.0, flip_rate=0.0)  # maximum likelihood, as sample sizes need it
    assert pilot is not None  # there are two different answers
    try:
        with warnings.catch_warnings(action="ignore"):
            plan = cf.plan_sample_size(pilot.learner, target_error=task.target_error, measure="spectral")
    except ValueError:  # what a pilot must be like, all of which more answers achieve
        return _no_projection(
            task, "There is no projection yet: the answers are too few to tell how uncertain the metric is."
        )
    error, more = plan.expected_error(len(given)), plan.n_pairs - len(given)
    goal = (
        f"About {plan.n_pairs:,} answers are needed for an error of the metric of {task.target_error:.0%}: "
        f"{more:,} more."
        if more > 0
        else f"There are enough answers for an error of the metric of {task.target_error:.0%}."
    )
    rough = " This is a rough projection." if plan.uncertain_per_parameter < 5.0 else ""
    reading = f"{goal} Now it is about {error:.0%}. This assumes that further questions are like those so far.{rough}"
    return {"needed": plan.n_pairs, "target": task.target_error, "error": error, "reading": reading}


def _no_projection(task: Task, reading: str) -> dict[str, Any]:
    """A plan without a number, and why there is none."""
    return {"needed": None, "target": task.target_error, "error": None, "reading": reading}


# ---------------------------------------------------------------------------------------------------------------------
# A map of the points in the learned metric that turns as little as possible from one fit to the next.

_POINTS_ON_MAP = 400  # more would cover each other, and are slow to draw
_MAP_DECIMALS = 4  # of a root mean square of 1, finer than a pixel of any screen


def _map(
    metric: Metric, features: FloatArray, ids: NDArray[Any], previous: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The two directions in which distances between points vary most, in units of their root mean square.

    The map is turned, and reflected if necessary, to match that of the previous findings.  It is None if all distances
    are zero.
    """
    n = len(features)
    rows = np.arange(n)
    if n > _POINTS_ON_MAP:  # a random sample, which is always the same
        rows = np.sort(np.random.default_rng(0).choice(n, _POINTS_ON_MAP, replace=False))
    mapped = features[rows] @ metric.factor
    mapped = mapped - mapped.mean(axis=0)
    if not np.any(mapped):
        return None
    left, lengths, _ = np.linalg.svd(np.pad(mapped, ((0, 0), (0, 1))), full_matrices=False)  # two columns or more
    shares, places = lengths[:2] ** 2 / np.sum(lengths**2), (left * lengths)[:, :2]
    places /= np.sqrt(np.mean(np.sum(places**2, axis=1)))
    before = (previous or {}).get("map")
    if before is not None and before["rows"] == rows.tolist():  # the nearest rotation or reflection (Procrustes)
        one, _, other = np.linalg.svd(places.T @ np.column_stack([before["x"], before["y"]]))
        places = places @ (one @ other)
    across, up = np.round(places, _MAP_DECIMALS).T + 0.0
    return {
        "rows": rows.tolist(),
        "x": across.tolist(),
        "y": up.tolist(),
        "shares": shares.tolist(),
        "ids": [str(ids[row]) for row in rows],
    }


# ---------------------------------------------------------------------------------------------------------------------
# People: agreement with the others, strictness, answers at random, and time per answer.

_FEWEST_SHARED = 5  # answers, for a kappa

# The first answers of two people to the same question, as places in the answers of the task: names, answers, question.
_Shared = tuple[str, str, int, int, int]


def _shared_answers(answers: RecordedAnswers, task: Task) -> list[_Shared]:
    """The answers of each two people to the same question, as they were first given."""
    by_question: dict[int, list[tuple[str, int]]] = {}
    codes = task.codes_of(answers.original).tolist()
    for question, name, code in zip(answers.question.tolist(), answers.annotator.tolist(), codes, strict=True):
        if code >= 0:
            by_question.setdefault(question, []).append((name, code))
    return [
        (first, second, one, other, question)
        for question, said in by_question.items()
        for (first, one), (second, other) in combinations(sorted(said), 2)
        if first != second
    ]


def _agreement_of_people(answers: RecordedAnswers, task: Task) -> dict[str, Any] | None:
    """Cohen's kappa of the answers of two people to the same question, over all such pairs of answers."""
    shared = _shared_answers(answers, task)
    found = _kappa(shared, len(task.answers))
    if found is None:
        return None
    n = len({question for *_, question in shared})
    kappa, low, high = found
    weights = " with quadratic weights" if task.kind is TaskKind.levels else ""
    reading = (
        f"Cohen's kappa{weights} is {kappa:.2f} (95% interval: {low:.2f} to {high:.2f}) on {n} questions that two or "
        "more people answered. 1 is perfect agreement and 0 is that of chance."
    )
    return {"kappa": kappa, "low": low, "high": high, "n": n, "reading": reading}


def _people(answers: RecordedAnswers, task: Task, learned: Learned | str) -> list[dict[str, Any]]:
    """One dict per annotator; only answers about pairs, which have a threshold, show strictness and give a verdict."""
    table = learned.learner.fit_.annotators if isinstance(learned, Learned) else None
    shared = _shared_answers(answers, task)
    names, said = answers.annotator, task.codes_of(answers.answer) >= 0
    found = []
    for name in [*task.annotators, *sorted(set(names.tolist()) - set(task.annotators))]:
        own = names == name
        both = [each for each in shared if name in each[:2]]
        kappa, low, high = _kappa(both, len(task.answers)) or (None, None, None)
        strictness, verdict = None, None
        if table is not None and name in table.names:
            strictness, verdict = float(table.strictness_of([name])[0]), table.verdict_of(name)
        seconds = answers.seconds[own & np.isfinite(answers.seconds)]
        found.append(
            {
                "name": name,
                "n": int(np.sum(own & said)),
                "seconds": float(np.median(seconds)) if len(seconds) else None,
                "kappa": kappa,
                "kappa_low": low,
                "kappa_high": high,
                "n_shared": len(both),
                "strictness": strictness,
                "verdict": None if verdict is None else str(verdict),
            }
        )
    return found


def _kappa(shared: Sequence[_Shared], n_answers: int) -> tuple[float, float, float] | None:
    """Cohen's kappa with quadratic weights, and its 95% interval; None if no disagreement is expected by chance.

    Of more than two people, what is expected by chance is that of each two of them.  The interval is that of the
    disagreement: Wilson's, for as many answers as give a share the variance of the disagreement.  So it has a width
    even where all answers agree.
    """
    n, widest = len(shared), float((n_answers - 1) ** 2)
    if n < _FEWEST_SHARED:
        return None
    people, codes = [each[:2] for each in shared], np.array([each[2:4] for each in shared], dtype=np.float64)
    by_chance = 0.0
    for two in set(people):
        ones, others = codes[[each == two for each in people]].T
        by_chance += len(ones) * (ones.var() + others.var() + (ones.mean() - others.mean()) ** 2) / widest / n
    if by_chance <= 0.0:
        return None
    differences = (codes[:, 0] - codes[:, 1]) ** 2 / widest
    share, variance = float(differences.mean()), float(differences.var())
    low, high = wilson(share, n * share * (1.0 - share) / variance if variance > 0.0 else n)
    return 1.0 - share / by_chance, 1.0 - high / by_chance, 1.0 - low / by_chance


# ---------------------------------------------------------------------------------------------------------------------
# A process for fits, which it begins whenever there are enough new answers.

# A fit follows after this many new events, or this share of them, so that there are few fits to many answers; or after
# this many seconds, if there are fewer events.
_FEWEST_NEW, _SHARE_NEW, _LONGEST_WAIT = 5, 0.05, 10.0

_PAUSE = 2.0  # seconds until a process that died is started again

_NICENESS = 10  # half of that of the least important processes: answers come first

# How many questions are chosen: at least the first number, this many for each annotator, and at most the last number;
# in between, twice as many as were answered during the last fit.
_FEWEST_CHOSEN, _CHOSEN_PER_PERSON, _MOST_CHOSEN = 20, 3, 200

_CANDIDATES = 20_000  # questions, drawn at random, among which are chosen: 100 times the most that are

Found = tuple[dict[str, Any], list[tuple[int, ...]], int]


@dataclass(frozen=True, eq=False)
class Work:
    """What to fit.

    Attributes
    ----------
    path : Path
        The file of judgements.
    features : array of shape (n_points, d)
    feature_names : tuple of str
    task : Task
    previous : dict, optional
        The findings before these, whose map is not to jump.
    """

    path: Path
    features: FloatArray
    feature_names: tuple[str, ...]
    task: Task
    previous: dict[str, Any] | None = None


class FittingProcess:
    """Fits in a process of its own that ends with this one, and that is started again if it dies.

    Parameters
    ----------
    work : Work
        The file of judgements, the points and the task.
    on_findings : function
        Called in a thread after each fit, with the findings, the next questions (rows of points) and the number of
        events that they rest on.
    """

    def __init__(self, work: Work, on_findings: Callable[[dict[str, Any], list[tuple[int, ...]], int], None]) -> None:
        self._work = work
        self._on_findings = on_findings
        self._process: Any = None
        self._n_events, self._n_fitted = 0, 0
        self._news = threading.Condition()  # of events, and of the end
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="closefar findings", daemon=True)

    def start(self) -> None:
        """Start the process; it fits once it is notified of enough events."""
        self._thread.start()

    def notify(self, n_events: int) -> None:
        """Say how many events the file has; this returns at once, and may be called from any thread."""
        with self._news:
            self._n_events = n_events
            self._news.notify_all()

    def close(self) -> None:
        """End the process, also in the middle of a fit."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
            if self._process is not None:
                self._process.kill()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        """Start processes, one after the other, until closed."""
        previous = self._work.previous
        while not self._is_closing:
            with contextlib.suppress(EOFError, OSError), self._started() as connection:
                while self._wait_for_events():
                    connection.send((previous, self._n_fitted))
                    found = connection.recv()
                    if found is None:  # the file can't be read at the moment
                        self._is_closed_within(_LONGEST_WAIT)
                        continue
                    previous, self._n_fitted = found[0], found[2]
                    try:
                        self._on_findings(*found)
                    except Exception:
                        _LOG.exception("The findings after %d events could not be handed on.", found[2])
            if not self._is_closed_within(_PAUSE):  # otherwise it was ended together with the server
                _LOG.warning("The fitting process has ended; another one is started.")

    @contextlib.contextmanager
    def _started(self) -> Iterator[Connection[Any, Any]]:
        """A process, and the connection to it."""
        context = multiprocessing.get_context("spawn")
        own, its = context.Pipe()
        process = context.Process(target=_work_until_closed, args=(its, self._work), daemon=True, name="closefar fit")
        with own:
            with its, _interrupts_blocked():  # closed here, so that only the process holds that end
                process.start()
            with self._news:
                self._process = process
            try:
                yield own
            finally:
                with self._news:
                    self._process = None
                process.kill()
                process.join()
                process.close()

    def _wait_for_events(self) -> bool:
        """Wait until there are enough new events, or any that have waited for long; False if it is time to end."""
        enough = self._n_fitted + max(_FEWEST_NEW, _SHARE_NEW * self._n_fitted)
        with self._news:
            self._news.wait_for(lambda: self._is_closing or self._n_events > self._n_fitted)
            self._news.wait_for(lambda: self._is_closing or self._n_events >= enough, _LONGEST_WAIT)
            return not self._is_closing

    def _is_closed_within(self, seconds: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._is_closing, seconds)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep an interrupt of the terminal from a process that is started here: it is for the server."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # its own start would let them through again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# ---------------------------------------------------------------------------------------------------------------------
# In the process: fits, and the next questions.


def _work_until_closed(connection: Connection[Any, Any], work: Work) -> None:
    """Fit whenever the other end of the connection asks for it, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the server, which then ends this process
    if sys.platform != "win32":
        os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError), threads_at_most(1):
        while True:
            connection.send(fit_answers(work, *connection.recv()))


def _end_with_parent() -> None:
    """End in the middle of a fit, too, once the server is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def fit_answers(work: Work, previous: dict[str, Any] | None, n_before: int) -> Found | None:
    """The findings on the answers that the file has now, the next questions, and the number of events.

    None if the file can't be read at the moment.  No exception ends the process: the findings then say that it failed.
    """
    try:
        answers = read_recorded(work.path)
    except TableError:
        _LOG.exception("The answers could not be read.")
        return None
    questions: list[tuple[int, ...]] = []
    try:
        given = Given.of(answers, work.features, work.task)
        learned = learned_from(given, work.task)
        body = findings(answers, given, learned, work.feature_names, work.task, previous)
        if isinstance(learned, Learned):  # enough until the next fit is done, if answers come as quickly as lately
            n_new = min(2 * (answers.n_events - n_before), _MOST_CHOSEN)
            n = max(_FEWEST_CHOSEN, _CHOSEN_PER_PERSON * len(work.task.annotators), n_new)
            questions = next_questions(answers, work.features, work.task, n, seed=answers.n_events)
    except Exception as error:
        _LOG.exception("The fit after %d events failed.", answers.n_events)
        body = nothing_found(work.task, f"The last fit failed ({type(error).__name__}: {error}). Judging goes on.")
    return body, questions, answers.n_events


def next_questions(
    answers: RecordedAnswers, features: FloatArray, task: Task, n: int, seed: int, n_candidates: int = _CANDIDATES
) -> list[tuple[int, ...]]:
    """Choose `n` questions that were not asked before, best first, by a fit to the answers that may guide the choice.

    There are none if these answers teach nothing yet, nor if questions are not chosen but drawn at random.
    """
    if task.method == "random":
        return []
    learned = learn(Given.of(answers, features, task, guides_choice(answers, task)), task)
    if learned is None:
        return []
    candidates = draw_questions(len(features), answers.things, task, n_candidates, np.random.default_rng(seed))
    if len(candidates) > n:
        tuples = cf.Tuples(features, candidates)
        candidates = candidates[cf.choose_pairs(learned.learner, tuples, n, method=task.method, random_state=seed)]
    return [tuple(question) for question in candidates.tolist()]


def draw_questions(n_points: int, asked: IndexArray, task: Task, n: int, rng: np.random.Generator) -> IndexArray:
    """Draw up to `n` different questions at random that were not asked before, each about different things."""
    k = task.n_things
    drawn = rng.integers(n_points, size=(n, k))
    drawn = drawn[np.all(np.diff(np.sort(drawn, axis=1), axis=1) > 0, axis=1)]
    everything = np.concatenate([asked.reshape(-1, k), drawn])
    _, first = np.unique(same_side(everything), axis=0, return_index=True)
    return np.asarray(everything[np.sort(first[first >= len(asked)])], dtype=np.intp)
