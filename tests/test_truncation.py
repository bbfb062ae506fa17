"""The truncation path: its figures are those of the metrics, its bounds hold, and units do not matter."""

import dataclasses
import re

import numpy as np
import pytest

import closefar as cf
from closefar.fitting import candidate_ranks
from closefar.model import in_data_scale
from closefar.noise import NOISES
from closefar.questions import choose_rank, truncation, truncation_path
from paper_estimator import PAPER

D = 5
DATA = cf.datasets.make_pairs(1500, D, metric_eigenvalues=[1.0, 0.5, 0.1], wrong_share=0.1, random_state=3)
X, LABELS = DATA.pairs[:, 0] - DATA.pairs[:, 1], DATA.labels
TRAIN, TEST = slice(0, 1000), slice(1000, None)
LEARNER = cf.LinearMetricLearner(**PAPER).fit(X[TRAIN], LABELS[TRAIN])
METRIC = in_data_scale(LEARNER.metric_, X[TRAIN])
UNITS = np.array([1e9, 1e-6, 1.0, 30.0, -2.0])


@pytest.fixture(scope="module")
def path():
    return truncation_path(
        METRIC, X[TRAIN], LABELS[TRAIN], scale="data", held_out=(X[TEST], LABELS[TEST]), learner=LEARNER
    )


def loss(metric, z, labels, weights=None):
    return np.average(metric.noise.neg_log_cdf(labels * metric.margin(z)), weights=weights)


# Figures


def test_there_is_a_step_for_each_rank(path):
    assert [step.k for step in path] == list(range(METRIC.rank + 1))
    assert len(path) == METRIC.rank + 1
    assert path[2].metric == METRIC.truncate(2, "data")
    assert path[-1].metric == METRIC


def test_figures_are_those_of_the_truncated_metrics(path):
    for step in path:
        assert step.loss == pytest.approx(loss(step.metric, X[TRAIN], LABELS[TRAIN]), rel=1e-9)
        assert step.held_out_loss == pytest.approx(loss(step.metric, X[TEST], LABELS[TEST]), rel=1e-9)
        right = np.mean((step.metric.margin(X[TRAIN]) >= 0) == (LABELS[TRAIN] > 0))
        assert step.accuracy == pytest.approx(right, abs=1e-12)
        assert step.lost == pytest.approx(step.loss - path[-1].loss, abs=1e-12)
    assert path[-1].lost == path[-1].gamma == path[-1].bound == path[-1].guarantee == 0.0


@pytest.mark.parametrize("scale", ["data", "units"])
def test_gamma_is_the_largest_eigenvalue_cut_off(scale):
    values = METRIC.data_eigenvalues if scale == "data" else METRIC.eigenvalues[: METRIC.rank]
    path = truncation_path(METRIC, X, LABELS, scale=scale)
    np.testing.assert_allclose([step.gamma for step in path], [*values, 0.0])
    assert path.scale == scale


def test_weights_count_as_repetitions():
    counts = np.random.default_rng(0).integers(0, 3, size=len(X))
    repeated = truncation_path(METRIC, np.repeat(X, counts, axis=0), np.repeat(LABELS, counts))
    for left, right in zip(truncation_path(METRIC, X, LABELS, counts), repeated, strict=True):
        assert left.loss == pytest.approx(right.loss, rel=1e-12)
        assert left.bound == pytest.approx(right.bound, rel=1e-9)


def test_pairs_give_the_path_of_their_differences():
    left, right = truncation_path(METRIC, DATA.pairs, LABELS), truncation_path(METRIC, X, LABELS)
    assert [step.loss for step in left] == [step.loss for step in right]


# The theorem


@pytest.mark.parametrize("scale", ["data", "units"])
@pytest.mark.parametrize("noise", sorted(NOISES))
def test_bounds_hold(noise, scale):
    metric = in_data_scale(cf.Metric.from_factor(METRIC.factor, METRIC.threshold, noise), X)
    path = truncation_path(metric, X, LABELS, scale=scale)
    for step in path:
        assert abs(step.lost) <= step.bound <= step.guarantee * (1 + 1e-12)


def test_bound_in_the_data_scale_is_the_sum_of_the_eigenvalues_cut_off():
    metric = in_data_scale(METRIC, X)
    path = truncation_path(metric, X, LABELS)
    expected = [path.zeta * metric.data_eigenvalues[k:].sum() for k in range(metric.rank + 1)]
    np.testing.assert_allclose([step.bound for step in path], expected, rtol=1e-9, atol=1e-12)


def test_slope_covers_margins_that_truncation_lowers():
    metric = cf.Metric([[1.0]], threshold=30.0, noise="normal")
    path = truncation_path(metric, [[np.sqrt(30.0)]], [1])
    assert path[0].lost <= path[0].bound
    assert path.zeta == pytest.approx(NOISES["normal"].constants(30.0).zeta)


@pytest.mark.parametrize(("threshold", "scale"), [(1.0, 1.0), (50.0, 1.0), (0.2, 0.01)])
def test_slope_is_that_of_the_largest_margin_of_the_whole_metric(threshold, scale):
    rows = scale * np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 9.0], [1.0, 2.0, 0.5]])
    metric = cf.Metric(np.diag([2.0, 1.0, 0.5]), threshold, noise="normal")
    path = truncation_path(metric, rows, [1, 1, -1])
    margins = np.einsum("ij,jk,ik->i", rows, metric.matrix, rows) - threshold
    assert path.zeta == pytest.approx(NOISES["normal"].constants(max(threshold, np.abs(margins).max())).zeta)
    longest = 81.0 * scale**2
    assert path.longest == pytest.approx(longest)
    np.testing.assert_allclose([step.guarantee for step in path], path.zeta * longest * np.array([4.0, 1.0, 0.25, 0.0]))


def test_a_direction_in_which_rows_do_not_vary_has_no_length_in_the_data_scale():
    path = truncation_path(cf.Metric(np.eye(2), 1.0), [[2.0, 0.0], [1.0, 0.0]], [1, -1], scale="data")
    assert [step.gamma for step in path] == pytest.approx([2.5, 0.0, 0.0])
    assert path.longest == pytest.approx(4.0 / 2.5)


def test_flips_flatten_the_loss():
    flipped = cf.Metric(METRIC.factor, METRIC.threshold, flip_rate=0.1)
    path = truncation_path(flipped, X, LABELS)
    right = flipped.probability_far(X)
    assert path[-1].loss == pytest.approx(-np.mean(np.log(np.where(LABELS > 0, right, 1.0 - right))), rel=1e-9)
    assert all(abs(step.lost) <= step.bound for step in path)


# Refitting


def test_refitting_in_the_kept_directions_helps(path):
    for step in path[:-1]:
        assert step.refit_loss <= step.loss + 1e-6
        assert step.refit_metric.rank <= step.k
        assert step.refit_loss == pytest.approx(loss(step.refit_metric, X[TRAIN], LABELS[TRAIN]), rel=1e-9)
        kept = METRIC.data_factor[:, : step.k]
        assert np.linalg.matrix_rank(np.hstack([kept, step.refit_metric.factor]), tol=1e-8) == step.k
    assert path[-1].refit_metric == METRIC


def test_of_many_ranks_only_some_are_refitted(monkeypatch):
    monkeypatch.setattr(truncation, "refit_leading", lambda judgements, settings, metric, directions, k: metric)
    metric = cf.Metric(np.diag(np.arange(40, 0, -1.0)), 1.0)
    rows, signs = np.vstack([np.ones(40), np.zeros(40)]), [1, -1]
    path = truncation_path(metric, rows, signs, learner=LEARNER, held_out=(rows, signs))
    ranks = candidate_ranks(40)
    assert len(ranks) < 41
    for step in path:
        assert (step.refit_metric is not None) == (step.refit_held_out_loss is not None) == (step.k in ranks)
        assert step.held_out_loss is not None


def test_a_learner_refits_quietly_unless_told_not_to(capsys):
    learner = cf.LinearMetricLearner(verbose=2, **PAPER).fit(X[TRAIN], LABELS[TRAIN])
    assert capsys.readouterr().err
    fit, judgements = learner.fit_, learner.fit_.training()
    assert truncation.truncation_of(fit, judgements)[1].refit_metric is not None
    assert truncation.truncation_of(fit, judgements, refits=False)[1].refit_metric is None
    assert capsys.readouterr() == ("", "")


def test_results_cannot_be_changed(path):
    for result, name in [(path, "zeta"), (path[0], "loss")]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, 0.0)


def test_the_rank_is_chosen_by_five_folds_dealt_alike_each_time():
    rows, labels = X[:120, :2], LABELS[:120]
    tables = [
        choose_rank(LEARNER, rows, labels, **options).table
        for options in ({}, {"cv": 5, "random_state": 0}, {"cv": 4}, {"random_state": 1})
    ]
    assert tables[0] == tables[1]
    assert tables[0] not in tables[2:]


def test_nothing_kept_is_a_constant_probability(path):
    share = np.mean(LABELS[TRAIN] > 0)
    nothing = path[0].refit_metric
    assert nothing.rank == 0
    assert nothing.probability_far(np.ones(D)) == pytest.approx(min(share, 0.5), abs=1e-9)


def test_refitted_metric_knows_the_data_scale(path):
    metric = path[2].refit_metric
    moment = X[TRAIN].T @ X[TRAIN] / 1000
    np.testing.assert_allclose(
        metric.data_factor.T @ moment @ metric.data_factor, np.diag(metric.data_eigenvalues), atol=1e-9
    )


@pytest.mark.parametrize("prior", ["zero", "standardized", "euclidean"])
def test_penalty_is_kept_by_the_refit(prior):
    learner = cf.LinearMetricLearner(alpha=0.02, prior=prior, flip_rate=0.0).fit(X, LABELS)
    metric = in_data_scale(learner.metric_, X)
    path = truncation_path(metric, X, LABELS, learner=learner)
    assert path[1].refit_loss <= path[1].loss
    assert path[-1].refit_metric == metric


def test_a_chosen_penalty_is_kept_by_the_refit():
    learner = cf.LinearMetricLearner().fit(X, LABELS)
    metric = in_data_scale(learner.metric_, X)
    path = truncation_path(metric, X, LABELS, learner=learner)
    assert path[1].refit_loss <= path[1].loss + 1e-3
    assert [step.refit_metric.rank for step in path] == list(range(metric.rank + 1))


def test_the_plain_distance_is_truncated_and_refitted():
    """A penalty that leaves nothing but the plain distance leaves its leading directions, with another threshold."""
    learner = cf.LinearMetricLearner(alpha=100.0, prior="standardized", flip_rate=0.0).fit(X, LABELS)
    path = truncation_path(learner.metric_, X, LABELS, learner=learner)
    for step in path[1:-1]:
        ratio = step.refit_metric.squared_distance(X) / step.metric.squared_distance(X)
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
        assert step.refit_loss <= step.loss + 1e-9


def test_learned_origin_is_refitted_too():
    points = np.random.default_rng(0).normal(size=(800, 3)) * [1.0, 2.0, 5.0] + [5.0, -3.0, 1.0]
    squared = (points[:, 0] - 6.0) ** 2 + 0.25 * (points[:, 1] + 3.0) ** 2 + 1e-4 * points[:, 2] ** 2
    signs = np.where(squared + 0.3 * np.random.default_rng(1).logistic(size=800) >= 1.0, 1, -1)
    learner = cf.LinearMetricLearner(fit_origin=True, **PAPER).fit(points, signs)
    path = truncation_path(in_data_scale(learner.metric_, points), points, signs, learner=learner)
    for step in path[1:-1]:
        assert step.refit_loss <= step.loss + 1e-6
        assert step.refit_loss == pytest.approx(loss(step.refit_metric, points, signs), rel=1e-9)


# Units


def test_path_in_the_data_scale_is_the_same_in_any_units(path):
    learner = cf.LinearMetricLearner(**PAPER).fit(X[TRAIN] * UNITS, LABELS[TRAIN])
    changed = truncation_path(
        METRIC.change_units(UNITS),
        X[TRAIN] * UNITS,
        LABELS[TRAIN],
        held_out=(X[TEST] * UNITS, LABELS[TEST]),
        learner=learner,
    )
    names = ("loss", "bound", "guarantee", "held_out_loss", "refit_loss", "refit_held_out_loss")
    for left, right in zip(path, changed, strict=True):
        for name in names:
            assert getattr(left, name) == pytest.approx(getattr(right, name), rel=1e-5, abs=1e-9), name


def test_metric_that_knows_no_scale_takes_that_of_the_rows():
    by_hand = cf.Metric(METRIC.factor, METRIC.threshold)
    assert truncation_path(by_hand, X, LABELS).scale == "units"
    path = truncation_path(by_hand, X, LABELS, scale="data")
    moment = X.T @ X / len(X)
    values = np.sort(np.linalg.eigvals(by_hand.matrix @ moment).real)[::-1][: by_hand.rank]
    np.testing.assert_allclose([step.gamma for step in path[:-1]], values, rtol=1e-8)


def test_data_scale_of_points_is_their_covariance():
    points = X + 7.0
    metric = in_data_scale(cf.Metric(METRIC.factor, METRIC.threshold, origin=np.ones(D)), points)
    values = np.sort(np.linalg.eigvals(metric.matrix @ np.cov(points.T, bias=True)).real)[::-1][: metric.rank]
    np.testing.assert_allclose(metric.data_eigenvalues, values, rtol=1e-8)


# Text and errors


def test_table_has_a_line_for_each_rank(path):
    lines = str(path).split("\n")
    assert len(lines) == 1 + len(path)
    assert len({len(line) for line in lines}) == 1
    assert re.split("  +", lines[0]) == [
        *("k", "cut off", "loss", "lost", "at most", "guarantee", "accuracy", "refitted"),
        *("held out", "held out, refitted"),
    ]
    assert "held out" not in str(truncation_path(METRIC, X, LABELS))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"signs": LABELS[:-1]}, r"signs must be .*got shape \(1499,\) for 1500"),
        ({"signs": (LABELS > 0).astype(int)}, r"signs must be \+1 \(far\) or -1 \(close\); got 0"),
        ({"weights": np.ones(3)}, r"sample_weight must hold one number per pair; got shape \(3,\) for 1500"),
        ({"weights": -np.ones(1500)}, "sample_weight must be >= 0; got -1"),
        ({"scale": "feet"}, "scale must be .*got 'feet'"),
    ],
    ids=["short", "zeros and ones", "weights", "negative", "scale"],
)
def test_bad_input_is_named(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        truncation_path(METRIC, **{"differences": X, "signs": LABELS, **arguments})
