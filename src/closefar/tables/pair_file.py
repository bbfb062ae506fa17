"""Pairs in a file, opened rather than read: rows for the learner, with the labels and all that is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import Array, FloatArray
from closefar.judgements import CodedLabels
from closefar.rows import Chunks, StreamedRows
from closefar.tables.encoding import Encoding
from closefar.tables.errors import in_words_of_python
from closefar.tables.ids import Ids
from closefar.tables.values import fixed_width, is_number, texts_of

_BYTES = np.iinfo(np.int8).max


class PointChunks(Chunks, Protocol):
    """Chunks that know the points as well as their differences."""

    def points(self) -> Iterator[FloatArray]:
        """Give single points, (m, d), or both points of each pair, (m, 2, d)."""


class PairFile(StreamedRows):
    """Pairs, or single points, in a file that is read in each pass; `closefar.open_pairs` opens one.

    It acts as an array of the differences, or points, of shape (n, d), of which a few rows are in memory
    at a time: learners and questions take it, and a slice, an index array or a mask selects rows, and
    `numpy.asarray` reads them all.
    Leaving a ``with`` block closes it.

    Attributes
    ----------
    labels : array of n labels, or None
        Numbers where all labels are whole numbers, bools where they are true or false, otherwise text
        with a byte per pair.
    weights : array of n numbers, or None
    groups : array of n texts, or None
        Which pairs belong together.
    annotators : array of n texts, or None
        Who judged each pair.
    encoding : Encoding
        How the columns became numbers; pass it to `open_pairs` with new data.
    feature_names : tuple of str
    notes : tuple of str
        Sentences about what was left out or ignored.
    is_single : bool
        Whether each row is a point, or a difference, and not a pair of points.
    id_names : tuple of str
        What the columns of `ids` are called.
    speaks_python : bool
        Whether errors in a pass name arguments of Python rather than options of the command line.
    """

    are_comparisons = False
    comparisons = None

    def __init__(
        self,
        chunks: PointChunks,
        encoding: Encoding,
        *,
        is_single: bool,
        labels: Any = None,
        weights: FloatArray | None = None,
        groups: Any = None,
        annotators: Any = None,
        read_ids: Callable[[], Ids],
        id_names: Sequence[str] = ("row",),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(chunks)
        self.encoding, self.is_single = encoding, is_single
        self.labels, self.weights, self.groups, self.annotators = labels, weights, groups, annotators
        self.id_names, self.notes = tuple(id_names), tuple(notes)
        self._points, self._read_ids = chunks, read_ids
        self.speaks_python = False

    def __repr__(self) -> str:
        return f"PairFile({self.n_rows:,} {'rows' if self.is_single else 'pairs'} of {self.n_columns} columns)"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read_as(self, where: slice, dtype: np.dtype[Any]) -> Array:
        with in_words_of_python() if self.speaks_python else nullcontext():
            return super().read_as(where, dtype)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.encoding.feature_names

    @property
    def data(self) -> Self:
        """The rows themselves, so that ``fit(opened.data, opened.labels)`` reads as it does for a table in memory."""
        return self

    @cached_property
    def identity(self) -> Ids:
        """The ids, read when they are first asked for."""
        return self._read_ids()

    @property
    def ids(self) -> NDArray[np.object_]:
        """The ids as text: shape (n, 2) where both sides have an id, else (n,): ids, or row numbers as in the file."""
        return self.identity.texts

    def with_labels(self, labels: Any) -> Self:
        """The same rows, which from now on have these labels."""
        self.labels = labels
        return self

    def point_blocks(self) -> Iterator[FloatArray]:
        """Give the single points, (m, d), or both points of each pair, (m, 2, d), some rows at a time."""
        return self._points.points()


def coded(column: Any) -> CodedLabels:
    """A column of pyarrow's, or of text, as codes of the different values as text; -1 where one is missing."""
    import pyarrow as pa

    if isinstance(column, np.ndarray):
        column = pa.chunked_array([pa.array(column, pa.string())])
    chunks = column.dictionary_encode().chunks
    words = texts_of(chunks[0].dictionary)
    kind = np.int8 if len(words) <= _BYTES else np.int32
    return CodedLabels(
        words, np.concatenate([fixed_width(chunk.indices, np.int32, -1).astype(kind) for chunk in chunks])
    )


def natural(labels: CodedLabels) -> Any:
    """Labels as numbers, or true and false, where they are; otherwise themselves."""
    words = labels.words.tolist()
    if {word.lower() for word in words} <= {"true", "false"}:
        return np.array([word.lower() == "true" for word in words])[labels.codes]
    if all(is_number(word) and float(word).is_integer() and abs(float(word)) <= _BYTES for word in words):
        return np.array([int(float(word)) for word in words], dtype=np.int8)[labels.codes]
    return labels
