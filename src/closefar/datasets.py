"""Example data: simulated judgements, pairs made from points, and tables of patients."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.utils import check_random_state

from closefar.arrays import LEGS, TURNED, BoolArray, FloatArray, IndexArray
from closefar.judgements import Tuples
from closefar.model import Metric
from closefar.noise import NOISES, Noise, get_noise

__all__ = ["LabelledPairs", "PairCount", "Panel", "PatientJudgements", "PatientTables", "SimulatedJudgements"]
__all__ += ["count_pairs", "judge_patients", "make_judgements", "make_pairs", "make_patients", "pairs_from_points"]
__all__ += ["solve_noise_scale"]

# ---------------------------------------------------------------------------------------------------------------------
# Simulated annotators: who judges what, how strictly, and how often at random.


@dataclass(frozen=True, eq=False, repr=False)
class Panel:
    """Simulated annotators.

    Attributes
    ----------
    names : array of shape (n_annotators,)
    strictness : array of shape (n_annotators,)
        What each adds to the thresholds: a strict annotator needs a larger squared distance to say far.
    flip_rates : array of shape (n_annotators,) or (n_annotators, 2)
        The share of each one's answers that are wrong regardless of the distance, or those of close and of far pairs.
    at_random : array of shape (n_annotators,)
        Who answers at random.
    who : array of shape (n,)
        The number of the annotator of each judgement.
    """

    names: NDArray[np.str_]
    strictness: FloatArray
    flip_rates: FloatArray
    at_random: BoolArray
    who: IndexArray

    def __repr__(self) -> str:
        return f"Panel({len(self.names)} annotators, {np.count_nonzero(self.at_random)} of them at random)"


def _draw_panel(
    who: IndexArray, n: int, spread: float, rates: FloatArray, n_random: int, most: float, rng: Any
) -> Panel:
    """Draw n annotators; those who answer at random among them have the largest flip rate, `most`."""
    strictness = spread * rng.standard_normal(n)
    at_random = np.isin(np.arange(n), rng.choice(n, n_random, replace=False))
    names = np.array([f"A{number:0{len(str(n))}d}" for number in range(1, n + 1)])
    chance = np.where(at_random[:, None] if rates.ndim == 2 else at_random, most, rates)
    return Panel(names, strictness, chance, at_random, who)


def _assign(n: int, n_repeats: int, n_annotators: int, rng: np.random.Generator) -> IndexArray:
    """Who judges: annotators in turn, in an order that changes each time, and never the same pair twice."""
    if n_repeats > n_annotators:
        raise ValueError(
            f"n_repeats must be at most n_annotators = {n_annotators}, as nobody judges a pair twice; got {n_repeats}."
        )
    pair, repeat = np.divmod(np.arange(n), n_repeats)
    turn, place = np.divmod(pair, n_annotators)
    everyone = np.tile(np.arange(n_annotators), (int(turn[-1]) + 1, 1))
    order, shift = rng.permuted(everyone, axis=1), rng.permuted(everyone, axis=1)
    who: IndexArray = order[turn, (place + shift[turn, repeat]) % n_annotators]
    return who


def _flip_rates(flip_rate: Any, kind: str, most: float) -> FloatArray:
    """Return the share of flipped answers as a number, or that of close and of far pairs as one row."""
    values = np.asarray(flip_rate, dtype=np.float64)
    is_two = values.shape == (2,) and kind == "pairs"
    is_share = np.all((values >= 0) & (values <= most)) and values.sum() < 1
    if not (is_share and (values.shape == () or is_two)):
        two = ", or two for close and for far pairs with a sum below 1" if kind == "pairs" else ""
        raise ValueError(f"flip_rate must be a number from 0 to {most:g}{two}; got {flip_rate!r} for {kind}.")
    return values[None] if is_two else values


def _flipped(codes: IndexArray, rates: FloatArray, n_levels: int, rng: np.random.Generator) -> IndexArray:
    """The answers after flips at one rate, at one for each answer, or at two for close and for far.

    A share rho of answers is drawn from all K levels equally, of which rho (K - 1) / K differ from what was said.
    """
    chance, drawn = rng.uniform(size=len(codes)), rng.integers(n_levels, size=len(codes))
    if rates.ndim == 2:
        return np.where(chance < np.where(codes == 1, rates[:, 1], rates[:, 0]), 1 - codes, codes)
    return np.where(chance < rates * n_levels / (n_levels - 1), drawn, codes)


# ---------------------------------------------------------------------------------------------------------------------
# The paper's generator of labelled pairs.


_WRONG_SHARE = 0.1  # of the labels, as in the paper's examples, where nothing else is said


class LabelledPairs(NamedTuple):
    """Pairs of points with noisy labels and true labels."""

    pairs: FloatArray
    labels: NDArray[np.int64]
    true_labels: NDArray[np.int64]
    metric: Metric


def make_pairs(
    n_pairs: int = 15_000,
    n_features: int = 10,
    *,
    rank: int | None = None,
    metric_eigenvalues: Any = None,
    covariance_eigenvalues: Any = None,
    threshold: float | None = None,
    noise: str | Noise | None = "logistic",
    noise_scale: float | None = None,
    wrong_share: float | None = None,
    random_state: Any = None,
) -> LabelledPairs:
    """Generate pairs as in the paper's section "Data Generation".

    Points are normal with a randomly oriented covariance; a pair is truly far if its
    squared distance under a randomly oriented M* is at least tau*; its label is far if
    that squared distance plus noise is.

    Parameters
    ----------
    n_pairs, n_features : int
    rank : int, optional
        The number of nonzero eigenvalues of M*; all by default.
    metric_eigenvalues, covariance_eigenvalues : arrays, optional
        At most `n_features` numbers >= 0, and `n_features` numbers > 0; uniform on (0, 1)
        by default.
    threshold : float, optional
        tau*; by default the median squared distance, which gives balanced classes.
    noise : name of a noise model, Noise, "flips" or None
        "flips" flips labels regardless of the distance (the paper's noisy labelling).
    noise_scale : float, optional
        A factor of the noise.
    wrong_share : float, optional
        The expected share of wrong labels, from which `noise_scale` is computed.  It is 0.1 if
        neither is given.
    random_state : int, RandomState or None

    Returns
    -------
    LabelledPairs
        ``pairs`` (n, 2, d), ``labels`` and ``true_labels`` (-1 close, +1 far), and the true
        ``metric`` with M* and tau* as chosen.  A learner finds M*/s and tau*/s, where s is
        the scale of the noise.

    Examples
    --------
    >>> import closefar as cf
    >>> data = cf.datasets.make_pairs(1000, 3, wrong_share=0.2, random_state=0)
    >>> data.pairs.shape, data.metric.rank
    ((1000, 2, 3), 3)
    """
    _check_counts(n_pairs=n_pairs)
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
    _check_noise_level(noise, noise_scale, wrong_share)
    share = (_WRONG_SHARE if wrong_share is None else float(wrong_share)) if noise == "flips" else 0.0
    data = make_judgements(
        n_pairs,
        n_features,
        thresholds=threshold,
        rank=rank,
        metric_eigenvalues=metric_eigenvalues,
        covariance_eigenvalues=covariance_eigenvalues,
        noise=None if noise == "flips" else noise,
        noise_scale=noise_scale,
        wrong_share=None if noise == "flips" else wrong_share,
        flip_rate=(share, share),
        random_state=random_state,
    )
    return LabelledPairs(np.asarray(data.tuples), data.labels, data.true_labels, data.metric)


def solve_noise_scale(margins: Any, noise: str | Noise, wrong_share: float) -> float:
    """Return the scale of the noise at which the expected share of wrong labels at these margins is `wrong_share`.

    Margins of zero have no correct side and are ignored.
    """
    model = get_noise(noise)
    size = np.abs(np.asarray(margins, dtype=np.float64))
    size = size[size != 0]
    if not 0 <= wrong_share < 0.5:
        raise ValueError(f"wrong_share must be at least 0 and below 0.5; got {wrong_share!r}.")
    if len(size) == 0 or not np.all(np.isfinite(size)):
        raise ValueError("margins must be finite and not all zero.")
    if wrong_share == 0.0:
        return 0.0

    def excess(log_scale: float) -> float:
        return float(np.mean(model.cdf(-size / np.exp(log_scale)))) - wrong_share

    middle = np.log(np.median(size))
    return float(np.exp(brentq(excess, middle - 60.0, middle + 60.0, xtol=1e-12)))


def _check_counts(**counts: Any) -> None:
    """Refuse numbers of things that are not whole numbers above 0."""
    for name, value in counts.items():
        if not (isinstance(value, numbers.Integral) and int(value) >= 1):
            raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")


def _check_noise_level(noise: Any, noise_scale: float | None, wrong_share: float | None) -> None:
    """Refuse a scale of the noise, or a share of wrong labels, that can't be."""
    if noise_scale is not None and wrong_share is not None:
        raise ValueError("only one of noise_scale and wrong_share can be set; got both. Leave one out.")
    if noise_scale is not None and not (noise_scale >= 0 and noise not in (None, "flips")):
        raise ValueError(f"noise_scale must be >= 0, and noise one of {list(NOISES)}; got noise_scale={noise_scale!r}.")
    if wrong_share is not None and noise is None:
        raise ValueError(f'wrong_share needs a noise or "flips"; got noise=None and wrong_share={wrong_share!r}.')
    if wrong_share is not None and not 0 <= wrong_share < 0.5:
        raise ValueError(f"wrong_share must be at least 0 and below 0.5; got {wrong_share!r}.")


def _eigenvalues(name: str, given: Any, d: int, count: int | None, rng: np.random.Generator) -> FloatArray:
    if given is None:
        if count is not None and not 1 <= count <= d:
            raise ValueError(f"rank must be from 1 to n_features = {d}; got {count!r}.")
        return rng.uniform(size=d if count is None else count)
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1 or not 1 <= len(values) <= d or not np.all((values >= 0) & np.isfinite(values)):
        raise ValueError(f"{name} must be at most n_features = {d} finite numbers >= 0; got {given!r}.")
    if count is not None and len(values) != count:
        raise ValueError(f"{name} must be {count} numbers; got {len(values)}.")
    return values


def _random_rotation(d: int, rng: np.random.Generator) -> FloatArray:
    """A uniformly distributed orthonormal matrix."""
    rotation, triangle = np.linalg.qr(rng.standard_normal((d, d)))
    return rotation * np.where(np.diag(triangle) < 0, -1.0, 1.0)


_SIZES = {"pairs": 2, "levels": 2, "triplets": 3, "quadruplets": 4}  # how many points a judgement has
_TURNED = {kind: TURNED[size] for kind, size in _SIZES.items() if size in TURNED}
_LEVELS = 5  # as most scales of ratings have


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
        Which labels were changed regardless of the distance.
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
        Draw the points of the judgements from this many; by default no two judgements share a point.
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
        The share of answers that are wrong regardless of the distance.  For close/far labels also two numbers:
        P(called far | close) and P(called close | far).  A share rho of levels is drawn from all
        K equally, with flip_rate = rho (K - 1) / K.
    n_annotators : int, optional
        Pairs and levels are judged by this many annotators, who have about equally many judgements.
    strictness_spread : float, default=0.0
        The standard deviation of their strictness, as a share of tau* (for levels: of the median squared distance).
    n_random_annotators : int, default=0
        How many of them answer at random; the others have the `flip_rate`.
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
    _check_counts(n=n, n_features=n_features, n_points=n_points or 1, n_repeats=n_repeats, rank=rank or 1)
    _check_kind(kind, n_annotators, strictness_spread, n_random_annotators)
    _check_noise_level(noise, noise_scale, wrong_share)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    covariance = _eigenvalues("covariance_eigenvalues", covariance_eigenvalues, n_features, n_features, rng)
    if np.any(covariance <= 0):
        raise ValueError(f"covariance_eigenvalues must be > 0; got {covariance}.")
    spectrum = _eigenvalues("metric_eigenvalues", metric_eigenvalues, n_features, rank, rng)
    scatter = _random_rotation(n_features, rng) * np.sqrt(covariance)
    directions = _random_rotation(n_features, rng)[:, : len(spectrum)] * np.sqrt(spectrum)
    points, index = _draw_tuples(n, _SIZES[kind], n_points, n_repeats, scatter, rng)
    legs, projected = LEGS.get(_SIZES[kind], ((0, 1),)), points @ directions
    squared = np.column_stack([np.sum((projected[index[:, i]] - projected[index[:, j]]) ** 2, axis=1) for i, j in legs])
    latent = squared[:, -1] - squared[:, 0] if kind in _TURNED else squared[:, 0]
    cuts, middle = _thresholds(kind, thresholds, n_levels, latent)
    heard, scale = latent, 0.0
    if noise is not None:
        model, share = get_noise(noise), _WRONG_SHARE if wrong_share is None else float(wrong_share)
        scale = solve_noise_scale(latent - middle, model, share) if noise_scale is None else float(noise_scale)
        heard = latent + scale * model.sample(n, rng)
    most, panel = 1.0 - 1.0 / (len(cuts) + 1), None
    rates = _flip_rates(flip_rate, kind, most)
    if n_annotators is not None:
        who, spread = _assign(n, n_repeats, n_annotators, rng), strictness_spread * middle
        panel = _draw_panel(who, n_annotators, spread, rates, n_random_annotators, most, rng)
        heard, rates = heard - panel.strictness[who], panel.flip_rates[who]
    said = np.searchsorted(cuts, heard, side="right")
    codes = _flipped(said, rates, len(cuts) + 1, rng)
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


def _check_kind(kind: str, n_annotators: Any, spread: float, n_random: Any) -> None:
    if kind not in _SIZES:
        raise ValueError(f"kind must be one of {list(_SIZES)}; got {kind!r}.")
    if n_annotators is None:
        if spread != 0 or n_random != 0:
            raise ValueError("strictness_spread and n_random_annotators need n_annotators; got None. Set it.")
        return
    if kind in _TURNED:
        raise ValueError(f"annotators judge pairs or levels; got kind={kind!r} and n_annotators={n_annotators!r}.")
    _check_counts(n_annotators=n_annotators)
    is_whole = isinstance(n_random, numbers.Integral) and not isinstance(n_random, bool)
    if not (is_whole and 0 <= int(n_random) <= n_annotators):
        raise ValueError(f"n_random_annotators must be from 0 to n_annotators = {n_annotators}; got {n_random!r}.")
    if not 0 <= spread < np.inf:
        raise ValueError(f"strictness_spread must be a finite number >= 0; got {spread!r}.")


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
    """Draw `size` different points for each of n judgements."""
    index = np.empty((n, 0), dtype=np.intp)
    for column in range(size):
        chosen = rng.integers(n_points - column, size=n)
        for earlier in np.sort(index, axis=1).T:  # numbered without the points that are taken
            chosen += chosen >= earlier
        index = np.column_stack([index, chosen])
    return index


def _thresholds(kind: str, given: Any, n_levels: int | None, latent: FloatArray) -> tuple[tuple[float, ...], float]:
    """The thresholds between answers, and the one between close and far; comparisons are answered by the sign."""
    if n_levels is not None and (kind != "levels" or not isinstance(n_levels, numbers.Integral) or n_levels < 2):
        raise ValueError(f"n_levels must be a whole number >= 2, of kind 'levels'; got {n_levels!r} of kind {kind!r}.")
    if kind in _TURNED:
        if given is not None:
            raise ValueError(f"comparisons have no thresholds; got thresholds={given!r}. Leave them out.")
        return (0.0,), 0.0
    k = 2 if kind == "pairs" else n_levels
    cuts = np.quantile(latent, np.arange(1, k or _LEVELS) / (k or _LEVELS))
    if given is not None:
        cuts = np.atleast_1d(np.asarray(given, dtype=np.float64))
        increasing = cuts.ndim == 1 and len(cuts) > 0 and bool(np.all(np.diff(cuts) > 0) and np.all(np.isfinite(cuts)))
        if not increasing or (k is not None and len(cuts) != k - 1):
            number = "" if k is None else f"{k - 1} "
            raise ValueError(f"thresholds must be {number}finite, increasing numbers; got {given!r}.")
    return tuple(cuts.tolist()), float(cuts[0] if kind == "pairs" else np.median(latent))


def _labels(kind: str, codes: IndexArray) -> NDArray[np.int64]:
    return (codes if kind == "levels" else 2 * codes - 1).astype(np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# Labelled pairs made from points: by index, as many as are asked for, or as a precision needs.


# Pairs of the same points depend on each other: in simulations with classes of points, the loss on new points fell by
# less than 0.001 once each point was in 40 pairs.
_PAIRS_PER_POINT = 20

_FEWEST_PAIRS = 100  # which a test of anything needs


@dataclass(frozen=True)
class PairCount:
    """How many pairs a precision needs, and why.

    Attributes
    ----------
    n_pairs : int
    precision : float
        The expected excess loss asked for.
    expected : float
        The expected excess loss of this many independent pairs.
    sentence : str
        The number and the reason for it.
    """

    n_pairs: int
    precision: float
    expected: float
    sentence: str


def count_pairs(n_points: int, n_features: int, precision: float = 0.001) -> PairCount:
    """Compute how many pairs of these points a fit needs for an expected excess loss of `precision`.

    The loss of a fit with p parameters to N independent pairs exceeds the smallest possible one by p / (2N) on
    average, so N = p / (2 precision); p = d (d + 1) / 2 + 1 for M and the threshold.  Pairs of the
    same points are not independent: beyond 20 pairs per point, further pairs add little, so there are
    no more than that, and no more than all n (n - 1) / 2.  A penalty or a limited rank needs fewer pairs,
    very unequal classes need more; `closefar.plan_sample_size` plans from a first fit.

    Parameters
    ----------
    n_points, n_features : int
        At least 2 points, and at least one column.
    precision : float, default=0.001
        The expected excess loss per label on new pairs, in nats.

    Returns
    -------
    PairCount

    Examples
    --------
    >>> import closefar as cf
    >>> count = cf.datasets.count_pairs(5000, 8, precision=0.002)
    >>> count.n_pairs
    9250
    >>> print(count.sentence)
    9,250 pairs: with 37 parameters (8 columns) their expected excess loss is 0.002 nats per label.
    """
    if not (isinstance(precision, numbers.Real) and 0 < float(precision) < math.inf):
        raise ValueError(f"precision must be a finite number > 0, the excess loss per label; got {precision!r}.")
    if n_points < 2 or n_features < 1:
        raise ValueError(f"there must be 2 points and one column at least; got {n_points} and {n_features}.")
    n_parameters = n_features * (n_features + 1) // 2 + 1
    wanted = max(math.ceil(n_parameters / (2.0 * float(precision))), _FEWEST_PAIRS)
    most, all_pairs = _PAIRS_PER_POINT * n_points, n_points * (n_points - 1) // 2
    n_pairs = min(wanted, most, all_pairs)
    expected = n_parameters / (2.0 * n_pairs)
    parameters = f"with {n_parameters:,} parameters ({n_features:,} column{'s' if n_features > 1 else ''})"
    if n_pairs == wanted:
        sentence = f"{n_pairs:,} pairs: {parameters} their expected excess loss is {expected:.2g} nats per label."
    else:
        limit = "all of them" if n_pairs == all_pairs else f"{_PAIRS_PER_POINT} per point, beyond which more add little"
        sentence = (
            f"{n_pairs:,} pairs of {n_points:,} points, {limit}: {parameters} a precision of {float(precision):.2g} "
            f"nats per label would need {wanted:,}. More points, a penalty or a limited rank come closer to it."
        )
    return PairCount(n_pairs, float(precision), expected, sentence)


def pairs_from_points(
    X: Any,
    relation: Any,
    n_pairs: int | str | None = None,
    *,
    precision: float = 0.001,
    random_state: Any = None,
    return_indices: bool = False,
    verbose: bool = True,
) -> tuple[Any, ...]:
    """Make labelled pairs from points.

    Parameters
    ----------
    X : array or frame of shape (n, d)
    relation : array of n class labels, or callable
        Points of the same class are close, others far.  A callable receives two arrays of
        points, one pair per row, and returns which pairs are far (booleans, or labels -1
        and +1).
    n_pairs : int or "auto", optional
        By default the points are partitioned at random into n // 2 disjoint pairs, which
        are independent if the points are (the paper's section "Limitations").  A number
        means that many random pairs of two different points, which share points and
        are not independent.  "auto" means as many as `precision` needs, by `count_pairs`, all different.
    precision : float, default=0.001
        With n_pairs="auto": the expected excess loss per label on new pairs, in nats.
    random_state : int, RandomState or None
    return_indices : bool
        Also return the (n_pairs, 2) row numbers of the two points.
    verbose : bool, default=True
        With n_pairs="auto", print how many pairs there are, and why.

    Returns
    -------
    pairs : Tuples
        Pairs by index, which act as an array of shape (n_pairs, 2, d).
    labels : array of shape (n_pairs,)
        -1 close, +1 far.

    Examples
    --------
    >>> import numpy as np
    >>> import closefar as cf
    >>> points = np.random.default_rng(0).standard_normal((500, 3))
    >>> pairs, labels = cf.datasets.pairs_from_points(points, points[:, 0] > 0, "auto", random_state=0)
    3,500 pairs: with 7 parameters (3 columns) their expected excess loss is 0.001 nats per label.
    >>> pairs.shape
    (3500, 2, 3)
    """
    shape = np.shape(X)
    if len(shape) != 2 or shape[0] < 2:
        raise ValueError(f"X must be an (n, d) array of at least 2 points; got shape {shape}.")
    n = shape[0]
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    if isinstance(n_pairs, str) and n_pairs == "auto":
        count = count_pairs(n, shape[1], precision)
        if verbose:
            print(count.sentence)
        n_pairs = count.n_pairs
        indices = _distinct(n, n_pairs, rng)
    elif n_pairs is None:
        indices = rng.permutation(n)[: n // 2 * 2].reshape(-1, 2)
    elif isinstance(n_pairs, numbers.Integral) and n_pairs >= 1:
        left = rng.integers(n, size=int(n_pairs))
        indices = np.column_stack([left, (left + rng.integers(1, n, size=int(n_pairs))) % n])
    else:
        raise ValueError(f'n_pairs must be None, "auto" or a whole number >= 1; got {n_pairs!r}.')
    pairs = Tuples(X, indices)
    labels = np.where(_are_far(relation, pairs, n), 1, -1)
    return (pairs, labels, indices) if return_indices else (pairs, labels)


def _distinct(n: int, n_pairs: int, rng: np.random.Generator) -> IndexArray:
    """Random pairs of two different points, none of which occurs twice."""
    numbers = rng.choice(n * (n - 1) // 2, n_pairs, replace=False)
    right = np.floor((1.0 + np.sqrt(1.0 + 8.0 * numbers)) / 2.0).astype(np.int64)
    right -= right * (right - 1) // 2 > numbers  # the root is rounded
    right += right * (right + 1) // 2 <= numbers
    return np.column_stack([numbers - right * (right - 1) // 2, right])


def _are_far(relation: Any, pairs: Tuples, n: int) -> BoolArray:
    if callable(relation):
        answer = np.asarray(relation(pairs[:, 0], pairs[:, 1]))
        if answer.dtype != bool and not np.all(np.isin(answer, (-1, 1))):
            raise ValueError(f"relation must return booleans (far or not) or labels -1 and +1; got {answer[:5]!r}.")
        far: BoolArray = answer if answer.dtype == bool else answer == 1
    else:
        classes = np.asarray(relation)
        if classes.shape != (n,):
            raise ValueError(f"relation must be a callable or one class label per point; got shape {classes.shape}.")
        far = classes[pairs.index[:, 0]] != classes[pairs.index[:, 1]]
    if far.shape != (len(pairs),):
        raise ValueError(f"relation must return one value per pair; got shape {far.shape} for {len(pairs)} pairs.")
    return far


# ---------------------------------------------------------------------------------------------------------------------
# Realistic tables: points with ids and columns of several kinds, and labelled pairs.


Columns = dict[str, NDArray[Any]]

# The weight of each column in the true distance: one divided by the difference that matters.
_WEIGHTS = {"age": 1 / 15, "cholesterol": 1 / 35, "smoker": 1.2}
_WARDS = np.array(["north", "south", "west"])

_LEVEL_SHARES = (0.15, 0.35, 0.65, 0.85)  # of pairs below each threshold between two ratings
_N_TIMES = 3  # that each pair of the annotated table is judged


class PatientTables(NamedTuple):
    """The columns of two tables, and the true labels."""

    points: Columns
    pairs: Columns
    true_labels: NDArray[np.str_]


def make_patients(
    n_points: int = 400, n_pairs: int = 3000, *, wrong_share: float = 0.1, random_state: Any = 0
) -> PatientTables:
    """Generate synthetic patients, and pairs of them labelled close or far.

    The labels depend on age, cholesterol and smoking, but not on height and ward.

    Parameters
    ----------
    n_points, n_pairs : int
    wrong_share : float, default=0.1
        The expected share of wrong labels, most of them near the threshold.
    random_state : int, RandomState or None

    Examples
    --------
    >>> from closefar.datasets import make_patients
    >>> tables = make_patients(random_state=0)
    >>> list(tables.points), list(tables.pairs)
    (['id', 'age', 'height', 'cholesterol', 'smoker', 'ward'], ['patient', 'other', 'label'])
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    points: Columns = {
        "id": np.array([f"P{index:04d}" for index in range(1, n_points + 1)]),
        "age": rng.integers(20, 90, n_points),
        "height": np.round(rng.normal(1.71, 0.1, n_points), 2),
        "cholesterol": np.round(rng.normal(195.0, 38.0, n_points), 1),
        "smoker": rng.random(n_points) < 0.3,
        "ward": _WARDS[rng.integers(len(_WARDS), size=n_points)],
    }
    pairs, squared = _pairs_of(points, n_pairs, rng)
    margin = squared - np.median(squared)
    noise = get_noise("logistic")
    scale = solve_noise_scale(margin, noise, wrong_share)
    words = np.array(["close", "far"])
    labels = words[(margin + scale * noise.sample(n_pairs, rng) >= 0).astype(int)]
    return PatientTables(points, {**pairs, "label": labels}, words[(margin >= 0).astype(int)])


class PatientJudgements(NamedTuple):
    """The columns of three tables of judgements of the same patients."""

    ratings: Columns
    triplets: Columns
    annotated: Columns


def judge_patients(
    points: Columns, n_ratings: int = 1500, n_triplets: int = 1500, n_annotators: int = 12, *, random_state: Any = 0
) -> PatientJudgements:
    """Generate other judgements of the patients that `make_patients` makes.

    Ratings are from 1 (closest) to 5 (farthest).  A triplet says which of two patients is nearer to the first one.
    In the annotated table each pair is called close or far by three of several people, who differ in how large a
    distance must be to be far; the last of them answers at random.

    Parameters
    ----------
    points : dict of arrays
        The table of patients.
    n_ratings, n_triplets, n_annotators : int
        The numbers of ratings and of triplets, and the number of people, each of whom judges 100 pairs.
    random_state : int, RandomState or None

    Examples
    --------
    >>> from closefar.datasets import judge_patients, make_patients
    >>> tables = judge_patients(make_patients(random_state=0).points)
    >>> [list(table) for table in tables]
    [['patient', 'other', 'rating'], ['patient', 'left', 'right', 'answer'], ['patient', 'other', 'worker', 'label']]
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    ids, noise = points["id"], get_noise("logistic")
    ratings, squared = _pairs_of(points, n_ratings, rng)
    scale = solve_noise_scale(squared - np.median(squared), noise, 0.1)
    thresholds = np.quantile(squared, _LEVEL_SHARES)
    heard = squared + scale * noise.sample(n_ratings, rng)
    ratings["rating"] = 1 + np.searchsorted(thresholds, heard, side="right")
    anchor, near = _two_patients(len(ids), n_triplets, rng)
    far = (near + rng.integers(1, len(ids) - 1, size=n_triplets)) % len(ids)
    far = np.where(far == anchor, (far + 1) % len(ids), far)
    far = np.where(far == near, (far + 1) % len(ids), far)
    margin = _true_distances(points, anchor, far) - _true_distances(points, anchor, near)
    is_left = margin + scale * noise.sample(n_triplets, rng) >= 0
    triplets: Columns = {
        "patient": ids[anchor],
        "left": ids[near],
        "right": ids[far],
        "answer": np.where(is_left, "left", "right"),
    }
    return PatientJudgements(ratings, triplets, _annotated_labels(points, n_annotators, scale, rng))


def _annotated_labels(points: Columns, n_annotators: int, scale: float, rng: np.random.Generator) -> Columns:
    n = 100 * n_annotators
    pairs, squared = _pairs_of(points, -(-n // _N_TIMES), rng)
    squared = np.resize(squared, n)
    threshold, worker = np.median(squared), rng.permutation(np.resize(np.arange(n_annotators), n))
    strictness = 0.3 * threshold * rng.standard_normal(n_annotators)
    margin = squared - threshold - strictness[worker] + scale * get_noise("logistic").sample(n, rng)
    is_far = np.where(worker == n_annotators - 1, rng.random(n) < 0.5, margin >= 0)
    names = np.array([f"w{number:02d}" for number in range(1, n_annotators + 1)])
    repeated = {name: np.resize(column, n) for name, column in pairs.items()}
    return {**repeated, "worker": names[worker], "label": np.where(is_far, "far", "close")}


def _pairs_of(points: Columns, n: int, rng: np.random.Generator) -> tuple[Columns, FloatArray]:
    """The ids of random pairs of patients, and the true squared distance of each."""
    left, right = _two_patients(len(points["id"]), n, rng)
    return {"patient": points["id"][left], "other": points["id"][right]}, _true_distances(points, left, right)


def _two_patients(n_points: int, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of two different points."""
    left, right = rng.integers(n_points, size=(2, n))
    return left, np.where(left == right, (right + 1) % n_points, right)


def _true_distances(points: Columns, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """The true squared distance of each pair."""
    weighted = np.column_stack([points[name] * weight for name, weight in _WEIGHTS.items()])
    squared: NDArray[np.float64] = np.sum((weighted[left] - weighted[right]) ** 2, axis=1)
    return squared
