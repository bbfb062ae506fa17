"""The input of standard errors: a fit in unit-free coordinates, and its observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.fitting import Fit, count_parameters, count_uncertain
from closefar.judgements import Judgements, resolve_groups
from closefar.model import Scored
from closefar.questions.dependence import Dependence
from closefar.questions.label_likelihood import LabelLikelihood
from closefar.questions.optimum import Optimum

__all__ = ["Observed"]

_MOST_PARAMETERS = 4000


@dataclass(frozen=True, eq=False)
class Observed:
    """A fit, its likelihood, the number of observations that each row represents, and the dependence between rows.

    `parameters` are those of the fit.
    """

    fit: Fit
    judgements: Judgements
    optimum: Optimum
    likelihood: LabelLikelihood
    parameters: FloatArray
    repeats: FloatArray
    dependence: Dependence
    largest_rank: int

    @classmethod
    def of(cls, fit: Fit, judgements: Judgements, groups: Any, *, stacklevel: int = 2) -> Observed:
        judgements.check_both_count()
        groups = resolve_groups(groups, judgements.data, stacklevel=stacklevel + 1)
        weighted = judgements.weighted(fit.settings.class_weight)
        kept = np.flatnonzero(weighted.weights > 0)
        counted = weighted.take(kept)
        optimum = Optimum.of(fit.metric, counted, blend=fit.settings.blend)
        n_parameters = packed.packed_size(optimum.size) + 1
        if n_parameters > _MOST_PARAMETERS:
            raise ValueError(
                f"standard errors are limited to {_MOST_PARAMETERS} parameters; got {n_parameters} ({optimum.size} "
                "columns). Leave columns out, or reduce them (for instance with PCA)."
            )
        # A rate of zero is on the boundary, where it is not treated as a parameter.
        is_free = fit.settings.estimates_flips and fit.flip_rate > 0
        likelihood = LabelLikelihood.of(optimum, counted, fit.metric.noise, None if is_free else fit.flip_rate)
        return cls(
            fit,
            counted,
            optimum,
            likelihood,
            parameters=np.append(optimum.parameters, fit.flip_rate) if is_free else optimum.parameters,
            repeats=judgements.weights[kept],
            dependence=Dependence(None if groups is None else groups[kept]),
            largest_rank=min(fit.rank or optimum.size, optimum.size),
        )

    @property
    def knows_rank(self) -> bool:
        """Whether the rank was set below its maximum; a rank chosen from these labels is not known."""
        return self.fit.rank_choice is None and self.largest_rank < self.optimum.size

    def count_parameters(self, *, keeps_rank: bool) -> int:
        rank = self.largest_rank if keeps_rank else None
        return count_parameters(self.optimum.size, rank, with_flips=self.fit.settings.estimates_flips)

    def count_uncertain(self) -> float:
        """The number of uncertain labels: the sum of 4 p (1 - p)."""
        return count_uncertain(Scored.by(self.fit.metric, self.judgements), self.repeats)
