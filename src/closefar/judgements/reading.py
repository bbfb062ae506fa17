"""The training data of a learner as judgements, in this process or in partitions."""

from __future__ import annotations

from typing import Any

from closefar.judgements.dask_data import partitions_of
from closefar.judgements.judgements import Judgements
from closefar.judgements.partitioned import PartitionedJudgements
from closefar.judgements.partitions import is_partitioned

__all__ = ["read_judgements"]


def read_judgements(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, far_label: Any = None, stacklevel: int = 3
) -> Judgements:
    """Validate the training data of an estimator; data in partitions stays there."""
    if not is_partitioned(X):
        return Judgements.read(estimator, X, y, sample_weight, far_label=far_label, stacklevel=stacklevel + 1)
    partitions = partitions_of(X, y, sample_weight)
    return PartitionedJudgements.load(estimator, partitions, far_label=far_label, stacklevel=stacklevel + 1)
