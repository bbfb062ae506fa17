"""Where results go: what may be overwritten, and what could not be written is refused before any work is done.

A file that closefar wrote is replaced, so that a command can be run again; any other needs --force.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "IsOwn",
    "Replacing",
    "columns_of",
    "is_export",
    "is_model",
    "is_report",
    "report_path",
    "table_of",
    "table_path",
]

_PANEL = "Output"
_HEAD = 65536
_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1")

IsOwn = Callable[[Path], bool]


@dataclass(frozen=True)
class Replacing:
    """What happens to files that are there already."""

    force: Annotated[
        bool,
        typer.Option("--force", help="Also replace a file that closefar did not write.", rich_help_panel=_PANEL),
    ] = False
    no_overwrite: Annotated[
        bool, typer.Option("--no-overwrite", help="Replace no file at all.", rich_help_panel=_PANEL)
    ] = False

    def check(
        self, outputs: Mapping[Path, IsOwn], *, read: Iterable[Path | None], advice: str = "Choose another name"
    ) -> None:
        """Refuse what could not be written, or would overwrite what is read or what somebody else wrote.

        Parameters
        ----------
        outputs : dict of paths to functions
            The files to write; a function says of one that exists whether this command may have written it.
        read : paths
            The files that the command reads.
        advice : str
            What to do instead of overwriting a file.
        """
        from closefar.files import check_writable, is_device

        if self.force and self.no_overwrite:
            raise ValueError("--force and --no-overwrite contradict each other. Leave one of them out.")
        for path in outputs:
            if str(path) in _STANDARD_OUTPUT:  # which also takes the messages
                raise ValueError(
                    f"files can't be written to {path}. Name a file; without --out, tables go to standard output."
                )
        inputs, seen = [path for path in read if path is not None], list[Path]()
        for path, is_own in outputs.items():
            check_writable(path)
            if is_device(path):
                continue
            if any(_are_same(path, other) for other in inputs):
                raise ValueError(f"{path} is read by this command, so it can't be written. Choose another name.")
            if any(_are_same(path, other) for other in seen):
                raise ValueError(f"each file must have its own name; {path} is named twice.")
            seen.append(path)
            if path.exists():
                self._check_replacing(path, is_own, advice)

    def _check_replacing(self, path: Path, is_own: IsOwn, advice: str) -> None:
        if self.no_overwrite:
            raise ValueError(f"{path} exists, and --no-overwrite was given. {advice}.")
        if not (self.force or path.stat().st_size == 0 or is_own(path)):
            raise ValueError(
                f"{path} exists and is not a result of this command. {advice}, or replace it with --force."
            )


def is_model(path: Path) -> bool:
    """Whether a file is a closefar model, of whatever version."""
    return b'"__metadata__":{"closefar"' in _head(path)


def is_report(path: Path) -> bool:
    """Whether a file is a report of closefar."""
    head, suffix = _head(path), path.suffix.lower()
    if suffix == ".json":
        return head.startswith(b'{\n "title"') and b'"n_fitted"' in head
    if suffix in (".txt", ".md"):
        return head.startswith(b"# ") and b"\n## Calibration\n" in head
    return b'name="generator" content="closefar' in head


def is_export(names: Sequence[str]) -> IsOwn:
    """Return what tells whether a file is a metric of columns of these names that `closefar export` wrote."""

    def is_own(path: Path) -> bool:
        head, suffix = _head(path), path.suffix.lower()
        if suffix == ".csv":
            return [name for name, *_ in csv.reader(io.StringIO(head.decode("utf-8", "replace")))] == ["", *names]
        if suffix == ".json":
            return head.startswith(b'{\n "feature_names"') and b'"single_points"' in head
        if suffix == ".npz":
            return _holds(path, "matrix.npy", "factor.npy", "threshold.npy", "feature_names.npy")
        return b"closefar" in head[:32] if suffix == ".onnx" else _is_empty_index(path)

    return is_own


def table_of(*columns: str) -> IsOwn:
    """Return what tells whether a table ends with these columns, numbers in their names aside."""

    def is_own(path: Path) -> bool:
        names = [name.rstrip("0123456789") for name in columns_of(path)]
        return names[len(names) - len(columns) :] == list(columns) and len(names) > len(columns)

    return is_own


def table_path(out: Path | None) -> Path:
    """The name that says the format of a table: CSV on standard output and on devices."""
    from closefar.files import is_device

    return Path("table.csv") if out is None or (is_device(out) and not out.suffix) else out


def report_path(out: Path) -> Path:
    """The name that says the format of a report: a page on devices."""
    from closefar.files import is_device

    return Path("report.html") if is_device(out) and not out.suffix else out


def _holds(path: Path, *members: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return set(members) <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _is_empty_index(path: Path) -> bool:
    try:
        import faiss

        return bool(faiss.read_index(str(path)).ntotal == 0)
    except (ImportError, RuntimeError):
        return False


def columns_of(path: Path) -> list[str]:
    """The names of the columns of a table; none where it is no table."""
    from closefar.tables import open_table

    try:
        return list(open_table(path).names)
    except (ImportError, OSError, ValueError):
        return []


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _are_same(left: Path, right: Path) -> bool:
    if left.exists() and right.exists():
        return os.path.samefile(left, right)
    return os.path.realpath(left) == os.path.realpath(right)
