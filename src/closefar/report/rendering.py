"""From the dict of a report to a page, JSON or text, and to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from closefar.files import check_writable, replace_file
from closefar.fitting import Fit, Fitted
from closefar.report.page import page, page_template
from closefar.report.summary import summarize
from closefar.report.text import text

__all__ = ["check_report", "encode_report", "render", "write_report"]

_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".txt": "text", ".md": "text"}


def render(facts: dict[str, Any], format: str) -> str:
    """Return the dict of `summarize` as "html", "json" or "text" (which is Markdown).

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.report import render, summarize
    >>> pairs, labels, *_ = cf.datasets.make_pairs(500, 2, random_state=0)
    >>> facts = summarize(cf.LinearMetricLearner().fit(pairs, labels), title="Five hundred pairs")
    >>> print(render(facts, "text").splitlines()[0])
    # Five hundred pairs
    """
    if format not in _RENDERERS:
        raise ValueError(f"format must be one of {list(_RENDERERS)}; got {format!r}.")
    return _RENDERERS[format](facts)


def check_report(path: str | Path) -> str:
    """Return the format that the name of a report asks for; an error if it can't be made."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(f"the name of a report must end with one of {', '.join(_FORMATS)}; got {str(path)!r}.")
    if _FORMATS[suffix] == "html":
        page_template()  # says if a package is missing
    return _FORMATS[suffix]


def encode_report(
    learner: Fit | Fitted,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    **options: Any,
) -> bytes:
    """Return the content that `write_report` writes; nothing is written."""
    format = check_report(path)
    facts = summarize(learner, X, y, sample_weight, **options)
    # A name may hold a lone surrogate, which UTF-8 can't.
    return render(facts, format).encode("utf-8", "xmlcharrefreplace" if format == "html" else "backslashreplace")


def write_report(
    learner: Fit | Fitted,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    **options: Any,
) -> None:
    """Write one file that shows what was learned, how good it is and how to go on.

    An HTML page needs nothing beside it and asks nothing of the network.  An existing file is
    replaced in one step, so a reader sees the old report or the whole new one.

    Parameters
    ----------
    path : str or Path
        Where to write.  Its suffix says what: .html or .htm (a page), .json, .txt or .md (text).
    learner, X, y, sample_weight, **options
        As for `summarize`.
    """
    check_writable(Path(path))
    replace_file(Path(path), encode_report(learner, path, X, y, sample_weight, **options))


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=1, allow_nan=False) + "\n"


_RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {"html": page, "json": _json, "text": text}
