"""The columns that a fit was made with: how many, and their names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns:
    """The columns that new data must have to match those of a fit.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.
    names : tuple of str, optional
        The names used to present what is learned.
    names_in_data : tuple of str, optional
        The names in the training data itself.
    """

    n_features_in_: int
    names: tuple[str, ...] | None = None
    names_in_data: tuple[str, ...] | None = None

    @classmethod
    def of(cls, estimator: Any, names: Sequence[str] | None = None) -> Columns:
        """Take over the columns that an estimator has seen; `names` where the data had none."""
        n_columns = estimator.n_features_in_
        if names is not None and len(names) != n_columns:
            raise ValueError(f"there must be a feature name for each of the {n_columns} columns; got {len(names)}.")
        seen = getattr(estimator, "feature_names_in_", None)
        known = seen if names is None else names
        return cls(n_columns, None if known is None else tuple(known), None if seen is None else tuple(seen))

    def check_names(self, names: tuple[str, ...] | None) -> None:
        """Refuse columns that have other names, or another order, than those of the fit."""
        if names == self.names_in_data:
            return
        if names is None or self.names_in_data is None:
            has, had = ("no feature names", "with") if names is None else ("feature names", "without")
            warnings.warn(f"X has {has}, but the learner was fitted {had} feature names", UserWarning, stacklevel=2)
            return
        raise ValueError(
            f"columns must be those of the fit, in its order, {list(self.names_in_data)}; got {list(names)}. "
            "Select them by these names."
        )
