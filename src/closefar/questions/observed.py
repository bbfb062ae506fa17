"""The input of standard errors: a fit in unit-free coordinates, and its observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from closefar import packed
from closefar.arrays import FloatArray
from closefar.fitting import Fit, Scorer, count_parameters, count_uncertain
from closefar.judgements import Judgements
from closefar.questions.annotating import annotator_rates, table_of
from closefar.questions.dependence import Dependence
from closefar.questions.label_likelihood import LabelLikelihood
from closefar.questions.optimum import Optimum
from closefar.questions.units import units_of_all

__all__ = ["Observed"]

_MOST_PARAMETERS = 4000


@dataclass(frozen=True, eq=False)
class Observed:
    """A fit, its likelihood, the number of observations that each row represents, and the dependence between rows.

    `parameters` are those of the fit.  The rows of attached comparisons come after those of pairs.
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
        groups = units_of_all(groups, judgements, stacklevel=stacklevel + 1)
        weighted = judgements.weighted(fit.settings.class_weight)
        counts, counted = weighted.all_weights > 0, weighted.counted()
        table = table_of(fit, counted)
        optimum = Optimum.of(
            fit.metric,
            counted,
            blend=0.0 if fit.alpha == 0.0 else 1.0,
            comparison_noise=fit.relative_noise,
            strictness=None if table is None else table.strictness,
        )
        n_parameters = packed.packed_size(optimum.size) + len(optimum.thresholds)
        if n_parameters > _MOST_PARAMETERS:
            raise ValueError(
                f"standard errors are limited to {_MOST_PARAMETERS} parameters; got {n_parameters} ({optimum.size} "
                "columns). Leave columns out, or reduce them (for instance with PCA)."
            )
        # A rate of zero is on the boundary, where it is not treated as a parameter.
        rates = np.ravel(fit.metric.flip_rate)
        known = annotator_rates(fit, counted)
        is_free = known is None and fit.known.estimates_flips and bool(np.all(rates > 0))
        likelihood = LabelLikelihood.of(
            optimum,
            counted,
            fit.metric.noise,
            None if is_free else fit.metric.flip_rate if known is None else known,
            n_rates=len(rates),
            precision=0.0 if table is None else 1.0 / (table.width**2 * counted.total_weight),
        )
        return cls(
            fit,
            counted,
            optimum,
            likelihood,
            parameters=np.append(optimum.parameters, rates) if is_free else optimum.parameters,
            repeats=judgements.all_weights[counts],
            dependence=Dependence(None if groups is None else groups[counts]),
            largest_rank=min(fit.rank or optimum.size, optimum.size),
        )

    @property
    def taus(self) -> FloatArray:
        """The thresholds of the metric."""
        return self.optimum.thresholds[: self.likelihood.outcomes.n_cuts]

    @property
    def estimates_rates(self) -> bool:
        """Whether flip rates were estimated together with M; those of annotators are treated as known."""
        return self.fit.known.estimates_flips and not self.has_annotator_rates

    @property
    def has_annotator_rates(self) -> bool:
        return annotator_rates(self.fit, self.judgements) is not None

    @property
    def knows_rank(self) -> bool:
        """Whether the rank was set below its maximum; a rank chosen from these labels is not known."""
        return not self.fit.chose_rank and self.largest_rank < self.optimum.size

    def count_parameters(self, *, keeps_rank: bool) -> int:
        rank = self.largest_rank if keeps_rank else None
        n_rates = np.size(self.fit.metric.flip_rate) * self.fit.known.estimates_flips
        return count_parameters(self.optimum.size, rank) - 1 + len(self.optimum.thresholds) + int(n_rates)

    def count_uncertain(self) -> float:
        """The number of uncertain labels: the sum of 4 p (1 - p), over attached comparisons, too."""
        score, n, others = Scorer.of(self.fit).score, len(self.judgements), self.judgements.comparisons
        found = count_uncertain(score(self.judgements), self.repeats[:n])
        return found if others is None else found + count_uncertain(score(others), self.repeats[n:])
