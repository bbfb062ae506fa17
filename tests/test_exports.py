"""ONNX models and FAISS indexes agree with the metric that they were made from."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import closefar as cf
from closefar.noise import NOISES, Normal

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
faiss = pytest.importorskip("faiss", reason="needs the extra faiss")

UNITS = 10.0 ** np.linspace(-6, 6, 7)


class OwnNoise(Normal):
    """A noise that is not in the registry, under a name that is."""


def scaled_metric(noise="logistic", rank=3, **kwargs) -> cf.Metric:
    """A metric for columns whose units differ by 1e12."""
    factor = np.random.default_rng(1).normal(size=(len(UNITS), rank)) / UNITS[:, None]
    return cf.Metric.from_factor(factor, 2.0, noise, **kwargs)


def scaled_points(n: int, seed: int) -> np.ndarray:
    """Points of which some are very near to each other and some very far."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, len(UNITS))) * UNITS * np.geomspace(1e-3, 1e2, n)[:, None]


def run(model, **inputs) -> dict[str, np.ndarray]:
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, inputs)
    return {output.name: value for output, value in zip(session.get_outputs(), outputs, strict=True)}


def assert_judges_like(metric: cf.Metric, outputs: dict[str, np.ndarray], z: np.ndarray) -> None:
    np.testing.assert_allclose(outputs["squared_distance"], metric.squared_distance(z), rtol=1e-12)
    np.testing.assert_allclose(outputs["distance"], np.sqrt(metric.squared_distance(z)), rtol=1e-12)
    np.testing.assert_allclose(outputs["probability_far"], metric.probability_far(z), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(outputs["is_far"], metric.margin(z) >= 0)


@pytest.mark.parametrize("flip_rate", [0.0, 0.1])
@pytest.mark.parametrize("noise", NOISES)
def test_pairs_agree_in_any_units(noise, flip_rate):
    metric = scaled_metric(noise, flip_rate=flip_rate)
    x, y = scaled_points(400, 2), scaled_points(400, 3)
    assert_judges_like(metric, run(metric.to_onnx(), x=x, y=y), x - y)


@pytest.mark.parametrize("flip_rate", [0.0, 0.3])
@pytest.mark.parametrize("noise", NOISES)
def test_levels_agree(noise, flip_rate):
    factor = scaled_metric().factor
    metric = cf.Metric(factor, (0.5, 2.0, 2.0, 30.0), noise, flip_rate=flip_rate)
    x, y = scaled_points(400, 2), scaled_points(400, 3)
    outputs = run(metric.to_onnx(), x=x, y=y)
    assert set(outputs) == {"squared_distance", "distance", "probabilities", "level"}
    np.testing.assert_allclose(outputs["probabilities"], metric.probabilities(x - y), rtol=0, atol=1e-6)
    chosen = outputs["probabilities"][np.arange(400), outputs["level"]]
    np.testing.assert_allclose(chosen, metric.probabilities(x - y).max(axis=1), rtol=0, atol=1e-6)
    assert len(np.unique(outputs["level"])) > 2


@pytest.mark.parametrize("flip_rate", [0.0, 0.1])
@pytest.mark.parametrize("noise", NOISES)
def test_comparisons_agree(noise, flip_rate):
    metric = cf.Metric(scaled_metric().factor, None, noise, flip_rate=flip_rate)
    a, b, c, e = (scaled_points(400, seed) for seed in (2, 3, 4, 5))
    near, far = (metric.squared_distance(z) for z in (a - b, a - c))
    outputs = run(metric.to_onnx(), a=a, b=b, c=c)
    np.testing.assert_allclose(outputs["margin"], far - near, rtol=1e-9)
    np.testing.assert_allclose(outputs["probability"], metric.probability_at(far - near), rtol=0, atol=1e-6)
    four = run(metric.to_onnx("quadruplets"), a=a, b=b, c=c, e=e)
    np.testing.assert_allclose(four["margin"], metric.squared_distance(c - e) - near, rtol=1e-9)
    as_triplets = run(metric.to_onnx("quadruplets"), a=a, b=b, c=a, e=c)
    np.testing.assert_array_equal(as_triplets["margin"], outputs["margin"])
    distances = run(metric.to_onnx("pairs"), x=a, y=b)
    assert set(distances) == {"squared_distance", "distance"}
    np.testing.assert_allclose(distances["squared_distance"], near, rtol=1e-12)


def test_two_flip_rates_agree():
    metric = scaled_metric(flip_rate=(0.2, 0.05))
    x, y = scaled_points(400, 2), scaled_points(400, 3)
    assert_judges_like(metric, run(metric.to_onnx(), x=x, y=y), x - y)


def test_a_metric_with_a_threshold_has_the_noise_of_pairs():
    with pytest.raises(ValueError, match=r'kind="triplets" needs a metric that was learned from comparisons alone'):
        scaled_metric().to_onnx("triplets")


def test_columns_with_a_large_offset_keep_float64():
    metric = cf.Metric([[1e4]], threshold=1.0)
    x, y = np.array([[2024.0 + 1e-4]]), np.array([[2024.0]])
    assert run(metric.to_onnx(), x=x, y=y)["distance"][0] == metric.distance(x, y)[0]


def test_one_row_is_compared_with_all_of_the_other_side():
    metric = scaled_metric()
    many, one = scaled_points(50, 4), scaled_points(1, 5)
    assert_judges_like(metric, run(metric.to_onnx(), x=many, y=one), many - one)
    assert_judges_like(metric, run(metric.to_onnx(), x=one, y=many), one - many)


@pytest.mark.parametrize("noise", NOISES)
def test_tails_and_huge_values(noise):
    metric = cf.Metric([[1.0]], 60.0, noise)
    x = np.sqrt(np.linspace(0.0, 120.0, 601))[:, None]  # margins from -60 to 60
    outputs = run(metric.to_onnx("points"), x=x)
    assert_judges_like(metric, outputs, x)
    probability = outputs["probability_far"]
    assert np.all(np.diff(probability) >= -1e-7)
    assert np.all((probability >= 0) & (probability <= 1))
    huge = run(metric.to_onnx("points"), x=np.array([[1e20], [-1e150], [1e300]]))
    np.testing.assert_array_equal(huge["probability_far"], 1.0)
    assert np.all(huge["is_far"])


@pytest.mark.parametrize("noise", ["logistic", "laplace", "hypsecant"])
def test_small_probabilities_keep_their_digits(noise):
    metric = cf.Metric([[1.0]], 40.0, noise)
    probability = run(metric.to_onnx("points"), x=np.zeros((1, 1)))["probability_far"]
    np.testing.assert_allclose(probability, metric.probability_far(np.zeros((1, 1))), rtol=1e-6)


def test_points_are_measured_from_the_origin_or_zero():
    rng = np.random.default_rng(0)
    points = rng.normal(loc=[5.0, -3.0], size=(500, 2))
    labels = np.sum((points - [6.0, -3.0]) ** 2, axis=1) + 0.3 * rng.logistic(size=500) >= 1.0
    learner = cf.LinearMetricLearner(fit_origin=True).fit(points, labels)
    outputs = run(learner.to_onnx(), x=points)
    assert_judges_like(learner.metric_, outputs, points)
    np.testing.assert_array_equal(outputs["is_far"], learner.predict(points))
    np.testing.assert_allclose(outputs["probability_far"], learner.predict_proba(points)[:, 1], rtol=0, atol=1e-6)
    metric, z = scaled_metric(), scaled_points(20, 6)
    assert_judges_like(metric, run(metric.to_onnx("points"), x=z), z)


def test_transform_is_the_linear_map_alone():
    pairs, labels, *_ = cf.datasets.make_pairs(300, 4, rank=2, random_state=0)
    learner = cf.LinearMetricLearner(rank=2).fit(pairs, labels)
    outputs = run(learner.to_onnx("transform"), x=pairs[:, 0])
    np.testing.assert_allclose(outputs["transformed"], learner.transform(pairs[:, 0]), rtol=1e-12, atol=1e-12)


def test_rank_zero():
    metric = cf.Metric(np.empty((3, 0)), threshold=1.0)
    x, y = np.ones((4, 3)), np.zeros((4, 3))
    assert_judges_like(metric, run(metric.to_onnx(), x=x, y=y), x - y)
    np.testing.assert_array_equal(run(metric.to_onnx("transform"), x=x)["transformed"], 0.0)


@pytest.mark.parametrize("noise", NOISES)
def test_another_runtime_gives_the_same(noise):
    from onnx.reference import ReferenceEvaluator

    metric, x, y = scaled_metric(noise), scaled_points(30, 7), scaled_points(30, 8)
    model = metric.to_onnx()
    names = [output.name for output in model.graph.output]
    outputs = dict(zip(names, ReferenceEvaluator(model).run(None, {"x": x, "y": y}), strict=True))
    assert_judges_like(metric, outputs, x - y)


def test_the_model_says_what_it_is():
    names = tuple(f"column <{index}>" for index in range(len(UNITS)))
    model = scaled_metric("laplace", feature_names=names, flip_rate=0.05).to_onnx()
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 7
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 13)]
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert tuple(json.loads(properties["feature_names"])) == names
    assert float(properties["threshold"]) == 2.0
    assert float(properties["flip_rate"]) == 0.05
    assert (properties["noise"], properties["kind"]) == ("laplace", "pairs")
    assert model.producer_name == "closefar"
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used


def test_a_noise_of_ones_own_is_refused_except_where_it_does_not_matter():
    metric = cf.Metric([[1.0]], 1.0, OwnNoise())
    for kind in (None, "pairs", "points"):
        with pytest.raises(ValueError, match=r"only the noise models of closefar.noise.*got OwnNoise\(\)"):
            metric.to_onnx(kind)
    assert run(metric.to_onnx("transform"), x=np.ones((1, 1)))["transformed"].shape == (1, 1)


def test_wrong_kinds_are_refused():
    with pytest.raises(ValueError, match=r'kind must be "pairs", .* or "transform"; got \'pair\''):
        scaled_metric().to_onnx("pair")
    with pytest.raises(ValueError, match=r'kind="pairs" needs a threshold for pairs.*Use kind="points"'):
        cf.Metric([[1.0]], 1.0, origin=[3.0]).to_onnx("pairs")


def test_faiss_finds_the_neighbours_of_the_metric():
    metric = scaled_metric()
    points, queries = scaled_points(500, 9), scaled_points(40, 10)
    squared, nearest = metric.to_faiss(points).search(queries.astype(np.float32), 5)
    everything = np.stack([metric.squared_distance(query - points) for query in queries])
    np.testing.assert_allclose(np.take_along_axis(everything, nearest, axis=1), squared, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.sort(everything, axis=1)[:, :5], squared, rtol=1e-4, atol=1e-4)


def test_faiss_with_few_queries_is_exact_to_float32():
    metric = scaled_metric()
    rng = np.random.default_rng(11)
    points = rng.normal(size=(200, len(UNITS))) * UNITS
    squared, nearest = metric.to_faiss(points).search(points[:3].astype(np.float32), 4)
    expected = np.stack([metric.squared_distance(points[row] - points[found]) for row, found in enumerate(nearest)])
    np.testing.assert_allclose(squared, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(nearest[:, 0], [0, 1, 2])


def test_faiss_is_centred_where_points_have_an_offset():
    """The index subtracts their mean first, or the squares of the offset would swallow the distances."""
    import faiss

    metric = scaled_metric()
    rng = np.random.default_rng(12)
    points = (rng.normal(size=(300, len(UNITS))) + 1000.0) * UNITS
    single = points.astype(np.float32)  # the same numbers for both, so that only the index rounds
    expected = np.sort(np.stack([metric.squared_distance(row - single.astype(float)) for row in single[:50]]), axis=1)
    index = metric.to_faiss(single)
    np.testing.assert_allclose(index.search(single[:50], 5)[0], expected[:, :5], rtol=1e-4, atol=2e-5)
    assert index.chain.size() == 2
    first = faiss.downcast_VectorTransform(index.chain.at(0))
    assert isinstance(first, faiss.CenteringTransform)
    np.testing.assert_array_equal(
        faiss.vector_to_array(first.mean), single.astype(float).mean(axis=0).astype(np.float32)
    )
    assert metric.to_faiss().chain.size() == 1


def test_faiss_is_exact_for_points_whose_offset_was_subtracted():
    metric = cf.Metric([[1e3]], threshold=1.0)
    years = 2024.0 + 1e-4 * np.arange(20.0)[:, None]
    centre = years.mean(axis=0)
    squared, _ = metric.to_faiss(years - centre).search((years[:1] - centre).astype(np.float32), 2)
    np.testing.assert_allclose(squared, [[0.0, metric.squared_distance(years[1] - years[0])]], rtol=1e-5, atol=1e-9)


def test_faiss_without_points_and_with_an_origin():
    metric = cf.Metric([[1.0], [0.5]], 1.0, origin=[5.0, 5.0])
    index = metric.to_faiss()
    assert (index.ntotal, index.d) == (0, 2)
    index.add(np.zeros((1, 2), dtype=np.float32))
    assert index.search(np.ones((1, 2), dtype=np.float32), 1)[0].item() == 2.25
    assert metric.to_faiss(np.empty((0, 2))).ntotal == 0


def test_faiss_index_can_be_written_and_read(tmp_path):
    metric, points = scaled_metric(), scaled_points(30, 13)
    faiss.write_index(metric.to_faiss(points), str(tmp_path / "index.faiss"))
    read = faiss.read_index(str(tmp_path / "index.faiss"))
    queries = points[:4].astype(np.float32)
    np.testing.assert_array_equal(read.search(queries, 3)[1], metric.to_faiss(points).search(queries, 3)[1])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.ones((2, 3)), r"points must have the metric's 7 columns; got shape \(2, 3\)"),
        (np.ones(7), r"points must have the metric's 7 columns; got shape \(7,\)"),
        (np.full((2, 7), np.nan), "points must be finite"),
        (np.full((2, 7), 1e39), "FAISS works in float32.*change_units"),
    ],
)
def test_faiss_refuses_what_it_cannot_hold(points, message):
    with pytest.raises(ValueError, match=message):
        scaled_metric().to_faiss(points)


def test_faiss_refuses_rank_zero():
    with pytest.raises(ValueError, match="to_faiss needs a metric of rank 1 or more"):
        cf.Metric(np.empty((3, 0)), 1.0).to_faiss()


def test_learner_passes_on():
    pairs, labels, *_ = cf.datasets.make_pairs(300, 3, random_state=0)
    learner = cf.LinearMetricLearner().fit(pairs, labels)
    assert learner.to_onnx() == learner.metric_.to_onnx()
    assert learner.to_faiss(pairs[:, 0]).ntotal == 300
    for method in ("to_onnx", "to_faiss"):
        with pytest.raises(NotFittedError):
            getattr(cf.LinearMetricLearner(), method)()


@pytest.mark.parametrize("name", ["onnx", "faiss"])
def test_a_missing_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"to_{name} needs {name}: run pip install 'closefar\[{name}\]'\."):
        getattr(scaled_metric(), f"to_{name}")()


def test_nothing_of_it_is_imported_before_it_is_asked_for():
    code = "import sys, closefar as cf; cf.LinearMetricLearner, cf.Metric; print({'onnx', 'faiss'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
