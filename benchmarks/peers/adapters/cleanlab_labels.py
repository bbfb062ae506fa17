"""cleanlab on logistic regression: labels ranked by cross-validated probabilities."""

from __future__ import annotations

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from peers.adapters.product_features import products, scales_of
from peers.adapters.scikit_learn_judgements import differences_of
from peers.worker import Learned


def suspicion(features: np.ndarray, labels: np.ndarray) -> Learned:
    """Rank by cleanlab's score, with the labels that it calls issues first.

    Its scores self_confidence and normalized_margin order two classes alike.
    """
    codes = (labels > 0).astype(int)
    probability = cross_val_predict(
        LogisticRegression(max_iter=1000), features / scales_of(features), codes, cv=5, method="predict_proba"
    )
    score = get_label_quality_scores(codes, probability, method="self_confidence")
    is_issue = find_label_issues(codes, probability, n_jobs=1)
    return Learned(answers={"suspicion": is_issue - score})


PEERS = {
    "cleanlab on products": lambda train: suspicion(products(differences_of(train)), train["labels"]),
    "cleanlab on absolute differences": lambda train: suspicion(np.abs(differences_of(train)), train["labels"]),
}
