"""What is judged: the task that its owner has decided, the table of points, and leaves to try it with."""

from __future__ import annotations

import colorsys
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray, IndexArray


class TaskKind(StrEnum):
    """What is judged: pairs as close or far, pairs on levels, or which of two things is nearer to a third."""

    pairs = "pairs"
    levels = "levels"
    triplets = "triplets"


class Method(StrEnum):
    """How questions are chosen, apart from those that are drawn at random."""

    information = "information"
    uncertainty = "uncertainty"
    random = "random"


class Purpose(StrEnum):
    """Why somebody was asked a question: for its own sake, to compare people, or to look at an answer again."""

    first = "first"
    shared = "shared"
    review = "review"


# What is recorded, from closest to farthest; for triplets, which of the two is nearer to the first thing.
ANSWERS = {TaskKind.pairs: ("close", "far"), TaskKind.triplets: ("left", "right")}


@dataclass(frozen=True)
class Task:
    """A labelling task.

    Attributes
    ----------
    kind : TaskKind
    question, instructions : str
        The wording of the question, and a longer text above the first one; both are shown as plain text.
    answers : tuple of str
        What may be answered, from closest to farthest; can't say is always allowed, and recorded as None.
    annotators : tuple of str
        Who judges: the owner, or others by their names.
    method : Method
    random_share, shared_share : float
        The share of questions drawn at random, which alone measure quality; and the share that is asked of a second
        person, if there are several.
    target_error : float
        The relative spectral error of M / tau (M / tr M) up to which the number of judgements is projected.
    """

    kind: TaskKind
    question: str
    instructions: str
    answers: tuple[str, ...]
    annotators: tuple[str, ...] = ("owner",)
    method: Method = Method.information
    random_share: float = 0.15
    shared_share: float = 0.1
    target_error: float = 0.1

    @property
    def n_things(self) -> int:
        """How many things a question shows."""
        return 3 if self.kind is TaskKind.triplets else 2

    @property
    def is_shared(self) -> bool:
        """Whether several people judge."""
        return len(self.annotators) > 1

    def codes_of(self, answers: Iterable[str | None]) -> IndexArray:
        """The place of each answer in those of the task; -1 for can't say."""
        return np.array([-1 if answer is None else self.answers.index(answer) for answer in answers], dtype=np.intp)


@dataclass(frozen=True, eq=False)
class LabelPoints:
    """The points of a task.

    Parameters
    ----------
    ids : array of n texts
    features : array of shape (n, d)
        As `closefar fit` would encode the feature columns.
    feature_names : tuple of d texts
    columns : dict of arrays of n values
        The feature columns and those that are only shown, as they are in the table and in its order.
    shown : tuple of str
        The columns that are only shown, and are no features.
    folder : Path
        Where the table is, and the files that it names.
    fingerprint : dict of str
        For each of the columns, a text that differs if a value does.
    id_name : str or None
        The column of ids; None if they are row numbers.
    options : dict
        How the columns were read and encoded where that is not the default: na_values, categorical, ordinal, missing,
        unseen.
    notes : tuple of str
        Sentences about what was guessed or left out.
    """

    ids: NDArray[np.object_]
    features: FloatArray
    feature_names: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    shown: tuple[str, ...]
    folder: Path
    fingerprint: dict[str, str]
    id_name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns that become features."""
        return tuple(name for name in self.columns if name not in self.shown)


_OPTIONS = ("categorical", "ordinal", "missing", "unseen")  # that a fit to the judgements must have as well


def read_label_points(
    path: str | os.PathLike[str],
    *,
    id: str | None = None,
    show: Sequence[str] = (),
    na_values: Sequence[str] = (),
    **encoded: Any,
) -> LabelPoints:
    """Read a table of points to be judged.

    Parameters
    ----------
    path : str or Path
    id : str, optional
        The column of ids: by default the one called "id", else the first.
    show : names of columns
        Those that are shown and are no features, such as images, texts and links, unless `columns` names them too.
    na_values : texts
        What stands for a missing value beside the usual words.
    encoded
        Which columns are features, and how they become numbers, as for `Encoding.learn`.

    Returns
    -------
    LabelPoints
    """
    from closefar.tables import Encoding, TableError, fingerprint_columns, read_raw_points  # slow for the help

    raw = read_raw_points(path, id=id, na_values=na_values)
    unknown = [name for name in show if name not in raw.columns]
    if unknown:
        raise TableError(
            f"{raw.place.path} has no column {unknown[0]!r} to show beside its ids. Its other columns are "
            f"{', '.join(map(repr, raw.columns))}. Correct --show."
        )
    as_texts = (*encoded.get("categorical", ()), *encoded.get("ordinal", ()))
    read, texts = dict(raw.columns), [name for name in as_texts if name in raw.columns]
    if texts:
        again = read_raw_points(path, id=id, as_text=texts, na_values=na_values)
        read |= {name: again.columns[name] for name in texts}
    only_shown = tuple(name for name in read if name in show and name not in (encoded.get("columns") or ()))
    encoded["drop"] = [name for name in encoded.get("drop", ()) if name not in only_shown]
    features_of = {name: column for name, column in read.items() if name not in only_shown}
    encoding = Encoding.learn(features_of, **encoded, name=raw.place)
    features, dropped = encoding.apply(read, name=raw.place)
    options = {"na_values": na_values, **{name: encoded.get(name) for name in _OPTIONS}}
    place = Path(os.path.realpath(path))
    kept, used = ~dropped, [name for name in read if name in encoding.column_names or name in only_shown]
    lacking = f"{int(dropped.sum()):,} of {len(dropped):,} points were left out: they lack a value."
    return LabelPoints(
        ids=raw.ids[kept],
        features=features,
        feature_names=encoding.feature_names,
        columns={name: read[name][kept] for name in used},
        shown=only_shown,
        folder=place if place.is_dir() else place.parent,
        fingerprint=fingerprint_columns({name: raw.columns[name][kept] for name in used}),
        id_name=raw.id_name,
        options={name: value for name, value in options.items() if value and value != "refuse"},
        notes=(*raw.notes, *([lacking] if dropped.any() else [])),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Something to judge in the demo: simulated leaves, measured and drawn.

# Trees: length and width in millimetres, where the leaf is widest (from its base, as a share), and its hue in degrees.
_TREES = np.array([[62, 40, 0.36, 95], [88, 26, 0.45, 110], [74, 46, 0.55, 82], [92, 44, 0.32, 35]])
_SPREAD = np.array([7.0, 4.0, 0.04, 9.0])
_LOWEST, _HIGHEST = np.array([30.0, 10.0, 0.22, 8.0]), np.array([112.0, 60.0, 0.72, 140.0])

_PICTURE_HEIGHT, _PICTURE_WIDTH = 280, 168  # pixels: room for the largest leaf, 112 by 60 mm, and its stalk
_SCALE = 2.2  # pixels per millimetre
_STALK = 22  # pixels


def make_leaves(n: int = 160, *, random_state: int = 0) -> tuple[dict[str, NDArray[Any]], dict[str, bytes]]:
    """Generate a table of leaves of a few trees, and the pictures that its last column names."""
    rng = np.random.default_rng(random_state)
    measured = _TREES[rng.integers(len(_TREES), size=n)] + _SPREAD * rng.standard_normal((n, 4))
    length, width, widest, hue = np.clip(measured, _LOWEST, _HIGHEST).T
    names = [f"photos/leaf{number:03d}.png" for number in range(1, n + 1)]
    columns: dict[str, NDArray[Any]] = {
        "id": np.array([f"L{number:03d}" for number in range(1, n + 1)]),
        "length_mm": np.round(length, 1),
        "width_mm": np.round(width, 1),
        "widest_at": np.round(widest, 2),
        "hue": np.round(hue),
        "photo": np.array(names),
    }
    shapes = zip(names, length, width, widest, hue, strict=True)
    return columns, {name: _png(_draw(*shape)) for name, *shape in shapes}


def _draw(length: float, width: float, widest: float, hue: float) -> NDArray[np.uint8]:
    """Draw a leaf as red, green, blue and opacity of each pixel, its base below."""
    rows, columns = np.arange(_PICTURE_HEIGHT)[:, np.newaxis], np.arange(_PICTURE_WIDTH)
    along = (_PICTURE_HEIGHT - _STALK - rows) / (_SCALE * length)  # 1 at the tip
    across = np.abs(columns - (_PICTURE_WIDTH - 1) / 2) / _SCALE
    rise, fall = 3.0 * widest, 3.0 * (1.0 - widest)  # a curve whose peak is where the leaf is widest
    inside = np.clip(along, 0.0, 1.0)
    half = width / 2 * inside**rise * (1 - inside) ** fall / (widest**rise * (1 - widest) ** fall)
    is_leaf = (along > 0) & (along < 1) & (across <= half)
    is_stalk = (along <= 0.1) & (across < 0.7)
    veins = np.abs((along - 0.5 * across / max(width, 1.0)) * 9 % 1 - 0.5) < 0.06
    light, dark = (np.array(colorsys.hls_to_rgb(hue / 360, each, 0.55)) * 255 for each in (0.42, 0.27))
    picture = np.zeros((_PICTURE_HEIGHT, _PICTURE_WIDTH, 4), dtype=np.uint8)
    picture[is_leaf] = [*light.astype(np.uint8), 255]
    picture[(is_leaf & (veins | (across < 0.7))) | is_stalk] = [*dark.astype(np.uint8), 255]
    return picture


def _png(picture: NDArray[np.uint8]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = picture.shape
    lines = np.insert(picture.reshape(height, -1), 0, 0, axis=1)  # each begins with its filter, which is none
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
