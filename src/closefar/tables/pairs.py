"""From files to pairs, in the three forms in which people have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from closefar.tables.arrow import release_memory
from closefar.tables.encoding import Encoding
from closefar.tables.features import Features
from closefar.tables.id_pairs import read_id_pairs
from closefar.tables.pair_table import PairTable
from closefar.tables.points import PointTable, read_points, read_single
from closefar.tables.recorded_source import as_recorded
from closefar.tables.side_pairs import read_side_pairs
from closefar.tables.sizes import is_large
from closefar.tables.sources import Source, find_id
from closefar.tables.table import open_table

if TYPE_CHECKING:
    from closefar.tables.pair_file import PairFile

Pairs: TypeAlias = "PairTable | PairFile"  # in memory, or in a file


def read_pairs(
    source: Source,
    *,
    encoding: Encoding | None = None,
    labelled: bool,
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    missing: str | None = None,
    unseen: str | None = None,
) -> PairTable:
    r"""Read pairs, comparisons or single points, in any of the forms of `Source`.

    Parameters
    ----------
    source : Source
    encoding : Encoding, optional
        That of the model, for new data.  By default one is learned; where pairs refer to points
        by id, from the points that are in a pair.
    labelled : bool
        Whether to read labels and weights.
    columns, drop, categorical, ordinal
        As for `Encoding.learn`, to learn one.  Columns of two sides are called by what their
        names have in common, or by either name.
    missing, unseen : str, optional
        As for `Encoding.learn`; with an `encoding` they replace its own.

    Returns
    -------
    PairTable

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from closefar.tables import Source, read_pairs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     points, pairs = Path(folder, "points.csv"), Path(folder, "pairs.csv")
    ...     _ = points.write_text("id,height,colour\na,1.5,red\nb,2.5,blue\nc,3.5,red\n")
    ...     _ = pairs.write_text("first,second,label\na,b,far\nc,a,close\n")
    ...     table = read_pairs(Source(points=points, pairs=pairs), labelled=True)
    >>> table.encoding.feature_names
    ('height', 'colour=blue')
    >>> table.points.tolist(), table.index.tolist()
    ([[1.5, 0.0], [2.5, 1.0], [3.5, 0.0]], [[0, 1], [2, 0]])
    >>> table.labels.tolist(), table.ids.tolist()
    (['far', 'close'], [['a', 'b'], ['c', 'a']])
    """
    features = Features(encoding, columns, drop, categorical, ordinal, missing, unseen)
    return read_with(source, features, labelled=labelled)


def read_or_open_pairs(source: Source, *, encoding: Encoding | None = None, labelled: bool, **options: Any) -> Pairs:
    """Read pairs as `read_pairs` does or, of a file that is too large to be held in memory, open them.

    That is one whose numbers take more than a gigabyte, or an eighth of the memory of the machine.
    """
    features = Features(encoding, **options)
    if not is_large(source):
        return read_with(source, features, labelled=labelled)
    from closefar.tables.opening import open_source  # rows of the learner, which take a second to import

    return open_source(source, features, labelled=labelled)


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


def read_or_open_points(source: Source, *, encoding: Encoding) -> PointTable | PairFile:
    """Read points as `read_points` does or, of a file that is too large to be held in memory, open them."""
    if not is_large(source):
        return read_points(source, encoding=encoding)
    from closefar.tables.opening import open_source

    assert source.points is not None
    id_name = find_id(open_table(source.points, source.na_values), source.id, encoding.column_names)
    return open_source(replace(source, id=id_name), Features(encoding), labelled=False)


def read_with(source: Source, features: Features, *, labelled: bool) -> PairTable:
    """Read pairs with these features."""
    table = _read(source, features, labelled=labelled)
    release_memory()
    return table


def _read(source: Source, features: Features, *, labelled: bool) -> PairTable:
    source, features = as_recorded(source, features)
    if source.pairs is None and source.comparisons is None:
        return read_single(source, features, labelled=labelled)
    if source.points is None:
        return read_side_pairs(source, features, labelled=labelled)
    return read_id_pairs(source, features, labelled=labelled)
