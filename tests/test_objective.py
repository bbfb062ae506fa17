"""The risk and its derivatives: against plain sums and finite differences, in blocks, on any array library."""

import tracemalloc

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from closefar import objective, packed, pairs
from closefar.noise import NOISES
from closefar.objective import Risk
from closefar.pairs import Differences, Rows, unit_free_rows

N, D, K = 1500, 5, 3
FACTOR = 0.6 * np.random.default_rng(1).standard_normal((D, K))
THRESHOLD = 0.9


@pytest.fixture(params=sorted(NOISES))
def noise(request):
    return NOISES[request.param]


@pytest.fixture(params=["equal", "weighted"])
def rows(request):
    return make_rows(weighted=request.param == "weighted")


@pytest.fixture
def risk(rows, noise):
    return Risk(rows, noise)


def make_rows(n=N, d=D, *, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.logspace(-3, 3, d)
    signs = np.where(rng.uniform(size=n) < 0.4, 1.0, -1.0)
    weights = rng.uniform(0.1, 3.0, n) if weighted else np.ones(n)
    return unit_free_rows(Differences(z), signs, weights, with_constant=False)[0]


def all_rows(rows):
    """The rows of `rows` as one n x d array."""
    return rows.read(slice(0, len(rows))).T


def plain_loss(risk, matrix, threshold):
    z = all_rows(risk.rows)
    margin = np.array([row @ matrix @ row for row in z]) - threshold
    return np.sum(risk.rows.weights * risk.noise.neg_log_cdf(risk.rows.signs * margin))


def derivative(function, step=1e-5):
    """The central difference of a function of one number at zero."""
    return (function(step) - function(-step)) / (2.0 * step)


def gradient_in_m(risk, matrix, threshold):
    return risk.outer_sum(risk.pointwise(risk.quadratic_forms_of(matrix), threshold).pull)


def symmetric(rng, d=D):
    matrix = rng.standard_normal((d, d))
    return 0.5 * (matrix + matrix.T)


def use_small_blocks(monkeypatch):
    for module in (pairs, objective):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(pairs, "VECTOR_ROWS", 400)


def close(result, expected, rtol=1e-11):
    """Relative to the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(result, expected, rtol=0, atol=rtol * np.abs(expected).max())


# Values


def test_weights_sum_to_one_and_signs_are_kept(rows):
    assert np.sum(rows.weights) == pytest.approx(1.0, abs=1e-12)
    assert set(np.unique(rows.signs)) == {-1.0, 1.0}
    assert len(rows) == N


def test_loss_is_the_plain_sum(risk):
    expected = plain_loss(risk, FACTOR @ FACTOR.T, THRESHOLD)
    assert risk.loss_and_gradient(FACTOR, THRESHOLD)[0] == pytest.approx(expected, rel=1e-12)
    assert risk.pointwise(risk.quadratic_forms(FACTOR), THRESHOLD).loss == pytest.approx(expected, rel=1e-12)


def test_quadratic_forms(risk):
    z, matrix = all_rows(risk.rows), symmetric(np.random.default_rng(2))
    close(risk.quadratic_forms(FACTOR), np.sum((z @ FACTOR) ** 2, axis=1))
    close(risk.quadratic_forms_of(matrix), np.sum((z @ matrix) * z, axis=1))
    close(risk.quadratic_forms_of(FACTOR @ FACTOR.T), risk.quadratic_forms(FACTOR))


def test_least_margin(risk):
    margin = risk.rows.signs * (np.sum((all_rows(risk.rows) @ FACTOR) ** 2, axis=1) - THRESHOLD)
    assert risk.pointwise(risk.quadratic_forms(FACTOR), THRESHOLD).least_margin == pytest.approx(
        margin.min(), rel=1e-12
    )


def test_integer_weights_are_repeats(noise):
    once = make_rows()
    repeats = np.random.default_rng(3).integers(1, 4, N)
    weighted = Rows(once.read, once.signs, repeats / repeats.sum(), D)
    columns = np.repeat(once.read(slice(0, N)), repeats, axis=1)
    total = repeats.sum()
    repeated = Rows(lambda where: columns[:, where], np.repeat(once.signs, repeats), np.full(total, 1.0 / total), D)
    for left, right in zip(
        Risk(weighted, noise).loss_and_gradient(FACTOR, THRESHOLD),
        Risk(repeated, noise).loss_and_gradient(FACTOR, THRESHOLD),
        strict=True,
    ):
        close(left, right)


# First derivatives


def test_gradient_in_the_factor_is_the_finite_difference(risk):
    rng = np.random.default_rng(4)
    gradient = risk.loss_and_gradient(FACTOR, THRESHOLD)[1]
    for _ in range(3):
        step = rng.standard_normal((D, K))
        slope = derivative(lambda t, step=step: risk.loss_and_gradient(FACTOR + t * step, THRESHOLD)[0])
        assert np.sum(gradient * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_gradient_in_m_is_the_finite_difference(risk):
    rng = np.random.default_rng(5)
    matrix = FACTOR @ FACTOR.T
    gradient = gradient_in_m(risk, matrix, THRESHOLD)
    close(gradient, gradient.T, rtol=1e-14)
    for _ in range(3):
        step = symmetric(rng)
        slope = derivative(lambda t, step=step: plain_loss(risk, matrix + t * step, THRESHOLD))
        assert np.sum(gradient * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_gradients_in_the_factor_and_in_m_agree(risk):
    _, gradient, slope = risk.loss_and_gradient(FACTOR, THRESHOLD)
    pointwise = risk.pointwise(risk.quadratic_forms(FACTOR), THRESHOLD)
    close(gradient, 2.0 * risk.outer_sum(pointwise.pull) @ FACTOR)
    close(gradient, risk.factor_gradient(FACTOR, pointwise.pull))
    assert slope == pytest.approx(pointwise.threshold_slope, rel=1e-11)


def test_slope_in_the_threshold_is_the_finite_difference(risk):
    expected = derivative(lambda t: risk.loss_and_gradient(FACTOR, THRESHOLD + t)[0])
    assert risk.loss_and_gradient(FACTOR, THRESHOLD)[2] == pytest.approx(expected, rel=1e-6, abs=1e-9)


# Second derivatives


def test_hessian_product_is_the_finite_difference_of_the_gradient(risk):
    rng = np.random.default_rng(6)
    matrix = FACTOR @ FACTOR.T
    step, shift = symmetric(rng), 0.7
    curvature = risk.pointwise(risk.quadratic_forms(FACTOR), THRESHOLD, order=2).curvature
    product, product_t = risk.hessian_product(step, shift, curvature)

    def moved(t):
        return risk.pointwise(risk.quadratic_forms_of(matrix + t * step), THRESHOLD + t * shift)

    close(product, derivative(lambda t: risk.outer_sum(moved(t).pull), step=1e-6), rtol=1e-5)
    expected = derivative(lambda t: moved(t).threshold_slope, step=1e-6)
    assert product_t == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_dense_hessian_is_the_product_in_every_direction(risk):
    curvature = risk.pointwise(risk.quadratic_forms(FACTOR), THRESHOLD, order=2).curvature
    hessian = risk.dense_hessian(curvature)
    close(hessian, hessian.T, rtol=1e-14)
    assert np.linalg.eigvalsh(hessian)[0] >= -1e-12
    columns = []
    for direction in np.eye(len(hessian)):
        product, product_t = risk.hessian_product(packed.unpack(direction[:-1], D), direction[-1], curvature)
        columns.append(np.append(packed.pack(product), product_t))
    close(hessian, np.array(columns))


def test_rotated_moments(risk):
    basis = np.linalg.qr(np.random.default_rng(7).standard_normal((D, D)))[0]
    curvature = risk.pointwise(risk.quadratic_forms(FACTOR), THRESHOLD, order=2).curvature
    fourth, second = risk.rotated_moments(curvature, basis)
    squares = (all_rows(risk.rows) @ basis) ** 2
    close(fourth, squares.T @ (squares * curvature[:, None]))
    close(second, squares.T @ curvature)


# Blocks


def everything(risk):
    """Each sum that a risk offers, at one point."""
    step = symmetric(np.random.default_rng(8))
    forms = risk.quadratic_forms(FACTOR)
    pointwise = risk.pointwise(forms, THRESHOLD, order=2)
    threshold, best = risk.best_threshold(forms, 0.5)
    return [
        forms,
        *risk.loss_and_gradient(FACTOR, THRESHOLD),
        *(pointwise.loss, pointwise.threshold_slope, pointwise.least_margin, pointwise.pull, pointwise.curvature),
        risk.quadratic_forms_of(step),
        risk.outer_sum(pointwise.pull),
        risk.factor_gradient(FACTOR, pointwise.pull),
        *risk.hessian_product(step, 0.3, pointwise.curvature),
        *risk.rotated_moments(pointwise.curvature, np.eye(D)),
        risk.dense_hessian(pointwise.curvature),
        *(threshold, best.loss),
    ]


def test_block_size_makes_no_difference(risk, monkeypatch):
    expected = everything(risk)
    use_small_blocks(monkeypatch)
    assert len(list(risk.rows.blocks())) > 1
    assert len(list(risk.rows.slices())) > 1
    for left, right in zip(everything(risk), expected, strict=True):
        close(left, right)


def test_no_temporary_is_larger_than_a_few_blocks():
    rows = make_rows(200_000, 20)
    risk, factor = Risk(rows, NOISES["logistic"]), 0.1 * np.eye(20)
    tracemalloc.start()
    try:
        risk.loss_and_gradient(factor, 1.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 8 * 200_000 * 20


def test_a_pass_is_one_loss_with_its_gradient(risk):
    before = risk.n_passes
    risk.loss_and_gradient(np.eye(D), THRESHOLD)
    assert risk.n_passes - before == pytest.approx(1.0)
    risk.outer_sum(risk.rows.weights)
    risk.quadratic_forms_of(np.eye(D))
    assert risk.n_passes - before == pytest.approx(2.0)


# The best threshold


def test_best_threshold_is_the_minimiser(risk):
    forms = risk.quadratic_forms(FACTOR)
    threshold, point = risk.best_threshold(forms, 0.0)
    best = minimize_scalar(
        lambda t: risk.pointwise(forms, t).loss, bounds=(0.0, 50.0), method="bounded", options={"xatol": 1e-10}
    )
    assert threshold > 0.0
    assert threshold == pytest.approx(best.x, abs=1e-6)
    assert point.loss <= best.fun + 1e-14
    assert abs(point.threshold_slope) <= 1e-12
    assert point.loss == pytest.approx(risk.pointwise(forms, threshold).loss, rel=1e-14)


@pytest.mark.parametrize("start", [0.0, 1e-3, 40.0, 1e4, 1e12, 1e50])
def test_best_threshold_does_not_depend_on_the_start(risk, start):
    forms = risk.quadratic_forms(FACTOR)
    threshold, point = risk.best_threshold(forms, start)
    assert threshold == pytest.approx(risk.best_threshold(forms, 1.0)[0], abs=1e-9)
    assert point.loss == pytest.approx(risk.pointwise(forms, threshold).loss, rel=1e-14)


@pytest.mark.parametrize("size", [1e-30, 1e6, 1e12])
def test_best_threshold_at_forms_of_any_size(risk, size):
    forms = size * risk.quadratic_forms(FACTOR)
    threshold, point = risk.best_threshold(forms, 1.0)
    exact = risk.pointwise(forms, threshold)
    assert point.loss == pytest.approx(exact.loss, rel=1e-14)
    grid = [risk.pointwise(forms, t).loss for t in np.append(np.quantile(forms, np.linspace(0, 1, 201)), 0.0)]
    assert exact.loss <= min(grid) * (1.0 + 1e-12)


def test_best_threshold_stops_at_zero_where_that_is_best(rows, noise):
    far = Risk(Rows(rows.read, np.ones(N), rows.weights, D), noise)
    forms = far.quadratic_forms(FACTOR)
    for start in (0.0, 3.0):
        threshold, point = far.best_threshold(forms, start)
        assert threshold == 0.0
        assert point.threshold_slope > 0.0
    losses = [far.pointwise(forms, t).loss for t in np.linspace(0.0, 5.0, 21)]
    assert point.loss == pytest.approx(min(losses), rel=1e-14)


def test_a_free_threshold_may_be_negative(rows, noise):
    signs = np.where(np.arange(N) % 20 == 0, -1.0, 1.0)
    risk = Risk(Rows(rows.read, signs, rows.weights, D), noise)
    forms = risk.quadratic_forms(0.3 * FACTOR)
    threshold, point = risk.best_threshold(forms, 1.0, least=-np.inf)
    best = minimize_scalar(
        lambda t: risk.pointwise(forms, t).loss, bounds=(-50.0, 50.0), method="bounded", options={"xatol": 1e-10}
    )
    assert threshold < 0.0
    assert threshold == pytest.approx(best.x, abs=1e-6)
    assert abs(point.threshold_slope) <= 1e-12


# Other array libraries


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
@pytest.mark.parametrize("small_blocks", [False, True])
def test_the_kernel_equals_numpy_on_other_arrays(rows, noise, library, small_blocks, monkeypatch):
    xp = pytest.importorskip(library, reason=f"{library} is not installed")
    if small_blocks:
        use_small_blocks(monkeypatch)
    columns = xp.asarray(np.ascontiguousarray(rows.read(slice(0, N))))
    other = Rows(lambda where: columns[:, where], xp.asarray(rows.signs), xp.asarray(rows.weights), D)
    step = symmetric(np.random.default_rng(9))

    def sums(risk, asarray):
        factor, direction = asarray(FACTOR), asarray(step)
        forms = risk.quadratic_forms(factor)
        pointwise = risk.pointwise(forms, THRESHOLD, order=2)
        return [
            forms,
            *risk.loss_and_gradient(factor, THRESHOLD),
            *(pointwise.loss, pointwise.threshold_slope, pointwise.least_margin, pointwise.pull, pointwise.curvature),
            risk.quadratic_forms_of(direction),
            risk.outer_sum(pointwise.pull),
            risk.factor_gradient(factor, pointwise.pull),
            *risk.hessian_product(direction, 0.3, pointwise.curvature),
            *risk.rotated_moments(pointwise.curvature, asarray(np.eye(D))),
            risk.best_threshold(forms, 0.5)[0],
        ]

    result = sums(Risk(other, noise), xp.asarray)
    assert type(result[0]) is type(columns)
    for left, right in zip(result, sums(Risk(rows, noise), np.asarray), strict=True):
        close(np.asarray(left), right)
