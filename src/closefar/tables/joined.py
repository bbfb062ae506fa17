"""Pairs whose labels are in another file, with any number of them for a pair, as crowdsourcing platforms give them."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import texts_of
from closefar.tables.errors import TableError, counted, listed, quoted
from closefar.tables.ids import codes_of_ids
from closefar.tables.sources import ROW_NAMES, Source
from closefar.tables.table import TableFile, open_table


def open_judged(source: Source, path: str | os.PathLike[str], *, labelled: bool = True) -> TableFile:
    """Open a file of pairs, or of single points, with the judgements of another file where there is one."""
    file = open_table(path, source.na_values)
    if source.judgements is None or not labelled:
        return file
    return JoinedFile(file, open_table(source.judgements, source.na_values))


class JoinedFile:
    """A file with a row for each judgement: what the judgement has, and what the pair has that it is about.

    Parameters
    ----------
    pairs, judgements : TableFile
        They have a column in common that names the pairs, such as "task".
    """

    def __init__(self, pairs: TableFile, judgements: TableFile) -> None:
        self._pairs, self._judgements, self._key = pairs, judgements, _common(pairs, judgements)
        self.path = f"{judgements.path} joined with {pairs.path}"
        self.place = replace(judgements.place, path=self.path, first_row=judgements.place.first)
        self.first_column_may_be_ids = pairs.first_column_may_be_ids
        own = [name for name in judgements.names if name != self._key]
        self.names = [*(name for name in pairs.names if name not in own), *own]

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        own = [name for name in only if name in self._judgements.names and name != self._key]
        of_pairs = [name for name in only if name not in own]
        found = _of_both(self._judgements, own, as_text, as_ids) if own else {}
        for name, column in (_of_both(self._pairs, of_pairs, as_text, as_ids) if of_pairs else {}).items():
            found[name] = column.take(self._positions)
        return found

    @cached_property
    def _positions(self) -> NDArray[np.int64]:
        """The row of the pair that each judgement is about."""
        files = (self._pairs, self._judgements)
        keys = [file.read([self._key], (), [self._key])[self._key] for file in files]
        for file, column in zip(files, keys, strict=True):
            if column.null_count:
                first = int(np.argmax(column.is_null().to_numpy()))
                raise TableError(
                    f"{file.path}: column {quoted(self._key)}, by which both files are joined, must have no missing "
                    f"values; it has {column.null_count:,}, the first in {file.place.row(first)}. Fill them in."
                )
        (codes, found), different = codes_of_ids(*keys)
        if len(np.unique(codes)) < len(codes):
            repeated = int(np.argmax(np.bincount(codes) > 1))
            raise TableError(
                f"{self._pairs.path}: each row must have a name of its own in column {quoted(self._key)}, by which "
                f"{self._judgements.path} is joined; {quoted(texts_of(different.slice(repeated, 1))[0])} is there "
                "several times. Keep one row of each."
            )
        unknown = np.flatnonzero(found >= len(codes))
        if len(unknown):
            first = int(unknown[0])
            name = texts_of(different.slice(int(found[first]), 1))[0]
            raise TableError(
                f"{self._judgements.path}: {counted(len(unknown), 'judgement')} of {len(found):,} "
                f"{'is' if len(unknown) == 1 else 'are'} about something that {self._pairs.path} does not have; the "
                f"first is {quoted(name)} in column {quoted(self._key)}, {self._judgements.place.row(first)}. Add it "
                "there, or leave those judgements out."
            )
        rows = np.empty(len(codes), dtype=np.int64)
        rows[codes] = np.arange(len(codes))
        return rows[found]


def _of_both(
    file: TableFile, names: Collection[str], as_text: Collection[str], as_ids: Collection[str]
) -> dict[str, Any]:
    """These columns of one of the files."""
    return file.read(names, [name for name in as_text if name in names], [name for name in as_ids if name in names])


def _common(pairs: TableFile, judgements: TableFile) -> str:
    """The column by which both files are joined."""
    shared = [name for name in judgements.names if name in pairs.names]
    usual = [name for name in shared if name.lower() in ROW_NAMES]
    if usual or len(shared) == 1:
        return (usual or shared)[0]
    raise TableError(
        f"{judgements.path} and {pairs.path} must have a column in common that names what was judged, such as 'task'; "
        f"got {listed(judgements.names)} and {listed(pairs.names)}. Give it the same name in both."
    )
