"""cblearn: embeddings of objects without columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from cblearn.embedding import CKL, SOE, STE

from peers.worker import Learned, NotApplicableError, Train

DIMENSIONS = (1, 2, 3, 4, 5, 7)
FOLDS = 3


def warm_up() -> None:
    """Import and compile what the first fit does."""
    STE(2, random_state=0).fit(np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]]))


def embedded(method: Any, train: Train) -> Learned:
    """Embed the objects, in as many dimensions as agree best with held-out triplets."""
    index, answers, n = train["index"], train["answers"], len(train["points"])
    if index.shape[1] != 3 or index.size == n:
        raise NotApplicableError("It places objects without columns, and each of these is compared once only.")
    in_order = np.where((answers > 0)[:, None], index, index[:, [0, 2, 1]])

    def embed(triplets: np.ndarray, dimension: int) -> np.ndarray:
        return np.asarray(method(dimension, random_state=0).fit(triplets, n_objects=n).embedding_)

    fold = np.arange(len(index)) % FOLDS
    scores = [
        sum(_agreement(embed(in_order[fold != k], dimension), in_order[fold == k]) for k in range(FOLDS))
        for dimension in DIMENSIONS
    ]
    best = DIMENSIONS[int(np.argmax(scores))]
    note = f"{best} dimension{'s' if best > 1 else ''}"
    return Learned(answers={"embedding": embed(in_order, best)}, note=note)


def _agreement(embedding: np.ndarray, triplets: np.ndarray) -> float:
    near, far = (np.sum((embedding[triplets[:, 0]] - embedding[triplets[:, k]]) ** 2, axis=1) for k in (1, 2))
    return float(np.mean(far >= near))


PEERS = {
    "SOE": lambda train: embedded(SOE, train),
    "STE": lambda train: embedded(STE, train),
    "CKL": lambda train: embedded(CKL, train),
}
