"""The metric of a labelling session: that of the default learner, and what it expects to be answered."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner, Tuples
from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.fitting import refit_part
from closefar.label.task import Task, TaskKind
from closefar.learners import MetricLearner
from closefar.model import Metric
from closefar.tables import RecordedAnswers

# No fit may take longer, as the page is renewed every few answers.  Hardly any does: 1,000 answers about 30 columns
# take about a second.
_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Given:
    """The answers to learn from: those that are not can't say.

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
        """Select the answers that are not can't say; of those only the ones that are `used`."""
        place = {answer: code for code, answer in enumerate(task.answers)}
        codes = np.array([place.get(answer, -1) for answer in answers.answer], dtype=np.intp)
        said = (codes >= 0) & used
        who, questions = np.asarray(answers.annotator, dtype=object), np.asarray(answers.question, dtype=np.intp)
        return cls(features, tuples_of(answers)[said], codes[said], who[said], questions[said])

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, rows: NDArray[Any]) -> Given:
        """Return some of the answers."""
        return Given(self.features, self.index[rows], self.codes[rows], self.who[rows], self.questions[rows])

    @property
    def tuples(self) -> Tuples:
        return Tuples(self.features, self.index)

    @property
    def has_several_people(self) -> bool:
        return len(set(self.who.tolist())) > 1


@dataclass(frozen=True, eq=False)
class Learned:
    """A fitted learner, and the answers of the task that it knows, as places, in the order of its classes."""

    learner: MetricLearner
    known: IndexArray
    n_answers: int

    @property
    def metric(self) -> Metric:
        return self.learner.metric_

    def probabilities(self, tuples: Tuples) -> FloatArray:
        """The probability of each answer of the task to each question, given by a typical annotator."""
        found = np.zeros((len(tuples), self.n_answers))
        found[:, self.known] = self.learner.predict_proba(tuples)
        return found

    def expected(self, tuples: Tuples) -> IndexArray:
        """The answer that the metric gives to each question, as its place in the answers of the task."""
        classes = self.learner.classes_.tolist()
        place = dict(zip(classes, self.known.tolist(), strict=True))
        return np.array([place[label] for label in self.learner.predict(tuples).tolist()], dtype=np.intp)


def tuples_of(answers: RecordedAnswers) -> IndexArray:
    """The rows of the points of each question, (n, 2) or (n, 3)."""
    sides = [answers.first, answers.second, *(() if answers.third is None else (answers.third,))]
    return np.column_stack([np.asarray(side, dtype=np.intp) for side in sides])


def learn(given: Given, task: Task) -> Learned | None:
    """Fit a metric to the answers, as `describe_learner` has it; None if all are the same."""
    return _fitted(given, task)


def learn_unpenalised(given: Given, task: Task) -> Learned | None:
    """Fit by maximum likelihood, without telling people apart, as a projection of sample sizes needs it."""
    alike = replace(given, who=np.full(len(given), "", dtype=object))
    return _fitted(alike, task, alpha=0.0, flip_rate=0.0)


def relearn(learned: Learned, given: Given, task: Task) -> Learned | None:
    """Fit to some of the answers with the settings that were chosen for all of them."""
    return _fitted(given, task, learned)


def learn_threshold(metric: Metric, given: Given, task: Task) -> Callable[[IndexArray], IndexArray]:
    """Fit thresholds alone, of a known distance, and return the answers that it then expects to questions.

    With its scale and its thresholds free, a known distance is a metric of one column.
    """
    if task.kind is TaskKind.triplets:
        return lambda index: (metric.measure(Tuples(given.features, index)) < 0.0).astype(np.intp)
    codes, squared = given.codes, metric.measure(given.tuples)
    most_frequent = int(np.argmax(np.bincount(codes))) if len(codes) else 0
    if len(np.unique(codes)) < 2 or not np.ptp(squared) > 0.0:
        return lambda index: np.full(len(index), most_frequent)
    known = np.unique(codes)
    learner = OrdinalMetricLearner(known.tolist(), alpha=0.0, flip_rate=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(np.sqrt(squared)[:, None], codes)

    def expected(index: IndexArray) -> IndexArray:
        lengths = np.sqrt(metric.measure(Tuples(given.features, index)))
        return np.asarray(learner.predict(lengths[:, None]), dtype=np.intp)

    return expected


def _fitted(given: Given, task: Task, chosen: Learned | None = None, **settings: Any) -> Learned | None:
    """Fit with these settings of the learner, or with those that were chosen for another fit."""
    known = np.unique(given.codes)
    learner: LinearMetricLearner | OrdinalMetricLearner | ComparisonMetricLearner
    if task.kind is TaskKind.triplets:
        given, known = given.at(_differ(given)), np.array([1, 0])
        answers, learner = np.where(given.codes == 0, 1, -1), ComparisonMetricLearner(**settings)
    elif task.kind is TaskKind.pairs:
        answers, learner = given.codes, LinearMetricLearner(far_label=1, **settings)
    else:
        answers, learner = given.codes, OrdinalMetricLearner(known.tolist(), **settings)
    if len(given) == 0 or len(known) < 2:
        return None
    has_strictness = given.has_several_people and task.kind is not TaskKind.triplets
    people: dict[str, Any] = {"annotators": given.who} if has_strictness else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a fit to few answers leaves open is said by the findings
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


def describe_learner(given: Given, task: Task) -> str:
    """How to get the same metric in Python, from judgements that were exported."""
    people = ", annotators=annotators" if given.has_several_people else ""
    names = {
        TaskKind.pairs: f"cf.LinearMetricLearner().fit(pairs, labels{people})",
        TaskKind.levels: f"cf.OrdinalMetricLearner(levels).fit(pairs, labels{people})",
        TaskKind.triplets: "cf.ComparisonMetricLearner().fit(triplets, answers)",
    }
    return names[task.kind]
