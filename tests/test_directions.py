"""One order of directions: whatever shows, maps to, cuts or exports directions 1, 2, ... means the same ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import closefar as cf
from closefar.model import in_data_scale
from closefar.questions import describe_directions, describe_fit
from closefar.report import summarize
from paper_estimator import PAPER

TABLES = {
    "plain": (5, {}),
    "few directions": (6, {"rank": 2}),
    "penalty": (4, {"alpha": 0.01}),
    "centre": (4, {"alpha": 0.01, "prior": "standardized"}),
    "origin": (3, {"fit_origin": True, "alpha": 1e-3}),
}


@pytest.fixture(scope="module", params=TABLES)
def table(request):
    """A learner of a random table whose columns differ in size by many orders, and its differences (or points)."""
    d, parameters = TABLES[request.param]
    seed = list(TABLES).index(request.param)
    rng = np.random.default_rng(seed)
    data = cf.datasets.make_pairs(1200, d, wrong_share=0.1, random_state=seed)
    units = 10.0 ** rng.uniform(-4.0, 4.0, d)
    rows = (data.pairs[:, 0] - data.pairs[:, 1]) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d))) * units
    return cf.LinearMetricLearner(tol=1e-9, **PAPER | parameters).fit(rows, data.labels), rows, data.labels


def explained(learner, rows):
    """The mean squared distance along each direction; with an origin, about the mean of the points."""
    mapped = learner.transform(rows)
    return np.mean((mapped - mapped.mean(axis=0) if learner.fit_origin else mapped) ** 2, axis=0)


def test_directions_are_in_order_of_the_mean_squared_distance_that_they_explain(table):
    learner, rows, _ = table
    metric, found = learner.metric_, explained(learner, rows)
    assert np.all(np.diff(found) <= 0)
    np.testing.assert_allclose(metric.directions().values, found, rtol=1e-6)
    np.testing.assert_array_equal(learner.components_, metric.components)
    np.testing.assert_array_equal(metric.components.T, metric.directions().columns)
    np.testing.assert_allclose(learner.transform(rows), rows @ learner.components_.T, rtol=1e-12)
    np.testing.assert_allclose(metric.components.T @ metric.components, metric.matrix, rtol=1e-8)
    assert len(learner.get_feature_names_out()) == metric.rank
    sums = np.mean(learner.transform(rows), axis=0) if learner.fit_origin else 0.0
    mapped = learner.transform(rows) - sums
    np.testing.assert_allclose(mapped.T @ mapped / len(rows), np.diag(found), atol=1e-6 * found[0])


def test_the_largest_loading_of_a_direction_is_positive(table):
    learner, rows, _ = table
    size = np.std(rows, axis=0) if learner.fit_origin else np.sqrt(np.mean(rows**2, axis=0))
    loadings = learner.components_ * size
    assert np.all(loadings.max(axis=1) >= (1.0 - 1e-5) * np.abs(loadings).max(axis=1))


def test_the_summary_lists_the_directions(table):
    learner, rows, _ = table
    found = explained(learner, rows)
    text = learner.summary()
    listed = re.findall(r"^(\d+) +(\S+) +\S+ +(\S+)% +\S+%$", text, re.M)
    assert [int(number) for number, _, _ in listed] == list(range(1, len(found) + 1))
    np.testing.assert_allclose([float(value) for _, value, _ in listed], found, rtol=1e-4)
    np.testing.assert_allclose([float(share) for _, _, share in listed], 100 * found / found.sum(), atol=0.06)
    first = learner.components_[0] * np.array(learner.fit_statistics_.column_scales)
    assert re.search(rf"Direction 1 explains {found[0] / found.sum():.1%} of the", text)
    assert re.search(rf"x{np.argmax(np.abs(first))} +\+", text.split("Its largest loadings")[1].split("\n")[1])


def test_plots_show_the_directions_of_the_map(table):
    learner, rows, _ = table
    bars = [bar.get_height() for bar in cf.plot.spectrum(learner).patches]
    np.testing.assert_allclose(bars, explained(learner, rows), rtol=1e-6)
    points = rows[:7] if learner.metric_.origin is None else rows[:7] - learner.metric_.origin
    shown = np.asarray(cf.plot.embedding(learner, rows[:7]).collections[0].get_offsets())
    along = min(2, learner.metric_.rank)
    np.testing.assert_allclose(shown[:, :along], (points @ learner.components_.T)[:, :along], rtol=1e-9)
    heat = np.asarray(cf.plot.loadings(learner, n_directions=2).images[0].get_array())
    scaled = learner.components_[:2].T * np.array(learner.fit_statistics_.column_scales)[:, None]
    np.testing.assert_allclose(heat, scaled / np.linalg.norm(scaled, axis=0), rtol=1e-9)


def test_truncation_keeps_the_first_directions(table):
    metric = table[0].metric_
    for k in range(metric.rank + 1):
        short = metric.truncate(k)
        np.testing.assert_array_equal(short.components, metric.components[:k])
        np.testing.assert_array_equal(short.directions().values, metric.directions().values[:k])
    path = table[0].truncation_path()
    np.testing.assert_allclose([step.gamma for step in path][:-1], metric.directions().values, rtol=1e-12)


def test_a_model_file_keeps_the_directions(table, tmp_path):
    metric = table[0].metric_
    metric.save(tmp_path / "model.closefar")
    np.testing.assert_array_equal(cf.load(tmp_path / "model.closefar").components, metric.components)
    plain = cf.Metric(metric.factor, metric.threshold)
    plain.save(tmp_path / "older.closefar")  # files of earlier versions do not know the data
    np.testing.assert_array_equal(cf.load(tmp_path / "older.closefar").components, metric.factor.T)


def test_directions_follow_a_change_of_units(table):
    learner, rows, labels = table
    units = 10.0 ** np.linspace(3.0, -3.0, rows.shape[1])
    other = cf.LinearMetricLearner(**learner.get_params()).fit(rows * units, labels)
    found = other.components_ * units
    reached = np.abs(learner.components_).max(axis=0)
    kept = learner.metric_.directions().shares > 1e-4  # of the others rounding decides
    np.testing.assert_allclose((found / reached)[kept], (learner.components_ / reached)[kept], atol=2e-3)
    moved = learner.metric_.change_units(units)
    np.testing.assert_allclose(moved.components * units, learner.components_, rtol=1e-12)


def test_exports_map_to_the_directions(table):
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    metric = table[0].metric_
    model = metric.to_onnx("transform")
    factor = next(tensor for tensor in model.graph.initializer if tensor.name == "factor")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(factor), metric.components.T)


def test_the_report_numbers_directions_alike():
    data = cf.datasets.make_pairs(400, 3, wrong_share=0.1, random_state=3)
    rows = (data.pairs[:, 0] - data.pairs[:, 1]) * [1e-3, 1.0, 1e3]
    learner = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(rows, data.labels)
    facts, found = summarize(learner), explained(learner, rows)
    np.testing.assert_allclose([row["value"] for row in facts["spectrum"]["rows"]], found, rtol=1e-6)
    np.testing.assert_allclose([row["weights"] for row in facts["directions"]["rows"]], learner.components_)
    np.testing.assert_allclose([row["cut_off"] for row in facts["truncation"]["rows"]][:-1], found, rtol=1e-6)
    intervals = [row["estimate"] for row in facts["intervals"]["directions"]]
    np.testing.assert_allclose(intervals[: len(found)], found, rtol=1e-5)
    assert (
        f"along {sum(row['low'] > 0 for row in facts['intervals']['directions'])} of 3 directions"
        in (facts["intervals"]["reading"])
    )


def test_a_metric_that_does_not_know_its_pairs_is_ordered_by_those_of_the_report():
    data = cf.datasets.make_pairs(300, 3, wrong_share=0.1, random_state=4)
    rows = (data.pairs[:, 0] - data.pairs[:, 1]) * [1e-3, 1.0, 1e3]
    learner = cf.LinearMetricLearner(**PAPER).fit(rows, data.labels)
    known = learner.metric_
    object.__setattr__(learner.fit_, "metric", cf.Metric(known.factor, known.threshold, known.noise))
    facts = summarize(learner, rows, data.labels)
    np.testing.assert_allclose([row["value"] for row in facts["spectrum"]["rows"]], known.data_eigenvalues, rtol=1e-6)
    assert any("numbered by the mean squared distance" in problem for problem in facts["problems"])
    assert "Eigenvalues in raw units" in describe_fit(learner.fit_)


# Ties


def test_directions_that_explain_as_much_do_not_depend_on_rounding():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 4)) * [1.0, 10.0, 100.0, 1000.0]
    size = np.sqrt(np.mean(rows**2, axis=0))
    noise = rng.standard_normal((4, 4))
    # M is the inverse of the second moment, so every direction explains the same.
    whole = np.linalg.inv(rows.T @ rows / len(rows))
    first, second = (
        in_data_scale(cf.Metric.from_matrix(whole + tiny * (noise + noise.T) / np.outer(size, size), 1.0), rows)
        for tiny in (0.0, 1e-12)
    )
    np.testing.assert_allclose(first.components * size, second.components * size, atol=1e-8)
    np.testing.assert_allclose(first.data_eigenvalues, np.ones(4), rtol=1e-9)
    np.testing.assert_allclose(first.components.T @ first.components, first.matrix, rtol=1e-9)


# Intervals


def test_intervals_of_directions_hold_the_truth():
    """In raw units of very different size; the second moment of the pairs counts as known."""
    matrix, units = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.4]]), np.array([1e-3, 1.0, 1e4])
    hits = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((1000, 3))
        squared = np.einsum("ij,jk,ik->i", z, matrix, z)
        far = rng.random(1000) < 1.0 / (1.0 + np.exp(3.0 - squared))
        learner = cf.LinearMetricLearner(**PAPER).fit(z * units, far)
        found = cf.confidence(learner, z * units, far).directions
        root = np.linalg.cholesky(z.T @ z / len(z))
        truth = np.linalg.eigvalsh(root.T @ matrix @ root)[::-1]
        hits.append((found.low <= truth) & (truth <= found.high))
    assert np.all(np.mean(hits, axis=0) >= 0.85)  # 0.95 less 2.9 standard errors


def test_directions_of_a_good_metric_are_above_zero_whatever_the_units():
    data = cf.datasets.make_pairs(3000, 4, metric_eigenvalues=[2.0, 1.0, 0.7, 0.5], random_state=1)
    rows = (data.pairs[:, 0] - data.pairs[:, 1]) * [1e-6, 1.0, 1e4, 1e9]
    learner = cf.LinearMetricLearner(**PAPER).fit(rows, data.labels)
    found = cf.confidence(learner, rows, data.labels)
    assert found.valid
    assert np.all(found.directions.low[:3] > 0)
    assert np.all(found.eigenvalues.low[1:] == 0)  # in raw units the largest drowns the others
    np.testing.assert_allclose(found.directions.estimate, learner.metric_.data_eigenvalues, rtol=1e-6)


@pytest.mark.parametrize("prior", ["zero", "standardized"])
def test_estimates_of_directions_are_those_of_the_fit_without_a_penalty(prior):
    data = cf.datasets.make_pairs(1500, 3, rank=2, wrong_share=0.1, random_state=2)
    rows = data.pairs[:, 0] - data.pairs[:, 1]
    learner = cf.LinearMetricLearner(alpha=0.01, prior=prior, flip_rate=0.0).fit(rows, data.labels)
    found = cf.confidence(learner, rows, data.labels)
    values = found.metric.data_eigenvalues
    np.testing.assert_allclose(found.directions.estimate[: len(values)], values, rtol=1e-6)
    assert np.all(found.directions.estimate[len(values) :] == 0.0)


def test_no_more_directions_are_above_zero_than_a_told_rank():
    data = cf.datasets.make_pairs(2000, 5, wrong_share=0.1, random_state=6)
    rows = (data.pairs[:, 0] - data.pairs[:, 1]) * [1e-5, 1.0, 3.0, 1e3, 1e6]
    learner = cf.LinearMetricLearner(rank=2, **PAPER).fit(rows, data.labels)
    found = cf.confidence(learner, rows, data.labels).directions
    assert np.count_nonzero(found.low) == np.count_nonzero(found.estimate) == 2


def test_intervals_beyond_a_known_rank_are_zero_not_rounding():
    data = cf.datasets.make_pairs(2000, 4, rank=2, random_state=0)
    learner = cf.LinearMetricLearner(rank=2, **PAPER).fit(data.pairs, data.labels)
    found = cf.confidence(learner, data.pairs, data.labels, method="sandwich").directions
    assert np.all(found.low[:2] > 0)
    for ends in (found.estimate, found.standard_error, found.low, found.high):
        np.testing.assert_array_equal(ends[2:], 0.0)


def test_points_around_an_origin_are_measured_by_their_variance():
    points = np.random.default_rng(0).standard_normal((400, 2)) + 5.0
    metric = in_data_scale(cf.Metric(np.diag([2.0, 1.0]), 1.0, origin=np.ones(2)), points)
    assert metric.directions().measure == "variance"
    np.testing.assert_allclose(metric.directions().values.sum(), np.var(points @ metric.components.T, axis=0).sum())
    assert describe_directions(metric)[0].split()[1] == "Variance"
