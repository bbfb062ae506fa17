"""statsmodels and mord: ordinal regression on products of differences."""

from __future__ import annotations

import numpy as np

from peers.adapters.product_features import matrix_of, products, scales_of
from peers.worker import Learned, Train


def ordered_model(train: Train) -> Learned:
    """OrderedModel of statsmodels, by L-BFGS from its own start."""
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    features = products(train["pairs"][:, 0] - train["pairs"][:, 1])
    scales = scales_of(features)
    model = OrderedModel(train["levels"], features / scales, distr="logit")
    found = model.fit(method="bfgs", maxiter=1000, disp=False, skip_hessian=True)
    thresholds = model.transform_threshold_params(found.params)[1:-1]
    note = "" if found.mle_retvals["converged"] else "not converged"
    return _learned(np.asarray(found.params)[: features.shape[1]], scales, thresholds, note)


def logistic_at(train: Train) -> Learned:
    """LogisticAT of mord, with its default penalty."""
    from mord import LogisticAT

    features = products(train["pairs"][:, 0] - train["pairs"][:, 1])
    scales = scales_of(features)
    model = LogisticAT(max_iter=1000).fit(features / scales, train["levels"])
    return _learned(model.coef_, scales, model.theta_)


def _learned(coefficients: np.ndarray, scales: np.ndarray, thresholds: np.ndarray, note: str = "") -> Learned:
    def score(pairs: np.ndarray) -> np.ndarray:
        return np.asarray(products(pairs[:, 0] - pairs[:, 1]) / scales @ coefficients)

    def probability(pairs: np.ndarray) -> np.ndarray:
        at_most = 1.0 / (1.0 + np.exp(np.clip(score(pairs)[:, None] - thresholds, -500.0, 500.0)))
        ends = np.zeros((len(pairs), 1))
        return np.diff(np.hstack([ends, at_most, ends + 1.0]), axis=1)

    return Learned(
        metric=matrix_of(coefficients / scales),
        farness=score,
        probability=probability,
        answers={"thresholds": np.asarray(thresholds)},
        note=note,
    )


PEERS = {"OrderedModel on products": ordered_model, "LogisticAT on products": logistic_at}
