"""The metric of a labelling session: that of the default learner, what it expects, and which answers measure it.

Questions that are chosen by a metric say what that metric says: they lie where it is uncertain, so that a fit to them
finds it again, with every answer that it was fitted to.  A random question that guided the choice would then be
predicted too well even by fits without it.  So the first random answers, with which choosing begins, measure nothing,
and the later ones guide nothing; the metric itself is fitted to all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner, Tuples
from closefar.arrays import BoolArray, FloatArray, IndexArray
from closefar.fitting import refit_part
from closefar.label.task import Purpose, Task, TaskKind
from closefar.learners import MetricLearner
from closefar.model import Metric
from closefar.tables import RecordedAnswers

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
        place = {answer: code for code, answer in enumerate(task.answers)}
        codes = np.array([place.get(answer, -1) for answer in answers.answer], dtype=np.intp)
        every = cls(features, tuples_of(answers), codes, answers.annotator, answers.question)
        return every.at((codes >= 0) & used)

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


def learn(given: Given, task: Task, chosen: Learned | None = None, **settings: Any) -> Learned | None:
    """Fit a metric to the answers, as `describe_learner` has it; None if all are the same.

    The learner has these settings, or those that were chosen for another fit, such as one to more of the answers.
    """
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
    learner = OrdinalMetricLearner(np.unique(codes).tolist(), alpha=0.0, flip_rate=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(np.sqrt(squared)[:, None], codes)

    def expected(index: IndexArray) -> IndexArray:
        lengths = np.sqrt(metric.measure(Tuples(given.features, index)))
        return np.asarray(learner.predict(lengths[:, None]), dtype=np.intp)

    return expected


def describe_learner(given: Given, task: Task) -> str:
    """How to get the same metric in Python, from judgements that were exported."""
    people = ", annotators=annotators" if given.has_several_people else ""
    names = {
        TaskKind.pairs: f"cf.LinearMetricLearner().fit(pairs, labels{people})",
        TaskKind.levels: f"cf.OrdinalMetricLearner(levels).fit(pairs, labels{people})",
        TaskKind.triplets: "cf.ComparisonMetricLearner().fit(triplets, answers)",
    }
    return names[task.kind]


# ---------------------------------------------------------------------------------------------------------------------
# Answers to questions that a metric was not fitted to.


def held_out(
    learned: Learned, given: Given, task: Task, asked: IndexArray, n_folds: int
) -> tuple[FloatArray, IndexArray]:
    """The probability of each answer to the questions `asked`, and the one that is expected, by cross-validation.

    Each is by a fit to all answers but those to the questions of its fold; questions that are not asked about here are
    in every fit.
    """
    probabilities, expected = np.zeros((len(asked), learned.n_answers)), np.zeros(len(asked), dtype=np.intp)
    for left_out, rest in _folds(given, asked, n_folds):
        fitted = learn(rest, task, learned)
        if fitted is None:  # all other answers are the same
            code = int(rest.codes[0]) if len(rest) else 0
            probabilities[left_out], expected[left_out] = np.eye(learned.n_answers)[code], code
        else:
            tuples = Tuples(given.features, asked[left_out])
            probabilities[left_out], expected[left_out] = fitted.probabilities(tuples), fitted.expected(tuples)
    return probabilities, expected


def held_out_plain(learned: Learned, given: Given, task: Task, asked: IndexArray, n_folds: int) -> IndexArray | None:
    """The answers expected by the plain distance, with thresholds fitted likewise; None if it is not known."""
    baseline = learned.learner.fit_.baseline
    if baseline is None or baseline.metric is None:
        return None
    expected = np.zeros(len(asked), dtype=np.intp)
    for left_out, rest in _folds(given, asked, n_folds):
        expected[left_out] = learn_threshold(baseline.metric, rest, task)(asked[left_out])
    return expected


def _folds(given: Given, asked: IndexArray, n_folds: int) -> Iterator[tuple[BoolArray, Given]]:
    """Which of the questions asked about are in each fold, and the answers given to the questions that are not.

    Equal questions share a fold.  They take turns in the order in which they are given, so that a question keeps its
    fold as more come, and what is shown of it does not jump.
    """
    numbers = np.unique(same_side(np.concatenate([asked, given.index])), axis=0, return_inverse=True)[1].ravel()
    distinct, first = np.unique(numbers[: len(asked)], return_index=True)
    turn = np.full(int(numbers.max(initial=-1)) + 1, -1)
    turn[distinct[np.argsort(first)]] = np.arange(len(distinct)) % n_folds
    for fold in range(min(n_folds, len(distinct))):
        is_in = turn[numbers] == fold
        yield is_in[: len(asked)], given.at(~is_in[len(asked) :])


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
    is_measure: BoolArray = _counts(answers) & ~guides_choice(answers, task)
    return is_measure


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
