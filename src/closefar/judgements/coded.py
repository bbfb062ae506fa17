"""Labels of very many pairs: the different words once, and a small number per pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import BoolArray

__all__ = ["CodedLabels"]


class CodedLabels:
    """A column of a few different words, which acts as an array of them, with one byte or two per row.

    Parameters
    ----------
    words : sequence of str
        The different labels.
    codes : array of n integers
        Which of them each row has.
    """

    def __init__(self, words: Any, codes: NDArray[Any]) -> None:
        self.words: NDArray[np.object_] = np.array(list(words), dtype=object)
        self.codes = codes

    @property
    def shape(self) -> tuple[int]:
        return (len(self.codes),)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.words.dtype

    @property
    def ndim(self) -> int:
        return 1

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        counts = ", ".join(f"{word!r}: {count:,}" for word, count in self.counts().items())
        return f"CodedLabels({counts})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("coded labels must be copied to become an array; got copy=False.")
        return np.asarray(self.words[self.codes], dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        codes = self.codes[key]
        return CodedLabels(self.words, codes) if np.ndim(codes) else self.words[codes]

    def __eq__(self, other: object) -> BoolArray:  # type: ignore[override]
        is_other = np.array([word == other for word in self.words], dtype=bool)
        found: BoolArray = is_other[self.codes]
        return found

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[str]:
        found: list[str] = self.words[self.codes].tolist()
        return found

    def counts(self) -> dict[str, int]:
        """How many rows have each of the labels that are there, in the order of the words."""
        counts = np.bincount(self.codes, minlength=len(self.words)).tolist()
        return {word: count for word, count in sorted(zip(self.words, counts, strict=True)) if count}
