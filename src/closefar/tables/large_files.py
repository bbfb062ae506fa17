"""Pairs and points of files that may be too large for memory: read if they are not, otherwise opened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from closefar.tables.chunks import is_large
from closefar.tables.encoding import Encoding, Features
from closefar.tables.pairs import PairTable, read_pairs, read_points
from closefar.tables.source import Source, find_id

if TYPE_CHECKING:
    from closefar.tables.opened import PairFile

Pairs: TypeAlias = "PairTable | PairFile"  # in memory, or in a file


def read_or_open_pairs(source: Source, *, labelled: bool, **options: Any) -> Pairs:
    """Read pairs as `read_pairs` does or, of a file that is too large to be held in memory, open them.

    That is one whose numbers take more than a gigabyte, or an eighth of the memory of the machine.
    """
    if not is_large(source):
        return read_pairs(source, labelled=labelled, **options)
    from closefar.tables.opened import open_source  # rows of the learner, which take a second to import

    return open_source(source, Features(**options), labelled=labelled)


def read_or_open_points(source: Source, *, encoding: Encoding) -> Pairs:
    """Read points as `read_points` does or, of a file that is too large to be held in memory, open them."""
    if not is_large(source):
        return read_points(source, encoding=encoding)
    from closefar.tables.opened import open_source

    id_name = find_id(source.open(source.judged), source.id, encoding.column_names)
    return open_source(replace(source, id=id_name), Features(encoding), labelled=False)


def labels_of(table: Pairs) -> Any:
    """The labels as a learner takes them; the answers of comparisons are 1 and -1, or None if all are as given."""
    return table.labels.astype(float) if table.are_comparisons and table.labels is not None else table.labels


def others_of(table: Pairs) -> dict[str, Any]:
    """What else a learner is fitted to: annotators, and comparisons beside pairs."""
    others: dict[str, Any] = {}
    if table.annotators is not None:
        others["annotators"] = table.annotators
    if table.comparisons is not None:
        compared = table.comparisons
        others["comparisons"] = (compared.data, labels_of(compared), compared.weights)
    return others
