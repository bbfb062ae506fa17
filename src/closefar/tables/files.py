"""A table: named columns of one length, in any file format that people have."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from closefar.errors import setting
from closefar.tables.delimited import DelimitedFile
from closefar.tables.errors import (
    TEXT_SUFFIXES,
    Place,
    TableError,
    counted,
    listed,
    quote,
    refuse_unknown,
    too_large,
    without_values,
)
from closefar.tables.inputs import PARQUET_SUFFIXES, Input
from closefar.tables.recorded import SIGNATURE, is_recorded, note_unsure, read_recorded, recorded_columns
from closefar.tables.values import MissingValues, TableFile, pa, pq

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row numbers, which nobody measured
_NPY = b"\x93NUMPY"  # what a .npy file begins with
_MAPPED_ROWS = 1 << 10  # of an array, from which on a pass can begin
_PAGE_BYTES = 1 << 16  # read at a time, 64 KiB, so that a row group is never in memory as a whole


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length.

    Parameters
    ----------
    path : str
        The file that it was read from.
    columns : dict of 1-D arrays
        float64 (NaN is missing), bool, object with text (None is missing) or datetime64.
        True and false with missing values among them are text.
    """

    path: str
    columns: dict[str, NDArray[Any]]


def read_table(
    path: str | os.PathLike[str], *, as_text: Collection[str] = (), na_values: Iterable[str] = (), decimal: str = "."
) -> Table:
    r"""Read a table from a .csv, .tsv or .txt file (also .gz), or a .parquet, .npy or .npz one.

    Text files are UTF-8, begin with a row of column names, and separate columns with commas,
    semicolons, tabs or bars.  Lines above the names that begin with # are comments, and Excel's
    ``sep=;`` gives the separator.  An empty field, NA, N/A, n/a,
    #N/A, <NA>, NaN, nan, null, NULL and None mean that a value is missing.  A column is
    numbers, or true and false, if all its values are.

    Parameters
    ----------
    path : str or Path
        "-" is standard input.
    as_text : names of columns
        Those that stay as they are written, such as ids: "007" and not 7.
    na_values : texts
        What else stands for a missing value, such as "?" or "-999".
    decimal : {".", ","}
        The decimal mark of numbers in text files.

    Returns
    -------
    Table

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from closefar.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("id,height,member\n007,1.75,true\n008,,false\n")
    ...     table = read_table(path, as_text=["id"])
    >>> for name, column in table.columns.items():
    ...     print(name, column.tolist())
    id ['007', '008']
    height [1.75, nan]
    member [True, False]
    """
    file = open_table(path, na_values, decimal)
    refuse_unknown(file.path, as_text, file.names, "which was to be read as text")
    columns = file.read(file.names, as_text)
    return Table(file.path, {name: np.require(column, requirements="W") for name, column in columns.items()})


def open_table(path: str | os.PathLike[str], na_values: Iterable[str] = (), decimal: str = ".") -> TableFile:
    """Find out the format and the column names of a file, or of a directory of Parquet files; "-" is standard input.

    `na_values` stand for missing values beside the usual words; `decimal` is "." or ",", in text files.
    """
    if decimal not in (".", ","):
        raise TableError(setting("decimal") + f" must be '.' or ','; got {decimal!r}.")
    source = path if isinstance(path, Input) else Input(path)
    source.check()
    table_format = _format_of(source)
    missing = MissingValues.of(na_values, in_text_file=table_format is DelimitedFile)
    return DelimitedFile(source, missing, decimal) if table_format is DelimitedFile else table_format(source, missing)


def _format_of(source: Input) -> type[DelimitedFile | ParquetFile | NumpyFile | RecordedFile]:
    if source.is_stream:
        with source.open() as file:
            start = file.read(max(map(len, _MAGIC)))
        return next((_MAGIC[magic] for magic in _MAGIC if start.startswith(magic)), DelimitedFile)
    if Path(source).is_dir():
        return ParquetFile
    name = os.fspath(source).lower()
    for suffix, table_format in _FORMATS.items():
        if name.endswith(suffix):
            return table_format
    if is_recorded(source):
        return RecordedFile
    excel = " Save the sheet as CSV." if name.endswith((".xls", ".xlsx", ".ods")) else ""
    raise TableError(f"{source.name}: unsupported file type. Its name must end with {', '.join(_FORMATS)}.{excel}")


class ParquetFile(TableFile):
    """A Parquet file, or the files of a folder below each other; its columns are read when they are asked for."""

    def __init__(self, source: Input, missing: MissingValues, place: Place | None = None) -> None:
        super().__init__(place or Place(source.name), missing)
        self._schema, self._groups = self._look(source.parts())
        self.names = [name for name in self._schema.names if not _PANDAS_INDEX.fullmatch(name)]
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise TableError(
                f"{self.path}: every column must have a unique name; got {listed(self._schema.names)}. Rename them."
            )
        if not self.names or self.n_rows == 0:
            raise without_values(self.path, len(self.names))

    @property
    def n_rows(self) -> int:
        return sum(n_rows for _, _, n_rows in self._groups)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each row group."""
        return np.cumsum([0, *(n_rows for _, _, n_rows in self._groups)])[:-1]

    def stored(self, names: list[str], as_text: Collection[str]) -> dict[str, Any]:
        tables = []
        for part, groups in self._row_groups():
            with self._open(part) as file:
                tables.append(file.read_row_groups(groups, columns=names))
        table = pa.concat_tables(tables)
        return {name: table.column(name) for name in names}

    def batches(self, only: Sequence[str], first_group: int, n_rows: int) -> Iterator[dict[str, Any]]:
        """Yield these columns as they are stored, at most `n_rows` rows at a time, from a row group on."""
        for part, groups in self._row_groups(first_group):
            with self._open(part) as file:
                for batch in file.iter_batches(n_rows, row_groups=groups, columns=list(only), use_threads=False):
                    yield {name: batch.column(name) for name in only}

    def pieces(self, most_rows: int) -> list[Self]:
        """Return each file by itself, or consecutive row groups of one that has more rows; each can be read alone."""
        found: list[list[tuple[Input, int, int]]] = []
        for group in self._groups:
            starts_file = not found or found[-1][0][0] is not group[0]
            if starts_file or sum(n_rows for _, _, n_rows in found[-1]) + group[2] > most_rows:
                found.append([])
            found[-1].append(group)
        pieces = []
        for groups in found:
            part, first, _ = groups[0]
            piece, is_whole = copy(self), len(groups) == sum(group[0] is part for group in self._groups)
            piece.place = Place(part.name if is_whole else f"{part.name}, from row group {first} on")
            piece._groups = groups
            pieces.append(piece)
        return pieces

    def number_type(self, name: str) -> np.dtype[Any] | None:
        """The type of a column of plain numbers, none of which stands for a missing value; None for any other."""
        types, kind = pa.types, self._schema.field(name).type
        is_plain = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        return np.dtype(kind.to_pandas_dtype()) if is_plain and not self.missing.numbers else None

    def close(self) -> None:
        """Nothing is open between passes."""

    def _look(self, parts: Sequence[Input]) -> tuple[Any, list[tuple[Input, int, int]]]:
        """The columns, which all parts must have, and the row groups: the part, the number in it, and the rows."""
        schema: Any = None
        groups: list[tuple[Input, int, int]] = []
        for part in parts:
            part.check_unchanged()
            with self._open(part) as file:
                own, metadata = file.schema_arrow.remove_metadata(), file.metadata
            groups += [(part, group, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]
            schema = own if schema is None else schema
            if own != schema:
                raise TableError(
                    f"{self.path}: all files must have the same columns, of the same types; {part.name} has "
                    f"{listed(f'{field.name} ({field.type})' for field in own)}, and {parts[0].name} "
                    f"{listed(f'{field.name} ({field.type})' for field in schema)}. Write them again with one schema."
                )
        return schema, groups

    def _row_groups(self, first: int = 0) -> Iterable[tuple[Input, list[int]]]:
        """The numbers of the row groups of each file, from a row group on; the files must be as they were."""
        found: dict[Input, list[int]] = {}
        for part, group, _ in self._groups[first:]:
            found.setdefault(part, []).append(group)
        for part in found:
            part.check_unchanged()
        return found.items()

    @contextmanager
    def _open(self, part: Input) -> Iterator[Any]:
        try:
            with part.open() as stream:
                content = stream if part.is_stream else part.name
                with pq.ParquetFile(content, pre_buffer=False, buffer_size=_PAGE_BYTES) as file:
                    yield file
        except MemoryError as error:  # of pyarrow too
            raise too_large(self.path) from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(
                f"{part.name} can't be read: it is not a Parquet file, or it is damaged. Write it again."
            ) from error


class NumpyFile(TableFile):
    """The arrays of a .npy or .npz file as columns; nothing in them is ever executed.

    An array is mapped anew for each part that is read, because mapped pages count as memory in use.
    """

    first_column_may_be_ids = False

    def __init__(self, source: Input, missing: MissingValues) -> None:
        super().__init__(Place(source.name), missing)
        source.check_unchanged()
        loaded, self._source = _load(source), source
        is_one = not isinstance(loaded, dict)
        self.is_mapped = is_one and not source.is_stream
        arrays = [("", loaded)] if is_one else loaded.items()
        for key, array in arrays:
            for name, column in self._split(array) if is_one or array.ndim != 1 else [(key, array)]:
                if not name or name in self.columns:
                    raise TableError(
                        f"{self.path} has column {quote(name)} more than once, or without a name. Rename it, or keep "
                        "one array of shape (n, d) for points or (n, 2, d) for pairs."
                    )
                self.columns[name] = column
        lengths = {len(column) if column.ndim == 1 else -1 for column in self.columns.values()}
        if len(lengths) > 1 or -1 in lengths:
            found = ", ".join(f"{quote(name)} {column.shape}" for name, column in list(self.columns.items())[:10])
            raise TableError(f"{self.path}: all arrays must have the same length, one value per row; got {found}.")
        if lengths in (set(), {0}):
            raise without_values(self.path, len(self.columns))
        self.names, self.n_rows = list(self.columns), lengths.pop()
        self._types = {name: column.dtype for name, column in self.columns.items()}
        if self.is_mapped:
            self.columns = {}

    @property
    def starts(self) -> NDArray[np.int64]:
        """Numbers of rows from which batches can begin."""
        return np.arange(0, self.n_rows, _MAPPED_ROWS)

    def stored(self, names: list[str], as_text: Collection[str]) -> dict[str, Any]:
        if not self.is_mapped:
            return super().stored(names, as_text)
        self._source.check_unchanged()
        columns = dict(self._split(_load(self._source)))
        return {name: columns[name] for name in names}

    def batches(self, only: Sequence[str], first_group: int, n_rows: int) -> Iterator[dict[str, Any]]:
        """Yield these columns, at most `n_rows` rows at a time, from one of the starts on."""
        for start in range(int(self.starts[first_group]), self.n_rows, n_rows):
            stored = self.stored(list(only), ())
            yield {name: column[start : start + n_rows] for name, column in stored.items()}

    def number_type(self, name: str) -> np.dtype[Any] | None:
        """The type of a column of plain numbers, none of which stands for a missing value; None for any other."""
        found = self._types[name]
        return found if found.kind in "iuf" and not self.missing.numbers else None

    def close(self) -> None:
        """Nothing is open between passes."""

    def _split(self, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The columns of one array."""
        names = [f"x{position}" for position in range(array.shape[-1] if array.ndim > 1 else 1)]
        if array.ndim == 3 and array.shape[1] == 2:
            for side, title in enumerate(("left", "right")):
                yield from ((f"{title}_{name}", column) for name, column in zip(names, array[:, side].T, strict=True))
        elif array.ndim in (1, 2):
            yield from zip(names, np.atleast_2d(array.T), strict=True)
        else:
            raise TableError(
                f"{self.path} has an array of shape {array.shape}; it must be (n, d) for points or (n, 2, d) for pairs."
            )


class RecordedFile(TableFile):
    """The judgements in a file that `closefar label` wrote, without those who can't say."""

    first_column_may_be_ids = False

    def __init__(self, source: Input, missing: MissingValues) -> None:
        super().__init__(Place(source.name), missing)
        answers = read_recorded(source)
        self.about, self.ids = answers.about, answers.ids
        self.columns = recorded_columns(answers)
        n_left, n_unsure = len(self.columns["time"]), len(answers) - len(self.columns["time"])
        if n_left == 0:
            unsure = f" but {counted(n_unsure, 'answer')} of can't say" if n_unsure else ""
            raise TableError(f"{self.path} has no judgements{unsure} yet. Judge something with `closefar label`.")
        self.notes = note_unsure(n_unsure, len(answers))
        self.names = list(self.columns)


@contextmanager
def loading(path: str) -> Iterator[None]:
    """What goes wrong when a NumPy file is opened is a TableError."""
    try:
        yield
    except MemoryError as error:
        raise too_large(path) from error
    except Exception as error:  # a damaged header fails in NumPy, zipfile, zlib, or Python's tokenizer
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"{path} is not a NumPy file of numbers and text, or it is damaged. Save it again with numpy.save, without "
            "Python objects, which could run code when read."
        ) from error


def _load(source: Input) -> Any:
    """The array of a .npy file, mapped where it can be, or those of a .npz file."""
    with loading(source.name), source.open() as file:
        if not source.is_stream and file.read(len(_NPY)) == _NPY:
            return np.asarray(np.load(source.name, mmap_mode="r", allow_pickle=False))
        file.seek(0)
        loaded: Any = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: np.asarray(loaded[name]) for name in loaded.files}


_FORMATS: dict[str, type[DelimitedFile | ParquetFile | NumpyFile | RecordedFile]] = {
    **dict.fromkeys(TEXT_SUFFIXES, DelimitedFile),
    **{f"{suffix}.gz": DelimitedFile for suffix in TEXT_SUFFIXES},
    **dict.fromkeys(PARQUET_SUFFIXES, ParquetFile),
    **dict.fromkeys((".npy", ".npz"), NumpyFile),
    ".sqlite": RecordedFile,
}
_MAGIC: dict[bytes, type[ParquetFile | NumpyFile | RecordedFile]] = {
    b"PAR1": ParquetFile,
    _NPY: NumpyFile,
    b"PK\x03\x04": NumpyFile,
    SIGNATURE: RecordedFile,
}
