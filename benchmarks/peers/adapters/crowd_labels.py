"""crowd-kit: one label for each pair from those of its annotators, and closefar fitted to these."""

from __future__ import annotations

import numpy as np
import pandas as pd
from crowdkit.aggregation import DawidSkene, MajorityVote

import closefar as cf
from peers.worker import Learned, Train

# An annotator whose P(far | far) - P(far | close) is below this is named.
LEAST_INFORMEDNESS = 0.2


def warm_up() -> None:
    """Import what the first fit imports."""
    pairs, labels, *_ = cf.datasets.make_pairs(100, 3, random_state=0)
    cf.LinearMetricLearner().fit(pairs, labels)


def _judgements(train: Train) -> pd.DataFrame:
    columns = {"task": "pair_of", "worker": "annotators", "label": "labels"}
    return pd.DataFrame({name: train[column] for name, column in columns.items()})


def _fitted(train: Train, labels: pd.Series, named: np.ndarray) -> Learned:
    pairs, first = np.unique(train["pair_of"], return_index=True)
    learner = cf.LinearMetricLearner()
    learner.fit(train["pairs"][first], labels.loc[pairs].to_numpy())
    return Learned(metric=learner.metric_.matrix, threshold=learner.metric_.known_threshold, answers={"named": named})


def dawid_skene(train: Train) -> Learned:
    """Dawid and Skene's labels; annotators are named by the confusion matrix that they get."""
    model = DawidSkene(n_iter=100)
    labels = model.fit_predict(_judgements(train))
    names = np.arange(int(train["annotators"].max()) + 1)
    said = {(worker, label): row for (worker, label), row in model.errors_.iterrows()}
    informedness = np.array([said[(name, 1)][1] - said[(name, 1)][-1] if (name, 1) in said else 0.0 for name in names])
    return _fitted(train, labels, informedness < LEAST_INFORMEDNESS)


def majority_vote(train: Train) -> Learned:
    """The majority's labels; annotators are named by how their labels go with these."""
    labels = MajorityVote().fit_predict(_judgements(train))
    expected = labels.loc[train["pair_of"]].to_numpy()
    informedness = [
        np.mean(train["labels"][mine & (expected > 0)] > 0) - np.mean(train["labels"][mine & (expected < 0)] > 0)
        for mine in (train["annotators"] == name for name in range(int(train["annotators"].max()) + 1))
    ]
    return _fitted(train, labels, np.array(informedness) < LEAST_INFORMEDNESS)


PEERS = {"DawidSkene, then closefar": dawid_skene, "MajorityVote, then closefar": majority_vote}
