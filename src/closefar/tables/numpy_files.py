"""Reading .npy and .npz: arrays become named columns.  Nothing in them is ever executed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from closefar.tables.arrow import load_arrow
from closefar.tables.errors import Place, TableError, listed, not_a_column, quoted, too_large, without_values
from closefar.tables.ids import as_id_column
from closefar.tables.inputs import Input
from closefar.tables.values import MissingValues, standard_column, to_text

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_NAMES_OF_COLUMNS = ("columns", "feature_names")


class NumpyFile:
    """The arrays of a .npy or .npz file as columns."""

    def __init__(self, source: Input, missing: MissingValues) -> None:
        self.path = source.name
        self.place = Place(self.path, first_row=0)
        self._missing = missing
        self.first_column_may_be_ids = False
        self._columns: dict[str, NDArray[Any]] = {}
        loaded = _load(source)
        if isinstance(loaded, dict):
            self._add_named(loaded)
        else:
            self._add_array(loaded)
        self._check_lengths()
        self.names = list(self._columns)

    def read(self, only: Collection[str], as_text: Collection[str], as_ids: Collection[str] = ()) -> dict[str, Any]:
        """Return these columns; those `as_text` become text, 17 as "17", and those `as_ids` pyarrow's."""
        return {
            name: self._converted(name, as_text=name in as_text, is_id=name in as_ids)
            for name in self.names
            if name in only
        }

    def _converted(self, name: str, *, as_text: bool, is_id: bool) -> Any:
        try:
            if is_id:
                load_arrow(self.path)
                return as_id_column(self._columns[name], self._missing.words)
            column = to_text(self._columns[name]) if as_text else standard_column(self._columns[name])
        except (TypeError, UnicodeDecodeError) as error:
            raise not_a_column(self.path, name, error, is_id=is_id) from error
        return np.array(self._missing.in_column(column))  # a copy, because the file may change

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
            raise TableError(f"{self.path} has column {quoted(name)} more than once, or without a name. Rename it.")
        self._columns[name] = column

    def _check_lengths(self) -> None:
        lengths = {name: len(column) if column.ndim == 1 else -1 for name, column in self._columns.items()}
        if len(set(lengths.values())) > 1 or -1 in lengths.values():
            found = ", ".join(f"{quoted(name)} {self._columns[name].shape}" for name in list(lengths)[:10])
            raise TableError(f"{self.path}: all arrays must have the same length, one value per row; got {found}.")
        if not lengths or 0 in lengths.values():
            raise without_values(self.path, len(lengths))


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
    with loading(source.name):
        return np.asarray(np.load(source.name, mmap_mode="r", allow_pickle=False))


def _load_archive(path: str, file: BinaryIO) -> dict[str, NDArray[Any]]:
    with np.load(file, allow_pickle=False) as loaded:
        arrays = {name: loaded[name] for name in loaded.files}
    others = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if others:
        raise TableError(f"{path} must hold arrays only; got {listed(others)}. Save it again with numpy.savez.")
    return arrays
