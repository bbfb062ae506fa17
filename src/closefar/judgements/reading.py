"""The training data of a learner as judgements, in this process or in partitions."""

from __future__ import annotations

from typing import Any

from closefar.judgements.dask_data import partitions_of
from closefar.judgements.judgements import Judgements
from closefar.judgements.partitioned import PartitionedJudgements
from closefar.judgements.partitions import is_partitioned, words_for_sample

__all__ = ["read_judgements"]


def read_judgements(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    far_label: Any = None,
    levels: Any = None,
    is_graded: bool = False,
    annotators: Any = None,
    comparisons: Any = None,
    stacklevel: int = 3,
) -> Judgements:
    """Validate the training data of an estimator; data in partitions stays there."""
    if not is_partitioned(X):
        return Judgements.read(
            estimator,
            X,
            y,
            sample_weight,
            far_label=far_label,
            levels=levels,
            is_graded=is_graded,
            annotators=annotators,
            comparisons=comparisons,
            stacklevel=stacklevel + 1,
        )
    asked = {"levels": is_graded, "annotators": annotators is not None, "comparisons": comparisons is not None}
    for name, is_asked in asked.items():
        if is_asked:
            raise ValueError(
                f"{name} need pairs in memory; got {type(X).__name__}, whose rows are computed elsewhere. Pass a "
                f"sample: {words_for_sample(X)}."
            )
    partitions = partitions_of(X, y, sample_weight)
    return PartitionedJudgements.load(estimator, partitions, far_label=far_label, stacklevel=stacklevel + 1)
