"""Fits within the leading directions of a metric, and the fit of rank 0."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from closefar.arrays import FloatArray
from closefar.fitting.fitting import refit
from closefar.fitting.origin import find_origin
from closefar.fitting.scoring import Scorer
from closefar.fitting.settings import Settings
from closefar.judgements import Judgements, Kind
from closefar.judgements.comparisons import quadruplets_of
from closefar.model import Directions, Metric
from closefar.model.thresholds import level_flips
from closefar.rows import LegRows, column_scales, judged_rows, pair_rows, rows_of, second_moment

__all__ = ["candidate_ranks", "legs_along", "refit_leading"]

# Every rank up to the first number is tried; beyond it, ranks grow by this share.
_ALL_UP_TO, _GROWTH = 16, 1.2


def candidate_ranks(largest: int) -> list[int]:
    """The ranks to try: 0, every small rank, then increasingly few, and the largest."""
    ranks = list(range(min(largest, _ALL_UP_TO) + 1))
    while ranks[-1] < largest:
        ranks.append(min(math.ceil(ranks[-1] * _GROWTH), largest))
    return ranks


def refit_leading(judgements: Judgements, settings: Settings, whole: Scorer, directions: Directions, k: int) -> Scorer:
    """The best metric within the span of the k leading directions; at full rank what was fitted is returned unchanged.

    A penalty that shrinks M to zero can't be expressed within a subspace, and a fit of rank k is used instead.  One
    that shrinks M to a centre shrinks it to the truncated metric there.
    """
    metric = whole.metric
    if k >= metric.rank:
        return whole
    if k > 0 and settings.alpha != 0 and not settings.is_centred:
        return Scorer.of(refit(judgements, settings.but(rank=k)))
    lengths = np.sqrt(directions.values[:k])
    kept = directions.columns[:, :k][:, lengths > 0]  # in these coordinates, the truncated metric is Euclidean
    if kept.shape[1] == 0:
        return replace(whole, metric=_constant(metric, judgements))
    if not settings.is_centred:
        kept = kept / lengths[lengths > 0]
    within = _within(judgements, metric, kept)
    fitted = refit(within, settings.but(rank=None, prior="euclidean" if settings.is_centred else settings.prior))
    rows_within = judged_rows(within)
    found, source = fitted.metric, judged_rows(judgements, settings.known_comparison_noise)
    shares = judgements.shares_in(source)
    is_normal = directions.is_data_scale and not settings.is_centred
    moment = None if is_normal else second_moment(rows_within, within.shares_in(rows_within))
    origin, thresholds = metric.origin, np.array(found.thresholds)
    if metric.origin is not None and found.origin is not None:
        on_points = kept @ found.factor
        on_constant = -(metric.origin @ kept + found.origin) @ found.factor
        origin, slack = find_origin(pair_rows(judgements.data), shares, np.vstack([on_points, on_constant]))
        thresholds -= slack
    leading = Metric.from_data_scale(
        kept,
        found.factor,
        thresholds,
        found.noise,
        second_moment=moment,
        column_scales=column_scales(source, shares, centred=metric.origin is not None),
        feature_names=metric.feature_names,
        origin=origin,
        flip_rate=found.flip_rate,
    )
    return replace(Scorer.of(fitted), metric=leading)


def _within(judgements: Judgements, metric: Metric, kept: FloatArray) -> Judgements:
    """The judgements with their differences along these directions; of comparisons, each leg and a point at zero."""
    if judgements.kind is not Kind.COMPARISONS:
        found = judgements.with_data(metric.coordinates(judgements.data, kept))
        compared = judgements.comparisons
        return found if compared is None else replace(found, comparisons=_within(compared, metric, kept))
    return judgements.with_data(quadruplets_of(*legs_along(judgements, kept)))


def legs_along(judgements: Judgements, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The coordinates of both legs of each comparison along these columns."""
    rows = rows_of(judgements.data)
    assert isinstance(rows, LegRows)
    legs = rows.legs.projected(columns)
    return legs[0::2], legs[1::2]


def _constant(metric: Metric, judgements: Judgements) -> Metric:
    """The best metric of rank 0: every pair has the same probabilities, and every comparison even odds."""
    if judgements.kind is Kind.COMPARISONS:
        return metric.truncate(0)
    if judgements.levels is not None:
        return replace(metric.truncate(0), threshold=None, level_thresholds=_constant_thresholds(metric, judgements))
    far, (of_close, of_far) = judgements.mean(judgements.is_far), metric.flip_rates
    share = (far - of_close) / (1.0 - of_close - of_far)
    # For differences the threshold is at least 0, so the probability is at most one half.
    share = float(np.clip(share, 1e-12, 0.5 if metric.origin is None else 1.0 - 1e-12))
    threshold = _threshold_at(metric, share)
    return replace(metric.truncate(0), threshold=max(threshold, 0.0) if metric.origin is None else threshold)


def _constant_thresholds(metric: Metric, judgements: Judgements) -> tuple[float, ...]:
    """The thresholds at which a distance of zero has the shares of the levels; the closest one has at least half."""
    each, rest = level_flips(metric.one_flip_rate, judgements.n_levels)
    shares = np.bincount(judgements.codes, judgements.weights, judgements.n_levels)
    shares = np.clip((shares / shares.sum() - each) / rest, 1e-12, None)
    shares /= shares.sum()
    if shares[0] < 0.5:  # thresholds are at least zero; the others keep their ratios
        shares[1:] *= 0.5 / shares[1:].sum()
    beyond = np.minimum(np.cumsum(shares[:0:-1])[::-1], 0.5)
    return tuple(max(_threshold_at(metric, float(share)), 0.0) for share in beyond)


def _threshold_at(metric: Metric, share: float) -> float:
    """The threshold that a distance of zero exceeds with this probability."""
    found: float = brentq(lambda tau: float(metric.noise.cdf(-tau)) - share, -1e3, 1e3, xtol=1e-12)
    return found
