"""Labelled pairs and the checks that they pass: data, labels, weights, folds."""

from closefar.judgements.annotators import Annotators, read_annotators
from closefar.judgements.class_triplets import triplets_from_classes
from closefar.judgements.coded import CodedLabels
from closefar.judgements.columns import Columns
from closefar.judgements.comparisons import check_comparisons, rows_with_same_legs
from closefar.judgements.dask_data import partitions_of
from closefar.judgements.dask_tuples import DaskTuples
from closefar.judgements.folds import (
    PairGroupKFold,
    Split,
    divide_points,
    most_folds,
    resolve_folds,
    split_by_points,
    split_judgements,
)
from closefar.judgements.inspection import Inspection, check_inspections, inspect
from closefar.judgements.judgements import Judgements, effective_number, sample_rows
from closefar.judgements.kinds import Kind
from closefar.judgements.labels import Sides, own_labels
from closefar.judgements.loading import PartitionSample, counted_partitions, mapped_partitions, sample_partitions
from closefar.judgements.pairs import check_pairs
from closefar.judgements.partitioned import LoadedRows, PartitionedJudgements
from closefar.judgements.partitions import Partition, Partitions, is_partitioned
from closefar.judgements.reading import read_judgements
from closefar.judgements.shared_points import (
    SharedPointsWarning,
    find_points,
    resolve_groups,
    share_points,
    variance_of_sum,
)
from closefar.judgements.triplets import triplets_from_odd_one_out, triplets_from_ranking
from closefar.judgements.tuples import Tuples

__all__ = [
    "Annotators",
    "CodedLabels",
    "Columns",
    "DaskTuples",
    "Inspection",
    "Judgements",
    "Kind",
    "LoadedRows",
    "PairGroupKFold",
    "Partition",
    "PartitionSample",
    "PartitionedJudgements",
    "Partitions",
    "SharedPointsWarning",
    "Sides",
    "Split",
    "Tuples",
    "check_comparisons",
    "check_inspections",
    "check_pairs",
    "counted_partitions",
    "divide_points",
    "effective_number",
    "find_points",
    "inspect",
    "is_partitioned",
    "mapped_partitions",
    "most_folds",
    "own_labels",
    "partitions_of",
    "read_annotators",
    "read_judgements",
    "resolve_folds",
    "resolve_groups",
    "rows_with_same_legs",
    "sample_partitions",
    "sample_rows",
    "share_points",
    "split_by_points",
    "split_judgements",
    "triplets_from_classes",
    "triplets_from_odd_one_out",
    "triplets_from_ranking",
    "variance_of_sum",
]
