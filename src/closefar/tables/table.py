"""A table: named columns of one length, read from any file format that people have."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from closefar.tables.delimited import DelimitedFile
from closefar.tables.errors import TEXT_SUFFIXES, TableError, UnreadableError, refuse_unknown
from closefar.tables.numpy_files import NumpyFile
from closefar.tables.parquet import ParquetFile

__all__ = ["Table", "TableFile", "open_table", "read_table"]


class TableFile(Protocol):
    """A file whose column names are known, and whose columns can be read."""

    path: str
    names: list[str]
    first_column_may_be_ids: bool  # not in a plain array, which holds nothing but numbers

    def read(self, only: Collection[str], as_text: Collection[str]) -> dict[str, NDArray[Any]]: ...


_FORMATS: dict[str, type[DelimitedFile] | type[ParquetFile] | type[NumpyFile]] = {
    **dict.fromkeys(TEXT_SUFFIXES, DelimitedFile),
    **{f"{suffix}.gz": DelimitedFile for suffix in TEXT_SUFFIXES},
    **dict.fromkeys((".parquet", ".pq"), ParquetFile),
    **dict.fromkeys((".npy", ".npz"), NumpyFile),
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


def open_table(path: str | os.PathLike[str]) -> TableFile:
    """Find out the format and the column names of a file."""
    path = os.fspath(path)
    if os.path.isdir(path):
        raise UnreadableError(f"{path} is a directory. Name a file in it.")
    if not os.path.exists(path):
        raise UnreadableError(f"{path} does not exist. Check the path.")
    if not os.path.isfile(path):  # a pipe would be waited for, and could be read but once
        raise UnreadableError(f"{path} is not a regular file. Write the table to one first.")
    if not os.access(path, os.R_OK):
        raise UnreadableError(f"{path} can't be read: there is no permission. Change the rights of the file.")
    suffixes = Path(path.lower()).suffixes
    for suffix in ("".join(suffixes[-2:]), "".join(suffixes[-1:])):
        if suffix in _FORMATS:
            return _FORMATS[suffix](path)
    excel = " Save the sheet as CSV." if suffixes[-1:] in ([".xls"], [".xlsx"], [".ods"]) else ""
    raise TableError(f"{path} is of no format that is read: its name must end in {', '.join(_FORMATS)}.{excel}")


def read_table(path: str | os.PathLike[str], *, as_text: Collection[str] = ()) -> Table:
    r"""Read a table from a .csv, .tsv or .txt file (also .gz), or a .parquet, .npy or .npz one.

    Text files are UTF-8, begin with a row of column names, and separate columns with commas,
    semicolons, tabs or bars.  An empty field, NA, N/A, n/a, NaN, nan, null, NULL and None mean
    that a value is missing.  A column is numbers, or true and false, if all its values are.

    Parameters
    ----------
    path : str or Path
    as_text : names of columns
        Those that stay as they are written, such as ids: "007" and not 7.

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
    file = open_table(path)
    refuse_unknown(file.path, as_text, file.names, "which was to stay text")
    return Table(file.path, file.read(file.names, as_text))
