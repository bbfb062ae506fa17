"""From files to pairs and points as the learner takes them: in memory, or opened where they are too large for it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.chunks import is_large
from closefar.tables.encoding import Encoding, Features
from closefar.tables.files import open_table
from closefar.tables.ids import Ids
from closefar.tables.join import read_id_pairs, read_identified, read_rows
from closefar.tables.pair_table import PairTable, note_left_out
from closefar.tables.recorded_source import as_recorded
from closefar.tables.source import Source, find_id
from closefar.tables.values import release_memory

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
    return _read(source, features, labelled=labelled)


def read_or_open_pairs(source: Source, *, encoding: Encoding | None = None, labelled: bool, **options: Any) -> Pairs:
    """Read pairs as `read_pairs` does or, of a file that is too large to be held in memory, open them.

    That is one whose numbers take more than a gigabyte, or an eighth of the memory of the machine.
    """
    features = Features(encoding, **options)
    if not is_large(source):
        return _read(source, features, labelled=labelled)
    from closefar.tables.opening import open_source  # rows of the learner, which take a second to import

    return open_source(source, features, labelled=labelled)


def _read(source: Source, features: Features, *, labelled: bool) -> PairTable:
    source, features = as_recorded(source, features)
    are_ids = source.points is not None and (source.pairs is not None or source.comparisons is not None)
    table = (read_id_pairs if are_ids else read_rows)(source, features, labelled=labelled)
    release_memory()
    return table


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


@dataclass(frozen=True, eq=False)
class PointTable:
    """Points to be mapped: numbers (n, d), ids (n,), the name of the id column, and notes on what was left out."""

    data: FloatArray
    identity: Ids
    id_name: str
    encoding: Encoding
    notes: tuple[str, ...]

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text."""
        return self.identity.texts

    def projected(self, directions: FloatArray) -> FloatArray:
        """Return the coordinate of each point along each direction, a column of `directions`."""
        return self.data @ directions


def read_points(
    source_or_path: Source | str | os.PathLike[str], *, id: str | None = None, encoding: Encoding
) -> PointTable:
    r"""Read points to be mapped by a model.

    Parameters
    ----------
    source_or_path : Source or path
    id : str, optional
        The column with the ids: by default as in `Source`, else the row number as in the file.
    encoding : Encoding
        That of the model.

    Returns
    -------
    PointTable

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from closefar.tables import Encoding, read_points
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("id,age,mass\n007,31,80\n008,44,60\n")
    ...     table = read_points(path, encoding=Encoding.of_numbers(["mass", "age"]))
    >>> table.ids.tolist(), table.data.tolist()
    (['007', '008'], [[80.0, 31.0], [60.0, 44.0]])
    """
    source = source_or_path if isinstance(source_or_path, Source) else Source(points=source_or_path)
    if source.points is None:
        raise ValueError("a source of points to map must have a file of points; got none.")
    features = Features(encoding)
    points = read_identified(source, id or source.id, features, needs_ids=False)
    data, dropped, _ = features.encode(points.columns, points.place)
    notes = list(points.notes)
    if dropped.any():
        notes.append(note_left_out(dropped, "points", "a value"))
    return PointTable(data, points.identity.take(~dropped), points.id_name or "row", encoding, tuple(notes))


def read_or_open_points(source: Source, *, encoding: Encoding) -> PointTable | PairFile:
    """Read points as `read_points` does or, of a file that is too large to be held in memory, open them."""
    if not is_large(source):
        return read_points(source, encoding=encoding)
    from closefar.tables.opening import open_source

    assert source.points is not None
    id_name = find_id(open_table(source.points, source.na_values), source.id, encoding.column_names)
    return open_source(replace(source, id=id_name), Features(encoding), labelled=False)
