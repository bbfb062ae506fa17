"""Fits within the leading directions of a metric, and the fit of rank 0."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from closefar.fitting.origin import find_origin
from closefar.fitting.penalised import refit
from closefar.fitting.settings import Settings
from closefar.judgements import Judgements
from closefar.model import Directions, Metric
from closefar.rows import column_scales, pair_rows

__all__ = ["candidate_ranks", "refit_leading"]

# Every rank up to the first number is tried; beyond it, ranks grow by this share.
_ALL_UP_TO, _GROWTH = 16, 1.2


def candidate_ranks(largest: int) -> list[int]:
    """The ranks to try: 0, every small rank, then increasingly few, and the largest."""
    ranks = list(range(min(largest, _ALL_UP_TO) + 1))
    while ranks[-1] < largest:
        ranks.append(min(math.ceil(ranks[-1] * _GROWTH), largest))
    return ranks


def refit_leading(judgements: Judgements, settings: Settings, metric: Metric, directions: Directions, k: int) -> Metric:
    """The best metric within the span of the k leading directions; at full rank the metric is returned unchanged.

    A penalty in the scale of the columns, or a blend, can't be expressed within a subspace; a fit of
    rank k, shrunk to zero, is used instead.
    """
    if k >= metric.rank:
        return metric
    if k > 0 and settings.blend > 0.0:
        return refit(judgements, settings.but(rank=k, shrink_to="zero")).metric
    lengths = np.sqrt(directions.values[:k])
    kept = directions.columns[:, :k][:, lengths > 0] / lengths[lengths > 0]
    if kept.shape[1] == 0:
        return _constant(metric, judgements)
    rows = metric.coordinates(judgements.data, kept)
    found = refit(judgements.with_data(rows), settings.but(rank=None)).metric
    moment = None if directions.is_data_scale else (rows * judgements.shares[:, None]).T @ rows
    source, origin, threshold = pair_rows(judgements.data), metric.origin, found.known_threshold
    if metric.origin is not None and found.origin is not None:
        on_points = kept @ found.factor
        on_constant = -(metric.origin @ kept + found.origin) @ found.factor
        origin, slack = find_origin(source, judgements.shares, np.vstack([on_points, on_constant]))
        threshold -= slack
    return Metric.from_data_scale(
        kept,
        found.factor,
        threshold,
        found.noise,
        second_moment=moment,
        column_scales=column_scales(source, judgements.shares, centred=metric.origin is not None),
        feature_names=metric.feature_names,
        origin=origin,
        flip_rate=found.flip_rate,
    )


def _constant(metric: Metric, judgements: Judgements) -> Metric:
    """The best metric of rank 0: every pair is far with the same probability."""
    far = judgements.mean(judgements.is_far)
    share = (far - metric.one_flip_rate) / (1.0 - 2.0 * metric.one_flip_rate)
    # For differences the threshold is at least 0, so the probability is at most one half.
    share = float(np.clip(share, 1e-12, 0.5 if metric.origin is None else 1.0 - 1e-12))
    threshold = brentq(lambda tau: float(metric.noise.cdf(-tau)) - share, -1e3, 1e3, xtol=1e-12)
    return replace(metric.truncate(0), threshold=max(threshold, 0.0) if metric.origin is None else threshold)
