"""Reading a metric back from its model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from closefar.arrays import FloatArray
from closefar.model.metric import Metric
from closefar.model.modelfile import ModelFileError, read

__all__ = ["contents_of", "load", "load_with_header"]

_REQUIRED = {"factor": 2, "threshold": 1}
_OPTIONAL = {"origin": 1, "data_factor": 2, "data_eigenvalues": 1, "flip_rate": 1}

# Metrics that a file may hold beside its own: the plain distance, and the one that M was shrunk to if it was given.
BESIDE = ("plain", "prior")


def load(path: str | Path) -> Metric:
    """Read a metric that `Metric.save` wrote.

    Raises `ModelFileError` if the file is not a model, or is damaged, truncated, too large or
    written by a later version.  Nothing in the file is executed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import closefar as cf
    >>> metric = cf.Metric([[1.0], [0.5]], threshold=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metric.save(Path(folder) / "model.closefar")
    ...     cf.load(Path(folder) / "model.closefar") == metric
    True
    """
    return load_with_header(path)[0]


def load_with_header(path: str | Path) -> tuple[Metric, dict[str, Metric], dict[str, Any]]:
    """Read a metric, the metrics beside it by name, and the header of its file."""
    own = {**_REQUIRED, **_OPTIONAL}
    beside = {f"{name}.{array}": axes for name in BESIDE for array, axes in own.items()}
    arrays, header = read(path, required=_REQUIRED, optional={**_OPTIONAL, **beside})
    try:
        found = {
            name: _metric(_arrays_of(name, arrays), header[name])
            for name in BESIDE
            if any(array.startswith(f"{name}.") for array in arrays)
        }
        return _metric(arrays, header), found, header
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} does not describe a metric: {error}") from error


def contents_of(metric: Metric, beside: dict[str, Metric]) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    """The arrays and the header of a file with metrics beside a metric."""
    arrays, header = metric.contents()
    for name, other in beside.items():
        own, header[name] = other.contents()
        arrays |= {f"{name}.{array}": values for array, values in own.items()}
    return arrays, header


def _arrays_of(name: str, arrays: dict[str, FloatArray]) -> dict[str, FloatArray]:
    start = f"{name}."
    return {array.removeprefix(start): values for array, values in arrays.items() if array.startswith(start)}


def _metric(arrays: dict[str, FloatArray], header: dict[str, Any]) -> Metric:
    return Metric(
        arrays["factor"],
        cast("Any", arrays["threshold"]),
        header["noise"],
        header["feature_names"],
        arrays.get("origin"),
        _flip_rate(arrays.get("flip_rate")),
        arrays.get("data_factor"),
        arrays.get("data_eigenvalues"),
    )


def _flip_rate(rates: FloatArray | None) -> Any:
    """One rate, or those of the two sides."""
    if rates is None:
        return 0.0
    return rates.item() if len(rates) == 1 else tuple(rates.tolist())
