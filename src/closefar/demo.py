"""Recover the paper's synthetic metric from noisy labels: ``python -m closefar.demo``."""

from __future__ import annotations

import time
from itertools import zip_longest

import numpy as np

import closefar as cf
from closefar.model import in_data_scale

__all__ = ["main"]

_N_FIT = 15_000
_REPORT = "report.html"


def main() -> None:
    """Fit, print the learned metric next to the true one, and write a report to the current folder."""
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
    true, learned = data.metric, learner.metric_
    along = [_along_directions(metric, data) for metric in (true, learned)]
    rows = [
        (f"Squared distance / tau, direction {index}", f"{left:.4f}", f"{right:.4f}")
        for index, (left, right) in enumerate(zip_longest(*along, fillvalue=0.0), start=1)
    ]
    wrong = np.mean(data.labels[:_N_FIT] != data.true_labels[:_N_FIT])
    rows.append(("Share of wrong labels", f"{wrong:.4f}", f"{learner.fit_statistics_.wrong_share:.4f}"))
    target = true.matrix / true.known_threshold
    error = np.linalg.norm(learned.matrix / learned.known_threshold - target, 2) / np.linalg.norm(target, 2)
    rows.append(("Relative spectral error of M / tau", "", f"{error:.4f}"))
    held_out = data.pairs[_N_FIT:]
    for name, labels in (("noisy", data.labels), ("true", data.true_labels)):
        rows.append((f"Held-out accuracy, {name} labels", "", f"{learner.score(held_out, labels[_N_FIT:]):.4f}"))
    rows.append(("Seconds to fit", "", f"{seconds:.3f}"))
    return "\n".join(f"{name:<38}{left:>12}{right:>12}" for name, left, right in [("", "true", "learned"), *rows])


def _along_directions(metric: cf.Metric, data: cf.datasets.LabelledPairs) -> list[float]:
    """The mean squared distance along each direction on the training pairs, divided by the threshold."""
    found = in_data_scale(metric, data.pairs[:_N_FIT]).directions()
    return [float(value) for value in found.values / metric.known_threshold]


if __name__ == "__main__":
    main()
