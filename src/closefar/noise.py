"""Noise models: the distribution of the noise between squared distances and labels.

A pair is labelled far when ``z'Mz + noise >= tau``.  Everything the package needs
from a noise model follows from its negative log-CDF and the two derivatives of it.
Each model has the paper's unit scale (Table "Simple noise models") and works on
NumPy, torch and CuPy arrays alike.  A new model is one subclass and one line in
``NOISES``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_cupy_namespace, is_numpy_namespace, is_torch_namespace

from closefar.arrays import Array, FloatArray
from closefar.errors import InvalidValueError, either

__all__ = ["NOISES", "FlipRate", "HypSecant", "Laplace", "Logistic", "Noise", "NoiseConstants"]
__all__ += ["Normal", "flip_mixture", "get_noise", "has_flips"]

# One rate for both sides, or P(called far | close) and P(called close | far); these may be arrays, a number per pair.
FlipRate = float | tuple[Any, Any]


class NoiseConstants(NamedTuple):
    """The paper's constants of a noise model on the margins ``|m| <= radius``.

    ``zeta`` is the Lipschitz constant of log CDF, ``omega`` the least density and
    ``T`` the largest loss of one pair.
    """

    zeta: float
    omega: float
    T: float


class Noise(ABC):
    """A symmetric noise whose negative log-CDF is convex and decreasing.

    Parameters of a model are its attributes; two models are equal if they have the same class and
    the same parameters.

    Attributes
    ----------
    name : str
        The name for `noise=`, the command line and model files.
    title : str
        The name in text.
    std : float
        The standard deviation.
    onnx_cdf : str
        ONNX nodes that compute `cdf` from `margin`; they may use the constants of `closefar.model.metric`
        and the parameters.  Without nodes the model can't be exported.  onnxruntime has no double
        kernels for Erf and Atan, so these use float32 (Cast to 1), with an error of 1e-7; everything
        else is double (11).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    std: float
    onnx_cdf: ClassVar[str] = ""

    @abstractmethod
    def _terms(self, margin: Array, order: int, xp: Any) -> tuple[Array, ...]:
        """-log CDF and its first `order` derivatives, exact in both tails."""

    @abstractmethod
    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw independent values of the noise."""

    def derivatives(self, margin: Array, order: int = 2) -> tuple[Array, ...]:
        """Return -log CDF and its first `order` derivatives at each margin."""
        margin = _as_array(margin)
        return self._terms(margin, order, array_namespace(margin))

    def width_terms(self, width: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Return t(w) and two derivatives, if log(CDF(a) - CDF(b)) = log CDF(a) + log CDF(-b) - t(a - b); or None."""
        return None

    def neg_log_cdf(self, margin: Array) -> Array:
        """Return -log CDF at each margin: the loss of a far pair."""
        return self.derivatives(margin, order=0)[0]

    def cdf(self, value: Array) -> Array:
        """Return P(noise <= value): the probability of far at that margin."""
        value = _as_array(value)
        xp = array_namespace(value)
        return xp.exp(-self._terms(value, 0, xp)[0])

    def pdf(self, value: Array) -> Array:
        """Return the density at each value."""
        value = _as_array(value)
        xp = array_namespace(value)
        loss, slope = self._terms(-xp.abs(value), 1, xp)  # there, both are exact
        return -slope * xp.exp(-loss)

    def constants(self, radius: float) -> NoiseConstants:
        """Return the paper's zeta, omega and T for margins up to `radius` = beta * F.

        -log CDF is convex and decreasing and the density unimodal, so each extreme
        is attained at an end of the interval (appendix "Simple Noise Properties").
        For Laplace noise T = radius + log 2; the paper prints a product.
        """
        if not radius >= 0:
            raise ValueError(f"radius must be a number >= 0 (the paper's beta * F); got {radius!r}.")
        largest_loss, slope = self.derivatives(np.float64(-radius), order=1)
        return NoiseConstants(zeta=-float(slope), omega=float(self.pdf(np.float64(radius))), T=float(largest_loss))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))


class Logistic(Noise):
    """Density sech(x/2)^2 / 4; the paper's main model."""

    name = "logistic"
    title = "logistic"
    std = math.pi / math.sqrt(3.0)
    # Sigmoid is not used, because onnxruntime rounds it to zero in the left tail.
    onnx_cdf = """
        minus_margin = Neg(margin)
        odds_of_close = Exp(minus_margin)
        total = Add(one, odds_of_close)
        cdf = Reciprocal(total)
    """

    def _terms(self, margin: Array, order: int, xp: Any) -> tuple[Array, ...]:
        size = xp.abs(margin)
        tail = xp.exp(-size)
        loss = xp.log1p(tail) + xp.where(margin < 0, size, xp.zeros_like(size))
        if order == 0:
            return (loss,)
        share = 1.0 / (1.0 + tail)
        slope = -share * xp.where(margin > 0, tail, xp.ones_like(tail))
        if order == 1:
            return loss, slope
        return loss, slope, tail * share * share

    def width_terms(self, width: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        tail = np.exp(-width)
        kept = -np.expm1(-width)
        return -np.log(kept), -tail / kept, tail / kept**2

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.logistic(size=size)


class Normal(Noise):
    """The standard normal."""

    name = "normal"
    title = "Gaussian"
    std = 1.0
    onnx_cdf = """
        standard = Mul(margin, root_half)
        bounded = Clip(standard, lowest, highest)
        narrow = Cast <to = 1> (bounded)
        narrow_erf = Erf(narrow)
        erf = Cast <to = 11> (narrow_erf)
        half_erf = Mul(erf, half)
        cdf = Add(half_erf, half)
    """

    # Below this margin hazard * (hazard + margin) suffers from cancellation; its asymptotic series does not.
    _SERIES_BELOW = -50.0
    _SERIES = (6354.0, -518.0, 50.0, -6.0, 1.0)

    def _terms(self, margin: Array, order: int, xp: Any) -> tuple[Array, ...]:
        loss = -_special("log_ndtr", xp)(margin)
        if order == 0:
            return (loss,)
        # pdf / cdf by the scaled erfc, which is exact even where both underflow.
        largest = float(xp.finfo(loss.dtype).max)
        scaled = _clipped(margin, -0.5 * largest, None, xp) * -math.sqrt(0.5)
        hazard = math.sqrt(2.0 / math.pi) / _special("erfcx", xp)(scaled)
        if order == 1:
            return loss, -hazard
        in_tail = margin < self._SERIES_BELOW
        hazard_above = _clipped(hazard, None, 1.0 - self._SERIES_BELOW, xp)
        curvature = hazard_above * (hazard_above + _clipped(margin, self._SERIES_BELOW, 1e6, xp))
        inverse_square = 1.0 / _clipped(margin, -0.5 * math.sqrt(largest), self._SERIES_BELOW, xp) ** 2
        series = _polynomial(self._SERIES, inverse_square)
        return loss, -hazard, xp.where(in_tail, 1.0 - inverse_square * series, curvature)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal(size=size)


class Laplace(Noise):
    """Density exp(-|x|) / 2."""

    name = "laplace"
    title = "Laplace"
    std = math.sqrt(2.0)
    onnx_cdf = """
        below = Min(margin, zero)
        left = Exp(below)
        above = Max(margin, zero)
        minus_above = Neg(above)
        tail = Exp(minus_above)
        right = Sub(one, tail)
        twice = Add(left, right)
        cdf = Mul(twice, half)
    """

    def _terms(self, margin: Array, order: int, xp: Any) -> tuple[Array, ...]:
        size = xp.abs(margin)
        tail = 0.5 * xp.exp(-size)
        positive = margin >= 0  # at zero, where the slope has a kink, use the curvature of the curved side
        loss = xp.where(positive, -xp.log1p(-tail), size + math.log(2.0))
        if order == 0:
            return (loss,)
        odds = tail / (1.0 - tail)
        slope = -xp.where(margin < 0, xp.ones_like(odds), odds)
        if order == 1:
            return loss, slope
        return loss, slope, xp.where(margin < 0, xp.zeros_like(odds), odds * (1.0 + odds))

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.laplace(size=size)


class HypSecant(Noise):
    """Hyperbolic secant: density sech(pi x / 2) / 2, CDF (2/pi) arctan(exp(pi x / 2)).

    SciPy's ``hypsecant`` with scale 2/pi is the same.  The paper prints the loss
    with exp(pi/2 * -l(...)); the sign must be +l(...), as here.
    """

    name = "hypsecant"
    title = "hyperbolic secant"
    std = 1.0
    onnx_cdf = """
        angle = Mul(margin, half_pi)
        bounded = Clip(angle, lowest, highest)
        odds = Exp(bounded)
        narrow = Cast <to = 1> (odds)
        narrow_arctan = Atan(narrow)
        arctan = Cast <to = 11> (narrow_arctan)
        cdf = Div(arctan, half_pi)
    """

    # (t - arctan t) / t^3 = 1/3 - t^2/5 + ...: used where the difference would cancel.
    _SERIES_BELOW = 0.15
    _SERIES = tuple((-1.0) ** k / (2 * k + 3) for k in reversed(range(10)))

    def _terms(self, margin: Array, order: int, xp: Any) -> tuple[Array, ...]:
        angle = 0.5 * math.pi * margin
        tail = xp.exp(-xp.abs(angle))
        arctan = xp.atan(tail)
        positive = margin > 0
        one = xp.ones_like(tail)
        ratio = xp.where(tail > 0, tail / xp.where(tail > 0, arctan, one), one)  # tail / arctan(tail)
        upper = 1.0 - (2.0 / math.pi) * arctan
        loss = xp.where(
            positive, -xp.log1p(-(2.0 / math.pi) * arctan), xp.abs(angle) + math.log(0.5 * math.pi) + xp.log(ratio)
        )
        if order == 0:
            return (loss,)
        square = tail * tail
        hazard = xp.where(positive, tail / upper, 0.5 * math.pi * ratio) / (1.0 + square)
        if order == 1:
            return loss, -hazard
        # Left of zero hazard + (pi/2) tanh = (pi/2) (ratio - 1 + tail^2) / (1 + tail^2).
        small = tail < self._SERIES_BELOW
        excess = xp.where(small, square * ratio * _polynomial(self._SERIES, square), ratio - 1.0)
        left = 0.5 * math.pi * (excess + square) / (1.0 + square)
        right = hazard + 0.5 * math.pi * (1.0 - square) / (1.0 + square)
        return loss, -hazard, hazard * xp.where(positive, right, left)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        uniform = rng.uniform(size=size)
        return (2.0 / math.pi) * np.log(np.tan(0.5 * math.pi * np.clip(uniform, np.finfo(float).tiny, None)))


NOISES: dict[str, Noise] = {noise.name: noise for noise in (Logistic(), Normal(), Laplace(), HypSecant())}


def flip_mixture(flip_rate: Any, n_levels: int) -> tuple[list[Any], Any]:
    """What flips add to the probability of each of K answers, and the share of it that they leave; rates may be arrays.

    One rate is the share of wrong answers among those drawn from all levels equally, of which rate / (K - 1) falls on
    each.  Two rates, of close/far labels, are P(called far | close) and P(called close | far).  Answers to comparisons
    are two levels.
    """
    if isinstance(flip_rate, tuple):
        of_close, of_far = flip_rate
        return [of_far, of_close], 1.0 - of_close - of_far
    each = flip_rate / (n_levels - 1)
    return [each] * n_levels, 1.0 - n_levels * each


def has_flips(flip_rate: FlipRate) -> bool:
    """Whether some labels are flipped."""
    return any(flip_rate) if isinstance(flip_rate, tuple) else flip_rate > 0


def get_noise(noise: str | Noise) -> Noise:
    """Return the noise model of that name; a noise object is returned unchanged."""
    if isinstance(noise, Noise):
        return noise
    if isinstance(noise, str) and noise in NOISES:
        return NOISES[noise]
    names = ", ".join(repr(name) for name in NOISES)
    raise InvalidValueError("noise", f"must be one of {names}" + either(" or a closefar.noise.Noise object", ""), noise)


def _as_array(values: Array) -> Array:
    try:
        array_namespace(values)
    except TypeError:
        return np.asarray(values, dtype=np.float64)
    return values


def _clipped(values: Array, least: float | None, most: float | None, xp: Any) -> Array:
    """Clip values; by NumPy itself, where array-api-compat takes several times as long."""
    return np.clip(values, least, most) if is_numpy_namespace(xp) else xp.clip(values, min=least, max=most)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner's rule, highest power first."""
    value = x * 0.0 + coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _special(name: str, xp: Any) -> Callable[[Array], Array]:
    """A special function that the array API lacks, from the library of the array."""
    if is_torch_namespace(xp):
        import torch

        return getattr(torch.special, name)  # type: ignore[no-any-return]
    if is_cupy_namespace(xp):
        from cupyx.scipy import special as cupy_special

        return getattr(cupy_special, name)  # type: ignore[no-any-return]
    from scipy import special  # imported here, so that the names of the noises are available without loading SciPy

    function = getattr(special, name)
    if xp is array_namespace(np.empty(0)):
        return function  # type: ignore[no-any-return]
    return lambda x: xp.asarray(function(np.asarray(x)))
