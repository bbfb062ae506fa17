"""The columns that a fit knows: how many, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import BaseEstimator

__all__ = ["Columns"]


class Columns(BaseEstimator):  # type: ignore[misc]
    """What scikit-learn asks of an estimator to see whether data has the columns of its fit.

    Parameters
    ----------
    names : tuple of str, optional
        Those that what is learned is shown with.
    owner : str
        The estimator that messages speak of.
    """

    def __init__(self, names: tuple[str, ...] | None = None, owner: str = "LinearMetricLearner") -> None:
        self.names = names
        self.owner = owner

    n_features_in_: int

    @classmethod
    def of(cls, estimator: Any, names: Sequence[str] | None = None) -> Columns:
        """Take over the columns that an estimator has seen; `names` where the data had none."""
        n_columns = estimator.n_features_in_
        if names is not None and len(names) != n_columns:
            raise ValueError(f"there must be a feature name for each of the {n_columns} columns; got {len(names)}.")
        seen = getattr(estimator, "feature_names_in_", None)
        known = seen if names is None else names
        columns = cls.unnamed(n_columns, None if known is None else tuple(known))
        if seen is not None:
            columns.feature_names_in_ = seen
        return columns

    @classmethod
    def unnamed(cls, n_columns: int, names: tuple[str, ...] | None = None) -> Columns:
        """So many columns of arrays, which have no names of their own."""
        columns = cls(names)
        columns.n_features_in_ = n_columns
        return columns
