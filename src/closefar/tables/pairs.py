"""From files to pairs, in the three forms in which people have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from closefar.tables.encoding import Encoding
from closefar.tables.features import Features
from closefar.tables.id_pairs import read_id_pairs
from closefar.tables.pair_table import PairTable
from closefar.tables.points import read_single
from closefar.tables.side_pairs import read_side_pairs
from closefar.tables.sources import Source

__all__ = ["read_pairs"]


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
    r"""Read pairs, or single points, in any of the forms of `Source`.

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
    if source.pairs is None:
        return read_single(source, features, labelled=labelled)
    if source.points is None:
        return read_side_pairs(source, features, labelled=labelled)
    return read_id_pairs(source, features, labelled=labelled)
