"""The report: a fitted learner and labelled pairs in one dict, and that dict as one HTML file."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from closefar import svg
from closefar.files import replace_file
from closefar.learner import LinearMetricLearner
from closefar.metric import Metric
from closefar.templating import load_template

__all__ = ["summarize", "write_report"]

_TITLE = "A distance learned from close/far labels"
_BINS = 10
_MOST_DIRECTIONS = 3
_MOST_LOADINGS = 6


def summarize(learner: LinearMetricLearner, X: Any, y: Any, *, title: str = _TITLE) -> dict[str, Any]:
    """Return what the report shows, as numbers, strings, lists and dicts that JSON can hold.

    Parameters
    ----------
    learner : LinearMetricLearner
        Fitted.
    X, y : pairs and labels
        In any form that `learner.fit` takes; best those that the fit has not seen.
    title : str
        The headline of the report.

    Returns
    -------
    dict
        A number that does not exist, such as eigenvalue / tau where tau is zero, is None.

    Examples
    --------
    >>> import closefar as cf
    >>> from closefar.report import summarize
    >>> pairs, labels, *_ = cf.datasets.make_pairs(3000, 4, random_state=0)
    >>> learner = cf.LinearMetricLearner().fit(pairs[:2000], labels[:2000])
    >>> summarize(learner, pairs[2000:], labels[2000:])["confusion"]["labels"]
    ['-1', '1']
    """
    predicted_far = learner.predict(X) == learner.classes_[1]
    probability_far = learner.predict_proba(X)[:, 1]
    far = _is_far(y, learner.classes_, len(predicted_far))
    metric = learner.metric_
    accuracy = float(np.mean(predicted_far == far))
    return {
        "title": title,
        "sentence": _sentence(learner, far, accuracy),
        "n_pairs": len(far),
        "accuracy": accuracy,
        "confusion": _confusion(learner.classes_, far, predicted_far),
        "calibration": _calibration(probability_far, far),
        "certificate": _certificate(learner),
        "fit_statistics": {name: _plain(value) for name, value in asdict(learner.fit_statistics_).items()},
        "noise": metric.noise.name,
        "n_features": len(metric.factor),
        "rank": metric.rank,
        "threshold": _plain(metric.threshold),
        "eigenvalues": _eigenvalues(metric),
        "directions": _directions(metric),
        "summary": learner.summary(),
    }


def write_report(learner: LinearMetricLearner, X: Any, y: Any, path: str | Path, *, title: str = _TITLE) -> None:
    """Write one HTML file that shows what was learned and how it does on these pairs.

    The file needs nothing beside it and asks nothing of the network.  An existing file is
    replaced in one step, so a reader sees the old report or the whole new one.

    Parameters
    ----------
    learner, X, y, title
        As for `summarize`.
    path : str or Path
        Where to write.
    """
    template = load_template("report.html.jinja", "write_report", "report")
    facts = summarize(learner, X, y, title=title)
    html = template.render(
        facts,
        spectrum_chart=_spectrum_chart(facts),
        calibration_chart=_calibration_chart(facts),
        most_bars=svg.MOST_BARS,
    )
    # A column name may hold a lone surrogate, which UTF-8 can't.
    replace_file(Path(path), html.encode("utf-8", "xmlcharrefreplace"))


def _is_far(y: Any, classes: np.ndarray, n: int) -> np.ndarray:
    labels = column_or_1d(y)
    if len(labels) != n:
        raise ValueError(f"there must be one label a pair; got {len(labels)} labels for {n} pairs.")
    far = np.asarray(labels == classes[1], dtype=bool)
    unknown = ~far & ~np.asarray(labels == classes[0], dtype=bool)
    if np.any(unknown):
        raise ValueError(
            f"labels must be those the learner was fitted with, {classes.tolist()}; got {labels[unknown][0]!r}."
        )
    return far


def _sentence(learner: LinearMetricLearner, far: np.ndarray, accuracy: float) -> str:
    share_far = float(np.mean(far))
    likelier, share = ("far", share_far) if share_far >= 0.5 else ("close", 1.0 - share_far)
    if learner.metric_.rank == 0:
        return f"No direction tells close from far: the metric is zero, and {accuracy:.1%} of the labels agree with it."
    return (
        f"The learned distance agrees with {accuracy:.1%} of the labels of these {len(far):,} pairs, where always "
        f"saying {likelier} would agree with {share:.1%}; {_wrong_labels(learner)}."
    )


def _wrong_labels(learner: LinearMetricLearner) -> str:
    if learner.certificate_.status.startswith("separable"):  # the scale of the margins is arbitrary, so it says nothing
        return "it gets every label that it was fitted to right, so how many of those are wrong can't be told"
    wrong = learner.fit_statistics_.wrong_share
    return f"by its own estimate {wrong:.1%} of the labels that it was fitted to are wrong"


def _certificate(learner: LinearMetricLearner) -> dict[str, Any]:
    certificate = learner.certificate_
    outcome, _, advice = certificate.status.partition(": ")
    words = (
        f"The fit reached an objective of {certificate.objective:.8g}. It is proven that no metric of any rank reaches "
        f"less than {certificate.lower_bound:.8g}, so there is at most {certificate.gap:.1e} left to gain."
    )
    fields = {name: _plain(value) for name, value in asdict(certificate).items()}
    return {**fields, "outcome": outcome, "advice": advice, "words": words}


def _eigenvalues(metric: Metric) -> list[dict[str, Any]]:
    values = metric.eigenvalues.tolist()
    shares = (np.cumsum(values) / (sum(values) or 1.0)).tolist()
    tau = metric.threshold
    return [
        {
            "value": value,
            "over_threshold": _plain(value / tau) if tau > 0 else None,
            "cumulative_share": min(share, 1.0),
        }
        for value, share in zip(values, shares, strict=True)
    ]


def _directions(metric: Metric) -> list[dict[str, Any]]:
    names = metric.feature_names or tuple(f"x{index}" for index in range(len(metric.factor)))
    total = float(metric.eigenvalues.sum())
    directions = []
    for column in metric.factor.T[:_MOST_DIRECTIONS]:
        length = float(np.linalg.norm(column))
        order = np.argsort(-np.abs(column), kind="stable")[:_MOST_LOADINGS]
        loadings = [{"feature": names[index], "loading": float(column[index]) / length} for index in order]
        directions.append({"eigenvalue": length**2, "share": length**2 / total, "loadings": loadings})
    return directions


def _calibration(probability_far: np.ndarray, far: np.ndarray) -> list[dict[str, Any]]:
    """Bins of about equal count; pairs of the same probability share one, so row order never matters."""
    edges = np.unique(np.quantile(probability_far, np.arange(1, _BINS) / _BINS))
    bins = np.searchsorted(edges, probability_far, side="right")
    return [
        {
            "mean_predicted": float(np.mean(probability_far[bins == index])),
            "observed_far": float(np.mean(far[bins == index])),
            "count": int(np.sum(bins == index)),
        }
        for index in np.unique(bins)
    ]


def _confusion(classes: np.ndarray, far: np.ndarray, predicted_far: np.ndarray) -> dict[str, Any]:
    """Counts with a row for each label given and a column for each label predicted, close first."""
    counts = np.bincount(2 * far + predicted_far, minlength=4).reshape(2, 2)
    return {"labels": [str(label) for label in classes], "counts": counts.tolist()}


def _plain(value: Any) -> Any:
    """The same value without NumPy's types, or None where JSON has no such number."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spectrum_chart(facts: dict[str, Any]) -> str:
    return svg.bars([(row["value"], row["cumulative_share"]) for row in facts["eigenvalues"][: facts["rank"]]])


def _calibration_chart(facts: dict[str, Any]) -> str:
    return svg.scatter([(row["mean_predicted"], row["observed_far"], row["count"]) for row in facts["calibration"]])
