"""The risk of a metric: its derivatives against finite differences, its passes, and what it does to memory."""

import tracemalloc
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from closefar import packed
from closefar.noise import NOISES
from closefar.rows import Differences, blocks, source, unit_free
from closefar.solve import CloseFar, Objective, Passes
from closefar.solve.likelihood import Curvature

N, D, K = 1500, 5, 3
FACTOR = 0.6 * np.random.default_rng(1).standard_normal((D, K))
MATRIX = FACTOR @ FACTOR.T
TAU = np.array([0.9])


def make(n=N, d=D, *, noise="logistic", weighted=False, seed=0):
    """An objective, its rows in unit-free coordinates, and its signs and weights."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.logspace(-3, 3, d)
    signs = np.where(rng.uniform(size=n) < 0.4, 1.0, -1.0)
    weights = rng.uniform(0.1, 3.0, n) if weighted else np.ones(n)
    weights /= weights.sum()
    rows, _ = unit_free(Differences(z), weights)
    return Objective(rows, CloseFar(NOISES[noise], signs, weights), Passes())


@pytest.fixture(params=[(noise, weighted) for noise in sorted(NOISES) for weighted in (False, True)], ids=str)
def objective(request):
    noise, weighted = request.param
    return make(noise=noise, weighted=weighted)


def rows_of(objective):
    return objective.source.read(slice(0, objective.n_judgements)).T


def plain_loss(objective, matrix, tau):
    margin = np.array([row @ matrix @ row for row in rows_of(objective)]) - tau
    likelihood = objective.likelihood
    return np.sum(likelihood.weights * likelihood.noise.neg_log_cdf(likelihood.signs * margin))


def derivative(function, step=1e-5):
    return (function(step) - function(-step)) / (2.0 * step)


def symmetric(seed, d=D):
    matrix = np.random.default_rng(seed).standard_normal((d, d))
    return 0.5 * (matrix + matrix.T)


def close(result, expected, rtol=1e-11):
    expected = np.asarray(expected)
    np.testing.assert_allclose(result, expected, rtol=0, atol=rtol * np.abs(expected).max())


def test_loss_and_gradient_in_m(objective):
    here, gradient = objective.loss_and_gradient(MATRIX, TAU)
    assert here.loss == pytest.approx(plain_loss(objective, MATRIX, 0.9), rel=1e-12)
    np.testing.assert_array_equal(gradient, gradient.T)
    for seed in range(3):
        step = symmetric(seed)
        slope = derivative(lambda t, step=step: plain_loss(objective, MATRIX + t * step, 0.9))
        assert np.sum(gradient * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)
    expected = derivative(lambda t: plain_loss(objective, MATRIX, 0.9 + t))
    assert here.slopes[0] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_pass_in_parts_is_the_pass_in_one(objective):
    here, gradient = objective.loss_and_gradient(MATRIX, TAU)
    parts = objective.evaluate(objective.quadratic_forms(MATRIX), TAU, order=2)
    assert parts.loss == pytest.approx(here.loss, rel=1e-13)
    close(parts.margin_gradient, here.margin_gradient)
    close(parts.curvature.distance, here.curvature.distance)
    close(objective.gradient(parts), gradient)
    close(objective.squared_distances(FACTOR), objective.quadratic_forms(MATRIX))


def test_gradient_in_the_factor(objective):
    here = objective.evaluate(objective.squared_distances(FACTOR), TAU)
    gradient = objective.factor_gradient(FACTOR, here)
    close(gradient, 2.0 * objective.gradient(here) @ FACTOR)
    step = np.random.default_rng(4).standard_normal((D, K))
    slope = derivative(lambda t: plain_loss(objective, (FACTOR + t * step) @ (FACTOR + t * step).T, 0.9))
    assert np.sum(gradient * step) == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_hessian_product_is_the_finite_difference_of_the_gradient(objective, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)  # several blocks
    step, shift = symmetric(6), np.array([0.7])
    here, _ = objective.loss_and_gradient(MATRIX, TAU)
    product, product_t = objective.hessian_product(step, shift, here.curvature)

    def moved(t):
        return objective.loss_and_gradient(MATRIX + t * step, TAU + t * shift)

    close(product, derivative(lambda t: moved(t)[1], step=1e-6), rtol=1e-5)
    expected = derivative(lambda t: moved(t)[0].slopes, step=1e-6)
    np.testing.assert_allclose(product_t, expected, rtol=1e-5, atol=1e-7)


def test_the_dense_hessian_is_the_product_in_every_direction(objective):
    curvature = objective.loss_and_gradient(MATRIX, TAU)[0].curvature
    hessian = objective.hessian(curvature)
    close(hessian, hessian.T, rtol=1e-14)
    assert np.linalg.eigvalsh(hessian)[0] >= -1e-12
    columns = [
        packed.join(*objective.hessian_product(*packed.split(direction, D), curvature))
        for direction in np.eye(len(hessian))
    ]
    close(hessian, np.array(columns))


def test_curvature_of_a_margin_is_that_of_any_loss(objective):
    curvature = objective.loss_and_gradient(MATRIX, TAU)[0].curvature
    plain = Curvature(curvature.distance, curvature.crosses, curvature.thresholds)
    close(objective.hessian(plain), objective.hessian(curvature))
    step, shift = symmetric(8), np.array([-0.4])
    product, expected = (objective.hessian_product(step, shift, each) for each in (plain, curvature))
    close(product[0], expected[0])
    close(product[1], expected[1])


@pytest.mark.parametrize("n_thresholds", [0, 1, 2, 3])
def test_curvature_with_any_number_of_thresholds(n_thresholds, monkeypatch):
    """The second derivative is, summed over rows, that of c q^2 / 2 + q b't, and t'Bt / 2."""
    objective, rng = make(150), np.random.default_rng(9)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    monkeypatch.setattr(source, "PART_ROWS", 60)
    distance, crosses = rng.uniform(0.1, 2.0, 150), rng.standard_normal((n_thresholds, 150))
    curvatures = rng.standard_normal((n_thresholds, n_thresholds))
    curvatures = curvatures + curvatures.T
    curvature = Curvature(distance, tuple(crosses), curvatures)
    forms = np.array([packed.pack(np.outer(row, row)) for row in rows_of(objective)])
    border = crosses @ forms
    expected = np.block([[forms.T @ (distance[:, None] * forms), border.T], [border, curvatures]])
    close(objective.hessian(curvature), expected)
    assert objective.passes.count == pytest.approx(15 * 15 / (4 * D * D) + 0.5 * n_thresholds)
    step, shifts = symmetric(8), rng.standard_normal(n_thresholds)
    found = packed.join(*objective.hessian_product(step, shifts, curvature))
    close(found, expected @ packed.join(step, shifts))
    basis = np.linalg.qr(symmetric(7))[0]
    diagonal = np.array([packed.pack(np.outer(vector, vector)) for vector in basis.T])
    fourth, mixed = objective.rotated_moments(curvature, basis)
    close(fourth, diagonal @ expected[:15, :15] @ diagonal.T)
    np.testing.assert_allclose(mixed, diagonal @ expected[:15, 15:], rtol=1e-9)
    with pytest.raises(ValueError, match="zip"):
        objective.hessian_product(step, np.ones(n_thresholds + 1), curvature)


def test_rotated_moments_are_the_hessian_on_the_diagonal(objective):
    basis = np.linalg.qr(np.random.default_rng(7).standard_normal((D, D)))[0]
    curvature = objective.loss_and_gradient(MATRIX, TAU)[0].curvature
    fourth, border = objective.rotated_moments(curvature, basis)
    for i, left in enumerate(basis.T):
        image, image_t = objective.hessian_product(np.outer(left, left), np.zeros(1), curvature)
        close(fourth[i], [right @ image @ right for right in basis.T])
        assert border[i, 0] == pytest.approx(image_t[0], rel=1e-10)


def test_along_a_scale(objective):
    squared, scale, tau = objective.squared_distances(FACTOR), 0.8, np.array([0.7])

    def loss(s, t):
        return objective.evaluate(s * squared, np.array([t])).loss

    gradient, hessian = objective.scale_derivatives(squared, scale, tau)
    expected = [derivative(lambda h: loss(scale + h, 0.7)), derivative(lambda h: loss(scale, 0.7 + h))]
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-9)

    def gradient_at(s, t):
        return objective.scale_derivatives(squared, s, np.array([t]))[0]

    columns = [derivative(lambda h: gradient_at(scale + h, 0.7)), derivative(lambda h: gradient_at(scale, 0.7 + h))]
    np.testing.assert_allclose(hessian, np.column_stack(columns), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(hessian, hessian.T)


def test_mean_and_spread(objective):
    squared, weights = objective.squared_distances(FACTOR), objective.likelihood.weights
    mean = weights @ squared
    assert objective.mean_and_spread(squared) == pytest.approx((mean, np.sqrt(weights @ (squared - mean) ** 2)))


def test_integer_weights_are_repeats():
    once = make()
    repeats = np.random.default_rng(3).integers(1, 4, N)
    columns, signs = rows_of(once), once.likelihood.signs
    noise = once.likelihood.noise
    weighted = Objective(Differences(columns), CloseFar(noise, signs, repeats / repeats.sum()), Passes())
    total = repeats.sum()
    repeated = Objective(
        Differences(np.repeat(columns, repeats, axis=0)),
        CloseFar(noise, np.repeat(signs, repeats), np.full(total, 1.0 / total)),
        Passes(),
    )
    (left, left_gradient), (right, right_gradient) = (
        each.loss_and_gradient(MATRIX, TAU) for each in (weighted, repeated)
    )
    assert left.loss == pytest.approx(right.loss, rel=1e-12)
    close(left_gradient, right_gradient)


def test_neither_an_objective_nor_what_it_finds_can_be_changed():
    objective = make(100)
    with pytest.raises(FrozenInstanceError):
        objective.passes = Passes()
    with pytest.raises(FrozenInstanceError):
        objective.evaluate(np.ones(100), TAU).loss = 0.0


# A part of the rows, and passes


def test_a_sample_is_a_share_of_the_rows():
    objective = make(8000, weighted=True)
    few = objective.sample(0.125, np.random.default_rng(0))
    chosen = np.random.default_rng(0).random(8000) < 0.125
    assert few.n_judgements == chosen.sum()
    np.testing.assert_array_equal(rows_of(few), rows_of(objective)[chosen])
    np.testing.assert_array_equal(few.likelihood.signs, objective.likelihood.signs[chosen])
    assert few.likelihood.weights.sum() == pytest.approx(1.0)


def test_a_sample_of_one_class_is_none():
    objective = make(100)
    one_sided = objective.with_likelihood(CloseFar(NOISES["logistic"], np.ones(100), np.full(100, 0.01)))
    assert one_sided.sample(0.5, np.random.default_rng(0)) is None
    assert objective.sample(0.5, np.random.default_rng(0)) is not None


@pytest.mark.parametrize(("weight", "is_one_class"), [(0.0, True), (4e-10, True), (6e-10, False), (1e-3, False)])
def test_a_class_of_hardly_any_weight_determines_no_threshold(weight, is_one_class):
    signs, weights = np.array([-1.0, 1.0, 1.0]), np.array([weight, 0.5 - weight, 0.5])
    objective = Objective(Differences(np.eye(3)), CloseFar(NOISES["normal"], signs, weights), Passes())
    opposite = objective.with_likelihood(CloseFar(NOISES["normal"], -signs, weights))
    for each in (objective, opposite):
        assert (each.sample(1.0, np.random.default_rng(0)) is None) == is_one_class


def test_without_a_threshold_one_class_is_enough():
    class OfDistance(CloseFar):
        def with_arrays(self, signs, weights):
            taken = OfDistance(self.noise, signs, weights)
            taken.least = np.empty(0)
            return taken

    likelihood = OfDistance(NOISES["logistic"], np.ones(100), np.full(100, 0.01))
    few = make(100).with_likelihood(likelihood).sample(0.5, np.random.default_rng(0))
    assert few.n_judgements == np.sum(np.random.default_rng(0).random(100) < 0.5)


def test_passes_over_a_sample_are_shared_with_the_whole():
    objective = make(1000)
    few = objective.sample(0.25, np.random.default_rng(0))
    few.loss_and_gradient(MATRIX, TAU)
    assert (few.passes.count, objective.passes.count) == (1.0, 0.25)


def test_the_moment_of_the_trend(objective):
    moment, total = objective.trend_moment()
    trend = objective.likelihood.signs * objective.likelihood.weights
    close(moment, sum(t * np.outer(row, row) for t, row in zip(trend, rows_of(objective), strict=True)))
    assert total == pytest.approx(trend.sum(), rel=1e-11)
    assert objective.passes.count == 0.5


def test_passes_are_counted(objective):
    passes = objective.passes
    before = passes.count
    here, _ = objective.loss_and_gradient(np.eye(D), TAU)
    assert passes.count - before == pytest.approx(1.0)
    objective.gradient(here)
    objective.quadratic_forms(np.eye(D))
    assert passes.count - before == pytest.approx(2.0)
    objective.squared_distances(FACTOR)
    objective.factor_gradient(FACTOR, here)
    assert passes.count - before == pytest.approx(2.0 + 1.5 * K / D)
    objective.evaluate(objective.squared_distances(np.empty((D, 0))), TAU)
    assert passes.count - before == pytest.approx(2.0 + 1.5 * K / D)
    objective.hessian_product(MATRIX, TAU, here.curvature)
    objective.rotated_moments(here.curvature, np.eye(D))
    assert passes.count - before == pytest.approx(4.0 + 1.5 * K / D)
    objective.hessian(here.curvature)
    assert passes.count - before == pytest.approx(4.0 + 1.5 * K / D + 15 * 15 / (4 * D * D))


def test_passes_over_a_part_count_as_that_part():
    whole = Passes()
    part = whole.of_part(0.125)
    part.add(4.0)
    whole.add(1.0)
    assert (part.count, whole.count) == (4.0, 1.5)
    part.of_part(0.5).add(2.0)
    assert (part.count, whole.count) == (5.0, 1.625)
    Passes(whole).add(1.0)
    assert whole.count == 2.625


def test_likelihoods_of_the_same_rows_share_the_count():
    objective = make(100)
    other = objective.with_likelihood(
        CloseFar(NOISES["normal"], objective.likelihood.signs, objective.likelihood.weights)
    )
    other.quadratic_forms(MATRIX)
    assert objective.passes.count == 0.5


def test_no_temporary_is_larger_than_a_few_blocks():
    objective = make(200_000, 20)
    tracemalloc.start()
    try:
        objective.loss_and_gradient(0.01 * np.eye(20), TAU)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 8 * 200_000 * 20
