"""A table: named columns of one length, read from any file format that people have."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from closefar.tables.delimited import DelimitedFile
from closefar.tables.errors import TEXT_SUFFIXES, Place, TableError, refuse_unknown
from closefar.tables.inputs import PARQUET_SUFFIXES, Input
from closefar.tables.numpy_files import NumpyFile
from closefar.tables.parquet import ParquetFile
from closefar.tables.recorded import SIGNATURE, RecordedFile, is_recorded
from closefar.tables.values import MissingValues


class TableFile(Protocol):
    """A file whose column names are known, and whose columns can be read."""

    path: str  # what messages call it
    place: Place
    names: list[str]
    first_column_may_be_ids: bool  # not in a plain array, which holds nothing but numbers

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]: ...


Format = type[DelimitedFile] | type[ParquetFile] | type[NumpyFile] | type[RecordedFile]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys(TEXT_SUFFIXES, DelimitedFile),
    **{f"{suffix}.gz": DelimitedFile for suffix in TEXT_SUFFIXES},
    **dict.fromkeys(PARQUET_SUFFIXES, ParquetFile),
    **dict.fromkeys((".npy", ".npz"), NumpyFile),
    ".sqlite": RecordedFile,
}
_MAGIC: dict[bytes, Format] = {
    b"PAR1": ParquetFile,
    b"\x93NUMPY": NumpyFile,
    b"PK\x03\x04": NumpyFile,
    SIGNATURE: RecordedFile,
}


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


def open_table(path: str | os.PathLike[str], na_values: Iterable[str] = ()) -> TableFile:
    """Find out the format and the column names of a file, or of a directory of Parquet files; "-" is standard input.

    `na_values` stand for missing values beside the usual words.
    """
    source = path if isinstance(path, Input) else Input(path)
    source.check()
    table_format = _format_of(source)
    missing = MissingValues.of(na_values, in_text_file=table_format is DelimitedFile)
    return table_format(source, missing)


def _format_of(source: Input) -> Format:
    if source.is_stream:
        with source.open() as file:
            start = file.read(16)
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


def read_table(path: str | os.PathLike[str], *, as_text: Collection[str] = (), na_values: Iterable[str] = ()) -> Table:
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
    file = open_table(path, na_values)
    refuse_unknown(file.path, as_text, file.names, "which was to be read as text")
    columns = file.read(file.names, as_text)
    return Table(file.path, {name: np.require(column, requirements="W") for name, column in columns.items()})
