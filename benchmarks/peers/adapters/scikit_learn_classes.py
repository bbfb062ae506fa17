"""What one would write with scikit-learn for points with classes, and the distance without any learning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from peers.adapters.columns import Columns, transformer
from peers.worker import Learned, Train

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # C of LogisticRegression


def warm_up() -> None:
    """Import and compile what the first fit does."""
    rng = np.random.default_rng(0)
    LogisticRegression().fit(rng.normal(size=(50, 3)), np.arange(50) % 2)


def euclidean(train: Train) -> Learned:
    """Euclidean distance of standardised columns, or of columns with the same unit as they are."""
    return Learned(transform=Columns.of(train).standardise)


def logistic(features: Callable[[np.ndarray], np.ndarray]) -> Callable[[Train], Learned]:
    """Return the adapter of logistic regression on features of the differences.

    Its penalty is chosen on pairs of points that were held out: pairs that share a point are not independent.
    """

    def adapter(train: Train) -> Learned:
        columns = Columns.of(train)

        def of(pairs: np.ndarray) -> np.ndarray:
            standardised = columns.standardise(pairs)
            return features(standardised[:, 0] - standardised[:, 1])

        values = of(train["pairs"])
        scales = values.std(axis=0)
        values /= np.where(scales > 0.0, scales, 1.0)
        model = LogisticRegression(C=_chosen_penalty(values, train), max_iter=1000).fit(values, train["labels"])
        weights = model.coef_[0] / np.where(scales > 0.0, scales, 1.0)
        return Learned(farness=lambda pairs: of(pairs) @ weights, note=f"C = {model.C:g}, cross-validated")

    return adapter


def _chosen_penalty(values: np.ndarray, train: Train) -> float:
    """Return C with the least loss on pairs of held-out points."""
    losses = np.zeros(len(PENALTIES))
    for fold in np.unique(train["point_folds"]):
        held_out = (train["point_folds"][train["pairs_index"]] == fold).all(axis=1)
        rest = (train["point_folds"][train["pairs_index"]] != fold).all(axis=1)
        for place, penalty in enumerate(PENALTIES):
            model = LogisticRegression(C=penalty, max_iter=1000).fit(values[rest], train["labels"][rest])
            losses[place] += log_loss(train["labels"][held_out], model.predict_proba(values[held_out]))
    return PENALTIES[int(losses.argmin())]


def products(differences: np.ndarray) -> np.ndarray:
    """Return all products z_i z_j."""
    rows, columns = np.triu_indices(differences.shape[1])
    return np.asarray(differences[:, rows] * differences[:, columns])


PEERS = {
    "Euclidean": euclidean,
    "scikit-learn NCA": transformer(lambda train: NeighborhoodComponentsAnalysis(max_iter=200, random_state=0)),
    "scikit-learn LDA": transformer(lambda train: LinearDiscriminantAnalysis()),
    "LogisticRegression on products": logistic(products),
    "LogisticRegression on absolute differences": logistic(np.abs),
}
