"""The tables of the documentation, from the records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peers.results import Record
from peers.summary import OURS, Figure, Row, Standing, Verdict, lead, rows_of, standings
from peers.works import Measure, Setting, Work

__all__ = ["insert", "tables"]

BEGIN, END = "<!-- results: written by benchmarks/peers -->", "<!-- end of results -->"
MARK = "▲"


def tables(works: Mapping[str, Work], records: Sequence[Record], machine: Mapping[str, Any]) -> str:
    """Return everything that is derived from the records, as Markdown."""
    parts = [_origin(records, machine)]
    for name, work in works.items():
        own = [record for record in records if record["work"] == name]
        if own:
            has_plot = any(work.MEASURES[0].name in record.get("figures", {}) for record in own)
            parts += [f"## {work.TITLE}", _plot(name) if has_plot else "", _standing_table(standings(work, own))]
            parts += [_setting_part(setting, work, own) for setting in work.SETTINGS]
    return "\n\n".join(filter(None, parts))


def insert(page: Path, text: str) -> str:
    """Return a page with the text between its markers."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} must have the lines {BEGIN!r} and {END!r}.")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _origin(records: Sequence[Record], machine: Mapping[str, Any]) -> str:
    seeds = sorted({record["seed"] for record in records})
    listed = ", ".join(map(str, seeds)) if len(seeds) != seeds[-1] - seeds[0] + 1 else f"{seeds[0]} to {seeds[-1]}"
    versions = sorted({part for record in records for part in record.get("versions", "").split(", ") if part})
    return (
        f"{len(records)} trials on {machine['cpu']} ({machine['system']}), one thread each; seeds {listed}. "
        f"Versions: {', '.join(versions)}."
    )


def _plot(work: str) -> str:
    return f"![Figures against fit time: {work}](images/peers-{work}.svg)"


def _standing_table(found: list[Standing]) -> str:
    lines = ["| setting | figure | closefar | best of the others | closefar is |", "|---|---|---|---|---|"]
    for each in found:
        if each.verdict is not Verdict.ALONE:
            shown = (
                f"**{each.verdict.value}**" if each.verdict in (Verdict.BEHIND, Verdict.ABSENT) else each.verdict.value
            )
            best = f"{_shown(each.best, each.measure)} ({each.best_peer})" if each.best_peer else "—"
            cells = [each.setting.name, each.measure.title, _shown(each.ours, each.measure), best, shown]
            lines.append(_line(cells))
    return "\n".join(lines) if len(lines) > 2 else ""


def _setting_part(setting: Setting, work: Work, records: Sequence[Record]) -> str:
    rows = rows_of(setting, records)
    if not rows:
        return ""
    heads = ["", *(measure.title for measure in work.MEASURES), "fit, CPU s", "memory, MiB", "says of its optimum"]
    lines = [f"### {setting.name[0].upper()}{setting.name[1:]}", "", setting.description, ""]
    lines += [_line(heads), _line(["---"] * len(heads))]
    notes: dict[str, int] = {}
    ours = next((row for row in rows if row.peer.name == OURS), None)
    for row in rows:
        marks = "".join(f"[{notes.setdefault(note, len(notes) + 1)}]" for note in _notes(row))
        cells = [f"{row.peer.name} {marks}".strip()]
        cells += [_cell(row, measure, rows, ours) for measure in work.MEASURES]
        cells += [_seconds(row, ours), _mebibytes(row.memory), row.claims[-1] if row.claims else "—"]
        lines.append(_line(cells))
    listed = [f"[{number}] {_escaped(note)}" for note, number in notes.items()]
    return "\n".join(lines) + ("\n\n" + "  \n".join(listed) if listed else "")


def _notes(row: Row) -> list[str]:
    return [*row.remarks, *([row.peer.flaws] if row.peer.flaws and row.figures else [])]


def _cell(row: Row, measure: Measure, rows: Sequence[Row], ours: Row | None) -> str:
    """A figure: bold if it is the best, marked if it is better than closefar's beyond the spread."""
    figure = row.figures.get(measure.name)
    if figure is None:
        return "—"
    means = [each.figures[measure.name].mean for each in rows if measure.name in each.figures]
    text = _shown(figure, measure)
    if figure.mean == (max(means) if measure.larger_is_better else min(means)):
        text = f"**{text}**"
    other = ours.figures.get(measure.name) if ours is not None else None
    if other is not None and not row.is_ours and lead(figure, other, measure).is_clear:
        text += f" {MARK}"
    return text


def _shown(figure: Figure | None, measure: Measure) -> str:
    if figure is None:
        return "—"
    error = figure.standard_error
    return measure.show(figure.mean) + ("" if math.isnan(error) else f" ± {measure.show(error)}")


def _seconds(row: Row, ours: Row | None) -> str:
    """CPU seconds, and how many times as many as closefar needs with the same seeds."""
    if row.seconds is None:
        return "—"
    text = f"{row.seconds.mean:.3g}"
    if ours is None or ours.seconds is None or row.is_ours:
        return text
    common = row.seconds.values.keys() & ours.seconds.values.keys()
    ratios = [row.seconds.values[seed] / max(ours.seconds.values[seed], 1e-9) for seed in common]
    return f"{text} ({sum(ratios) / len(ratios):.2g}x)" if ratios else text


def _mebibytes(figure: Figure | None) -> str:
    return "—" if figure is None else f"{figure.mean:.0f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
