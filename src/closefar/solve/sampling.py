"""How many judgements a sample needs in the place of all of them."""

from __future__ import annotations

from closefar.packed import packed_size
from closefar.solve.objective import Objective

__all__ = ["enough_for_hessian", "share_for_hessian"]

# A Hessian of m judgements differs from that of all by about 2 sqrt(p / m), relative to it, with p parameters.
_LEAST_PER_PARAMETER, _MOST_PER_PARAMETER = 32, 128

# A step on the sample, of about ten passes over it, takes no longer than two passes over all judgements, if the sample
# is no larger than the second share; if it is no larger than the first, it takes little time and memory.
_SMALL_SHARE, _LARGEST_SHARE = 1.0 / 24.0, 1.0 / 6.0

_MOST_THRESHOLDS = 16  # each is as much work as half a pass over the sample

# Where each pass is a round trip to other processes, passes over a sample in this one may take longer to save some.
_LARGEST_REMOTE_SHARE = 1.0 / 2.0


def share_for_hessian(objective: Objective) -> float:
    """The share of the judgements whose Hessian stands for that of all."""
    per_parameter = packed_size(objective.n_directions) / objective.n_judgements
    small = min(_SMALL_SHARE, _MOST_PER_PARAMETER * per_parameter)
    return min(max(small, _LEAST_PER_PARAMETER * per_parameter), _largest_share(objective))


def enough_for_hessian(objective: Objective) -> bool:
    """Whether that share is enough, so that steps with its Hessian converge quickly."""
    n_sampled = objective.n_judgements * _largest_share(objective)
    has_many = n_sampled >= _LEAST_PER_PARAMETER * packed_size(objective.n_directions)
    return has_many and objective.likelihood.n_thresholds <= _MOST_THRESHOLDS


def _largest_share(objective: Objective) -> float:
    return _LARGEST_REMOTE_SHARE if objective.source.is_remote else _LARGEST_SHARE
