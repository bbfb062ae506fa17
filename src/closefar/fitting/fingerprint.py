"""What a fit is of: its data and settings as numbers, by which the checkpoint of another fit is recognised."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closefar.arrays import Array, as_float64
from closefar.fitting.settings import Settings
from closefar.judgements import Columns, Judgements
from closefar.model import Metric
from closefar.noise import get_noise
from closefar.rows import Rows, judged_rows

__all__ = ["find_difference", "fingerprint"]

# Sums over the same data may differ by as much: another number of threads adds in another order.
_SAME = 1e-9

_NOT_COMPARED = ("verbose", "max_time")  # the result does not depend on them

# Multiples of the golden ratio spread evenly over [0, 1): each pair gets a weight of its own.
_GOLDEN_RATIO = 0.6180339887498949


def fingerprint(
    judgements: Judgements, settings: Settings, start: Metric | None, columns: Columns | None
) -> dict[str, Any]:
    """The facts that must be the same for a fit to be continued.

    The data are represented by second moments, in which each pair has a weight that depends on its place and label.
    """
    names = None if columns is None or columns.names is None else list(map(str, columns.names))
    return {
        "settings": {name: _plain(name, value) for name, value in settings.parameters.items()},
        "n_pairs": len(judgements),
        "n_columns": judgements.n_columns,
        "names": names,
        "labels": [str(judgements.sides.close), str(judgements.sides.far)],
        "levels": [str(level) for level in judgements.sides.classes] if judgements.sides.is_graded else None,
        "n_comparisons": 0 if judgements.comparisons is None else len(judgements.comparisons),
        "annotators": None if judgements.annotators is None else list(map(str, judgements.annotators.names)),
        "start": None if start is None else np.append(start.factor.ravel(), start.thresholds),
        "moments": _moments(judgements),
    }


def find_difference(here: dict[str, Any], there: dict[str, Any]) -> str | None:
    """The first difference of two fits, in words; `there` is the fit of the checkpoint."""
    for name, value in here["settings"].items():
        before = there["settings"].get(name)
        if name not in _NOT_COMPARED and value != before:
            return f"{name} is {value!r} here and {before!r} in the checkpoint"
    if _size(here) != _size(there):
        return f"it is of {_size(there)}; got {_size(here)}"
    if here["names"] != there["names"]:
        return f"its columns are {_listed(there['names'])}; got {_listed(here['names'])}"
    for name in ("levels", "annotators"):
        if here.get(name) != there.get(name):
            return f"its {name} are {_listed(there.get(name), 'none')}; got {_listed(here.get(name), 'none')}"
    if here["labels"] != there["labels"]:
        return f"its labels for close and far are {' and '.join(there['labels'])}; got {' and '.join(here['labels'])}"
    if not _are_close(here["moments"], there["moments"]):
        return "the pairs, labels or weights, or their order, have changed"
    if not _is_same_start(here["start"], there["start"]):
        return "it started from another metric (warm_start)"
    return None


def _plain(name: str, value: Any) -> Any:
    if name == "noise":
        noise = value if isinstance(value, str) and value == "auto" else get_noise(value)
        return noise if isinstance(noise, str) else repr(noise) if vars(noise) else noise.name
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value if value is None or isinstance(value, bool | str) else repr(value)


def _moments(judgements: Judgements) -> Any:
    source = judged_rows(judgements)
    arrays = [source.row_numbers(), _labels_in(source, judgements), judgements.shares_in(source)]
    if judgements.annotators is not None:
        arrays.append(judgements.groups_in(source))
    with np.errstate(all="ignore"):  # columns in extreme units, whose squares overflow
        return source.outer(source.map(_own_weights, *arrays))


def _labels_in(source: Rows, judgements: Judgements) -> Array:
    """One number for each kind of label, as a handle: -1 and +1, or -1, 1, 3, ... if there are more kinds."""
    if judgements.levels is None and judgements.comparisons is None:
        return judgements.signs_in(source)
    return source.map(_odd, judgements.codes_in(source))


def _odd(codes: Array) -> Array:
    return 2.0 * as_float64(codes) - 1.0


def _own_weights(numbers: Array, labels: Array, shares: Array, annotators: Array = None) -> Array:
    spread = array_namespace(numbers).remainder(numbers * _GOLDEN_RATIO, 1.0)
    own = spread + (as_float64(labels) + 2.0)
    return (own if annotators is None else own + _GOLDEN_RATIO * as_float64(annotators)) * shares


def _are_close(here: Any, there: Any) -> bool:
    with np.errstate(all="ignore"):
        scale = np.sqrt(np.abs(np.diag(there)))
        return not np.any(np.abs(here - there) > _SAME * np.outer(scale, scale))


def _is_same_start(here: Any, there: Any) -> bool:
    if here is None or there is None:
        return here is None and there is None
    return here.shape == there.shape and bool(np.allclose(here, there, rtol=_SAME, atol=0.0))


def _size(facts: dict[str, Any]) -> str:
    more = f" and {facts['n_comparisons']:,} comparisons" if facts.get("n_comparisons") else ""
    return f"{facts['n_pairs']:,} pairs of {facts['n_columns']} columns{more}"


def _listed(names: list[str] | None, otherwise: str = "without names") -> str:
    return otherwise if names is None else ", ".join(names)
