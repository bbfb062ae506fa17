"""closefar on points with classes: it learns from pairs of them."""

from __future__ import annotations

import numpy as np

import closefar as cf
from peers.worker import Learned, Train


def warm_up() -> None:
    """Import what the first fit imports."""
    pairs, labels, *_ = cf.datasets.make_pairs(100, 3, random_state=0)
    cf.LinearMetricLearner().fit(pairs, labels)


def default(train: Train) -> Learned:
    """One setting for all tables, and columns in their own units."""
    return _learned(cf.LinearMetricLearnerCV().fit(train["pairs"], train["labels"]))


def low_rank(train: Train) -> Learned:
    """A metric of low rank, as FLRML learns one: as many directions as separate the classes."""
    rank = max(len(np.unique(train["classes"])) - 1, 2)
    return _learned(cf.LinearMetricLearner(rank=rank, alpha="auto").fit(train["pairs"], train["labels"]))


def regularised(train: Train) -> Learned:
    """Empirical risk with a penalty on M, as Jin et al. (2009) minimise it, with a fixed weight of 1 / sqrt(pairs)."""
    alpha = 1.0 / np.sqrt(len(train["labels"]))
    return _learned(cf.LinearMetricLearner(alpha=alpha).fit(train["pairs"], train["labels"]))


def _learned(learner: cf.LinearMetricLearner) -> Learned:
    return Learned(metric=learner.metric_.matrix, claim=f"proven gap {learner.certificate_.gap:.0e}")


PEERS = {
    "closefar": default,
    "closefar, low rank (as FLRML)": low_rank,
    "closefar, fixed alpha (as Jin et al. 2009)": regularised,
}
