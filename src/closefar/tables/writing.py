"""A table as the content of a file."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.errors import TableError

__all__ = ["encode_table"]

Columns = Mapping[str, NDArray[Any]]


def encode_table(columns: Columns, path: Path) -> bytes:
    """Return what a file of that name holds; a number reads back as the very same one."""
    for suffix, encode in _FORMATS.items():
        if path.name.lower().endswith(suffix):
            return encode(columns)
    raise TableError(f"can't write {path}: unsupported file type. Its name must end with {', '.join(_FORMATS)}.")


def _csv(columns: Columns) -> bytes:
    return _separated(columns, ",")


def _gzipped_csv(columns: Columns) -> bytes:
    return gzip.compress(_csv(columns), mtime=0)


def _tsv(columns: Columns) -> bytes:
    return _separated(columns, "\t")


def _separated(columns: Columns, separator: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue().encode("utf-8", "surrogatepass")


def _parquet(columns: Columns) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("Writing Parquet needs pyarrow: run pip install 'closefar[parquet]'.") from error
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), buffer)
    return buffer.getvalue()


def _npz(columns: Columns) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # numpy.savez has names of its own, such as file
        for name, values in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.save(file, values.astype(str) if values.dtype == object else values, allow_pickle=False)
    return buffer.getvalue()


_FORMATS: dict[str, Callable[[Columns], bytes]] = {
    ".csv": _csv,
    ".csv.gz": _gzipped_csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".npz": _npz,
}
