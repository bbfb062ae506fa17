"""The judgements that matter for a Hessian: a sample of them stands for all."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from closefar.arrays import FloatArray
from closefar.solve.curvature import Curvature
from closefar.solve.objective import Objective

__all__ = ["HessianSampler"]

# Of the mean importance of a judgement: without those below it, a Hessian differs by less than its damping.
_NEGLIGIBLE = 1e-6


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
        """The Hessian of about this many judgements, in single precision; of all if there are not many more.

        Judgements that are so certain that all of them add next to nothing are left out, if they are many.
        """
        objective = self.objective
        if not curvature.can_be_sampled:
            return objective.hessian(curvature, rough=True)
        curved = objective.source.gather(curvature.distance)
        importance = self._importance(curved)
        matter = np.flatnonzero(importance > _NEGLIGIBLE * float(importance.mean()))
        if len(matter) <= min(number, objective.n_judgements // 2):
            return objective.sampled_hessian(curvature, matter, np.ones(len(matter)))
        if 2 * number >= objective.n_judgements:
            return objective.hessian(curvature, rough=True)
        chances = self._chances(curved, number)
        indices = np.flatnonzero(self.rng.random(len(chances)) < chances)
        return objective.sampled_hessian(curvature, indices, 1.0 / chances[indices])

    @cached_property
    def lengths(self) -> FloatArray:
        """1 + |z|^2 of each judgement."""
        source = self.objective.source
        return 1.0 + source.gather(source.squared_distances(np.eye(source.n_columns)))

    def _importance(self, curved: FloatArray) -> FloatArray:
        importance: FloatArray = curved * self.lengths**2
        return importance

    def _chances(self, curved: FloatArray, number: int) -> FloatArray:
        """The probability with which each judgement is drawn."""
        importance = self._importance(curved)
        total = float(importance.sum())
        chances: FloatArray = np.full(len(importance), 0.5 * number / len(importance))
        if 0.0 < total < np.inf:
            chances += (0.5 * number / total) * importance
        return np.minimum(chances, 1.0, out=chances)
