"""Rows of ids, pairs or comparisons, and the points that they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables.arrow import texts_of
from closefar.tables.errors import TableError, listed, quoted
from closefar.tables.features import Features
from closefar.tables.ids import Ids, are_among, as_id_column, codes_of_ids
from closefar.tables.pair_table import PairTable, TableRows
from closefar.tables.points import IdentifiedPoints


@dataclass(frozen=True, eq=False)
class IdTuples:
    """The ids in some columns of a file, and its rows.

    Parameters
    ----------
    names : tuple of str
        The id columns.
    ids : tuple of pyarrow.ChunkedArray
        One of them for each, as read.
    rows : TableRows
    notes : list of str
        Sentences about what is ignored.
    options : str
        The options that choose the id columns.
    """

    names: tuple[str, ...]
    ids: tuple[Any, ...]
    rows: TableRows
    notes: list[str]
    options: str

    def positions(self, points: IdentifiedPoints) -> NDArray[np.int64]:
        """The rows among the points of all ids of each kept row."""
        own = points.identity.values
        own = as_id_column(own) if isinstance(own, np.ndarray) else own
        (codes, *columns), different = codes_of_ids(own, *self.ids)
        points.refuse_repeated(codes)
        if self.rows.place.first and are_among(self.names, own):  # only text files may lack names
            raise TableError(
                f"{self.rows.path}: row {self.rows.place.first - 1} must name the columns; it has the ids "
                f"{' and '.join(map(quoted, self.names))}. Add a row of column names at the top."
            )
        found = np.stack(columns, axis=1)
        found = found if len(self.rows.kept) == self.rows.n_read else found[self.rows.kept]
        unknown = np.flatnonzero(found.ravel() >= len(codes))
        if len(unknown):
            row, side = divmod(int(unknown[0]), len(self.names))
            self._refuse(points, len(unknown), row, side, texts_of(different.slice(int(found[row, side]), 1))[0])
        return found

    def _refuse(self, points: IdentifiedPoints, n_unknown: int, row: int, side: int, name: str) -> None:
        rows, n_points = self.rows, len(points.identity.index)
        called = "numbered from 0" if points.id_name is None else f"in column {quoted(points.id_name)}"
        examples = points.identity.take(np.arange(min(3, n_points))).texts
        raise TableError(
            f"{rows.path}: {n_unknown:,} of {len(rows.kept) * len(self.names):,} ids are not among the points; the "
            f"first is {quoted(name)} in column {quoted(self.names[side])}, {rows.place.row(int(rows.kept[row]))}. "
            f"The ids of {points.place.path} are {called}, such as {listed(examples)}. Add the points, "
            f"or choose the id columns with {self.options}."
        )


def join_points(points: IdentifiedPoints, tables: Sequence[IdTuples], features: Features) -> list[PairTable]:
    """Return each table with its points; those of all tables are encoded once."""
    positions = [table.positions(points) for table in tables]
    used = np.zeros(len(points.identity.index), dtype=bool)
    for table, found in zip(tables, positions, strict=True):
        used[found] = True
        if table.rows.known_ids is not None:  # encoded as on the page, which may ask about any of them
            used |= np.isin(points.identity.texts.astype(str), table.rows.known_ids.astype(str))
    data, where, encoding = points.encode_rows(used, features)
    joined = []
    for table, places in zip(tables, positions, strict=True):
        found = where[places]
        if found.min() < 0:
            complete = np.all(found >= 0, axis=1)
            table.rows.leave_out(~complete, "a value")
            found, places = found[complete], places[complete]
        if found.shape[1] > 2 and table.rows.are_recorded:  # nobody could choose what to ask about
            differ = _differ(data, found)
            table.rows.leave_out_same(~differ)
            found, places = found[differ], places[differ]
        identity, notes = Ids(points.identity.values, places), [*points.notes, *table.notes]
        joined.append(table.rows.table(data, found, identity, table.names, encoding, notes))
    return joined


def _differ(points: FloatArray, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which comparisons have two sides that differ; all, which a learner then refuses, if there is none."""
    from closefar.judgements import Tuples, rows_with_same_legs  # imports scikit-learn, which predictions do not need

    differ = np.ones(len(index), dtype=bool)
    differ[rows_with_same_legs(Tuples(points, index))] = False
    return differ if differ.any() else ~differ
