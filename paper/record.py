"""The committed record of a full run, ``results.json``, and the tables of the documentation that quote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paper.page import formatted, formatted_spread

RESULTS = Path(__file__).with_name("results.json")
# The tables are between these lines of both files.
BEGIN, END = "<!-- From paper/results.json: begin -->", "<!-- end -->"
QUOTING = ("README.md", "docs/paper.md")


def write_record(results: dict[str, Any], root: Path) -> None:
    """Record the experiments that are done, and quote them in the documentation below `root`.

    Experiments of the record that were not run again are kept if the version is the same.  Figures are left out: they
    are drawn from trials, which are not recorded.
    """
    before: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"version": None}
    experiments = before["experiments"] if before["version"] == results["version"] else {}
    for entry in results["experiments"]:
        if entry["status"] == "done":
            section = {key: value for key, value in entry["section"].items() if key != "figures"}
            experiments[entry["name"]] = {"title": entry["title"], "created": results["created"], **section}
    record = {key: results[key] for key in ("version", "full", "seed")} | {"experiments": experiments}
    RESULTS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in QUOTING:
        path = root / name
        head, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        _, end, tail = rest.partition(END)
        path.write_text(f"{head}{begin}\n{quoted_table(record)}\n{end}{tail}", encoding="utf-8")


def quoted_table(record: dict[str, Any]) -> str:
    """Return the quoted numbers of a record as a table in Markdown, the paper's own best number beside ours."""
    lines = ["| | the paper's best | closefar |", "|---|---|---|"]
    for entry in record["experiments"].values():
        for each in entry["quoted"]:
            paper = each["printed"] or formatted(each["paper"], each["percent"])
            paper += f" ({each['note']})" if each["note"] else ""
            ours = f"{formatted(each['ours'], each['percent'])} {formatted_spread(each)}".rstrip()
            lines.append(f"| {each['text']} | {paper} | {ours} |")
    return "\n".join(lines)
