"""Recover the paper's synthetic metric from noisy labels: ``python -m closefar.demo``."""

from __future__ import annotations

import time
from itertools import zip_longest
from typing import Any

import numpy as np

import closefar as cf
from closefar.model import in_data_scale

__all__ = ["main"]

_N_FIT = 15_000
_REPORT = "report.html"


def main() -> None:
    """Fit, print the learned metric beside the true one and the plain distance, and write a report to this folder."""
    data = _paper_pairs()
    started = time.perf_counter()
    learner = cf.LinearMetricLearner().fit(data.pairs[:_N_FIT], data.labels[:_N_FIT])
    seconds = time.perf_counter() - started
    print(learner.summary())
    print()
    print(_compare(learner, data, seconds))
    print()
    try:
        learner.report(_REPORT, title="closefar: the demo")
    except ImportError as error:
        print(f"No report: {error}")
    else:
        print(f"Wrote {_REPORT} in this folder.")


def _paper_pairs() -> cf.datasets.LabelledPairs:
    """The pairs of the paper's section "Data Generation"."""
    return cf.datasets.make_pairs(
        20_000,
        10,
        metric_eigenvalues=[0.32, 0.89, 0.59, 0.13, 0.14],
        covariance_eigenvalues=[0.73, 0.7, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04],
        threshold=1.3,
        noise="logistic",
        wrong_share=0.1,
        random_state=2023,
    )


def _compare(learner: cf.LinearMetricLearner, data: cf.datasets.LabelledPairs, seconds: float) -> str:
    """A table of the true metric, the learned one, and the plain distance with the threshold that suits it best."""
    true, learned, plain = data.metric, learner.metric_, learner.baseline_.metric
    assert plain is not None  # there is no origin
    along = [_along_directions(metric, data) for metric in (true, learned, plain)]
    rows: list[tuple[str, ...]] = [
        (f"Squared distance / tau, direction {index}", *(f"{value:.4f}" for value in values))
        for index, values in enumerate(zip_longest(*along, fillvalue=0.0), start=1)
    ]
    wrong = np.mean(data.labels[:_N_FIT] != data.true_labels[:_N_FIT])
    rows.append(("Share of wrong labels", f"{wrong:.4f}", f"{learner.fit_statistics_.wrong_share:.4f}", ""))
    target = true.matrix / true.known_threshold
    errors = [
        np.linalg.norm(metric.matrix / metric.known_threshold - target, 2) / np.linalg.norm(target, 2)
        for metric in (learned, plain)
    ]
    rows.append(("Relative spectral error of M / tau", "", *(f"{error:.4f}" for error in errors)))
    for name, labels in (("noisy", data.labels), ("true", data.true_labels)):
        rows.append(
            (f"Held-out accuracy, {name} labels", *(_accuracy(each, data, labels) for each in (true, learned, plain)))
        )
    rows.append(("Seconds to fit", "", f"{seconds:.3f}", ""))
    head = ("", "true", "learned", "plain")
    return "\n".join(f"{name:<38}{''.join(f'{value:>12}' for value in values)}" for name, *values in [head, *rows])


def _accuracy(metric: cf.Metric, data: cf.datasets.LabelledPairs, labels: Any) -> str:
    held_out = data.pairs[_N_FIT:]
    far = metric.margin(held_out[:, 0] - held_out[:, 1]) >= 0.0
    return f"{np.mean(far == (labels[_N_FIT:] > 0)):.4f}"


def _along_directions(metric: cf.Metric, data: cf.datasets.LabelledPairs) -> list[float]:
    """The mean squared distance along each direction on the training pairs, divided by the threshold."""
    found = in_data_scale(metric, data.pairs[:_N_FIT]).directions()
    return [float(value) for value in found.values / metric.known_threshold]


if __name__ == "__main__":
    main()
