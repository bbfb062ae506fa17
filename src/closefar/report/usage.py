"""What to do with the model next, as code to copy."""

from __future__ import annotations

__all__ = ["next_steps"]

_OF_PAIRS = """\
import closefar as cf

learner.metric_.save("model.closefar")   # unless it is saved already
metric = cf.load("model.closefar")

metric.distance(x, y)           # of two points, or of each row of two tables
metric.probability_far(x - y)   # that such a pair is labelled far
x @ metric.components.T         # mapped: here Euclidean distance is the learned one\
"""

_OF_POINTS = """\
import closefar as cf

learner.metric_.save("model.closefar")   # unless it is saved already
metric = cf.load("model.closefar")

metric.squared_distance(x)   # of each point from the learned origin
metric.probability_far(x)    # that such a point is labelled far
x @ metric.components.T      # mapped: here Euclidean distance is the learned one\
"""

_NEIGHBOURS = """\
from sklearn.neighbors import NearestNeighbors

neighbours = NearestNeighbors().fit(points @ metric.components.T)
distances, indices = neighbours.kneighbors(new_points @ metric.components.T)\
"""


def next_steps(*, of_points: bool) -> list[dict[str, str]]:
    """Return a title, a language and code for each."""
    inputs = "--points new_points.csv" + ("" if of_points else " --pairs new_pairs.csv")
    labelled = "--points points.csv" + ("" if of_points else " --pairs pairs.csv")
    commands = [
        f"closefar predict --model model.closefar {inputs} --out predicted.csv",
        "closefar transform --model model.closefar --points points.csv --out mapped.csv",
        f"closefar evaluate --model model.closefar {labelled}",
    ]
    return [
        {"title": "In Python", "language": "python", "code": _OF_POINTS if of_points else _OF_PAIRS},
        {"title": "Nearest neighbours, clustering, plots", "language": "python", "code": _NEIGHBOURS},
        {"title": "On the command line", "language": "shell", "code": "\n".join(commands)},
    ]
