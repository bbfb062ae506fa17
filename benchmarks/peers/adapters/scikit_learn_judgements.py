"""What one would write with scikit-learn for comparisons and for wrong labels."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from peers.adapters.product_features import matrix_of, products, scales_of
from peers.worker import Learned, Train


def warm_up() -> None:
    """Import and compile what the first fit does."""
    rng = np.random.default_rng(0)
    LogisticRegression().fit(rng.normal(size=(50, 3)), np.arange(50) % 2)


def euclidean(train: Train) -> Learned:
    """Squared Euclidean distance of standardised columns."""
    return Learned(metric=np.diag(1.0 / train["points"].var(axis=0)))


def on_differences_of_products(train: Train) -> Learned:
    """Logistic regression on the products of the far leg less those of the near one: the same model without M >= 0."""
    points, index = train["points"], train["index"]
    near, far = ((0, 1), (0, 2)) if index.shape[1] == 3 else ((0, 1), (2, 3))
    features = np.subtract(*(products(points[index[:, i]] - points[index[:, j]]) for i, j in (far, near)))
    scales = scales_of(features)
    model = LogisticRegression(max_iter=1000, fit_intercept=False).fit(features / scales, train["answers"])
    return Learned(metric=matrix_of(model.coef_[0] / scales), answers={"turned_share": np.asarray(0.0)})


def own_suspicion(features: np.ndarray, labels: np.ndarray) -> Learned:
    """The classifier's own probability that a label is another one."""
    features = features / scales_of(features)
    far = LogisticRegression(max_iter=1000).fit(features, labels).predict_proba(features)[:, 1]
    return Learned(answers={"suspicion": np.where(labels > 0, 1.0 - far, far)})


def differences_of(train: Train) -> np.ndarray:
    """Return the difference of the points of each pair, in units of the columns' standard deviations."""
    points, index = train["points"] / train["points"].std(axis=0), train["index"]
    return np.asarray(points[index[:, 0]] - points[index[:, 1]])


PEERS = {
    "Euclidean, standardised": euclidean,
    "LogisticRegression on differences of products": on_differences_of_products,
    "LogisticRegression on products": lambda train: own_suspicion(products(differences_of(train)), train["labels"]),
    "LogisticRegression on absolute differences": lambda train: own_suspicion(
        np.abs(differences_of(train)), train["labels"]
    ),
}
