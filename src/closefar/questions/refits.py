"""Jackknife and bootstrap: fits to parts of the pairs, or to resampled pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from closefar import packed
from closefar.arrays import FloatArray, to_numpy
from closefar.fitting import Settings, refit
from closefar.judgements import Judgements, Kind
from closefar.judgements.comparisons import quadruplets_of
from closefar.model import Metric
from closefar.questions.annotating import table_of
from closefar.questions.free_fit import fit_freely
from closefar.questions.observed import Observed
from closefar.questions.reach import Reach
from closefar.rows import BlockRows

__all__ = ["JACKKNIFE_PARTS", "bootstrap", "jackknife"]

JACKKNIFE_PARTS = 20


def jackknife(
    sample: Observed, centre: FloatArray, level: float, random_state: Any, n_jobs: int | None, *, keeps_rank: bool
) -> Reach | None:
    """Fit without each of 20 random parts of the pairs in turn; None if a fit has no finite optimum.

    All fits have fewer pairs, so their mean estimates the bias, and their differences estimate the
    variance.  They have the rank of the original fit, or are over all symmetric M.
    """
    seed = check_random_state(0 if random_state is None else random_state).randint(2**31)
    left_out = sample.dependence.parts(
        sample.repeats, _ranks(sample, centre), JACKKNIFE_PARTS, np.random.default_rng(seed)
    )
    kept = sample.likelihood.shares[:, None] * (1.0 - left_out / sample.repeats[:, None])
    left = kept.sum(axis=0)
    if not np.all(left > 0.0):
        return None  # one part contains a point of every pair
    kept /= left
    if keeps_rank:
        found = _refits(sample, list(kept.T), n_jobs)
    else:
        information = sample.likelihood.information(centre, sample.likelihood.shares)
        n = float(sample.repeats.sum())
        found = [fit_freely(sample.likelihood, centre, weights, n, information) for weights in kept.T]
    if any(each is None for each in found):
        return None
    fits = np.array(found)
    share = float(left_out.sum()) / (JACKKNIFE_PARTS * float(sample.repeats.sum()))
    bias = (1.0 - share) / share * (fits.mean(axis=0) - centre)
    scale = np.sqrt(JACKKNIFE_PARTS / (JACKKNIFE_PARTS - 1.0)) * (1.0 - share)
    quantile = float(student.ppf(0.5 + 0.5 * level, JACKKNIFE_PARTS - 1))
    return Reach(centre - bias - sample.parameters, scale * (fits - fits.mean(axis=0)).T, quantile)


def _ranks(sample: Observed, parameters: FloatArray) -> FloatArray:
    """A number per row that depends neither on row order nor on units: its rank by margin and label."""
    likelihood = sample.likelihood
    order = np.lexsort((likelihood.outcomes.codes, np.round(likelihood.margins(parameters), 7)))
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    return ranks


def bootstrap(sample: Observed, n_bootstrap: int, random_state: Any, n_jobs: int | None) -> FloatArray:
    """The parameters of fits to resampled pairs, one row per fit with a finite optimum."""
    scale = sample.likelihood.shares / sample.repeats
    seeds = np.random.SeedSequence(check_random_state(random_state).randint(2**31)).spawn(n_bootstrap)
    drawn = (scale * sample.dependence.draw(sample.repeats, np.random.default_rng(seed)) for seed in seeds)
    finite = [found for found in _refits(sample, drawn, n_jobs) if found is not None]
    return np.array(finite).reshape(len(finite), len(sample.parameters))


def _refits(sample: Observed, weights: Any, n_jobs: int | None) -> list[FloatArray | None]:
    """The parameters of one fit for each array of row weights.

    The fits use the optimum's unit-free coordinates, since a fit does not depend on units.
    """
    judgements = _in_coordinates(sample)
    # Chosen settings are kept; class weights are already part of the row weights.
    settings = sample.fit.chosen.but(rank=sample.largest_rank, class_weight=None)
    if sample.likelihood.has_flip_parameter:
        settings = settings.but(flip_rate="two" if sample.likelihood.n_rates == 2 else "estimate")
    start = Metric.from_factor(sample.optimum.factor, sample.fit.metric.thresholds or None)
    found: list[FloatArray | None] = Parallel(n_jobs=n_jobs)(
        delayed(_refit)(judgements, settings, sample.likelihood.n_rates, each, start) for each in weights
    )
    return found


def _in_coordinates(sample: Observed) -> Judgements:
    """The judgements with their differences in the optimum's coordinates as data; a comparison has two."""
    rows, judgements = sample.optimum.rows, sample.judgements
    legs = rows if isinstance(rows, BlockRows) else rows.legs
    points = np.ascontiguousarray(to_numpy(legs.read(slice(0, legs.n_rows))).T)
    if isinstance(rows, BlockRows):
        return judgements.with_data(points)
    compared = quadruplets_of(points[rows.n_pairs :: 2], points[rows.n_pairs + 1 :: 2])
    if judgements.kind is Kind.COMPARISONS:
        return judgements.with_data(compared)
    assert judgements.comparisons is not None
    return replace(judgements, data=points[: rows.n_pairs], comparisons=judgements.comparisons.with_data(compared))


def _refit(
    judgements: Judgements, settings: Settings, n_rates: int, weights: FloatArray, start: Metric
) -> FloatArray | None:
    """The parameters of one fit; None if it has no finite optimum."""
    n, compared = len(judgements), judgements.comparisons
    drawn = np.flatnonzero(weights[:n] > 0)
    is_compared = judgements.kind is Kind.COMPARISONS
    if not is_compared and len(np.unique(judgements.codes[drawn])) < judgements.n_levels:
        return None
    some = judgements.with_weights(weights[:n]).take(drawn)
    if compared is not None:
        some = replace(some, comparisons=compared.with_weights(weights[n:]).counted())
    fit = refit(some, settings, start=start)
    if not fit.certificate.converged or fit.is_separable:
        return None
    table = table_of(fit, judgements)
    rest = [*fit.metric.thresholds, *(() if table is None else table.strictness)]
    return packed.joined(fit.metric.matrix, np.append(rest, np.ravel(fit.metric.flip_rate)[:n_rates]))
