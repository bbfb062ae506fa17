"""The part of fitting that all estimators have in common: judgements in, a fit out."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, Self

import numpy as np

from closefar.fitting import Checkpoint, Fit, Settings, fit, showing
from closefar.judgements import Columns, Judgements, resolve_groups
from closefar.judgements.partitions import refuse_partitions
from closefar.learners.base import MetricLearner
from closefar.model import Metric

__all__ = ["FittingLearner"]


class FittingLearner(MetricLearner):
    """An estimator that fits with its own parameters."""

    warm_start: bool
    verbose: int

    def fit_to(
        self,
        judgements: Judgements,
        *,
        start: Metric | None = None,
        columns: Columns | None = None,
        groups: Any = None,
        checkpoint: Checkpoint | None = None,
        limits: dict[str, Any] | None = None,
    ) -> Self:
        """Learn from validated judgements, without warnings; `limits` are settings that are not parameters."""
        settings = Settings.of(self, **(limits or {}))
        self.fit_ = fit(judgements, settings, start=start, columns=columns, groups=groups, checkpoint=checkpoint)
        self.n_features_in_ = judgements.n_columns
        if columns is not None and columns.names_in_data is not None:
            self.feature_names_in_ = np.array(columns.names_in_data, dtype=object)
        return self

    def read(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        annotators: Any = None,
        comparisons: Any = None,
        estimator: Any = None,
    ) -> Judgements:
        """Validate judgements in memory to learn from; `estimator`, by default this learner, learns their columns."""
        refuse_partitions(X)
        more = {"annotators": annotators, "comparisons": comparisons}
        return self._read(estimator or self, X, y, sample_weight, **more)

    @abstractmethod
    def _read(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        annotators: Any = None,
        comparisons: Any = None,
    ) -> Judgements:
        """Validate judgements to learn from, called by a method that the user calls."""

    def learn(self, judgements: Judgements) -> Fit:
        """Return the fit to validated judgements, without storing it."""
        return fit(judgements, Settings.of(self))

    def _fit(
        self,
        *given: Any,
        noun: str = "pairs",
        groups: Any,
        names: Any,
        checkpoint: str | os.PathLike[str] | None,
        limits: dict[str, Any],
        **more: Any,
    ) -> Self:
        """Read judgements and learn from them, from the last metric if that is asked for."""
        kept = None if checkpoint is None else Checkpoint(checkpoint)  # what can't be written is refused first
        with showing(int(self.verbose)) as shown:
            with shown.stage(f"reading the {noun}"):
                judgements = self._read(self, *given, **more)
            found = None if groups is None else resolve_groups(groups, judgements.data)
            start = self._start(judgements) if self.warm_start else None
            columns = Columns.of(self, names)
            self.fit_to(judgements, start=start, columns=columns, groups=found, checkpoint=kept, limits=limits)
        self.fit_.warn(stacklevel=3)
        return self

    def _start(self, judgements: Judgements) -> Metric | None:
        """The metric of the last fit, if it has the columns and the thresholds of these judgements."""
        last = self.fit_.metric if hasattr(self, "fit_") else None
        if last is None or len(last.factor) != self.n_features_in_ or len(last.thresholds) != judgements.n_thresholds:
            return None
        return last

    def _store(self, given: dict[str, Any]) -> None:
        """Keep the arguments of `__init__` under their names, which is all that scikit-learn allows there."""
        for name in self._get_param_names():
            setattr(self, name, given[name])
