"""The report as text: Markdown that reads well as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from closefar.judgements import Kind
from closefar.plain import format_table
from closefar.report.wording import loading, percent, sentence, short

__all__ = ["text"]

_WIDTH = 100
_MOST_LOADINGS = 5
_MOST_DIRECTIONS = 3


def text(facts: dict[str, Any]) -> str:
    """Return the text of the dict of `summarize`."""
    lines = [
        f"# {short(facts['title'], _WIDTH)}",
        "",
        *(f"* {item['name']}: {short(item['value'], _WIDTH)}" for item in facts["about"]),
    ]
    lines += ["", *_paragraph(facts["sentence"]), *_paragraph(facts["pairs"]["words"])]
    if facts["choice"] is not None:
        lines += _paragraph(facts["choice"]["sentence"])
    lines += [f"* {item['name']}: {item['value']} ({item['note']})" for item in facts["key_figures"]]
    lines.append("")
    if facts["problems"]:
        lines += _section("Warnings", *(f"* {problem}" for problem in facts["problems"]))
    for heading, paragraphs in _sections(facts):
        lines += _section(heading, *paragraphs)
    return "\n".join(lines).rstrip() + "\n"


def _sections(facts: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    certificate, wrong, pairs = facts["certificate"], facts["wrong_labels"], facts["pairs"]
    if facts["baseline"] is not None:
        yield "Compared with the plain distance", [facts["baseline"]["reading"], _compared(facts["baseline"])]
    if facts["choice"] is not None and facts["choice"]["table"]:
        yield "Settings that were tried", [_tried(facts["choice"]["table"])]
    yield _distances(pairs), [facts["distances"]["reading"]]
    yield "ROC curve", [_said(facts["roc"])]
    yield "Calibration", [facts["calibration"]["reading"], _calibration(facts["calibration"], pairs["kind"])]
    yield "Confusion matrix", [_confusion(facts["quality"]["confusion"])]
    if facts["comparisons"] is not None:
        yield "Comparisons of the same fit", [facts["comparisons"]["reading"]]
    if facts["annotators"] is not None:
        yield "Annotators", [facts["annotators"]["reading"], _annotators(facts["annotators"])]
    yield "Spectrum and truncation", [facts["spectrum"]["reading"], facts["truncation"]["reading"], _ranks(facts)]
    yield "Directions and their loadings", _directions(facts["directions"]) or [facts["directions"]["reading"]]
    yield "The metric as a matrix", [facts["matrix"]["reading"]]
    yield (
        "Optimality of the fit",
        [f"{sentence(certificate['outcome'])}. {certificate['advice']}", certificate["words"]],
    )
    yield "Noise model", [_said(facts["noise_check"])]
    yield "Confidence intervals", [_said(facts["intervals"]), *_intervals(facts["intervals"], facts["evidence"])]
    yield f"Suspicious {pairs['term']}s", [_said(wrong), *_suspicious(wrong, pairs)]
    yield (
        f"Learning curve: would more {pairs['noun']}s help?",
        [_said(facts["learning_curve"]), *_curve(facts["learning_curve"])],
    )
    for step in facts["next_steps"]:
        yield step["title"], [_fence(step["code"], step["language"])]
    yield "Summary of the fit", [_fence(_printable(facts["fit"]["summary"]))]


def _said(part: dict[str, Any]) -> str:
    return str(part["reason"] or part["reading"])


def _section(heading: str, *paragraphs: str) -> list[str]:
    lines = [f"## {heading}", ""]
    for paragraph in paragraphs:
        lines += [paragraph, ""] if paragraph.startswith("```") else _paragraph(paragraph)
    return lines


def _paragraph(words: str) -> list[str]:
    return [*textwrap.wrap(" ".join(words.split()), _WIDTH, break_long_words=False, break_on_hyphens=False), ""]


def _fence(content: str, language: str = "") -> str:
    return f"```{language}\n{content.replace('```', '` ` `')}\n```"


def _printable(content: str) -> str:
    """The same lines without letters that could turn their direction."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in content)


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> str:
    return _fence(format_table(columns, rows))


def _compared(part: dict[str, Any]) -> str:
    columns = [("held out", ""), ("accuracy", ".1%"), ("loss", ".4f")]
    return _table(columns, [[row["name"], row["accuracy"], row["loss"]] for row in part["rows"]])


def _tried(rows: list[dict[str, Any]]) -> str:
    columns = {
        "prior": ("prior", ""),
        "alpha": ("alpha", ".4g"),
        "flip_rate": ("flip rate", ".3f"),
        "rank": ("rank", ""),
        "noise": ("noise", ""),
        "loss": ("held-out loss", ".4f"),
        "standard_error": ("std. error", ".4f"),
        "accuracy": ("accuracy", ".1%"),
    }
    shown = {
        name: column
        for name, column in columns.items()
        if name not in ("rank", "noise") or len({row[name] for row in rows}) > 1
    }
    return _table(list(shown.values()), [[row[name] for name in shown] for row in rows])


def _distances(pairs: dict[str, Any]) -> str:
    if pairs["kind"] == Kind.COMPARISONS:
        return "Differences of squared distances"
    return (
        "Squared distances by level"
        if pairs["kind"] == Kind.LEVELS
        else (f"Squared distances of close and far {pairs['noun']}s")
    )


def _calibration(part: dict[str, Any], kind: str) -> str:
    far = " far" if kind == Kind.CLOSE_FAR else ""
    columns = [
        ("number", ",d"),
        (f"predicted{far}", ".1%"),
        (f"observed{far}", ".1%"),
        ("lower", ".1%"),
        ("upper", ".1%"),
    ]
    names = ["count", "predicted", "observed", "low", "high"]
    if kind == Kind.LEVELS:
        columns, names = [("level or higher", "d"), *columns], ["level", *names]
    return _table(columns, [[row[name] for name in names] for row in part["bins"]])


def _confusion(part: dict[str, Any]) -> str:
    if "reason" in part:
        return str(part["reason"])
    labels = [short(label) for label in part["labels"]]
    columns = [("label", ""), *((f"predicted {label}", ",.6g") for label in labels)]
    return _table(columns, [[label, *row] for label, row in zip(labels, part["counts"], strict=True)])


def _annotators(part: dict[str, Any]) -> str:
    columns = {
        "annotator": ("annotator", ""),
        "n": ("judgements", ",d"),
        "strictness": ("strictness", "+.3g"),
        "low": ("lower", "+.3g"),
        "high": ("upper", "+.3g"),
        **({"flip_rate": ("flip rate", ".1%")} if part["has_flips"] else {}),
        "agreement": ("agreement", ".1%"),
        **({"kappa": ("kappa", ".2f")} if part["has_kappa"] else {}),
        "verdict": ("verdict", ""),
    }
    rows = [[short(row[name]) if name == "annotator" else row[name] for name in columns] for row in part["rows"]]
    return _table(list(columns.values()), rows)


def _ranks(facts: dict[str, Any]) -> str:
    columns = {
        "k": ("rank", "d"),
        "cut_off": ("cut-off", ".3g"),
        "loss": ("loss", ".4f"),
        "bound": ("bound +", ".2g"),
        "accuracy": ("accuracy", ".1%"),
        "refit_accuracy": ("refitted", ".1%"),
    }
    return _table(list(columns.values()), [[row[name] for name in columns] for row in facts["truncation"]["rows"]])


def _directions(part: dict[str, Any]) -> list[str]:
    lines = []
    for number, row in enumerate(part["rows"][:_MOST_DIRECTIONS], start=1):
        order = sorted(range(len(row["loadings"])), key=lambda index: -abs(row["loadings"][index]))[:_MOST_LOADINGS]
        words = ", ".join(f"{short(part['features'][index])} {loading(row['loadings'][index])}" for index in order)
        lines.append(f"Direction {number} explains {percent(row['share'])} of the mean squared distance: {words}.")
    return lines


def _intervals(part: dict[str, Any], evidence: str) -> list[str]:
    if part["reason"]:
        return []
    columns = [("", ""), ("estimate", ".4g"), ("lower", ".4g"), ("upper", ".4g")]
    rows = [["threshold", *_ends(part["threshold"])]] if part["threshold"] else []
    rows += [[f"threshold {number}", *_ends(row)] for number, row in enumerate(part.get("thresholds", []), start=1)]
    if part["flip_rate"]:
        rows += [["flip rate", *_ends(part["flip_rate"])]]
    for name, row in zip(("close called far", "far called close"), part.get("flip_rates", []), strict=False):
        rows += [[name, *_ends(row)]]
    rows += [[f"direction {number}", *_ends(row)] for number, row in enumerate(part["directions"], start=1)]
    return [evidence, part["statement"], _table(columns, rows)]


def _ends(row: dict[str, Any]) -> list[Any]:
    return [row["estimate"], row["low"], row["high"]]


def _suspicious(part: dict[str, Any], pairs: dict[str, Any]) -> list[str]:
    if not part["rows"]:
        return []
    if pairs["kind"] == Kind.LEVELS:
        return [_suspicious_levels(part)]
    term = pairs["term"]
    probability = "probability_wrong" if part["kind"] == "probability" else "probability_of_label"
    wrong = "P(wrong)" if part["kind"] == "probability" else f"P({term})"
    columns = [("row or id", ""), (term, ""), (wrong, ".3f")]
    rows = [
        [", ".join(map(short, row["ids"])) or f"{row['row']}", short(row["label"]), row[probability], row["margin"]]
        for row in part["rows"]
    ]
    return [_table([*columns, ("margin", ".3g")], rows)]


def _suspicious_levels(part: dict[str, Any]) -> str:
    columns = {
        "label": ("label", ""),
        "predicted": ("predicted", ""),
        **({"probability_wrong": ("P(wrong)", ".3f")} if part["kind"] == "probability" else {}),
        "probability_of_label": ("P(label)", ".3f"),
        "squared_distance": ("squared distance", ".3g"),
    }
    rows = [
        [
            ", ".join(map(short, row["ids"])) or f"{row['row']}",
            *(short(row[name]) if name in ("label", "predicted") else row[name] for name in columns),
        ]
        for row in part["rows"]
    ]
    return _table([("row or id", ""), *columns.values()], rows)


def _curve(part: dict[str, Any]) -> list[str]:
    if part["reason"]:
        return []
    columns = [(f"training {part['noun']}s", ",d"), ("loss", ".4f"), ("accuracy", ".1%")]
    return [_table(columns, [[row["n_pairs"], row["loss"], row["accuracy"]] for row in part["rows"]])]
