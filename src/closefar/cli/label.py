"""``closefar label``: judge pairs, levels or triplets in the browser."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from closefar.cli.options import Columns, Points, Rule, are_different, argument, names, number, option
from closefar.cli.session import Session, WritingSession
from closefar.errors import InvalidValueError
from closefar.label import ANSWERS, Address, Method, Site, Task, TaskKind, Tls, check_names, plan_site

_CHOICE = "Choice of questions"  # beside the panel of a group
# Characters that the page has room for: a heading, a page of text, a button.
_LONGEST_QUESTION, _LONGEST_INSTRUCTIONS, _LONGEST_ANSWER = 300, 10_000, 40
_FEWEST_LEVELS, _MOST_LEVELS = 3, 9  # each has a key


_QUESTIONS = {
    TaskKind.pairs: "Are these two close to each other, or far apart?",
    TaskKind.levels: "How far apart are these two?",
    TaskKind.triplets: "Which of the two is nearer to the reference?",
}


def _text(longest: int, *, may_be_file: bool = False) -> Rule:
    """The rule of a text on a page, or of @ and the name of a file with it."""

    def read(name: str, text: str | None) -> str | None:
        if text is not None and may_be_file and text.startswith("@"):
            try:
                text = Path(text[1:]).read_text(encoding="utf-8").strip()
            except UnicodeDecodeError:
                raise InvalidValueError(name, "must be a text, or @ and a file in UTF-8", text) from None
        if text is not None and (len(text) > longest or not text.translate({9: " ", 10: " "}).isprintable()):
            raise InvalidValueError(name, f"must be printable text of {longest:,} characters at most", len(text))
        return text

    return read


def _levels(name: str, text: str | None) -> tuple[str, ...] | None:
    is_number = text is not None and text.strip().isdecimal()
    levels = tuple(map(str, range(1, min(int(text or 0), 100) + 1))) if is_number else names(name, text)
    if levels is None:
        return None
    if not _FEWEST_LEVELS <= len(levels) <= _MOST_LEVELS or not are_different(levels):
        rule = f"must be {_FEWEST_LEVELS} to {_MOST_LEVELS} different levels, closest first, or their number"
        raise InvalidValueError(name, rule, text)
    for level in levels:
        _text(_LONGEST_ANSWER)(name, level)
    return levels


@dataclass(frozen=True)
class LabelTask:
    """What is asked, of whom, and how questions are chosen."""

    PANEL: ClassVar = "Question"

    kind: TaskKind = option(
        "What is judged: pairs as close or far, pairs on levels, or which of two points is nearer to a third.",
        default=TaskKind.pairs,
    )
    levels: tuple[str, ...] | None = option(
        "Levels from closest to farthest, or their number. Default: 5, that is 1,2,3,4,5.", "K or A,B,...", rule=_levels
    )
    question: str | None = option(
        "The question above every two or three points.", "TEXT", rule=_text(_LONGEST_QUESTION)
    )
    instructions: str = option(
        "A longer text for annotators; @FILE reads it from a file.",
        "TEXT",
        default="",
        rule=_text(_LONGEST_INSTRUCTIONS, may_be_file=True),
    )
    annotators: tuple[str, ...] | None = option(
        "Names of those who judge; each gets an address with a secret. Default: the owner alone.", "A,B,...", rule=names
    )
    method: Method = option("How the next questions are chosen.", default=Method.information, panel=_CHOICE)
    random_share: float = option(
        "Share of questions drawn at random, which alone measure the quality.",
        "SHARE",
        default=0.15,
        panel=_CHOICE,
        rule=number(float, least=0, most=1),
    )
    shared_share: float = option(
        "Share of questions that another annotator has answered, to measure agreement.",
        "SHARE",
        default=0.1,
        panel=_CHOICE,
        rule=number(float, least=0, most=1),
    )
    target: float = option(
        "Relative error of the metric up to which the number of answers is projected.",
        "ERROR",
        default=0.1,
        panel=_CHOICE,
        rule=number(float, above=0, below=1),
    )

    def task(self) -> Task:
        """The task, if its values go together."""
        if self.random_share + self.shared_share > 1:
            raise ValueError(
                "--random-share and --shared-share must be 1 at most together; got "
                f"{self.random_share + self.shared_share:g}."
            )
        if self.levels is not None and self.kind is not TaskKind.levels:
            raise ValueError(f"--levels is about --kind levels; got --kind {self.kind}. Leave one of them out.")
        return Task(
            kind=self.kind,
            question=self.question or _QUESTIONS[self.kind],
            instructions=self.instructions,
            answers=ANSWERS.get(self.kind) or self.levels or tuple("12345"),
            annotators=("owner",) if self.annotators is None else check_names(self.annotators),
            method=self.method,
            random_share=self.random_share,
            shared_share=self.shared_share,
            target_error=self.target,
        )


@dataclass(frozen=True)
class Serving:
    """Where the pages are served."""

    PANEL: ClassVar = "Server"

    host: str = option(
        "Address to listen on. Others than this machine's own need TLS or --behind-proxy.",
        "ADDRESS",
        default="127.0.0.1",
    )
    port: int | None = option(
        "Port to listen on; 0 takes a free one. Default: one that is always the same for the file of --out.",
        "N",
        rule=number(int, least=0, most=65535),
    )
    no_browser: bool = option("Do not open a browser.", default=False)
    tls_certificate: Path | None = option("Certificate for HTTPS, with its chain (PEM).", "FILE")
    tls_key: Path | None = option("Key of the certificate (PEM).", "FILE")
    behind_proxy: bool = option("A proxy with TLS passes requests on to this server.", default=False)
    address: str | None = option(
        "What annotators type, such as https://label.example.org, if that is not the host and the port.", "URL"
    )

    def site(self) -> Site:
        """Where to listen, if nobody can listen in there."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("--tls-certificate and --tls-key must be given together. Add the other one.")
        tls = None if not (self.tls_certificate and self.tls_key) else Tls(self.tls_certificate, self.tls_key)
        return plan_site(self.host, tls=tls, behind_proxy=self.behind_proxy, address=self.address)


def label(
    points: Points,
    task: LabelTask,
    columns: Columns,
    serving: Serving,
    session: Session,
    out: Path = option(
        "The file of judgements; one that is there already is continued.",
        "FILE",
        "--out",
        "-o",
        default=Path("judgements.sqlite"),
    ),
    show: tuple[str, ...] | None = option(
        "Columns to show that are no features: texts, links, and pictures in files beside the table.",
        "A,B,...",
        rule=names,
    ),
) -> None:
    """Judge pairs or triplets of points in the browser, while a metric is learned from the answers.

    Serves pages on this machine until it is interrupted; the same command goes on with the same file.

    closefar label --points points.csv --out judgements.sqlite --question "Would you treat these two alike?"
    """
    options = columns.given | {"id": points.id, "na_values": points.na_values, "show": show or ()}
    serve(session, points.points, out, task, serving, **options)


def serve(session: Session, points: Path, out: Path, task: LabelTask, serving: Serving, **options: Any) -> None:
    """Serve the pages of a table of points until an interrupt; then say what there is to do with the answers."""
    asked, site = task.task(), serving.site()
    if str(points) == "-":
        raise ValueError("--points must be a file, which is read again when judging goes on; got standard input.")
    from closefar.label import LabelServer, read_label_points

    table = session.read(read_label_points, points, **options)
    with LabelServer(out, asked, table, site, serving.port) as server:
        with contextlib.suppress(KeyboardInterrupt):  # one that comes before the server waits for it
            _announce(session, server.addresses(), len(table), sum(server.count_answers()), out)
            if not serving.no_browser:
                server.open_browser()
            server.run()
        n, n_unsure = server.count_answers()
    if not session.output.json:
        session.show(_farewell(n, n_unsure, points, out), {})


def _announce(session: Session, addresses: list[Address], n_points: int, n_answers: int, out: Path) -> None:
    """Print the address of everybody; they are asked for, and so are never quiet."""
    if session.output.json:
        facts = [asdict(each) for each in addresses]
        session.show("", {"addresses": facts, "points": n_points, "answers": n_answers, "written": [str(out)]})
        return
    already = f"{_count(n_answers, 'answer')} in {out} already. " if n_answers else ""
    session.show(f"{already}Judge {_count(n_points, 'point')} in the browser; Ctrl-C ends.", {})
    for each in addresses:
        print(each.address if len(addresses) == 1 else f"{each.name}  {each.address}", flush=True)


def _farewell(n: int, n_unsure: int, points: Path, out: Path) -> str:
    unsure = f", and {n_unsure} times can't say" if n_unsure else ""
    files = shlex.quote(str(points)), shlex.quote(str(out))
    return (
        f"\n{_count(n, 'answer')} in {out}{unsure}. Next:\n"
        f"closefar fit --points {files[0]} --judgements {files[1]}\n"
        f"closefar export-judgements {files[1]} pairs.csv"
    )


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


# ---------------------------------------------------------------------------------------------------------------------
# ``closefar export-judgements``: what was recorded by `closefar label`, as a table for any program.


def export_judgements(
    session: WritingSession,
    judgements: Path = argument("JUDGEMENTS", "A file that `closefar label` wrote."),
    out: Path | None = argument(
        "TABLE", "The table to write: .csv, .csv.gz, .tsv or .parquet. By default, CSV on standard output.", None
    ),
    unsure: bool = option("Keep answers of can't say, with an empty label.", default=False),
) -> None:
    """Write recorded judgements as a table: the ids, the answer, who gave it and when, and how the pair was chosen.

    closefar export-judgements judgements.sqlite pairs.csv
    """
    if out is not None and out.suffix.lower() == ".npz":
        raise ValueError(
            f"judgements are written as .csv, .csv.gz, .tsv or .parquet, which can leave a label empty; got "
            f"{out.name!r}."
        )
    session.check_table(out, read=[judgements])
    from closefar.tables import note_unsure, read_recorded, recorded_columns

    with session.stage("reading"):
        answers = read_recorded(judgements)
        columns = recorded_columns(answers, keeps_unsure=unsure)
    n_rows = len(columns["time"])
    if n_rows == 0:
        advice = "Keep answers of can't say with --unsure" if len(answers) else "Judge something first"
        raise ValueError(f"{judgements} has no judgements to export. {advice}.")
    session.warn(*note_unsure(len(answers) - n_rows, len(answers)))
    session.write_table(iter([columns]), n_rows, out)
