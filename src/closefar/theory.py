"""The paper's guarantees: bounds on the loss and on (M, tau), with every constant, and the distances they use.

Throughout, ``radius`` bounds the margins: |z'Mz - tau| <= radius for every pair and every
metric considered.  The paper's radius is beta * F; see `sample_size`.  If a printed
formula is corrected, its function says so.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from scipy.optimize import brentq

from closefar.arrays import FloatArray
from closefar.errors import InvalidValueError, setting
from closefar.model import Metric
from closefar.noise import Noise, get_noise

__all__ = ["guaranteed_error", "l1_bound", "l1_distance", "parameter_bound", "parameter_distance", "sample_size"]
__all__ += ["truncation_bound"]


def sample_size(
    eps: float,
    delta: float,
    *,
    n_features: int,
    max_eigenvalue: float,
    max_squared_length: float,
    max_threshold: float | None = None,
    noise: str | Noise = "logistic",
) -> float:
    """Return N_d(eps, delta): with more pairs than this, every empirical loss is close to its expectation.

    With probability at least 1 - delta, |R_N(M, tau) - R(M, tau)| < eps for all M with
    eigenvalues up to `max_eigenvalue` and all tau in [0, `max_threshold`] (Theorem
    "uniform convergence").  The fitted metric then has a loss within 2 eps of the best, so
    for an excess loss of eps use ``sample_size(eps / 2, ...)`` (Theorem "loss
    approximation").

    With zeta and T from `Noise.constants` at radius = max(beta F, B):

        N = T^2 / (2 t^2) log(2 m / delta),   alpha = eps / (3 zeta (F + 1)),   t = min(alpha, eps / 3),
        m = max(B / alpha, 1) max(4 beta d^(3/2) / alpha, 1)^(d^2).

    Expanded, zeta is squared; the paper prints its first power.  Its proof needs t <= eps / 3,
    which alpha alone gives only if zeta (F + 1) >= 1, and a cover has at least one point.

    Parameters
    ----------
    eps : float
        Largest deviation of the loss, in nats.
    delta : float
        Probability that the guarantee fails.
    n_features : int
        d, the number of columns.
    max_eigenvalue : float
        beta, a bound on the eigenvalues of M, for noise of unit scale.
    max_squared_length : float
        F, a bound on the squared length of a difference z, in the same units as M.
    max_threshold : float, optional
        B, a bound on tau; by default beta F, beyond which every pair would be close.
    noise : str or Noise, default="logistic"

    Returns
    -------
    float
        The bound itself; ``math.floor(n) + 1`` is the smallest number of pairs above it.

    Examples
    --------
    >>> from closefar import theory
    >>> n = theory.sample_size(0.1, 0.05, n_features=2, max_eigenvalue=1.0, max_squared_length=1.0)
    >>> f"{n:.0f}"
    '53587'
    """
    _check_number("eps", eps, "the largest deviation of the loss that you accept, such as 0.01")
    if not (isinstance(delta, numbers.Real) and 0 < float(delta) < 1):
        remedy = "It is the probability of failure; try 0.05."
        raise InvalidValueError("delta", "must lie between 0 and 1", delta, remedy)
    _check_columns(n_features)
    _check_number("max_eigenvalue", max_eigenvalue, "a bound on the eigenvalues of M")
    _check_number("max_squared_length", max_squared_length, "a bound on |z|^2")
    beta, F, d = float(max_eigenvalue), float(max_squared_length), int(n_features)
    B = beta * F if max_threshold is None else max_threshold
    _check_number("max_threshold", B, "a bound on tau, or leave it out", zero_allowed=True)
    zeta, _, T = get_noise(noise).constants(max(beta * F, float(B)))
    alpha = eps / (3.0 * zeta * (F + 1.0))
    log_cover = math.log(max(B / alpha, 1.0)) + d**2 * math.log(max(4.0 * beta * d**1.5 / alpha, 1.0))
    ratio = T / min(alpha, eps / 3.0)
    return 0.5 * ratio * ratio * (math.log(2.0 / delta) + log_cover)


def guaranteed_error(n_pairs: float, delta: float, **assumptions: Any) -> float:
    """Return the eps that `n_pairs` pairs guarantee: ``sample_size(eps, delta, ...) == n_pairs``.

    No loss exceeds the constant T of the noise, so an eps above T guarantees nothing.

    Parameters
    ----------
    n_pairs : float
        The number of labelled pairs.
    delta, **assumptions
        As in `sample_size`.

    Examples
    --------
    >>> from closefar import theory
    >>> eps = theory.guaranteed_error(1e6, 0.05, n_features=2, max_eigenvalue=1.0, max_squared_length=1.0)
    >>> round(eps, 4)
    0.0255
    """
    _check_number("n_pairs", n_pairs, "the number of labelled pairs")

    def excess(log_eps: float) -> float:
        return math.log(sample_size(math.exp(log_eps), delta, **assumptions) / n_pairs)

    # log N falls by at least 2 per unit of log eps, which brackets the root.
    low, high = sorted((0.0, 0.5 * excess(0.0)))
    return math.exp(brentq(excess, low - 1e-9, high + 1e-9, xtol=1e-15, rtol=4 * np.finfo(float).eps))


def truncation_bound(
    largest_cut: float, *, max_squared_length: float, radius: float, noise: str | Noise = "logistic"
) -> float:
    """Return the largest change of the loss if eigenvalues of M up to `largest_cut` are set to zero.

    It is zeta F gamma (Theorem on truncation; the paper scales the data so that zeta F = 1).
    It holds for the loss on any pairs within the bounds and for its expectation.

    Parameters
    ----------
    largest_cut : float
        gamma, the largest eigenvalue that is set to zero.
    max_squared_length : float
        F, a bound on the squared length of a difference.
    radius : float
        A bound on the margins before and after; the paper's beta F.
    noise : str or Noise, default="logistic"

    Examples
    --------
    >>> from closefar import theory
    >>> round(theory.truncation_bound(0.01, max_squared_length=4.0, radius=3.0), 4)
    0.0381
    """
    _check_number("largest_cut", largest_cut, "the largest eigenvalue that is set to zero", zero_allowed=True)
    _check_number("max_squared_length", max_squared_length, "a bound on |z|^2")
    return float(get_noise(noise).constants(radius).zeta * max_squared_length * largest_cut)


def l1_bound(excess_loss: float, *, radius: float, noise: str | Noise = "logistic") -> float:
    """Return the largest `l1_distance` from (M*, tau*) at which the loss exceeds its minimum by `excess_loss`.

    It is sqrt(2 excess) / omega, as R - R* >= omega^2 / 2 times the squared distance (Theorem
    "parameter approximation").  For a distance of eps the excess must be at most omega^2 eps^2 / 2,
    which takes N_d(omega^2 eps^2 / 4, delta) pairs; the corollary prints omega^2 eps^2 / 2 there.

    Parameters
    ----------
    excess_loss : float
        R(M, tau) - R(M*, tau*), in nats.
    radius : float
        A bound on the margins; the paper's beta F.
    noise : str or Noise, default="logistic"

    Examples
    --------
    >>> from closefar import theory
    >>> round(theory.l1_bound(1e-4, radius=2.0), 4)
    0.1347
    """
    _check_number("excess_loss", excess_loss, "R(M, tau) minus its minimum", zero_allowed=True)
    omega = get_noise(noise).constants(radius).omega
    return math.sqrt(2.0 * excess_loss) / omega if omega > 0.0 else math.inf


def parameter_bound(
    excess_loss: float,
    *,
    n_features: int,
    radius: float,
    min_density: float | None = None,
    noise: str | Noise = "logistic",
) -> float:
    """Return the largest `parameter_distance` from (M*, tau*) at which the loss exceeds its minimum by `excess_loss`.

    It is 20 sqrt(2) 18^d sqrt(excess) / (omega C), with C = c pi^(d/2) / Gamma(d/2 + 1), where
    the density of z is at least c on the unit ball (Lemma on the L1(f) norm and the theorem that
    follows from it).  The remark after the truncation theorem prints it without the square root,
    and the sample size for a distance of eps with twice the excess that it may have, as in `l1_bound`.

    Parameters
    ----------
    excess_loss, radius, noise
        As in `l1_bound`.
    n_features : int
        d, the number of columns.
    min_density : float, optional
        c; by default that of the uniform distribution on the unit ball, the largest there is (C = 1).

    Examples
    --------
    >>> from closefar import theory
    >>> round(theory.parameter_bound(1e-12, n_features=2, radius=1.0), 4)
    0.0466
    """
    _check_columns(n_features)
    log_volume = 0.5 * n_features * math.log(math.pi) - math.lgamma(0.5 * n_features + 1.0)
    log_mass = 0.0
    if min_density is not None:
        _check_number("min_density", min_density, "the least density of z on the unit ball")
        log_mass = math.log(min_density) + log_volume
        if log_mass > 1e-9:
            raise ValueError(
                f"min_density must be at most {math.exp(-log_volume):.6g}, the density of the uniform distribution; "
                f"got {min_density!r}. Leave it out for that distribution."
            )
    distance = l1_bound(excess_loss, radius=radius, noise=noise)
    if distance == 0.0:
        return 0.0
    log_bound = math.log(20.0) + n_features * math.log(18.0) - log_mass + math.log(distance)
    return math.exp(log_bound) if log_bound < 709.0 else math.inf


def l1_distance(first: Any, second: Any, differences: Any) -> float:
    """Return the mean of |(z'M1 z - tau1) - (z'M2 z - tau2)| over differences z: the L1(f) metric.

    Each metric is a `Metric` or a tuple (matrix, threshold), for noise of unit scale;
    `differences` is an (n, d) sample from the distribution f.

    Examples
    --------
    >>> from closefar import theory
    >>> theory.l1_distance(([[2.0]], 1.0), ([[1.0]], 1.5), [[0.0], [1.0], [2.0]])
    2.1666666666666665
    """
    matrix, threshold = _change(first, second)
    z = np.asarray(differences, dtype=np.float64)
    if z.ndim != 2 or len(z) == 0 or z.shape[1] != len(matrix):
        raise ValueError(
            f"differences must be an (n, d) array with n >= 1 and the matrices' {len(matrix)} columns; got shape "
            f"{z.shape}. For pairs (n, 2, d) pass pairs[:, 0] - pairs[:, 1]."
        )
    return float(np.mean(np.abs(np.einsum("ij,ij->i", z @ matrix, z) - threshold)))


def parameter_distance(first: Any, second: Any) -> float:
    """Return d((M1, tau1), (M2, tau2)): the spectral norm of M1 - M2 plus |tau1 - tau2|.

    Each metric is a `Metric` or a tuple (matrix, threshold), for noise of unit scale.

    Examples
    --------
    >>> from closefar import theory
    >>> theory.parameter_distance(([[2.0]], 1.0), ([[1.0]], 1.5))
    1.5
    """
    matrix, threshold = _change(first, second)
    return float(np.linalg.norm(matrix, 2)) + abs(threshold)


def _change(first: Any, second: Any) -> tuple[FloatArray, float]:
    (left, left_threshold), (right, right_threshold) = _parameters(first), _parameters(second)
    if left.shape != right.shape:
        raise ValueError(f"both metrics must have the same columns; got shapes {left.shape} and {right.shape}.")
    return left - right, left_threshold - right_threshold


def _parameters(metric: Any) -> tuple[FloatArray, float]:
    if isinstance(metric, Metric):
        if metric.origin is not None:
            rule = "the metric must not have a learned origin; got one with an origin. Fit without "
            raise ValueError(rule + setting("fit_origin") + ".")
        return metric.matrix, metric.known_threshold
    matrix, threshold = metric
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T):
        raise ValueError(f"a matrix must be square and symmetric; got shape {matrix.shape}. Use (M + M.T) / 2.")
    return matrix, float(threshold)


def _check_number(name: str, value: Any, advice: str, *, zero_allowed: bool = False) -> None:
    finite = isinstance(value, numbers.Real) and math.isfinite(value)
    if not (finite and (value > 0 or (zero_allowed and value == 0))):
        rule = ">= 0" if zero_allowed else "> 0"
        raise ValueError(f"{name} must be a finite number {rule}; got {value!r}. Pass {advice}.")


def _check_columns(n_features: Any) -> None:
    if not (isinstance(n_features, numbers.Integral) and not isinstance(n_features, bool) and int(n_features) >= 1):
        raise InvalidValueError("n_features", "must be a whole number >= 1", n_features, "Pass the number of columns.")
