"""The number of dimensions of an embedding, chosen in the same way for all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Embed = Callable[[np.ndarray, np.ndarray, int], np.ndarray]

DIMENSIONS = (1, 2, 3, 4, 5, 7)


def best_dimension(embed: Embed, index: np.ndarray, answers: np.ndarray) -> int:
    """Return the number of dimensions whose embedding of four fifths of the triplets agrees best with the others."""
    n = len(index) * 4 // 5
    return max(DIMENSIONS, key=lambda k: agreement(embed(index[:n], answers[:n], k), index[n:], answers[n:]))


def agreement(embedding: np.ndarray, index: np.ndarray, answers: np.ndarray) -> float:
    """Return the share of triplets whose nearer leg in the embedding is the one that was called nearer."""
    near, far = (np.sum((embedding[index[:, 0]] - embedding[index[:, k]]) ** 2, axis=1) for k in (1, 2))
    return float(np.mean((far >= near) == (answers > 0)))
