"""closefar on comparisons, levels, wrong labels and judgements of several annotators."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

import closefar as cf
from peers.worker import Learned, NotApplicableError, Train, factor_of


def warm_up() -> None:
    """Import what the first fit imports."""
    data = cf.datasets.make_judgements(200, 3, kind="triplets", random_state=0)
    cf.ComparisonMetricLearner().fit(data.tuples, data.labels)


def closefar(train: Train) -> Learned:
    """The default on all lines of a work."""
    if "levels" in train:
        return _levels(train)
    if "annotators" in train:
        return _annotators(train)
    return _comparisons(train) if "answers" in train else _wrong_labels(train)


def _comparisons(train: Train) -> Learned:
    """A metric of the columns; objects that recur have places if these agree better with held-out answers."""
    comparisons, answers = cf.Tuples(train["points"], train["index"]), train["answers"]
    learner = cf.ComparisonMetricLearner().fit(comparisons, answers)
    found = {"turned_share": np.asarray(learner.flip_rate_)}
    note = ""
    if _recur(train):
        objects = _objects(train)
        rank = _best_rank(train)
        rows = np.arange(len(answers)) % 5 > 0

        def agreement(other: cf.ComparisonMetricLearner, tuples: cf.Tuples) -> float:
            return float(_fit_places(other, tuples[rows], answers[rows]).score(tuples[~rows], answers[~rows]))

        by_place = cf.ComparisonMetricLearner(rank=rank)
        if agreement(by_place, objects) > agreement(clone(learner), comparisons):
            _fit_places(by_place, objects, answers)
            found = {"embedding": factor_of(by_place.metric_.matrix), "turned_share": np.asarray(0.0)}
            note = f"known objects by places in {_dimensions(rank)}"
    claim = f"proven gap {learner.certificate_.gap:.0e}"
    return Learned(metric=learner.metric_.matrix, answers=found, claim=claim, note=note)


def on_objects(train: Train) -> Learned:
    """A column for each object: M is the matrix of inner products of their places, of the rank that is chosen."""
    if not _recur(train):
        raise NotApplicableError("Each point is compared once only, so that nothing is known of its place.")
    rank = _best_rank(train)
    learner = _fit_places(cf.ComparisonMetricLearner(rank=rank), _objects(train), train["answers"])
    answers = {"embedding": factor_of(learner.metric_.matrix), "turned_share": np.asarray(0.0)}
    return Learned(answers=answers, note=_dimensions(rank))


def _recur(train: Train) -> bool:
    return train["index"].size > len(train["points"])


def _objects(train: Train) -> cf.Tuples:
    return cf.Tuples(np.eye(len(train["points"])), train["index"])


def _best_rank(train: Train) -> int:
    """The rank by cross-validation, with each answer a group of its own: unseen objects would have no place."""
    answers = train["answers"]
    learner = cf.ComparisonMetricLearner()
    return int(cf.choose_rank(learner, _objects(train), answers, groups=np.arange(len(answers))).rank)


def _fit_places(
    learner: cf.ComparisonMetricLearner, tuples: cf.Tuples, answers: np.ndarray
) -> cf.ComparisonMetricLearner:
    """Settings are chosen on answers, for the same reason."""
    return learner.fit(tuples, answers, groups=np.arange(len(answers)))


def _dimensions(rank: int) -> str:
    return f"{rank} dimension{'s' if rank > 1 else ''}"


def _levels(train: Train) -> Learned:
    learner = cf.OrdinalMetricLearner().fit(train["pairs"], train["levels"])
    return Learned(
        metric=learner.metric_.matrix,
        probability=learner.predict_proba,
        answers={"thresholds": learner.thresholds_},
        claim=f"proven gap {learner.certificate_.gap:.0e}",
    )


def _wrong_labels(train: Train) -> Learned:
    pairs = cf.Tuples(train["points"], train["index"])
    errors = cf.find_label_errors(cf.LinearMetricLearner(), pairs, train["labels"], random_state=0)
    suspicion = np.empty(len(errors.order))
    suspicion[errors.order] = np.arange(len(errors.order), 0, -1)
    return Learned(answers={"suspicion": suspicion})


def _annotators(train: Train) -> Learned:
    learner = cf.LinearMetricLearner(flip_rate="estimate")  # a rate for each annotator
    learner.fit(train["pairs"], train["labels"], annotators=train["annotators"])
    table = learner.annotators_
    named = np.isin(np.arange(int(train["annotators"].max()) + 1), table.named("answers at random"))
    return Learned(metric=learner.metric_.matrix, threshold=learner.metric_.known_threshold, answers={"named": named})


def pooled(train: Train) -> Learned:
    """All judgements together, as if one person had made them."""
    learner = cf.LinearMetricLearner().fit(train["pairs"], train["labels"])
    return Learned(metric=learner.metric_.matrix, threshold=learner.metric_.known_threshold)


PEERS = {"closefar": closefar, "closefar, a column for each object": on_objects, "closefar, annotators pooled": pooled}
