"""The report as one HTML page that needs nothing beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from closefar.files import check_writable, replace_file
from closefar.fitting import Fit, Fitted
from closefar.judgements import Kind
from closefar.plain import format_table
from closefar.report import charts
from closefar.report import charts as kind_charts
from closefar.report.charts import map_chart
from closefar.report.facts import summarize
from closefar.report.maps import level_styles
from closefar.report.wording import abridged, digits, loading, percent, sentence, short
from closefar.templating import load_asset, load_template

_LONGEST_NAME = 60  # which has room in two lines of a table
_MOST_DECIMALS = 4  # that have room in a matrix


def page_template() -> Any:
    """Return the template, or say which package is missing."""
    return load_template("report.html.jinja", "a report as HTML", "report")


def page(facts: dict[str, Any]) -> str:
    """Return the page of the dict of `summarize`."""
    script = load_asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html: str = page_template().render(
        facts,
        style=_style(facts),
        script=script,
        script_digest=digest,
        charts=_charts(facts),
        most_bars=charts.MOST_BARS,
        abridged=partial(abridged, longest=_LONGEST_NAME),
        percent=percent,
        figure=_figure,
        entry=_entry,
        loading=loading,
        level_styles=level_styles,
        label_errors="closefar label-errors" if facts["is_command_line"] else "closefar.find_label_errors",
    )
    return html


def _style(facts: dict[str, Any]) -> str:
    style = load_asset("palette.css") + load_asset("report.css")
    is_plain = facts["pairs"]["kind"] == Kind.CLOSE_FAR and facts["annotators"] is None
    return style if is_plain else style + load_asset("report_kinds.css")


def _charts(facts: dict[str, Any]) -> dict[str, str]:
    """The drawings of the parts that exist; they hold numbers and fixed words, and nothing of the user's."""
    drawn = _of_labels(facts["pairs"])
    if facts["spectrum"]["rows"]:
        drawn["spectrum"] = charts.spectrum_chart
    for name, chart in (
        ("pair_map", map_chart),
        ("point_map", map_chart),
        ("roc", drawn.pop("roc")),
        ("noise_check", charts.noise_chart),
        ("learning_curve", charts.learning_chart),
    ):
        if facts[name]["reason"] is None:
            drawn[name] = chart
    found = {name: chart(facts[name]) for name, chart in drawn.items()}
    if facts["choice"] is not None and facts["choice"]["path"] is not None:
        found["path"] = charts.path_chart(facts["choice"]["path"])
    if facts["intervals"]["reason"] is None:
        found["intervals"] = charts.interval_chart(facts["intervals"]["directions"])
    return found


def _of_labels(pairs: dict[str, Any]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """The charts that depend on the kind of judgement."""
    if pairs["kind"] == Kind.LEVELS:
        n = len(pairs["labels"])
        return {
            "distances": kind_charts.level_chart,
            "calibration": partial(kind_charts.calibration_of_levels, n_levels=n),
            "roc": partial(kind_charts.roc_of_levels, n_levels=n),
        }
    found: dict[str, Callable[[dict[str, Any]], str]] = {
        "distances": charts.distance_chart,
        "calibration": charts.calibration_chart,
        "roc": charts.roc_chart,
    }
    if pairs["kind"] == Kind.COMPARISONS:
        found["distances"] = kind_charts.leg_chart
        found["calibration"] = partial(charts.calibration_chart, predicted="P(likelier answer)", observed="share")
    return found


def _figure(value: float | None, form: str = ".3g") -> str:
    """A number in a table, or a dash where there is none."""
    return "\N{EN DASH}" if value is None else digits(value, form) if form.endswith("g") else format(value, form)


def _entry(value: float, largest: float) -> str:
    """An entry of a matrix to three digits of its largest one, so that the entries of a column line up."""
    decimals = 2 - math.floor(math.log10(largest))
    if not 0 <= decimals <= _MOST_DECIMALS:
        return digits(value, ".2g")
    text = f"{value:.{decimals}f}"
    return text if float(text) else text.removeprefix("-")


# ---------------------------------------------------------------------------------------------------------------------
# The report as text: Markdown that reads well as it is.


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


# ---------------------------------------------------------------------------------------------------------------------
# From the dict of a report to a page, JSON or text, and to a file.


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
    learner: Fit | Fitted, path: str | Path, X: Any = None, y: Any = None, sample_weight: Any = None, **options: Any
) -> bytes:
    """Return the content that `write_report` writes; nothing is written."""
    format = check_report(path)
    facts = summarize(learner, X, y, sample_weight, **options)
    # A name may hold a lone surrogate, which UTF-8 can't.
    return render(facts, format).encode("utf-8", "xmlcharrefreplace" if format == "html" else "backslashreplace")


def write_report(
    learner: Fit | Fitted, path: str | Path, X: Any = None, y: Any = None, sample_weight: Any = None, **options: Any
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
