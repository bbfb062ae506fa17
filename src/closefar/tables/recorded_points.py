"""Whether a table of points is the one that was judged: fingerprints of its columns, and what differs in words."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closefar.tables.errors import Place, TableError, counted, listed, quoted
from closefar.tables.files import open_table
from closefar.tables.ids import Ids, check_ids, codes_of_ids, row_numbers
from closefar.tables.join import IdentifiedPoints
from closefar.tables.source import find_id
from closefar.tables.values import to_text

_MOST_NAMED = 3


@dataclass(frozen=True, eq=False)
class RawPoints:
    """A table of points as it is in its file: ids as text, each once, and columns of the kinds of `Table`."""

    place: Place
    id_name: str | None
    ids: NDArray[np.object_]
    columns: dict[str, NDArray[Any]]
    notes: tuple[str, ...]


def read_raw_points(
    path: str | os.PathLike[str], *, id: str | None = None, as_text: Collection[str] = (), na_values: Iterable[str] = ()
) -> RawPoints:
    """Read a table of points and their ids, which are row numbers in an array; columns `as_text` stay as written."""
    file = open_table(path, na_values)
    id_name = find_id(file, id, None)
    names = [name for name in file.names if name != id_name]
    if not names:
        raise TableError(
            f"{file.path} has no column beside the ids, {quoted(id_name)}. Add columns, or choose another "
            "column of ids with --id."
        )
    columns = file.read(file.names, as_text, [] if id_name is None else [id_name])
    if id_name is None:
        return RawPoints(file.place, None, row_numbers(file.place, len(columns[names[0]])).texts, columns, ())
    ids = columns.pop(id_name)
    check_ids(ids, id_name, file.place, "id")
    (codes,), _ = codes_of_ids(ids)
    identity = Ids(ids, np.arange(len(ids)))
    IdentifiedPoints(file.place, id_name, identity, {}, ()).refuse_repeated(codes)
    is_guess = id is None and id_name.lower() != "id"
    notes = (f"The ids of {file.path} are taken from its first column, {quoted(id_name)}.",) if is_guess else ()
    return RawPoints(file.place, id_name, identity.texts, columns, notes)


def fingerprint_columns(columns: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """A short text for each column, which differs if a value does."""
    return {name: _fingerprint(column) for name, column in columns.items()}


def _fingerprint(column: NDArray[Any]) -> str:
    if column.dtype.kind == "f":
        numbers = np.where(np.isnan(column), np.nan, column + 0.0).astype("<f8")  # one NaN, and no minus zero
        content = b"numbers" + numbers.tobytes()
    else:
        content = b"texts" + json.dumps(to_text(column).tolist()).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def point_differences(
    known_ids: Sequence[str], known: Mapping[str, str], ids: Sequence[str], found: Mapping[str, str]
) -> list[str]:
    """What differs between the points that were judged and others, as parts of a sentence; none if nothing does."""
    differences = []
    new, gone = set(ids) - set(known_ids), set(known_ids) - set(ids)
    for names, is_new in ((new, True), (gone, False)):
        if names:
            ordered = [name for name in (ids if is_new else known_ids) if name in names]
            verb = "is" if len(names) == 1 else "are"
            what = "new" if is_new else "missing"
            differences.append(f"{counted(len(names), 'point')} {verb} {what}: {listed(ordered, _MOST_NAMED)}")
    if not differences and list(ids) != list(known_ids):
        differences.append("the points are in another order")
    lost, added = [name for name in known if name not in found], [name for name in found if name not in known]
    differences += [f"{_columns(lost)} missing"] if lost else []
    differences += [f"{_columns(added)} new"] if added else []
    if not (new or gone or differences[:1] == ["the points are in another order"]):
        changed = [name for name in known if name in found and found[name] != known[name]]
        if changed:
            noun, verb = ("column", "has") if len(changed) == 1 else ("columns", "have")
            differences.append(f"{noun} {listed(changed, _MOST_NAMED)} {verb} changed")
    return differences


def _columns(names: Sequence[str]) -> str:
    noun, verb = ("column", "is") if len(names) == 1 else ("columns", "are")
    return f"{noun} {listed(names, _MOST_NAMED)} {verb}"
