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

    class OfPairs(dml.DML_eig):
        """Finds similar and dissimilar pairs in the labels rather than in classes."""

    dml.dml_eig.DML_eig._label_to_similarity_set = lambda classes: (partners(-1), partners(+1))
    model = OfPairs().fit(np.vstack([differences, np.zeros(differences.shape[1])]), np.arange(origin + 1))
    return Learned(metric=columns.metric(np.asarray(model.metric())), note=f"{model.max_it_} iterations at most")


def on_classes(make: Callable[[Train], Any]) -> Callable[[Train], Learned]:
    """Return the adapter of an algorithm that learns from points and classes."""

    def adapter(train: Train) -> Learned:
        columns = Columns.of(train)
        model = make(train).fit(columns.standardise(train["points"]), train["classes"])
        return Learned(metric=columns.metric(np.asarray(model.metric())))

    return adapter


def logistic_discriminant(train: Train) -> Any:
    """LDML with a threshold in the middle of the squared distances: pyDML does not learn it, and 0.001 is its default.

    Steps are divided by the number of pairs, because gradients are sums; longer ones, as by default, lead to a metric
    of zeros.
    """
    n, d = train["points"].shape
    return dml.LDML(b=float(d), eta0=0.2 / n**2, max_iter=50)


PEERS = {
    "DML-eig (pyDML)": eigenvalue_optimization,
    "pyDML LDML": on_classes(logistic_discriminant),
    "pyDML DMLMJ": on_classes(lambda train: dml.DMLMJ()),
    "pyDML LSI": on_classes(lambda train: dml.LSI(supervised=True)),
    "pyDML NCA": on_classes(lambda train: dml.NCA()),
    "pyDML LMNN": on_classes(lambda train: dml.LMNN()),
}
