"""The progress of a fit, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from closefar.solve.certificate import Certificate
from closefar.solve.loop import State, Watch
from closefar.solve.objective import Passes

__all__ = ["FitStep", "Recorder"]


@dataclass(frozen=True)
class FitStep:
    """The objective after a number of passes over the data, and the gap proven by then.

    `gap` is infinite until one is proven.
    """

    passes: float
    objective: float
    gap: float

    @classmethod
    def last(cls, certificate: Certificate) -> FitStep:
        """The last step of a fit with this certificate."""
        return cls(certificate.n_passes, certificate.objective, certificate.gap)


class Recorder:
    """A watcher of a solver that keeps a `FitStep` of every state, and passes the state on."""

    def __init__(self, passes: Passes, watch: Watch) -> None:
        self.passes = passes
        self.watch = watch
        self.steps: list[FitStep] = []

    def __call__(self, iteration: int, state: State) -> None:
        gap = state.gap if state.bound > 0.0 else math.inf
        self.steps.append(FitStep(self.passes.count, float(state.objective), float(gap)))
        self.watch(iteration, state)
