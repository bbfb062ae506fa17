"""How many judgements a sample needs in the place of all of them."""

from __future__ import annotations

from closefar.packed import packed_size
from closefar.solve.objective import Objective

__all__ = ["enough_for_hessian", "share_for_hessian"]

# A Hessian of m judgements differs from that of all by about 2 sqrt(p / m), relative to it, with p parameters.
_PER_PARAMETER, _LEAST_PER_PARAMETER = 128, 32

# A step on the sample, of some twenty passes over it, then takes no longer than two passes over all judgements.
_LARGEST_SHARE = 1.0 / 12.0


def share_for_hessian(objective: Objective) -> float:
    """The share of the judgements whose Hessian stands for that of all."""
    wanted = _PER_PARAMETER * packed_size(objective.n_directions)
    return min(_LARGEST_SHARE, wanted / objective.n_judgements)


def enough_for_hessian(objective: Objective) -> bool:
    """Whether that share is enough, so that steps with its Hessian converge quickly."""
    has_many = objective.n_judgements * _LARGEST_SHARE >= _LEAST_PER_PARAMETER * packed_size(objective.n_directions)
    return has_many and objective.likelihood.n_thresholds == 1
