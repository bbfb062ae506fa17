"""What the records say: mean and standard error of each figure, and where closefar stands against its peers."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peers.peers import Peer, peers_of
from peers.results import Record
from peers.works import Measure, Setting, Work

__all__ = ["Figure", "Row", "Standing", "Verdict", "rows_of", "standings"]

OURS = "closefar"


@dataclass(frozen=True)
class Figure:
    """The values of a figure by seed."""

    values: dict[int, float]

    @property
    def mean(self) -> float:
        """The mean over seeds; not a number without any."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; not a number for one seed."""
        n = len(self.values)
        return float(np.std(list(self.values.values()), ddof=1) / math.sqrt(n)) if n > 1 else math.nan

    @property
    def is_clear(self) -> bool:
        """Whether the mean is above zero by more than its standard error, if that is known."""
        return self.mean > 0 and not self.mean <= self.standard_error


@dataclass(frozen=True)
class Row:
    """A peer at a setting."""

    peer: Peer
    figures: dict[str, Figure]
    seconds: Figure | None
    memory: Figure | None  # MiB
    claims: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # reasons and notes

    @property
    def is_ours(self) -> bool:
        """Whether this is closefar, with whatever settings."""
        return self.peer.name.startswith(OURS)


class Verdict(enum.Enum):
    """Where closefar stands on a figure of a setting."""

    FIRST = "first"
    WITHIN = "within one standard error of the best"
    BEHIND = "behind"
    ABSENT = "without a figure"
    ALONE = "the only one with a figure"


@dataclass(frozen=True)
class Standing:
    """closefar and the best of the others on one figure of one setting, over the seeds that both have."""

    setting: Setting
    measure: Measure
    verdict: Verdict
    ours: Figure | None = None
    best: Figure | None = None
    best_peer: str = ""


def rows_of(setting: Setting, records: Sequence[Record]) -> list[Row]:
    """Return a row for each peer of the register that has a record at a setting."""
    here = [record for record in records if (record["work"], record["setting"]) == (setting.work, setting.name)]
    rows = []
    for peer in peers_of(setting.work):
        own = [record for record in here if record["peer"] == peer.name]
        if own:
            rows.append(_row(peer, own))
    return rows


def _row(peer: Peer, records: list[Record]) -> Row:
    good = [record for record in records if record["status"] == "ok"]
    names = dict.fromkeys(name for record in good for name in record["figures"])
    figures = {name: _figure({each["seed"]: each["figures"].get(name) for each in good}) for name in names}
    remarks = [f"{record['status']}: {record['reason']}" for record in records if record["status"] != "ok"]
    remarks += [record["note"] for record in good if record["note"]]
    return Row(
        peer,
        {name: figure for name, figure in figures.items() if figure is not None},
        _figure({record["seed"]: record["cpu"] for record in good}),
        _figure({record["seed"]: record["memory"] for record in good}),
        tuple(dict.fromkeys(record["claim"] for record in good if record["claim"])),
        tuple(_counted(remarks, len(records))),
    )


def _figure(values: dict[int, float | None]) -> Figure | None:
    found = {seed: value for seed, value in values.items() if value is not None}
    return Figure(found) if found else None


def _counted(remarks: list[str], n_trials: int) -> list[str]:
    """Say for how many seeds a remark holds, unless it is for all."""
    counts = {remark: remarks.count(remark) for remark in dict.fromkeys(remarks)}
    return [
        remark if count == n_trials else f"{remark} ({count} of {n_trials} seeds)" for remark, count in counts.items()
    ]


def standings(work: Work, records: Sequence[Record]) -> list[Standing]:
    """Return where closefar stands on each figure of each setting that has records."""
    found = []
    for setting in work.SETTINGS:
        rows = rows_of(setting, records)
        if rows:
            found += [_standing(setting, measure, rows) for measure in work.MEASURES]
    return found


def _standing(setting: Setting, measure: Measure, rows: list[Row]) -> Standing:
    have = [row for row in rows if measure.name in row.figures]
    ours = next((row.figures[measure.name] for row in have if row.peer.name == OURS), None)
    others = {row.peer.name: row.figures[measure.name] for row in have if not row.is_ours}
    if ours is None and others:
        return Standing(setting, measure, Verdict.ABSENT)
    leads = {name: lead(figure, ours, measure) for name, figure in others.items()} if ours is not None else {}
    leads = {name: each for name, each in leads.items() if each.values}
    if ours is None or not leads:
        return Standing(setting, measure, Verdict.ALONE, ours)
    best = max(leads, key=lambda name: leads[name].mean)
    verdict = Verdict.FIRST if leads[best].mean <= 0 else Verdict.BEHIND if leads[best].is_clear else Verdict.WITHIN
    common = leads[best].values
    ours, theirs = (Figure({seed: figure.values[seed] for seed in common}) for figure in (ours, others[best]))
    return Standing(setting, measure, verdict, ours, theirs, best)


def lead(one: Figure, other: Figure, measure: Measure) -> Figure:
    """Return by how much one is better than the other, seed by seed, because all peers have the same data."""
    sign = 1.0 if measure.larger_is_better else -1.0
    common = sorted(one.values.keys() & other.values.keys())
    return Figure({seed: sign * (one.values[seed] - other.values[seed]) for seed in common})
