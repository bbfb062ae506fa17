"""A table as the content of a file: whole, or some rows after the others."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.errors import TableError
from closefar.tables.values import pa, pq

Columns = Mapping[str, NDArray[Any]]
Blocks = Iterable[Columns]


def encode_table(columns: Columns, path: Path) -> bytes:
    """Return what a file of that name holds; a number reads back as the very same one."""
    content = io.BytesIO()
    write_table([columns], path, content)
    return content.getvalue()


def write_table(blocks: Blocks, path: Path, file: IO[bytes]) -> None:
    """Write a table, given some rows at a time, in the format that a file of that name has."""
    for suffix, write in _FORMATS.items():
        if path.name.lower().endswith(suffix):
            write(blocks, file)
            return
    raise TableError(f"can't write {path}: unsupported file type. Its name must end with {', '.join(_FORMATS)}.")


def csv_parts(blocks: Blocks, separator: str = ",") -> Iterator[bytes]:
    """Give the text of a table, some rows at a time; the first has the column names."""
    for number, columns in enumerate(blocks):
        text = io.StringIO()
        writer = csv.writer(text, delimiter=separator, lineterminator="\n")
        if number == 0:
            writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
        yield text.getvalue().encode("utf-8", "surrogatepass")


def _gzipped_csv(blocks: Blocks, file: IO[bytes]) -> None:
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as compressed:
        compressed.writelines(csv_parts(blocks))


def _parquet(blocks: Blocks, file: IO[bytes]) -> None:
    with ExitStack() as stack:
        writer: Any = None
        for columns in blocks:
            table = pa.table({name: pa.array(values) for name, values in columns.items()})
            writer = writer or stack.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)


def _npz(blocks: Blocks, file: IO[bytes]) -> None:
    parts = list(blocks)
    with zipfile.ZipFile(file, "w") as archive:  # numpy.savez has names of its own, such as file
        for name in parts[0]:
            values = parts[0][name] if len(parts) == 1 else np.concatenate([columns[name] for columns in parts])
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, values.astype(str) if values.dtype == object else values, allow_pickle=False)


_FORMATS: dict[str, Callable[[Blocks, IO[bytes]], None]] = {
    ".csv": lambda blocks, file: file.writelines(csv_parts(blocks)),
    ".csv.gz": _gzipped_csv,
    ".tsv": lambda blocks, file: file.writelines(csv_parts(blocks, "\t")),
    ".parquet": _parquet,
    ".npz": _npz,
}
