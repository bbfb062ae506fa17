"""Text files that are read many times: parsed once into a temporary Parquet file, which is read instead."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from closefar.tables.arrow import has_text
from closefar.tables.delimited import DelimitedFile, LostTextError
from closefar.tables.errors import UnreadableError
from closefar.tables.inputs import Input
from closefar.tables.parquet import ParquetFile
from closefar.tables.values import MissingValues


class SpooledFile(ParquetFile):
    """Columns of a text file, in a temporary file that is removed with this object.

    Parameters
    ----------
    file : DelimitedFile
    only, as_text : names of columns
        Those to keep; and those that stay as they are written.
    """

    def __init__(self, file: DelimitedFile, only: Collection[str], as_text: Collection[str]) -> None:
        descriptor, path = tempfile.mkstemp(prefix="closefar-", suffix=".parquet")
        os.close(descriptor)
        self._remove = weakref.finalize(self, _remove, path)
        self._with_plus: set[str] = set()
        texts = set(as_text)
        while lost := self._write(path, file, only, texts):
            texts |= lost
        super().__init__(Input(path), file.missing, file.place)

    def close(self) -> None:
        """Remove the temporary file."""
        self._remove()

    def _missing_in(self, name: str) -> MissingValues:
        missing = self._missing
        return replace(missing, words=missing.words - missing.signs) if name in self._with_plus else missing

    def _write(self, path: str, file: DelimitedFile, only: Collection[str], texts: set[str]) -> set[str]:
        """Write the columns; returns those that turn out to be text after all, with which to begin again."""
        import pyarrow.parquet as pq

        writer: Any = None
        try:
            for table in file.tables(only, texts):
                if table is None:
                    continue
                strings = [field.name for field in table.schema if str(field.type) == "string"]
                self._with_plus |= {name for name in strings if has_text(table.column(name), "+")}
                with _room_on_disk(file.path):
                    if writer is None:
                        options = {"compression": "none", "use_dictionary": strings, "write_statistics": False}
                        writer = pq.ParquetWriter(path, table.schema, **options)
                    writer.write_table(table)
        except LostTextError as error:
            return set(error.names)
        finally:
            if writer is not None:
                with _room_on_disk(file.path):
                    writer.close()
        return set()

    def __getstate__(self) -> dict[str, Any]:
        """A copy uses the file, but does not remove it."""
        return {**vars(self), "_remove": _keep}


@contextmanager
def _room_on_disk(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableError(
            f"{path} can't be read: the temporary file for its numbers can't be written to {tempfile.gettempdir()} "
            f"({error.strerror or error}). Make room there, or set TMPDIR to a folder with more."
        ) from error


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def _keep() -> None:
    """Leave the file to the object that made it."""
