"""The size of a planned run, and sizes as people write them: 1e10, 10_000_000, 10M, 64GB."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from closefar.errors import InvalidValueError, setting
from closefar.packed import packed_size

__all__ = ["RunSize", "parse_bytes", "parse_count"]

_LARGEST = 10**18

_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BINARY_BYTES = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_NUMBER = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]*)?(?:e\+?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_count(value: str | float, name: str) -> int:
    """Return a whole number >= 1 from a number or from text such as 1e10, 10_000_000 or 10M.

    Examples
    --------
    >>> from closefar.cost import parse_count
    >>> parse_count("1e10", "n_pairs"), parse_count("10M", "n_pairs")
    (10000000000, 10000000)
    """
    number = _parsed(value, _COUNTS)
    if number is None or not 1 <= number <= _LARGEST or number != int(number):
        raise ValueError(
            f"{name} must be a whole number from 1 to {_LARGEST:.0e}, such as 50000, 10_000_000, 10M or 1e10; "
            f"got {value!r}."
        )
    return int(number)


def parse_bytes(value: str | float, name: str) -> int:
    """Return a number of bytes from a number or from text such as 64GB or 512MiB.

    Examples
    --------
    >>> from closefar.cost import parse_bytes
    >>> parse_bytes("64GB", "memory")
    64000000000
    """
    number = _parsed(value, {"": 1} | _BYTES | _BINARY_BYTES)
    if number is None or not 1 <= number <= _LARGEST:
        raise ValueError(f"{name} must be a number of bytes, such as 64GB, 512MiB or 8e9; got {value!r}.")
    return int(number)


def _parsed(value: str | float, units: dict[str, int]) -> float | int | None:
    """The number times its unit; None if it is not a finite number with a known unit."""
    if isinstance(value, bool):
        return None
    if not isinstance(value, str):
        return value if math.isfinite(value) else None
    found = _NUMBER.fullmatch(value)
    if found is None or found[2].lower() not in units:
        return None
    digits = re.sub("[_,]", "", found[1])
    number = int(digits) if digits.isdigit() else float(digits)
    return number * units[found[2].lower()] if math.isfinite(number) else None


@dataclass(frozen=True)
class RunSize:
    """The data of a planned run, and the limit on the rank of M.

    Attributes
    ----------
    n_pairs, n_features : int
        A comparison counts as two pairs, its legs.
    rank : int or None
        The largest rank of M.
    n_points : int or None
        The number of points, if pairs are given by index.
    dtype : {"float64", "float32"}
        The numbers of the data.
    are_differences : bool
        Whether the data are differences, (n, d), not pairs of points, (n, 2, d).
    n_comparisons : int
        How many comparisons there are, whose legs are among the pairs.
    """

    n_pairs: int
    n_features: int
    rank: int | None = None
    n_points: int | None = None
    dtype: str = "float64"
    are_differences: bool = False
    n_comparisons: int = 0

    def __post_init__(self) -> None:
        if self.rank is not None and not 1 <= self.rank <= self.n_features:
            raise InvalidValueError(
                "rank", f"must be a whole number from 1 to the {self.n_features} features", self.rank
            )
        if self.n_points is not None and self.n_points < 2:
            raise ValueError(setting("n_points") + f" must be at least 2, or there are no pairs; got {self.n_points}.")
        if self.dtype not in ("float64", "float32"):
            raise InvalidValueError("dtype", 'must be "float64" or "float32"', self.dtype)

    @property
    def n_parameters(self) -> int:
        """The number of entries of M, which is symmetric."""
        return packed_size(self.n_features)

    @property
    def n_judgements(self) -> int:
        return self.n_pairs - self.n_comparisons

    @property
    def pairs_per_parameter(self) -> float:
        """Judgements per parameter: pairs and comparisons."""
        return self.n_judgements / self.n_parameters

    @property
    def number_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 8

    @property
    def pair_bytes(self) -> float:
        """The bytes of one pair in the data; of a pair by index, those of its two numbers."""
        if self.n_points is not None:
            return 16.0
        return (1.0 if self.are_differences else 2.0) * self.number_bytes * self.n_features

    @property
    def data_bytes(self) -> float:
        """The bytes of the data without labels."""
        points = 0.0 if self.n_points is None else 8.0 * self.n_points * self.n_features
        return self.pair_bytes * self.n_pairs + points
