"""The things that are judged: a table of points, what is shown of them, and the features of a metric."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.arrays import FloatArray
from closefar.tables import Encoding, RawPoints, TableError, fingerprint_columns, read_raw_points


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
    kinds : dict of str
        For each feature column, "number", "boolean", "category" or "ordinal".
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
    kinds: dict[str, str] = field(default_factory=dict)
    id_name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns that become features."""
        return tuple(name for name in self.columns if name not in self.shown)


def read_label_points(
    path: str | os.PathLike[str],
    *,
    id: str | None = None,
    show: Sequence[str] = (),
    na_values: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    ordinal: Mapping[str, Sequence[str]] | None = None,
    missing: str = "refuse",
    unseen: str = "refuse",
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
    columns, drop, categorical, ordinal, missing, unseen
        As for `Encoding.learn`.

    Returns
    -------
    LabelPoints
    """
    raw = read_raw_points(path, id=id, na_values=na_values)
    _check_shown(raw, show)
    read, texts = dict(raw.columns), [name for name in (*categorical, *(ordinal or ())) if name in raw.columns]
    if texts:
        again = read_raw_points(path, id=id, as_text=texts, na_values=na_values)
        read |= {name: again.columns[name] for name in texts}
    only_shown = tuple(name for name in read if name in show and name not in (columns or ()))
    encoding = Encoding.learn(
        {name: column for name, column in read.items() if name not in only_shown},
        columns=columns,
        drop=[name for name in drop if name not in only_shown],
        categorical=categorical,
        ordinal=ordinal,
        missing=missing,
        unseen=unseen,
        name=raw.place,
    )
    features, dropped = encoding.apply(read, name=raw.place)
    kept, used = ~dropped, [name for name in read if name in encoding.column_names or name in only_shown]
    lacking = f"{int(dropped.sum()):,} of {len(dropped):,} points were left out: they lack a value."
    return LabelPoints(
        ids=raw.ids[kept],
        features=features,
        feature_names=encoding.feature_names,
        columns={name: read[name][kept] for name in used},
        shown=only_shown,
        folder=_folder(path),
        fingerprint=fingerprint_columns({name: raw.columns[name][kept] for name in used}),
        kinds={column.name: column.kind for column in encoding.columns},
        id_name=raw.id_name,
        options=_given(na_values, categorical, ordinal, missing, unseen),
        notes=(*raw.notes, *([lacking] if dropped.any() else [])),
    )


def _check_shown(raw: RawPoints, show: Sequence[str]) -> None:
    unknown = [name for name in show if name not in raw.columns]
    if unknown:
        raise TableError(
            f"{raw.place.path} has no column {unknown[0]!r} to show beside its ids. Its other columns are "
            f"{', '.join(map(repr, raw.columns))}. Correct --show."
        )


def _given(
    na_values: Sequence[str],
    categorical: Collection[str],
    ordinal: Mapping[str, Sequence[str]] | None,
    missing: str,
    unseen: str,
) -> dict[str, Any]:
    """How the columns are read and encoded, where that is not the default."""
    options = {
        "na_values": list(na_values),
        "categorical": list(categorical),
        "ordinal": {name: list(order) for name, order in (ordinal or {}).items()},
        "missing": "" if missing == "refuse" else missing,
        "unseen": "" if unseen == "refuse" else unseen,
    }
    return {name: value for name, value in options.items() if value}


def _folder(path: str | os.PathLike[str]) -> Path:
    place = Path(os.path.realpath(path))
    return place if place.is_dir() else place.parent
