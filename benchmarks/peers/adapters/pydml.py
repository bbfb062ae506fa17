"""pyDML, on pairs and on points with classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dml
import numpy as np

from peers.adapters.columns import Columns
from peers.worker import Learned, Train


def eigenvalue_optimization(train: Train) -> Learned:
    """DML-eig of pairs, though pyDML takes classes: it is told which pairs of rows are similar, as its paper has it.

    A pair is its difference and the origin, which is the last row.  The first partner of each row is lost in pyDML,
    therefore it is given twice.
    """
    columns = Columns.of(train)
    pairs = columns.standardise(train["pairs"])
    differences = pairs[:, 0] - pairs[:, 1]
    origin = len(differences)

    def partners(label: int) -> np.ndarray:
        rows = np.flatnonzero(train["labels"] == label)
        return np.column_stack([np.full(len(rows) + 1, origin), np.concatenate([rows[:1], rows])])

    dml.DML_eig._label_to_similarity_set = lambda classes: (partners(-1), partners(+1))
    model = dml.DML_eig().fit(np.vstack([differences, np.zeros(differences.shape[1])]), np.arange(origin + 1))
    return Learned(metric=columns.metric(np.asarray(model.metric())), note=f"{model.max_it_} iterations at most")


def on_classes(make: Callable[[int, int], Any], most_points: int | None = None) -> Callable[[Train], Learned]:
    """Return the adapter of an algorithm that learns from points and classes, of which it gets the first ones.

    Points are in random order.  Where pyDML visits all pairs of points in Python, more would take hours.
    """

    def adapter(train: Train) -> Learned:
        columns = Columns.of(train)
        points, classes = columns.standardise(train["points"])[:most_points], train["classes"][:most_points]
        model = make(*points.shape).fit(points, classes)
        note = f"learned from {len(points)} of {len(train['points'])} points" if most_points is not None else ""
        return Learned(metric=columns.metric(np.asarray(model.metric())), note=note)

    return adapter


def logistic_discriminant(n: int, d: int) -> Any:
    """LDML with a threshold in the middle of the squared distances: pyDML does not learn it, and 0.001 is its default.

    Steps are divided by the number of pairs, because gradients are sums; longer ones, as by default, lead to a metric
    of zeros.
    """
    return dml.LDML(b=float(d), eta0=0.2 / n**2, max_iter=20)


PEERS = {
    "DML-eig (pyDML)": eigenvalue_optimization,
    "pyDML LDML": on_classes(logistic_discriminant, 100),
    "pyDML DMLMJ": on_classes(lambda n, d: dml.DMLMJ()),
    "pyDML LSI": on_classes(lambda n, d: dml.LSI(supervised=True, max_proj_iter=100), 100),
    "pyDML NCA": on_classes(lambda n, d: dml.NCA(), 300),
    "pyDML LMNN": on_classes(lambda n, d: dml.LMNN(), 300),
}
