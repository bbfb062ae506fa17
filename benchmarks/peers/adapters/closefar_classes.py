"""closefar on points with classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import closefar as cf
from peers.worker import Learned, Train


def warm_up() -> None:
    """Import what the first fit imports."""
    points = np.random.default_rng(0).standard_normal((60, 3))
    cf.ClassMetricLearner().fit(points, points[:, 0] > 0)


def default(train: Train) -> Learned:
    """One setting for all tables, and columns in their own units: a metric for pairs, and one for neighbours."""
    learner = cf.ClassMetricLearner().fit(train["points"], train["classes"])
    learned = _learned(learner.pair_learner_)
    return replace(learned, transform=learner.transform)


def low_rank(train: Train) -> Learned:
    """A metric of low rank, as FLRML learns one: as many directions as separate the classes."""
    rank = max(len(np.unique(train["classes"])) - 1, 2)
    return _learned(cf.LinearMetricLearner(rank=rank).fit(train["pairs"], train["labels"]))


def regularised(train: Train) -> Learned:
    """Empirical risk with a penalty on M, as Jin et al. (2009) minimise it, with a fixed weight of 1 / sqrt(pairs)."""
    alpha = 1.0 / np.sqrt(len(train["labels"]))
    learner = cf.LinearMetricLearner(alpha=alpha, prior="zero", flip_rate=0.0)
    return _learned(learner.fit(train["pairs"], train["labels"]))


def _learned(learner: cf.LinearMetricLearner) -> Learned:
    return Learned(metric=learner.metric_.matrix, claim=f"proven gap {learner.certificate_.gap:.0e}")


PEERS = {
    "closefar": default,
    "closefar, low rank (as FLRML)": low_rank,
    "closefar, fixed alpha (as Jin et al. 2009)": regularised,
}
