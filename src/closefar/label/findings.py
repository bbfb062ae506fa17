"""What the answers so far show: how good the metric is, what it weighs, who agrees, and what to look at again."""

from __future__ import annotations

import json
import math
import sqlite3
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar import plan_sample_size
from closefar.arrays import BoolArray, FloatArray
from closefar.fitting import AnnotatorVerdict
from closefar.label.metric import (
    Given,
    Learned,
    describe_learner,
    held_out,
    held_out_plain,
    learn,
    measures_quality,
    tuples_of,
)
from closefar.label.task import Task, TaskKind
from closefar.model import Metric, loadings
from closefar.plain import to_jsonable
from closefar.questions import wilson
from closefar.tables import RecordedAnswers

_FEWEST_TO_LEARN = 20  # answers, which take a minute or two
_DIRECTIONS, _WEIGHTS = 10, 5  # that the overview has room for: directions, and weights of each


class LatestFindings:
    """The latest findings of the fitting process, and the learning curve of all of them.

    Parameters
    ----------
    at_first : dict
        What is shown before there are any.
    """

    def __init__(self, at_first: dict[str, Any]) -> None:
        self.body = at_first
        self._curve: list[dict[str, Any]] = []

    def read(self, connection: sqlite3.Connection) -> None:
        """Go on from the findings that are in the file."""
        for (body,) in connection.execute("SELECT body FROM findings ORDER BY id"):
            self.publish(json.loads(body))

    def publish(self, body: dict[str, Any]) -> None:
        """Show new findings."""
        quality = body.get("quality")
        if quality is not None:
            point = {"n": body.get("n_answers"), **{name: quality.get(name) for name in ("agreement", "low", "high")}}
            self._curve = [*self._curve, point]
        self.body = body

    def shown_to(self, name: str, *, is_owner: bool) -> dict[str, Any]:
        """All findings for the owner; for others, what concerns their own answers."""
        if is_owner:
            return {**self.body, "curve": self._curve}
        return {"status": self.body.get("status", ""), "doubtful": self.doubtful_of(name)}

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
        annotators=_people(answers, task, None, None),
        kappa=_agreement_of_people(answers, task) if task.is_shared else None,
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
        "plan": _no_projection(task, "There is no projection yet: no metric has been learned."),
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
    measured = quality(answers, given, learned, task)
    reason = _no_doubts(measured)
    doubts, agrees = [], None
    if not reason or (task.kind is TaskKind.triplets and task.is_shared):  # fits that take a while
        probabilities, _ = held_out(learned, given, task, given.index, _FOLDS_OF_DOUBTS)
        agrees = np.argmax(probabilities, axis=1) == given.codes
        doubts = [] if reason else doubtful(given, probabilities, task, answers.ids)
    return {
        "status": _status(learned),
        "quality": measured,
        "plan": _projected(given, task),
        "directions": _directions(learned.metric, given.features, feature_names),
        "doubtful": doubts,
        "no_doubts": reason or ("" if doubts else "No answer contradicts the metric so far."),
        "map": _map(learned.metric, given.features, answers.ids, previous),
        "annotators": _people(answers, task, learned, agrees),
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

_FEWEST_MEASURED = (
    12  # random questions; with fewer, the interval of an agreement of 50% is wider than half of the scale
)
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

    Beside it are that of the most frequent answer, `baseline`, and that of the plain distance with a fitted threshold,
    `plain`, on the same questions.
    """
    counts = measures_quality(answers, task)
    n = int(counts.sum())
    if n < _FEWEST_MEASURED:
        return None
    place = {answer: code for code, answer in enumerate(task.answers)}
    said = np.array([place[answer] for answer in answers.original[counts]], dtype=np.intp)
    asked = tuples_of(answers)[counts]
    is_right = held_out(learned, given, task, asked, _FOLDS_OF_QUALITY)[1] == said
    n_right = int(np.sum(is_right))
    low, high = agreement_interval(n_right, n)
    agreement, baseline = n_right / n, float(np.bincount(said).max()) / n
    by_plain = held_out_plain(learned, given, task, asked, _FOLDS_OF_QUALITY)
    compared = "." if low > baseline else ", so it is not clear yet whether the metric is better."
    reading = (
        f"The metric agrees with about {agreement:.0%} of new answers to random questions (95% interval: {low:.0%} to "
        f"{high:.0%}). This is measured on {n} random questions, each by a fit that has not seen it. "
        f"Always giving the most frequent answer would agree with {baseline:.0%}{compared}"
    )
    if by_plain is not None:
        reading += f" {_compared_with_plain(is_right, by_plain == said)}"
    return {
        "agreement": agreement,
        "low": low,
        "high": high,
        "baseline": baseline,
        "plain": None if by_plain is None else float(np.mean(by_plain == said)),
        "n": n,
        "reading": reading,
    }


def _compared_with_plain(is_right: BoolArray, plain_is_right: BoolArray) -> str:
    """By questions that one of them gets right and the other does not, as in McNemar's test."""
    gained, lost = int(np.sum(is_right & ~plain_is_right)), int(np.sum(plain_is_right & ~is_right))
    told = f"The plain distance with a fitted threshold agrees with {np.mean(plain_is_right):.0%}"
    if gained <= lost:
        return f"{told}: the learned metric is not better so far."
    if gained - lost <= 2.0 * (gained + lost) ** 0.5:
        return f"{told}, so it is not clear yet whether the learned metric is better."
    return f"{told}."


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
_UNCERTAIN_NEEDED = 1.0  # uncertain answers per parameter, below which there is no projection
_PILOT_MARGIN = 1.5  # by which the number of answers for a projection is guessed too high rather than too low


def _projected(given: Given, task: Task) -> dict[str, Any]:
    """The number of answers at which the expected error of the metric is the target, or why there is none yet."""
    d = given.features.shape[1]
    if d > _WIDEST_PROJECTED:
        return _no_projection(task, f"Projections are made for at most {_WIDEST_PROJECTED} columns; there are {d}.")
    if len(given) <= d:
        return _no_projection(task, f"There is no projection yet: it needs more answers than columns ({d}).")
    one_person = replace(given, who=np.full(len(given), "", dtype=object))
    pilot = learn(one_person, task, alpha=0.0, flip_rate=0.0)  # maximum likelihood, as sample sizes need it
    if pilot is None or pilot.learner.fit_.is_separable or not pilot.learner.certificate_.converged:
        return _no_projection(
            task,
            "There is no projection yet: some metric explains all answers without exception, so that nothing tells "
            "how uncertain it is. A few more answers will change that.",
        )
    statistics = pilot.learner.fit_statistics_
    if statistics.uncertain_per_parameter < _UNCERTAIN_NEEDED:
        needed = _PILOT_MARGIN * len(given) * _UNCERTAIN_NEEDED / max(statistics.uncertain_per_parameter, 0.1)
        return _no_projection(
            task,
            f"There is no projection yet: {len(given)} answers are few for the {statistics.n_parameters} parameters "
            f"of the metric. With about {math.ceil(needed)} answers there will be one.",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = plan_sample_size(pilot.learner, target_error=task.target_error, measure="spectral")
    except ValueError:  # the other requirements of a pilot, all of which more answers meet
        return _no_projection(task, "There is no projection yet: it needs more answers.")
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
    left, lengths, _ = np.linalg.svd(mapped, full_matrices=False)
    n_kept = min(2, len(lengths))
    shares, places = np.zeros(2), np.zeros((len(rows), 2))
    shares[:n_kept] = (lengths**2 / np.sum(lengths**2))[:n_kept]
    places[:, :n_kept] = (left * lengths)[:, :n_kept]
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

_FEWEST_OF_PERSON = 20  # answers to triplets, for a verdict, as in the annotator model of pairs
_FEWEST_SHARED = 5  # answers, for a kappa
_BETTER_THAN_CHANCE = 0.6  # agreement with the metric that answers at random hardly reach

# The first answers of two people to the same question, as places in the answers of the task: names, answers, question.
_Shared = tuple[str, str, int, int, int]


def _shared_answers(answers: RecordedAnswers, task: Task) -> list[_Shared]:
    """The answers of each two people to the same question, as they were first given."""
    place = {answer: code for code, answer in enumerate(task.answers)}
    by_question: dict[int, list[tuple[str, int]]] = {}
    for question, name, answer in zip(answers.question, answers.annotator, answers.original, strict=True):
        if answer is not None:
            by_question.setdefault(int(question), []).append((str(name), place[answer]))
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


def _people(
    answers: RecordedAnswers, task: Task, learned: Learned | None, agrees: BoolArray | None
) -> list[dict[str, Any]]:
    """One dict per annotator; `agrees` says of each answer to a triplet whether a metric without it expects it."""
    table = None if learned is None else learned.learner.fit_.annotators
    shared = _shared_answers(answers, task)
    names = answers.annotator
    said = np.array([answer is not None for answer in answers.answer], dtype=bool)
    found = []
    for name in [*task.annotators, *sorted(set(names.tolist()) - set(task.annotators))]:
        own = names == name
        both = [each for each in shared if name in each[:2]]
        kappa, low, high = _kappa(both, len(task.answers)) or (None, None, None)
        strictness, verdict = None, None
        if table is not None and name in table.names:
            strictness, verdict = float(table.strictness_of([name])[0]), table.verdict_of(name)
        if task.kind is TaskKind.triplets and task.is_shared and agrees is not None:
            verdict = _verdict_on_triplets(agrees[own[said]])
        seconds = answers.seconds[own & np.isfinite(answers.seconds)]
        entry = {
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
        found.append({**entry, "reading": _person(entry)})
    return found


def _verdict_on_triplets(agrees: BoolArray) -> AnnotatorVerdict:
    """Whether somebody's answers agree with a metric that was learned without them; there is no strictness."""
    if len(agrees) < _FEWEST_OF_PERSON:
        return AnnotatorVerdict.TOO_FEW
    low, high = wilson(float(agrees.mean()), len(agrees))
    if high < 0.5:
        return AnnotatorVerdict.THE_OTHER_WAY_ROUND
    if low > 0.5:
        return AnnotatorVerdict.TYPICAL
    return AnnotatorVerdict.AT_RANDOM if high < _BETTER_THAN_CHANCE else AnnotatorVerdict.TOO_FEW


def _kappa(shared: Sequence[_Shared], n_answers: int) -> tuple[float, float, float] | None:
    """Cohen's kappa with quadratic weights, and its 95% interval; None if no disagreement is expected by chance.

    Of more than two people, what is expected by chance is that of each two of them.  The interval is that of the
    disagreement: Wilson's, for as many answers as give a share the variance of the disagreement.  So it has a width
    even where all answers agree.
    """
    n, widest = len(shared), float((n_answers - 1) ** 2)
    if n < _FEWEST_SHARED:
        return None
    by_people: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for first, second, one, other, _ in shared:
        by_people.setdefault((first, second), []).append((one, other))
    by_chance = 0.0
    for said in by_people.values():
        ones, others = np.array(said, dtype=np.float64).T
        by_chance += float(np.sum(np.mean((ones[:, None] - others[None, :]) ** 2, axis=0))) / widest / n
    if by_chance <= 0.0:
        return None
    differences = np.array([(one - other) ** 2 / widest for _, _, one, other, _ in shared])
    share, variance = float(differences.mean()), float(differences.var())
    low, high = wilson(share, n * share * (1.0 - share) / variance if variance > 0.0 else n)
    return 1.0 - share / by_chance, 1.0 - high / by_chance, 1.0 - low / by_chance


def _person(entry: dict[str, Any]) -> str:
    parts = [f"{entry['name']}: {entry['n']} answers"]
    if entry["seconds"] is not None:
        parts.append(f"{entry['seconds']:.1f} s per answer at the median")
    if entry["kappa"] is not None:
        parts.append(f"kappa {entry['kappa']:.2f} with the others on {entry['n_shared']} shared answers")
    if entry["verdict"] is not None:
        parts.append(entry["verdict"])
    return ", ".join(parts) + "."
