"""Writes tables and plots from the records, and says in a few lines where closefar stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from closefar.files import replace_file
from peers.environments import ROOT
from peers.plots import plot
from peers.results import Record, load
from peers.summary import Verdict, standings
from peers.table import insert, tables
from peers.works import WORKS, Work, load_work

__all__ = ["docs_page", "said", "with_other_machines", "write_docs", "write_report"]

PAGE = ROOT / "docs" / "peers.md"


def with_other_machines(path: Path) -> tuple[list[Record], dict[str, Any]]:
    """Return the records of a file; where one has no figures, those of `results-*.json` beside it take its place.

    That is how a machine without a GPU shows what was measured on one that has it; a note says so.
    """
    saved = load(path)
    records = {_key(record): record for record in saved["records"]}
    for other in sorted(path.parent.glob("results-*.json")):
        found = load(other)
        where = f"measured on another machine ({found['machine'].get('gpu') or found['machine']['cpu']})"
        for record in found["records"]:
            known = records.get(_key(record))
            if record["status"] == "ok" and known is not None and known["status"] != "ok":
                records[_key(record)] = {**record, "note": "; ".join(filter(None, [record["note"], where]))}
    return list(records.values()), saved["machine"]


def _key(record: Record) -> tuple[Any, ...]:
    return record["work"], record["setting"], record["seed"], record["peer"]


def _works(records: Sequence[Record]) -> dict[str, Work]:
    present = {record["work"] for record in records}
    return {name: load_work(name) for name in WORKS if name in present}


def write_report(path: Path) -> None:
    """Write peers.md and the plots beside a file of results."""
    records, machine = with_other_machines(path)
    works = _works(records)
    _write_plots(path.parent / "images", works, records)
    replace_file(path.parent / "peers.md", (tables(works, records, machine) + "\n").encode())


def docs_page(path: Path) -> str:
    """Return the page of the documentation with the tables of a file of results."""
    records, machine = with_other_machines(path)
    return insert(PAGE, tables(_works(records), records, machine))


def write_docs(path: Path) -> None:
    """Write tables and plots into the documentation."""
    records, _ = with_other_machines(path)
    _write_plots(PAGE.parent / "images", _works(records), records)
    replace_file(PAGE, docs_page(path).encode())


def _write_plots(folder: Path, works: Mapping[str, Work], records: Sequence[Record]) -> None:
    folder.mkdir(exist_ok=True)
    for name, work in works.items():
        drawn = plot(name, work, records)
        if drawn is not None:
            replace_file(folder / f"peers-{name}.svg", drawn)


def said(records: Sequence[Record]) -> str:
    """Say on how many lines closefar is first, and name those where it is not."""
    found = [each for work in _works(records).values() for each in standings(work, records)]
    counts = Counter(each.verdict for each in found)
    lines = [
        f"closefar is first on {counts[Verdict.FIRST]} lines, within one standard error of the best on "
        f"{counts[Verdict.WITHIN]}, behind on {counts[Verdict.BEHIND]}, "
        f"and without a figure on {counts[Verdict.ABSENT]}."
    ]
    for each in found:
        if each.verdict is Verdict.BEHIND and each.ours is not None and each.best is not None:
            lines.append(
                f"  behind: {each.setting.work}, {each.setting.name}, {each.measure.title}: "
                f"{each.measure.show(each.ours.mean)} against {each.measure.show(each.best.mean)} of {each.best_peer}"
            )
    return "\n".join(lines)
