"""The paper's generator of labelled pairs."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.utils import check_random_state

from closefar.arrays import FloatArray
from closefar.model import Metric
from closefar.noise import NOISES, Noise, get_noise

__all__ = ["LabelledPairs", "check_counts", "check_noise_level", "draw_shapes", "make_pairs", "solve_noise_scale"]


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
        "flips" flips labels whatever the distance (the paper's noisy labelling).
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
    check_counts(n_pairs=n_pairs, n_features=n_features, rank=rank or 1)
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"threshold must be a finite number; got {threshold!r}.")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    model = None if noise is None or noise == "flips" else get_noise(noise)
    check_noise_level(noise, noise_scale, wrong_share)
    spread, directions = draw_shapes(n_features, rank, metric_eigenvalues, covariance_eigenvalues, rng)
    pairs = rng.standard_normal((n_pairs, 2, n_features)) @ spread.T
    squared = np.sum(((pairs[:, 0] - pairs[:, 1]) @ directions) ** 2, axis=1)
    threshold = float(np.median(squared)) if threshold is None else float(threshold)
    truth = np.where(squared >= threshold, 1, -1)
    share = 0.1 if wrong_share is None else float(wrong_share)
    if noise is None:
        labels = truth.copy()
    elif model is None:
        labels = np.where(rng.uniform(size=n_pairs) < share, -truth, truth)
    else:
        scale = solve_noise_scale(squared - threshold, model, share) if noise_scale is None else float(noise_scale)
        labels = np.where(squared + scale * model.sample(n_pairs, rng) >= threshold, 1, -1)
    return LabelledPairs(pairs, labels, truth, Metric.from_factor(directions, threshold, model or "logistic"))


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


def draw_shapes(
    n_features: int,
    rank: int | None,
    metric_eigenvalues: Any,
    covariance_eigenvalues: Any,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw factors of the points' covariance and of M*, both randomly oriented."""
    covariance = _eigenvalues("covariance_eigenvalues", covariance_eigenvalues, n_features, n_features, rng)
    if np.any(covariance <= 0):
        raise ValueError(f"covariance_eigenvalues must be > 0; got {covariance}.")
    spectrum = _eigenvalues("metric_eigenvalues", metric_eigenvalues, n_features, rank, rng)
    spread = _random_rotation(n_features, rng) * np.sqrt(covariance)
    return spread, _random_rotation(n_features, rng)[:, : len(spectrum)] * np.sqrt(spectrum)


def check_counts(**counts: Any) -> None:
    """Refuse numbers of things that are not whole numbers above 0."""
    for name, value in counts.items():
        if not (isinstance(value, numbers.Integral) and int(value) >= 1):
            raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")


def check_noise_level(noise: Any, noise_scale: float | None, wrong_share: float | None) -> None:
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
