"""Fits that report what they reached instead of warning, and fits with a penalty chosen on the training part."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import closefar as cf

__all__ = ["PAPER", "fit", "fit_penalised"]

# The settings with which a learner is the estimator of the paper; with another alpha, M is shrunk to zero.
PAPER: dict[str, Any] = {"alpha": 0.0, "prior": "zero", "flip_rate": 0.0}

# Sampling noise of the gradient shrinks as 1/sqrt(n), and so must the penalty that is to cover it.
_FACTORS = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)


def fit(learner: cf.LinearMetricLearner, X: Any, y: Any) -> cf.LinearMetricLearner:
    """Fit without a warning of separable labels or an unproven optimum: accuracy and gap say what was reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(X, y)
    return learner


def fit_penalised(
    learner: cf.LinearMetricLearner, X: Any, y: Any, *, cv: Any, factors: Sequence[float] = _FACTORS, n_rows: int = 0
) -> cf.LinearMetricLearner:
    """Choose alpha = factor / sqrt(n) by cross-validated log-loss, and fit with it.

    The factor is chosen on the first `n_rows` rows, where that is not 0, and used with all.
    """
    part = slice(n_rows or None)
    scale = {n: 1.0 / np.sqrt(n) for n in (len(X[part]), len(X))}
    alphas = [factor * scale[len(X[part])] for factor in factors]
    search = GridSearchCV(learner, {"alpha": alphas}, scoring="neg_log_loss", cv=cv, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(X[part], y[part])
    alpha = factors[search.best_index_] * scale[len(X)]
    return fit(clone(learner).set_params(alpha=alpha), X, y)
