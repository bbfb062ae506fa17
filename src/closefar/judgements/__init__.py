"""Labelled pairs and the checks that they pass: data, labels, weights, folds."""

from closefar.judgements.checks import (
    CodedLabels,
    Columns,
    Partition,
    Partitions,
    Sides,
    check_pairs,
    is_partitioned,
    own_labels,
)
from closefar.judgements.folds import (
    PairGroupKFold,
    SharedPointsWarning,
    Split,
    divide_points,
    find_points,
    most_folds,
    resolve_folds,
    resolve_groups,
    share_points,
    split_judgements,
    variance_of_sum,
)
from closefar.judgements.judgements import (
    Annotators,
    Judgements,
    Kind,
    check_comparisons,
    effective_number,
    read_annotators,
    rows_with_same_legs,
    sample_rows,
)
from closefar.judgements.partitioned import (
    PartitionedJudgements,
    counted_partitions,
    mapped_partitions,
    partitions_of,
    sample_partitions,
    unlabelled_partitions,
)
from closefar.judgements.tuples import (
    DaskTuples,
    Tuples,
    triplets_from_classes,
    triplets_from_odd_one_out,
    triplets_from_ranking,
)

__all__ = ["PairGroupKFold", "SharedPointsWarning", "Split", "divide_points", "find_points", "most_folds"]
__all__ += ["resolve_folds", "resolve_groups", "share_points", "split_judgements", "variance_of_sum"]
__all__ += ["Annotators", "Judgements", "Kind", "check_comparisons", "effective_number", "read_annotators"]
__all__ += ["CodedLabels", "Sides", "own_labels", "rows_with_same_legs", "sample_rows"]
__all__ += ["Columns", "Partition", "Partitions", "check_pairs", "is_partitioned"]
__all__ += ["PartitionedJudgements", "counted_partitions", "mapped_partitions", "partitions_of"]
__all__ += ["sample_partitions", "unlabelled_partitions"]
__all__ += ["DaskTuples", "Tuples", "triplets_from_classes", "triplets_from_odd_one_out", "triplets_from_ranking"]
