"""The metric of a labelling session: a quick fit to the answers so far, and what it expects to be answered."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner, Tuples
from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.label.task import Task, TaskKind
from closefar.learners import MetricLearner
from closefar.model import Metric
from closefar.tables import RecordedAnswers

__all__ = ["Given", "Learned", "describe_learner", "learn", "learn_unpenalised", "relearn", "tuples_of"]

# A metric for a page that is renewed every few answers: proven to this gap, and not computed for longer than this.
_TOLERANCE, _TOLERANCE_OF_PLANS = 1e-4, 1e-6
_SECONDS = 20.0

# People slip, whatever the distance.  Where they do, a fit that knows it needs far fewer answers; where they do not, it
# hardly needs more.  With several people, whose strictness is fitted, it would take too long.
_SLIPS = 0.05


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
    """Fit a metric to the answers; None if all are the same, so that there is nothing to tell apart."""
    return _fitted(given, task, {"alpha": "auto", "flip_rate": _slips(given, task)})


def learn_unpenalised(given: Given, task: Task) -> Learned | None:
    """Fit by maximum likelihood, without telling people apart, as a projection of sample sizes needs it."""
    alike = replace(given, who=np.full(len(given), "", dtype=object))
    return _fitted(alike, task, {"alpha": 0.0, "tol": _TOLERANCE_OF_PLANS})


def relearn(learned: Learned, given: Given, task: Task) -> Learned | None:
    """Fit to some of the answers with the penalty and the width of strictness that were chosen for all of them."""
    learner = learned.learner
    chosen: dict[str, Any] = {
        "alpha": learner.alpha_,
        "alpha_scale": learner.fit_.alpha_scale,
        "flip_rate": learner.flip_rate_,
    }
    if learner.fit_.annotators is not None and given.has_several_people:
        chosen["strictness_width"] = learner.fit_.annotators.width
    return _fitted(given, task, chosen)


def _fitted(given: Given, task: Task, settings: dict[str, Any]) -> Learned | None:
    known = np.unique(given.codes)
    settings = {"tol": _TOLERANCE, "max_time": _SECONDS, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a fit to few answers leaves open is said by the findings
        if task.kind is TaskKind.triplets:
            given = given.at(_differ(given))
            if not len(given):
                return None
            compared = ComparisonMetricLearner(**settings).fit(given.tuples, np.where(given.codes == 0, 1, -1))
            return Learned(compared, np.array([1, 0]), 2)
        if len(known) < 2:
            return None
        learner = (
            LinearMetricLearner(far_label=1, **settings)
            if task.kind is TaskKind.pairs
            else OrdinalMetricLearner(known.tolist(), **settings)
        )
        who = given.who if given.has_several_people else None
        return Learned(learner.fit(given.tuples, given.codes, annotators=who), known, len(task.answers))


def _differ(given: Given) -> BoolArray:
    """Which triplets can teach something: not those whose two things are equally far from the first in any metric."""
    reference, left, right = (given.features[given.index[:, k]] for k in range(3))
    found: BoolArray = np.any(left != right, axis=1) & np.any(left - reference != reference - right, axis=1)
    return found


def _slips(given: Given, task: Task) -> float:
    return 0.0 if given.has_several_people and task.kind is not TaskKind.triplets else _SLIPS


def describe_learner(given: Given, task: Task) -> str:
    """How to get the same metric in Python, from judgements that were exported."""
    slips = _slips(given, task)
    options = 'alpha="auto"' + (f", flip_rate={slips:g}" if slips else "")
    people = "" if slips else ", annotators=annotators"
    names = {
        TaskKind.pairs: f"cf.LinearMetricLearner({options}).fit(pairs, labels{people})",
        TaskKind.levels: f"cf.OrdinalMetricLearner(levels, {options}).fit(pairs, labels{people})",
        TaskKind.triplets: f"cf.ComparisonMetricLearner({options}).fit(triplets, answers)",
    }
    return names[task.kind]
