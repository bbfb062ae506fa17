"""Opening pairs in files that may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.judgements import CodedLabels
from closefar.tables.chunks import FileColumns, NumpyChunks, SpooledFile, TableChunks
from closefar.tables.delimited import DelimitedFile
from closefar.tables.encoding import Encoding, Features
from closefar.tables.errors import TableError
from closefar.tables.files import ParquetFile, TableFile, open_table
from closefar.tables.ids import Ids, ids_of_pairs
from closefar.tables.pair_file import PairFile, coded
from closefar.tables.pair_table import TableRows, note_constant
from closefar.tables.source import (
    Roles,
    Source,
    Stacked,
    find_side_roles,
    find_single_roles,
    place_of_sides,
    require_label,
)
from closefar.tables.values import to_text


def open_source(source: Source, features: Features, *, labelled: bool) -> PairFile:
    """Open the pairs, or single points, of one file; labels stay text.

    Two passes are made: one for labels, weights and groups, one for the encoding, which holds a column at a time.
    """
    if os.fspath(_only_path(source)).lower().endswith(".npy"):
        return open_array(source, features, labelled=labelled)
    file, roles = find_roles(source, features, labelled=labelled)
    return open_file(_streamable(file, roles), roles)


def find_roles(source: Source, features: Features, *, labelled: bool) -> tuple[TableFile, Roles]:
    """Open a file, and find which of its columns mean what."""
    file = open_table(_only_path(source), source.na_values)
    find = find_single_roles if source.pairs is None else find_side_roles
    return file, find(file, source, features, labelled=labelled)


def open_array(source: Source, features: Features, *, labelled: bool) -> PairFile:
    """Open an array of differences or points, or of pairs; its columns are called x0, x1, ..."""
    chunks = NumpyChunks(_only_path(source))
    file = open_table(_only_path(source), source.na_values)
    if (features.missing or "refuse") != "refuse":
        raise TableError(
            f"{chunks.path}: missing values of an array are refused; got --missing {features.missing}. Leave the "
            "option out, and such rows out of the array."
        )
    if chunks.are_pairs:
        if labelled:
            require_label(file, None)
        names = features.names_among(chunks.names, {}, chunks.place)
        roles = Roles(features, names, None, label=None, weight=None, group=None, id_names=())
    else:
        roles = find_single_roles(file, source, features, labelled=labelled)
    n_rows = chunks.shape[0]
    own = _own_columns(chunks, roles)
    rows = TableRows(file, own, roles.label, roles.weight, roles.group, "points", n_rows, annotator=roles.annotator)
    rows.leave_out_unlabelled(drops_missing=False)
    chunks.use(roles.names)
    return PairFile(
        chunks,
        features.encoding or Encoding.of_numbers(roles.names),
        is_single=not chunks.are_pairs,
        labels=rows.labels,
        weights=rows.weights,
        groups=rows.groups,
        annotators=rows.annotators,
        read_ids=partial(_read_ids, file, roles.id_names, n_rows, rows.kept),
        id_names=roles.id_names or ("row",),
    )


def _own_columns(chunks: NumpyChunks, roles: Roles) -> dict[str, Any]:
    """The columns of an array that are no features: labels as codes, groups as text, and weights."""
    columns: dict[str, Any] = chunks.read([*roles.texts, *([] if roles.weight is None else [roles.weight])])
    for name in roles.texts:
        values, codes = np.unique(columns[name], return_inverse=True)
        words, n_words = to_text(values), int(np.sum(~np.isnan(values)))  # missing values are the last
        if name == roles.label:
            kind = np.int8 if n_words <= np.iinfo(np.int8).max else np.int32
            columns[name] = CodedLabels(words[:n_words], np.where(codes < n_words, codes, -1).astype(kind))
        else:
            columns[name] = words[codes]
    return columns


def rows_of_file(file: ParquetFile, roles: Roles) -> tuple[TableRows, Encoding]:
    """Read the labels and weights of a file whose columns are known, and learn its encoding if it is not known."""
    features, is_single = roles.features, roles.sides is None
    columns: dict[str, Any] = {}
    if roles.label is not None:
        columns[roles.label] = coded(file.read([roles.label], (), [roles.label])[roles.label])
    others = [name for name in (roles.weight, roles.group, roles.annotator) if name is not None]
    columns |= file.read(others, roles.texts)
    rows = TableRows(
        file,
        columns,
        roles.label,
        roles.weight,
        roles.group,
        "points" if is_single else "pairs",
        file.n_rows,
        annotator=roles.annotator,
    )
    rows.leave_out_unlabelled(drops_missing=features.drops_missing)
    encoding, lacking = _learned(file, roles, rows.kept)
    if lacking is not None:
        rows.leave_out(lacking, "a value")
    return rows, encoding


def open_file(file: ParquetFile, roles: Roles) -> PairFile:
    """Open a file whose columns are known."""
    rows, encoding = rows_of_file(file, roles)
    kept = rows.kept
    file.release_memory()
    return PairFile(
        TableChunks(file, roles, encoding, kept),
        encoding,
        is_single=roles.sides is None,
        labels=rows.labels,
        weights=rows.weights,
        groups=rows.groups,
        annotators=rows.annotators,
        read_ids=partial(_read_ids, file, roles.id_names, file.n_rows, kept),
        id_names=roles.id_names or ("row",),
        notes=[*rows.notes, *roles.notes, *note_constant(encoding)],
    )


def _only_path(source: Source) -> str | os.PathLike[str]:
    path = source.pairs if source.points is None else source.points
    assert path is not None
    return path


def _streamable(file: TableFile, roles: Roles) -> ParquetFile:
    """The file itself or, where passes over it would be slow, a copy of its columns."""
    if isinstance(file, DelimitedFile):
        return SpooledFile(file, roles.used, [*roles.own_texts, *roles.texts, *roles.id_names])
    if isinstance(file, ParquetFile):
        return file
    raise TableError(f"{file.path} can't be read in parts. Save the table as Parquet, or one array as .npy.")


def _learned(file: ParquetFile, roles: Roles, kept: NDArray[np.int64]) -> tuple[Encoding, NDArray[np.bool_] | None]:
    """The encoding, and which of the kept rows lack a value where those are left out; a column is read at a time."""
    columns: Mapping[str, NDArray[Any]] = FileColumns(file, roles, kept)
    place = file.place if len(kept) == file.n_rows else file.place.at(kept)
    if roles.sides is not None:
        columns, place = Stacked(columns, roles.sides), place_of_sides(file.place, kept, roles.sides)
    encoding = roles.features.learned(columns, place)
    if not roles.features.drops_missing:
        return encoding, None
    dropped = encoding.find_dropped(columns, place=place)
    return encoding, dropped if roles.sides is None else np.logical_or(dropped[::2], dropped[1::2])


def _read_ids(file: TableFile, names: tuple[str, ...], n_rows: int, kept: NDArray[np.int64]) -> Ids:
    columns = file.read(names, (), names)
    return ids_of_pairs(file.place, columns, names, n_rows).take(kept)
