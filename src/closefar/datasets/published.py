"""Readers of the paper's real data sets, as published."""

from __future__ import annotations

import csv
import gzip
import warnings
import zlib
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from sklearn.utils import Bunch

from closefar.arrays import FloatArray

__all__ = ["load_airline", "load_combustion"]

# In the order in which the paper lists them: the first word becomes 0, the second 1, the third 2.
AIRLINE_WORDS = {
    "Gender": ("female", "male"),
    "Customer Type": ("loyal customer", "disloyal customer"),
    "Type of Travel": ("business travel", "personal travel"),
    "Class": ("eco", "eco plus", "business"),
    "satisfaction": ("neutral or dissatisfied", "satisfied"),
}
ARRIVAL_DELAY = "Arrival Delay in Minutes"
# Row numbers, which carry no information: an unnamed index, as pandas writes or names it, and the id.
ROW_NUMBERS = ("", "Unnamed: 0", "id")


def load_combustion(folder: Any) -> Bunch:
    """Read states of hydrogen/air flames, such as those of Zdybał et al. (2022).

    Parameters
    ----------
    folder : path
        A folder with the files, plain or as .csv.gz, ``*state-space.csv`` (one state per row),
        ``*state-space-names.csv`` (the names of its columns), ``*mixture-fraction.csv``
        (one number per state) and optionally ``*basis*.csv`` (one row per column of the
        states); numbers without a header.

    Returns
    -------
    Bunch
        ``data`` (n, 9): the temperature and 8 mass fractions, named in ``feature_names``;
        ``target`` (n,): the mixture fraction; ``transformation`` (9, 3): the engineered
        map to fewer features, or None; ``DESCR``.
    """
    home = Path(folder).expanduser()
    if not home.is_dir():
        raise FileNotFoundError(f"folder must be an existing folder; got {home}.")
    states = _read_numbers(_only_csv(home, "*state-space"))
    with _open_text(_only_csv(home, "*state-space-names")) as file:
        names = file.read().replace(",", "\n").split()
    fraction = _read_numbers(_only_csv(home, "*mixture-fraction")).ravel()
    if len(names) != states.shape[1]:
        raise ValueError(f"there must be one name per column ({states.shape[1]}); got {len(names)}: {names}.")
    if len(fraction) != len(states):
        raise ValueError(f"there must be one mixture fraction per state ({len(states)}); got {len(fraction)}.")
    transformation = None
    if _csv_files(home, "*basis*"):
        transformation = _read_numbers(_only_csv(home, "*basis*"))
        if len(transformation) != len(names):
            raise ValueError(f"the basis must have one row per column of {names}; got shape {transformation.shape}.")
    return Bunch(
        data=states,
        target=fraction,
        feature_names=names,
        transformation=transformation,
        DESCR=f"{len(states)} states of hydrogen/air flames with their mixture fraction, read from {home.name}.",
    )


def load_airline(path: Any) -> Bunch:
    """Read the public airline passenger satisfaction data, encoded as in the paper.

    Gender, customer type and type of travel become 0 and 1, and the class becomes 0, 1 or 2 (Eco,
    Eco Plus, Business).  Row numbers, and passengers with a missing arrival delay, are left out.

    Parameters
    ----------
    path : path
        A file such as ``train.csv`` or ``test.csv``, plain or as .csv.gz, or a folder with
        one such file.

    Returns
    -------
    Bunch
        ``data`` (n, 22), named in ``feature_names``; ``target`` (n,): 0 for neutral or
        dissatisfied (the paper's close), 1 for satisfied (far), named in ``target_names``;
        ``n_dropped``, the number of passengers left out; ``DESCR``.
    """
    file = _airline_file(Path(path).expanduser())
    header, columns = _read_columns(file)
    missing = [name for name in (*AIRLINE_WORDS, ARRIVAL_DELAY) if name not in header]
    if missing:
        raise ValueError(f"{file} must have the columns of the airline data; {missing} are missing from {header}.")
    encoded = {
        name: _codes(name, column) if name in AIRLINE_WORDS else _numbers(name, column)
        for name, column in zip(header, columns, strict=True)
        if name not in ROW_NUMBERS
    }
    kept = np.isfinite(encoded[ARRIVAL_DELAY])
    target = encoded.pop("satisfaction")[kept].astype(np.int64)
    data = np.column_stack(list(encoded.values()))[kept]
    names = list(encoded)
    gaps = [names[column] for column in np.flatnonzero(~np.isfinite(data).all(axis=0))]
    if gaps:
        raise ValueError(f"only {ARRIVAL_DELAY!r} may have missing values; got some in {gaps}. Remove those rows.")
    dropped = int(np.sum(~kept))
    return Bunch(
        data=data,
        target=target,
        feature_names=names,
        target_names=np.array(AIRLINE_WORDS["satisfaction"]),
        n_dropped=dropped,
        DESCR=f"{len(data)} airline passengers, {np.mean(target):.0%} of them satisfied, read from {file.name}; "
        f"{dropped} more have no arrival delay.",
    )


def _csv_files(folder: Path, stem: str) -> list[Path]:
    return sorted([*folder.glob(f"{stem}.csv"), *folder.glob(f"{stem}.csv.gz")])


def _only_csv(folder: Path, stem: str, advice: str = "Keep only one of them") -> Path:
    found = _csv_files(folder, stem)
    if not found:
        there = sorted(path.name for path in folder.iterdir())
        raise FileNotFoundError(f"{folder} must contain a file {stem}.csv or {stem}.csv.gz; got {there}.")
    if len(found) > 1:
        names = [path.name for path in found]
        raise ValueError(f"{folder} must contain one file {stem}.csv or {stem}.csv.gz; got {names}. {advice}.")
    return found[0]


def _airline_file(path: Path) -> Path:
    if path.is_dir():
        return _only_csv(path, "*airline*" if _csv_files(path, "*airline*") else "*", "Pass the path of one of them")
    if not path.is_file():
        raise FileNotFoundError(f"path must be an existing CSV file or a folder with one; got {path}.")
    return path


def _open_text(path: Path) -> IO[str]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    return cast(IO[str], opened(path, "rt", encoding="utf-8-sig", newline=""))


def _read_numbers(path: Path) -> FloatArray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns about an empty file
            numbers = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")
    except (ValueError, UserWarning, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must contain comma-separated numbers without a header: {error}") from error
    if not np.all(np.isfinite(numbers)):
        row = int(np.flatnonzero(~np.isfinite(numbers).all(axis=1))[0])
        raise ValueError(f"{path} must contain finite numbers; row {row} is {numbers[row].tolist()}.")
    return numbers


def _read_columns(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """The header and the columns of a CSV file, as strings."""
    try:
        with _open_text(path) as file:
            rows = list(filter(None, csv.reader(file)))
    except (ValueError, csv.Error, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be a CSV file, gzipped if its name ends in .gz: {error}") from error
    widths = set(map(len, rows))
    if len(rows) < 2 or len(widths) != 1:
        raise ValueError(
            f"{path} must have a header, and rows with the same number of fields; "
            f"got {len(rows)} lines with {sorted(widths)} fields."
        )
    header, *passengers = rows
    return [name.strip() for name in header], list(zip(*passengers, strict=True))


def _codes(name: str, words: tuple[str, ...]) -> FloatArray:
    known = AIRLINE_WORDS[name]
    found, inverse = np.unique(np.array(words), return_inverse=True)
    plain = [str(word).strip().lower() for word in found]
    unknown = [word for word in plain if word not in known]
    if unknown:
        raise ValueError(f"column {name!r} must contain only {list(known)}; got {unknown[0]!r}. Correct or remove it.")
    return np.array([known.index(word) for word in plain], dtype=np.float64)[inverse]


def _numbers(name: str, words: tuple[str, ...]) -> FloatArray:
    """The numbers of a column, NaN where one is missing."""
    text = np.array(words)
    try:
        return np.where(text == "", "nan", text).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"column {name!r} must contain numbers: {error}. Correct or remove that row.") from error
