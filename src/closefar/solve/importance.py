"""The judgements that matter for a Hessian: a sample of them stands for all."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from closefar.arrays import FloatArray
from closefar.solve.curvature import Curvature
from closefar.solve.objective import Objective

__all__ = ["HessianSampler"]


class HessianSampler:
    """Hessians of samples of the judgements of an objective.

    A judgement adds c f f' to the Hessian, with f of length 1 + |z|^2.  Half of a sample is drawn in proportion to
    c (1 + |z|^2)^2: many judgements are nearly certain, and add next to nothing.  The other half is drawn evenly,
    so that a rare direction is not missed.
    """

    def __init__(self, objective: Objective, rng: np.random.Generator) -> None:
        self.objective = objective
        self.rng = rng

    def hessian(self, curvature: Curvature, number: int) -> FloatArray:
        """The Hessian of about this many judgements, in single precision; of all if there are not many more."""
        objective = self.objective
        if not curvature.can_be_sampled or 2 * number >= objective.n_judgements:
            return objective.hessian(curvature, rough=True)
        chances = self._chances(objective.source.gather(curvature.distance), number)
        indices = np.flatnonzero(self.rng.random(len(chances)) < chances)
        return objective.sampled_hessian(curvature, indices, 1.0 / chances[indices])

    @cached_property
    def lengths(self) -> FloatArray:
        """1 + |z|^2 of each judgement."""
        source = self.objective.source
        return 1.0 + source.gather(source.squared_distances(np.eye(source.n_columns)))

    def _chances(self, curved: FloatArray, number: int) -> FloatArray:
        """The probability with which each judgement is drawn."""
        importance = curved * self.lengths**2
        total = float(importance.sum())
        chances: FloatArray = np.full(len(curved), 0.5 * number / len(curved))
        if 0.0 < total < np.inf:
            chances += (0.5 * number / total) * importance
        return np.minimum(chances, 1.0, out=chances)
