"""Simulated judgements of every kind, with the truth that they come from."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from closefar.arrays import LEGS, TURNED, BoolArray, FloatArray, IndexArray
from closefar.datasets.panel import Panel, answers, assign, check_flip_rate, draw_panel
from closefar.datasets.synthetic import check_counts, check_noise_level, draw_shapes, solve_noise_scale
from closefar.judgements import Tuples
from closefar.model import Metric
from closefar.noise import Noise, get_noise

__all__ = ["SimulatedJudgements", "make_judgements"]

_SIZES = {"pairs": 2, "levels": 2, "triplets": 3, "quadruplets": 4}  # how many points a judgement has
_TURNED = {kind: TURNED[size] for kind, size in _SIZES.items() if size in TURNED}
_LEVELS = 5


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedJudgements:
    """Judgements, and the truth that they come from.

    Distances, thresholds and strictness are those of `metric`; a learner finds them divided by `noise_scale`
    (M / s, tau / s, strictness / s), because it measures everything in units of the noise.

    Attributes
    ----------
    kind : str
        "pairs", "levels", "triplets" or "quadruplets".
    points : array of shape (n_points, d)
    index : array of shape (n, k)
        The points of each judgement.
    labels, true_labels : arrays of shape (n,)
        The answers, and those without noise, annotators and flips: -1 (close) and +1 (far) of pairs, the levels 0
        (closest) to K - 1, or of comparisons +1 where the first leg is the shorter one, -1 where it is the longer one.
    metric : Metric
        M*, with tau* for pairs, the K - 1 thresholds of levels, and none for comparisons.
    noise_scale : float
    squared_distances : array of shape (n, 1) or (n, 2)
        Under `metric`, of each leg.
    is_flipped : array of shape (n,)
        Which labels were changed whatever the distance.
    panel : Panel, optional
        The annotators: their `names`, `strictness`, `flip_rates`, which of them answer `at_random`, and `who` judged.
    """

    kind: str
    points: FloatArray
    index: IndexArray
    labels: NDArray[np.int64]
    true_labels: NDArray[np.int64]
    metric: Metric
    noise_scale: float
    squared_distances: FloatArray
    is_flipped: BoolArray
    panel: Panel | None

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        judges = "" if self.panel is None else f", {len(self.panel.names)} annotators"
        return f"SimulatedJudgements({len(self):,} {self.kind} of {self.points.shape[1]} columns{judges})"

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Those of `metric`."""
        return self.metric.thresholds

    @property
    def tuples(self) -> Tuples:
        """The points of each judgement by index: what a learner is fitted to."""
        return Tuples(self.points, self.index)

    @property
    def annotators(self) -> NDArray[np.str_] | None:
        """The name of the annotator of each judgement."""
        return None if self.panel is None else self.panel.names[self.panel.who]

    @property
    def answered(self) -> IndexArray:
        """The index of comparisons, with the leg that was called shorter first, so that no labels are needed."""
        if self.kind not in _TURNED:
            raise ValueError(
                f"only triplets and quadruplets can be put in the order of their answers; got {self.kind}."
            )
        return np.where((self.labels > 0)[:, None], self.index, self.index[:, _TURNED[self.kind]])


def make_judgements(
    n: int = 15_000,
    n_features: int = 10,
    *,
    kind: str = "pairs",
    n_points: int | None = None,
    n_repeats: int = 1,
    n_levels: int | None = None,
    thresholds: Any = None,
    rank: int | None = None,
    metric_eigenvalues: Any = None,
    covariance_eigenvalues: Any = None,
    noise: str | Noise | None = "logistic",
    noise_scale: float | None = None,
    wrong_share: float | None = None,
    flip_rate: Any = 0.0,
    n_annotators: int | None = None,
    strictness_spread: float = 0.0,
    annotator_flip_rates: Any = None,
    n_random_annotators: int = 0,
    random_state: Any = None,
) -> SimulatedJudgements:
    """Simulate close/far labels, levels, triplets or quadruplets.

    Points and M* are drawn as by `make_pairs`, and depend on the seed but not on the kind.  With the same seed,
    "pairs" and "levels" have the same pairs, the same noise and the same annotators, so that only the detail of the
    answers differs; "pairs" are those of `make_pairs`.  Judgements of two kinds by the same people, for a
    mixed fit, have the same seed and the same `noise_scale`.

    Parameters
    ----------
    n, n_features : int
        The number of judgements, and of columns.
    kind : {"pairs", "levels", "triplets", "quadruplets"}
    n_points : int, optional
        Draw the points of the judgements from so many; by default no two judgements share a point.
    n_repeats : int, default=1
        How many judgements there are of each pair or comparison, by different annotators.
    n_levels : int, optional
        K; 5 by default.
    thresholds : float or array, optional
        tau* of pairs, by default the median squared distance; the K - 1 thresholds of levels, by default
        those that make all true levels equally frequent.
    rank, metric_eigenvalues, covariance_eigenvalues
        As for `make_pairs`.
    noise : name of a noise model, Noise or None
    noise_scale : float, optional
        A factor of the noise.
    wrong_share : float, optional
        The expected share of answers that the noise makes wrong, from which `noise_scale` is computed.  For levels it
        is the share of wrong close/far labels, with the median squared distance as the threshold.  It is 0.1
        if neither is given.
    flip_rate : float or (float, float)
        The share of answers that are wrong whatever the distance.  Of close/far labels also two numbers:
        P(called far | close) and P(called close | far).  A share rho of levels is drawn from all
        K alike, with flip_rate = rho (K - 1) / K.
    n_annotators : int, optional
        Pairs and levels are judged by so many annotators, who have about equally many judgements.
    strictness_spread : float, default=0.0
        The standard deviation of their strictness, as a share of tau* (of levels: of the median squared distance).
    annotator_flip_rates : array of shape (n_annotators,), optional
        A flip rate for each annotator, instead of `flip_rate`.
    n_random_annotators : int, default=0
        How many of them answer at random.
    random_state : int, RandomState or None

    Returns
    -------
    SimulatedJudgements

    Examples
    --------
    >>> import closefar as cf
    >>> ratings = cf.datasets.make_judgements(1000, 3, kind="levels", n_levels=4, n_annotators=10, random_state=0)
    >>> ratings
    SimulatedJudgements(1,000 levels of 3 columns, 10 annotators)
    >>> ratings.tuples.shape, len(ratings.thresholds), ratings.annotators[:2].tolist()
    ((1000, 2, 3), 3, ['A08', 'A05'])
    """
    check_counts(n=n, n_features=n_features, n_points=n_points or 1, n_repeats=n_repeats, rank=rank or 1)
    _check_kind(kind, n_annotators, strictness_spread, annotator_flip_rates, n_random_annotators)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    scatter, directions = draw_shapes(n_features, rank, metric_eigenvalues, covariance_eigenvalues, rng)
    points, index = _draw_tuples(n, _SIZES[kind], n_points, n_repeats, scatter, rng)
    squared = _squared_distances(points @ directions, index, LEGS.get(_SIZES[kind], ((0, 1),)))
    latent = squared[:, -1] - squared[:, 0] if kind in _TURNED else squared[:, 0]
    cuts, middle = _thresholds(kind, thresholds, n_levels, latent)
    heard, scale = _heard(latent, middle, noise, noise_scale, wrong_share, rng)
    rates, panel = check_flip_rate(flip_rate, annotator_flip_rates, kind, len(cuts) + 1), None
    if n_annotators is not None:
        who, spread = assign(n, n_repeats, n_annotators, rng), strictness_spread * middle
        panel = draw_panel(who, n_annotators, spread, rates, n_random_annotators, len(cuts) + 1, rng)
    said, codes = answers(heard, cuts, rates, panel, rng)
    return SimulatedJudgements(
        kind=kind,
        points=points,
        index=index,
        labels=_labels(kind, codes),
        true_labels=_labels(kind, np.searchsorted(cuts, latent, side="right")),
        metric=Metric.from_factor(directions, None if kind in _TURNED else cuts, noise or "logistic"),
        noise_scale=scale,
        squared_distances=squared,
        is_flipped=codes != said,
        panel=panel,
    )


def _check_kind(kind: str, n_annotators: Any, spread: float, flip_rates: Any, n_random: Any) -> None:
    if kind not in _SIZES:
        raise ValueError(f"kind must be one of {list(_SIZES)}; got {kind!r}.")
    if n_annotators is None:
        if spread != 0 or flip_rates is not None or n_random != 0:
            raise ValueError(
                "strictness_spread, annotator_flip_rates and n_random_annotators need n_annotators; got None. Set it."
            )
        return
    if kind in _TURNED:
        raise ValueError(f"annotators judge pairs or levels; got kind={kind!r} and n_annotators={n_annotators!r}.")
    check_counts(n_annotators=n_annotators)


def _draw_tuples(
    n: int, size: int, n_points: int | None, n_repeats: int, spread: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, IndexArray]:
    """Points, and which of them each judgement is about."""
    n_tuples = -(-n // n_repeats)
    if n_points is None:
        points = rng.standard_normal((n_tuples * size, len(spread)))
        index = np.arange(n_tuples * size).reshape(n_tuples, size)
    elif n_points < size:
        raise ValueError(f"n_points must be at least {size}, the points of one judgement; got {n_points}.")
    else:
        points, index = rng.standard_normal((n_points, len(spread))), _different(n_tuples, size, n_points, rng)
    return points @ spread.T, np.repeat(index, n_repeats, axis=0)[:n]


def _different(n: int, size: int, n_points: int, rng: np.random.Generator) -> IndexArray:
    """So many different points for each of n judgements."""
    index = np.empty((n, 0), dtype=np.intp)
    for column in range(size):
        chosen = rng.integers(n_points - column, size=n)
        for earlier in np.sort(index, axis=1).T:  # numbered without the points that are taken
            chosen += chosen >= earlier
        index = np.column_stack([index, chosen])
    return index


def _squared_distances(projected: FloatArray, index: IndexArray, legs: tuple[tuple[int, int], ...]) -> FloatArray:
    return np.column_stack(
        [np.sum((projected[index[:, left]] - projected[index[:, right]]) ** 2, axis=1) for left, right in legs]
    )


def _thresholds(kind: str, given: Any, n_levels: int | None, latent: FloatArray) -> tuple[tuple[float, ...], float]:
    """The thresholds between answers, and the one between close and far; comparisons are answered by the sign."""
    if n_levels is not None and (kind != "levels" or not isinstance(n_levels, numbers.Integral) or n_levels < 2):
        raise ValueError(f"n_levels must be a whole number >= 2, of kind 'levels'; got {n_levels!r} of kind {kind!r}.")
    if kind in _TURNED:
        if given is not None:
            raise ValueError(f"comparisons have no thresholds; got thresholds={given!r}. Leave them out.")
        return (0.0,), 0.0
    middle = float(np.median(latent))
    if kind == "pairs":
        cuts = _checked_thresholds(given, 1) if given is not None else (middle,)
        return cuts, cuts[0]
    if given is not None:
        return _checked_thresholds(given, None if n_levels is None else n_levels - 1), middle
    k = n_levels or _LEVELS
    return tuple(np.quantile(latent, np.arange(1, k) / k).tolist()), middle


def _checked_thresholds(given: Any, count: int | None) -> tuple[float, ...]:
    values = np.atleast_1d(np.asarray(given, dtype=np.float64))
    increasing = values.ndim == 1 and len(values) > 0 and bool(np.all(np.diff(values) > 0))
    if not (increasing and np.all(np.isfinite(values)) and count in (None, len(values))):
        number = "" if count is None else f"{count} "
        raise ValueError(f"thresholds must be {number}finite, increasing numbers; got {given!r}.")
    return tuple(values.tolist())


def _heard(
    latent: FloatArray,
    middle: float,
    noise: str | Noise | None,
    noise_scale: float | None,
    wrong_share: float | None,
    rng: np.random.Generator,
) -> tuple[FloatArray, float]:
    """The latent values with noise, and the scale of the noise."""
    check_noise_level(noise, noise_scale, wrong_share)
    if noise is None:
        return latent, 0.0
    model = get_noise(noise)
    share = 0.1 if wrong_share is None else float(wrong_share)
    scale = solve_noise_scale(latent - middle, model, share) if noise_scale is None else float(noise_scale)
    return latent + scale * model.sample(len(latent), rng), scale


def _labels(kind: str, codes: IndexArray) -> NDArray[np.int64]:
    return (codes if kind == "levels" else 2 * codes - 1).astype(np.int64)
