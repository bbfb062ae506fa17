"""metric-learn on triplets and quadruplets."""

from __future__ import annotations

import warnings

import numpy as np
from metric_learn import LSML, SCML

from peers.worker import Learned, NotApplicableError, Train


def _in_order(train: Train) -> tuple[np.ndarray, np.ndarray]:
    """Return comparisons of standardised points, with the leg that was called nearer first, and the columns' scales."""
    points, index = train["points"], train["index"]
    turned = index[:, [0, 2, 1] if index.shape[1] == 3 else [2, 3, 0, 1]]
    scales = points.std(axis=0)
    return (points / scales)[np.where((train["answers"] > 0)[:, None], index, turned)], scales


def scml(train: Train) -> Learned:
    """SCML with its default basis and step size."""
    comparisons, scales = _in_order(train)
    if comparisons.shape[1] != 3:
        raise NotApplicableError("It learns from triplets only.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own default of n_basis
        learner = SCML(random_state=0).fit(comparisons)
    return Learned(metric=learner.get_mahalanobis_matrix() / np.outer(scales, scales))


def lsml(train: Train) -> Learned:
    """LSML with its default prior; a triplet (a, b, c) is the quadruplet (a, b, a, c)."""
    comparisons, scales = _in_order(train)
    if comparisons.shape[1] == 3:
        comparisons = comparisons[:, [0, 1, 0, 2]]
    learner = LSML().fit(comparisons)
    return Learned(metric=learner.get_mahalanobis_matrix() / np.outer(scales, scales))


PEERS = {"SCML": scml, "LSML": lsml}
