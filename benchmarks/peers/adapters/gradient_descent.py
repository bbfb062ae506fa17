"""The paper's own algorithm: plain gradient descent on a factor of M, on the columns as they are."""

from __future__ import annotations

import time

import numpy as np

from closefar.noise import get_noise
from paper.gradient_descent import Iterate, descend
from peers.worker import Learned, Train

ITERATIONS = 30_000  # as the paper states
MOST_SECONDS = 200.0  # of CPU time; the metric at its end is the answer


def paper(train: Train) -> Learned:
    """Descend until the iterations or the time are over, or the loss is at its target."""
    target = float(train.get("target_loss", -np.inf))
    differences, noise = train["pairs"][:, 0] - train["pairs"][:, 1], get_noise("logistic")
    end = time.process_time() + MOST_SECONDS
    last: Iterate | None = None
    for last in descend(differences, train["labels"], noise, n_iter=ITERATIONS, seed=0):
        if last.loss <= target or time.process_time() > end:
            break
    if last is None:
        raise RuntimeError("gradient descent made no step.")
    factor, threshold = last.factor, last.threshold

    def probability(pairs: np.ndarray) -> np.ndarray:
        mapped = (pairs[:, 0] - pairs[:, 1]) @ factor
        return np.asarray(noise.cdf(np.square(mapped).sum(axis=1) - threshold))

    unfinished = last.iteration < ITERATIONS and last.loss > target
    note = f"ended after {last.iteration:,} of {ITERATIONS:,} iterations, the longest time" if unfinished else ""
    return Learned(metric=factor @ factor.T, threshold=threshold, probability=probability, note=note)


PEERS = {"gradient descent of the paper": paper}
