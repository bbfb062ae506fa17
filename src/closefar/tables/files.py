"""A table: named columns of one length, in any file format that people have."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from closefar.errors import setting
from closefar.tables import arrow
from closefar.tables.delimited import DelimitedFile
from closefar.tables.errors import (
    TEXT_SUFFIXES,
    Place,
    TableError,
    counted,
    listed,
    not_a_column,
    quote,
    refuse_unknown,
    too_large,
    without_values,
)
from closefar.tables.inputs import PARQUET_SUFFIXES, Input, check_unchanged
from closefar.tables.recorded import SIGNATURE, is_recorded, note_unsure, read_recorded, recorded_columns
from closefar.tables.values import MissingValues, standard_column, to_text

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # pandas' row numbers, which nobody measured
_PAGE_BYTES = 1 << 16  # read at a time, 64 KiB, so that a row group is never in memory as a whole
_NPY, _ZIP = b"\x93NUMPY", b"PK"
_NAMES_OF_COLUMNS = ("columns", "feature_names")


class TableFile(Protocol):
    """A file whose column names are known, and whose columns can be read."""

    place: Place
    names: list[str]
    first_column_may_be_ids: bool  # not in a plain array, which holds nothing but numbers

    @property
    def path(self) -> str:
        """What messages call it."""

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]: ...


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
    ``sep=;`` gives the separator.  An empty field, - (unless the column has + as well), NA, N/A, n/a,
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
    suffixes = Path(os.fspath(source).lower()).suffixes
    for suffix in ("".join(suffixes[-2:]), "".join(suffixes[-1:])):
        if suffix in _FORMATS:
            return _FORMATS[suffix]
    if is_recorded(source):
        return RecordedFile
    excel = " Save the sheet as CSV." if suffixes[-1:] in ([".xls"], [".xlsx"], [".ods"]) else ""
    raise TableError(f"{source.name}: unsupported file type. Its name must end with {', '.join(_FORMATS)}.{excel}")


class ParquetFile:
    """A Parquet file, or the files of a folder below each other; its columns are read when they are asked for."""

    first_column_may_be_ids = True

    def __init__(self, source: Input, missing: MissingValues, place: Place | None = None) -> None:
        self.place = place or Place(source.name, first_row=0)
        self._missing = missing
        parts = source.parts()
        self._stamps = {part: part.stamp() for part in parts}
        self._schema, self._groups = self._look(parts)
        self.names = [name for name in self._schema.names if not _PANDAS_INDEX.fullmatch(name)]
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise TableError(
                f"{self.path}: every column must have a unique name; got {listed(self._schema.names)}. Rename them."
            )
        if not self.names or self.n_rows == 0:
            raise without_values(self.path, len(self.names))

    @property
    def path(self) -> str:
        return self.place.path

    @property
    def _arrow(self) -> Any:
        return arrow.require(self.path)

    @property
    def n_rows(self) -> int:
        return sum(n_rows for _, _, n_rows in self._groups)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each row group."""
        return np.cumsum([0, *(n_rows for _, _, n_rows in self._groups)])[:-1]

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Read these columns; those `as_text` become text, 17 as "17", and those `as_ids` stay pyarrow's."""
        wanted = [name for name in self.names if name in only]
        tables = []
        for part, groups in self._row_groups():
            with self._open(part) as file:
                tables.append(file.read_row_groups(groups, columns=wanted))
        table = self._arrow.concat_tables(tables)
        columns = {name: table.column(name) for name in wanted}
        del table, tables  # so that a column can go when its array is made
        return {
            name: self.converted(columns.pop(name), name, as_text=name in as_text, is_id=name in as_ids)
            for name in wanted
        }

    def batches(self, only: Sequence[str], first_group: int, n_rows: int) -> Iterator[Any]:
        """Yield tables of these columns, at most `n_rows` rows each, from a row group on."""
        for part, groups in self._row_groups(first_group):
            with self._open(part) as file:
                yield from file.iter_batches(n_rows, row_groups=groups, columns=list(only), use_threads=False)

    def pieces(self, most_rows: int) -> list[Self]:
        """Return each file by itself, or consecutive row groups of one that has more rows; each can be read alone."""
        found: list[list[tuple[Input, int, int]]] = []
        for group in self._groups:
            starts_file = not found or found[-1][0][0] is not group[0]
            if starts_file or sum(n_rows for _, _, n_rows in found[-1]) + group[2] > most_rows:
                found.append([])
            found[-1].append(group)
        return [self._piece(groups) for groups in found]

    def _piece(self, groups: list[tuple[Input, int, int]]) -> Self:
        part, first, _ = groups[0]
        piece, is_whole = copy(self), len(groups) == sum(group[0] is part for group in self._groups)
        piece.place = Place(part.name if is_whole else f"{part.name}, from row group {first} on", first_row=0)
        piece._stamps, piece._groups = {part: self._stamps[part]}, groups
        return piece

    def number_type(self, name: str) -> np.dtype[Any] | None:
        """The type of a column of plain numbers, none of which stands for a missing value; None for any other."""
        types, kind = self._arrow.types, self._schema.field(name).type
        is_plain = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        return np.dtype(kind.to_pandas_dtype()) if is_plain and not self._missing.has_numbers else None

    def close(self) -> None:
        """Nothing is open between passes."""

    def converted(self, column: Any, name: str, *, as_text: bool, is_id: bool = False) -> Any:
        """Values of pyarrow as a column of one of the kinds of `closefar.tables.values`, or as ids."""
        missing, types = self._missing_in(name), self._arrow.types
        try:
            if is_id:
                return arrow.as_id_column(column, missing.words)
            column = arrow.decoded(column if hasattr(column, "chunks") else self._arrow.chunked_array([column]))
            is_boolean = types.is_boolean(column.type)
            if types.is_string(column.type):
                return arrow.shared_texts(column, missing.words)
            if is_boolean and not as_text and not column.null_count:
                return np.asarray(column.to_numpy())
            return missing.in_column(arrow.texts_of(column) if as_text or is_boolean else arrow.numbers_of(column))
        except TypeError as error:
            raise not_a_column(self.path, name, error, is_id=is_id) from error

    def _missing_in(self, name: str) -> MissingValues:
        return self._missing

    def _look(self, parts: Sequence[Input]) -> tuple[Any, list[tuple[Input, int, int]]]:
        """The columns, which all parts must have, and the row groups: the part, the number in it, and the rows."""
        schema: Any = None
        groups: list[tuple[Input, int, int]] = []
        for part in parts:
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
        check_unchanged(self._stamps)
        found: dict[Input, list[int]] = {}
        for part, group, _ in self._groups[first:]:
            found.setdefault(part, []).append(group)
        return found.items()

    @contextmanager
    def _open(self, part: Input) -> Iterator[Any]:
        try:
            if part.is_stream:
                with part.open() as stream:
                    yield self._arrow.parquet.ParquetFile(stream)
            else:
                with self._arrow.parquet.ParquetFile(part.name, pre_buffer=False, buffer_size=_PAGE_BYTES) as file:
                    yield file
        except MemoryError as error:  # of pyarrow too
            raise too_large(self.path) from error
        except (self._arrow.ArrowException, OSError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(
                f"{part.name} can't be read: it is not a Parquet file, or it is damaged. Write it again."
            ) from error


class _ArrayFile:
    """Arrays as columns."""

    path: str
    names: list[str]
    _missing: MissingValues
    _columns: dict[str, NDArray[Any]]

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Return these columns; those `as_text` become text, 17 as "17", and those `as_ids` integers or pyarrow's."""
        found = {}
        for name in self.names:
            is_id, column = name in as_ids, self._columns[name]
            try:
                if is_id:
                    arrow.require(self.path)
                    is_integer = column.dtype.kind == "i"  # not copied, as row numbers of points are not joined
                    found[name] = column if is_integer else arrow.as_id_column(column, self._missing.words)
                elif name in only:
                    column = to_text(column) if name in as_text else standard_column(column)
                    found[name] = np.array(self._missing.in_column(column))  # a copy, because the file may change
            except (TypeError, UnicodeDecodeError) as error:
                raise not_a_column(self.path, name, error, is_id=is_id) from error
        return found


class NumpyFile(_ArrayFile):
    """The arrays of a .npy or .npz file as columns; nothing in them is ever executed."""

    def __init__(self, source: Input, missing: MissingValues) -> None:
        self.path = source.name
        self.place = Place(self.path, first_row=0)
        self._missing = missing
        self.first_column_may_be_ids = False
        self._columns = {}
        loaded = _load(source)
        if isinstance(loaded, dict):
            self._add_named(loaded)
        else:
            self._add_array(loaded)
        lengths = {len(column) if column.ndim == 1 else -1 for column in self._columns.values()}
        if len(lengths) > 1 or -1 in lengths:
            found = ", ".join(f"{quote(name)} {column.shape}" for name, column in list(self._columns.items())[:10])
            raise TableError(f"{self.path}: all arrays must have the same length, one value per row; got {found}.")
        if lengths in (set(), {0}):
            raise without_values(self.path, len(self._columns))
        self.names = list(self._columns)

    def _add_named(self, arrays: dict[str, NDArray[Any]]) -> None:
        wide = [name for name, array in arrays.items() if array.ndim >= 2]
        if len(wide) > 1:
            raise TableError(
                f"{self.path} has several arrays with more than one axis: {listed(wide)}. Keep one, of shape (n, d) "
                "for points or (n, 2, d) for pairs; numpy.stack([left, right], axis=1) makes pairs."
            )
        width = arrays[wide[0]].shape[-1] if wide else -1
        names = None
        for key in _NAMES_OF_COLUMNS:
            if key in arrays and arrays[key].dtype.kind in "US" and arrays[key].shape == (width,):
                names = standard_column(arrays.pop(key)).tolist()
        for key, array in arrays.items():
            if array.ndim == 1:
                self._add(key, array)
            else:
                self._add_array(array, names)

    def _add_array(self, array: NDArray[Any], names: list[str] | None = None) -> None:
        if array.dtype.names is not None and array.ndim == 1:
            self.first_column_may_be_ids = True
            for name in array.dtype.names:
                self._add(name, array[name])
            return
        names = names or [f"x{position}" for position in range(array.shape[-1] if array.ndim > 1 else 1)]
        if array.ndim == 3 and array.shape[1] == 2:
            for side, title in enumerate(("left", "right")):
                for position, name in enumerate(names):
                    self._add(f"{title}_{name}", array[:, side, position])
        elif array.ndim in (1, 2):
            for name, column in zip(names, np.atleast_2d(array.T), strict=True):
                self._add(name, column)
        else:
            raise TableError(
                f"{self.path} has an array of shape {array.shape}; it must be (n, d) for points or (n, 2, d) for pairs."
            )

    def _add(self, name: str, column: NDArray[Any]) -> None:
        if not name or name in self._columns:
            raise TableError(f"{self.path} has column {quote(name)} more than once, or without a name. Rename it.")
        self._columns[name] = column


class RecordedFile(_ArrayFile):
    """The judgements in a file that `closefar label` wrote, without those who can't say."""

    first_column_may_be_ids = False

    def __init__(self, source: Input, missing: MissingValues) -> None:
        self.path = source.name
        self.place = Place(self.path, first_row=0)
        self._missing = missing
        answers = read_recorded(source)
        self.about, self.ids = answers.about, answers.ids
        self._columns = recorded_columns(answers)
        n_left, n_unsure = len(self._columns["time"]), len(answers) - len(self._columns["time"])
        if n_left == 0:
            unsure = f" but {counted(n_unsure, 'answer')} of can't say" if n_unsure else ""
            raise TableError(f"{self.path} has no judgements{unsure} yet. Judge something with `closefar label`.")
        self.notes = note_unsure(n_unsure, len(answers))
        self.names = list(self._columns)


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
        if "bject" in str(error):  # NumPy says "Object arrays" and "Python objects"
            raise TableError(
                f"{path} has an array of Python objects, which could run code when read. Save numbers or text "
                "instead, with array.astype(float) or array.astype(str)."
            ) from error
        raise TableError(f"{path} is not a NumPy file, or it is damaged. Save it again with numpy.save.") from error


def _load(source: Input) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of a .npy file, mapped where it can be, or those of a .npz file."""
    with loading(source.name), source.open() as file:
        start = file.read(len(_NPY))
        file.seek(0)
        is_archive = start.startswith(_ZIP) if source.is_stream else source.name.lower().endswith(".npz")
        if not start.startswith(_ZIP if is_archive else _NPY):
            raise ValueError("its first bytes are of another format")
        if is_archive:
            return _load_archive(source.name, file)
        if source.is_stream:
            return np.asarray(np.load(file, allow_pickle=False))
        return np.asarray(np.load(source.name, mmap_mode="r", allow_pickle=False))


def _load_archive(path: str, file: Any) -> dict[str, NDArray[Any]]:
    with np.load(file, allow_pickle=False) as loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if others:
        raise TableError(f"{path} must hold arrays only; got {listed(others)}. Save it again with numpy.savez.")
    return arrays


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
