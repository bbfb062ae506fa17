"""metric-learn, on pairs and on points with classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import metric_learn
import numpy as np
from sklearn.metrics import pairwise_distances

from peers.adapters.columns import Columns, transformer
from peers.worker import Learned, Train

# It calls scikit-learn with arguments that have been renamed since.
warnings.simplefilter("ignore", FutureWarning)


def warm_up() -> None:
    """Import and compile what the first fit does."""
    points = np.random.default_rng(0).normal(size=(40, 3))
    metric_learn.NCA(max_iter=2).fit(points, np.arange(40) % 2)


def on_pairs(fit: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[[Train], Learned]:
    """Return the adapter of a function that fits a model to pairs, to which similar is +1."""

    def adapter(train: Train) -> Learned:
        columns = Columns.of(train)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("once")
            pairs, similar = columns.standardise(train["pairs"]), -train["labels"]
            model = fit(pairs, similar)
        note = "; ".join(sorted({str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)}))
        return Learned(metric=columns.metric(model.get_mahalanobis_matrix()), note=note[:300])

    return adapter


def information_theoretic(pairs: np.ndarray, similar: np.ndarray) -> Any:
    """ITML with the bounds that it would choose, from 2,000 points: it compares all, which takes n x n numbers.

    A step, of which a pass has one for each pair, is a few lines of Python: as many passes as about a minute allows.
    """
    points = pairs.reshape(-1, pairs.shape[2])
    some = np.random.default_rng(0).permutation(len(points))[:2000]
    bounds = np.percentile(pairwise_distances(points[some]), (5, 95))
    passes = min(1000, int(7.5e6 / len(pairs)) + 1)
    return metric_learn.ITML(max_iter=passes, random_state=0).fit(pairs, similar, bounds=bounds)


def sparse_metric(pairs: np.ndarray, similar: np.ndarray) -> Any:
    """SDML with nine tenths of the balance at which what it gives to the graphical lasso becomes indefinite."""
    differences = pairs[:, 0] - pairs[:, 1]
    least = float(np.linalg.eigvalsh((differences.T * similar) @ differences)[0])
    balance = 0.9 / -least if least < 0.0 else 0.5
    model = metric_learn.SDML(prior="identity", balance_param=balance, sparsity_param=1e-3, random_state=0)
    return model.fit(pairs, similar)


def relevant_components(train: Train) -> Any:
    """Put four fifths of the points into chunks of two, rather than 200 points as by default."""
    return metric_learn.RCA_Supervised(n_chunks=int(0.4 * len(train["classes"])), chunk_size=2, random_state=0)


PEERS = {
    "MMC": on_pairs(lambda pairs, similar: metric_learn.MMC(random_state=0).fit(pairs, similar)),
    "ITML": on_pairs(information_theoretic),
    "SDML": on_pairs(sparse_metric),
    "metric-learn NCA": transformer(lambda train: metric_learn.NCA(random_state=0)),
    # Steps start at 1e-7 by default and grow by 1% each; larger ones give the same figures several times faster.
    "metric-learn LMNN": transformer(lambda train: metric_learn.LMNN(learn_rate=1e-3, max_iter=300, random_state=0)),
    "metric-learn LFDA": transformer(lambda train: metric_learn.LFDA(), least_variance=1e-4),
    "metric-learn RCA": transformer(relevant_components, least_variance=1e-4),
}
