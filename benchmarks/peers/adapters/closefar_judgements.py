"""closefar on comparisons, levels, wrong labels and judgements of several annotators."""

from __future__ import annotations

import numpy as np

import closefar as cf
from peers.worker import Learned, NotApplicableError, Train, factor_of


def warm_up() -> None:
    """Import what the first fit imports."""
    data = cf.datasets.make_judgements(200, 3, kind="triplets", random_state=0)
    cf.ComparisonMetricLearner().fit(data.tuples, data.labels)


def closefar(train: Train) -> Learned:
    """One setting for all lines of a work."""
    if "levels" in train:
        return _levels(train)
    if "annotators" in train:
        return _annotators(train)
    return _comparisons(train) if "answers" in train else _wrong_labels(train)


def _comparisons(train: Train) -> Learned:
    comparisons = cf.Tuples(train["points"], train["index"])
    learner = cf.ComparisonMetricLearner(alpha="auto", flip_rate="estimate").fit(comparisons, train["answers"])
    return Learned(
        metric=learner.metric_.matrix,
        answers={"turned_share": np.asarray(learner.flip_rate_)},
        claim=f"proven gap {learner.certificate_.gap:.0e}",
    )


def on_objects(train: Train) -> Learned:
    """A column for each object: M is the matrix of inner products of their places, of the rank that is chosen."""
    index, answers, n = train["index"], train["answers"], len(train["points"])
    if index.size == n:
        raise NotApplicableError("Each point is compared once only, so that nothing is known of its place.")
    objects = cf.Tuples(np.eye(n), index)
    # Each answer is a group of its own: an object that no fold has seen has no place.
    choice = cf.choose_rank(cf.ComparisonMetricLearner(alpha="auto"), objects, answers, groups=np.arange(len(answers)))
    learner = cf.ComparisonMetricLearner(rank=choice.rank, alpha="auto").fit(objects, answers)
    note = f"{choice.rank} dimension{'s' if choice.rank > 1 else ''}"
    return Learned(answers={"embedding": factor_of(learner.metric_.matrix)}, note=note)


def _levels(train: Train) -> Learned:
    learner = cf.OrdinalMetricLearner(alpha="auto", flip_rate="estimate").fit(train["pairs"], train["levels"])
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
    learner = cf.LinearMetricLearner(flip_rate="estimate")
    learner.fit(train["pairs"], train["labels"], annotators=train["annotators"])
    table = learner.annotators_
    named = np.isin(np.arange(int(train["annotators"].max()) + 1), table.named("answers at random"))
    return Learned(metric=learner.metric_.matrix, threshold=learner.metric_.known_threshold, answers={"named": named})


def pooled(train: Train) -> Learned:
    """All judgements together, as if one person had made them."""
    learner = cf.LinearMetricLearner(flip_rate="estimate").fit(train["pairs"], train["labels"])
    return Learned(metric=learner.metric_.matrix, threshold=learner.metric_.known_threshold)


PEERS = {
    "closefar": closefar,
    "closefar, a column for each object": on_objects,
    "closefar, annotators pooled": pooled,
}
