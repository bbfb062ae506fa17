"""Readers of published human judgements of similarity, as their authors publish them; nothing is downloaded.

Answers in which an item occurs twice say nothing about a distance: they are left out, and counted.
"""

from __future__ import annotations

import csv
import json
import numbers
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn.utils import Bunch

from closefar.judgements import triplets_from_odd_one_out, triplets_from_ranking

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

__all__ = [
    "load_car_similarity",
    "load_food_similarity",
    "load_imagenet_similarity",
    "load_material_similarity",
    "load_musician_similarity",
    "load_scene_similarity",
    "load_similarity_matrix",
    "load_things_similarity",
]


def load_food_similarity(path: Any) -> Bunch:
    """Read triplets of 100 dishes, by taste (Wilber, Kwak and Belongie, 2014).

    Parameters
    ----------
    path : path
        ``food100-dataset.zip``, its folder, or the file ``all-triplets.csv``: in each line three image
        names, separated by semicolons; the first dish tastes more like the second than like the third.

    Returns
    -------
    Bunch
        ``triplets`` (n, 3), the numbers of dishes; ``names``, the image names of these; ``n_dropped``, the number of
        lines left out; ``DESCR``.  Triplets that were sampled repeatedly occur repeatedly.
    """
    file, text = _read(path, "all-triplets.csv")
    triplets, n_dropped = _different(_fields(file, text, 3, delimiter=";"))
    names, triplets = _numbered(triplets)
    return _bunch(file, "triplets", len(triplets), triplets, n_dropped, names=names)


def load_scene_similarity(path: Any) -> Bunch:
    """Read odd ones out of three natural scenes, or of three Vogue covers (Heikinheimo and Ukkonen, 2013).

    Parameters
    ----------
    path : path
        The file ``nature_triplets.txt`` or ``vogue_triplets.txt``: in each line three image names, the odd one last.

    Returns
    -------
    Bunch
        ``triplets`` (2n, 3), two for each answer; ``shown`` (n, 3), the images of each answer, the odd one last;
        ``names``, the image names; ``n_dropped``, the number of lines left out; ``DESCR``.
    """
    file, text = _read(path, "*_triplets.txt")
    words, n_dropped = _different(_fields(file, text, 3))
    names, shown = _numbered(words)
    return _bunch(file, "answers", len(shown), triplets_from_odd_one_out(shown), n_dropped, shown=shown, names=names)


def load_things_similarity(path: Any) -> Bunch:
    """Read odd ones out of three things (Hebart, Zheng, Pereira and Baker, 2020).

    Parameters
    ----------
    path : path
        A file such as ``data1854_batch5_test10.txt``, ``trainset.txt`` or ``validationset.txt``: in each line
        the numbers of three things, from 0, the odd one last.

    Returns
    -------
    Bunch
        ``triplets`` (2n, 3), two for each answer; ``shown`` (n, 3), the things of each answer, the odd one last;
        ``n_dropped``, the number of lines left out; ``DESCR``.
    """
    file, text = _read(path, "*.txt")
    shown, n_dropped = _different(_whole(file, _fields(file, text, 3), "three things", lowest=0))
    return _bunch(file, "answers", len(shown), triplets_from_odd_one_out(shown), n_dropped, shown=shown)


def load_car_similarity(path: Any) -> Bunch:
    """Read most central ones of three cars (Kleindessner and von Luxburg, 2017).

    The most central car k of i, j and k is closer to both others than they are to each other, so that each answer is
    two triplets: (i, k, j) and (j, k, i).

    Parameters
    ----------
    path : path
        ``60_cars_data.zip``, its folder, or the file ``survey_data.csv``: a header, and in each line the round of the
        survey, the most central car, the three cars shown (from 1), and the time in seconds.

    Returns
    -------
    Bunch
        ``triplets`` (2n, 3), the numbers of cars from 0; ``shown`` (n, 3) and ``central`` (n,), the cars of each
        answer; ``round`` and ``seconds`` (n,); ``DESCR``.
    """
    file, text = _read(path, "survey_data.csv")
    words = _fields(file, text, 6, delimiter=",", has_header=True)
    cars = _whole(file, words[:, 1:5], "the most central car and the three shown", lowest=1) - 1
    central, shown = cars[:, 0], cars[:, 1:]
    is_central = shown == central[:, None]
    missing = np.flatnonzero(is_central.sum(axis=1) != 1)
    if len(missing):
        row = int(missing[0])
        raise ValueError(
            f"{file}: the most central car must be one of three different ones shown; answer {row + 1} says "
            f"{central[row] + 1} of {(shown[row] + 1).tolist()}. Correct or remove that line."
        )
    others = shown[~is_central].reshape(-1, 2)
    one, other = others.T
    triplets = np.stack([np.column_stack([one, central, other]), np.column_stack([other, central, one])], axis=1)
    return _bunch(
        file,
        "answers",
        len(shown),
        triplets.reshape(-1, 3),
        0,
        shown=shown,
        central=central,
        round=_whole(file, words[:, :1], "the round of the survey", lowest=0)[:, 0],
        seconds=_numbers(file, words[:, 5:], "seconds")[:, 0],
    )


def load_material_similarity(path: Any) -> Bunch:
    """Read triplets of 100 materials, by appearance (Lagunas et al., 2019).

    Parameters
    ----------
    path : path
        A file ``answers_processed_train.json`` or ``answers_processed_test.json``: ``answers``, the numbers of a
        reference and of two other materials, and ``agreement``, how many people found the first and the second of
        these more similar to it.

    Returns
    -------
    Bunch
        ``triplets`` (n, 3), a question with answers of both kinds being two of them; ``counts`` (n,), how many
        people said so, for `sample_weight`; ``n_dropped``, the number of questions left out; ``DESCR``.
    """
    file, text = _read(path, "answers_processed_train.json")
    try:
        stored = json.loads(text)
        answers, agreement = (np.array(stored[name]) for name in ("answers", "agreement"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} must be JSON with the lists answers and agreement: {error!r}.") from error
    n = len(answers)
    if answers.shape != (n, 3) or agreement.shape != (n, 2) or {answers.dtype.kind, agreement.dtype.kind} != {"i"}:
        raise ValueError(
            f"{file} must have three whole numbers in each of the answers, and two in each agreement; got the shapes "
            f"{answers.shape} and {agreement.shape}."
        )
    if n and (answers.min() < 0 or agreement.min() < 0):
        raise ValueError(f"{file} must have numbers >= 0; got {min(answers.min(), agreement.min())}.")
    kept = _are_different(answers)
    triplets = np.stack([answers, answers[:, [0, 2, 1]]], axis=1)[kept].reshape(-1, 3)
    counts = agreement[kept].reshape(-1)
    said = counts > 0
    what = f"questions with {counts.sum():,} answers"
    return _bunch(file, what, int(kept.sum()), triplets[said], int(np.sum(~kept)), counts=counts[said])


def load_musician_similarity(path: Any) -> Bunch:
    """Read triplets of musicians (Ellis, Whitman, Berenzweig and Lawrence, 2002).

    Parameters
    ----------
    path : path
        A file such as ``musicseer-results-2002-10-15.txt``: in each line, separated by spaces, the number of the
        judgement, S (survey) or G (game), the user, and the numbers of the target, of the musician chosen as
        most similar, and of another one on offer.  Lines without the last are left out.

    Returns
    -------
    Bunch
        ``triplets`` (n, 3); ``names``, the numbers of the musicians in the file; ``judgements``, ``origins`` ("S" or
        "G") and ``users`` (n,); ``n_dropped``, the number of lines left out; ``DESCR``.
        Triplets of one judgement are answers to one question.
    """
    file, text = _read(path, "musicseer-results*.txt")
    lines = [line.split() for line in text.splitlines()]
    kept = [fields for fields in lines if len(fields) == 6 and all(map(str.isdecimal, fields[3:]))]
    if not kept:
        raise ValueError(f"{file} must have six fields in a line, the last three of them numbers; got no such line.")
    words = np.array(kept)
    different = _are_different(words[:, 3:].astype(np.int64))
    words = words[different]
    names, triplets = _numbered(words[:, 3:].astype(np.int64))
    columns = {name: words[:, column] for column, name in enumerate(("judgements", "origins", "users"))}
    n_dropped = sum(map(bool, lines)) - len(words)
    return _bunch(file, "triplets", len(triplets), triplets, n_dropped, names=names, **columns)


def load_imagenet_similarity(path: Any) -> Bunch:
    """Read ranked images of ImageNet: the two of eight that are most similar to a query (Roads and Love, 2021).

    This needs h5py (extra `paper`).

    Parameters
    ----------
    path : path
        A file of observations of psiz 0.4 in HDF5, such as ``obs-118.hdf5`` or ``obs-195.hdf5``.

    Returns
    -------
    Bunch
        ``triplets`` (n_triplets, 3); ``ranked`` (n, m), the query and the others of each answer, those
        that were ranked first; ``n_ranked`` (n,); ``sessions`` (n,), who answered; ``DESCR``.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"path must be an existing HDF5 file of observations; got {file}.")
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            "reading observations of psiz needs h5py. Install the extra: pip install 'closefar[paper]'."
        ) from error
    names = ("stimulus_set", "n_select", "is_ranked", "session_id")
    with h5py.File(file, mode="r") as stored:
        missing = [name for name in names if name not in stored]
        if missing:
            raise ValueError(f"{file} must have the arrays {list(names)} of psiz 0.4; {missing} are missing.")
        ranked, n_ranked, is_ranked, sessions = (np.asarray(stored[name][()]) for name in names)
    if not np.all(is_ranked):
        raise ValueError(f"{file} must have ranked selections; answer {int(np.argmin(is_ranked))} is not ranked.")
    triplets = [
        triplets_from_ranking(some[:, 0], some[:, 1:], n_ranked=int(n))
        for n in np.unique(n_ranked)
        for some in (ranked[n_ranked == n],)
    ]
    return _bunch(
        file, "answers", len(ranked), np.concatenate(triplets), 0, ranked=ranked, n_ranked=n_ranked, sessions=sessions
    )


def load_similarity_matrix(path: Any, n_levels: int = 5) -> Bunch:
    """Read a matrix of similarities as levels of pairs, such as those that M. D. Lee collected.

    Parameters
    ----------
    path : path
        A file in MATLAB's format with ``s``, a symmetric matrix of similarities, or ``d``, one of distances, and
        optionally ``labs``, the names of the items: ``colour.mat``, ``fruits.mat``, ...
    n_levels : int, default=5
        The pairs are divided into so many levels, 0 the most similar, that are about equally frequent.  Pairs
        of the same similarity have the same level.

    Returns
    -------
    Bunch
        ``index`` (n, 2), the items of each pair; ``levels`` (n,); ``similarity`` (n,), or minus the distance;
        ``names``, the names of the items, or None; ``DESCR``.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"path must be an existing file in MATLAB's format; got {file}.")
    try:
        stored = loadmat(file)
    except (ValueError, NotImplementedError, OSError, TypeError) as error:
        raise ValueError(f"{file} must be in MATLAB's format up to version 7: {error}.") from error
    found = next(
        ((stored[name], sign) for name, sign in (("s", 1.0), ("d", -1.0)) if np.size(stored.get(name, [])) > 1), None
    )
    if found is None:
        raise ValueError(f"{file} must have a matrix s of similarities, or d of distances; got {sorted(stored)}.")
    matrix = np.asarray(found[0], dtype=np.float64) * found[1]
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T, equal_nan=True):
        raise ValueError(f"{file} must have a symmetric matrix; got one of shape {matrix.shape}.")
    index = np.column_stack(np.triu_indices(len(matrix), 1))
    similarity = matrix[index[:, 0], index[:, 1]]
    is_known = np.isfinite(similarity)
    index, similarity = index[is_known], similarity[is_known]
    names = np.char.strip(stored["labs"].astype(str).ravel()) if "labs" in stored else None
    return Bunch(
        index=index,
        levels=_levels(-similarity, n_levels),
        similarity=similarity,
        names=names,
        DESCR=f"{len(index):,} pairs of {len(matrix)} items, read from {file.name}.",
    )


def _levels(values: FloatArray, n_levels: int) -> IndexArray:
    """Levels from 0 of about equally many values each; equal values have the same."""
    if not (isinstance(n_levels, numbers.Integral) and int(n_levels) >= 2):
        raise ValueError(f"n_levels must be a whole number >= 2; got {n_levels!r}.")
    cuts = np.quantile(values, np.arange(1, n_levels) / n_levels)
    return np.unique(np.searchsorted(cuts, values, side="right"), return_inverse=True)[1]


def _read(path: Any, name: str) -> tuple[str, str]:
    """The name and the text of a file: itself, or the one of this name in a folder or a zip archive."""
    place = Path(path).expanduser()
    if place.is_dir():
        place = _only(place, name, sorted(each for each in place.rglob(name) if each.is_file()))
    if not place.is_file():
        raise FileNotFoundError(f"path must be an existing file, folder or zip archive; got {place}.")
    try:
        if not zipfile.is_zipfile(place):
            return str(place), place.read_text(encoding="utf-8-sig")
        with zipfile.ZipFile(place) as archive:
            member = _only(place, name, [each for each in archive.namelist() if PurePosixPath(each).match(name)])
            return f"{place}/{member}", archive.read(str(member)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place} must be text in UTF-8: {error}.") from error


def _only(place: Path, name: str, found: list[Any]) -> Any:
    if len(found) != 1:
        there = "none" if not found else str([str(each) for each in found])
        raise ValueError(f"{place} must contain one file {name}; got {there}. Pass the path of the file itself.")
    return found[0]


def _fields(
    file: str, text: str, count: int, *, delimiter: str | None = None, has_header: bool = False
) -> NDArray[np.str_]:
    """The fields of each line, as many in each as there must be; blank lines are skipped."""
    filled = [line for line in text.splitlines() if line.strip()][int(has_header) :]
    lines = [line.split() for line in filled] if delimiter is None else list(csv.reader(filled, delimiter=delimiter))
    for number, fields in enumerate(lines, 1):
        if len(fields) != count:
            raise ValueError(
                f"{file} must have {count} fields in each line; line {number + int(has_header)} of those that are not "
                f"blank has {len(fields)}. Correct or remove that line."
            )
    if not lines:
        raise ValueError(f"{file} must have {count} fields in each line; it is empty.")
    return np.char.strip(np.array(lines))


def _numbers(file: str, words: NDArray[np.str_], what: str) -> NDArray[np.float64]:
    try:
        return words.astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{file} must have numbers for {what}: {error}.") from error


def _whole(file: str, words: NDArray[np.str_], what: str, lowest: int) -> IndexArray:
    numbers = _numbers(file, words, what)
    wrong = ~((numbers >= lowest) & (numbers == np.round(numbers)) & (numbers < 2**53))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        raise ValueError(
            f"{file} must have whole numbers >= {lowest} for {what}; answer {row + 1} has {words[row].tolist()}."
        )
    return numbers.astype(np.intp)


def _are_different(items: NDArray[Any]) -> BoolArray:
    """Which rows have no item twice."""
    ordered = np.sort(items, axis=1)
    are_different: BoolArray = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    return are_different


def _different(items: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The rows that have no item twice, and the number of the others."""
    kept = _are_different(items)
    return items[kept], int(np.sum(~kept))


def _numbered(items: NDArray[Any]) -> tuple[NDArray[Any], IndexArray]:
    """The different items in their order, and the number of each."""
    names, numbers = np.unique(items, return_inverse=True)
    return names, numbers.reshape(items.shape)


def _bunch(file: Any, what: str, n: int, triplets: IndexArray, n_dropped: int, **more: Any) -> Bunch:
    dropped = f"; {n_dropped:,} more were left out" if n_dropped else ""
    items = f"{len(np.unique(triplets)):,} different items"
    text = f"{n:,} {what}, {items}, read from {Path(file).name}{dropped}."
    return Bunch(triplets=triplets, **more, n_dropped=n_dropped, DESCR=text)
