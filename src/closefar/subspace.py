"""The leading directions of a metric: in which scale they lead, and the best metric within them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone

from closefar.arrays import FloatArray
from closefar.metric import Metric
from closefar.noise import label_losses
from closefar.origin import find_origin
from closefar.pairs import Differences

__all__ = [
    "LabelledRows",
    "Spectrum",
    "candidate_ranks",
    "fit_metric",
    "format_table",
    "in_data_scale",
    "losses_and_hits",
    "map_rows",
    "normalised",
    "refit_leading",
]

# Every rank up to the first number is tried, and beyond it every rank that is larger by this share.
_ALL_UP_TO, _GROWTH = 16, 1.2


class LabelledRows(NamedTuple):
    """Differences with a sign (far +1, close -1) and a weight each; the weights sum to one."""

    differences: Differences
    signs: FloatArray
    weights: FloatArray


class Spectrum(NamedTuple):
    """Columns with M = D D', and their squared lengths, in the scale in which they are orthogonal."""

    directions: FloatArray
    values: FloatArray
    is_data_scale: bool

    @classmethod
    def of(cls, metric: Metric, scale: str) -> Spectrum:
        """The columns of B in the data's scale, those of A in its units."""
        if scale == "data" and metric.data_factor is not None and metric.data_eigenvalues is not None:
            return cls(metric.data_factor, metric.data_eigenvalues, True)
        if scale == "units":
            return cls(metric.factor, metric.eigenvalues[: metric.rank], False)
        raise ValueError(f'scale must be "data" or "units"; got {scale!r}.')


def in_data_scale(metric: Metric, differences: Any, weights: Any = None) -> Metric:
    """Return the metric with the scale of these differences for its `data_factor` and `data_eigenvalues`.

    A metric with an origin is for single points, whose scale is their covariance.
    """
    rows = differences if isinstance(differences, Differences) else Differences(np.asarray(differences))
    weights = normalised(weights, len(rows))
    mapped = map_rows(metric, rows, metric.factor)
    if metric.origin is not None:
        mapped = mapped - weights @ mapped
    values, vectors = np.linalg.eigh((mapped * weights[:, None]).T @ mapped)
    return replace(
        metric,
        data_factor=metric.factor @ vectors[:, ::-1],
        data_eigenvalues=np.maximum(values[::-1], 0.0),
    )


def refit_leading(learner: Any, metric: Metric, spectrum: Spectrum, k: int, pairs: LabelledRows) -> Metric:
    """The best metric that weighs only the k leading directions; the whole one is taken as it is.

    A penalty in the scale of the columns can't be expressed within a subspace: there the
    learner's own fit of rank k stands in.
    """
    if k >= metric.rank:
        return metric
    if k > 0 and learner.alpha > 0 and learner.alpha_scale == "columns":
        return fit_metric(learner, pairs.differences.data, pairs, rank=k)
    lengths = np.sqrt(spectrum.values[:k])
    kept = spectrum.directions[:, :k][:, lengths > 0] / lengths[lengths > 0]
    if kept.shape[1] == 0:
        return _constant(metric, pairs)
    rows = map_rows(metric, pairs.differences, kept)
    found = fit_metric(learner, rows, pairs)
    moment = None if spectrum.is_data_scale else (rows * pairs.weights[:, None]).T @ rows
    origin, threshold = metric.origin, found.threshold
    if metric.origin is not None and found.origin is not None:
        on_points = kept @ found.factor
        on_constant = -(metric.origin @ kept + found.origin) @ found.factor
        origin, slack = find_origin(pairs.differences, pairs.weights, np.vstack([on_points, on_constant]))
        threshold -= slack
    return Metric.from_data_scale(
        kept,
        found.factor,
        threshold,
        found.noise,
        second_moment=moment,
        feature_names=metric.feature_names,
        origin=origin,
        flip_rate=found.flip_rate,
    )


def fit_metric(learner: Any, rows: FloatArray, pairs: LabelledRows, rank: int | None = None) -> Metric:
    """Fit a copy of the learner to the pairs, or to other coordinates of them, by default without a limit on rank."""
    free = clone(learner).set_params(rank=rank, far_label=1, class_weight=None, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the fit that these ones are for says it once
        metric: Metric = free.fit(rows, pairs.signs, sample_weight=pairs.weights).metric_
    return metric


def _constant(metric: Metric, pairs: LabelledRows) -> Metric:
    """The best metric of rank 0: every pair is far with the same probability."""
    far = float(pairs.weights @ (pairs.signs > 0))
    share = (far - metric.flip_rate) / (1.0 - 2.0 * metric.flip_rate)
    # Of differences the threshold is at least 0, so the probability at most one half.
    share = float(np.clip(share, 1e-12, 0.5 if metric.origin is None else 1.0 - 1e-12))
    threshold = brentq(lambda tau: float(metric.noise.cdf(-tau)) - share, -1e3, 1e3, xtol=1e-12)
    return replace(metric.truncate(0), threshold=max(threshold, 0.0) if metric.origin is None else threshold)


def losses_and_hits(metric: Metric, forms: FloatArray, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The loss of each pair, and 1 where its label is the likelier one."""
    margin = forms - metric.threshold
    hits = ((margin >= 0) == (signs > 0)).astype(np.float64)
    return label_losses(metric.noise, signs * margin, metric.flip_rate), hits


def candidate_ranks(largest: int) -> list[int]:
    """The ranks to try: 0, every small one, then ever fewer, and the largest."""
    ranks = list(range(min(largest, _ALL_UP_TO) + 1))
    while ranks[-1] < largest:
        ranks.append(min(math.ceil(ranks[-1] * _GROWTH), largest))
    return ranks


def map_rows(metric: Metric, differences: Differences, directions: FloatArray) -> FloatArray:
    """The coordinates of each row along these directions, from the metric's origin."""
    origin = 0.0 if metric.origin is None else metric.origin
    blocks = [(block - origin) @ directions for _, block in differences.blocks()]
    return np.concatenate([np.empty((0, directions.shape[1])), *blocks])


def normalised(weights: Any, n: int) -> FloatArray:
    """Weights that sum to one; equal ones if none are given."""
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(weights >= 0) or not weights.sum() > 0:
        raise ValueError(f"weights must be numbers >= 0, not all 0, one a pair; got shape {weights.shape} for {n}.")
    shares: FloatArray = weights / weights.sum()
    return shares


def format_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> str:
    """Right-aligned columns, each with a heading and a format."""
    cells = [
        ["-" if value is None else format(value, form) for value, (_, form) in zip(row, columns, strict=True)]
        for row in rows
    ]
    widths = [max(len(name), *(len(row[index]) for row in cells)) for index, (name, _) in enumerate(columns)]
    lines = [[name for name, _ in columns], *cells]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
