"""closefar on pairs with close/far labels."""

from __future__ import annotations

import closefar as cf
from peers.worker import Learned, Train


def warm_up() -> None:
    """Import what the first fit imports."""
    pairs, labels, *_ = cf.datasets.make_pairs(100, 3, random_state=0)
    closefar({"pairs": pairs, "labels": labels})


def closefar(train: Train) -> Learned:
    """The default on all lines: the penalty, what it shrinks to and flips are chosen on held-out pairs."""
    return _learned(cf.LinearMetricLearner().fit(train["pairs"], train["labels"]))


def plain(train: Train) -> Learned:
    """The paper's estimator: no penalty and no flips."""
    return _learned(cf.LinearMetricLearner(alpha=0.0, flip_rate=0.0).fit(train["pairs"], train["labels"]))


def _learned(learner: cf.LinearMetricLearner) -> Learned:
    return Learned(
        metric=learner.metric_.matrix,
        threshold=learner.metric_.known_threshold,
        probability=lambda pairs: learner.predict_proba(pairs)[:, 1],
        claim=f"proven gap {learner.certificate_.gap:.0e}",
        note="" if learner.certificate_.converged else str(learner.certificate_.outcome.value),
    )


PEERS = {"closefar": closefar, "closefar (paper's estimator)": plain}
