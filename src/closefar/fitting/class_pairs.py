"""Pairs of points whose classes are not certain: each is close with some probability, and far with the rest."""

from __future__ import annotations

import numpy as np

from closefar.arrays import FloatArray, IndexArray
from closefar.fitting.class_labels import ClassPosterior

__all__ = ["class_pairs"]

# A pair is left out of the side to which it belongs with a smaller probability.
_SMALLEST_WEIGHT = 0.01


def class_pairs(
    posterior: ClassPosterior, n_pairs: int, rng: np.random.Generator
) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Draw pairs, half of them of one class; return the points of each, its label (-1 close, +1 far) and its weight.

    A pair whose classes are uncertain occurs twice, as close and as far, with weights that sum to one.
    """
    codes = posterior.codes
    index = np.vstack([_of_one_class(codes, n_pairs // 2, rng), _of_two_classes(codes, n_pairs - n_pairs // 2, rng)])
    left, right = posterior.probabilities[index[:, 0]], posterior.probabilities[index[:, 1]]
    far = 1.0 - np.sum(left * right, axis=1)
    weights = np.concatenate([1.0 - far, far])
    labels = np.repeat([-1, 1], len(index))
    kept = weights > _SMALLEST_WEIGHT
    return np.vstack([index, index])[kept], labels[kept], weights[kept]


def _of_one_class(codes: IndexArray, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """A random point whose class has another one, and a random other point of that class."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    place = np.empty(len(codes), dtype=np.int64)
    place[order] = np.arange(len(codes))
    anchors = np.flatnonzero(counts[codes] > 1)
    if len(anchors) == 0:
        raise ValueError("a class must have two points at least; got one point of each. Merge rare classes.")
    first = rng.choice(anchors, n_pairs)
    size, start = counts[codes[first]], starts[codes[first]]
    step = 1 + (rng.random(n_pairs) * (size - 1)).astype(np.int64)
    return np.column_stack([first, order[start + (place[first] - start + step) % size]])


def _of_two_classes(codes: IndexArray, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """A random point, and a random point of another class."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    starts = np.cumsum(counts) - counts
    first = rng.integers(len(codes), size=n_pairs)
    size, start = counts[codes[first]], starts[codes[first]]
    place = (rng.random(n_pairs) * (len(codes) - size)).astype(np.int64)  # among the points of the other classes
    return np.column_stack([first, order[np.where(place < start, place, place + size)]])
