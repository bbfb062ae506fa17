"""Plain forms of results: values as JSON knows them, and tables of text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from closefar.errors import Sentence

__all__ = ["data_frame", "format_table", "records", "to_jsonable"]


def to_jsonable(value: Any, *, finite: bool = False, is_command_line: bool = False) -> Any:
    """Return the same value in numbers, strings, lists and dicts.

    `finite` makes None of nan and infinity; `is_command_line` puts texts in the words of the command line.
    """
    convert = partial(to_jsonable, finite=finite, is_command_line=is_command_line)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): convert(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(convert, value))
    if isinstance(value, Sentence):
        return value.command if is_command_line else str(value)
    return None if finite and isinstance(value, float) and not math.isfinite(value) else value


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table of arrays, each a dict of its values by column."""
    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def data_frame(columns: Mapping[str, Sequence[Any]], instead: str) -> Any:
    """Return a pandas data frame of these columns; the error without pandas, which is optional, says what to use."""
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise ImportError(f"to_frame needs pandas. Install pandas, or use {instead}.") from error
    return pandas.DataFrame(columns)


def format_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> str:
    """Columns of text, each with a heading and a format, right-aligned unless that begins with "<"; None is a dash."""
    cells = [
        ["-" if value is None else format(value, form) for value, (_, form) in zip(row, columns, strict=True)]
        for row in rows
    ]
    lines = [[name for name, _ in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [
        ("<" if form.startswith("<") else ">") + str(width) for width, (_, form) in zip(widths, columns, strict=True)
    ]
    return "\n".join("  ".join(map(format, line, sides)).rstrip() for line in lines)
