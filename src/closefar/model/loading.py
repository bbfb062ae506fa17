"""Reading a metric back from its model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from closefar.arrays import FloatArray
from closefar.model.metric import Metric
from closefar.model.modelfile import ModelFileError, read

__all__ = ["load", "load_with_header"]


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


def load_with_header(path: str | Path) -> tuple[Metric, dict[str, Any]]:
    """Read a metric and the header of its file."""
    optional = {"origin": 1, "data_factor": 2, "data_eigenvalues": 1, "flip_rate": 1}
    arrays, header = read(path, required={"factor": 2, "threshold": 1}, optional=optional)
    try:
        metric = Metric(
            arrays["factor"],
            cast("Any", arrays["threshold"]),
            header["noise"],
            header["feature_names"],
            arrays.get("origin"),
            _flip_rate(arrays.get("flip_rate")),
            arrays.get("data_factor"),
            arrays.get("data_eigenvalues"),
        )
        return metric, header
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} does not describe a metric: {error}") from error


def _flip_rate(rates: FloatArray | None) -> Any:
    """One rate, or those of the two sides."""
    if rates is None:
        return 0.0
    return rates.item() if len(rates) == 1 else tuple(rates.tolist())
