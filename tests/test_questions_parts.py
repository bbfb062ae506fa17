"""The parts that questions are made of: bins, label model, moves, dependence, each by something independent."""

import dataclasses
import importlib
import itertools
import pkgutil
from functools import partial

import numpy as np
import pytest
from scipy.stats import binomtest, norm

import closefar as cf
from closefar import packed
from closefar.judgements import Judgements, effective_number
from closefar.model import Scores
from closefar.noise import NOISES
from closefar.questions import CalibrationBin, calibrate, wilson
from closefar.questions.dependence import Dependence
from closefar.questions.goodness_of_fit import weighted_bins
from closefar.questions.intervals import sandwich
from closefar.questions.likelihood import (
    LabelLikelihood,
    LabelModel,
    Moves,
    RankMoves,
    SideErrors,
    by_legs,
    pseudo_inverse,
    scaled_eigh,
)
from paper_estimator import PAPER

DATA = cf.datasets.make_pairs(400, 3, rank=3, wrong_share=0.15, random_state=0)
Z = (DATA.pairs[:, 0] - DATA.pairs[:, 1]) * [1e-2, 1.0, 1e3]


@pytest.fixture(scope="module")
def fitted():
    return cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(Z, DATA.labels)


# Bins and shares


def test_bins_have_about_equal_weight(rng):
    values, weights = rng.standard_normal(2000), rng.uniform(0.5, 1.5, 2000)
    bins = weighted_bins(values, weights, 8)
    assert bins.min() == 0
    assert bins.max() == 7
    totals = np.bincount(bins, weights=weights)
    np.testing.assert_allclose(totals, weights.sum() / 8, atol=2 * weights.max())
    order = np.argsort(values)
    assert np.all(np.diff(bins[order]) >= 0)


def test_equal_weights_fill_bins_alike():
    bins = weighted_bins(np.arange(100.0), np.ones(100), 10)
    # An edge belongs to the bin above it.
    np.testing.assert_array_equal(np.bincount(bins), [9, *[10] * 8, 11])


def test_equal_values_share_a_bin():
    values = np.repeat([3.0, 1.0, 2.0], [70, 20, 10])
    bins = weighted_bins(values, np.ones(100), 5)
    assert len(np.unique(bins)) <= 3
    for value in (1.0, 2.0, 3.0):
        assert len(np.unique(bins[values == value])) == 1
    assert weighted_bins(np.zeros(5), np.ones(5), 4).tolist() == [0] * 5


def test_bins_are_those_of_shares_of_the_weight():
    values, weights = np.array([5.0, 1.0, 4.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 1.0, 3.0])
    # In order of size the weights sum to 2, 3, 6, 9, 10: halves are divided at 3, thirds at 3 and 4.
    np.testing.assert_array_equal(weighted_bins(values, weights, 2), [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(weighted_bins(values, weights, 3), [2, 0, 2, 0, 1])
    np.testing.assert_array_equal(weighted_bins(values, weights, 1), 0)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (500, 1000), (1, 1)])
def test_wilson_is_that_of_scipy(k, n):
    expected = binomtest(k, n).proportion_ci(1.0 - 2.0 * norm.sf(1.96), method="wilson")
    assert wilson(k / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_holds_the_share_and_stays_within_0_and_1():
    for n, share in itertools.product(np.arange(1.0, 200.0, 0.7), (0.0, 0.5, 1.0)):
        low, high = wilson(share, n)
        assert 0.0 <= low <= share <= high <= 1.0


@pytest.mark.parametrize(("predicted", "is_within"), [(0.39, False), (0.4, True), (0.6, True), (0.61, False)])
def test_an_interval_holds_its_ends(predicted, is_within):
    assert CalibrationBin(predicted, 0.5, 0.4, 0.6, 10, 10.0).is_within_chance is is_within


def test_effective_number():
    assert effective_number(np.full(7, 3.0)) == pytest.approx(7.0)
    assert effective_number(np.array([1.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert effective_number(np.array([1.0, 3.0])) == pytest.approx(16.0 / 10.0)


def test_calibration_bins():
    weights = [1.0, 1.0, 1.5, 2.5, 1.0, 1.0]
    judgements = Judgements.of_signs(np.zeros((6, 1)), [1, -1, 1, 1, -1, 1], weights)
    scored = Scores(judgements, np.repeat([[-3.0], [2.0]], 3, axis=0), NOISES["logistic"], 0.0)
    low, high = calibrate(scored, 2)
    assert (low.count, low.weight, high.count, high.weight) == (3, 3.5, 3, 4.5)
    assert (low.predicted, high.predicted) == pytest.approx((1 / (1 + np.exp(3.0)), 1 / (1 + np.exp(-2.0))))
    assert (low.observed, high.observed) == pytest.approx((2.5 / 3.5, 3.5 / 4.5))
    assert (low.low, low.high) == pytest.approx(wilson(2.5 / 3.5, 3.5**2 / 4.25))
    assert not low.is_within_chance
    assert high.is_within_chance


def test_scored_judgements():
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    judgements = Judgements.of_signs(np.zeros((4, 1)), [1, 1, -1, -1], weights)
    scored = Scores(judgements, np.array([[2.0], [-1.0], [-0.5], [0.0]]), NOISES["normal"], 0.1)
    np.testing.assert_array_equal(scored.is_right, [True, False, True, False])  # zero counts as far
    assert scored.accuracy == pytest.approx(0.4)
    assert scored.share_far == pytest.approx(0.3)
    assert scored.majority == pytest.approx(0.7)
    assert scored.null_loss == pytest.approx(-0.3 * np.log(0.3) - 0.7 * np.log(0.7))
    far = 0.1 + 0.8 * NOISES["normal"].cdf(scored.margin)
    np.testing.assert_allclose(scored.probability_far, far)
    np.testing.assert_allclose(scored.losses, -np.log(np.where(judgements.is_far, far, 1.0 - far)))
    assert scored.loss == pytest.approx(weights @ scored.losses / 10.0)
    np.testing.assert_array_equal(scored.confusion(), [[3.0, 4.0], [2.0, 1.0]])
    np.testing.assert_array_equal(scored.confusion(np.ones(4)), [[1, 1], [1, 1]])
    # Of the far ones, 1 with margin 2 beats both close ones, 2 with -1 none.
    assert scored.auc == pytest.approx(1.0 / 3.0)
    some = scored.take(np.array([0, 1]))
    assert some.auc is None
    assert some.null_loss == 0.0
    assert some.accuracy == pytest.approx(1.0 / 3.0)


# The label model


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_label_model_and_its_derivatives(noise):
    margin, q, h = np.array([-2.0, -0.3, 0.4, 3.0]), 0.07, 1e-6
    model = LabelModel.at(margin, noise, q)
    np.testing.assert_allclose(model.far, q + (1 - 2 * q) * noise.cdf(margin))
    np.testing.assert_allclose(model.far + model.close, 1.0)
    ahead, behind = (LabelModel.at(margin + step, noise, q).far for step in (h, -h))
    np.testing.assert_allclose(model.slope, (ahead - behind) / (2 * h), rtol=1e-5)
    ahead, behind = (LabelModel.at(margin, noise, q + step).far for step in (h, -h))
    np.testing.assert_allclose(model.flip_slope, (ahead - behind) / (2 * h), rtol=1e-5)
    np.testing.assert_allclose(model.variance, model.far * model.close)
    np.testing.assert_allclose(model.information, model.slope**2 / model.variance)
    is_far = np.array([True, False, True, False])
    np.testing.assert_allclose(model.residual(is_far), is_far - model.far)


def test_a_certain_label_has_no_information():
    model = LabelModel.at(np.array([-1e3, 1e3]), NOISES["normal"], 0.0)
    assert np.all((model.variance > 0) & (model.variance < 1e-40))
    np.testing.assert_array_equal(model.information, 0.0)


# Moves


def along_moves(moves, data):
    """The derivatives of squared distances along each move."""
    return np.vstack([along for _, along in by_legs(moves.rows(data), moves.gradients)])


def moves_of(fit, metric, data, **options):
    signs = np.tile([1.0, -1.0], len(data))[: len(data)]
    return Moves.of(dataclasses.replace(fit, metric=metric), Judgements.of_signs(data, signs), **options)


@pytest.mark.parametrize(("rank", "size"), [(0, 3), (1, 3), (2, 3), (3, 3), (2, 5)])
def test_moves_keep_the_rank(rank, size, rng):
    vectors = np.linalg.qr(rng.standard_normal((size, size)))[0]
    matrix = (vectors[:, :rank] * np.arange(rank, 0, -1.0)) @ vectors[:, :rank].T
    basis = RankMoves.at(matrix, np.zeros((size, size)), 1, rank).basis
    assert basis.shape[1] == size * rank - rank * (rank - 1) // 2 + 1
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    # No move reaches the null space with itself.
    for column in basis.T[:-1]:
        step, _ = packed.split(column, size)
        np.testing.assert_allclose(vectors[:, rank:].T @ step @ vectors[:, rank:], 0.0, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_gradients_are_those_of_the_moves_that_keep_the_rank(fitted, rank, rng):
    """In the coordinates of `Moves`, M is diagonal: the moves that keep its rank are the first of all."""
    z, factor = rng.standard_normal((60, 4)), rng.standard_normal((4, rank))
    metric = cf.Metric.from_factor(factor, 1.0)
    kept, free = (moves_of(fitted.fit_, metric, z, keeps_rank=keeps_rank) for keeps_rank in (True, False))
    matrix = packed.unpack(free.matrix, 4)
    np.testing.assert_allclose(free.basis @ matrix @ free.basis.T, factor @ factor.T, atol=1e-12)
    basis = RankMoves.at(matrix, np.zeros((4, 4)), 0, rank).basis
    found, expected = along_moves(kept, z), along_moves(free, z) @ basis
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-10)
    np.testing.assert_allclose(along_moves(free, z), packed.form_gradients(z @ free.basis), atol=1e-12)


def test_the_curvature_of_moves_is_that_of_the_set(rng):
    """Along M(t) = A(t) A(t)' with A moving into the null space, <G, M> has the second derivative of `curvature`."""
    d, rank = 4, 2
    vectors = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = np.array([2.0, 0.7, 0.0, 0.0])
    positive = rng.standard_normal((d, d))
    null = vectors[:, rank:]
    gradient = null @ (null.T @ positive @ positive.T @ null) @ null.T
    moves = RankMoves.at(vectors * values @ vectors.T, gradient, 1)
    assert moves.rank == rank
    np.testing.assert_allclose(moves.values, values, atol=1e-12)
    root = vectors[:, :rank] * np.sqrt(values[:rank])
    for move, curvature in zip(moves.basis.T[:-1], moves.curvature[:-1], strict=True):
        step, _ = packed.split(move, d)
        # A factor whose square moves along `step` to first order.
        slope = step @ vectors[:, :rank] / np.sqrt(values[:rank])
        slope -= 0.5 * vectors[:, :rank] @ (vectors[:, :rank].T @ slope)

        def pairing(t, slope=slope):
            return np.sum(gradient * ((root + t * slope) @ (root + t * slope).T))

        second = pairing(1.0) - 2 * pairing(0.0) + pairing(-1.0)  # of a parabola
        assert second == pytest.approx(curvature, rel=1e-9, abs=1e-9)
    assert moves.curvature[-1] == 0.0


def test_information_along_moves(rng):
    moves = RankMoves.at(np.diag([1.0, 0.5, 0.0]), np.diag([0.0, 0.0, 0.3]), 1)
    hessian = np.cov(rng.standard_normal((7, 30)))
    expected = moves.basis.T @ hessian @ moves.basis + np.diag(moves.curvature)
    np.testing.assert_allclose(moves.information(hessian), expected)
    assert sorted(moves.curvature) == pytest.approx([0.0] * 4 + [0.3, 0.6])


def test_pseudo_inverse(rng):
    root = rng.standard_normal((5, 3)) * np.array([1e-6, 1.0, 1.0, 1e4, 1e2])[:, None]
    matrix = root @ root.T
    inverse = pseudo_inverse(matrix)
    np.testing.assert_allclose(matrix @ inverse @ matrix, matrix, rtol=1e-6)
    assert np.linalg.matrix_rank(inverse * np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))) == 3
    np.testing.assert_array_equal(pseudo_inverse(np.zeros((2, 2))), 0.0)


@pytest.mark.parametrize(("tol", "rank"), [(0.1, 2), (0.14, 2), (0.15, 1), (0.5, 1)])
def test_the_range_is_decided_by_the_largest_eigenvalue(tol, rank):
    """Scaled, the eigenvalues are 0.25 and 1.75: one is a seventh of the other."""
    matrix = np.outer([0.1, 3.0], [0.1, 3.0]) * [[1.0, 0.75], [0.75, 1.0]]
    expected = np.linalg.inv(matrix) if rank == 2 else np.full((2, 2), 0.5 / 1.75) / np.outer([0.1, 3.0], [0.1, 3.0])
    np.testing.assert_allclose(pseudo_inverse(matrix, tol), expected, rtol=1e-10)


@pytest.mark.parametrize(("most", "number"), [(6, 6), (5, 3)])
def test_beyond_a_number_of_moves_only_eigenvalues_move(monkeypatch, fitted, most, number):
    monkeypatch.setattr("closefar.questions.likelihood.MOST_MOVES", most)
    moves = moves_of(fitted.fit_, fitted.metric_, Z)
    assert (len(moves), moves.is_partial) == (number, number < 6)
    assert along_moves(moves, Z).shape == (400, number)
    assert len(moves_of(fitted.fit_, fitted.metric_, Z, is_complete=True)) == 6


def test_no_margin_moves_with_a_column_that_does_not_vary(fitted):
    z = Z * [1.0, 0.0, 1.0]
    moves = moves_of(fitted.fit_, cf.Metric.from_matrix(np.diag([1.0, 0.0, 1e-6]), 1.0), z)
    along = along_moves(moves, z)
    assert np.linalg.matrix_rank(along) == along.shape[1] == len(moves) == 3


@pytest.mark.parametrize("rank", [1, 3])
def test_margins_move_with_the_origin_too(fitted, rank, rng):
    points = rng.standard_normal((60, 3)) * [1e-2, 1.0, 1e3]
    factor, origin = rng.standard_normal((3, rank)) / np.array([1e-2, 1.0, 1e3])[:, None], np.array([0.01, -1.0, 1e3])
    moves = moves_of(fitted.fit_, cf.Metric.from_factor(factor, 2.0, origin=origin), points)
    along = along_moves(moves, points)
    assert along.shape == (60, {1: 4, 3: 9}[rank])
    away = points - origin
    everything = np.column_stack(
        [np.einsum("ni,nk->nik", away, away @ factor).reshape(60, -1), away @ factor @ factor.T]
    )
    everything /= np.linalg.norm(everything, axis=0)
    # The derivatives in the factor and the origin span what the moves span.
    assert np.linalg.matrix_rank(everything, tol=1e-9) == np.linalg.matrix_rank(along) == along.shape[1]
    np.testing.assert_allclose(along @ np.linalg.lstsq(along, everything, rcond=None)[0], everything, atol=1e-9)


def test_variances_of_margins_are_quadratic_forms(fitted, rng):
    weights = rng.uniform(0.5, 2.0, len(Z))
    judgements = Judgements.of_signs(Z, DATA.labels, weights)
    along = np.column_stack([along_moves(Moves.of(fitted.fit_, judgements), Z), -np.ones(len(Z))])
    margin = fitted.decision_function(Z)
    model = LabelModel.at(margin, fitted.metric_.noise, 0.0)
    expected = np.linalg.pinv((along * (weights * model.information)[:, None]).T @ along)
    found = SideErrors.of(fitted.fit_, judgements)
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-5, atol=1e-8 * np.abs(expected).max())
    variances = np.array([row @ found.covariance @ row for row in along])
    without_scale = found.at(Z, margin[:, None])[:, 0] ** 2
    np.testing.assert_allclose(without_scale + found.of_scale * margin**2, variances, rtol=1e-9)


# The optimum and its sandwich


@pytest.fixture(scope="module")
def local(fitted):
    """The likelihood of all symmetric M, the parameters of the fit, and the scores and Hessian there by plain sums."""
    judgements = Judgements.of_signs(Z, DATA.labels)
    moves = Moves.of(fitted.fit_, judgements, keeps_rank=False, is_complete=True)
    likelihood, parameters = LabelLikelihood.of(fitted.fit_, judgements, moves)
    features = np.column_stack([packed.form_gradients(Z @ moves.basis), -np.ones(len(Z))])
    far = 1.0 / (1.0 + np.exp(-features @ parameters))
    scores = features * (far - (DATA.labels > 0))[:, None] / len(Z)
    return likelihood, parameters, scores, (features * (far * (1.0 - far))[:, None]).T @ features / len(Z)


def test_the_likelihood_is_that_of_the_fit_in_other_coordinates(fitted, local):
    likelihood, parameters, scores, hessian = local
    terms = likelihood.terms(parameters)
    assert likelihood.shares @ terms.loss == pytest.approx(fitted.certificate_.loss, abs=1e-10)
    np.testing.assert_allclose(scores.sum(axis=0), 0.0, atol=1e-5)
    information = likelihood.information(parameters, likelihood.shares)
    np.testing.assert_allclose(information, hessian, rtol=1e-8, atol=1e-12)
    found = np.vstack([block for _, block in likelihood.scores(terms)])
    np.testing.assert_allclose(found, scores, rtol=1e-8, atol=1e-14)


def test_the_sandwich_is_the_plain_formula(local):
    likelihood, parameters, scores, hessian = local
    n = len(Z)
    expected = np.linalg.inv(hessian) @ (scores.T @ scores) @ np.linalg.inv(hessian) * n / (n - 1)
    facts = sandwich(likelihood, parameters, Dependence(None), np.ones(n), 3)
    np.testing.assert_allclose(facts.root @ facts.root.T, expected, rtol=1e-6)
    assert facts.rank == 3
    assert facts.threshold == pytest.approx(parameters[-1] / np.sqrt(expected[-1, -1]), rel=1e-6)
    values, vectors = np.linalg.eigh(packed.unpack(parameters[:-1], 3))
    gradient = np.append(packed.form_gradients(vectors[:, :1].T)[0], 0.0)
    assert facts.smallest == pytest.approx(values[0] / np.sqrt(gradient @ expected @ gradient), rel=1e-6)
    slope = scores.sum(axis=0)
    assert facts.distance == pytest.approx(np.sqrt(n * max(slope @ np.linalg.solve(hessian, slope), 0.0)), abs=1e-6)


@pytest.mark.parametrize("kind", ["groups", "points"])
def test_dependent_scores_are_summed_by_brute_force(local, kind, rng):
    likelihood, parameters, scores, _ = local
    n = len(Z)
    ids = rng.integers(0, 50, n) if kind == "groups" else rng.integers(0, 60, (n, 2))
    ids[0] = ids[1] if kind == "groups" else [3, 3]  # a pair of one point with itself
    total = np.zeros((scores.shape[1], scores.shape[1]))
    for i, j in itertools.product(range(n), range(n)):
        related = ids[i] == ids[j] if kind == "groups" else bool(set(ids[i]) & set(ids[j]))
        if related:
            total += np.outer(scores[i], scores[j])
    values, vectors = np.linalg.eigh(total)
    total = (vectors * np.maximum(values, 0.0)) @ vectors.T
    n_units = len(np.unique(ids))
    found = Dependence(ids).spread(likelihood, likelihood.terms(parameters), np.ones(n))
    np.testing.assert_allclose(found, total * n_units / (n_units - 1), rtol=1e-8, atol=1e-12)


# What every question refuses


def test_labels_of_one_class_say_nothing(fitted):
    ones, weights = np.ones(400), np.where(DATA.labels == 1, 1.0, 0.0)
    for ask in (fitted.truncation_path, fitted.check_noise_model, partial(cf.confidence, fitted)):
        with pytest.raises(ValueError, match=r"got no pairs of class -1\. Add some\."):
            ask(Z, ones)
        with pytest.raises(ValueError, match="every pair of class -1 has weight 0"):
            ask(Z, DATA.labels, sample_weight=weights)
        with pytest.raises(ValueError, match="Input X contains NaN"):
            ask(np.full_like(Z, np.nan), DATA.labels)


def test_a_plan_is_made_of_a_pilot_without_weights(fitted):
    plan = cf.plan_sample_size(fitted, target_error=0.01)
    equal = cf.LinearMetricLearner(tol=1e-10, **PAPER).fit(Z, DATA.labels, np.full(400, 2.0))
    assert cf.plan_sample_size(equal, target_error=0.01).n_pairs == pytest.approx(plan.n_pairs, rel=1e-3)
    weighted = cf.LinearMetricLearner(**PAPER).fit(Z, DATA.labels, np.linspace(0.1, 3.0, 400))
    with pytest.raises(ValueError, match="without sample weights"):
        cf.plan_sample_size(weighted, target_error=0.01)


def test_eigenvalues_with_a_diagonal_of_one():
    matrix = np.array([[4.0, 1e-8, 0.0], [1e-8, 9e-16, 0.0], [0.0, 0.0, -1.0]])
    values, vectors, scale = scaled_eigh(matrix)
    np.testing.assert_allclose(scale, [2.0, 3e-8, 1.0])
    np.testing.assert_allclose(values, [-1.0, 1.0 - 1.0 / 6.0, 1.0 + 1.0 / 6.0], rtol=1e-12)
    np.testing.assert_allclose(vectors * values @ vectors.T * np.outer(scale, scale), matrix, atol=1e-12)


def test_answers_cannot_be_changed():
    names = [f"closefar.questions.{found.name}" for found in pkgutil.iter_modules(cf.questions.__path__)]
    types = [kind for name in names for kind in vars(importlib.import_module(name)).values() if isinstance(kind, type)]
    found = [kind for kind in types if dataclasses.is_dataclass(kind)]
    assert CalibrationBin in found
    assert [kind.__name__ for kind in found if not kind.__dataclass_params__.frozen] == []
