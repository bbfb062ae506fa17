"""The interface of estimators that analyses rely on."""

from __future__ import annotations

from typing import Any, Protocol

from closefar.fitting.result import Fit
from closefar.judgements import Judgements

__all__ = ["Fitted", "Learner"]


class Fitted(Protocol):
    """A fitted estimator: it has a `Fit`."""

    @property
    def fit_(self) -> Fit: ...


class Learner(Protocol):
    """An estimator, fitted or not, that can learn from judgements."""

    far_label: Any
    class_weight: Any

    def read(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, annotators: Any = None, comparisons: Any = None
    ) -> Judgements: ...

    def learn(self, judgements: Judgements) -> Fit: ...

    def get_params(self, deep: bool = ...) -> dict[str, Any]: ...
