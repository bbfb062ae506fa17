"""Contracts that every noise model keeps, parametrised over the registry."""

import math

import numpy as np
import pytest
from scipy import stats

from closefar.noise import NOISES, Noise, Normal, _polynomial, flip_mixture, get_noise, has_flips

DISTRIBUTIONS = {
    "logistic": stats.logistic,
    "normal": stats.norm,
    "laplace": stats.laplace,
    "hypsecant": stats.hypsecant(scale=2.0 / math.pi),
}

GRID = np.linspace(-35.0, 35.0, 702)  # zero, where Laplace noise has no second derivative, is not in it
EXTREMES = np.array([-1e6, -1e3, 1e3, 1e6])


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


@pytest.fixture
def distribution(noise):
    return DISTRIBUTIONS[noise.name]


# Against SciPy


def test_neg_log_cdf_is_that_of_scipy(noise, distribution):
    left, right = GRID[GRID < 0], GRID[GRID > 0]
    np.testing.assert_allclose(noise.neg_log_cdf(left), -distribution.logcdf(left), rtol=1e-12)
    np.testing.assert_allclose(noise.neg_log_cdf(right), -np.log1p(-distribution.sf(right)), rtol=1e-12)


def test_cdf_is_that_of_scipy(noise, distribution):
    np.testing.assert_allclose(noise.cdf(GRID), distribution.cdf(GRID), rtol=1e-12)


def test_pdf_is_that_of_scipy(noise, distribution):
    np.testing.assert_allclose(noise.pdf(GRID), distribution.pdf(GRID), rtol=1e-12)


def test_std_is_that_of_scipy(noise, distribution):
    assert noise.std == pytest.approx(distribution.std(), rel=1e-10)


# Derivatives and shape


def test_first_derivative_is_the_finite_difference(noise):
    margin, step = np.linspace(-12.3, 12.3, 200), 1e-5
    _, slope = noise.derivatives(margin, order=1)
    difference = (noise.neg_log_cdf(margin + step) - noise.neg_log_cdf(margin - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(slope[margin > 0], difference[margin > 0], rtol=1e-6)


def test_second_derivative_is_the_finite_difference(noise):
    margin, step = np.linspace(-12.3, 12.3, 200), 1e-5
    curvature = noise.derivatives(margin)[2]
    difference = (noise.derivatives(margin + step)[1] - noise.derivatives(margin - step)[1]) / (2 * step)
    np.testing.assert_allclose(curvature, difference, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(curvature[margin > 0], difference[margin > 0], rtol=1e-6)


def test_density_is_the_finite_difference_of_the_cdf(noise):
    value, step = np.linspace(-6.1, 6.1, 100), 1e-5
    difference = (noise.cdf(value + step) - noise.cdf(value - step)) / (2 * step)
    np.testing.assert_allclose(noise.pdf(value), difference, rtol=1e-6, atol=1e-10)


def test_loss_is_convex_and_decreasing(noise):
    margin = np.sort(np.concatenate([GRID, EXTREMES]))
    loss, slope, curvature = noise.derivatives(margin)
    assert np.all(loss >= 0)
    assert np.all(slope <= 0)
    assert np.all(curvature >= 0)
    assert np.all(np.diff(loss) <= 0)
    assert np.all(np.diff(slope) >= -1e-15 * np.abs(slope[1:]))


def test_loss_lies_below_its_chords(noise):
    rng = np.random.default_rng(0)
    left, right = rng.uniform(-40, 40, size=(2, 1000))
    middle = noise.neg_log_cdf((left + right) / 2)
    chord = (noise.neg_log_cdf(left) + noise.neg_log_cdf(right)) / 2
    assert np.all(middle <= chord * (1 + 1e-12))


def test_noise_is_symmetric(noise):
    np.testing.assert_allclose(noise.cdf(GRID) + noise.cdf(-GRID), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(noise.pdf(GRID), noise.pdf(-GRID))
    assert noise.cdf(0.0) == pytest.approx(0.5, rel=1e-15)
    assert noise.neg_log_cdf(0.0) == pytest.approx(math.log(2.0), rel=1e-15)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_order_says_how_many_derivatives(noise, order):
    terms = noise.derivatives(GRID, order=order)
    assert len(terms) == order + 1
    for term, expected in zip(terms, noise.derivatives(GRID), strict=False):
        np.testing.assert_array_equal(term, expected)


# Tails

LEFT_TAILS = {  # loss, slope and curvature at the margin -m, to double precision for m >= 1e3
    "logistic": lambda m: (m, -1.0, 0.0),
    "normal": lambda m: (
        m**2 / 2 + math.log(m * math.sqrt(2 * math.pi)) + m**-2 - 2.5 * m**-4,
        -(m + 1 / m - 2 * m**-3),
        1 - m**-2 + 6 * m**-4,
    ),
    "laplace": lambda m: (m + math.log(2.0), -1.0, 0.0),
    "hypsecant": lambda m: (math.pi * m / 2 + math.log(math.pi / 2), -math.pi / 2, 0.0),
}


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_left_tail_is_its_closed_form(noise, size):
    terms = noise.derivatives(np.array([-size]))
    np.testing.assert_allclose(np.concatenate(terms), LEFT_TAILS[noise.name](size), rtol=1e-14)
    assert noise.cdf(-size) == 0.0
    assert noise.pdf(-size) == 0.0


@pytest.mark.parametrize("size", [1e3, 1e6, math.inf])
def test_right_tail_is_exact(noise, size):
    np.testing.assert_array_equal(np.concatenate(noise.derivatives(np.array([size]))), [0.0, 0.0, 0.0])
    assert noise.cdf(size) == 1.0
    assert noise.pdf(size) == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_margin_overflows_but_in_its_own_size(noise, dtype):
    """Warnings are errors here."""
    enormous = np.array([-np.inf, -0.1 * np.finfo(dtype).max, 0.1 * np.finfo(dtype).max, np.inf], dtype=dtype)
    _, slope, curvature = noise.derivatives(enormous, 2)
    assert not np.any(np.isnan(slope) | np.isnan(curvature))
    assert np.all((curvature >= 0.0) & (curvature <= 1.0))
    np.testing.assert_array_equal(noise.pdf(enormous), 0.0)


def test_nan_is_not_hidden(noise):
    values = np.array([np.nan])
    for result in (*noise.derivatives(values), noise.cdf(values), noise.pdf(values)):
        np.testing.assert_array_equal(result, [np.nan])


def _exact_terms(name, x, mp):
    """-log F(x), its slope -f/F and its curvature (f/F)^2 - f'/F in many digits."""
    if name == "logistic":
        cdf, pdf = (lambda t: 1 / (1 + mp.exp(-t))), (lambda t: mp.exp(-t) / (1 + mp.exp(-t)) ** 2)
        log_pdf_slope = -mp.tanh(x / 2)
    elif name == "normal":
        cdf, pdf = (lambda t: mp.erfc(-t / mp.sqrt(2)) / 2), (lambda t: mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi))
        log_pdf_slope = -x
    elif name == "laplace":
        cdf, pdf = (lambda t: mp.exp(t) / 2 if t < 0 else 1 - mp.exp(-t) / 2), (lambda t: mp.exp(-abs(t)) / 2)
        log_pdf_slope = -mp.sign(x)
    else:
        cdf, pdf = (lambda t: 2 / mp.pi * mp.atan(mp.exp(mp.pi * t / 2))), (lambda t: mp.sech(mp.pi * t / 2) / 2)
        log_pdf_slope = -mp.pi / 2 * mp.tanh(mp.pi * x / 2)
    hazard = pdf(x) / cdf(x)
    loss = -mp.log(cdf(x)) if x < 0 else -mp.log1p(-cdf(-x))
    return [float(loss), float(-hazard), float(hazard * (hazard - log_pdf_slope))]


def test_terms_are_accurate_in_many_digits(noise):
    mpmath = pytest.importorskip("mpmath", reason="exact values need mpmath")
    margins = np.concatenate([np.linspace(-60, 60, 40), [-300.0, -50.001, -49.999, -1e-3, 1e-3, 37.0, 300.0]])
    with mpmath.workdps(320):
        expected = np.array([_exact_terms(noise.name, mpmath.mpf(float(margin)), mpmath) for margin in margins])
    np.testing.assert_allclose(np.stack(noise.derivatives(margins), axis=1), expected, rtol=2e-12, atol=1e-300)


@pytest.mark.parametrize(
    ("name", "margins", "digits"),
    [
        ("normal", -np.linspace(50.1, 99.9, 40), 14),
        ("normal", -np.linspace(25.1, 26.0, 20), 12.2),
        ("hypsecant", 2 / math.pi * np.log(np.linspace(0.076, 0.149, 80)), 14.3),
        ("hypsecant", 2 / math.pi * np.log(np.linspace(0.151, 0.299, 40)), 13),
    ],
)
def test_curvatures_keep_their_digits_on_both_sides_of_their_series(name, margins, digits):
    mpmath = pytest.importorskip("mpmath", reason="exact values need mpmath")
    with mpmath.workdps(50):
        expected = [_exact_terms(name, mpmath.mpf(float(margin)), mpmath)[2] for margin in margins]
    np.testing.assert_allclose(NOISES[name].derivatives(margins)[2], expected, rtol=10**-digits)


def test_polynomials_are_summed_from_the_highest_power():
    x = np.array([-2.0, 0.0, 0.5, 3.0])
    np.testing.assert_array_equal(_polynomial((2.0, -3.0, 0.5), x), 2.0 * x**2 - 3.0 * x + 0.5)
    np.testing.assert_array_equal(_polynomial((7.0,), x), [7.0, 7.0, 7.0, 7.0])


def test_the_kink_of_laplace_noise_has_the_curvature_of_its_right_side():
    curvature = NOISES["laplace"].derivatives(np.array([-1e-9, 0.0, 1e-9]))[2]
    np.testing.assert_allclose(curvature, [0.0, 2.0, 2.0], rtol=1e-8)


@pytest.mark.parametrize("width", [1e-8, 1e-3, 0.5, 4.0, 50.0])
@pytest.mark.parametrize("a", [-9.0, 0.3, 30.0])
def test_logistic_noise_of_an_interval_factors_into_both_ends_and_the_width(width, a):
    """log(F(a) - F(b)) = log F(a) + log F(-b) - t(a - b)."""
    mpmath = pytest.importorskip("mpmath", reason="exact values need mpmath")
    with mpmath.workdps(80):

        def rest(w):
            cdf = [1 / (1 + mpmath.exp(-t)) for t in (mpmath.mpf(a), a - w, w - a)]
            return mpmath.log(cdf[0]) + mpmath.log(cdf[2]) - mpmath.log(cdf[0] - cdf[1])

        expected = [float(mpmath.diff(rest, mpmath.mpf(width), order)) for order in range(3)]
    np.testing.assert_allclose(NOISES["logistic"].width_terms(np.array(width)), expected, rtol=1e-12, atol=1e-15)


def test_an_interval_without_an_end_has_no_width_to_factor_out():
    np.testing.assert_array_equal(NOISES["logistic"].width_terms(np.array(np.inf)), 0.0)
    assert [name for name, noise in NOISES.items() if noise.width_terms(np.ones(1)) is not None] == ["logistic"]


# Sampling


def test_sample_has_the_distribution_of_the_cdf(noise):
    sample = noise.sample(20_000, np.random.default_rng(7))
    assert stats.kstest(sample, noise.cdf).pvalue > 0.01


def test_sample_has_the_stated_spread(noise):
    sample = noise.sample((500, 400), np.random.default_rng(8))
    assert sample.shape == (500, 400)
    assert np.all(np.isfinite(sample))
    assert np.std(sample) == pytest.approx(noise.std, rel=0.01)
    assert abs(np.mean(sample)) < 4 * noise.std / math.sqrt(sample.size)


def test_sample_is_reproducible(noise):
    first, second = (noise.sample(10, np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_hyperbolic_secant_is_drawn_by_its_quantiles_and_finite_at_both_ends():
    class Ends:
        def uniform(self, size):
            return np.array([0.0, 1e-12, 0.25, 0.5, 0.75, 1.0 - 2.0**-53])[:size]

    sample = NOISES["hypsecant"].sample(6, Ends())
    np.testing.assert_allclose(sample[1:5], DISTRIBUTIONS["hypsecant"].ppf(Ends().uniform(5)[1:]), atol=1e-12)
    assert np.all(np.isfinite(sample))
    assert np.all(np.diff(sample) > 0)


# The paper's constants


def _sech(x):
    return 1.0 / math.cosh(x)


CONSTANTS = {  # zeta, omega, T
    "logistic": lambda r: (1 / (1 + math.exp(-r)), _sech(r / 2) ** 2 / 4, math.log1p(math.exp(r))),
    "normal": lambda r: (stats.norm.pdf(r) / stats.norm.cdf(-r), stats.norm.pdf(r), -stats.norm.logcdf(-r)),
    "laplace": lambda r: (1.0, math.exp(-r) / 2, r + math.log(2.0)),
    "hypsecant": lambda r: (
        _sech(math.pi * r / 2) / 2 / (2 / math.pi * math.atan(math.exp(-math.pi * r / 2))),
        _sech(math.pi * r / 2) / 2,
        -math.log(2 / math.pi * math.atan(math.exp(-math.pi * r / 2))),
    ),
}


@pytest.mark.parametrize("radius", [0, 0.3, 1.0, 7.5])
def test_constants_are_their_closed_forms(noise, radius):
    np.testing.assert_allclose(noise.constants(radius), CONSTANTS[noise.name](radius), rtol=1e-12)


@pytest.mark.parametrize("radius", [0.5, 4.0])
def test_constants_bound_the_interval_and_are_attained(noise, radius):
    margins = np.linspace(-radius, radius, 1001)
    loss, slope = noise.derivatives(margins, order=1)
    zeta, omega, largest_loss = noise.constants(radius)
    assert zeta == pytest.approx(np.max(np.abs(slope)), rel=1e-14)
    assert omega == pytest.approx(np.min(noise.pdf(margins)), rel=1e-14)
    assert largest_loss == pytest.approx(np.max(loss), rel=1e-14)


@pytest.mark.parametrize("radius", [-1.0, float("nan")])
def test_bad_radius_is_named(noise, radius):
    with pytest.raises(ValueError, match=rf"radius must be a number >= 0.*got {radius}"):
        noise.constants(radius)


# Flips


@pytest.mark.parametrize("n_levels", [2, 3, 7])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_a_flip_rate_is_the_share_of_wrong_answers_among_those_at_random(rate, n_levels):
    floors, kept = flip_mixture(rate, n_levels)
    for right in range(n_levels):
        probabilities = np.array(floors) + kept * (np.arange(n_levels) == right)  # of answers whose noise is nothing
        assert probabilities.sum() == pytest.approx(1.0)
        assert np.delete(probabilities, right) == pytest.approx([rate / (n_levels - 1)] * (n_levels - 1))
        assert 1.0 - probabilities[right] == pytest.approx(rate)


def test_two_flip_rates_are_those_of_close_and_of_far_pairs():
    (close, far), kept = flip_mixture((0.2, 0.05), 2)
    assert far == 0.2  # P(called far | close)
    assert far + kept == pytest.approx(1.0 - 0.05)
    assert close == 0.05  # P(called close | far)
    assert close + kept == pytest.approx(1.0 - 0.2)


@pytest.mark.parametrize("n_levels", [2, 4])
def test_flip_rates_may_be_arrays(n_levels):
    rates = np.array([0.0, 0.1, 0.25])
    floors, kept = flip_mixture(rates, n_levels)
    for place, rate in enumerate(rates.tolist()):
        alone = flip_mixture(rate, n_levels)
        assert ([floor[place] for floor in floors], kept[place]) == alone
    floors, kept = flip_mixture((rates, rates[::-1]), 2)
    assert [floors[0][2], floors[1][2], kept[2]] == [0.0, 0.25, 0.75]


@pytest.mark.parametrize(
    ("rate", "expected"), [(0.0, False), (1e-9, True), ((0.0, 0.0), False), ((0.0, 0.1), True), ((0.2, 0.0), True)]
)
def test_whether_there_are_flips(rate, expected):
    assert has_flips(rate) is expected


# Array libraries


@pytest.fixture(params=["array_api_strict", "torch"])
def xp(request):
    return pytest.importorskip(request.param, reason=f"{request.param} is not installed")


def test_other_arrays_give_the_same_numbers(noise, xp):
    margins = np.concatenate([GRID, EXTREMES])
    given = xp.asarray(margins)
    results = (*noise.derivatives(given), noise.neg_log_cdf(given), noise.cdf(given), noise.pdf(given))
    expected = (*noise.derivatives(margins), noise.neg_log_cdf(margins), noise.cdf(margins), noise.pdf(margins))
    for result, wanted in zip(results, expected, strict=True):
        assert type(result) is type(given)
        assert result.dtype == xp.float64
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
def test_float32_stays_float32(noise, library):
    xp = pytest.importorskip(library, reason=f"{library} is not installed")
    margins = np.linspace(-8, 8, 90, dtype=np.float32)
    given = xp.asarray(margins)
    results = (*noise.derivatives(given), noise.cdf(given), noise.pdf(given))
    exact = margins.astype(np.float64)
    expected = (*noise.derivatives(exact), noise.cdf(exact), noise.pdf(exact))
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == xp.float32
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=5e-5)


@pytest.mark.parametrize("margin", [1, 1.5, [0, 1, -2], (0.5, 2.5), np.arange(-3, 3)])
def test_plain_numbers_and_integers_count_as_float64(noise, margin):
    as_floats = np.asarray(margin, dtype=np.float64)
    for result, expected in zip(noise.derivatives(margin), noise.derivatives(as_floats), strict=True):
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(noise.cdf(margin), noise.cdf(as_floats))
    np.testing.assert_array_equal(noise.pdf(margin), noise.pdf(as_floats))


# The registry


def test_every_noise_is_tested():
    assert sorted(DISTRIBUTIONS) == sorted(LEFT_TAILS) == sorted(CONSTANTS) == sorted(NOISES)


def test_get_noise_by_name_and_by_object(noise):
    assert get_noise(noise.name) is noise
    assert get_noise(noise) is noise
    assert type(noise)() == noise
    assert hash(type(noise)()) == hash(noise)
    assert repr(noise) == f"{type(noise).__name__}()"


def test_noises_differ_from_each_other():
    assert len(set(NOISES.values())) == len(NOISES)
    assert NOISES["normal"] != "normal"


def test_own_noise_object_is_taken_as_it_is():
    class Wider(Normal):
        name = "wider"

    wider = Wider()
    assert get_noise(wider) is wider
    assert wider != Normal()


def test_noises_with_parameters_are_equal_if_the_parameters_are():
    class Mixture(Normal):
        def __init__(self, share, scale=1.0):
            self.share, self.scale = share, scale

    assert Mixture(0.3) == Mixture(0.3, 1.0) != Mixture(0.4)
    assert hash(Mixture(0.3)) == hash(Mixture(0.3, 1.0)) != hash(Mixture(0.4))
    assert repr(Mixture(0.3, 0.5)) == "Mixture(share=0.3, scale=0.5)"


@pytest.mark.parametrize("unknown", ["cauchy", "Logistic", None, 3, Normal])
def test_unknown_noise_error_lists_the_names(unknown):
    with pytest.raises(ValueError, match="noise must be one of") as error:
        get_noise(unknown)
    assert all(repr(name) in str(error.value) for name in NOISES)
    assert repr(unknown) in str(error.value)


def test_registry_holds_noises_by_name():
    assert all(isinstance(noise, Noise) and name == noise.name for name, noise in NOISES.items())
