"""cblearn: embeddings of objects without columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from cblearn.embedding import CKL, SOE, STE

from peers.adapters.held_out import best_dimension
from peers.worker import Learned, NotApplicableError, Train


def warm_up() -> None:
    """Import and compile what the first fit does."""
    STE(2, random_state=0).fit(np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]]))


def embedded(method: Any, train: Train) -> Learned:
    """Embed the objects, in as many dimensions as agree best with held-out triplets."""
    index, answers, n = train["index"], train["answers"], len(train["points"])
    if index.shape[1] != 3 or index.size == n:
        raise NotApplicableError("It places objects without columns, and each of these is compared once only.")

    def embed(index: np.ndarray, answers: np.ndarray, dimension: int) -> np.ndarray:
        in_order = np.where((answers > 0)[:, None], index, index[:, [0, 2, 1]])
        return np.asarray(method(dimension, random_state=0).fit(in_order, n_objects=n).embedding_)

    dimension = best_dimension(embed, index, answers)
    return Learned(answers={"embedding": embed(index, answers, dimension)}, note=f"{dimension} dimensions")


PEERS = {
    "SOE": lambda train: embedded(SOE, train),
    "STE": lambda train: embedded(STE, train),
    "CKL": lambda train: embedded(CKL, train),
}
