"""Hand-made partitions, loaded by a function as those of a cluster are."""

from __future__ import annotations

import numpy as np

from closefar.judgements import Partition, Partitions


def cut(n, n_partitions):
    """The first and last row of each partition; their sizes differ."""
    sizes = np.arange(1, n_partitions + 1) + 3
    ends = np.round(n * np.cumsum(sizes) / sizes.sum()).astype(int)
    return list(zip([0, *ends[:-1]], ends, strict=True))


class Loader:
    """Loads a part of arrays in memory; the arrays travel with it."""

    def __init__(self, data, labels, weights=None):
        self.data, self.labels, self.weights = data, labels, weights

    def __call__(self, task, shared):
        where = slice(*task)
        weights = None if self.weights is None else self.weights[where]
        return Partition(self.data[where], self.labels[where], weights)


def partitioned(data, labels, weights=None, *, n_partitions=5, tasks=None, load=None, client=None):
    """These judgements in partitions."""
    return Partitions(
        tuple(cut(len(labels), n_partitions) if tasks is None else tasks),
        Loader(data, labels, weights) if load is None else load,
        n_columns=data.shape[-1],
        are_pairs=data.ndim == 3,
        has_weights=weights is not None,
        client=client,
    )


def bits(learner):
    """The parts of a fit that must be the same to the last bit."""
    metric, certificate = learner.metric_, learner.certificate_
    return metric.factor.tobytes(), metric.threshold, certificate.loss, certificate.gap
