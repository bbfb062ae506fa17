"""Recover the paper's synthetic metric from noisy labels: ``python -m closefar.demo``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import closefar as cf
from closefar.model import in_data_scale
from closefar.plain import format_table

__all__ = ["main"]

_N_FIT = 15_000  # of 20,000 pairs; the others measure accuracy
_REPORT = "report.html"


def main() -> None:
    """Fit, print the learned metric beside the true one and the plain distance, and write a report to this folder."""
    # The paper's section "Data Generation".
    data = cf.datasets.make_pairs(
        20_000,
        10,
        metric_eigenvalues=[0.32, 0.89, 0.59, 0.13, 0.14],
        covariance_eigenvalues=[0.73, 0.7, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04],
        threshold=1.3,
        noise="logistic",
        wrong_share=0.1,
        random_state=2023,
    )
    started = time.perf_counter()
    learner = cf.LinearMetricLearner().fit(data.pairs[:_N_FIT], data.labels[:_N_FIT])
    seconds = time.perf_counter() - started
    print(learner.summary(), _compare(learner, data, seconds), sep="\n\n", end="\n\n")
    try:
        learner.report(_REPORT, title="closefar: the demo")
    except ImportError as error:
        print(f"No report: {error}")
    else:
        print(f"Wrote {_REPORT} in this folder.")


def _compare(learner: cf.LinearMetricLearner, data: cf.datasets.LabelledPairs, seconds: float) -> str:
    """A table of the true metric, the learned one, and the plain distance with the threshold that suits it best."""
    columns = [_figures(metric, data) for metric in (data.metric, learner.metric_, learner.baseline_.metric)]
    columns[0]["Share of wrong labels"] = float(np.mean(data.labels[:_N_FIT] != data.true_labels[:_N_FIT]))
    columns[1] |= {"Share of wrong labels": learner.fit_statistics_.wrong_share, "Seconds to fit": seconds}
    names = dict.fromkeys(name for column in reversed(columns) for name in column)  # the plain has all directions
    rows = [[name, *(column.get(name) for column in columns)] for name in names]
    return format_table([("", "<"), ("true", ".4f"), ("learned", ".4f"), ("plain", ".4f")], rows)


def _figures(metric: Any, data: cf.datasets.LabelledPairs) -> dict[str, float]:
    found = in_data_scale(metric, data.pairs[:_N_FIT]).directions().values / metric.known_threshold
    figures = {f"Squared distance / tau, direction {index}": value for index, value in enumerate(found, start=1)}
    true, given = (each.matrix / each.known_threshold for each in (data.metric, metric))
    figures["Relative spectral error of M / tau"] = float(np.linalg.norm(given - true, 2) / np.linalg.norm(true, 2))
    held_out = data.pairs[_N_FIT:]
    far = metric.margin(held_out[:, 0] - held_out[:, 1]) >= 0.0
    for name, labels in (("noisy", data.labels), ("true", data.true_labels)):
        figures[f"Held-out accuracy, {name} labels"] = float(np.mean(far == (labels[_N_FIT:] > 0)))
    return figures


if __name__ == "__main__":
    main()
