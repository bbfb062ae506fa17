"""DML-eig as it can be at its best: the metric in the units of the data, with tuned smoothing."""

from __future__ import annotations

import numpy as np

from paper.dml_eig import best_threshold, dml_eig, squared_distances
from peers.worker import Learned, Train

# Multiples of the mean squared distance of the close pairs; the one that gets the most training labels right is taken.
SMOOTHINGS = (0.01, 0.03, 0.1, 0.3, 1.0)


def tuned(train: Train) -> Learned:
    """Learn with each smoothing."""
    differences, labels = train["pairs"][:, 0] - train["pairs"][:, 1], train["labels"]
    n_close = int(np.sum(labels < 0))
    found: list[tuple[int, np.ndarray, float]] = []
    for multiple in SMOOTHINGS:
        matrix = dml_eig(differences, labels, smoothing=multiple / n_close).matrix
        squared = squared_distances(matrix, differences)
        threshold = best_threshold(squared, labels)
        found.append((int(np.sum((squared >= threshold) == (labels > 0))), matrix, threshold))
    _, matrix, threshold = max(found, key=lambda each: each[0])
    return Learned(metric=matrix, threshold=threshold)


PEERS = {"DML-eig (ours)": tuned}
