"""What one would write with scikit-learn, and the distance without any learning."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from peers.worker import Learned, Train


def warm_up() -> None:
    """Import and compile what the first fit does."""
    rng = np.random.default_rng(0)
    LogisticRegression().fit(rng.normal(size=(50, 3)), np.arange(50) % 2)


def euclidean(train: Train) -> Learned:
    """Squared Euclidean distance of the columns as they are."""
    return Learned(metric=np.eye(train["pairs"].shape[2]))


def standardised_euclidean(train: Train) -> Learned:
    """Squared Euclidean distance of standardised columns."""
    points = train["pairs"].reshape(-1, train["pairs"].shape[2])
    return Learned(metric=np.diag(1.0 / points.var(axis=0)))


def logistic_on_products(train: Train) -> Learned:
    """Logistic regression on all products z_i z_j of the differences: the same model without M >= 0."""
    d = train["pairs"].shape[2]
    features = products(train["pairs"])
    scales = np.sqrt(np.einsum("ij,ij->j", features, features) / len(features))
    features /= scales
    model = LogisticRegression(max_iter=1000).fit(features, train["labels"])
    metric = np.zeros((d, d))
    rows, columns = np.triu_indices(d)
    metric[rows, columns] = model.coef_[0] / scales * np.where(rows == columns, 1.0, 0.5)
    metric += np.triu(metric, 1).T

    def probability(pairs: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict_proba(products(pairs) / scales)[:, 1])

    threshold = -float(model.intercept_[0])
    return Learned(metric=metric, threshold=threshold, probability=probability, note=_unfinished(model))


def logistic_on_absolute_differences(train: Train) -> Learned:
    """Logistic regression on |z_i|: no metric, but what is often tried first."""
    features = np.abs(train["pairs"][:, 0] - train["pairs"][:, 1])
    scales = features.std(axis=0)
    model = LogisticRegression(max_iter=1000).fit(features / scales, train["labels"])

    def farness(pairs: np.ndarray) -> np.ndarray:
        return np.asarray(model.decision_function(np.abs(pairs[:, 0] - pairs[:, 1]) / scales))

    def probability(pairs: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict_proba(np.abs(pairs[:, 0] - pairs[:, 1]) / scales)[:, 1])

    return Learned(threshold=0.0, farness=farness, probability=probability, note=_unfinished(model))


def products(pairs: np.ndarray) -> np.ndarray:
    """Return z_i z_j for i <= j, in the order of `np.triu_indices`, in one array, which may have GiB."""
    differences = pairs[:, 0] - pairs[:, 1]
    n, d = differences.shape
    filled = np.empty((n, d * (d + 1) // 2))
    start = 0
    for i in range(d):
        np.multiply(differences[:, i:], differences[:, i : i + 1], out=filled[:, start : start + d - i])
        start += d - i
    return filled


def _unfinished(model: LogisticRegression) -> str:
    return "not converged in 1,000 iterations" if model.n_iter_.max() >= 1000 else ""


PEERS = {
    "Euclidean": euclidean,
    "Euclidean, standardised": standardised_euclidean,
    "LogisticRegression on products": logistic_on_products,
    "LogisticRegression on absolute differences": logistic_on_absolute_differences,
}
