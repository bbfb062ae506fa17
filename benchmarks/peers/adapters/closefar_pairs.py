"""closefar on pairs with close/far labels."""

from __future__ import annotations

import closefar as cf
from peers.worker import Learned, Train


def warm_up() -> None:
    """Import what the first fit imports."""
    pairs, labels, *_ = cf.datasets.make_pairs(100, 3, random_state=0)
    cf.LinearMetricLearner().fit(pairs, labels)


def closefar(train: Train) -> Learned:
    """One setting for all lines."""
    learner = cf.LinearMetricLearner(alpha="auto").fit(train["pairs"], train["labels"])
    return Learned(
        metric=learner.metric_.matrix,
        threshold=learner.metric_.known_threshold,
        probability=lambda pairs: learner.predict_proba(pairs)[:, 1],
        claim=f"proven gap {learner.certificate_.gap:.0e}",
    )


PEERS = {"closefar": closefar}
