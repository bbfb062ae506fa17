"""What to do with the model next, as code that runs as it stands."""

from __future__ import annotations

import shlex

from closefar.model import Metric
from closefar.report.provenance import Provenance

__all__ = ["next_steps"]

_MODEL = "model.closefar"  # where no file is known

_OF_PAIRS = """\
metric.distance(points[0], points[1])          # also of each row of two tables
metric.probability_far(points[0] - points[1])  # that such a pair is labelled far
points @ metric.components.T                   # mapped: Euclidean distance is now the learned one\
"""

_OF_LEVELS = """\
metric.distance(points[0], points[1])         # also of each row of two tables
metric.probabilities(points[0] - points[1])  # of each level, closest first
points @ metric.components.T                 # mapped: Euclidean distance is now the learned one\
"""

_OF_COMPARISONS = """\
metric.distance(points[0], points[1])  # also of each row of two tables; it has no threshold
points @ metric.components.T           # mapped: Euclidean distance is now the learned one\
"""

_OF_POINTS = """\
metric.squared_distance(points)  # of each point from the learned origin
metric.probability_far(points)   # that such a point is labelled far
points @ metric.components.T     # mapped: Euclidean distance is now the learned one\
"""

_NEIGHBOURS = """\
from sklearn.neighbors import NearestNeighbors

mapped = points @ metric.components.T
neighbours = NearestNeighbors(n_neighbors=2).fit(mapped)
distances, indices = neighbours.kneighbors(mapped)  # the first neighbour of each point is itself\
"""


def next_steps(metric: Metric, provenance: Provenance) -> list[dict[str, str]]:
    """Return a title, a language and code for each; code in Python builds on what comes before it."""
    steps = [
        {"title": "In Python", "language": "python", "code": _python(metric, provenance)},
        {"title": "Nearest neighbours", "language": "python", "code": _NEIGHBOURS},
    ]
    if not provenance.is_command_line:
        return steps
    return [{"title": "On the command line", "language": "shell", "code": _commands(provenance)}, *steps]


def _python(metric: Metric, provenance: Provenance) -> str:
    return f"{_reading(metric, provenance)}\n\n{_applied(metric)}"


def _applied(metric: Metric) -> str:
    if metric.origin is not None:
        return _OF_POINTS
    if not metric.thresholds:
        return _OF_COMPARISONS
    return _OF_PAIRS if len(metric.thresholds) == 1 else _OF_LEVELS


def _reading(metric: Metric, provenance: Provenance) -> str:
    """Get the metric, and points with the columns that it takes."""
    model = provenance.model or _MODEL
    if not provenance.is_command_line:
        save = "" if provenance.model else f'learner.metric_.save("{_MODEL}")  # the learner of this report\n'
        return (
            f"import numpy as np\nimport closefar as cf\n\n{save}metric = cf.load({_quoted(model)})\n"
            f"points = np.zeros((2, {len(metric.factor)}))  # put yours here, with the columns of metric.column_names"
        )
    load = f"model = Model.load({_quoted(model)})\nmetric = model.metric"
    encoded = "# Categories are encoded as in the fit.\n" if provenance.categories else ""
    if provenance.points is None:
        source, read, points = (
            f"pairs={_quoted(provenance.pairs)}",
            "read_pairs",
            "table.data[:, 0]",
        )
        options = "encoding=model.encoding, labelled=False"
    else:
        source, read, points = f"points={_quoted(provenance.points)}", "read_points", "table.data"
        options = "encoding=model.encoding"
    return (
        f"from closefar.learners import Model\nfrom closefar.tables import Source, {read}\n\n{load}\n"
        f"{encoded}table = {read}(model.source(Source({source})), {options})\npoints = {points}"
    )


def _quoted(text: str | None) -> str:
    """In Python, with double quotes unless it holds some."""
    found = repr(text)
    return f'"{found[1:-1]}"' if found.startswith("'") and '"' not in found else found


def _commands(provenance: Provenance) -> str:
    model = f"--model {shlex.quote(provenance.model or _MODEL)}"
    names = ("points", "pairs", "comparisons", "judgements")
    given = {name: getattr(provenance, name) for name in names if getattr(provenance, name) is not None}
    options = {name: f"--{name} {shlex.quote(file)}" for name, file in given.items()}
    data = " ".join(options.values())
    only = ("points", "pairs" if "pairs" in options else "comparisons")  # of which predictions are
    judged = " ".join(option for name, option in options.items() if name in only)
    commands = [f"closefar predict {model} {judged} --out predicted.csv"]
    if provenance.points is not None:
        points = shlex.quote(provenance.points)
        commands.append(f"closefar transform {model} --points {points} --out mapped.csv")
    return "\n".join([*commands, f"closefar evaluate {model} {data}"])
